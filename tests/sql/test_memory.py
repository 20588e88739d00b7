"""What a client notices though the registry's owner forged it: rollback, replay, rewritten history, revocation."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from kiwi_rag.errors import (
    ChainForked,
    ChainShortened,
    RolledBack,
    VersionChanged,
    Withheld,
    WrongKey,
    Yanked,
    YankUndone,
)
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.monitor.monitor import RegistryMonitor
from kiwi_rag.monitor.pinned_state import PinnedState, RegistryIdentity, pinned_state_path
from kiwi_rag.registry.client import RegistryClient
from kiwi_rag.registry.pool import Connections
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import Signer, SignerStatus, TrustPolicy
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import FINGERPRINT, KEY, admission, records
from tests.registry_calls import enrol
from tests.sql.databases import ADA

BOB = keys.generate("bob")
X = ItemRef(ItemType.DIRECTIVE, "acme/x")
SECOND = "select sequence from kiwi.statements where version = '2.0.0'"
IDENTITY = RegistryIdentity("test", "here")


@pytest.fixture
async def watch(url: str, tmp_path: Path) -> AsyncIterator[RegistryMonitor]:
    """A user who has met nothing yet."""
    transport = Connections(url)
    made = RegistryMonitor(
        RegistryClient(transport), PinnedState(pinned_state_path(tmp_path / "registries", IDENTITY), IDENTITY)
    )
    yield made
    await made.close()
    await transport.close()


async def publish(store: RegistryVectorStore, version: str, key: keys.SigningKey = KEY, indexed: bool = True) -> None:
    one = admission("acme/x", f"text of {version}", version=version, key=key)
    if indexed:
        await store.put([records(one)])
    else:
        await store.publish(one)


async def see(
    watch: RegistryMonitor, store: RegistryVectorStore, version: str | None = None, found: bool = True
) -> str:
    """Look, get, vet and keep, as a search (or a get) does; return the version that was accepted."""
    look = await watch.check()
    ref = ItemRef(X.item_type, X.item_id, version)
    stored = await store.get(ref) or await watch.yanked(ref)
    assert stored is not None
    key_id = stored.envelope.signatures[0][0]
    await look.check_consistency(stored, key_id, newest=version is None, found_by=FINGERPRINT if found else "")
    look.save()
    return str(stored.ref.version)


def as_owner(connection: psycopg.Connection, *statements: str) -> None:
    """Do what only the database's owner can: with all triggers off."""
    for state in ("disable", "enable"):
        for table in ("kiwi.statements", "kiwi.audit"):
            connection.execute(f"alter table {table} {state} trigger all")  # type: ignore[arg-type]
        for statement in statements if state == "disable" else ():
            connection.execute(statement)  # type: ignore[arg-type]


async def test_the_head_is_remembered_and_followed(watch: RegistryMonitor, store: RegistryVectorStore) -> None:
    await watch.check()
    first = watch.pinned.read().head
    assert first.seq == 2
    await publish(store, "1.0.0")
    await watch.check()
    assert watch.pinned.read().head.seq == 3


