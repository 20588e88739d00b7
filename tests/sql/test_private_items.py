"""Private items: their owner finds, reads, opens and takes back; for everybody else they do not exist."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from kiwi_rag.registry import rows
from kiwi_rag.signing import dsse
from tests.conformance.items import FINGERPRINT, admission, records, unit_vector

ANN, BEN = UUID(int=1), UUID(int=2)


def log_in(connection: psycopg.Connection, role: str, user: UUID | None = None) -> None:
    """Act as PostgREST does for a user's token: the role, and the claims."""
    connection.execute("reset role")
    connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
    connection.execute("select set_config('request.jwt.claims', %s, false)", [f'{{"sub": "{user}"}}' if user else ""])


def publish(connection: psycopg.Connection, item: Any, visibility: str = "public") -> dict[str, Any]:
    (answer,) = connection.execute(
        "select public.publish_item(%s, %s)", [Jsonb(dsse.encode(item.envelope)), visibility]
    ).fetchone() or ({},)
    return answer


def index(connection: psycopg.Connection, item: Any, texts: list[str]) -> None:
    log_in(connection, "kiwi_indexer")
    stored = [rows.passage_object(record) for record in records(item, texts)]
    connection.execute("select public.store_passages(%s, %s, %s)", [item.digest, FINGERPRINT, Jsonb(stored)])


def found(connection: psycopg.Connection, word: str = "zebra") -> list[tuple[Any, ...]]:
    """What the words leg and the vector leg of the seed's functions give."""
    words = connection.execute("select item_id, version, score > 0 from public.search_lexical(%s)", [word]).fetchall()
    near = "select item_id, version, true from public.search_embeddings(%s::extensions.vector)"
    return sorted({*words, *connection.execute(near, [rows.vector_text(unit_vector(1))]).fetchall()})


def told(connection: psycopg.Connection) -> list[Any]:
    """Everything else that a reader can ask of the item."""
    questions = (
        "select count(*) from public.get_item('acme/x')",
        "select count(*) from public.list_items()",
        "select count(*) from public.list_versions('acme/x')",
        "select count(*) from public.item_status('acme/x')",
        "select count(*) from kiwi.item_versions",
        "select count(*) from kiwi.stored_versions",
        "select (public.registry_status() ->> 'versions')::integer",
        "select (public.registry_status() ->> 'items')::integer",
        "select (public.collection_statistics('{zebra}') ->> 'passages')::integer",
    )
    return [(connection.execute(question).fetchone() or (None,))[0] for question in questions]  # type: ignore[call-overload]


@pytest.fixture
def hers(connection: psycopg.Connection) -> psycopg.Connection:
    """A registry with a public item, and one that Ann keeps private."""
    for item, visibility in ((admission("acme/public"), "public"), (admission("acme/x"), "private")):
        log_in(connection, "authenticated", ANN)
        assert publish(connection, item, visibility)["visibility"] == visibility
        index(connection, item, ["zebra stripes"])
    return connection


@pytest.mark.parametrize(
    ("role", "user"), [("anon", None), ("authenticated", BEN), ("service_role", None), ("kiwi_publisher", None)]
)
def test_others_learn_nothing_of_it(hers: psycopg.Connection, role: str, user: UUID | None) -> None:
    log_in(hers, role, user)
    assert found(hers) == [("acme/public", "1.0.0", True)]
    # Supabase's secret key passes over row level security: it reads the table, and nothing of it by any function.
    rows_of_the_table = 2 if role == "service_role" else 1
    assert told(hers) == [0, 1, 0, 0, rows_of_the_table, 1, 1, 1, 1]


