"""The vector leg at any size: which way is taken, that k come back whenever k match, and what tuning does and may."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

from kiwi_rag.errors import NotFound, RegistryError, RegistryRefused
from kiwi_rag.registry import rows, tuning
from kiwi_rag.registry.pool import Connections
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import FINGERPRINT, admission, query
from tests.examples import examples
from tests.sql.databases import ADA, database, name_of, template
from tests.sql.publication import published
from tests.sql.test_private_items import ANN, bind, log_in

ITEMS, PER_ITEM, TOPICS = 40, 50, 20
PASSAGES = ITEMS * PER_ITEM
OTHER = "other/0000000000000000/384/mean/256"
CATEGORIES = ("half", "rest")
SETTINGS = ("ivfflat.probes", "ivfflat.iterative_scan", "hnsw.ef_search", "enable_seqscan", "enable_sort", "jit")
BY_INDEX = ("ivfflat", "hnsw")


def vectors(topics: np.ndarray, seed: int) -> np.ndarray:
    """Unit vectors around the centres of topics."""
    centres = np.random.default_rng(0).standard_normal((TOPICS, 384))
    raw = centres[topics] + 0.5 * np.random.default_rng(seed).standard_normal((len(topics), 384))
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


TOPIC_OF = np.repeat(np.arange(ITEMS) % TOPICS, PER_ITEM)
STORED = vectors(TOPIC_OF, 1)
ASKED = vectors(np.arange(TOPICS), 2)


def meta(number: int) -> dict[str, Any]:
    """Item `number` is of topic ``number % TOPICS``; `half` has the topics below ten, `far` the last six alone."""
    tags = ["far"] if number % TOPICS >= TOPICS - 6 else ["near"]
    return {"category": CATEGORIES[number % TOPICS >= TOPICS // 2], "author": f"a{number % 8}", "tags": tags}


def namespace(number: int) -> str:
    return "few" if number < 2 else "many"


def fill(url: str) -> None:
    """Publish the items through the front door, and put their passages beside them as an indexer leaves them."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select public.begin_collection(%s)", [FINGERPRINT])
        for number in range(ITEMS):
            item = admission(f"{namespace(number)}/item-{number}", f"text {number}", metadata=meta(number))
            published(connection, item)
            store(connection, item.digest, 1, STORED[number * PER_ITEM : (number + 1) * PER_ITEM])


def store(connection: psycopg.Connection, digest: str, collection: int, found: np.ndarray) -> None:
    """Insert searchable passages without words, and count them."""
    connection.execute(
        """
        insert into kiwi.passages (
            statement_id, collection_id, dimension, ordinal, text, context, heading, start_line, end_line, length,
            terms, frequencies, searchable, embedding
        )
        select (select kiwi.items_of(%s)), %s, 384, place - 1, 'a passage', '', '{}', 1, 1, 0, '{}', '{}', true,
            one::extensions.vector
        from unnest(%s::text[]) with ordinality as given (one, place)
        """,
        [digest, collection, [rows.vector_text(one) for one in found]],
    )
    connection.execute(
        "update kiwi_private.collections set passages = passages + %s, items = items + 1 where collection_id = %s",
        [len(found), collection],
    )


