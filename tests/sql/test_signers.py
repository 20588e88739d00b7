"""Signers: enrolled, retired, revoked; what that does to publishing and to search, at once."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from kiwi_rag.errors import NotFound, RegistryRefused, UsageError
from kiwi_rag.model import CollectionStatistics, Filters
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import Signer
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import admission, query, records
from tests.registry_calls import enrol, signers
from tests.sql.databases import ADA


async def revoke(store: RegistryVectorStore, key_id: str) -> bool:
    async with store.client.session() as caller:
        return await caller.revoke_signer(key_id, "laptop stolen")


async def test_a_revoked_signers_items_vanish_at_once(store: RegistryVectorStore) -> None:
    bob = keys.generate("bob")
    await enrol(store, Signer("bob", bob.public_key))
    await store.put([records(admission("acme/ada"), ["zebra"])])
    await store.put([records(admission("acme/bob", key=bob, principal="bob"), ["zebra"], seed=3)])
    assert await revoke(store, bob.key_id)
    assert not await revoke(store, bob.key_id)
    statistics = await store.statistics(["zebra"])
    assert statistics.passages == 1
    found = await store.search(query("zebra", CollectionStatistics(2, 2, {"zebra": 2})))
    assert [c.ref.item_id for c in found.items] == ["acme/ada"]
    assert [i.ref.item_id for i in await store.list(Filters())] == ["acme/ada"]
    with pytest.raises(RegistryRefused, match="compromised"):
        await store.publish(admission("acme/more", key=bob, principal="bob"))
    with pytest.raises(RegistryRefused, match="enrolled again"):
        await enrol(store, Signer("bob", bob.public_key))


async def test_a_revoked_newer_version_gives_way_to_the_older(store: RegistryVectorStore) -> None:
    bob = keys.generate("bob")
    await enrol(store, Signer("bob", bob.public_key))
    await store.put([records(admission("acme/x", version="1.0.0"), ["zebra"])])
    await store.put([records(admission("acme/x", "two", version="2.0.0", key=bob, principal="bob"), ["tiger"])])
    await revoke(store, bob.key_id)
    assert (await store.statistics(["zebra", "tiger"])).document_frequency == {"zebra": 1}


async def test_a_retired_signers_items_stay(store: RegistryVectorStore) -> None:
    await store.put([records(admission("acme/x"), ["zebra"])])
    async with store.client.session() as caller:
        assert await caller.retire_signer(ADA.key_id)
    assert (await store.statistics(["zebra"])).passages == 1
    with pytest.raises(RegistryRefused, match="retired"):
        await store.publish(admission("acme/y"))
    (told,) = await signers(store)
    assert (told.status, told.key_id, told.patterns) == ("retired", ADA.key_id, ("*",))


async def test_no_publication_lands_after_a_revocation(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    bob = keys.generate("bob")
    await enrol(store, Signer("bob", bob.public_key))
    many = [store.publish(admission(f"acme/item-{n}", key=bob, principal="bob")) for n in range(30)]
    await asyncio.gather(*many[:15], revoke(store, bob.key_id), *many[15:], return_exceptions=True)
    late = """
        select count(*) from kiwi.audit as published, kiwi.audit as revoked
        where published.event = 'publish' and revoked.event = 'compromised' and published.seq > revoked.seq
    """
    assert connection.execute(late).fetchone() == (0,)


async def test_unknown_and_senseless_signers(store: RegistryVectorStore) -> None:
    with pytest.raises(NotFound):
        await revoke(store, "0" * 64)
    for bad in (Signer("", ADA.public_key), Signer("x", b"short"), Signer("x", ADA.public_key, ())):
        with pytest.raises((RegistryRefused, UsageError)):
            await enrol(store, bad)
