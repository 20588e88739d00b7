"""No query hangs or crashes a tier: random and adversarial texts through the real stores, and through plain SQL."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.lexical import MAX_TERM_LENGTH, MAX_TERMS, query_terms
from kiwi_rag.model import Filters, SearchQuery
from kiwi_rag.registry.calls import translate_errors
from kiwi_rag.registry.pool import Connections
from kiwi_rag.search import corrections
from kiwi_rag.search.searcher import check_query
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import admission, query, records
from tests.examples import examples
from tests.sql.databases import database, template

SECONDS = 30.0  # about hanging, not about speed: an idle machine answers each of these in milliseconds
CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/hostile_queries.txt").read_text("ascii").splitlines()
    if not line.startswith("#")
]
LONG = [
    "a" * 100_000,
    "deploy " * 15_000,
    '"' * 100_000,
    "(" * 100_000,
    "_" * 100_000,
    "aA" * 50_000,
    "a_" * 50_000,
    "é" * 100_000,
    "\U0001f680" * 25_000,
    "NEAR(a b) AND " * 7_000,
    " ".join(f"w{n}" for n in range(5_000)),
    " ".join(f"{n:x}" for n in range(5_000)),
    " ".join(f"deplo{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}" for n in range(676)),
]
DRIVERS = ("psycopg", "sqlite", "fts5", "traceback", "codec", "surrogate", "libpq")
_NOISE = st.sampled_from(
    [*"\"'()*:^-+&|!<>\\%$;{}[]\0\n\t\u202e\u200f\ud800", " AND ", " NEAR/2 ", "--", "/*", "deploy "]
)
hostile = st.one_of(
    st.text(st.characters(), max_size=200),  # every code point, surrogates too
    st.lists(_NOISE | st.text(max_size=4), max_size=60).map("".join),
    st.from_regex(r"[A-Za-z0-9_]{0,80}", fullmatch=True),
    st.builds(lambda a, b: a + b, st.sampled_from(CORPUS), st.sampled_from(CORPUS)),
)
RANDOM = settings(examples(60), suppress_health_check=list(HealthCheck), print_blob=True)
FEWER = settings(RANDOM, max_examples=examples(25).max_examples)
Ask = Callable[[Callable[[VectorStore], Awaitable[Any]]], Any]


@contextmanager
def empty_store(kind: str, folder: Path) -> Iterator[Any]:
    if kind == "local":
        yield LocalVectorStore(folder / "vectors", "owner")
    else:
        with database(like=template()) as url:
            yield RegistryVectorStore(Connections(url))


@pytest.fixture(scope="module", params=["local", pytest.param("registry", marks=pytest.mark.database)])
def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Runs a question against one store of each kind, with a few items in it."""
    with empty_store(request.param, tmp_path_factory.mktemp("tier")) as store, asyncio.Runner() as runner:

        async def fill() -> None:
            for number, text in enumerate(["deploy the canary", "a b c d e", "getUserById deploy_staging", "restore"]):
                await store.put([records(admission(f"acme/item-{number}", text), seed=number)])

        async def timed(question: Callable[[VectorStore], Awaitable[Any]]) -> Any:
            async with asyncio.timeout(SECONDS):
                return await question(store)

        runner.run(fill())
        yield lambda question: runner.run(timed(question))
        runner.run(store.close())


def search(text: str, filters: Filters | None = None) -> Callable[[VectorStore], Awaitable[None]]:
    """All that a search asks of a store for a query."""

    async def asked(store: VectorStore) -> None:
        terms = query_terms(text)
        assert all(0 < len(term) <= MAX_TERM_LENGTH + 8 for term in terms)
        statistics = await store.statistics(terms)
        unknown = corrections.find_unknown_terms(text, statistics)
        similar = await store.similar_terms(list(unknown))
        corrections.collect_options(unknown, [similar])
        found = await store.search(query(text, statistics, filters=filters))
        assert found.refused == ()

    return asked


