"""``kiwi eval``: run, diff."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kiwi_rag.cli.search import SOURCE, WEIGHTS
from kiwi_rag.cli.session import DONE, PARTLY, Session
from kiwi_rag.errors import UsageError
from kiwi_rag.evaluation import runs
from kiwi_rag.evaluation.judgements import Dataset, load
from kiwi_rag.evaluation.runs import Run
from kiwi_rag.model import FusionWeights, SearchQuery
from kiwi_rag.search.searcher import check_query
from kiwi_rag.services import Services
from kiwi_rag.usecases.search import apply_settings

_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)
_EXAMPLES = """\b
Examples:
  kiwi eval queries.jsonl --source project
  kiwi eval beir/scifact --method bm25 --method hybrid --k 100
  kiwi eval queries.jsonl --out today.json
  kiwi eval diff yesterday.json today.json
"""


class _RunByDefault(click.Group):
    """``kiwi eval FILE`` means ``kiwi eval run FILE``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` in front of arguments that do not begin with the name of a command."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("eval", cls=_RunByDefault, epilog=_EXAMPLES)
def evaluate() -> None:
    """Measure search quality on judged queries.

    `run` may be left out: `kiwi eval FILE` runs FILE.
    """


@evaluate.command(epilog=_EXAMPLES)
@click.argument("paths", metavar="QUERIES [JUDGEMENTS]", nargs=-1, required=True, type=_PATH)
@SOURCE
@click.option("--method", "methods", multiple=True, help="Only this method. Repeatable. Default: all.")
@click.option("--k", type=click.IntRange(1, 200), default=10, show_default=True, help="Depth of recall@k.")
@click.option("--kind", "by_kind", is_flag=True, help="Also print a table for each kind of query.")
@WEIGHTS
@click.option("--alpha", type=float, help="Weight of the vector leg in the method hybrid. Default: the tuned weight.")
@click.option("--out", type=_FILE, help="Write the run, with the results of each query, as JSON.")
@click.pass_obj
def run(
    session: Session, /, paths: tuple[Path, ...], methods: tuple[str, ...], k: int, by_kind: bool,
    weights: FusionWeights | None, out: Path | None, **flags: Any,
) -> int:  # fmt: skip
    """Measure nDCG@10, recall@k, hit@3 and MRR@10 of grep, BM25, vectors, RRF and hybrid.

    QUERIES holds one JSON object a line: {"query": "...", "relevant": {"directive:acme/x": 2}}, and optionally "kind"
    and "id". In its place: a folder in BEIR's form, or a file of queries ({"_id", "text"}) and one of judgements
    (BEIR's or TREC's). Latencies are of whole searches, verification included; the query's vector is cached.
    """
    runs.check_output(out, paths)
    names, dataset = runs.check_methods(methods), load(paths)
    done = session.run(lambda app: _measure(session, app, dataset, names, k, weights), limit=max(k, 10), **flags)
    if out:
        runs.write(done, out)
    if session.as_json:
        session.print_json(runs.as_document(done))
    else:
        _show(session, done, by_kind)
    return _warn(session, done)


async def _measure(
    session: Session, app: Services, dataset: Dataset, methods: Sequence[str], k: int, weights: FusionWeights | None
) -> Run:
    query = apply_settings(SearchQuery("x", weights=weights), app.settings)
    check_query(query)
    tiers = [app.tier(name) for name in app.source_names(query.source)]
    about = await runs.conditions(dataset, tiers, query, str(app.embed.fingerprint))
    with session.progress_bar("eval", "queries") as planned:
        progress = planned((1 + len(methods)) * len(dataset.queries))
        for judged in dataset.queries:  # no row shall pay for the model
            await app.embed.query(judged.text)
            progress(1)
        searcher = app.searcher(query.source)
        return await runs.evaluate(dataset, methods, searcher, tiers, query, k=k, about=about, progress=progress)


def _show(session: Session, done: Run, by_kind: bool) -> None:
    parts = {"all": done, **{kind: done.of_kind(kind) for kind in done.kinds if by_kind}}
    for name, part in parts.items():
        if by_kind:
            session.print(f"{name}: {len(part.queries)} queries")
        for line in runs.table(part):
            session.print(line)


def _warn(session: Session, done: Run) -> int:
    """Print what makes the figures lower than they could be; return the exit code."""
    dataset, missing = done.about["dataset"], done.about["missing"]
    session.notify(f"{len(done.queries)} queries of {dataset['name']}")
    if dataset["left_out"]:
        session.notify(f"left out: {dataset['left_out']} queries for which nothing is judged relevant")
    if missing:
        names = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        session.notify(f"warning: {len(missing)} judged items are in no searched tier and cannot be found: {names}")
    incomplete = {name: sum(not answer.complete for answer in done.answers(name)) for name in done.methods}
    for name, count in incomplete.items():
        if count:
            session.notify(f"warning: {count} answers of {name} are incomplete: a tier failed or a hit was refused")
    return PARTLY if any(incomplete.values()) else DONE


@evaluate.command(epilog="Example: kiwi eval diff yesterday.json today.json --metric mrr@10 --limit 20")
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@click.option("--metric", default="ndcg@10", show_default=True, help="Metric to compare.")
@click.option(
    "--method", "methods", multiple=True, help="Method to compare; given twice: that of BEFORE and that of AFTER."
)
@click.option("--limit", "-n", type=click.IntRange(0), default=10, show_default=True, help="Number of queries to show.")
@click.pass_obj
def diff(session: Session, before: Path, after: Path, metric: str, methods: tuple[str, ...], limit: int) -> None:
    """Compare two runs query by query: how many got better and worse, and which changed most.

    BEFORE and AFTER are files written by `kiwi eval --out`. Give the same file twice to compare two of its methods.
    """
    if len(methods) > 2:
        raise UsageError("--method was given more than twice", hint="give it once, or once for each run")
    pair = (methods[0], methods[-1]) if methods else ("hybrid", "hybrid")
    found = runs.compare(runs.read(before), runs.read(after), metric, pair)
    if session.as_json:
        session.print_json(asdict(found))
        return
    for line in runs.comparison_lines(found, limit):
        session.print(line)
    if found.differs:
        session.notify(f"the runs also differ in: {', '.join(found.differs)}")
    if found.unmatched:
        session.notify(f"left out: {found.unmatched} queries that are in one run only, or judged differently")
