"""search_hybrid, search_lexical, search_embeddings, and their filters."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kiwi_rag.errors import UnknownFilter
from kiwi_rag.lexical import bm25, bm25_weights, query_terms, term_frequencies
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import translate_errors
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import admission, query, records, unit_vector

TEXTS = {
    "acme/one": "deploy the canary, then deploy the rest",
    "acme/two": "restore a database from the nightly backup",
    "acme/three": "deploy_staging restores nothing",
}


@pytest.fixture
async def filled(store: RegistryVectorStore) -> RegistryVectorStore:
    for n, (item_id, text) in enumerate(TEXTS.items()):
        await store.put([records(admission(item_id, text), seed=100 + n)])
    return store


async def test_bm25_equals_the_python_one(filled: RegistryVectorStore) -> None:
    statistics = await filled.statistics(query_terms("deploy database backup"))
    asked = query("deploy database backup", statistics, seed=100)
    weights = bm25_weights(statistics, asked.terms)
    scores = {}
    for hit in (await filled.search(asked)).items:
        frequencies = term_frequencies(hit.passage.indexed_text)
        scores[hit.ref.item_id] = hit.bm25
        assert hit.bm25 == pytest.approx(
            bm25(frequencies, frequencies.total(), weights, statistics.average_length), abs=1e-9
        )
    assert set(scores) == set(TEXTS)
    assert all(scores.values())


async def test_sql_callers_find_by_words_alone(filled: RegistryVectorStore, connection: psycopg.Connection) -> None:
    found = connection.execute("select item_id, score from search_lexical('How do I deploy_staging?')").fetchall()
    assert found[0][0] == "acme/three"
    assert {row[0] for row in found} >= {"acme/one", "acme/three"}
    assert connection.execute("select count(*) from search_lexical('xylophone')").fetchone() == (0,)
    assert connection.execute("select count(*) from search_lexical('')").fetchone() == (0,)
    limited = connection.execute("select item_id from search_lexical('deploy', 1, 'directive')").fetchall()
    assert len(limited) == 1


async def test_the_seeds_rpc_takes_its_three_arguments(
    filled: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    vector = rows.vector_text(unit_vector(101))
    call = "select item_id, similarity from public.search_embeddings(%s::extensions.vector, 2, %s)"
    found = connection.execute(call, [vector, "directive"]).fetchall()
    assert found[0] == ("acme/two", pytest.approx(1, abs=1e-6))
    assert len(found) == 2
    assert connection.execute(call, [vector, "script"]).fetchall() == []


@pytest.mark.parametrize(
    "filter",
    [
        {"colour": "red"},
        {"tags": "deploy"},
        {"tags": [1]},
        {"since": "soon"},
        {"author": 3},
        ["deploy"],
        "script",
        3,
        None,
    ],
)
def test_a_filter_is_never_ignored(connection: psycopg.Connection, filter: object) -> None:
    vector = rows.vector_text(unit_vector(1))
    for call in (
        "select * from public.search_embeddings(%s::extensions.vector, filter => %s)",
        "select * from public.list_items(%s)",
        "select * from public.search_lexical('x', filter => %s)",
    ):
        arguments = [vector, Jsonb(filter)] if call.count("%s") == 2 else [Jsonb(filter)]
        with pytest.raises(UnknownFilter), translate_errors():
            connection.execute(call, arguments)
