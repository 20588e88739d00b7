"""What somebody puts in front of Kiwi's tables, types, functions and operators has no effect.

Eve may publish, has a schema of her own and temporary objects, and sets what a session can set. Whatever she prepares,
publishing, searching and verifying give what they gave before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kiwi_rag.model import Admission, Envelope
from kiwi_rag.registry import rows
from kiwi_rag.signing import dsse, keys
from tests.conformance.items import FINGERPRINT, admission, records, unit_vector
from tests.shared import ROOT
from tests.sql.databases import ADA, database, template
from tests.sql.publication import published

EVE = keys.generate("eve")
STANDS, FRESH = admission("acme/x"), admission("acme/fresh")
TAMPERED = Envelope(FRESH.envelope.payload_type, FRESH.envelope.payload, STANDS.envelope.signatures)
BY_EVE = admission("acme/hers", key=EVE)

# Fails wherever it runs with more rights than Eve has.
TRAP = """
    create function {schema}.trap(value {type}) returns pg_catalog.bool language plpgsql as $$
    begin
        if current_user <> 'eve' then
            raise exception 'Eve runs as %', current_user;
        end if;
        return true;
    end $$;
"""
TYPES = ("text", "jsonb", "bytea", "timestamptz", "uuid", "float8", "int8", "name", "regclass")
COMPARED = ("text", "bytea", "numeric", "jsonb", "int4", "bool", "timestamptz", "uuid")
ATTACKS = {
    "nothing": "select 1",
    "temporary types that check with Eve's function": "".join(
        TRAP.format(schema="pg_temp", type=f"pg_catalog.{name}")
        + f"create domain pg_temp.{name} as pg_catalog.{name} check (pg_temp.trap(value));"
        for name in TYPES
    ),
    "temporary tables that enrol Eve": f"""
        create temp table signers as
            select key_id, '\\x{EVE.public_key.hex()}'::bytea as public_key, 'eve' as principal, '{{*}}'::text[]
                as item_patterns, item_types, valid_after, valid_before, status from kiwi.signers;
        insert into signers select encode(sha256(public_key), 'hex'), public_key, 'eve', item_patterns, item_types
            from signers;
        create temp table settings as select 'audience' as name, 'eve' as value;
        create temp table statements as select * from kiwi.statements where false;
        create temp table audit (seq bigint, hash text);
        create temp table all_statements as select * from kiwi.statements where false;
        create temp table passages (); create temp table all_passages (); create temp table postings ();
        create temp table collections ();
        set search_path = pg_temp, kiwi, public;
    """,
    "functions of the same names": """
        create function evil.sha256(bytea) returns bytea language sql as $$ select '\\x00'::bytea $$;
        create function evil.sha512(bytea) returns bytea language sql as $$ select '\\x00'::bytea $$;
        create function evil.encode(bytea, text) returns text language sql as $$ select repeat('0', 64) $$;
        create function evil.now() returns timestamptz language sql as $$ select 'infinity'::timestamptz $$;
        create function evil.octet_length(bytea) returns int language sql as $$ select 64 $$;
        create function evil.ed25519_verify(bytea, bytea, bytea) returns boolean language sql as $$ select true $$;
        create function evil.convert_from(bytea, name) returns text language sql as $$ select '{}' $$;
        create function evil.jsonb_typeof(jsonb) returns text language sql as $$ select 'object' $$;
        create function evil.current_setting(text) returns text language sql as $$ select 'postgres' $$;
        create function evil.current_setting(text, boolean) returns text language sql as $$ select 'postgres' $$;
        create function evil.publish_item(jsonb, jsonb, text) returns jsonb language sql as $$ select '{}'::jsonb $$;
        set search_path = evil, pg_temp, public, pg_catalog;
    """,
    "operators that always agree": "".join(
        f"""
        create function evil.yes({name}, {name}) returns boolean language sql as $$ select true $$;
        create function evil.no({name}, {name}) returns boolean language sql as $$ select false $$;
        create operator evil.= (leftarg = {name}, rightarg = {name}, function = evil.yes);
        create operator evil.<> (leftarg = {name}, rightarg = {name}, function = evil.no);
        create operator evil.< (leftarg = {name}, rightarg = {name}, function = evil.no);
        create operator evil.>= (leftarg = {name}, rightarg = {name}, function = evil.no);
        """
        for name in COMPARED
    )
    + "set search_path = evil, pg_temp, public, pg_catalog;",
    "arithmetic of her own": """
        create function evil.zero(numeric, numeric) returns numeric language sql as $$ select 0::numeric $$;
        create operator evil.* (leftarg = numeric, rightarg = numeric, function = evil.zero);
        create operator evil.% (leftarg = numeric, rightarg = numeric, function = evil.zero);
        set search_path = evil, pg_temp, public, pg_catalog;
    """,
    "types and casts of her own": """
        create type evil.text as enum ('eve');
        create type evil.jsonb as (eve int);
        create type evil.numeric as (eve int);
        create function evil.as_text(evil.jsonb) returns text language sql as $$ select 'eve'::text $$;
        create cast (evil.jsonb as text) with function evil.as_text(evil.jsonb) as implicit;
        set search_path = evil, pg_temp, public, pg_catalog;
    """,
    "an empty search_path": "set search_path = ''",
    "settings": """
        set standard_conforming_strings = off; set escape_string_warning = off; set extra_float_digits = -15;
        set bytea_output = escape; set datestyle = 'SQL, DMY'; set intervalstyle = sql_standard;
        set timezone = 'Asia/Kathmandu'; set transform_null_equals = on; set array_nulls = off;
        set quote_all_identifiers = on; set enable_indexscan = off; set enable_seqscan = off; set row_security = on;
        set default_text_search_config = 'german';
    """,
}


@pytest.fixture
def eve() -> Iterator[psycopg.Connection]:
    """Eve's new connection to a registry with an indexed item: what she does comes before any function is read."""
    with database(like=template()) as url, psycopg.connect(url, autocommit=True) as admin:
        assert code(admin, STANDS) == "done"
        passages = Jsonb([rows.passage_object(record) for record in records(STANDS, ["zebra"], seed=1)])
        admin.execute("select public.store_passages(%s, %s, %s)", [STANDS.digest, FINGERPRINT, passages])
        admin.execute("create role eve in role kiwi_publisher; create schema evil authorization eve")
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("set session authorization eve")
                yield connection
        finally:
            admin.execute("drop owned by eve cascade; drop role eve")


