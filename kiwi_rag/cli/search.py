"""``kiwi search`` finds items in the tiers; ``kiwi eval`` measures how well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from kiwi_rag import render, usecases
from kiwi_rag.cli.session import DONE, FAILED, PARTLY, TIME, Session, command, option
from kiwi_rag.collection import SOURCES
from kiwi_rag.model import ITEM_TYPES, FusionMethod, FusionWeights, SearchQuery, SearchReply
from kiwi_rag.render import counted, hits
from kiwi_rag.render.layout import fold_notice
from kiwi_rag.services import Services

if TYPE_CHECKING:
    from kiwi_rag.evaluation.judgements import Dataset
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
    fusion = {name: given[name] for name in ("weights", "fusion")}
    flags = {name: given[name] for name in ("source", "limit", "alpha", "per_signer")}
    search_query = SearchQuery(" ".join(query), filters=usecases.filters_of(given), **fusion)
    reply = session.run(lambda app: usecases.search(app, search_query), **flags)
    for tier in reply.tiers:
        if tier.error:
            session.log_error("search", str(tier.error["code"]), f"{tier.tier}: {tier.error['message']}")
    return show_reply(session, reply, hits.reply_json(reply, explain), form, explain)


def show_reply(
    session: Session, reply: SearchReply, data: Mapping[str, Any], form: str, explain: bool, update: str = ""
) -> int:  # fmt: skip
    """Print a reply in one of its forms, where `data` is all of it as JSON; and its notices.

    `update` is the command that brings the index up to date, by default that of the workspace.

    Return 0 for a complete reply, 3 when a tier failed or a hit was refused, 1 when no tier answered.
    """
    texts = {"md": hits.hits_markdown, "paths": hits.hits_paths}
    if session.as_json or form == "json":
        session.print_json(data if session.as_json else data["hits"])
    elif form == "jsonl":
        for row in data["hits"]:
            session.print(render.json_text(row, indent=None))
    elif reply.hits and form in texts:
        session.print(texts[form](reply))
    elif reply.hits:
        session.print(hits.hits_text(reply, session.style, explain, session.width))
        if "explain" in data:  # of items; documents have it in their hits
            session.print(f"\n{hits.explanation_text(reply, session.style, session.width)}")
    for line in hits.notices(reply, update=update or session.index_command):
        session.notify("\n".join(fold_notice(line, session.width)))
    answered = any(tier.state in ("ok", "refused") for tier in reply.tiers)
    return DONE if reply.complete else PARTLY if answered else FAILED


_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)
_EXAMPLE = """\b
Example: kiwi eval queries.jsonl --source project
         kiwi eval queries.jsonl --method bm25 --method hybrid --k 100 --out today.json
"""


@command("eval", epilog=_EXAMPLE)
@click.argument("path", metavar="QUERIES", type=_PATH)
@SOURCE
@option("--method", "methods", multiple=True, help="Only this method. Repeatable. Default: all.")
@option("--k", type=click.IntRange(1, 200), default=10, help="Depth of recall@k.")
@option("--kind", "by_kind", is_flag=True, help="Also print a table for each kind of query.")
@WEIGHTS
@option("--alpha", type=float, help="Weight of the vector leg in the method hybrid. Default: the tuned weight.")
@option("--out", type=_FILE, help="Write the run, with the results of each query, as JSON.")
def evaluate(
    session: Session, /, path: Path, methods: tuple[str, ...], k: int, by_kind: bool,
    weights: FusionWeights | None, out: Path | None, **flags: Any,
) -> int:  # fmt: skip
    """Measure nDCG@10, recall@k, hit@3 and MRR@10 of grep, BM25, vectors, RRF and hybrid.

    QUERIES holds one JSON object a line: {"query": "...", "relevant": {"directive:acme/x": 2}}, and optionally "kind"
    and "id". Latencies are of whole searches, verification included; the query's vector is cached.
    """
    from kiwi_rag.evaluation import runs
    from kiwi_rag.evaluation.judgements import load

    runs.check_output(out, path)
    names, dataset = runs.check_methods(methods), load(path)
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
