"""What a refused call costs the server."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from kiwi_rag.signing import dsse
from tests.conformance.items import admission
from tests.sql.databases import database, processor_seconds, template
from tests.sql.publication import encoded

ONE = admission("acme/x")
GOOD = dsse.encode(ONE.envelope)
FEW_KEYS = 0.02  # seconds of the processor that a signature and a record of the audit take, however small the call


@pytest.fixture(scope="module")
def patient() -> Iterator[psycopg.Connection]:
    """A registry that goes on reading, however often it refused."""
    with database(like=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select public.set_refusal_limit(1000)")
        yield connection


def payload(content: bytes) -> dict[str, Any]:
    return GOOD | {"payload": base64.b64encode(content).decode()}


MANY_KEYS = json.dumps({f"k{n:06d}": n for n in range(60_000)}).encode()
CALLS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "60,000 keys under a wrong signature": lambda: (payload(MANY_KEYS), encoded(ONE.item.files)),
    "60,000 keys beside the payload": lambda: (GOOD | {f"k{n}": n for n in range(60_000)}, {}),
    "nested 500,000 times": lambda: (payload(b"[" * 500_000), {}),
    "a payload of 20 MB": lambda: (payload(b"x" * 15_000_000), {}),
    "a list of 20 MB": lambda: (["x" * 10] * 1_500_000, {}),
    "60,000 files": lambda: (GOOD, {f"f{n}": "AAAA" for n in range(60_000)}),
    "a file of 20 MB": lambda: (GOOD, {"directive.md": "A" * 20_000_000}),
    "16 signatures": lambda: (
        GOOD | {"signatures": [{"keyid": GOOD["signatures"][0]["keyid"], "sig": "A" * 84 + "AA=="}] * 16},
        {},
    ),
}


def cost(connection: psycopg.Connection, query: str, arguments: list[str]) -> float:
    """Processor seconds of the server: the least of three, since other processes share its caches."""
    measured = []
    for _ in range(3):
        before = processor_seconds(connection)
        connection.execute(query.encode(), arguments)
        measured.append(processor_seconds(connection) - before)
    return min(measured)


@pytest.mark.parametrize("name", CALLS)
def test_a_refused_call_costs_little_more_than_parsing_it(patient: psycopg.Connection, name: str) -> None:
    arguments = [json.dumps(argument) for argument in CALLS[name]()]
    parsing = cost(patient, "select pg_column_size(%s::text::jsonb), pg_column_size(%s::text::jsonb)", arguments)
    call = cost(patient, "select public.publish_item(%s::text::jsonb, %s::text::jsonb)", arguments)
    assert call <= 2 * parsing + FEW_KEYS
    (answer,) = patient.execute(
        "select public.publish_item(%s::text::jsonb, %s::text::jsonb)", arguments
    ).fetchone() or ({},)
    assert answer["code"] in ("KW001", "KW015")
