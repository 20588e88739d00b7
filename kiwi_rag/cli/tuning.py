"""``kiwi registry tune``, and what the indexer does of it by itself."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import click

from kiwi_rag import present
from kiwi_rag.app import App
from kiwi_rag.cli.session import DONE, PARTLY, Session
from kiwi_rag.errors import KiwiError, RegistryUnreachable
from kiwi_rag.ingest.lanes import give_up
from kiwi_rag.registry.tuning.choice import METHODS

_LOOK_SECONDS = 60.0


def _number(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Refuse what no bound refuses: nan is neither below nor above anything."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number from 0.5 to 1")
    return value


@click.command(epilog="Example: kiwi registry tune, or kiwi registry tune --method hnsw --recall 0.99")
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="The index; auto: none below 10,000 passages, ivfflat above.  [default: what was asked for last, or auto]",
)
@click.option(
    "--recall",
    "wanted",
    type=click.FloatRange(0.5, 1.0),
    callback=_number,
    help="Share of the ten nearest passages that a search is to find.  [default: what was asked for last, or 0.98]",
)
@click.option("--model", default="", help="Whose vectors; the active model's when left out.")
@click.option("--memory", type=click.IntRange(min=64), default=1024, show_default=True, help="MiB for building.")
@click.option("--dry-run", is_flag=True, help="Only say what would be built.")
@click.pass_obj
def tune(session: Session, method: str | None, wanted: float | None, model: str, memory: int, dry_run: bool) -> int:
    """Build the index that the registry's vectors want, and measure that searches find what they should.

    Searching, publishing and indexing go on meanwhile. Needs the role that migrates.
    """
    options = {"method": method, "wanted": wanted, "fingerprint": model, "memory": memory, "dry_run": dry_run}
    return session.run(lambda app: _tune(session, app, options))


async def _tune(session: Session, app: App, options: dict[str, Any]) -> int:
    tuned = await _tuned(session, app, options)
    if session.as_json:
        session.data(tuned.as_dict())
    else:
        session.out(present.safe(f"{tuned.passages} passages of {tuned.fingerprint}: {tuned.choice}"))
        if tuned.recall is not None:
            session.out(f"recall@10 {tuned.recall:.3f}, wanted {tuned.wanted:g}; effort {tuned.effort}")
    if not tuned.reached:
        session.say("the wanted recall was not reached: try --method ivfflat, or exact")
    return DONE if tuned.reached else PARTLY


async def tune_if_due(session: Session, app: App, model: str) -> None:
    """Tune a model's vectors if they have doubled since, where this connection's role may; else say that it is due."""
    from kiwi_rag.registry import tuning

    plans = (await app.registry().store.status()).details.get("vectors") or []
    if not any(plan["model"] == model and plan["due"] for plan in plans):
        return
    if app.registry_is_api or not await asyncio.to_thread(tuning.may_tune, app.registry_url()):
        session.say("tuning is due, and needs the role that migrates: kiwi registry tune")
        return
    session.say("tuning the index over the vectors; searches go on meanwhile")
    try:
        tuned = await _tuned(session, app, {"fingerprint": model})
        session.say(f"tuned: {tuned.choice}")
    except KiwiError as error:  # what was indexed is indexed, and searches find it, with or without
        session.say(f"not tuned: {error.message}; try it again with: kiwi registry tune")


@asynccontextmanager
async def keep_tuned(session: Session, app: App) -> AsyncIterator[None]:
    """Look every minute whether tuning is due, beside the block."""
    task = asyncio.create_task(_keep_tuned(session, app))
    try:
        yield
    finally:
        await give_up([task])


async def _keep_tuned(session: Session, app: App) -> None:
    model = str(app.embed.fingerprint)
    while True:
        try:
            await tune_if_due(session, app, model)
        except RegistryUnreachable:
            pass  # the indexer says so, and when it tries again
        except KiwiError as error:
            session.say(f"not tuned: {error.message}")
        await asyncio.sleep(_LOOK_SECONDS)


async def _tuned(session: Session, app: App, options: dict[str, Any]) -> Any:
    """Tune in a worker thread; give up what is under way when this task is cancelled."""
    from kiwi_rag.registry import tuning

    url, stop = await asyncio.to_thread(app.registry_url), threading.Event()
    said: set[str] = set()

    def tell(step: str) -> None:
        if step not in said:  # a build at the same percentage says so every second
            said.add(step)
            session.say(step)

    try:
        return await asyncio.to_thread(tuning.tune, url, **options, tell=tell, stop=stop)
    except asyncio.CancelledError:
        stop.set()
        raise
