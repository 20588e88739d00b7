"""Private items: their owner finds, reads, opens and takes back; for everybody else they do not exist."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from kiwi_rag.registry import rows
from kiwi_rag.signing import keys
from tests.conformance.items import FINGERPRINT, admission, records, unit_vector
from tests.sql.databases import ADA
from tests.sql.publication import published

ANN, BEN = UUID(int=1), UUID(int=2)
BENS_KEY = keys.generate("ben")


def bind(connection: psycopg.Connection, public_key: bytes, principal: str, user: UUID) -> None:
    """Enrol a signer, and say whose it is."""
    log_in(connection, "kiwi_admin")
    enrol = "select public.enrol_signer(%s, %s, '{*}', user_id => %s)"
    connection.execute(enrol, [public_key.hex(), principal, user])


def bens(item_id: str, text: str, **changes: Any) -> Any:
    """An admission that Ben signed."""
    return admission(item_id, text, key=BENS_KEY, principal="ben", **changes)


def log_in(connection: psycopg.Connection, role: str, user: UUID | None = None) -> None:
    """Act as PostgREST does for a user's token: the role, and the claims."""
    connection.execute("reset role")
    connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
    connection.execute("select set_config('request.jwt.claims', %s, false)", [f'{{"sub": "{user}"}}' if user else ""])


def publish(connection: psycopg.Connection, item: Any, visibility: str = "public") -> dict[str, Any]:
    return published(connection, item, visibility)


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
        "select count(*) from public.get_item(null, 'acme/x')",
        "select count(*) from public.list_items()",
        "select count(*) from public.item_status('acme/x')",
        "select count(*) from kiwi.statements",
        "select (public.registry_status() ->> 'versions')::integer",
        "select (public.registry_status() ->> 'items')::integer",
        "select (public.collection_statistics('{zebra}') ->> 'passages')::integer",
    )
    return [(connection.execute(question).fetchone() or (None,))[0] for question in questions]  # type: ignore[call-overload]


@pytest.fixture
def hers(connection: psycopg.Connection) -> psycopg.Connection:
    """A registry with a public item, and one that Ann keeps private: Ada's key is hers, and Ben has his own."""
    bind(connection, ADA.public_key, ADA.principal, ANN)
    bind(connection, BENS_KEY.public_key, "ben", BEN)
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
    # Supabase's secret key passes over row level security, which hides nothing here.
    assert told(hers) == [0, 1, 0, 1, 1, 1, 1]


