"""The table verifies each row's signature itself, whatever way the row comes."""

from __future__ import annotations

import base64
import re
from typing import Any

import psycopg
import pytest

from kiwi_rag.errors import MalformedEnvelope
from kiwi_rag.model import Envelope
from kiwi_rag.registry.migrate import is_current
from kiwi_rag.registry.server import binaries, run
from kiwi_rag.signing import dsse, keys
from tests.conformance.items import KEY, admission
from tests.sql import publication
from tests.sql.databases import ADA, database
from tests.sql.publication import INSERT, published, store_blobs


def row_of(envelope: Envelope, **changes: Any) -> list[Any]:
    """What INSERT takes, as Ada's."""
    return publication.row_of(envelope, **({"public_key": ADA.public_key, "signer": ADA.key_id} | changes))


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def broken(connection: psycopg.Connection, row: list[Any]) -> tuple[str | None, str | None]:
    """Insert a bad row as a superuser; return the SQLSTATE and which constraint refused it."""
    with pytest.raises(psycopg.Error) as error:
        connection.execute(INSERT, row)
    return error.value.sqlstate, error.value.diag.constraint_name


@pytest.fixture
def unguarded(connection: psycopg.Connection) -> psycopg.Connection:
    """A connection of an owner who took the trigger away: what is left are the CHECKs."""
    connection.execute("alter table kiwi.statements disable trigger admit")
    return connection


def test_a_true_signature_passes(connection: psycopg.Connection) -> None:
    store_blobs(connection, admission("acme/deploy"))
    connection.execute(INSERT, row_of(admission("acme/deploy").envelope))
    assert connection.execute("select public_key from kiwi.statements").fetchone() == (ADA.public_key,)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_forged_signature_breaks_the_check(connection: psycopg.Connection, guarded: bool) -> None:
    if not guarded:
        connection.execute("alter table kiwi.statements disable trigger all")
    envelope, other = admission("acme/deploy").envelope, admission("acme/other").envelope
    for row in (
        row_of(envelope, signature=flipped(envelope.signatures[0][1])),
        row_of(envelope, signature=bytes(64)),
        row_of(envelope, payload=other.payload),
    ):
        assert broken(connection, row) == ("23514", "statements_signature")


def test_a_key_that_comes_with_the_row_does_not_count(shared: psycopg.Connection) -> None:
    eve = keys.generate("eve")
    forged = admission("acme/deploy", key=eve).envelope
    assert broken(shared, row_of(forged, public_key=eve.public_key)) == ("23514", "statements_signature")
    assert broken(shared, row_of(forged, public_key=None)) == ("23514", "statements_signature")


def test_without_the_trigger_the_key_is_still_the_signer_s(unguarded: psycopg.Connection) -> None:
    eve = keys.generate("eve")
    forged = admission("acme/deploy", key=eve).envelope
    assert broken(unguarded, row_of(forged, public_key=eve.public_key)) == ("23514", "statements_public_key")
    assert broken(unguarded, row_of(forged, public_key=None))[0] == "23502"
    assert broken(unguarded, row_of(forged, public_key=eve.public_key, signer=eve.key_id))[0] == "23503"


def test_without_the_trigger_the_payload_must_still_be_canonical(unguarded: psycopg.Connection) -> None:
    payload = admission("acme/deploy").envelope.payload.replace(b'":"', b'": "', 1)
    signature = KEY._private.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
    spaced = Envelope(dsse.PAYLOAD_TYPE, payload, ((KEY.key_id, signature),))
    assert broken(unguarded, row_of(spaced)) == ("23514", "statements_canonical")


