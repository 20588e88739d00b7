"""Storage on disk for several packages: atomic writes, safe reads, SQLite, locks, and rotating JSON lines.

Each operation has the strictest guarantees that any of its users needs. The modules raise `OSError` or an error of
`kiwi_rag.errors`, which the packages translate.
"""