@pytest.mark.parametrize("text", [*CORPUS, *LONG], ids=range(len(CORPUS) + len(LONG)))
def test_no_text_that_is_known_to_hurt_does(ask: Ask, text: str) -> None:
    ask(search(text[:100_000] if len(query_terms(text)) <= 5_000 else text[:10_000]))


@RANDOM
@given(hostile)
@example("\ud800")
def test_no_text_hurts(ask: Ask, text: str) -> None:
    ask(search(text))


@FEWER
@example("", "", "", "\ud800")
@given(hostile, hostile, hostile, hostile)
def test_no_filter_hurts(ask: Ask, category: str, author: str, tag: str, signer: str) -> None:
    filters = Filters(category=category, author=author, tags=(tag,), namespace=author, signer=signer)
    try:
        ask(search("deploy", filters))
    except KiwiError as error:
        assert_in_kiwis_words(error)


@FEWER
@given(st.lists(hostile, max_size=2 * MAX_TERMS))
def test_no_term_hurts_the_looking_up_of_slips(ask: Ask, terms: list[str]) -> None:
    ask(lambda store: store.similar_terms(terms))


def test_what_is_too_long_is_refused_before_anybody_is_asked() -> None:
    for text in (text for text in LONG if len(text) > 10_000):
        with pytest.raises(UsageError, match="characters"):
            check_query(SearchQuery(text))


@pytest.fixture(scope="module")
def anonymous() -> Iterator[psycopg.Connection]:
    """A connection of the role that may do least, over a registry with a few items."""
    with database(like=template()) as url, asyncio.Runner() as runner:
        store = RegistryVectorStore(Connections(url))
        runner.run(store.put([records(admission("acme/one", "deploy the canary to deploy_staging"))]))
        runner.run(store.close())
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("set role anon")
            connection.execute(f"set statement_timeout = '{SECONDS:.0f}s'")  # type: ignore[call-overload]
            yield connection


def ask_sql(connection: psycopg.Connection, statement: str, *arguments: object) -> None:
    """Ask plain SQL; what comes back is an answer or an error in Kiwi's words, and the connection still works."""
    started = time.monotonic()
    try:
        with translate_errors():
            connection.execute(statement, arguments).fetchall()  # type: ignore[call-overload]
    except KiwiError as error:
        assert "took too long" not in error.message
        assert_in_kiwis_words(error)
    except UnicodeEncodeError:
        assert any("\ud800" <= c <= "\udfff" for c in repr(arguments) + "".join(map(str, arguments)))
    assert time.monotonic() - started < SECONDS
    assert connection.execute("select 1").fetchone() == (1,)


def assert_in_kiwis_words(error: KiwiError) -> None:
    said = f"{error.message} {error.hint}".lower()
    assert not any(driver in said for driver in DRIVERS), said


LEXICAL = "select * from public.search_lexical(%s)"


@pytest.mark.database
@pytest.mark.parametrize("text", [*CORPUS, *LONG], ids=range(len(CORPUS) + len(LONG)))
def test_no_text_that_is_known_to_hurt_hurts_plain_sql(anonymous: psycopg.Connection, text: str) -> None:
    if "\0" not in text and text.isprintable() | text.isascii():  # what a driver can send at all
        ask_sql(anonymous, LEXICAL, text)


@pytest.mark.database
@RANDOM
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300))
def test_no_text_hurts_plain_sql(anonymous: psycopg.Connection, text: str) -> None:
    ask_sql(anonymous, LEXICAL, text)


@pytest.mark.database
@FEWER
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=20),
        lambda children: st.lists(children) | st.dictionaries(st.text(max_size=8), children),
        max_leaves=8,
    )
    | st.sampled_from(["{", "nul", '{"a":', "[]]", "\\u0000", '{"tags": ["\\u0000"]}', '{"since": "infinity"}', "{{}}"])
)
def test_no_filter_hurts_plain_sql(anonymous: psycopg.Connection, filter: object) -> None:
    text = filter if isinstance(filter, str) else json.dumps(filter)
    if "\0" not in text:
        ask_sql(anonymous, "select * from public.search_lexical('deploy', filter => %s::jsonb)", text)
