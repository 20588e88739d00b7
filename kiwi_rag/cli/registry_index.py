"""``kiwi registry index``, ``verify`` and ``tune``."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, PARTLY, Session
from kiwi_rag.cli.sign import acknowledge, report_rejections
from kiwi_rag.errors import KiwiError, RegistryUnreachable, UsageError
from kiwi_rag.ingest.pipeline import cancel_all
from kiwi_rag.registry.tuning import METHODS
from kiwi_rag.services import Services

if TYPE_CHECKING:
    from kiwi_rag.ingest import IngestContext
    from kiwi_rag.ingest.audit_index import Mismatch
    from kiwi_rag.ingest.registry_indexer import Failed
    from kiwi_rag.registry.queue import Progress

_CHECK_SECONDS = 60.0


def _number(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Refuse nan, which is neither below nor above a bound."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number from 0.5 to 1")
    return value


@click.command(epilog="Example: kiwi registry tune, or kiwi registry tune --method hnsw --recall 0.99")
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="The index; auto: none below 10,000 passages, ivfflat above.  [default: that of the last time, or auto]",
)
@click.option(
    "--recall",
    "wanted",
    type=click.FloatRange(0.5, 1.0),
    callback=_number,
    help="Share of the ten nearest passages that a search is to find.  [default: that of the last time, or 0.98]",
)
@click.option("--model", default="", help="Fingerprint of the model. Default: the active model.")
@click.option(
    "--memory", type=click.IntRange(min=64), default=1024, show_default=True, help="Memory for building, in MiB."
)
@click.option("--dry-run", is_flag=True, help="Show what would be built, without building it.")
@click.pass_obj
def tune(session: Session, method: str | None, wanted: float | None, model: str, memory: int, dry_run: bool) -> int:
    """Build the index over the registry's vectors, and measure that searches find what they should.

    Searching, publishing and indexing continue meanwhile. Needs the role that migrates.
    """
    options = {"method": method, "wanted": wanted, "fingerprint": model, "memory": memory, "dry_run": dry_run}
    return session.run(lambda app: _tune(session, app, options))


async def _tune(session: Session, app: Services, options: dict[str, Any]) -> int:
    tuned = await _run_tuning(session, app, options)
    if session.as_json:
        session.print_json(tuned.as_dict())
    else:
        session.print(render.safe(f"{tuned.passages} passages of {tuned.model}: {tuned.choice}"))
        if tuned.recall is not None:
            session.print(f"recall@10 {tuned.recall:.3f}, required {tuned.wanted_recall:g}; effort {tuned.effort}")
    if not tuned.reached:
        session.notify("the required recall was not reached; try --method ivfflat or --method exact")
    return DONE if tuned.reached else PARTLY


async def tune_if_due(session: Session, app: Services, model: str) -> None:
    """Tune a model's vectors if that is due, and this connection's role may; if it may not, say that it is due."""
    from kiwi_rag.registry import tuning

    plans = (await app.registry().store.status()).details.get("vectors") or []
    if not any(plan["model"] == model and plan["due"] for plan in plans):
        return
    if app.registry_connection.is_api or not await asyncio.to_thread(tuning.may_tune, app.registry_connection.url()):
        session.notify("the vector index should be tuned; with the role that migrates run: kiwi registry tune")
        return
    session.notify("tuning the index over the vectors; searches continue meanwhile")
    try:
        tuned = await _run_tuning(session, app, {"fingerprint": model})
        session.notify(f"tuned: {tuned.choice}")
    except KiwiError as error:  # searches find what was indexed without it, too
        session.notify(f"the vector index was not tuned: {error.message}; try again with: kiwi registry tune")


@asynccontextmanager
async def keep_tuned(session: Session, app: Services) -> AsyncIterator[None]:
    """Check every minute whether tuning is due while the block runs."""
    task = asyncio.create_task(_keep_tuned(session, app))
    try:
        yield
    finally:
        await cancel_all([task])


async def _keep_tuned(session: Session, app: Services) -> None:
    model = str(app.embed.fingerprint)
    while True:
        try:
            await tune_if_due(session, app, model)
        except RegistryUnreachable:
            pass  # the indexer reports it, and when it tries again
        except KiwiError as error:
            session.notify(f"the vector index was not tuned: {error.message}")
        await asyncio.sleep(_CHECK_SECONDS)


async def _run_tuning(session: Session, app: Services, options: dict[str, Any]) -> Any:
    """Tune in a worker thread; cancel the running statement when this task is cancelled."""
    from kiwi_rag.registry import tuning

    url, stop = await asyncio.to_thread(app.registry_connection.url), threading.Event()
    reported: set[str] = set()

    def report(step: str) -> None:
        if step not in reported:  # a build reports the same percentage every second
            reported.add(step)
            session.notify(step)

    try:
        return await asyncio.to_thread(tuning.tune, url, **options, report=report, stop=stop)
    except asyncio.CancelledError:
        stop.set()
        raise


@click.command(epilog="Example: kiwi registry index, or kiwi registry index --watch")
@click.option("--watch", is_flag=True, help="Run until stopped, and index what is published meanwhile.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="Seconds between checks, with --watch.",
)
@click.option("--switch", is_flag=True, help="Make this model the active one although items were refused.")
@click.option("--drop-old", is_flag=True, help="Only remove the vectors of superseded models.")
@click.option(
    "--drop", "model", default="", help="Only remove the vectors of this model, which must not be the active one."
)
@click.pass_obj
def index(session: Session, watch: bool, every: float, switch: bool, drop_old: bool, model: str) -> int:
    """Make published items searchable: run the whole gate again, then compute their vectors.

    With another model than the registry's active one, a second set of vectors is built, and searches use it when it is
    complete. Several indexers can run at the same time, and each can be stopped and started again.
    """
    if sum((watch, switch, drop_old, bool(model))) > 1:
        raise UsageError("--watch, --switch, --drop-old and --drop exclude each other", hint="give one of them")
    if drop_old or model:
        return session.run(lambda app: _drop(session, app, model))
    if watch:
        return session.run(lambda app: _watch(session, app, every))
    return session.run(lambda app: _index(session, app, switch))


@click.command(epilog="Example: kiwi registry verify --sample 200")
@click.option(
    "--sample", type=click.IntRange(min=1), default=50, show_default=True, help="Number of items, chosen at random."
)
@click.option("--all", "everything", is_flag=True, help="Check every item.")
@click.pass_obj
def verify(session: Session, sample: int, everything: bool) -> int:
    """Compare stored passages and vectors with those computed from the signed items; report each difference.

    Runs the whole gate on each item and embeds it again. Needs the role kiwi_indexer.
    """
    return session.run(lambda app: _verify(session, app, None if everything else sample))


async def _index(session: Session, app: Services, switch: bool) -> int:
    from kiwi_rag.ingest.registry_indexer import Failed, index_pending

    registry, model = app.registry(), str(app.embed.fingerprint)
    if await registry.store.begin_model(model) == "building":
        session.notify(f"building vectors of {model}; searches use the active model until they are complete")
    failed: list[Failed] = []
    done: list[str] = []
    print_receipt = acknowledge(session)
    async for outcome in index_pending(registry, app.writer):
        if isinstance(outcome, Failed):
            failed.append(outcome)
        else:
            done.append(str(outcome))
            print_receipt(f"indexed  {outcome}")
    await tune_if_due(session, app, model)  # before searches use it
    progress = await registry.store.finish_model(model, insist=switch)
    if session.as_json:
        refused = [{"ref": one.ref, **one.error.as_dict()} for one in failed]
        session.print_json({"indexed": done, "refused": refused, "model": model, "state": progress.state})
    session.notify(f"{len(done)} indexed, {len(failed)} refused")
    session.notify(_state(progress))
    return report_rejections(session, [one.error for one in failed])


def _state(progress: Progress) -> str:
    total = progress.items + progress.waiting
    text = f"{progress.state}: {progress.fingerprint}, {progress.items} of {total} items"
    if progress.state == "active":
        return text
    if progress.waiting == progress.refused:
        return f"{text}; to make it the active one without the refused items: kiwi registry index --switch"
    return f"{text}; to continue: kiwi registry index"


async def _watch(session: Session, app: Services, every: float) -> int:
    from kiwi_rag.ingest.registry_indexer import Failed, Unreachable, watch

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    session.notify(f"waiting for published items, with model {app.embed.fingerprint}; stop with Ctrl-C")
    done = 0
    print_receipt = acknowledge(session)

    def refreshed() -> IngestContext:
        app.refresh_trust()
        return app.writer

    async with keep_tuned(session, app), aclosing(watch(app.registry(), refreshed, stop, every=every)) as outcomes:
        async for outcome in outcomes:
            if isinstance(outcome, Unreachable):
                session.notify(f"{outcome.error.message}; trying again in {outcome.pause:g} s")
            elif isinstance(outcome, Failed):
                session.report_error(outcome.error)
            else:
                done += 1
                print_receipt(f"indexed  {outcome}")
    session.notify(f"stopped; {done} indexed")
    return DONE


async def _drop(session: Session, app: Services, model: str) -> int:
    store = app.registry().store
    models: list[dict[str, Any]] = list((await store.index_status())["models"])
    chosen = [model] if model else [row["fingerprint"] for row in models if row["state"] == "superseded"]
    for name in chosen:
        removed = await store.drop_model(name)
        session.print(render.safe(f"dropped  {name}  {removed} passages"))
    if not chosen:
        session.notify("there is no superseded model")
    return DONE


async def _verify(session: Session, app: Services, sample: int | None) -> int:
    from kiwi_rag.ingest.audit_index import audit_index

    mismatches: list[Mismatch] = []
    checked = 0
    async for ref, found in audit_index(app.registry(), app.writer, sample):
        checked += 1
        mismatches += found
        if not session.as_json:
            for one in found:
                session.print(render.safe(f"differs  {ref}  {one.passage}  {one.what}"))
    if session.as_json:
        session.print_json({"checked": checked, "mismatches": [one.as_dict() for one in mismatches]})
    session.notify(f"{checked} items checked, {len({m.ref for m in mismatches})} do not match what was signed")
    return PARTLY if mismatches else DONE
