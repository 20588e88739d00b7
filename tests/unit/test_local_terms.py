"""The inverted index holds exactly the terms that `kiwi_rag.lexical` made."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.lexical import terms
from kiwi_rag.model import Passage
from kiwi_rag.stores.local.session import CREATE_POSTINGS
from kiwi_rag.stores.local.snapshot import read_posting
from kiwi_rag.symbols import index_terms, passage_symbols

NASTY = [
    "deploy_staging getUserById svc-check-in __init__ HTTPServer2Go v1.2.3",
    "naïve Straße İstanbul ǅ ﬁx ² ½ ٣ Ⅷ",
    "שלום עולם مرحبا بالعالم こんにちは世界 привет e\u0301clair",
    "NEAR AND OR NOT \"quoted\" col:umn star* ^caret {a b} -minus 'single' a''b",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👩‍🚀 क्षत्रिय ൠ ʼn",
    "a" * 300 + " _ __ ___ 0 00",
]


def index(indexed: Iterable[str]) -> dict[str, int]:
    connection = sqlite3.connect(":memory:")
    for statement in CREATE_POSTINGS:
        connection.execute(statement)
    connection.execute("INSERT INTO postings (rowid, terms) VALUES (7, ?)", (" ".join(indexed),))
    held = [row[0] for row in connection.execute("SELECT term FROM posting_terms")]
    found = {term: read_posting(connection, term) for term in held}
    assert all(keys.tolist() == [7] for keys, _ in found.values())
    return {term: int(counts[0]) for term, (_, counts) in found.items()}


@pytest.mark.parametrize("text", NASTY)
def test_nasty_terms_come_back_unchanged(text: str) -> None:
    assert index(terms(text)) == dict(Counter(terms(text)))


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=200))
def test_any_text_round_trips(text: str) -> None:
    assert index(terms(text)) == dict(Counter(terms(text)))


@pytest.mark.parametrize(
    "name", [*NASTY, "src/[id]/my page.tsx", "a//b::c#d->e.f", "İ/ſ.ts", "x\u0301y/z\u2019s.py", "..", "-"]
)
def test_the_terms_of_any_name_come_back_unchanged(name: str) -> None:
    symbols = index_terms(passage_symbols(name.replace("/", "_"), Passage(0, name, "", (name,), 1, 1, "section")))
    symbols |= index_terms(passage_symbols(name, Passage(0, f"def {name}():", "", (), 1, 1, "function")))
    assert index(symbols) == dict.fromkeys(symbols, 1)
