"""The functions that generated columns are made of agree with their Python twins."""

from __future__ import annotations

import itertools

import psycopg
import pytest
import semver

from kiwi_rag.errors import MalformedEnvelope
from kiwi_rag.model.refs import fold_item_id
from kiwi_rag.signing import statement
from kiwi_rag.signing.trust import matches

ORDERED = [
    "0.0.1", "0.9.0", "0.10.0", "1.0.0-0", "1.0.0-2", "1.0.0-11", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta",
    "1.0.0-alpha-x", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1-a", "2.0.0", "10.0.0",
]  # fmt: skip


def test_version_keys_sort_as_semver_does(shared: psycopg.Connection) -> None:
    assert sorted(ORDERED, key=semver.Version.parse) == ORDERED
    query = """select array_agg(v order by kiwi.version_key(v) collate "C") from unnest(%s::text[]) as v"""
    assert shared.execute(query, [ORDERED[::-1]]).fetchone() == (ORDERED,)


@pytest.mark.parametrize(
    "version", ["", "1", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0 ", "1.0.0\n", "1.0.0-a..b"]
)
def test_what_is_not_semver_has_no_key(shared: psycopg.Connection, version: str) -> None:
    assert not semver.Version.is_valid(version)
    assert shared.execute("select kiwi.version_key(%s)", [version]).fetchone() == (None,)


def test_patterns_cover_what_the_trust_policy_says(shared: psycopg.Connection) -> None:
    patterns = ["*", "acme/*", "acme/deploy", "*/deploy", "ac*", "acme/*/x", "acme_x/*"]
    ids = ["acme", "acme/deploy", "acme/deploy/x", "acme/a/b/x", "acme-x/y", "acme_x/y", "beta/deploy"]
    for pattern, item_id in itertools.product(patterns, ids):
        got = shared.execute("select kiwi.matches_pattern(%s, %s)", [pattern, item_id]).fetchone()
        assert got == (matches(pattern, item_id),), (pattern, item_id)


@pytest.mark.parametrize(
    "moment",
    [
        "2026-03-01T12:00:00Z",
        "2024-02-29T23:59:59Z",
        "9999-12-31T23:59:59Z",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T23:59:60Z",
        "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z",
        "2026-1-01T00:00:00Z",
        "٢٠٢٦-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "now",
        "",
    ],
)
def test_times_are_read_alike(shared: psycopg.Connection, moment: str) -> None:
    try:
        expected = statement.parse_time(moment)
    except MalformedEnvelope:
        expected = None
    shared.execute("set timezone = 'Asia/Kathmandu'; set datestyle = 'SQL, DMY'")
    query = "select extract(epoch from kiwi.parse_time(%s))::int8"
    got = shared.execute(query, [moment]).fetchone()
    assert got == (int(expected.timestamp()) if expected else None,)


@pytest.mark.parametrize("item_id", ["acme/a_b", "acme/a-b", "x"])
def test_ids_fold_alike(shared: psycopg.Connection, item_id: str) -> None:
    assert shared.execute("select kiwi.fold_item_id(%s)", [item_id]).fetchone() == (fold_item_id(item_id),)
