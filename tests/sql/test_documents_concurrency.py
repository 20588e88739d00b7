"""Several writers of one workspace at once, each over connections of its own: nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from kiwi_rag.errors import RegistryRefused
from kiwi_rag.lexical import term_frequencies
from kiwi_rag.model import CollectionStatistics, EmbeddingRecord, Filters
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry.pool import Connections
from kiwi_rag.signing import keys
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import KEY
from tests.sql.documents import WORKSPACE, arguments, enrol, paths, records, registry_of_documents
from tests.sql.test_lock_order import waiting

CI = keys.generate("ci")
WORDS = [f"word{n}" for n in range(60)]
PUT = "select public.put_document(%s, %s, %s)"


@pytest.fixture
def url() -> Iterator[str]:
    with registry_of_documents() as fresh:
        with psycopg.connect(fresh) as connection:
            enrol(connection, CI, "ci@acme", "acme-web/*")
        yield fresh


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[RegistryVectorStore]]:
    """Four writers."""
    opened = [RegistryVectorStore(Connections(url, limit=2), WORKSPACE) for _ in range(4)]
    yield opened
    for store in opened:
        await store.close()


def document(path: str, seed: int, **changes: object) -> list[EmbeddingRecord]:
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=12)) for _ in range(chance.randint(1, 5))]
    return records(path, texts, seed=seed, **changes)


def truth(held: list[list[EmbeddingRecord]]) -> CollectionStatistics:
    """The statistics of these documents, counted anew."""
    counted = [term_frequencies(r.passage.indexed_text) for found in held for r in found]
    frequency = {word: df for word in WORDS if (df := sum(word in c for c in counted))}
    return CollectionStatistics(len(counted), sum(c.total() for c in counted), frequency, len(held))


async def test_writers_of_different_files_lose_nothing(stores: list[RegistryVectorStore], url: str) -> None:
    """Each writes ten files twice over, with words that all of them share, and deletes one."""

    async def write(number: int, store: RegistryVectorStore) -> list[list[EmbeddingRecord]]:
        key = {"key": CI, "principal": "ci@acme"} if number % 2 else {"key": KEY}
        kept = {}
        for turn in range(2):
            for n in range(10):
                path = f"docs/{number}-{n}.md"
                kept[path] = document(path, 1000 * turn + 10 * number + n, after=turn, **key)
                await store.put([kept[path]])
        del kept[f"docs/{number}-3.md"]
        assert await store.delete(ItemRef(ItemType.DOCUMENT, f"docs/{number}-3.md"))
        return list(kept.values())

    written = await asyncio.gather(*(write(n, store) for n, store in enumerate(stores)))
    held = [found for part in written for found in part]
    assert await stores[0].statistics(WORDS) == truth(held)
    assert {one.ref.item_id: one.digest for one in await stores[0].list(Filters())} == {
        found[0].admission.item.ref.item_id: found[0].admission.digest for found in held
    }
    with psycopg.connect(url) as connection:
        assert connection.execute("select public.verify_audit()").fetchone() == (None,)
        stored = connection.execute(
            "select d.item_id, p.ordinal, p.embedding::text from kiwi_private.passages as p"
            " join kiwi_private.statements as d on d.sequence = p.statement_id"
        ).fetchall()
    assert len(stored) == sum(map(len, held))
    vectors = {(path, ordinal): text for path, ordinal, text in stored}
    for found in held:
        for record in found:
            text = vectors[found[0].admission.item.ref.item_id, record.passage.ordinal]
            assert abs(float(text[1 : text.index(",")]) - record.vector[0]) < 1e-6


async def test_of_one_file_what_was_signed_last_stays(stores: list[RegistryVectorStore]) -> None:
    """Whoever comes when: ten statements about one path, from four writers in any order."""
    statements = [document("a.md", n, after=n) for n in range(10)]
    chance = random.Random(5)

    async def write(store: RegistryVectorStore, mine: list[list[EmbeddingRecord]]) -> int:
        refused = 0
        for found in mine:
            try:
                await store.put([found])
            except RegistryRefused as error:
                assert error.state == "KW018"
                refused += 1
        return refused

    chance.shuffle(statements)
    await asyncio.gather(*(write(store, statements[n::4]) for n, store in enumerate(stores)))
    last = max(statements, key=lambda found: found[0].admission.signed_at)
    assert await stores[0].statistics(WORDS) == truth([last])
    stored = await stores[0].get(ItemRef(ItemType.DOCUMENT, "a.md"))
    assert stored is not None
    assert stored.digest == last[0].admission.digest


async def test_one_that_is_not_done_keeps_nobody_waiting_who_only_reads(
    stores: list[RegistryVectorStore], url: str
) -> None:
    await stores[0].put([document("a.md", 1)])
    async with await psycopg.AsyncConnection.connect(url) as line:
        await line.execute(PUT, arguments(document("a.md", 2, after=1)))
        async with asyncio.timeout(60):
            assert await stores[1].statistics(WORDS) == truth([document("a.md", 1)])
        await line.rollback()
    assert await stores[1].statistics(WORDS) == truth([document("a.md", 1)])


async def test_clearing_waits_for_writers_and_they_begin_anew(stores: list[RegistryVectorStore], url: str) -> None:
    await stores[0].put([document("a.md", 1)])
    async with await psycopg.AsyncConnection.connect(url) as line:
        await line.execute(PUT, arguments(document("b.md", 2)))
        clearing = asyncio.create_task(stores[1].clear())
        await asyncio.sleep(0.2)
        assert not clearing.done()
        await line.commit()
        await clearing
    assert await paths(stores[0]) == []
    other = "other/0/384/mean/256"
    await asyncio.gather(
        *(store.put([records(f"{n}.md", ["word1"], seed=n, fingerprint=other)]) for n, store in enumerate(stores))
    )
    assert len(await paths(stores[0])) == 4
    assert (await stores[0].status()).fingerprint == other


async def test_a_revocation_and_a_put_do_not_pass_each_other(stores: list[RegistryVectorStore], url: str) -> None:
    by_ci = document("a.md", 1, key=CI, principal="ci@acme")
    async with await psycopg.AsyncConnection.connect(url) as line:
        await line.execute("select public.revoke_signer(%s)", [CI.key_id])
        putting = asyncio.create_task(stores[0].put([by_ci]))
        await asyncio.sleep(0.2)
        assert not putting.done()
        await line.commit()
        with pytest.raises(RegistryRefused) as refused:
            await putting
    assert refused.value.state == "KW003"
    assert await paths(stores[1]) == []


@pytest.mark.parametrize("revoked_first", [True, False])
@pytest.mark.parametrize("name", ["put", "delete", "clear"])
async def test_a_revocation_and_one_that_removes_what_the_key_signed_do_not_wait_for_each_other(
    stores: list[RegistryVectorStore], url: str, name: str, revoked_first: bool
) -> None:
    await stores[0].put([document("a.md", 1, key=CI, principal="ci@acme")])
    removals = {
        "put": (PUT, arguments(document("a.md", 2, after=1))),
        "delete": ("select public.delete_document(%s, 'a.md')", [WORKSPACE]),
        "clear": ("select public.clear_documents(%s)", [WORKSPACE]),
    }
    calls = [("select public.revoke_signer(%s)", [CI.key_id]), removals[name]]
    holder, *lines = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(3)]
    async with holder, lines[0], lines[1], asyncio.TaskGroup() as group, holder.transaction():
        await holder.execute("select kiwi.lock_audit()")
        for number, call in enumerate(calls if revoked_first else calls[::-1]):
            group.create_task(lines[number].execute(*call))
            await waiting(holder, number + 1)
    with psycopg.connect(url) as connection:
        assert connection.execute("select public.verify_audit()").fetchone() == (None,)
    assert await paths(stores[1]) == (["a.md"] if name == "put" else [])
