"""The table verifies each row's signature itself; and a registry of release 0001 is brought to that, rows and all.

``registry_0001.sql.gz`` is what ``pg_dump --inserts`` gave of a registry of that release, which took signatures on the
client's word: two honest items, a forged newer version of one of them, and one whose payload is not canonical.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kiwi_rag.errors import MalformedEnvelope
from kiwi_rag.model import Envelope
from kiwi_rag.registry.migrate import is_current, migrate
from kiwi_rag.registry.postgres_binaries import binaries, run
from kiwi_rag.signing import dsse, keys
from tests.conformance.items import KEY, admission
from tests.sql.databases import ADA, database, template

RELEASE_0001 = Path(__file__).with_name("registry_0001.sql.gz")
INSERT = """
    insert into kiwi.item_versions (payload_type, payload, signature, signer, public_key) values (%s, %s, %s, %s, %s)
"""


def row_of(envelope: Envelope, **changes: Any) -> list[Any]:
    """What INSERT takes."""
    row = {
        "payload_type": envelope.payload_type,
        "payload": envelope.payload,
        "signature": envelope.signatures[0][1],
        "signer": ADA.key_id,
        "public_key": ADA.public_key,
    }
    return list((row | changes).values())


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def published(connection: psycopg.Connection, document: dict[str, Any]) -> dict[str, Any]:
    row = connection.execute("select public.publish_item(%s)", [Jsonb(document)]).fetchone()
    return dict(row[0])


def broken(connection: psycopg.Connection, row: list[Any]) -> tuple[str | None, str | None]:
    """Insert a bad row as a superuser; return the SQLSTATE and which constraint refused it."""
    with pytest.raises(psycopg.Error) as error:
        connection.execute(INSERT, row)
    return error.value.sqlstate, error.value.diag.constraint_name


@pytest.fixture
def unguarded(connection: psycopg.Connection) -> psycopg.Connection:
    """A connection of an owner who took the trigger away: what is left are the CHECKs."""
    connection.execute("alter table kiwi.item_versions disable trigger admit")
    return connection


def test_a_true_signature_passes(connection: psycopg.Connection) -> None:
    connection.execute(INSERT, row_of(admission("acme/deploy").envelope))
    assert connection.execute("select public_key from kiwi.item_versions").fetchone() == (ADA.public_key,)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_forged_signature_breaks_the_check(connection: psycopg.Connection, guarded: bool) -> None:
    if not guarded:
        connection.execute("alter table kiwi.item_versions disable trigger all")
    envelope, other = admission("acme/deploy").envelope, admission("acme/other").envelope
    for row in (
        row_of(envelope, signature=flipped(envelope.signatures[0][1])),
        row_of(envelope, signature=bytes(64)),
        row_of(envelope, payload=other.payload),
    ):
        assert broken(connection, row) == ("23514", "item_versions_signature")


def test_a_key_that_comes_with_the_row_does_not_count(shared: psycopg.Connection) -> None:
    eve = keys.generate("eve")
    forged = admission("acme/deploy", key=eve).envelope
    assert broken(shared, row_of(forged, public_key=eve.public_key)) == ("23514", "item_versions_signature")
    assert broken(shared, row_of(forged, public_key=None)) == ("23514", "item_versions_signature")


def test_without_the_trigger_the_key_is_still_the_signer_s(unguarded: psycopg.Connection) -> None:
    eve = keys.generate("eve")
    forged = admission("acme/deploy", key=eve).envelope
    assert broken(unguarded, row_of(forged, public_key=eve.public_key)) == ("23514", "item_versions_public_key")
    assert broken(unguarded, row_of(forged, public_key=None))[0] == "23502"
    assert broken(unguarded, row_of(forged, public_key=eve.public_key, signer=eve.key_id))[0] == "23503"


def test_without_the_trigger_the_payload_must_still_be_canonical(unguarded: psycopg.Connection) -> None:
    payload = admission("acme/deploy").envelope.payload.replace(b'":"', b'": "', 1)
    signature = KEY._private.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
    spaced = Envelope(dsse.PAYLOAD_TYPE, payload, ((KEY.key_id, signature),))
    assert broken(unguarded, row_of(spaced)) == ("23514", "item_versions_canonical")


def test_publishing_a_forgery_says_which_and_what_to_do(shared: psycopg.Connection) -> None:
    good = dsse.encode(admission("acme/deploy").envelope)
    signature = flipped(base64.b64decode(good["signatures"][0]["sig"]))
    good["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    answer = published(shared, good)
    assert (answer["code"], answer["hint"]) == ("KW015", "sign the item again: kiwi sign PATH")
    assert shared.execute("select count(*) from kiwi.item_versions").fetchone() == (0,)


def test_of_several_signatures_an_active_key_s_counts(connection: psycopg.Connection) -> None:
    bob = keys.generate("bob")
    connection.execute("select public.enrol_signer(%s, 'bob', '{*}')", [bob.public_key.hex()])
    connection.execute("select public.retire_signer(%s)", [ADA.key_id])
    document = dsse.encode(admission("acme/deploy").envelope)
    document["signatures"] += dsse.encode(admission("acme/deploy", key=bob).envelope)["signatures"]
    assert "sequence" in published(connection, document)
    assert connection.execute("select signer from kiwi.item_versions").fetchone() == (bob.key_id,)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_old_snapshot_does_not_get_past_the_version_rule(
    url: str, connection: psycopg.Connection, level: str
) -> None:
    with psycopg.connect(url) as late:
        late.execute(f"set transaction isolation level {level}")
        late.execute("select from kiwi.item_versions")
        assert "sequence" in published(connection, dsse.encode(admission("acme/x", version="2.0.0").envelope))
        old = dsse.encode(admission("acme/x", version="1.5.0").envelope)
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
    assert published(shared, document)["code"] == "KW001"


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


def tables_of(url: str) -> str:
    """The registry's own two schemas, less what pg_dump draws at random for each run."""
    command = [binaries() / "pg_dump", "--schema-only", "-n", "kiwi", "-n", "public", "--dbname", url]
    return re.sub(r"^\\(un)?restrict .*$", "", run(command, as_user=None), flags=re.MULTILINE)


