"""publish_item: what it takes, what it refuses, and with which code."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from kiwi_rag.errors import RegistryRefused
from kiwi_rag.model import Envelope
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import dsse, keys, statement
from kiwi_rag.signing.trust import Signer
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import KEY, SIGNED, admission
from tests.registry_calls import enrol
from tests.sql.databases import ADA
from tests.sql.publication import published

ITEM = admission("acme/deploy")


def envelope(**changes: Any) -> dict[str, Any]:
    """A valid envelope; `changes` replace members of the predicate, which is then signed anew."""
    good = json.loads(ITEM.envelope.payload)
    good["predicate"] |= changes
    return signed(statement.canonical(good))


def signed(payload: bytes) -> dict[str, Any]:
    """An envelope whose signature is right, whatever it signs."""
    signature = KEY._private.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
    return dsse.encode(Envelope(dsse.PAYLOAD_TYPE, payload, ((KEY.key_id, signature),)))


def refused(connection: psycopg.Connection, document: Any) -> str:
    """Publish something bad; return the code of the refusal, which is the only thing that stays of it."""
    answer = published(connection, ITEM, envelope=document)
    assert connection.execute("select count(*) from kiwi.statements").fetchone() == (0,)
    written = "select details ->> 'code', details ->> 'message' from kiwi.audit where event = 'refused'"
    assert connection.execute(written).fetchall() == [(answer["code"], answer["message"])]
    assert connection.execute("select count(*) from kiwi.audit where event = 'publish'").fetchone() == (0,)
    return str(answer["code"])


async def test_publishing_twice_gives_the_same_receipt(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    one = admission("acme/deploy")
    first, second = await store.publish(one), await store.publish(one)
    assert (first.already_published, second.already_published) == (False, True)
    assert (first.sequence, first.digest, first.audit_head) == (second.sequence, one.digest, second.audit_head)
    assert connection.execute("select count(*) from kiwi.statements").fetchone() == (1,)


async def test_the_columns_are_what_was_signed(store: RegistryVectorStore, connection: psycopg.Connection) -> None:
    one = admission("acme/de_ploy", 'héllo \\ "x"\n☃', version="1.2.0-rc.1+b5")
    await store.publish(one)
    row = connection.execute(
        "select digest, item_type, item_id, folded_id, version, metadata, content_sha256, signed_at, registry,"
        " signer from kiwi.statements"
    ).fetchone()
    assert row == (
        one.digest, "directive", "acme/de_ploy", "acme/de-ploy", "1.2.0-rc.1+b5",
        dict(one.item.metadata), one.item.content_sha256, SIGNED, "test", KEY.key_id,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mangle", "code"),
    [
        (lambda e: [e], "KW001"),
        (lambda e: e | {"extra": 1}, "KW001"),
        (lambda e: e | {"payloadType": "text/plain"}, "KW001"),
        (lambda e: e | {"payload": "%%%"}, "KW001"),
        (lambda e: e | {"payload": base64.b64encode(b'{"a": 1').decode()}, "KW015"),
        (lambda _: signed(b'{"a": 1'), "KW001"),
        (lambda _: signed(b"\xff\xfe"), "KW001"),
        (lambda _: signed(b"[" * 100_000), "KW001"),
        (lambda e: e | {"signatures": []}, "KW001"),
        (lambda e: e | {"signatures": [{"keyid": KEY.key_id, "sig": "AAAA"}]}, "KW001"),
        (lambda e: e | {"signatures": [{"keyid": "0" * 64, "sig": base64.b64encode(b"0" * 64).decode()}]}, "KW002"),
    ],
)
def test_a_malformed_envelope_is_refused(
    rolled_back: psycopg.Connection, mangle: Callable[[dict[str, Any]], Any], code: str
) -> None:
    assert refused(rolled_back, mangle(envelope())) == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"item_type": 3}, "KW001"),
        ({"extra": "x"}, "KW001"),
        ({"metadata": []}, "KW001"),
        ({"signed_at": "2026-03-01 12:00:00"}, "KW001"),
        ({"version": "one"}, "KW001"),
        ({"registry": "elsewhere"}, "KW008"),
        ({"signed_at": "2999-01-01T00:00:00Z"}, "KW005"),
        ({"item_id": "../../etc"}, "KW001"),
        ({"item_type": "poem"}, "KW001"),
    ],
)
def test_a_bad_statement_is_refused(rolled_back: psycopg.Connection, changes: dict[str, Any], code: str) -> None:
    assert refused(rolled_back, envelope(**changes)) == code


def test_duplicate_keys_are_refused(rolled_back: psycopg.Connection) -> None:
    good = envelope()
    payload = base64.b64decode(good["payload"]).replace(b'"version":', b'"version":"9.9.9","version":')
    assert refused(rolled_back, signed(payload)) == "KW001"


async def test_a_version_never_changes_and_never_falls(store: RegistryVectorStore) -> None:
    await store.publish(admission("acme/deploy", "one", version="1.10.0"))
    with pytest.raises(RegistryRefused, match="other bytes") as error:
        await store.publish(admission("acme/deploy", "two", version="1.10.0"))
    assert error.value.state == "KW006"
    assert error.value.hint
    with pytest.raises(RegistryRefused, match=r"below 1\.10\.0"):
        await store.publish(admission("acme/deploy", "three", version="1.9.0"))


async def test_ids_that_fold_alike_do_not_meet(store: RegistryVectorStore) -> None:
    await store.publish(admission("acme/a-b"))
    with pytest.raises(RegistryRefused, match="cannot be told from acme/a-b"):
        await store.publish(admission("acme/a_b", version="2.0.0"))


async def test_a_rollback_below_a_yanked_version_is_refused(store: RegistryVectorStore) -> None:
    await store.publish(admission("acme/deploy", version="2.0.0"))
    await store.delete(ItemRef(ItemType.DIRECTIVE, "acme/deploy"))
    with pytest.raises(RegistryRefused, match="below"):
        await store.publish(admission("acme/deploy", version="1.0.0"))


async def test_a_signer_signs_what_it_may_and_when(store: RegistryVectorStore) -> None:
    bob = keys.generate("bob")
    limits = Signer("bob", bob.public_key, ("beta/*",), (ItemType.SCRIPT,), SIGNED, SIGNED + timedelta(days=3650))
    await enrol(store, limits)
    good = {"key": bob, "principal": "bob", "item_type": ItemType.SCRIPT}
    await store.publish(admission("beta/x/y", **good))
    for bad, why in (
        (admission("acme/x", **good), "may not sign"),
        (admission("beta", **good), "may not sign"),
        (admission("beta/x", **good | {"item_type": ItemType.DIRECTIVE}), "may not sign"),
        (admission("beta/x", **good, signed_at=SIGNED - timedelta(seconds=1)), "time window"),
    ):
        with pytest.raises(RegistryRefused, match=why):
            await store.publish(bad)
    await enrol(store, replace(limits, valid_before=datetime.now(UTC) - timedelta(seconds=1)))
    with pytest.raises(RegistryRefused, match="time window"):
        await store.publish(admission("beta/late", **good))


async def test_many_publish_the_same_and_different_bytes_at_once(store: RegistryVectorStore) -> None:
    same = [store.publish(admission("acme/same")) for _ in range(8)]
    receipts = await asyncio.gather(*same)
    assert sorted(r.already_published for r in receipts) == [False] + [True] * 7
    rivals = [store.publish(admission("acme/rival", f"text {n}")) for n in range(8)]
    answers = await asyncio.gather(*rivals, return_exceptions=True)
    assert sum(isinstance(a, RegistryRefused) for a in answers) == 7


async def test_the_trigger_stands_even_in_a_replication_session(connection: psycopg.Connection) -> None:
    one = admission("acme/deploy").envelope
    connection.execute("set session_replication_role = replica")
    with pytest.raises(psycopg.Error) as error:
        connection.execute(
            "insert into kiwi.statements (payload_type, payload, signature, signer) values (%s, %s, %s, %s)",
            [one.payload_type, one.payload.replace(b"test", b"tset"), one.signatures[0][1], ADA.key_id],
        )
    assert error.value.sqlstate == "KW008"