def test_publishing_a_forgery_says_which_and_what_to_do(shared: psycopg.Connection) -> None:
    good = dsse.encode(admission("acme/deploy").envelope)
    signature = flipped(base64.b64decode(good["signatures"][0]["sig"]))
    good["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    answer = published(shared, admission("acme/deploy"), envelope=good)
    assert (answer["code"], answer["hint"]) == ("KW015", "sign it again: kiwi sign PATH")
    assert shared.execute("select count(*) from kiwi.statements").fetchone() == (0,)


def test_of_several_signatures_an_active_key_s_counts(connection: psycopg.Connection) -> None:
    bob = keys.generate("bob")
    connection.execute("select public.enrol_signer(%s, 'bob', '{*}')", [bob.public_key.hex()])
    connection.execute("select public.retire_signer(%s)", [ADA.key_id])
    document = dsse.encode(admission("acme/deploy").envelope)
    document["signatures"] += dsse.encode(admission("acme/deploy", key=bob).envelope)["signatures"]
    assert "sequence" in published(connection, admission("acme/deploy"), envelope=document)
    assert connection.execute("select signer from kiwi.statements").fetchone() == (bob.key_id,)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_old_snapshot_does_not_get_past_the_version_rule(
    url: str, connection: psycopg.Connection, level: str
) -> None:
    with psycopg.connect(url) as late:
        late.execute(f"set transaction isolation level {level}")
        late.execute("select from kiwi.statements")
        assert "sequence" in published(connection, admission("acme/x", version="2.0.0"))
        old = admission("acme/x", version="1.5.0")
        with pytest.raises(psycopg.Error) as error:
            published(late, old)
        assert error.value.sqlstate == "KW013"
    assert published(connection, old)["code"] == "KW007"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAA",
        "AAE=",
        "AA==",
        "AB==",
        "-_+/",
        "A",
        "AA",
        "AAA",
        "AAAA=",
        "A===",
        "====",
        "AA=A",
        "AA==AAAA",
        "AAAAAAE===",
        "AA AA",
        "AAAA\n",
        "AA\n==",
        "AA.A",
        "ÄAAA",
    ],
)
def test_base64_is_read_alike(shared: psycopg.Connection, text: str) -> None:
    query = "select kiwi.decode_base64(%s)"
    try:
        expected = dsse.from_base64(text, "it")
    except MalformedEnvelope:
        with pytest.raises(psycopg.Error) as error:
            shared.execute(query, [text])
        assert error.value.sqlstate == "KW001"
    else:
        assert shared.execute(query, [text]).fetchone() == (expected,)


@pytest.mark.parametrize("where", ["payload", "signature", "field"])
def test_an_envelope_is_read_as_strictly_as_in_python(shared: psycopg.Connection, where: str) -> None:
    document = dsse.encode(admission("acme/deploy").envelope)
    if where == "payload":
        document["payload"] = document["payload"][:4] + "\n" + document["payload"][4:]
    else:
        document["signatures"][0] |= (
            {"sig": document["signatures"][0]["sig"] + " "} if where == "signature" else {"x": 1}
        )
    with pytest.raises(MalformedEnvelope, match=r"signature|base64"):
        dsse.decode(document)
    assert published(shared, admission("acme/deploy"), envelope=document)["code"] == "KW001"


@pytest.mark.parametrize(
    "key",
    [
        bytes(32),
        (1).to_bytes(32, "little"),
        (2**255 - 18).to_bytes(32, "little"),
        (2).to_bytes(32, "little"),
        b"\xff" * 32,
    ],
    ids=["order 4", "identity", "not canonical", "off the curve", "all ones"],
)
def test_a_weak_key_is_not_enrolled(shared: psycopg.Connection, key: bytes) -> None:
    with pytest.raises(psycopg.Error) as error:
        shared.execute("select public.enrol_signer(%s, 'eve', '{*}')", [key.hex()])
    assert error.value.sqlstate == "KW013"
    assert error.value.diag.message_hint


def test_a_dump_is_restored_with_every_row_checked(url: str, connection: psycopg.Connection) -> None:
    assert "sequence" in published(connection, admission("acme/deploy"))
    text = run([binaries() / "pg_dump", "--inserts", "--dbname", url])
    text = re.sub(r"^\\(un)?restrict .*$", "", text, flags=re.MULTILINE)
    with database() as copy, psycopg.connect(copy, autocommit=True) as restored:
        restored.execute(text.encode())
        assert is_current(copy)
        everything = "select * from kiwi.statements"
        assert restored.execute(everything).fetchall() == connection.execute(everything).fetchall()
    with database() as copy, psycopg.connect(copy, autocommit=True) as restored:
        hexed = admission("acme/deploy").envelope.signatures[0][1].hex()
        assert text.count(hexed) == 1
        with pytest.raises(psycopg.errors.CheckViolation, match="statements_signature"):
            restored.execute(text.replace(hexed, "00" * 64).encode())
