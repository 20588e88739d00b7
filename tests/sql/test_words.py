"""The words leg: never another answer than summing up every posting gives, and never the cost of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from kiwi_rag import lexical
from kiwi_rag.errors import RegistryRefused
from kiwi_rag.lexical import bm25, bm25_weights, query_terms
from kiwi_rag.model import CollectionStatistics
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import translate_errors
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import FINGERPRINT, admission, records, unit_vector
from tests.examples import examples
from tests.sql.databases import database, template
from tests.sql.shelves_of_words import fill

ITEMS, PASSAGES_EACH, VOCABULARY = 400, 10, 80
RARE = [f"rare{n}" for n in range(20)]
COMMON = [f"word{n:02d}" for n in range(VOCABULARY)]
Ranked = list[tuple[int, float]]
FILTERS: dict[str, dict[str, str]] = {"none": {}, "few": {"namespace": "ns3"}, "most": {"category": "bulk"}}


@dataclass(frozen=True)
class Shelf:
    """A registry's searchable passages: terms by passage id, the ids that a filter lets through, and a connection."""

    connection: psycopg.Connection
    frequencies: dict[int, Counter[str]]
    allowed: dict[str, set[int]]

    @cached_property
    def statistics(self) -> CollectionStatistics:
        frequency = Counter(term for held in self.frequencies.values() for term in held)
        return CollectionStatistics(
            len(self.frequencies), sum(held.total() for held in self.frequencies.values()), frequency
        )

    def brute(self, terms: Sequence[str], statistics: CollectionStatistics, depth: int, filter: str = "none") -> Ranked:
        """The right answer, by the arithmetic that every store uses."""
        weights = bm25_weights(statistics, terms)
        scored = (
            (i, bm25(held, held.total(), weights, statistics.average_length))
            for i, held in self.frequencies.items()
            if i in self.allowed[filter]
        )
        return sorted((pair for pair in scored if pair[1]), key=lambda pair: (-pair[1], pair[0]))[:depth]

    def ask(
        self, call: str, terms: Sequence[str], statistics: CollectionStatistics, **arguments: object
    ) -> tuple[Ranked, bool]:
        """What a function of the words leg gives, and whether it calls that certain."""
        weights = bm25_weights(statistics, terms)
        arguments |= {"terms": list(weights), "weights": list(weights.values()), "average": statistics.average_length}
        rows = self.connection.execute(f"select passage_id, score, exact from {call}", arguments).fetchall()
        return [(row[0], row[1]) for row in rows], all(row[2] for row in rows)


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    rng = np.random.default_rng(11)
    odds = 1 / np.arange(1, VOCABULARY + 1) ** 0.8
    frequencies = {}
    for number in range(1, ITEMS * PASSAGES_EACH + 1):
        words = Counter(rng.choice(COMMON, size=rng.integers(20, 120), p=odds / odds.sum()).tolist())
        words.update(rng.choice(RARE, size=int(rng.random() < 0.1)).tolist())
        frequencies[number] = words
    with database(like=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        fill(connection, frequencies, PASSAGES_EACH)
        allowed = {
            name: {
                row[0]
                for row in connection.execute(
                    "select passage_id from kiwi.passages"
                    " where statement_id in (select kiwi.filtered_statements(array[''], %s))",
                    [Jsonb(filter)],
                )
            }
            for name, filter in FILTERS.items()
        }
        yield Shelf(connection, frequencies, allowed)


def assert_same(found: Ranked, right: Ranked, shelf: Shelf) -> None:
    """The same scores, in the same order; passages that tie by their ids."""
    assert [score for _, score in found] == pytest.approx([score for _, score in right], abs=1e-9)
    assert found == sorted(found, key=lambda pair: (-round(pair[1], 9), pair[0]))
    assert {i for i, score in found if score > right[-1][1] + 1e-9} == {
        i for i, score in right if score > right[-1][1] + 1e-9
    }


MATCHING = "kiwi.matching_passages(1, %(terms)s, %(weights)s, %(average)s, %(depth)s, %(filter)s)"
STRONGEST = "kiwi.threshold_top_k(1, %(terms)s, %(weights)s, %(average)s, %(depth)s, null, %(share)s)"
CONTENDING = """kiwi.maxscore_top_k(
    1, %(terms)s, %(weights)s, %(frequencies)s, %(average)s, %(depth)s, null, %(to_beat)s
)"""
queries = st.lists(st.sampled_from(COMMON + RARE), min_size=1, max_size=25, unique=True)
long_queries = st.lists(st.sampled_from(COMMON[:40]), min_size=32, max_size=40, unique=True)
merged = st.builds(  # what other tiers add to the statistics
    lambda passages, length, extra: CollectionStatistics(
        passages, passages * length, {t: min(n, passages) for t, n in extra.items()}
    ),
    st.integers(0, 100_000),
    st.integers(1, 300),
    st.dictionaries(st.sampled_from(COMMON + RARE), st.integers(1, 50_000), max_size=20),
)
SOME = settings(examples(20), suppress_health_check=list(HealthCheck))


@SOME
@given(queries | long_queries, merged, st.integers(1, 200), st.sampled_from(sorted(FILTERS)))
def test_the_words_leg_is_what_all_postings_add_up_to(
    shelf: Shelf, terms: list[str], others: CollectionStatistics, depth: int, filter: str
) -> None:
    statistics = shelf.statistics + others
    found, exact = shelf.ask(MATCHING, terms, statistics, depth=depth, filter=Jsonb(FILTERS[filter]))
    assert exact  # nothing here is large enough for an approximate answer
    assert_same(found, shelf.brute(terms, statistics, depth, filter), shelf)


@SOME
@given(queries, merged, st.integers(1, 60), st.integers(1, 400))
def test_what_the_strongest_postings_prove_is_true(
    shelf: Shelf, terms: list[str], others: CollectionStatistics, depth: int, share: int
) -> None:
    statistics = shelf.statistics + others
    found, exact = shelf.ask(STRONGEST, terms, statistics, depth=depth, share=share)
    right = shelf.brute(terms, statistics, depth)
    if exact:
        assert_same(found, right, shelf)
    else:  # a true score for each, and none too many
        scores = dict(shelf.brute(terms, statistics, len(shelf.frequencies)))
        assert len(found) <= depth
        assert all(score == pytest.approx(scores[i], abs=1e-9) for i, score in found)


@SOME
@given(queries, merged, st.integers(1, 60), st.floats(0, 1))
def test_contenders_are_right_for_every_mark_that_is_reached(
    shelf: Shelf, terms: list[str], others: CollectionStatistics, depth: int, slack: float
) -> None:
    statistics = shelf.statistics + others
    df = shelf.statistics.document_frequency
    terms = sorted((t for t in terms if df.get(t)), key=lambda t: (df[t], t))
    right = shelf.brute(terms, statistics, depth)
    to_beat = right[-1][1] * slack if len(right) == depth else 0.0
    arguments = {"frequencies": [df[t] for t in terms], "depth": depth, "to_beat": to_beat}
    found, exact = shelf.ask(CONTENDING, terms, statistics, **arguments)
    assert exact
    assert_same(found, right, shelf)


def test_long_questions_have_more_postings_than_are_just_summed_up(shelf: Shelf) -> None:
    """Else the first property here would not reach what it is about."""
    frequency = shelf.statistics.document_frequency
    assert sum(sorted(frequency[term] for term in COMMON[:40])[:32]) > 50_000


def test_a_common_term_is_not_read_to_its_end(shelf: Shelf) -> None:
    statistics = shelf.statistics
    common, rare = COMMON[0], RARE[0]
    assert statistics.document_frequency[common] > 3900
    before = postings_read(shelf.connection)
    for terms in ([common], [rare, common]):
        found, exact = shelf.ask(STRONGEST, terms, statistics, depth=10, share=50)
        assert exact
        assert_same(found, shelf.brute(terms, statistics, 10), shelf)
    assert postings_read(shelf.connection) - before < 3000  # of about 8,000


def test_what_had_to_stop_early_says_so(shelf: Shelf) -> None:
    """The counts of postings are the caller's word: here they say that lists are longer than are read whole."""
    statistics, terms = shelf.statistics, [RARE[0], RARE[1], *COMMON[:3]]
    scores = dict(shelf.brute(terms, statistics, len(shelf.frequencies)))
    arguments = {"frequencies": [20, 20, 400_000, 400_000, 400_000], "depth": 10, "to_beat": 0.0}
    found, exact = shelf.ask(CONTENDING, terms, statistics, **arguments)
    assert not exact
    assert {i for i, _ in found} <= {i for i, held in shelf.frequencies.items() if RARE[0] in held or RARE[1] in held}
    assert all(score == pytest.approx(scores[i], abs=1e-9) for i, score in found)
    assert len(found) == 10


def test_the_plan_tells_of_words_that_are_approximate(connection: psycopg.Connection) -> None:
    ask = "select distinct plan from public.search_hybrid(%s::extensions.vector, '{word00}', '{1}', 50)"
    vector = rows.vector_text(unit_vector(1))
    fill(connection, {1: Counter(["word00"])}, 1)
    assert connection.execute(ask, [vector]).fetchall() == [("exact",)]
    connection.execute(STOPPED_EARLY)
    assert connection.execute(ask, [vector]).fetchall() == [("exact, words approximate",)]


STOPPED_EARLY = """
    create or replace function kiwi.matching_passages(
        collection integer, terms text[], weights float8[], average_length float8, depth integer, filter jsonb
    ) returns table (passage_id bigint, score float8, exact boolean)
        language sql stable set search_path = pg_catalog, pg_temp
        as $$ select p.passage_id, 1::float8, false from kiwi.postings as p $$
"""


def test_a_question_of_5000_terms_is_answered(shelf: Shelf) -> None:
    nowhere = {f"nowhere{n}": 1 for n in range(4900)}  # but in another tier
    statistics = shelf.statistics + CollectionStatistics(1, 4900, nowhere)
    found, exact = shelf.ask(MATCHING, [*COMMON, *RARE, *nowhere], statistics, depth=100, filter=Jsonb({}))
    assert exact
    assert_same(found, shelf.brute([*COMMON, *RARE], statistics, 100), shelf)


def postings_read(connection: psycopg.Connection) -> int:
    """How many entries of the postings' indexes were read by this server so far."""
    connection.execute("select pg_stat_force_next_flush()")
    row = connection.execute(
        "select sum(idx_tup_read)::bigint from pg_stat_user_indexes where relname = 'postings'"
    ).fetchone()
    return int(row[0]) if row else 0


TEXTS = [
    "How do I deploy_staging?", "svc-check-in", "getUserById", "POST /check-ins", "HTTPServerError v1.2.3",
    "__init__ _x", "utf8 UTF8Decoder sha256 x86_64", "über Größe naïve café Straße_Name", "don't user's", "a_b_c ABc",
    "ISO8601Date parseHTML5", "99 bottles 3rd", "getURLForID IDs", "running ran generously dying before after all",
    "x" * 100, "_", "", "日本語 テキスト", "the of and to be", "foo.bar.baz() obj->method()",
]  # fmt: skip
words = st.text("abcXYZ_09 -./éß日", max_size=40)


@settings(examples(100), suppress_health_check=list(HealthCheck))
@given(st.sampled_from(TEXTS) | words)
def test_terms_made_in_sql_are_those_made_in_python(shelf: Shelf, text: str) -> None:
    assert shelf.connection.execute("select kiwi.query_terms(%s)", [text]).fetchone() == ([*query_terms(text)],)


def test_sql_leaves_out_the_same_words(shelf: Shelf) -> None:
    for word in lexical._FUNCTION_WORDS.split():
        assert shelf.connection.execute("select kiwi.query_terms(%s)", [word]).fetchone() == ([],)


async def test_words_of_private_passages_alone_are_told_to_nobody(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await store.put([records(admission("acme/open", "the canary sings"))])
    hidden = admission("acme/hidden", "the canaries whisper password")
    await store.publish(hidden, "private")
    connection.execute("set role kiwi_indexer")
    passages = Jsonb([rows.passage_object(one) for one in records(hidden)])
    connection.execute("select public.store_passages(%s, %s, %s)", [hidden.digest, FINGERPRINT, passages])
    for role in ("anon", "kiwi_publisher", "kiwi_indexer", "kiwi_admin", "service_role"):
        connection.execute("reset role")
        connection.execute(f"set role {role}")  # type: ignore[call-overload]
        told = connection.execute("select public.similar_terms('{canarx,passwrd,whispex}')").fetchone()
        assert told == ({"canarx": ["canari"], "passwrd": [], "whispex": []},)


def test_no_more_than_eight_words_are_looked_up_at_once(shelf: Shelf) -> None:
    with pytest.raises(RegistryRefused, match="up to 8"), translate_errors():
        shelf.connection.execute("select public.similar_terms(%s)", [[f"word{n}" for n in range(9)]])
