"""The indexer's queue: each item once, by one of many, oldest first; the killed one's item is another's; back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kiwi_rag import ingest
from kiwi_rag.chunking import split
from kiwi_rag.ingest import IngestContext
from kiwi_rag.ingest import registry_indexer as indexing
from kiwi_rag.ingest.registry_indexer import Failed, Unreachable, watch
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.registry import rows
from kiwi_rag.signing import dsse, keys
from kiwi_rag.signing.trust import Signer
from tests.registry_calls import enrol
from tests.sql.publication import CALL, encoded
from tests.sql.shelves import SmallModel, candidate, index, publish, refs, tier, writer

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

MODEL = str(SmallModel().fingerprint)


async def test_several_indexers_share_the_work_and_none_does_it_twice(url: str, tmp_path: Path) -> None:
    models = [SmallModel() for _ in range(3)]
    async with tier(url, tmp_path / "a") as a, tier(url, tmp_path / "b") as b, tier(url, tmp_path / "c") as c:
        await publish(a, *(candidate(f"acme/n{n}") for n in range(24)))
        done = await asyncio.gather(*(index(t, writer(model=m)) for t, m in zip((a, b, c), models, strict=True)))
        assert sorted(ref for one in done for ref in refs(one)) == sorted(f"acme/n{n}" for n in range(24))
        assert sum(bool(refs(one)) for one in done) > 1
        encoded = [text for model in models for text in model.texts]
        assert len(encoded) == len(set(encoded)) == (await a.store.status()).passages
        assert await a.store.client.pending_items(MODEL) == []


async def test_the_oldest_is_indexed_first(url: str, tmp_path: Path) -> None:
    async with tier(url, tmp_path) as registry:
        await publish(registry, *(candidate(f"acme/n{n}") for n in (3, 1, 2)))
        assert refs(await index(registry)) == ["acme/n3", "acme/n1", "acme/n2"]


async def test_a_claimed_item_is_nobody_elses_and_nobody_waits_for_it(url: str, tmp_path: Path) -> None:
    async with tier(url, tmp_path / "a") as one, tier(url, tmp_path / "b") as other:
        (admission,) = await publish(one, candidate("acme/x"))
        async with one.store.claim(admission.digest, MODEL) as mine:
            assert mine.state == "claimed"
            async with asyncio.timeout(60), other.store.claim(admission.digest, MODEL) as theirs:
                assert theirs.state == "busy"
            # a yank, a revocation and a publication do not wait for an indexer either
            async with asyncio.timeout(60):
                assert await other.store.delete(ItemRef(admission.ref.item_type, "acme/x"))
                await publish(other, candidate("acme/y"))


async def test_what_a_killed_indexer_had_claimed_is_done_by_another(
    url: str, tmp_path: Path, connection: psycopg.Connection
) -> None:
    async with tier(url, tmp_path / "a") as one, tier(url, tmp_path / "b") as other:
        (admission,) = await publish(one, candidate("acme/x"))
        claiming = one.store.claim(admission.digest, MODEL)
        assert (await claiming.__aenter__()).state == "claimed"
        waiting = asyncio.create_task(index(other))
        await asyncio.sleep(0.3)
        assert not waiting.done()  # it comes back for what another has, for that one may die
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where state = 'idle in transaction' and datname = current_database()"
        )
        assert refs(await waiting) == ["acme/x"]
        with pytest.raises(Exception, match=r"terminating|closed|lost"):
            await claiming.__aexit__(None, None, None)


async def test_an_indexer_that_falls_silent_loses_its_claim_and_the_index(
    url: str, tmp_path: Path, connection: psycopg.Connection
) -> None:
    async with tier(url, tmp_path) as registry:
        (one,) = await publish(registry, candidate("acme/x"))
        limit = "select setting::int / 1000 from pg_settings where name = 'idle_in_transaction_session_timeout'"
        with connection.transaction():
            connection.execute("select public.claim_item(%s, %s)", [one.digest, MODEL])
            assert connection.execute(limit).fetchone() == (600,)  # it may be embedding
            records = await ingest.embed(one, split(one.item), writer())
            passages = Jsonb([rows.passage_object(record) for record in records])
            connection.execute("select public.store_passages(%s, %s, %s)", [one.digest, MODEL, passages])
            assert connection.execute(limit).fetchone() == (15,)  # nothing is left to do but to commit
        assert connection.execute(limit).fetchone() == (0,)


async def test_a_refused_item_is_set_back_ever_longer_and_seen_in_the_status(
    url: str, tmp_path: Path, connection: psycopg.Connection
) -> None:
    eve = keys.generate("eve")
    trusted = writer(Signer("eve", eve.public_key))
    async with tier(url, tmp_path) as registry:
        await enrol(registry.store, Signer("eve", eve.public_key))
        await publish(registry, candidate("acme/x", key=eve), by=trusted)
        await publish(registry, candidate("acme/y"))
        first = await index(registry, patient=True)
        assert refs(first) == ["acme/y"]
        assert [type(outcome) for outcome in first] == [Failed, ItemRef]
        assert await index(registry, patient=True) == []  # not tried again in a hurry
        queue = (await registry.store.client.index_status())["queue"]
        assert (queue["waiting"], queue["refused"]) == (1, 1)
        assert queue["problems"][0]["ref"] == "knowledge:acme/x@1.0.0"
        assert "is not trusted here" in queue["problems"][0]["problem"]
        await index(registry)  # a person who asks is not put off
        wait = "select attempts, extract(epoch from not_before - now()) > 90 from kiwi_private.index_queue where attempts > 0"  # noqa: E501
        assert connection.execute(wait).fetchall() == [(2, True)]
        connection.execute("update kiwi_private.index_queue set not_before = now() where attempts > 0")
        assert refs(await index(registry, trusted, patient=True)) == ["acme/x"]  # mended, and its time has come
        assert (await registry.store.client.index_status())["queue"]["waiting"] == 0
        assert connection.execute("select count(*) from kiwi_private.index_queue where attempts > 0").fetchone() == (0,)


async def test_an_old_version_that_a_yank_brings_back_is_indexed(url: str, tmp_path: Path) -> None:
    async with tier(url, tmp_path) as registry:
        await publish(registry, candidate("acme/x"), candidate("acme/x", "Other words.", version="1.1.0"))
        assert refs(await index(registry)) == ["acme/x"]
        await registry.store.delete(ItemRef(candidate("acme/x").item_type, "acme/x", "1.1.0"))
        (back,) = await index(registry)
        assert isinstance(back, ItemRef)
        assert back.version == "1.0.0"


async def test_an_item_is_judged_as_of_its_arrival(url: str, tmp_path: Path, connection: psycopg.Connection) -> None:
    async with tier(url, tmp_path) as registry:
        await publish(registry, candidate("acme/x"))
        strict = writer()
        moved = strict.gate.__class__(
            strict.gate.trust, strict.gate.audience, lambda: strict.gate._now().replace(year=2099)
        )
        assert refs(await index(registry, IngestContext(moved, strict.embed))) == ["acme/x"]


async def test_watching_hears_of_a_publication_at_once_and_stops_when_told(url: str, tmp_path: Path) -> None:
    seen: asyncio.Queue[Any] = asyncio.Queue()

    async def work() -> None:
        async with tier(url, tmp_path / "worker") as registry:
            async for outcome in watch(registry, writer, every=60):
                await seen.put(outcome)

    async with tier(url, tmp_path / "publisher") as publisher:
        await publish(publisher, candidate("acme/before"))
        working = asyncio.create_task(work())
        async with asyncio.timeout(60):
            assert (await seen.get()).item_id == "acme/before"
            await publish(publisher, candidate("acme/after"))
            assert (await seen.get()).item_id == "acme/after"
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working


async def test_private_items_are_indexed_too_and_not_counted_before_others(
    url: str, tmp_path: Path, connection: psycopg.Connection
) -> None:
    async with tier(url, tmp_path) as registry:
        (shown, hidden) = (candidate("acme/shown"), candidate("acme/hidden"))
        await publish(registry, shown)
        connection.execute(CALL, [Jsonb(dsse.encode(hidden.envelope)), Jsonb(encoded(hidden.files)), "private"])
        status = await registry.store.client.index_status()
        assert status["queue"]["waiting"] == 1
        assert refs(await index(registry)) == ["acme/shown", "acme/hidden"]
        (model,) = (await registry.store.client.index_status())["models"]
        assert (model["items"], model["waiting"]) == (1, 0)
        assert (await registry.store.client.finish_collection(MODEL)).items == 2  # the indexer counts all


async def test_many_announcements_are_one_call(url: str, tmp_path: Path) -> None:
    async with tier(url, tmp_path) as registry, registry.store.listen() as heard:
        await publish(registry, *(candidate(f"acme/n{n}") for n in range(5)))
        assert await heard(60) is True
        assert await heard(0.2) is False


async def test_watching_goes_on_after_its_connections_were_cut(
    url: str, tmp_path: Path, connection: psycopg.Connection
) -> None:
    seen: asyncio.Queue[Any] = asyncio.Queue()

    async def work() -> None:
        async with tier(url, tmp_path / "worker") as registry:
            async for outcome in watch(registry, writer, every=60):
                await seen.put(outcome)

    async with tier(url, tmp_path / "publisher") as publisher:
        working = asyncio.create_task(work())
        await publish(publisher, candidate("acme/before"))
        async with asyncio.timeout(60):
            assert (await seen.get()).item_id == "acme/before"
            await asyncio.sleep(0.3)
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'kiwi' and datname = current_database()"
            )
            assert isinstance(await seen.get(), Unreachable)
            await publish(publisher, candidate("acme/after"))
            assert (await seen.get()).item_id == "acme/after"
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working


async def test_only_the_indexer_takes_from_the_queue(url: str, connection: psycopg.Connection) -> None:
    connection.execute("set session authorization kiwi_publisher")
    for call in ("claim_item('x', 'y')", "requeue_item('x', 'y')", "begin_collection('a/b/384/c/1')"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"select public.{call}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("select * from kiwi_private.index_queue")


async def test_a_way_without_announcements_says_so(tmp_path: Path) -> None:
    from kiwi_rag.errors import UsageError
    from kiwi_rag.registry.supabase import SupabaseApi
    from kiwi_rag.stores.postgres import RegistryVectorStore

    with pytest.raises(UsageError, match="direct connection"):
        RegistryVectorStore(SupabaseApi("https://acme.supabase.co", "key")).listen()


class Stalling(SmallModel):
    """A model that never comes to an end with a text that holds `word`."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word, self.stalled = word, asyncio.Event()
        self.tries = 0

    async def documents(self, texts: Sequence[str]) -> Sequence[Vector]:
        if any(self.word in text for text in texts):
            self.tries += 1
            self.stalled.set()
            await asyncio.sleep(3600)
        return await super().documents(texts)


