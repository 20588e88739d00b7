"""``python -m kiwi_rag.cli``."""

from kiwi_rag.cli import main

main()
