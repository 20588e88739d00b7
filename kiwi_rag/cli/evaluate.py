"""``kiwi eval``: run, diff, tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import __version__
from kiwi_rag.cli.search import SOURCE, WEIGHTS
from kiwi_rag.cli.session import DONE, PARTLY, Session
from kiwi_rag.errors import UsageError
from kiwi_rag.model import FusionWeights, SearchQuery
from kiwi_rag.services import Services
from kiwi_rag.usecases.status import as_set

if TYPE_CHECKING:
    from kiwi_rag.evaluation.datasets import Dataset
    from kiwi_rag.evaluation.methods import Method
    from kiwi_rag.evaluation.runs import Run

_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)
_FILES = click.argument("paths", metavar="QUERIES [JUDGEMENTS]", nargs=-1, required=True, type=_PATH)
_EXAMPLES = """\b
Examples:
  kiwi eval queries.jsonl --source project
  kiwi eval beir/scifact --method bm25 --method hybrid --k 100
  kiwi eval queries.jsonl --out today.json --plot today.png
  kiwi eval diff yesterday.json today.json
  kiwi eval tune queries.jsonl --out weights.json
"""


class _RunByDefault(click.Group):
    """``kiwi eval FILE`` means ``kiwi eval run FILE``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` in front of what begins with no command's name."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What `kiwi eval run` was asked for."""

    methods: Sequence[str]
    weights: FusionWeights | None
    k: int
    by_kind: bool
    out: Path | None
    plot: Path | None


@click.group("eval", cls=_RunByDefault, epilog=_EXAMPLES)
def evaluate() -> None:
    """Measure search quality on judged queries.

    `run` may be left out: `kiwi eval FILE` runs FILE.
    """


@evaluate.command(epilog=_EXAMPLES)
@_FILES
@SOURCE
@click.option("--method", "methods", multiple=True, help="Only this row; repeatable. Default: all of them.")
@click.option("--k", type=click.IntRange(1, 200), default=10, show_default=True, help="Depth of recall@k.")
@click.option("--kind", "by_kind", is_flag=True, help="A table for each kind of query, too.")
@WEIGHTS
@click.option("--alpha", type=float, help="Weight of the vector leg in the hybrid row; default: the tuned one.")
@click.option("--out", type=_FILE, help="Write the run, with every query's answers, as JSON.")
@click.option("--plot", type=_FILE, help="Draw quality against latency (.png, .svg or .pdf; needs the extra 'plot').")
@click.pass_obj
def run(
    session: Session,
    paths: tuple[Path, ...],
    source: str | None,
    methods: tuple[str, ...],
    k: int,
    by_kind: bool,
    weights: FusionWeights | None,
    alpha: float | None,
    out: Path | None,
    plot: Path | None,
) -> int:
    """Measure nDCG@10, recall@k, hit@3 and MRR@10 of grep, BM25, vectors, RRF and hybrid, with 95% intervals.

    QUERIES holds one JSON object a line: {"query": "...", "relevant": {"directive:acme/x": 2}}, and "kind" or "id"
    where wanted. In its place: a folder in BEIR's form, or a file of queries ({"_id", "text"}) and one of judgements
    (BEIR's or TREC's). Latencies are of whole searches, verification included, with the query's vector at hand.
    """
    from kiwi_rag.evaluation import methods as rows
    from kiwi_rag.evaluation import plot as picture
    from kiwi_rag.evaluation.datasets import load
    from kiwi_rag.evaluation.runs import check_outputs

    check_outputs([out, plot], paths)
    if plot:
        picture.check(plot)
    wish = _Wish(rows.named(methods), weights, k, by_kind, out, plot)
    dataset = load(paths)
    flags = {"source": source, "limit": max(k, 10), "alpha": alpha}
    return session.run(lambda app: _run(session, app, dataset, wish), **flags)


async def _run(session: Session, app: Services, dataset: Dataset, wish: _Wish) -> int:
    from kiwi_rag.evaluation import methods, runs
    from kiwi_rag.evaluation import plot as picture
    from kiwi_rag.search.searcher import check

    query = as_set(SearchQuery("x", weights=wish.weights), app.settings)
    check(query)
    tiers = [app.tier(name) for name in app.source_names(query.source)]
    missing = await runs.not_held(dataset, tiers)
    asked = await methods.prepare(wish.methods, app.searcher(query.source), tiers, query)
    about = {**await _about(app, dataset), **_settings(query), "not_held": missing}
    with session.bar("eval", "queries") as planned:
        step = planned((1 + len(asked)) * len(dataset.queries))
        for judged in dataset.queries:  # so that no row pays for the model
            await app.embed.query(judged.text)
            step(1)
        done = await runs.evaluate(dataset, asked, wish.k, about, step)
    if wish.out:
        runs.write(runs.document(done), wish.out)
    if wish.plot:
        picture.draw(runs.rows(done), wish.plot, f"{len(done.queries)} queries of {dataset.name}")
    if session.as_json:
        session.data(runs.document(done))
    else:
        _show(session, done, wish.by_kind)
    return _notices(session, dataset, missing, asked)


def _settings(query: SearchQuery) -> dict[str, Any]:
    from dataclasses import asdict

    from kiwi_rag.search.searcher import weights_of

    latency = "whole search with verification, the query's vector at hand"
    return {
        "weights": asdict(weights_of(query)),
        "limit": query.limit,
        "half_life_days": query.half_life_days,
        "per_signer": query.per_signer,
        "latency": latency,
    }


async def _about(app: Services, dataset: Dataset) -> dict[str, Any]:
    """Return what the figures depend on."""
    tiers, source = {}, app.settings.source
    for name in app.source_names(source):
        status = await app.tier(name).store.status()
        tiers[name] = {"items": status.items, "passages": status.passages}
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kiwi": __version__,
        "dataset": {"name": dataset.name, "sha256": dataset.sha256, "left_out": dataset.unanswerable},
        "source": source,
        "tiers": tiers,
        "model": str(app.embed.fingerprint),
    }


def _show(session: Session, done: Run, by_kind: bool) -> None:
    from kiwi_rag.evaluation import report, runs

    parts = {"all": done, **{kind: done.of_kind(kind) for kind in done.kinds if by_kind}}
    for name, part in parts.items():
        if by_kind:
            session.out(f"{name}: {len(part.queries)} queries")
        rows, leg = runs.rows(part), runs.better_leg(part)
        for line in report.table(rows):
            session.out(line)
        for row in rows:
            if row.gain and leg and row.method != "grep":
                session.out(report.gain(row.method, leg, row.gain))


def _notices(session: Session, dataset: Dataset, missing: Sequence[str], asked: Mapping[str, Method]) -> int:
    """Tell what makes the figures lower than they could be; return the exit code."""
    session.say(f"{len(dataset.queries)} queries of {dataset.name}")
    if dataset.unanswerable:
        session.say(f"left out: {dataset.unanswerable} queries for which nothing is judged relevant")
    if missing:
        few = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        session.say(f"warning: {len(missing)} judged items are in no asked tier and cannot be found: {few}")
    broken = {name: method.incomplete for name, method in asked.items() if method.incomplete}
    for name, count in broken.items():
        session.say(f"warning: {count} answers of {name} were not whole: a tier failed or a hit was refused")
    return PARTLY if broken else DONE


@evaluate.command(epilog="Example: kiwi eval diff yesterday.json today.json --metric mrr@10 --limit 20")
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@click.option("--metric", default="ndcg@10", show_default=True, help="What to compare.")
@click.option("--method", "methods", multiple=True, help="The row to compare, or two: of BEFORE, of AFTER.")
@click.option("--limit", "-n", type=click.IntRange(0), default=10, show_default=True, help="Queries to show.")
@click.pass_obj
def diff(session: Session, before: Path, after: Path, metric: str, methods: tuple[str, ...], limit: int) -> int:
    """Compare two runs query by query: wins, losses, what changed most, and whether that is more than chance.

    BEFORE and AFTER are files that `kiwi eval --out` wrote; the same file twice compares two of its methods.
    """
    from kiwi_rag.evaluation import report, runs
    from kiwi_rag.evaluation.compare import compare

    if len(methods) > 2:
        raise UsageError("two methods at most can be compared")
    pair = (methods[0], methods[-1]) if methods else ("hybrid", "hybrid")
    found = compare(runs.read(before), runs.read(after), metric, pair)
    if session.as_json:
        session.data(found.as_dict())
        return DONE
    for line in report.comparison(found, limit):
        session.out(line)
    if found.differs:
        session.say(f"the runs also differ in: {', '.join(found.differs)}")
    if found.unmatched:
        session.say(f"{found.unmatched} queries are in one run only, or judged differently, and were left out")
    return DONE


@evaluate.command(epilog="Example: kiwi eval tune queries.jsonl --source project --out weights.json")
@_FILES
@SOURCE
@WEIGHTS
@click.option("--out", type=_FILE, help="Write the weights, with how they were obtained, for --weights.")
@click.pass_obj
def tune(
    session: Session, paths: tuple[Path, ...], source: str | None, weights: FusionWeights | None, out: Path | None
) -> int:
    """Choose the fusion's weights on one half of the queries, and report them on the other.

    The half to choose on are the queries whose text has an even SHA-256. --weights says where to begin.
    """
    from kiwi_rag.evaluation.datasets import load
    from kiwi_rag.evaluation.runs import check_outputs

    check_outputs([out], paths)
    dataset = load(paths)
    return session.run(lambda app: _tune(session, app, dataset, weights, out), source=source)


async def _tune(
    session: Session, app: Services, dataset: Dataset, weights: FusionWeights | None, out: Path | None
) -> int:
    from kiwi_rag.evaluation import report, runs, tuning
    from kiwi_rag.search.ranking import default_weights

    start = weights or default_weights()
    tiers = [app.tier(name) for name in app.source_names(app.settings.source)]
    with session.bar("ask", "queries") as planned:
        captured = await tuning.capture(dataset, tiers, app.embed, app.settings.deadline, planned(len(dataset.queries)))
    with session.bar("tune", "trials") as planned:
        found = tuning.tune(captured, start, planned(tuning.TRIALS_AT_LEAST))
    document = found.document(await _about(app, dataset))
    if out:
        runs.write(document, out)
    if session.as_json:
        session.data(document)
    else:
        for line in report.tuned(found):
            session.out(line)
    if found.weights != start and not found.is_better:
        session.say("warning: on the other half they are no better: these queries are too few, or too unlike")
    return DONE
