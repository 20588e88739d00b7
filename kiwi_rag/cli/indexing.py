"""``kiwi registry index`` and ``kiwi registry verify``: the registry's trusted side."""

from __future__ import annotations

import asyncio
import signal
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import present
from kiwi_rag.app import App
from kiwi_rag.cli.author import acknowledge, report_rejections
from kiwi_rag.cli.session import DONE, PARTLY, Session
from kiwi_rag.cli.tuning import keep_tuned, tune_if_due
from kiwi_rag.errors import UsageError

if TYPE_CHECKING:
    from kiwi_rag.ingest import Writer
    from kiwi_rag.ingest.indexing import Failed
    from kiwi_rag.ingest.reverify import Mismatch
    from kiwi_rag.registry.indexing import Progress


@click.command(epilog="Example: kiwi registry index, or kiwi registry index --watch")
@click.option("--watch", is_flag=True, help="Go on with whatever is published, until stopped.")
@click.option("--every", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds between looks.")
@click.option("--switch", is_flag=True, help="Make this model the active one even where items were refused.")
@click.option("--drop-old", is_flag=True, help="Remove the vectors of models that were superseded, and do no more.")
@click.option("--drop", "model", default="", help="Remove the vectors of one model that is not the active one.")
@click.pass_obj
def index(session: Session, watch: bool, every: float, switch: bool, drop_old: bool, model: str) -> int:
    """Make searchable what was published and waits: the whole gate again, then the vectors.

    With another model than the registry's, a second collection is built beside the first; searches move to it once it
    is complete. Several indexers may run at once, anywhere; each may be stopped and started at any time.
    """
    if sum((watch, switch, drop_old, bool(model))) > 1:
        raise UsageError("--watch, --switch, --drop-old and --drop are four different things", hint="one at a time")
    if drop_old or model:
        return session.run(lambda app: _drop(session, app, model))
    if watch:
        return session.run(lambda app: _watch(session, app, every))
    return session.run(lambda app: _index(session, app, switch))


@click.command(epilog="Example: kiwi registry verify --sample 200")
@click.option("--sample", type=click.IntRange(min=1), default=50, show_default=True, help="Items to draw at random.")
@click.option("--all", "everything", is_flag=True, help="Every item.")
@click.pass_obj
def verify(session: Session, sample: int, everything: bool) -> int:
    """Check that stored passages and vectors are those that the signed items give; report each that is not.

    Runs the whole gate over each item again and embeds it anew. Needs kiwi_indexer.
    """
    return session.run(lambda app: _verify(session, app, None if everything else sample))


async def _index(session: Session, app: App, switch: bool) -> int:
    from kiwi_rag.ingest.indexing import Failed, index_pending

    registry, model = app.registry(), str(app.embed.fingerprint)
    if await registry.store.begin_model(model) == "building":
        session.say(f"building vectors of {model} beside the active ones; searches go on with those until then")
    failed: list[Failed] = []
    done: list[str] = []
    told = acknowledge(session)
    async for outcome in index_pending(registry, app.writer):
        if isinstance(outcome, Failed):
            failed.append(outcome)
        else:
            done.append(str(outcome))
            told(f"indexed  {outcome}")
    await tune_if_due(session, app, model)  # before searches move to it
    progress = await registry.store.finish_model(model, insist=switch)
    if session.as_json:
        refused = [{"ref": one.ref, **one.error.as_dict()} for one in failed]
        session.data({"indexed": done, "refused": refused, "model": model, "state": progress.state})
    session.say(f"{len(done)} indexed, {len(failed)} refused")
    session.say(_state(progress))
    return report_rejections(session, [one.error for one in failed])


def _state(progress: Progress) -> str:
    total = progress.items + progress.waiting
    text = f"{progress.state}: {progress.fingerprint}, {progress.items} of {total} items"
    if progress.state == "active":
        return text
    if progress.waiting == progress.refused:
        return f"{text}; make it the active one without the others: kiwi registry index --switch"
    return f"{text}; go on with: kiwi registry index"


async def _watch(session: Session, app: App, every: float) -> int:
    from kiwi_rag.ingest.indexing import Failed, Unreachable, watch

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    session.say(f"watching, with {app.embed.fingerprint}; stop with Ctrl-C")
    done = 0
    told = acknowledge(session)

    def anew() -> Writer:
        app.judge_anew()
        return app.writer

    async with keep_tuned(session, app), aclosing(watch(app.registry(), anew, stop, every=every)) as outcomes:
        async for outcome in outcomes:
            if isinstance(outcome, Unreachable):
                session.say(f"{outcome.error.message}; again in {outcome.pause:g} s")
            elif isinstance(outcome, Failed):
                session.failed(outcome.error)
            else:
                done += 1
                told(f"indexed  {outcome}")
    session.say(f"stopped; {done} indexed")
    return DONE


async def _drop(session: Session, app: App, model: str) -> int:
    store = app.registry().store
    held: list[dict[str, Any]] = list((await store.index_status())["models"])
    chosen = [model] if model else [row["fingerprint"] for row in held if row["state"] == "superseded"]
    for name in chosen:
        removed = await store.drop_model(name)
        session.out(present.safe(f"dropped  {name}  {removed} passages"))
    if not chosen:
        session.say("no model was superseded")
    return DONE


async def _verify(session: Session, app: App, sample: int | None) -> int:
    from kiwi_rag.ingest.reverify import reverify

    mismatches: list[Mismatch] = []
    checked = 0
    async for ref, found in reverify(app.registry(), app.writer, sample):
        checked += 1
        mismatches += found
        if not session.as_json:
            for one in found:
                session.out(present.safe(f"differs  {ref}  {one.passage}  {one.what}"))
    if session.as_json:
        session.data({"checked": checked, "mismatches": [one.as_dict() for one in mismatches]})
    session.say(f"{checked} items checked, {len({m.ref for m in mismatches})} do not match what was signed")
    return PARTLY if mismatches else DONE