def test_a_dump_is_restored_with_every_row_checked(url: str, connection: psycopg.Connection) -> None:
    assert "sequence" in published(connection, dsse.encode(admission("acme/deploy").envelope))
    text = run([binaries() / "pg_dump", "--inserts", "--dbname", url], as_user=None)
    text = re.sub(r"^\\(un)?restrict .*$", "", text, flags=re.MULTILINE)
    with database() as copy, psycopg.connect(copy, autocommit=True) as restored:
        restored.execute(text.encode())
        assert is_current(copy)
        everything = "select * from kiwi.item_versions"
        assert restored.execute(everything).fetchall() == connection.execute(everything).fetchall()
    with database() as copy, psycopg.connect(copy, autocommit=True) as restored:
        hexed = admission("acme/deploy").envelope.signatures[0][1].hex()
        assert text.count(hexed) == 1
        with pytest.raises(psycopg.errors.CheckViolation, match="item_versions_signature"):
            restored.execute(text.replace(hexed, "00" * 64).encode())


@pytest.fixture(scope="module")
def upgraded() -> Iterator[str]:
    """A registry of release 0001, migrated."""
    template()  # the roles, which a dump of one database does not hold
    with database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            dump = gzip.decompress(RELEASE_0001.read_bytes())
            connection.execute(dump.replace(b"OWNER TO postgres", b"OWNER TO current_user"))
        migrate(url)
        yield url


def test_an_upgrade_keeps_what_verifies_and_expels_the_rest(upgraded: str) -> None:
    with psycopg.connect(upgraded) as connection:
        kept = "select item_id, version, encode(sha256(public_key), 'hex') = signer from kiwi.item_versions order by 1"
        assert connection.execute(kept).fetchall() == [("acme/deploy", "1.0.0", True), ("acme/restore", "1.0.0", True)]
        told = "select ref from kiwi.audit where event = 'expel' order by seq"
        assert connection.execute(told).fetchall() == [
            ("directive:acme/deploy@2.0.0",),
            ("directive:acme/spaced@1.0.0",),
        ]
        assert connection.execute("select public.verify_audit()").fetchone() == (None,)


def test_after_an_upgrade_the_honest_version_that_was_hidden_is_found(upgraded: str) -> None:
    with psycopg.connect(upgraded) as connection:
        found = connection.execute("select item_id, version from public.search_lexical('zebra')").fetchall()
        assert sorted(found) == [("acme/deploy", "1.0.0"), ("acme/restore", "1.0.0")]
        counted = 'select term, passages from kiwi.term_statistics order by term collate "C"'
        terms = dict(connection.execute(counted).fetchall())
        actual = "select term, count(*) from kiwi.postings group by term"
        assert terms == dict(connection.execute(actual).fetchall())
        assert terms["zebra"] == 2


def test_an_upgraded_registry_is_like_a_new_one(upgraded: str) -> None:
    assert is_current(upgraded)
    with database() as fresh:
        migrate(fresh)
        assert tables_of(upgraded) == tables_of(fresh)
