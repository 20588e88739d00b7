"""``kiwi search`` finds items in the tiers; ``kiwi eval`` measures how well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from kiwi_rag import render, usecases
from kiwi_rag.cli.session import DONE, FAILED, PARTLY, TIME, Group, Session, command, option
from kiwi_rag.collection import SOURCES
from kiwi_rag.errors import UsageError
from kiwi_rag.model import ITEM_TYPES, FusionMethod, FusionWeights, SearchQuery, SearchReply
from kiwi_rag.render import counted, hits
from kiwi_rag.render.layout import fold_notice
from kiwi_rag.services import Services
from kiwi_rag.usecases.project_trust import next_step

if TYPE_CHECKING:
    from kiwi_rag.evaluation.judgements import Dataset
    from kiwi_rag.evaluation.memory import Conversation, FoundEvidence
    from kiwi_rag.evaluation.runs import Run

ITEM_TYPE = option("--type", "item_type", choices=ITEM_TYPES, help="Only items of this type.")
NAMESPACE = option("--namespace", default="", help="Only items of this namespace, the first segment of the id.")
SOURCE = option("--source", choices=SOURCES, help="Tiers to use. Default: local, which is project and user.")


def _cap(value: str) -> int:
    """Return the number in ``N`` or ``off``, where ``off`` is 0."""
    if value == "off":
        return 0
    if not value.isascii() or not value.isdecimal() or not 1 <= len(value) <= 4 or int(value) < 1:
        raise click.BadParameter(f"{value[:20]!r} is neither a number from 1 to 9999 nor off")
    return int(value)


def _weights(value: str) -> FusionWeights:
    """Return the fusion weights of a file, or of NAME=SHARE pairs."""
    from kiwi_rag.search.ranking import read_weights

    return read_weights(value)


WEIGHTS = option("--weights", type=_weights, metavar="FILE|NAME=SHARE,…", help="Fusion weights. Default: tuned ones.")


@command(epilog='Example: kiwi search "undo a bad release" --source all --type directive --limit 5')
@click.argument("query", nargs=-1, required=True)
@SOURCE
@ITEM_TYPE
@option("--category", default="", help="Only items of this category.")
@option("--author", default="", help="Only items of this author.")
@option("--tag", "tags", multiple=True, help="Only items with this tag. Repeatable: an item must have all of them.")
@NAMESPACE
@option("--signer", default="", help="Only items signed by this principal or key id.")
@option("--since", type=TIME, help="Only items signed since this time, UTC.")
@option("--limit", "-n", type=int, help="Number of hits to show. Default: 10.")
@option("--alpha", type=float, help="Weight of the vector leg, 0 (words only) to 1 (vectors only).")
@WEIGHTS
@option("--fusion", choices=get_args(FusionMethod), default="convex", help="Combine scores (convex) or ranks (rrf).")
@option("--per-signer", type=_cap, metavar="N|off", help="Most hits of one signer.")
@option("--explain", is_flag=True, help="Show how each score was computed.")
@option("--format", "form", choices=("text", "json", "jsonl", "md", "paths"), default="text")
def search(session: Session, /, query: tuple[str, ...], explain: bool, form: str, **given: Any) -> int:
    """Find items by meaning and by words. Every hit is verified before it is shown."""
    flags = {name: given[name] for name in ("source", "limit", "alpha", "per_signer")}
    text, fusion = " ".join(query), {"weights": given["weights"], "fusion": given["fusion"]}
    search_query = SearchQuery(text, filters=usecases.filters_of(given), **fusion)
    missing = next_step(session.app())  # a search creates an index
    reply = session.run(lambda app: usecases.search(app, search_query), **flags)
    for tier in reply.tiers:
        if tier.error:
            session.log_error("search", str(tier.error["code"]), f"{tier.tier}: {tier.error['message']}")
    step = "" if reply.hits and not reply.refused else missing
    return show_reply(session, reply, hits.reply_json(reply, explain), form, explain, step=step)


def show_reply(
    session: Session, reply: SearchReply, data: Mapping[str, Any], form: str, explain: bool, update: str = "",
    step: str = "",
) -> int:  # fmt: skip
    """Print a reply in one of its forms, where `data` is all of it as JSON; and its notices.

    `update` is the command that brings the index up to date, by default that of the workspace. `step` is what is
    missing before anything is found, which is then the only remedy that is named for an empty tier.

    Return 0 for a complete reply, 3 when a tier failed or a hit was refused, 1 when no tier answered.
    """
    texts = {"md": hits.hits_markdown, "paths": hits.hits_paths}
    if session.as_json or form == "json":
        session.print_json(data if session.as_json else data["hits"])
    elif form == "jsonl":
        session.print_data(None, (render.json_text(row, indent=None) for row in data["hits"]))
    elif reply.hits and form in texts:
        session.print(texts[form](reply))
    elif reply.hits:
        session.print(hits.hits_text(reply, session.style, explain, session.width))
        if "explain" in data:  # of items; documents have it in their hits
            session.print(f"\n{hits.explanation_text(reply, session.style, session.width)}")
    for line in hits.notices(reply, update=update or session.index_command, step=step):
        session.notify(*fold_notice(line, session.width))
    session.notify(step)
    answered = any(tier.state in ("ok", "refused") for tier in reply.tiers)
    return DONE if reply.complete else PARTLY if answered else FAILED


_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)
_EXAMPLES = """\b
Examples:
  kiwi eval queries.jsonl --source project
  kiwi eval beir/scifact --method bm25 --method hybrid --k 100
  kiwi eval queries.jsonl --out today.json
  kiwi eval diff yesterday.json today.json
  kiwi eval memory locomo10.json