async def test_an_indexer_that_is_cancelled_says_so_and_gives_its_claims_back(
    url: str, tmp_path: Path, connection: psycopg.Connection
) -> None:
    model = Stalling("acme/x")
    async with tier(url, tmp_path) as registry:
        await publish(registry, candidate("acme/x"))

        async def work() -> None:
            async with aclosing(watch(registry, lambda: writer(model=model))) as outcomes:
                async for _ in outcomes:
                    pass

        working = asyncio.create_task(work())
        await model.stalled.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        open_claims = "select count(*) from pg_stat_activity where state like 'idle in%%' and datname = %s"
        assert connection.execute(open_claims, [connection.info.dbname]).fetchone() == (0,)
        assert refs(await index(registry)) == ["acme/x"]


@pytest.mark.parametrize("state", ["KW017", "XX000"])
async def test_an_item_that_the_registry_cannot_store_is_set_back_and_the_next_one_is_indexed(
    url: str, tmp_path: Path, connection: psycopg.Connection, state: str
) -> None:
    connection.execute(f"""
        create function kiwi.refuse_poison() returns trigger language plpgsql as $$ begin
            raise exception using errcode = '{state}', message = 'not these passages';
        end $$;
        create trigger poison before insert on kiwi.passages
        for each row when (new.text like '%poison%') execute function kiwi.refuse_poison()
    """)
    async with tier(url, tmp_path) as registry:
        await publish(registry, candidate("acme/x", "The pump of poison."), candidate("acme/y"))
        failed, done = await index(registry, patient=True)
        assert isinstance(failed, Failed)
        assert "acme/x" in failed.ref
        assert done.item_id == "acme/y"
        noted = connection.execute(
            "select attempts, problem from kiwi_private.index_queue where attempts > 0"
        ).fetchall()
        assert [attempts for attempts, _ in noted] == [1]
        assert "not these passages" in noted[0][1]
        assert await index(registry, patient=True) == []


async def test_an_item_that_takes_the_model_too_long_is_set_back_after_one_try(
    url: str, tmp_path: Path, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "EMBEDDING_SECONDS", 0.3)
    model = Stalling("acme/x")
    async with tier(url, tmp_path) as registry:
        await publish(registry, candidate("acme/x"), candidate("acme/y"))
        failed, done = await index(registry, writer(model=model))
        assert (failed.error.code, done.item_id, model.tries) == ("embedding", "acme/y", 1)
        assert "0.3 s" in failed.error.message
        noted = connection.execute("select attempts from kiwi_private.index_queue where attempts > 0").fetchall()
        assert noted == [(1,)]


async def test_an_indexer_gets_by_with_one_connection(url: str, tmp_path: Path) -> None:
    async with tier(url, tmp_path, limit=1) as registry, asyncio.timeout(60):
        await publish(registry, *(candidate(f"acme/n{n}") for n in range(6)))
        assert len(refs(await index(registry))) == 6
