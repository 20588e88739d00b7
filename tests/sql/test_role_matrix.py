"""Whoever tries it, by whatever way: every role against every attack, each cell with what comes of it.

A cell is an SQLSTATE, or the code of an answered refusal, or what was done or seen. `kiwi_owner` owns the tables and
nobody can log in as it; it, a superuser and a superuser who replays replication can take the walls down by
definition. What they still cannot do is pass them while they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from kiwi_rag.model import Admission, Envelope
from kiwi_rag.registry import rows
from kiwi_rag.signing import dsse
from tests.conformance.items import FINGERPRINT, admission, records
from tests.sql.databases import ADA, database, template
from tests.sql.publication import published, store_blobs

ANN, BEN = UUID(int=1), UUID(int=2)
PUBLIC, SECRET, FRESH = admission("acme/x"), admission("acme/secret", "4711 okapi"), admission("acme/fresh")
COLUMNS = "payload_type, payload, signature, signer, public_key"

ROLES = {
    "anon": "anon",
    "user": "authenticated",
    "service": "service_role",
    "publisher": "kiwi_publisher",
    "indexer": "kiwi_indexer",
    "admin": "kiwi_admin",
    "owner": "kiwi_owner",
    "super": "superuser",
    "replica": "replica",
}
MATRIX = """
                             anon    user    service  publisher  indexer  admin   owner   super   replica
# Writing past the function
INSERT tampered              42501   42501   42501    42501      42501    42501   23514   23514   23514
INSERT direct                42501   42501   42501    42501      42501    42501   done    done    done
COPY tampered                42501   42501   42501    42501      42501    42501   23514   23514   23514
ON CONFLICT DO UPDATE        42501   42501   42501    42501      42501    42501   KW006   KW006   KW006
# The one way in
publish_item, tampered       42501   KW015   KW015    KW015      42501    KW015   KW015   KW015   KW015
publish_item                 42501   done    done     done       42501    done    done    done    done
# Rewriting what stands
UPDATE payload               42501   42501   42501    42501      42501    42501   KW014   KW014   KW014
UPDATE public_key            42501   42501   42501    42501      42501    42501   KW014   KW014   KW014
UPDATE generated column      428C9   428C9   428C9    428C9      428C9    428C9   428C9   428C9   428C9
DELETE                       42501   42501   42501    42501      42501    42501   KW014   KW014   KW014
TRUNCATE                     42501   42501   42501    42501      42501    42501   KW014   KW014   KW014
UPDATE audit                 42501   42501   42501    42501      42501    42501   KW014   KW014   KW014
DELETE audit                 42501   42501   42501    42501      42501    42501   KW014   KW014   KW014
TRUNCATE audit               42501   42501   42501    42501      42501    42501   KW014   KW014   KW014
# Making oneself an authority, or taking the walls down
INSERT signer                42501   42501   42501    42501      42501    42501   done    done    done
UPDATE signer                42501   42501   42501    42501      42501    42501   done    done    done
enrol_signer                 42501   42501   42501    42501      42501    done    done    done    done
CREATE in kiwi               42501   42501   42501    42501      42501    42501   done    done    done
disable trigger              42501   42501   42501    42501      42501    42501   done    done    done
drop constraint              42501   42501   42501    42501      42501    42501   done    done    done
replace the verifier         42501   42501   42501    42501      42501    42501   done    done    done
# Vectors that were not made on the trusted side
own vector, by table         42501   42501   42501    42501      42501    42501   done    done    done
own vector, store_passages   42501   42501   42501    42501      done     42501   done    done    done
# Reading what another keeps private: how often it is seen, or what answers. The indexer sees what it indexes; the
# audit log names nothing private; user is whom PostgREST says it is.
private by table             0       0       0        0          0        0       0       0       0
private by private table     42501   42501   42501    42501      42501    42501   1       1       1
private by blobs             42501   42501   42501    42501      42501    42501   1       1       1
private by file names        42501   42501   42501    42501      42501    42501   1       1       1
private by vectors           42501   42501   42501    42501      42501    42501   1       1       1
private by get_item          0       0       0        0          0        0       0       1       1
private by item_status       0       0       0        0          0        0       0       1       1
private by search            0       0       0        0          0        0       0       1       1
private by statistics        1       1       1        1          1        1       1       1       1
private by count             1       1       1        1          1        1       1       1       1
private by claims            0       1       0        0          0        0       0       1       1
private by pending_items     42501   42501   42501    42501      2        42501   2       2       2
private by claim_item        42501   42501   42501    42501      done     42501   done    done    done
private by read_passages     42501   42501   42501    42501      1        42501   1       1       1
private by audit             42501   42501   0        42501      42501    0       0       0       0
private by checkpoint        False   False   False    False      False    False   False   False   False
private by error text        42501   42501   42501    42501      42501    42501   22P02   22P02   22P02
private by version taken     42501   done    done     done       42501    done    done    done    done
private by yank_item         42501   0       0        0          42501    0       0       1       1
"""


def stored(envelope: Envelope, *, tampered: bool = False) -> tuple[object, ...]:
    """What a direct INSERT takes, with the signature of other bytes when `tampered`."""
    signature = FRESH.envelope.signatures[0][1] if not tampered else PUBLIC.envelope.signatures[0][1]
    return envelope.payload_type, envelope.payload, signature, ADA.key_id, ADA.public_key


def handed_in(
    connection: psycopg.Connection, item: Admission, visibility: str = "public", envelope: Envelope | None = None
) -> str:
    document = dsse.encode(envelope) if envelope else None
    return str(published(connection, item, visibility, document).get("code", "done"))


def insert(connection: psycopg.Connection, *, tampered: bool = False) -> None:
    statement = f"insert into kiwi.statements ({COLUMNS}) values (%s, %s, %s, %s, %s)"
    connection.execute(statement, stored(FRESH.envelope, tampered=tampered))


def replace_on_conflict(connection: psycopg.Connection) -> None:
    statement = f"""
        insert into kiwi.statements ({COLUMNS}) values (%s, %s, %s, %s, %s)
        on conflict (digest) do update set payload = excluded.payload || ' '
    """
    envelope = PUBLIC.envelope
    values = [envelope.payload_type, envelope.payload, envelope.signatures[0][1], ADA.key_id, ADA.public_key]
    connection.execute(statement, values)


def copy(connection: psycopg.Connection) -> None:
    with connection.cursor().copy(f"copy kiwi.statements ({COLUMNS}) from stdin") as out:
        out.write_row(stored(FRESH.envelope, tampered=True))


def own_vector(connection: psycopg.Connection) -> None:
    connection.execute(
        """
        insert into kiwi.passages (
            statement_id, collection_id, dimension, ordinal, text, context, heading, start_line, end_line, length,
            terms, frequencies, embedding
        )
        select statement_id, collection_id, dimension, 9, 'x', '', '{}', 1, 1, 1, '{}', '{}', embedding
        from kiwi.passages limit 1
        """
    )


def own_vector_by_function(connection: psycopg.Connection) -> None:
    passages = Jsonb([rows.passage_object(record) for record in records(PUBLIC, ["anything"])])
    connection.execute("select public.store_passages(%s, %s, %s)", [PUBLIC.digest, FINGERPRINT, passages])


def signed_by(connection: psycopg.Connection, *, tampered: bool) -> str:
    envelope = FRESH.envelope
    if tampered:
        envelope = Envelope(envelope.payload_type, envelope.payload, PUBLIC.envelope.signatures)
    return handed_in(connection, FRESH, envelope=envelope)


def taken_back(connection: psycopg.Connection) -> str:
    """Yank somebody's private item; return how many went. To whom it is not shown, it is as if it did not exist."""
    query = "select public.yank_item('directive', %s)"
    (nothing,) = connection.execute(query, ["acme/nothing"]).fetchone() or (None,)
    (secret,) = connection.execute(query, ["acme/secret"]).fetchone() or (None,)
    assert nothing == 0
    return str(secret)