"""


class _RunByDefault(Group):
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
@option("--method", "methods", multiple=True, help="Only this method. Repeatable. Default: all.")
@option("--k", type=click.IntRange(1, 200), default=10, help="Depth of recall@k.")
@option("--kind", "by_kind", is_flag=True, help="Also print a table for each kind of query.")
@WEIGHTS
@option("--alpha", type=float, help="Weight of the vector leg in the method hybrid. Default: the tuned weight.")
@option("--out", type=_FILE, help="Write the run, with the results of each query, as JSON.")
def run(
    session: Session, /, paths: tuple[Path, ...], methods: tuple[str, ...], k: int, by_kind: bool,
    weights: FusionWeights | None, out: Path | None, **flags: Any,
) -> int:  # fmt: skip
    """Measure nDCG@10, recall@k, hit@3 and MRR@10 of grep, BM25, vectors, RRF and hybrid.

    QUERIES holds one JSON object a line: {"query": "...", "relevant": {"directive:acme/x": 2}}, and optionally "kind"
    and "id". In its place: a folder in BEIR's form, or a file of queries ({"_id", "text"}) and one of judgements
    (BEIR's or TREC's). Latencies are of whole searches, verification included; the query's vector is cached.
    """
    from kiwi_rag.evaluation import runs
    from kiwi_rag.evaluation.judgements import load

    runs.check_output(out, paths)
    names, dataset = runs.check_methods(methods), load(paths)
    done = session.run(lambda app: _measure(session, app, dataset, names, k, weights), limit=max(k, 10), **flags)
    if out:
        runs.write(done, out)
    parts = [("all", done), *((kind, done.of_kind(kind)) for kind in done.kinds)] if by_kind else [("", done)]
    lines: list[str] = []
    for name, part in parts:
        lines += [f"{name}: {counted(len(part.queries), 'queries')}"] * by_kind + [*runs.table(part)]
    session.print_data(runs.as_document(done), lines)
    return _warn(session, done)


async def _measure(
    session: Session, app: Services, dataset: Dataset, methods: Sequence[str], k: int, weights: FusionWeights | None
) -> Run:
    from kiwi_rag.evaluation import runs
    from kiwi_rag.search.searcher import check_query

    query = usecases.apply_settings(SearchQuery("x", weights=weights), app.settings)
    check_query(query)
    tiers = [app.tier(name) for name in app.source_names(query.source)]
    about = await runs.conditions(dataset, tiers, query, str(app.embed.fingerprint))
    with session.progress_bar("eval", "queries") as planned:
        progress = planned((1 + len(methods)) * len(dataset.queries))
        for judged in dataset.queries:  # no row shall pay for the model
            await app.embed.query(judged.query)
            progress(1)
        searcher = app.searcher(query.source)
        return await runs.evaluate(dataset, methods, searcher, tiers, query, k=k, about=about, progress=progress)


def _warn(session: Session, done: Run) -> int:
    """Print what makes the figures lower than they could be; return the exit code."""
    dataset, missing = done.about["dataset"], done.about["missing"]
    session.notify(f"{counted(len(done.queries), 'queries')} of {dataset['name']}")
    if dataset["left_out"]:
        session.notify(f"left out: {counted(dataset['left_out'], 'queries')} for which nothing is judged relevant")
    if missing:
        names = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        session.notify(f"warning: not in any searched tier: {counted(len(missing), 'judged items')}: {names}")
    counts = {name: sum(not answer.complete for answer in done.answers(name)) for name in done.methods}
    for name in filter(counts.get, counts):
        answers = counted(counts[name], "incomplete answers")
        session.notify(f"warning: {answers} of {name}: a tier failed or a hit was refused")
    return PARTLY if any(counts.values()) else DONE


@evaluate.command(epilog="Example: kiwi eval diff yesterday.json today.json --metric mrr@10 --limit 20")
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@option("--metric", default="ndcg@10", help="Metric to compare.")
@option("--method", "methods", multiple=True, help="Method to compare; given twice: that of BEFORE and that of AFTER.")
@option("--limit", "-n", type=click.IntRange(0), default=10, help="Number of queries to show.")
def diff(session: Session, before: Path, after: Path, metric: str, methods: tuple[str, ...], limit: int) -> None:
    """Compare two runs query by query: how many got better and worse, and which changed most.

    BEFORE and AFTER are files written by `kiwi eval --out`. Give the same file twice to compare two of its methods.
    """
    from kiwi_rag.evaluation import runs

    if len(methods) > 2:
        raise UsageError("--method was given more than twice", hint="give it once, or once for each run")
    pair = (methods[0], methods[-1]) if methods else ("hybrid", "hybrid")
    found = runs.compare(runs.read(before), runs.read(after), metric, pair)
    session.print_data(asdict(found), runs.comparison_lines(found, limit))
    if session.as_json:
        return
    if found.differs:
        session.notify(f"the runs also differ in: {', '.join(found.differs)}")
    if found.unmatched:
        session.notify(f"left out, in one run only or judged differently: {counted(found.unmatched, 'queries')}")


@evaluate.command(epilog="Example: kiwi eval memory locomo10.json --json")
@click.argument("file", type=_FILE)
@option("--k", type=click.IntRange(1, 50), default=10, help="Depth of the second recall.")
def memory(session: Session, file: Path, k: int) -> int:
    """Measure how much of the evidence of judged questions a conversation memory finds.

    FILE has the form of LoCoMo: conversations in sessions, and questions with the turns that answer them. Each
    conversation is indexed in a temporary folder. Recall@5, recall@k and MRR are printed with their 95% intervals, of
    single turns, of exchanges and of sessions, for BM25, vectors, RRF and hybrid.
    """
    from kiwi_rag.evaluation import memory as evaluation

    conversations = evaluation.load(file)
    found = session.run(lambda app: _measure_memories(session, app, conversations))
    rows = evaluation.summarise(found, k)
    about = [
        {"name": one.name, "exchanges": len(one.exchanges), "questions": len(one.questions)} for one in conversations
    ]
    session.print_data({"conversations": about, "rows": rows}, evaluation.table(rows))
    session.notify(f"left out: {counted(sum(one.left_out for one in conversations), 'questions')} without an answer")
    return DONE if all(one.complete for one in found) else PARTLY


async def _measure_memories(
    session: Session, app: Services, conversations: Sequence[Conversation]
) -> list[FoundEvidence]:  # fmt: skip
    from kiwi_rag.evaluation import memory as evaluation
    from kiwi_rag.usecases.memory import temporary_memory

    found: list[FoundEvidence] = []
    with session.progress_bar("eval", "questions") as planned:
        progress = planned(sum(len(one.questions) for one in conversations))
        for one in conversations:
            async with temporary_memory(app, one.exchanges) as held:
                found += await evaluation.evaluate(one, held.search, progress=progress)
    return found