def code(connection: psycopg.Connection, item: Admission, envelope: Envelope | None = None) -> str:
    document = dsse.encode(envelope) if envelope else None
    return str(published(connection, item, envelope=document).get("code", "done"))


def read(connection: psycopg.Connection, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    return connection.execute(query, arguments).fetchall()  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_eve_does_changes_what_happens(eve: psycopg.Connection, attack: str) -> None:
    eve.execute(ATTACKS[attack])  # type: ignore[call-overload]
    assert code(eve, FRESH, TAMPERED) == "KW015"
    assert code(eve, BY_EVE) == "KW002"
    assert code(eve, FRESH) == "done"
    assert code(eve, admission("acme/fresh", "other")) == "KW006"
    assert code(eve, admission("acme/x", version="0.9.0")) == "KW007"
    assert read(eve, "select item_id, version, principal from public.search_lexical('zebra')") == [
        ("acme/x", "1.0.0", ADA.principal)
    ]
    near = "select item_id, similarity > 0.99 from public.search_embeddings(%s::extensions.vector)"
    assert read(eve, near, rows.vector_text(unit_vector(1))) == [("acme/x", True)]
    assert read(eve, "select digest from public.get_item(null, 'acme/x')") == [(STANDS.digest,)]
    assert read(eve, "select count(*)::int4 from public.list_items()") == [(2,)]


@pytest.mark.parametrize("attack", ATTACKS)
def test_nor_does_it_for_an_admin_whose_session_she_prepared(eve: psycopg.Connection, attack: str) -> None:
    eve.execute(ATTACKS[attack])  # type: ignore[call-overload]
    eve.execute("reset session authorization")
    key, message, signature = (
        ADA.public_key,
        dsse.pae(dsse.PAYLOAD_TYPE, FRESH.envelope.payload),
        FRESH.envelope.signatures,
    )
    verify = "select kiwi.ed25519_verify(%s, %s, %s)"
    assert read(eve, verify, key, message, signature[0][1]) == [(True,)]
    assert read(eve, verify, key, message, STANDS.envelope.signatures[0][1]) == [(False,)]
    assert read(eve, verify, EVE.public_key, message, signature[0][1]) == [(False,)]
    assert read(eve, "select public.verify_audit()") == [(None,)]
    assert read(eve, "select kiwi.is_canonical(%s), kiwi.is_canonical(%s)", b'{"a":0.1}', b'{"a":0.10}') == [
        (True, False)
    ]
    with pytest.raises(psycopg.Error) as error:
        eve.execute(
            "insert into kiwi.statements (payload_type, payload, signature, signer) values (%s, %s, %s, %s)",
            [TAMPERED.payload_type, TAMPERED.payload, TAMPERED.signatures[0][1], ADA.key_id],
        )
    assert error.value.sqlstate == "23514"


def test_eve_cannot_put_anything_into_the_schema_itself(eve: psycopg.Connection) -> None:
    for statement in (
        "create function kiwi.sha256(bytea) returns bytea language sql as 'select $1'",
        "create table kiwi.more ()",
        "create type kiwi.text as enum ('eve')",
        "create operator kiwi.= (leftarg = text, rightarg = text, function = pg_catalog.texteq)",
        "alter function kiwi.ed25519_verify(bytea, bytea, bytea) set search_path = evil",
        "create trigger mine before insert on kiwi.statements for each row execute function kiwi.append_only()",
        "create rule mine as on insert to kiwi.statements do instead nothing",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            eve.execute(statement)  # type: ignore[call-overload]


def test_no_text_depends_on_how_a_session_reads_backslashes() -> None:
    """A function's body is read under the session's own standard_conforming_strings."""
    for path in (ROOT / "sql").rglob("*.sql"):
        text = re.sub(r"^ *--.*$|\be'[^']*'", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert "\\" not in text, path
