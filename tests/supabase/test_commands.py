"""The real `kiwi`, in real processes, with a Supabase project as its registry: publish, index, search, get, status."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import psycopg
import pytest

from tests.conformance.items import REGISTRY
from tests.interfaces.conftest import Kiwi, kiwi, note, ready  # noqa: F401  # fixtures
from tests.supabase.postgrest import PUBLISHABLE, PostgRest, token


def with_settings(user: Kiwi, settings: Mapping[str, str]) -> Kiwi:
    return Kiwi(user.home, user.cwd, {"KIWI_REGISTRY_NAME": REGISTRY, **settings})


@pytest.fixture
def anon(ready: Kiwi, hosted: PostgRest) -> Kiwi:  # noqa: F811
    """A user who has the project's publishable key and no more."""
    ready.write("knowledge/acme/note.md", note())
    found = with_settings(ready, {"SUPABASE_URL": hosted.url, "SUPABASE_KEY": PUBLISHABLE})
    found.run("sign", ".ai")
    return found


@pytest.fixture
def publisher(anon: Kiwi) -> Kiwi:
    """The same, signed in."""
    return with_settings(anon, {**anon.extra, "KIWI_SUPABASE_TOKEN": token()})


@pytest.fixture
def indexer(anon: Kiwi, url: str) -> Kiwi:
    """Who has a direct connection."""
    return with_settings(anon, {"KIWI_REGISTRY_URL": url})


@pytest.fixture
def enrolled(anon: Kiwi, connection: psycopg.Connection) -> None:
    """The user's key counts in the registry, enrolled with SQL."""
    hexadecimal = anon.run("keys", "export").stdout.strip()
    connection.execute("select public.enrol_signer(%s, 'ada@acme.example', '{acme/*}')", [hexadecimal])


def test_the_journey(anon: Kiwi, publisher: Kiwi, indexer: Kiwi, enrolled: None) -> None:
    published = publisher.run("publish", "--all")
    assert "knowledge:acme/note@1.0.0" in published.stdout
    assert "not searchable yet" in published.stderr
    assert publisher.json("publish", "--all")["published"][0]["already_published"] is True
    assert anon.json("search", "night-time scale-down", "--source", "registry")["hits"] == []
    indexer.run("registry", "index")
    (hit,) = anon.json("search", "night-time scale-down", "--source", "registry")["hits"]
    assert (hit["item_id"], hit["tier"], hit["signer"]) == ("acme/note", "registry", "ada@acme.example")

    other = anon.at(anon.cwd.parent / "other")
    other.run("init")
    other.run("get", "knowledge:acme/note")
    assert (other.cwd / ".ai/knowledge/acme/note.md").read_text() == note()


def test_status_says_where_it_is(anon: Kiwi, hosted: PostgRest, url: str) -> None:
    told = anon.json("registry", "status")
    assert told["where"] == f"Supabase's API, {hosted.url}"
    assert (told["audience"], told["problem"]) == (REGISTRY, "")
    both = with_settings(anon, {**anon.extra, "KIWI_REGISTRY_URL": url}).json("registry", "status")
    assert both["where"] == "a server (KIWI_REGISTRY_URL; SUPABASE_URL is set too, and not used)"
    assert not any(PUBLISHABLE in str(value) for value in (*told.values(), *both.values()))


def test_a_publishable_key_may_not_publish_and_is_told_what_may(anon: Kiwi, enrolled: None) -> None:
    refused = anon.run("publish", "--all", expect=4)
    assert "KIWI_SUPABASE_TOKEN" in refused.stderr


def test_who_is_not_enrolled_is_told_by_the_registry(publisher: Kiwi, connection: psycopg.Connection) -> None:
    refused = publisher.run("publish", "--all", expect=4)
    assert "is not enrolled in this registry" in refused.stderr
    row = connection.execute("select details ->> 'code', ref from kiwi.audit where event = 'refused'").fetchone()
    assert row == ("KW002", "knowledge:acme/note@1.0.0")


@pytest.mark.parametrize("command", [("index",), ("migrate",)])
def test_what_needs_a_direct_connection_says_so(publisher: Kiwi, command: tuple[str, ...]) -> None:
    refused = publisher.run("registry", *command, expect=None)
    assert refused.returncode != 0
    assert "direct connection" in refused.stderr
    assert "KIWI_REGISTRY_URL" in refused.stderr


def test_start_and_stop_are_not_for_a_hosted_registry(anon: Kiwi) -> None:
    for command in ("start", "stop"):
        assert "is not the embedded registry" in anon.run("registry", command, expect=2).stderr


def test_an_address_without_a_key_is_an_error_and_not_another_registry(anon: Kiwi, hosted: PostgRest) -> None:
    keyless = with_settings(anon, {"SUPABASE_URL": hosted.url})
    assert "SUPABASE_KEY" in keyless.run("publish", "--all", expect=2).stderr
    assert not (anon.home / ".ai/registry").exists()


def test_a_paused_project_is_unreachable_and_never_empty(anon: Kiwi) -> None:
    away = with_settings(anon, {**anon.extra, "SUPABASE_URL": "http://127.0.0.1:1"})
    told = away.run("search", "night", "--source", "registry", expect=None)
    assert told.returncode != 0
    assert "cannot be reached" in told.stderr
    away.run("index")
    some = away.run("search", "night-time scale-down", "--source", "all", expect=3)
    assert "acme/note" in some.stdout


def test_no_secret_in_what_is_shown(publisher: Kiwi) -> None:
    shown = publisher.run("config", "--resolved").stdout
    assert "SUPABASE_KEY" in shown
    assert PUBLISHABLE not in shown
    assert publisher.extra["KIWI_SUPABASE_TOKEN"] not in shown


def test_a_port_of_the_embedded_registry_asks_for_the_password(ready: Kiwi) -> None:  # noqa: F811
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    url = ready.run("registry", "start", "--port", str(port)).stdout.strip()
    try:
        with psycopg.connect(url) as connection:
            assert connection.execute("select registry_status() ->> 'audience'").fetchone() == ("kiwi",)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres?passfile=/dev/null")
        elsewhere = with_settings(ready, {"KIWI_REGISTRY_URL": url, "KIWI_REGISTRY_NAME": "kiwi"})
        assert elsewhere.json("registry", "status")["problem"] == ""
        assert "on port" in ready.run("registry", "start", "--port", str(port + 1), expect=1).stderr
    finally:
        ready.run("registry", "stop")