def test_its_owner_finds_and_reads_it(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", ANN)
    assert found(hers) == [("acme/public", "1.0.0", True), ("acme/x", "1.0.0", True)]
    assert told(hers) == [1, 2, 1, 1, 2, 2, 1, 1, 1]
    seen = hers.execute("select visibility, searchable from public.item_status('acme/x')").fetchall()
    assert seen == [("private", True)]


def test_without_a_login_the_owner_is_the_role_named_like_the_signers_principal(
    connection: psycopg.Connection,
) -> None:
    connection.execute('create role "ada@acme" in role kiwi_publisher')
    try:
        log_in(connection, "ada@acme")
        assert publish(connection, admission("acme/x"), "private")["visibility"] == "private"
        assert told(connection)[0] == 1
        log_in(connection, "kiwi_publisher")
        assert told(connection)[0] == 0
    finally:
        connection.execute('reset role; drop role "ada@acme"')


def test_a_private_item_is_in_nobodys_way(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", BEN)
    assert "sequence" in publish(hers, admission("acme/x", "other text"))
    assert "sequence" in publish(hers, admission("acme/X".lower(), "a draft of Ben's", version="0.9.0"), "private")
    assert told(hers)[2] == 2


def test_somebody_elses_private_statement_is_refused_without_saying_whose(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", BEN)
    for visibility in ("public", "private"):
        answer = publish(hers, admission("acme/x"), visibility)
        assert answer["code"] == "KW016"
        assert str(ANN) not in str(answer)
        assert "ada" not in str(answer)
    log_in(hers, "anon")
    assert told(hers)[0] == 0


def test_its_owner_opens_it_to_all_and_never_closes_it_again(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", ANN)
    first = publish(hers, admission("acme/x"), "private")
    opened = publish(hers, admission("acme/x"))
    assert (opened["known"], opened["visibility"], opened["sequence"]) == (True, "public", first["sequence"])
    assert publish(hers, admission("acme/x"), "private")["visibility"] == "public"
    log_in(hers, "anon")
    assert found(hers) == [("acme/public", "1.0.0", True), ("acme/x", "1.0.0", True)]
    hers.execute("reset role")
    with pytest.raises(psycopg.DatabaseError) as error:
        hers.execute("update kiwi.item_versions set visibility = 'private'")
    assert error.value.sqlstate == "KW014"


def test_of_a_draft_and_the_public_item_of_its_name_the_newer_is_shown(hers: psycopg.Connection) -> None:
    for version, shown in (("1.0.0", "private"), ("2.0.0", "public")):
        theirs = admission("acme/x", f"by Ben {version}", version=version)
        log_in(hers, "authenticated", BEN)
        publish(hers, theirs)
        index(hers, theirs, ["zebra hooves"])
        log_in(hers, "authenticated", ANN)
        assert hers.execute("select visibility from public.get_item('acme/x')").fetchone() == (shown,)
        assert hers.execute("select visibility from public.list_items()").fetchall() == [("public",), (shown,)]
        texts = hers.execute("select text from public.search_lexical('zebra') where item_id = 'acme/x'").fetchall()
        assert texts == [("zebra stripes" if shown == "private" else "zebra hooves",)]


def test_opening_obeys_the_public_versions(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", BEN)
    publish(hers, admission("acme/x", "two", version="2.0.0"))
    log_in(hers, "authenticated", ANN)
    assert publish(hers, admission("acme/x"))["code"] == "KW007"
    assert told(hers)[2] == 2


def test_who_may_take_back(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", BEN)
    assert hers.execute("select public.yank_item('directive', 'acme/x')").fetchone() == (0,)
    with pytest.raises(psycopg.DatabaseError) as error:
        hers.execute("select public.yank_item('directive', 'acme/public')")
    assert error.value.sqlstate == "KW016"
    log_in(hers, "authenticated", ANN)
    assert hers.execute("select public.yank_item('directive', 'acme/x')").fetchone() == (1,)
    assert found(hers) == [("acme/public", "1.0.0", True)]
    log_in(hers, "kiwi_admin")
    assert hers.execute("select public.yank_item('directive', 'acme/public')").fetchone() == (1,)


def test_visibility_is_one_of_two(connection: psycopg.Connection) -> None:
    for wrong in ("secret", None):
        assert publish(connection, admission("acme/x"), wrong)["code"] == "KW013"  # type: ignore[arg-type]