def tune_well(url: str, method: str) -> None:
    """Build an index and measure it with half as many vectors as the command does, which is enough for so few."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tuning, "_SAMPLES", 75)
        tune(url, method=method)


def tune(url: str, fingerprint: str = "", **options: Any) -> tuning.Tuning:
    """Tune in an event loop of its own."""
    return asyncio.run(tuning.tune(url, fingerprint, **options))


@pytest.fixture(scope="module")
def filled() -> Iterator[str]:
    """The name of a database with the items."""
    with database(like=template()) as url:
        fill(url)
        yield name_of(url)


@pytest.fixture(scope="module")
def by_ivfflat(filled: str) -> Iterator[str]:
    """The name of a copy with an IVFFlat index."""
    with database(like=filled) as url:
        tune_well(url, "ivfflat")
        yield name_of(url)


@pytest.fixture(scope="module")
def by_hnsw(filled: str) -> Iterator[str]:
    """The name of a copy with an HNSW index."""
    with database(like=filled) as url:
        tune_well(url, "hnsw")
        yield name_of(url)


@pytest.fixture
def url(filled: str) -> Iterator[str]:
    """A copy without an index."""
    with database(like=filled) as fresh:
        yield fresh


@pytest.fixture
def indexed(by_ivfflat: str) -> Iterator[str]:
    """A copy with an IVFFlat index."""
    with database(like=by_ivfflat) as fresh:
        yield fresh


@pytest.fixture(scope="module", params=BY_INDEX)
def tuned(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection]:
    """A connection to a copy with an index, for tests that change nothing."""
    like = request.getfixturevalue(f"by_{request.param}")
    with database(like=like) as fresh, psycopg.connect(fresh, autocommit=True) as opened:
        yield opened


def nearest(
    connection: psycopg.Connection, vector: np.ndarray, depth: int, chosen: Mapping[str, Any] = {}, collection: int = 1
) -> tuple[list[int], str]:
    """The passages, and the plan."""
    ask = "select passage_id, plan from kiwi.nearest_passages(%s, %s::extensions.vector, %s, %s)"
    values = [collection, rows.vector_text(vector), depth, Jsonb(dict(chosen))]
    found = connection.execute(ask, values).fetchall()
    return [row[0] for row in found], found[0][1] if found else ""


def matching(connection: psycopg.Connection, chosen: Mapping[str, Any]) -> int:
    counted = """
        select count(*) from kiwi.passages as e join kiwi.statements as v on v.sequence = e.statement_id
        where (%(category)s::text is null or v.metadata ->> 'category' = %(category)s)
            and (%(author)s::text is null or v.metadata ->> 'author' = %(author)s)
            and (%(namespace)s::text is null or v.item_id like %(namespace)s || '/%%')
            and (%(tag)s::text is null or v.metadata -> 'tags' ? %(tag)s)
    """
    names = ("category", "author", "namespace")
    values = {name: chosen.get(name) for name in names} | {"tag": chosen.get("tags", [None])[0]}
    (count,) = connection.execute(counted, values).fetchone() or (0,)
    return count


def indexes(connection: psycopg.Connection) -> set[str]:
    found = "select indexname from pg_indexes where schemaname = 'kiwi' and indexname like 'passages_nearest%'"
    return {row[0] for row in connection.execute(found)}


def plan_row(connection: psycopg.Connection, fingerprint: str = FINGERPRINT) -> tuple[Any, ...]:
    found = "select plan, tuned_passages, recall, due from kiwi.vector_plans() where fingerprint = %s"
    return connection.execute(found, [fingerprint]).fetchone() or ()


def test_without_an_index_everything_is_compared(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        found, plan = nearest(connection, ASKED[3], 10)
        assert plan == "exact"
        assert found == [int(row) + 1 for row in np.argsort(-(STORED @ ASKED[3]))[:10]]
        assert nearest(connection, ASKED[3], 10, {"author": "a1"})[1] == "filtered exact"
        assert plan_row(connection) == ("exact", None, None, False)


def test_the_index_finds_what_is_wanted(tuned: psycopg.Connection) -> None:
    plan, passages, measured, due = plan_row(tuned)
    assert (passages, due) == (PASSAGES, False)
    assert measured >= 0.98
    hits = 0
    for asked in ASKED:
        found, way = nearest(tuned, asked, 10)
        assert way == plan
        hits += len({int(row) + 1 for row in np.argsort(-(STORED @ asked))[:10]}.intersection(found))
    assert hits / (10 * len(ASKED)) >= 0.95  # other vectors than it was measured with


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.fixed_dictionaries(
        {},
        optional={
            "category": st.sampled_from([*CATEGORIES, "none"]),
            "author": st.sampled_from(["a0", "a7"]),
            "namespace": st.sampled_from(["few", "many"]),
            "tags": st.sampled_from([["far"], ["near"]]),
        },
    ),
    depth=st.integers(1, 2000),
    asked=st.integers(0, TOPICS - 1),
)
def test_k_come_back_whenever_k_match(
    tuned: psycopg.Connection, chosen: dict[str, Any], depth: int, asked: int
) -> None:
    found, _ = nearest(tuned, ASKED[asked], depth, chosen)
    assert len(set(found)) == len(found) == min(depth, matching(tuned, chosen))


def test_the_way_depends_on_the_filter(tuned: psycopg.Connection) -> None:
    index = plan_row(tuned)[0]
    assert nearest(tuned, ASKED[0], 10, {"category": "half"})[1] == index
    assert nearest(tuned, ASKED[0], 10, {"namespace": "few"})[1] == "filtered exact"


def test_what_an_index_does_not_bring_is_compared(indexed: str) -> None:
    """A filter that lets much through, all of it far from what is asked, and an index that looks nowhere but near."""
    with psycopg.connect(indexed, autocommit=True) as connection:
        connection.execute("update kiwi_private.vector_indexes set effort = 1, wide_effort = 1")
        found, plan = nearest(connection, ASKED[0], 100, {"tags": ["far"]})
        assert (len(found), plan) == (100, "ivfflat, then filtered exact")


@pytest.mark.usefixtures("few_samples")
async def test_the_plan_reaches_the_client(url: str) -> None:
    registry = RegistryVectorStore(Connections(url))
    try:
        statistics = await registry.statistics([])
        assert (await registry.search(query("", statistics, depth=5))).plan == "exact"
        await tuning.tune(url, method="ivfflat")
        assert (await registry.search(query("", statistics, depth=5))).plan == "ivfflat"
        (told,) = (await registry.status()).details["vectors"]
        assert (told["model"], told["plan"], told["due"]) == (FINGERPRINT, "ivfflat", False)
    finally:
        await registry.close()


def test_nothing_of_it_stays_in_the_session(tuned: psycopg.Connection) -> None:
    def now() -> list[Any]:
        return [tuned.execute("select current_setting(%s, true)", [name]).fetchone() for name in SETTINGS]

    before = now()
    with tuned.transaction():
        nearest(tuned, ASKED[0], 10)
        nearest(tuned, ASKED[0], 10, {"category": "half"})
        assert now() == before
    assert now() == before


@pytest.mark.usefixtures("few_samples")
def test_small_collections_get_no_index_unless_it_is_asked_for(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        assert tune(url, dry_run=True).choice.method == "exact"
        assert tune(url).choice.method == "exact"
        assert indexes(connection) == set()
        done = tune(url, method="ivfflat", wanted=0.9)
        assert done.reached
        assert plan_row(connection)[0] == "ivfflat"
        again = tune(url)  # what was asked for last counts on
        assert (again.choice.method, again.wanted_recall) == ("ivfflat", 0.9)
        assert len(indexes(connection)) == 1  # the new one has taken the place of the old one
        tune(url, method="exact")
        assert indexes(connection) == set()
        assert nearest(connection, ASKED[0], 10)[1] == "exact"


@pytest.mark.usefixtures("few_samples")
def test_tuning_is_due_when_there_are_many_and_when_they_doubled(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:

        def pretend(passages: int) -> bool:
            connection.execute("update kiwi_private.collections set passages = %s", [passages])
            return bool(plan_row(connection)[3])

        assert [pretend(n) for n in (9_999, 10_000)] == [False, True]
        tune(url)
        assert plan_row(connection)[:2] == ("ivfflat", 10_000)
        assert [pretend(n) for n in (10_000, 19_999, 20_000)] == [False, False, True]
        tune(url)
        assert plan_row(connection)[1] == 20_000
        assert not plan_row(connection)[3]
        tune(url, method="exact")
        assert not pretend(1_000_000)


@pytest.mark.usefixtures("few_samples")
def test_a_build_that_was_broken_off_is_not_used_and_goes(indexed: str) -> None:
    with psycopg.connect(indexed, autocommit=True) as connection:
        (name,) = indexes(connection)
        broken = "update pg_index set indisvalid = false where indexrelid = %s::regclass"
        connection.execute(broken, [f"kiwi.{name}"])
        assert nearest(connection, ASKED[0], 10)[1] == "exact"
        done = tune(indexed)
        assert name in done.removed
        assert len(indexes(connection)) == 1
        assert nearest(connection, ASKED[0], 10)[1] == "ivfflat"


def test_one_at_a_time(url: str) -> None:
    with psycopg.connect(url) as other:
        other.execute("select from kiwi_private.locks where name = 'tuning' for update")
        with pytest.raises(RegistryError, match="holds a lock") as raised:
            tune(url, method="ivfflat")
        assert raised.value.transient


def test_cancelling_it_cancels_the_statement_and_the_next_run_removes_what_is_left(url: str) -> None:
    waiting = """select count(*) from pg_stat_progress_create_index
        where datname = current_database() and phase = 'waiting for old snapshots'"""

    async def cancel_while_it_builds(connection: psycopg.Connection) -> None:
        task = asyncio.create_task(tuning.tune(url, method="ivfflat"))
        while connection.execute(waiting).fetchone() == (0,) and not task.done():
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with psycopg.connect(url, autocommit=True) as connection:
        with psycopg.connect(url) as reader:  # the build waits for the end of its transaction
            reader.execute("set transaction isolation level repeatable read")
            reader.execute("select count(*) from kiwi.statements")
            asyncio.run(cancel_while_it_builds(connection))
            assert connection.execute(waiting).fetchone() == (0,)
        (left,) = indexes(connection)
        assert tune(url, method="exact").removed == (left,)
        assert indexes(connection) == set()


def test_a_model_without_vectors(url: str) -> None:
    with pytest.raises(NotFound):
        tune(url, OTHER)


@contextmanager
def login(url: str, role: str) -> Iterator[str]:
    """The URL of somebody who holds `role` and no more."""
    name = f"kiwi_test_{role}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("create role {} login password 'x' in role {}").format(*map(sql.Identifier, (name, role)))
        )
    parts = psycopg.conninfo.conninfo_to_dict(url)
    try:
        yield psycopg.conninfo.make_conninfo(url, user=name, password="x") if "host" in parts else url
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.mark.parametrize("role", ["anon", "kiwi_publisher", "kiwi_indexer", "kiwi_admin"])
def test_others_may_not_tune(url: str, role: str) -> None:
    with login(url, role) as theirs:
        with pytest.raises(RegistryRefused) as raised:
            tune(theirs, method="ivfflat")
        assert "GRANT kiwi_owner" in raised.value.hint


@pytest.mark.usefixtures("few_samples")
def test_the_owner_need_be_no_superuser(url: str) -> None:
    with login(url, "kiwi_owner") as theirs:
        assert tune(theirs, method="ivfflat").reached


@pytest.mark.usefixtures("few_samples")
def test_each_model_has_an_index_of_its_own_and_takes_it_along(indexed: str) -> None:
    with psycopg.connect(indexed, autocommit=True) as connection:
        connection.execute("select public.begin_collection(%s)", [OTHER])
        digests = [row[0] for row in connection.execute("select digest from kiwi.statements order by sequence")]
        collection, *_ = connection.execute(
            "select collection_id from kiwi_private.collections where fingerprint = %s", [OTHER]
        ).fetchone() or (0,)
        for number, digest in enumerate(digests):
            store(connection, digest, collection, vectors(np.full(3, number % TOPICS), number))
        tune(indexed, OTHER, method="hnsw")
        assert nearest(connection, ASKED[0], 10)[1] == "ivfflat"
        assert nearest(connection, ASKED[0], 10, collection=collection)[1] == "hnsw"
        assert len(indexes(connection)) == 2
        connection.execute("select public.drop_collection(%s)", [OTHER])
        assert len(indexes(connection)) == 1
        assert plan_row(connection, OTHER) == ()
        assert nearest(connection, ASKED[0], 10)[1] == "ivfflat"


def test_private_passages_stand_outside_and_cost_nobody_a_hit(indexed: str) -> None:
    draft = admission("many/item-7", "a draft of it", version="2.0.0", metadata=meta(7))
    with psycopg.connect(indexed, autocommit=True) as connection:
        bind(connection, ADA.public_key, ADA.principal, ANN)
        log_in(connection, "authenticated", ANN)
        published(connection, draft, "private")
        log_in(connection, "kiwi_indexer")
        passage = {
            "ordinal": 0, "text": "draft", "context": "", "heading": [], "start_line": 1, "end_line": 1, "length": 0,
            "terms": [], "frequencies": [], "embedding": rows.vector_text(ASKED[7]),
        }  # fmt: skip
        connection.execute("select public.store_passages(%s, %s, %s)", [draft.digest, FINGERPRINT, Jsonb([passage])])
        ask = "select version, item_id from public.search_embeddings(%s::extensions.vector, 20)"
        log_in(connection, "anon")
        others = connection.execute(ask, [rows.vector_text(ASKED[7])]).fetchall()
        log_in(connection, "authenticated", ANN)
        own = connection.execute(ask, [rows.vector_text(ASKED[7])]).fetchall()
    assert len(others) == len(own) == 20
    assert {row[0] for row in others} == {"1.0.0"}
    assert own[0] == ("2.0.0", "many/item-7")
    assert ("1.0.0", "many/item-7") in others
    assert ("1.0.0", "many/item-7") not in own


def test_a_dry_run_changes_nothing(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update kiwi_private.collections set passages = 1000000")
        told = tune(url, dry_run=True)
        assert told.choice.method == "ivfflat"
        assert told.choice.memory <= 1024 + 16
        assert indexes(connection) == set()
        assert plan_row(connection)[1] is None


def test_no_index_is_built_over_no_passages() -> None:
    with database(like=template()) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("select public.begin_collection(%s)", [FINGERPRINT])
        for method in BY_INDEX:
            done = tune(url, method=method)
            assert (done.choice.method, done.recall, done.reached) == ("exact", None, True)
        with psycopg.connect(url, autocommit=True) as connection:
            assert indexes(connection) == set()


def test_lists_grow_with_the_root_and_stay_within_memory() -> None:
    lists = [tuning.choose(n).lists for n in (10_000, 100_000, 1_000_000)]
    assert lists[0] == 400
    assert lists == sorted(lists)
    assert tuning.choose(1_000_000, memory=256).lists < lists[2]
    assert all(tuning.choose(n, memory=256).memory <= 256 + 16 for n in (10_000, 10**6, 10**8))
