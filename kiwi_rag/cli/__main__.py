"""``python -m kiwi_rag.cli``."""

from kiwi_rag.entry import main

main()
