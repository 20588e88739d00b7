"""Revoking races with publishing: nothing of the revoked key lands once the revocation is committed.

``KIWI_RACES`` says how many races; ``make soak`` runs many.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import psycopg
import pytest

from kiwi_rag.errors import RegistryRefused
from kiwi_rag.model import Filters
from kiwi_rag.registry.client import RegistryClient, parse_receipt
from kiwi_rag.registry.pool import Connections
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import Signer
from tests.conformance.items import admission
from tests.examples import RACES
from tests.sql import publication

PUBLISHERS = 3
LANDED = "select count(*) from kiwi.statements where signer = %s"
AFTER = """
    select r.key_id from kiwi.audit as p join kiwi.audit as r on r.key_id = p.key_id
    where p.event = 'publish' and r.event = 'compromised' and p.seq > r.seq
"""


@pytest.fixture
async def lines(url: str) -> AsyncIterator[Connections]:
    opened = Connections(url, limit=PUBLISHERS + 2)
    yield opened
    await opened.close()


async def publish(lines: Connections, one, delay: float) -> bool:
    """Publish after `delay` seconds; return whether it was taken."""
    await asyncio.sleep(delay)
    try:
        async with RegistryClient(lines).session() as caller:
            answer = await caller.publish_item(one)
        parse_receipt(answer)
    except RegistryRefused as refused:
        assert "compromised" in refused.message
        return False
    return True


async def revoke(lines: Connections, url: str, key_id: str, delay: float) -> int:
    """Revoke after `delay` seconds; return how many items of the key can be seen once that is committed."""
    await asyncio.sleep(delay)
    async with RegistryClient(lines).session() as caller:
        assert await caller.revoke_signer(key_id, "stolen")
    async with await psycopg.AsyncConnection.connect(url) as fresh:
        row = await (await fresh.execute(LANDED, [key_id])).fetchone()
    return row[0]


async def race(lines: Connections, url: str, number: int, chance: random.Random) -> tuple[int, int]:
    """One race; return how many publications were taken, and how many items the key has at the end."""
    key = keys.generate(f"k{number}")
    async with RegistryClient(lines).session() as caller:
        await caller.enrol_signer(Signer(f"s{number}", key.public_key))
    many = [admission(f"acme/r{number}-{n}", key=key, principal=f"s{number}") for n in range(PUBLISHERS)]
    publications = (publish(lines, one, chance.random() * 0.02) for one in many)
    at_commit, *taken = await asyncio.gather(revoke(lines, url, key.key_id, chance.random() * 0.03), *publications)
    async with RegistryClient(lines).session() as caller:
        shown = {str(item.ref.item_id) for item in await caller.list_items(Filters())}
    assert not shown & {one.ref.item_id for one in many}  # whatever landed before is not shown after
    async with await psycopg.AsyncConnection.connect(url) as fresh:
        row = await (await fresh.execute(LANDED, [key.key_id])).fetchone()
    assert at_commit == row[0] == sum(taken)  # by visibility: what is there was there when the revocation committed
    return sum(taken), len(taken)


async def test_nothing_of_a_revoked_key_lands_after_the_revocation(
    lines: Connections, url: str, connection: psycopg.Connection
) -> None:
    # Each publication is to be judged by its signer: with the usual limit the later ones would be refused unread.
    limit = "insert into kiwi.settings (name, value) values ('refusals_per_minute', %s)"
    connection.execute(limit, [str(RACES * PUBLISHERS + 1)])
    chance = random.Random(7)
    outcomes = [await race(lines, url, number, chance) for number in range(RACES)]
    landed = sum(taken for taken, _ in outcomes)
    assert 0 < landed < RACES * PUBLISHERS  # both sides won some: it was a race
    assert connection.execute(AFTER).fetchall() == []  # by the audit's order
    assert connection.execute("select count(*) from kiwi.audit where event = 'compromised'").fetchone() == (RACES,)
    assert connection.execute("select public.verify_audit()").fetchone() == (None,)


async def test_a_publication_that_is_under_way_makes_the_revocation_wait(
    lines: Connections, url: str, connection: psycopg.Connection
) -> None:
    key = keys.generate("bob")
    async with RegistryClient(lines).session() as caller:
        await caller.enrol_signer(Signer("bob", key.public_key))
    one = admission("acme/x", key=key, principal="bob")
    async with await psycopg.AsyncConnection.connect(url) as publisher:
        await publisher.execute(publication.CALL, publication.arguments(one))  # not committed yet
        revoking = asyncio.create_task(revoke(lines, url, key.key_id, 0))
        await asyncio.sleep(0.3)
        assert not revoking.done()
        await publisher.commit()
    assert await revoking == 1
    assert not await publish(lines, admission("acme/y", key=key, principal="bob"), 0)
