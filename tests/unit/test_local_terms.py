"""The inverted index holds exactly the terms that `kiwi_rag.lexical` made."""

from __future__ import annotations

import sqlite3
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.lexical import terms
from kiwi_rag.stores.local.search import read_posting
from kiwi_rag.stores.local.session import CREATE_POSTINGS

NASTY = [
    "deploy_staging getUserById svc-check-in __init__ HTTPServer2Go v1.2.3",
    "naïve Straße İstanbul ǅ ﬁx ² ½ ٣ Ⅷ",
    "שלום עולם مرحبا بالعالم こんにちは世界 привет e\u0301clair",
    "NEAR AND OR NOT \"quoted\" col:umn star* ^caret {a b} -minus 'single' a''b",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👩‍🚀 क्षत्रिय ൠ ʼn",
    "a" * 300 + " _ __ ___ 0 00",
]


def index(text: str) -> dict[str, int]:
    connection = sqlite3.connect(":memory:")
    for statement in CREATE_POSTINGS:
        connection.execute(statement)
    connection.execute("INSERT INTO postings (rowid, terms) VALUES (7, ?)", (" ".join(terms(text)),))
    held = [row[0] for row in connection.execute("SELECT term FROM posting_terms")]
    found = {term: read_posting(connection, term) for term in held}
    assert all(keys.tolist() == [7] for keys, _ in found.values())
    return {term: int(counts[0]) for term, (_, counts) in found.items()}


@pytest.mark.parametrize("text", NASTY)
def test_nasty_terms_come_back_unchanged(text: str) -> None:
    assert index(text) == dict(Counter(terms(text)))


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=200))
def test_any_text_round_trips(text: str) -> None:
    assert index(text) == dict(Counter(terms(text)))
