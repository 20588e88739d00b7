"""What several packages need of the disk: atomic writes, safe reads, SQLite, locks, and rotating JSON lines.

Each operation is written once, with the strictest guarantees that any of its users needs. The modules raise `OSError`
or an error of `kiwi_rag.errors`; each package says in its own error what that means for its user.
"""
