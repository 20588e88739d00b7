"""The catalog's schema, as numbered steps; ``PRAGMA user_version`` is the number of the last one that was applied."""

from __future__ import annotations

import sqlite3

from kiwi_rag.errors import StoreCorrupt, StoreError

# Triggers keep the totals and the Chroma journal in step with `passages`, so that no writer can forget them. Postings
# have no trigger: with ``trusted_schema = OFF`` one may not touch a virtual table.
# Keys are AUTOINCREMENT, so a key that Chroma may still have is never used again.
#
# The terms are made by kiwi_rag.lexical. The 'ascii' tokenizer treats every character above U+007F as part of a
# token, folds only A-Z (which a term never has) and, with '_' added, splits at the joining spaces and nowhere else.
CREATE_POSTINGS = (
    """CREATE VIRTUAL TABLE postings USING fts5(terms, tokenize = "ascii tokenchars '_'")""",
    "CREATE VIRTUAL TABLE posting_terms USING fts5vocab('postings', 'row')",
    "CREATE VIRTUAL TABLE posting_instances USING fts5vocab('postings', 'instance')",
)

# One set of tables for items and documents. Columns that only one of them has are empty for the other. Of an item every
# file is kept, by its digest; of a document only its passages.
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
INSERT INTO meta (name, value) VALUES
    ('generation', 0), ('fingerprint', ''), ('dimension', 0), ('passages', 0), ('total_length', 0),
    ('chroma_generation', 0), ('chroma_deletes', 0);

CREATE TABLE items (
    item_key INTEGER PRIMARY KEY AUTOINCREMENT,
    item_type TEXT NOT NULL, item_id TEXT NOT NULL, folded_id TEXT NOT NULL, namespace TEXT NOT NULL,
    version TEXT NOT NULL, digest TEXT NOT NULL, content_sha256 TEXT NOT NULL,
    payload_type TEXT NOT NULL, payload BLOB NOT NULL, signatures TEXT NOT NULL,
    key_id TEXT NOT NULL, principal TEXT NOT NULL, policy TEXT NOT NULL,
    admitted_at TEXT NOT NULL, signed_at TEXT NOT NULL,
    metadata TEXT NOT NULL, category TEXT NOT NULL, author TEXT NOT NULL,
    file_type TEXT NOT NULL, service TEXT NOT NULL, domain TEXT NOT NULL,
    UNIQUE (item_type, folded_id)
);

CREATE TABLE blobs (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL);

CREATE TABLE item_files (
    item_key INTEGER NOT NULL REFERENCES items ON DELETE CASCADE,
    path TEXT NOT NULL, sha256 TEXT NOT NULL REFERENCES blobs,
    PRIMARY KEY (item_key, path)
) WITHOUT ROWID;
CREATE INDEX item_files_by_content ON item_files (sha256);

CREATE TRIGGER file_removed AFTER DELETE ON item_files BEGIN
    DELETE FROM blobs WHERE sha256 = old.sha256 AND NOT EXISTS (SELECT 1 FROM item_files WHERE sha256 = old.sha256);
END;

CREATE TABLE versions (
    item_type TEXT NOT NULL, folded_id TEXT NOT NULL, version TEXT NOT NULL,
    content_sha256 TEXT NOT NULL, digest TEXT NOT NULL, seen_at TEXT NOT NULL,
    PRIMARY KEY (item_type, folded_id, version)
) WITHOUT ROWID;

CREATE TABLE tags (
    item_key INTEGER NOT NULL REFERENCES items ON DELETE CASCADE, tag TEXT NOT NULL,
    PRIMARY KEY (item_key, tag)
) WITHOUT ROWID;

CREATE TABLE passages (
    passage_key INTEGER PRIMARY KEY AUTOINCREMENT,
    item_key INTEGER NOT NULL REFERENCES items ON DELETE CASCADE,
    ordinal INTEGER NOT NULL, text TEXT NOT NULL, context TEXT NOT NULL, heading TEXT NOT NULL,
    start_line INTEGER NOT NULL, end_line INTEGER NOT NULL, kind TEXT NOT NULL, file TEXT NOT NULL,
    length INTEGER NOT NULL
);
CREATE INDEX passages_by_item ON passages (item_key, ordinal, length);

CREATE TABLE vectors (
    passage_key INTEGER PRIMARY KEY REFERENCES passages ON DELETE CASCADE, vector BLOB NOT NULL
);

CREATE TABLE chroma_journal (passage_key INTEGER PRIMARY KEY, present INTEGER NOT NULL);

CREATE TRIGGER passage_added AFTER INSERT ON passages BEGIN
    UPDATE meta SET value = value + 1 WHERE name = 'passages';
    UPDATE meta SET value = value + new.length WHERE name = 'total_length';
    INSERT OR REPLACE INTO chroma_journal (passage_key, present) VALUES (new.passage_key, 1);
END;
CREATE TRIGGER passage_removed AFTER DELETE ON passages BEGIN
    UPDATE meta SET value = value - 1 WHERE name = 'passages';
    UPDATE meta SET value = value - old.length WHERE name = 'total_length';
    INSERT OR REPLACE INTO chroma_journal (passage_key, present) VALUES (old.passage_key, 0);
END;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, event TEXT NOT NULL, ref TEXT NOT NULL,
    digest TEXT NOT NULL, key_id TEXT NOT NULL, details TEXT NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
"""

BASELINE = 100
"""The number of the first step. Pre-release Kiwis had the lower ones, in another file."""

STEPS: tuple[str, ...] = (";\n".join([*CREATE_POSTINGS, _TABLES]),)
"""Step *i* (from 0) makes schema version `BASELINE` + *i*. Steps are added at the end and never edited."""

SCHEMA_VERSION = BASELINE + len(STEPS) - 1


def migrate(connection: sqlite3.Connection, steps: tuple[str, ...] = STEPS) -> None:
    """Apply the missing steps, each in a transaction.

    Raises
    ------
    StoreError
        When a newer Kiwi made this catalog.
    StoreCorrupt
        When no Kiwi made it.
    """
    current = schema_version(connection)
    if 0 < current < BASELINE:
        raise StoreCorrupt(f"the catalog has schema {current}, which no Kiwi made", hint="kiwi doctor --repair")
    if current >= BASELINE + len(steps):
        raise StoreError(
            f"the catalog has schema {current}, this Kiwi has {BASELINE + len(steps) - 1}: a newer Kiwi made it",
            hint="upgrade kiwi-rag",
        )
    done = max(0, current - BASELINE + 1)
    for number, step in enumerate(steps[done:], start=BASELINE + done):
        _apply(connection, step, number)


def _apply(connection: sqlite3.Connection, step: str, number: int) -> None:
    try:
        # PRAGMA takes no parameters; the number is our own counter.
        connection.executescript(f"BEGIN IMMEDIATE;\n{step}\nPRAGMA user_version = {number:d};\nCOMMIT;")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the schema version; 0 for a catalog without tables."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
