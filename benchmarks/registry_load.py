"""The embedded registry under load: a hundred searches at once, and ten thousand hostile queries and payloads.

Run: ``python -m benchmarks.registry_load [calls]``. Prints a JSON list of rows: ``name``, ``tried``, ``seconds``,
``slowest`` (seconds of the slowest call), ``outcomes`` (outcome → calls) and ``failed``, empty where the row is as it
should be. The server is the embedded one; the model is a bag of words, which costs no time.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from kiwi_rag.collection import Collection
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.model import SearchQuery
from kiwi_rag.registry import server
from kiwi_rag.registry.migrate import migrate
from kiwi_rag.search import Searcher
from kiwi_rag.signing import dsse
from tests.registry_shelf import registry_tier
from tests.search_tiers import AUDIENCE, BOB, EMBED, THREE, Shelf, candidate, note
from tests.shared import ROOT

CALLS, AT_ONCE, PARALLEL = 10_000, 100, 8
ITEMS = 100
LIMIT = 60
DEADLINE, SHORT = 60.0, 0.5
Row = dict[str, Any]
Search = Callable[[str, float], Awaitable[tuple[float, str]]]
SAID = ("registry-busy", "timeout")


@dataclass
class Load:
    """A filled registry: its URL, a folder, and the tier as one process has it."""

    url: str
    folder: Path
    tier: Collection[Any]

    @contextmanager
    def few_connections(self, left: int) -> Iterator[None]:
        """Take all connections of the server but some."""
        with ExitStack() as held:
            taken = []
            with suppress(psycopg.OperationalError):
                while True:
                    taken.append(held.enter_context(psycopg.connect(self.url)))
            for connection in taken[:left]:
                connection.close()
            yield


def row(what: str, seconds: float, taken: Sequence[tuple[float, str]], allowed: Sequence[str]) -> Row:
    """A row of the table; it failed where an outcome is none of those that are `allowed`."""
    outcomes = Counter(outcome for _, outcome in taken)
    return {
        "name": what,
        "tried": len(taken),
        "seconds": round(seconds, 1),
        "slowest": round(max(one for one, _ in taken), 2),
        "outcomes": dict(outcomes.most_common()),
        "failed": ", ".join(outcomes.keys() - set(allowed)),
    }


async def outcome_of(tier: Collection[Any], text: str, deadline: float) -> tuple[float, str]:
    """Search; return the seconds, and ``ok`` with hits, ``none`` without, or the code of what was said instead."""
    begun, outcome = time.perf_counter(), ""
    try:
        reply = await Searcher([tier], EMBED, deadline).search(SearchQuery(text, "registry"))
        state, error = reply.tiers[0].state, reply.tiers[0].error or {}
        outcome = ("ok" if reply.hits else "none") if reply.complete else str(error.get("code", state))
        outcome = "timeout" if state == "timeout" else outcome
    except KiwiError as error:
        outcome = error.code
    except Exception as error:  # noqa: BLE001  # what should not happen is counted
        outcome = f"crash: {type(error).__name__}"
    return time.perf_counter() - begun, outcome


async def in_a_process(load: Load, text: str, deadline: float) -> tuple[float, str]:
    """Search with connections of its own, which are closed afterwards, as a command does."""
    tier = registry_tier(load.url, load.folder / "audit")
    try:
        return await outcome_of(tier, text, deadline)
    finally:
        await tier.store.close()


async def at_once(what: str, search: Search, deadline: float, allowed: Sequence[str]) -> Row:
    """A hundred searches at once."""
    begun = time.perf_counter()
    taken = await asyncio.gather(*(search(f"deploy staging cluster {n}", deadline) for n in range(AT_ONCE)))
    found = row(what, time.perf_counter() - begun, taken, allowed)
    if found["slowest"] > deadline + 2 and not found["failed"]:
        found["failed"] = f"a search took {found['slowest']} s of {deadline} s"
    return found


async def bounded(calls: Sequence[Callable[[], Awaitable[tuple[float, str]]]]) -> list[tuple[float, str]]:
    """Make the calls, some at once, in no order; return their seconds and outcomes."""
    waiting, taken = list(reversed(calls)), list[tuple[float, str]]()

    async def work() -> None:
        while waiting:
            taken.append(await waiting.pop()())

    await asyncio.gather(*(work() for _ in range(PARALLEL)))
    return taken


def hostile_queries(count: int) -> list[str]:
    """Texts that are no questions: the corpus of the tests, pairs of it, and noise."""
    chance = random.Random(20)
    lines = (ROOT / "tests/data/hostile_queries.txt").read_text("ascii").splitlines()
    corpus = [json.loads(line) for line in lines if not line.startswith("#")]
    noise = [*"\"'()*:^-+&|!<>\\%$;{}[]\0\n\t\u202e\u200f\ud800", " AND ", " NEAR/2 ", "--", "/*", "deploy ", "w"]
    made = list(corpus)
    while len(made) < count:
        pair = "".join(chance.choices(corpus, k=2))
        made.append(pair if len(made) % 2 else "".join(chance.choices(noise, k=chance.randrange(1, 400))))
    return made[:count]


def hostile_payloads(count: int) -> list[tuple[Any, Any]]:
    """Arguments of ``publish_item`` that must be refused: a signed item with its parts changed, and what is no item."""
    chance = random.Random(20)
    one = candidate("eve/x", note("Eve", "An item of Eve."))
    assert one.envelope is not None
    good = dsse.encode(one.envelope)
    files = {name: base64.b64encode(content).decode() for name, content in one.files.items()}
    payload = base64.b64decode(good["payload"])

    def changed() -> tuple[Any, Any]:
        place = chance.randrange(len(payload))
        other = payload[:place] + bytes([payload[place] ^ 1 << chance.randrange(8)]) + payload[place + 1 :]
        return good | {"payload": base64.b64encode(other).decode()}, files

    signature = good["signatures"][0] | {"sig": base64.b64encode(bytes(64)).decode()}
    kinds: tuple[Callable[[], tuple[Any, Any]], ...] = (
        changed,
        lambda: (good, files | {"more.md": "QUFB"}),
        lambda: (good | {"signatures": [signature] * chance.randrange(20)}, files),
        lambda: (good | {f"k{n}": n for n in range(chance.randrange(1, 2000))}, files),
        lambda: ([[]] * chance.randrange(500), files),
        lambda: (good, "no files"),
        lambda: (good | {"payload": chance.randbytes(200).hex()}, files),
    )
    return [chance.choice(kinds)() for _ in range(count)]


async def queries(load: Load, count: int) -> Row:
    """Hostile queries, some at once."""
    texts, begun = hostile_queries(count), time.perf_counter()
    taken = await bounded([lambda text=text: outcome_of(load.tier, text, DEADLINE) for text in texts])  # type: ignore[misc]
    allowed = ("ok", "none", UsageError.code)
    return row(f"hostile queries, {PARALLEL} at once", time.perf_counter() - begun, taken, allowed)


async def payloads(load: Load, count: int) -> Row:
    """Hostile payloads from one login over several connections; the audit log has no more records than it may."""
    login = make_conninfo(load.url, user="mallory")
    lines = [await psycopg.AsyncConnection.connect(login, autocommit=True) for _ in range(PARALLEL)]
    free = list(lines)

    async def publish(arguments: tuple[Any, Any]) -> tuple[float, str]:
        begun, line = time.perf_counter(), free.pop()
        try:
            found = await line.execute("select public.publish_item(%s, %s)", list(map(Jsonb, arguments)))
            answer = (await found.fetchone() or ({},))[0]
            return time.perf_counter() - begun, str(answer.get("code", "accepted"))
        except psycopg.Error as error:
            return time.perf_counter() - begun, f"crash: {error.sqlstate}"
        finally:
            free.append(line)

    made, begun = hostile_payloads(count), time.perf_counter()
    taken = await bounded([lambda arguments=arguments: publish(arguments) for arguments in made])  # type: ignore[misc]
    seconds = time.perf_counter() - begun
    for line in lines:
        await line.close()
    refused = {outcome for _, outcome in taken if outcome.startswith("KW")}
    found = row(f"hostile payloads from one login, {PARALLEL} at once", seconds, taken, [*refused])
    return found | _audited(load.url, int(seconds // 60) + 2, found["failed"])


def _audited(url: str, minutes: int, failed: str) -> Row:
    """The records that the refusals left, and whether they are too many or the chain is broken."""
    with psycopg.connect(url, autocommit=True) as connection:
        (records,) = connection.execute("select count(*) from kiwi.audit where event = 'refused'").fetchone() or (0,)
        (broken,) = connection.execute("select public.verify_audit()").fetchone() or (None,)
    if broken or records > minutes * (LIMIT + 1):
        failed = failed or f"{records} audit records in {minutes} minutes; chain broken at {broken}"
    return {"audit_records": records, "failed": failed}


async def measure(url: str, folder: Path, count: int) -> list[Row]:
    """Fill the registry, and put the loads on it."""
    shelf = Shelf(folder, trust=THREE)
    load = Load(url, folder, registry_tier(url, folder / "audit"))
    shelf.tiers["registry"] = load.tier
    for number in range(ITEMS):
        body = f"Deploy the staging cluster number {number}. " * 20
        await shelf.put("registry", f"reg/n{number}", note(f"Deploy staging {number}", body), key=BOB)
    here, elsewhere = partial(outcome_of, load.tier), partial(in_a_process, load)
    made = [
        await at_once(f"{AT_ONCE} searches at once in one process", here, DEADLINE, ("ok",)),
        await at_once(f"{AT_ONCE} searches at once in one process, {SHORT} s each", here, SHORT, ("ok", *SAID)),
        await at_once(f"{AT_ONCE} searches at once, as of {AT_ONCE} processes", elsewhere, DEADLINE, ("ok",)),
        await queries(load, count),
        await payloads(load, count),
    ]
    await load.tier.store.close()
    with load.few_connections(10):
        what = f"{AT_ONCE} searches at once, as of {AT_ONCE} processes, 10 connections free"
        made.append(await at_once(what, elsewhere, DEADLINE, ("ok",)))
    with load.few_connections(0):
        what = f"{AT_ONCE} searches at once, as of {AT_ONCE} processes, no connection free"
        made.append(await at_once(what, elsewhere, 2.0, SAID))
    return made


def rows(count: int = CALLS) -> list[Row]:
    """Start a registry and return its rows, ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as name:
        folder = Path(name)
        try:
            url = server.start(folder / "registry")
            migrate(url, audience=AUDIENCE)
            with psycopg.connect(url, autocommit=True) as connection:
                for signer in THREE.signers:
                    arguments = [signer.public_key.hex(), signer.principal]
                    connection.execute("select public.enrol_signer(%s, %s, '{*}')", arguments)
                connection.execute("create role mallory login in role kiwi_publisher")
            return asyncio.run(measure(url, folder, count))
        finally:
            server.stop(folder / "registry")


if __name__ == "__main__":
    json.dump(rows(int(sys.argv[1]) if len(sys.argv) > 1 else CALLS), sys.stdout, indent=1)
    sys.stdout.write("\n")