def pretend(connection: psycopg.Connection, user: UUID) -> str:
    """Claim to be a user without PostgREST, which alone makes a token's bearer `authenticated`."""
    connection.execute("select set_config('request.jwt.claims', %s, true)", [f'{{"sub": "{user}"}}'])
    return str(ACTIONS["private by get_item"](connection))


def does(statement: str) -> Callable[[psycopg.Connection], None]:
    return lambda connection: connection.execute(statement) and None  # type: ignore[call-overload]


def sees(query: str) -> Callable[[psycopg.Connection], str]:
    return lambda connection: str(connection.execute(query).fetchone()[0])  # type: ignore[call-overload,index]


ACTIONS: dict[str, Callable[[psycopg.Connection], str | None]] = {
    "INSERT tampered": lambda c: insert(c, tampered=True),
    "INSERT direct": insert,
    "COPY tampered": copy,
    "ON CONFLICT DO UPDATE": replace_on_conflict,
    "publish_item, tampered": lambda c: signed_by(c, tampered=True),
    "publish_item": lambda c: signed_by(c, tampered=False),
    "UPDATE payload": does("update kiwi.statements set payload = payload || ' '"),
    "UPDATE public_key": does("update kiwi.statements set public_key = signature"),
    "UPDATE generated column": does("update kiwi.statements set item_id = 'x'"),
    "DELETE": does("delete from kiwi.statements"),
    "TRUNCATE": does("truncate kiwi.statements cascade"),
    "UPDATE audit": does("update kiwi.audit set ref = 'x'"),
    "DELETE audit": does("delete from kiwi.audit"),
    "TRUNCATE audit": does("truncate kiwi.audit"),
    "INSERT signer": does(
        "insert into kiwi.signers (public_key, principal, item_patterns, item_types)"
        " values (sha256('eve'), 'eve', '{*}', '{directive}')"
    ),
    "UPDATE signer": does("update kiwi.signers set item_patterns = '{*}'"),
    "enrol_signer": does(f"select public.enrol_signer('{ADA.public_key.hex()}', 'eve', '{{*}}')"),
    "CREATE in kiwi": does("create table kiwi.mine ()"),
    "disable trigger": does("alter table kiwi.statements disable trigger admit"),
    "drop constraint": does("alter table kiwi_private.all_statements drop constraint statements_signature"),
    "replace the verifier": does(
        "create or replace function kiwi.ed25519_verify(public_key bytea, message bytea, signature bytea)"
        " returns boolean language sql as 'select true'"
    ),
    "own vector, by table": own_vector,
    "own vector, store_passages": own_vector_by_function,
    "private by table": sees("select count(*) from kiwi.statements where item_id = 'acme/secret'"),
    "private by private table": sees("select count(*) from kiwi_private.statements where item_id = 'acme/secret'"),
    "private by blobs": sees("select count(*) from kiwi_private.blobs"),
    "private by file names": sees("select count(*) from kiwi_private.statement_files"),
    "private by vectors": sees("select count(*) from kiwi_private.passages where text like '%okapi%'"),
    "private by get_item": sees("select count(*) from public.get_item(null, 'acme/secret')"),
    "private by item_status": sees("select count(*) from public.item_status('acme/secret')"),
    "private by search": sees("select count(*) from public.search_lexical('okapi')"),
    "private by statistics": sees("select public.collection_statistics('{okapi}') ->> 'passages'"),
    "private by count": sees("select public.registry_status() ->> 'versions'"),
    "private by claims": lambda c: pretend(c, ANN),
    "private by pending_items": sees("select count(*) from public.pending_items('another model')"),
    "private by claim_item": does(f"select public.claim_item('{SECRET.digest}', '{FINGERPRINT}')"),
    "private by read_passages": sees(f"select count(*) from public.read_passages('{SECRET.digest}', '{FINGERPRINT}')"),
    "private by audit": sees("select count(*) from kiwi.audit where ref like '%secret%'"),
    "private by checkpoint": sees("select public.registry_checkpoint(0, 0)::text like '%secret%'"),
    "private by error text": does("select from kiwi_private.statements where left(item_id, 10)::integer = 1"),
    "private by version taken": lambda c: handed_in(c, admission("acme/secret", "other text")),
    "private by yank_item": taken_back,
}