async def test_a_shortened_log_is_refused(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await publish(store, "1.0.0")
    await watch.check()
    as_owner(connection, "delete from kiwi.audit where seq = 3")
    with pytest.raises(ChainShortened, match="ends at record 2, but record 3 was seen"):
        await watch.check()
    assert watch.pinned.read().head.seq == 3


@pytest.mark.parametrize("later", [0, 1], ids=["at the head", "below the head"])
async def test_a_rewritten_log_is_refused(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection, later: int
) -> None:
    await publish(store, "1.0.0")
    await watch.check()
    rewrite = """
        update kiwi.audit as a set details = '{"by": "nobody"}' where seq = 3;
        update kiwi.audit as a set hash = kiwi.audit_hash(a) where seq = 3;
    """
    as_owner(connection, *filter(str.strip, rewrite.split(";")))
    assert connection.execute("select public.verify_audit()").fetchone() == (None,)
    for n in range(later):
        await publish(store, f"2.0.{n}")
    with pytest.raises(ChainForked, match="record 3"):
        await watch.check()


async def test_a_receipt_counts_only_in_the_log_that_was_known(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await watch.check()
    receipt = await store.publish(admission("acme/x"))
    watch.add_receipt(X, receipt.digest, KEY.key_id, receipt.audit_head)
    await watch.verify_receipts()
    assert f"{watch.pinned.read().head.seq}:{watch.pinned.read().head.hash}" == receipt.audit_head
    known = watch.pinned.read().head
    as_owner(
        connection,
        "update kiwi.audit set details = '{}' where seq = 3",
        "update kiwi.audit as a set hash = kiwi.audit_hash(a) where seq = 3",
    )
    receipt = await store.publish(admission("acme/y"))
    watch.add_receipt(ItemRef(X.item_type, "acme/y", "1.0.0"), receipt.digest, KEY.key_id, receipt.audit_head)
    with pytest.raises(ChainForked):
        await watch.verify_receipts()
    assert watch.pinned.read().head == known


async def test_a_receipt_that_the_log_does_not_bear_out_is_told(
    watch: RegistryMonitor, store: RegistryVectorStore
) -> None:
    receipt = await store.publish(admission("acme/x"))
    watch.add_receipt(X, receipt.digest, KEY.key_id, f"{receipt.audit_head.partition(':')[0]}:{'e' * 64}")
    with pytest.raises(ChainForked):
        await watch.verify_receipts()


async def test_an_older_version_than_was_seen_is_refused(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await publish(store, "1.0.0")
    await publish(store, "2.0.0")
    assert await see(watch, store) == "2.0.0"
    as_owner(
        connection,
        "delete from kiwi.postings",
        f"delete from kiwi.passages where statement_id in ({SECOND})",
        "delete from kiwi.statements where version = '2.0.0'",
    )
    with pytest.raises(RolledBack, match=r"2\.0\.0 was seen") as refused:
        await see(watch, store)
    assert "kiwi registry accept directive:acme/x" in refused.value.hint
    assert await see(watch, store, "1.0.0") == "1.0.0"
    watch.pinned.forget(X)
    assert await see(watch, store) == "1.0.0"


async def test_a_private_item_is_not_remembered_and_hides_no_rollback(
    watch: RegistryMonitor, store: RegistryVectorStore
) -> None:
    first, third = (admission("acme/x", version, version=version) for version in ("1.0.0", "3.0.0"))
    for one in (first, admission("acme/x", version="2.0.0"), third):
        await store.put([records(one)])
    assert await see(watch, store, "2.0.0") == "2.0.0"
    for one, served in ((first, False), (third, True)):
        stored = await store.get(one.ref)
        assert stored is not None
        look = await watch.check()
        with nullcontext() if served else pytest.raises(RolledBack):
            await look.check_consistency(replace(stored, private=True), KEY.key_id, newest=True)
        look.save()
    assert set(watch.pinned.seen(X)) == {"2.0.0"}


async def test_a_yank_explains_an_older_version_and_cannot_be_undone(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await publish(store, "1.0.0")
    await publish(store, "2.0.0")
    assert await see(watch, store) == "2.0.0"
    await store.delete(ItemRef(X.item_type, X.item_id, "2.0.0"))
    assert await see(watch, store) == "1.0.0"
    as_owner(connection, "update kiwi.statements set yanked_at = null")
    for version in (None, "2.0.0"):
        with pytest.raises(YankUndone):
            await see(watch, store, version)


async def test_a_yank_is_learned_by_looking_and_cannot_be_undone(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await publish(store, "1.0.0")
    assert await see(watch, store) == "1.0.0"
    await store.delete(X)
    await watch.check()
    as_owner(connection, "update kiwi.statements set yanked_at = null")
    with pytest.raises(YankUndone):
        await see(watch, store)


async def test_every_yank_is_learned_at_the_first_contact_and_once_by_a_memory_that_kept_none(
    watch: RegistryMonitor, store: RegistryVectorStore
) -> None:
    await publish(store, "1.0.0")
    stored = await store.get(X)
    assert stored is not None
    await store.delete(X)
    assert watch.pinned.seen(X) == {}
    await watch.check()
    assert watch.pinned.yanked([stored.digest, "0" * 64]) == {stored.digest}
    watch.pinned.close()
    with closing(sqlite3.connect(watch.pinned.path)) as before:  # as an earlier state of Kiwi made it
        before.executescript("DROP TABLE yanks; PRAGMA user_version = 0")
    await publish(store, "2.0.0")
    await watch.check()
    assert watch.pinned.yanked([stored.digest]) == {stored.digest}
    assert watch.pinned.read().has_all_yanks


async def test_a_revocation_explains_an_older_version(watch: RegistryMonitor, store: RegistryVectorStore) -> None:
    await enrol(store, Signer("bob", BOB.public_key))
    await publish(store, "1.0.0")
    await publish(store, "2.0.0", BOB)
    assert await see(watch, store) == "2.0.0"
    async with store.client.session() as caller:
        await caller.revoke_signer(BOB.key_id, "laptop stolen")
    assert await see(watch, store) == "1.0.0"


async def test_what_is_missing_is_explained_or_held_against_the_registry(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await (await watch.check()).check_missing(X)
    await publish(store, "1.0.0")
    await store.delete(X)
    with pytest.raises(Yanked, match="was yanked"):
        await (await watch.check()).check_missing(X)
    await publish(store, "1.0.1")
    await see(watch, store)
    as_owner(
        connection,
        "delete from kiwi.postings",
        "delete from kiwi.passages",
        "delete from kiwi_private.index_queue",
        "delete from kiwi.statements",
    )
    with pytest.raises(Withheld, match="does not have it now"):
        await (await watch.check()).check_missing(X)


async def test_an_item_whose_only_key_was_revoked_says_so(watch: RegistryMonitor, store: RegistryVectorStore) -> None:
    await publish(store, "1.0.0")
    async with store.client.session() as caller:
        await caller.revoke_signer(ADA.key_id, "")
    assert await store.get(X) is None
    with pytest.raises(WrongKey, match="revoked"):
        await (await watch.check()).check_missing(X)


async def test_a_version_that_is_not_indexed_yet_excuses_once(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await publish(store, "1.0.0")
    await publish(store, "2.0.0", indexed=False)
    assert await see(watch, store, "2.0.0", found=False) == "2.0.0"
    assert await see_older(watch, store) == "1.0.0"
    await publish(store, "2.0.0")
    assert await see(watch, store) == "2.0.0"
    as_owner(
        connection,
        "delete from kiwi.postings",
        f"delete from kiwi.passages where statement_id in ({SECOND})",
    )
    with pytest.raises(RolledBack):
        await see_older(watch, store)


async def test_other_bytes_under_a_version_are_refused(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await publish(store, "1.0.0")
    await see(watch, store)
    other = admission("acme/x", "other text", version="1.0.0")
    signed = (other.envelope.payload.hex(), other.envelope.signatures[0][1].hex())
    as_owner(connection, "update kiwi.statements set payload = '\\x{}', signature = '\\x{}'".format(*signed))
    with pytest.raises(VersionChanged, match="other bytes"):
        await see(watch, store)


async def test_lost_trust_is_learned_and_kept(watch: RegistryMonitor, store: RegistryVectorStore) -> None:
    await enrol(store, Signer("bob", BOB.public_key))
    policy = TrustPolicy((ADA, Signer("bob", BOB.public_key)))
    assert (await watch.check()).apply_revocations(policy) == policy
    async with store.client.session() as caller:
        await caller.revoke_signer(BOB.key_id, "laptop stolen")
        await caller.retire_signer(ADA.key_id, "new key")
    ada, bob = (await watch.check()).apply_revocations(policy).signers
    assert (ada.status, bob.status) == (SignerStatus.RETIRED, SignerStatus.COMPROMISED)
    assert bob.origin.startswith("revoked by registry test on 20")
    assert bob.origin.endswith(" (laptop stolen)")
    assert [n.key_id for n in watch.pinned.notices()] == [n.key_id for n in (await watch.check()).notices]


async def test_a_registry_that_unsays_a_revocation_is_not_followed(
    watch: RegistryMonitor, store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    async with store.client.session() as caller:
        await caller.revoke_signer(ADA.key_id, "")
    await watch.check()
    connection.execute("update kiwi.signers set status = 'active'")
    (ada,) = (await watch.check(fully=True)).apply_revocations(TrustPolicy((ADA,))).signers
    assert ada.status is SignerStatus.COMPROMISED


async def test_nothing_is_written_when_nothing_is_new(watch: RegistryMonitor, store: RegistryVectorStore) -> None:
    await publish(store, "1.0.0")
    await see(watch, store)
    before = watch.pinned.path.read_bytes()
    await see(watch, store)
    assert watch.pinned.path.read_bytes() == before


async def see_older(watch: RegistryMonitor, store: RegistryVectorStore) -> str:
    """As a search does that found version 1.0.0."""
    look = await watch.check()
    stored = await store.get(ItemRef(X.item_type, X.item_id, "1.0.0"))
    assert stored is not None
    await look.check_consistency(stored, KEY.key_id, newest=True, found_by=FINGERPRINT)
    look.save()
    return str(stored.ref.version)