def test_its_owner_finds_and_reads_it(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", ANN)
    assert found(hers) == [("acme/public", "1.0.0", True), ("acme/x", "1.0.0", True)]
    assert told(hers) == [1, 2, 1, 1, 1, 1, 1]
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
    assert "sequence" in publish(hers, bens("acme/x", "other text"))
    assert "sequence" in publish(hers, bens("acme/x", "a draft of Ben's", version="0.9.0"), "private")
    assert told(hers)[2] == 2


def test_somebody_elses_private_statement_answers_as_one_that_is_new(hers: psycopg.Connection) -> None:
    """Who has the signed files may publish them, as if nobody kept them private; the private item stays as it is."""
    log_in(hers, "authenticated", BEN)
    for item in (admission("acme/x"), admission("acme/new")):
        answer = publish(hers, item, "private")
        assert answer["code"] == "KW016"
        assert "ada" not in str(answer)
        receipt = publish(hers, item)
        assert (receipt["already_published"], receipt["made_public"]) == (False, False)
    private = "select count(*) from kiwi_private.statements"
    hers.execute("reset role")
    assert hers.execute(private).fetchone() == (1,)
    log_in(hers, "authenticated", ANN)
    assert publish(hers, admission("acme/x"))["made_public"] is True  # there was hers, and it goes
    hers.execute("reset role")
    assert hers.execute(private).fetchone() == (0,)


def test_its_owner_opens_it_to_all_and_never_closes_it_again(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", ANN)
    first = publish(hers, admission("acme/x"), "private")
    opened = publish(hers, admission("acme/x"))
    assert (opened["already_published"], opened["made_public"], opened["visibility"]) == (True, True, "public")
    assert opened["digest"] == first["digest"]
    assert opened["sequence"] == 2  # a number that does not tell how many private ones there are
    assert publish(hers, admission("acme/x"), "private")["visibility"] == "public"
    log_in(hers, "anon")
    assert found(hers) == [("acme/public", "1.0.0", True), ("acme/x", "1.0.0", True)]
    hers.execute("reset role")
    for table in ("statements", "statement_files", "blobs", "passages"):
        count = sql.SQL("select count(*) from {}").format(sql.Identifier("kiwi_private", table))
        assert hers.execute(count).fetchone() == (0,)
    with pytest.raises(psycopg.DatabaseError) as error:
        hers.execute("update kiwi.statements set owner_key = 'principal:ada@acme'")
    assert error.value.sqlstate == "KW014"


def test_of_a_draft_and_the_public_item_of_its_name_the_newer_is_shown(hers: psycopg.Connection) -> None:
    for version, shown in (("1.0.0", "private"), ("2.0.0", "public")):
        theirs = bens("acme/x", f"by Ben {version}", version=version)
        log_in(hers, "authenticated", BEN)
        publish(hers, theirs)
        index(hers, theirs, ["zebra hooves"])
        log_in(hers, "authenticated", ANN)
        assert hers.execute("select visibility from public.get_item(null, 'acme/x')").fetchone() == (shown,)
        assert hers.execute("select visibility from public.list_items()").fetchall() == [("public",), (shown,)]
        texts = hers.execute("select text from public.search_lexical('zebra') where item_id = 'acme/x'").fetchall()
        assert texts == [("zebra stripes" if shown == "private" else "zebra hooves",)]


def test_opening_obeys_the_public_versions(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", BEN)
    publish(hers, bens("acme/x", "two", version="2.0.0"))
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


def test_whoever_hands_a_signed_file_in_first_owns_nothing_of_it(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", BEN)
    stolen = admission("acme/y")
    assert publish(hers, stolen, "private")["code"] == "KW016"
    assert publish(hers, stolen)["already_published"] is False
    with pytest.raises(psycopg.DatabaseError, match="not yours"):
        hers.execute("select public.yank_item('directive', 'acme/y')")
    log_in(hers, "authenticated", ANN)
    assert hers.execute("select public.yank_item('directive', 'acme/y')").fetchone() == (1,)
    assert publish(hers, stolen)["yanked_at"] is not None


def test_the_audit_log_names_no_private_item(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", ANN)
    publish(hers, admission("acme/x", "other bytes"), "private")
    hers.execute("select public.yank_item('directive', 'acme/x')")
    log_in(hers, "kiwi_admin")
    named = "select count(*) from kiwi.audit where ref like '%acme/x%' or details::text like '%acme/x%'"
    refused = "select count(*) from kiwi.audit where event = 'refused'"
    assert hers.execute(refused).fetchone() == (1,)
    assert hers.execute(named).fetchone() == (0,)


def test_visibility_is_one_of_two(connection: psycopg.Connection) -> None:
    assert publish(connection, admission("acme/x"), "secret")["code"] == "KW013"


def test_without_a_word_new_items_are_public_and_private_ones_stay_private(hers: psycopg.Connection) -> None:
    log_in(hers, "authenticated", ANN)
    for item, visibility in ((admission("acme/x"), "private"), (admission("acme/new"), "public")):
        answer = published(hers, item)
        assert answer["visibility"] == visibility


def test_nobody_hands_in_a_private_item_that_is_then_not_theirs(connection: psycopg.Connection) -> None:
    log_in(connection, "kiwi_publisher")
    answer = publish(connection, admission("acme/x"), "private")
    assert answer["code"] == "KW016"
    assert "for their owner to hand in" in answer["message"]
    assert connection.execute("select count(*) from kiwi.statements").fetchone() == (0,)


def test_what_a_revoked_key_signed_does_not_hide_a_draft(hers: psycopg.Connection) -> None:
    eve = keys.generate("eve")
    hers.execute("reset role")
    hers.execute("select public.enrol_signer(%s, 'eve', '{*}')", [eve.public_key.hex()])
    theirs = admission("acme/x", "by Eve", version="2.0.0", key=eve, principal="eve")
    log_in(hers, "authenticated", BEN)
    publish(hers, theirs)
    index(hers, theirs, ["zebra hooves"])
    hers.execute("reset role")
    hers.execute("select public.revoke_signer(%s)", [eve.key_id])
    log_in(hers, "authenticated", ANN)
    assert ("acme/x", "1.0.0", True) in found(hers)


def test_a_draft_hides_the_public_item_of_its_name_whatever_the_filter(hers: psycopg.Connection) -> None:
    theirs = admission("acme/x", "by Ben", version="0.9.0", metadata={"author": "ben"})
    log_in(hers, "authenticated", BEN)
    publish(hers, theirs)
    index(hers, theirs, ["zebra hooves"])
    by_ben = Jsonb({"author": "ben"})
    searched = "select item_id, version from public.search_lexical('zebra', filter => %s)"
    listed = "select item_id, version from public.list_items(%s)"
    log_in(hers, "anon")
    for query in (searched, listed):
        assert hers.execute(query, [by_ben]).fetchall() == [("acme/x", "0.9.0")]
    log_in(hers, "authenticated", ANN)  # her draft is newer, and not by Ben
    for query in (searched, listed):
        assert hers.execute(query, [by_ben]).fetchall() == []


def test_many_private_passages_compete_for_the_places_there_are(hers: psycopg.Connection) -> None:
    long = admission("acme/long", version="1.0.1")
    log_in(hers, "authenticated", ANN)
    publish(hers, long, "private")
    index(hers, long, ["filler"] * 9 + ["zebra zebra"])
    log_in(hers, "authenticated", ANN)
    search = "select bm25, cosine from public.search_hybrid(%s::extensions.vector, '{zebra}', '{1}', 3, %s)"
    every, got = (hers.execute(search, [rows.vector_text(unit_vector(1)), depth]).fetchall() for depth in (100, 2))
    assert len(every) == 12
    assert len(got) <= 4
    for leg in (0, 1):
        assert sorted(row[leg] for row in got)[-2:] == sorted(row[leg] for row in every)[-2:]