@pytest.fixture(scope="module")
def registry() -> Iterator[psycopg.Connection]:
    """A public and a private item, both indexed; every test's changes are rolled back."""
    with database(like=template()) as url, psycopg.connect(url) as connection:
        bind = "select public.enrol_signer(%s, %s, '{*}', user_id => %s)"
        connection.execute(bind, [ADA.public_key.hex(), ADA.principal, ANN])
        for item, visibility in ((PUBLIC, "public"), (SECRET, "private")):
            connection.execute("set role authenticated")
            connection.execute("select set_config('request.jwt.claims', %s, false)", [f'{{"sub": "{ANN}"}}'])
            assert handed_in(connection, item, visibility) == "done"
            connection.execute("set role kiwi_indexer")
            passages = Jsonb([rows.passage_object(record) for record in records(item)])
            connection.execute("select public.store_passages(%s, %s, %s)", [item.digest, FINGERPRINT, passages])
        connection.execute("reset role; reset request.jwt.claims")
        store_blobs(connection, FRESH)
        connection.commit()
        yield connection


def outcome(connection: psycopg.Connection, role: str, action: str) -> str:
    """Try it as the role; undo it; return what came of it."""
    try:
        # As Kiwi makes it. A hosted project's passes over row level security, and roles are the whole server's.
        connection.execute("alter role service_role nobypassrls")
        if role == "replica":
            connection.execute("set local session_replication_role = replica")
        elif role != "superuser":
            connection.execute(sql.SQL("set local session authorization {}").format(sql.Identifier(role)))
        if role == "authenticated":
            connection.execute("select set_config('request.jwt.claims', %s, true)", [f'{{"sub": "{BEN}"}}'])
        return ACTIONS[action](connection) or "done"
    except psycopg.Error as error:
        return str(error.sqlstate)
    finally:
        connection.rollback()


def cells() -> list[tuple[str, str, str]]:
    """The matrix as (action, role, what comes of it)."""
    header, *lines = MATRIX.strip("\n").splitlines()
    names = [ROLES[short] for short in header.split()]
    table = [(line[:27].strip(), line[27:].split()) for line in lines if not line.startswith("#")]
    assert [action for action, _ in table] == list(ACTIONS)
    return [(action, *cell) for action, row in table for cell in zip(names, row, strict=True)]


@pytest.mark.parametrize(("action", "role", "expected"), cells())
def test_cell(registry: psycopg.Connection, action: str, role: str, expected: str) -> None:
    assert outcome(registry, role, action) == expected
