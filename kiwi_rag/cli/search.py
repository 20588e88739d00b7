"""``kiwi search``: find items in the tiers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, FAILED, PARTLY, Session
from kiwi_rag.collection import SOURCES
from kiwi_rag.model import Filters, FusionMethod, FusionWeights, SearchQuery, SearchReply
from kiwi_rag.model.refs import ITEM_TYPES, ItemType
from kiwi_rag.render import hits
from kiwi_rag.usecases import search as use_case

SOURCE = click.option(
    "--source", type=click.Choice(list(SOURCES)), help="Tiers to use. Default: local, which is project and user."
)
FORMATS = ["text", "json", "jsonl", "md", "paths"]


def _cap(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Return the number in ``N`` or ``off``, where ``off`` is 0."""
    if value is None or value == "off":
        return None if value is None else 0
    if not value.isascii() or not value.isdecimal() or not 1 <= len(value) <= 4 or int(value) < 1:
        raise click.BadParameter(f"{value[:20]!r} is neither a number from 1 to 9999 nor off")
    return int(value)


def _weights(_context: click.Context, _parameter: click.Parameter, value: str | None) -> FusionWeights | None:
    """Return the fusion weights of a file, or of NAME=SHARE pairs."""
    from kiwi_rag.search.ranking import read_weights

    return read_weights(value) if value else None


WEIGHTS = click.option(
    "--weights",
    callback=_weights,
    metavar="FILE|NAME=SHARE,…",
    help="Weights of the fusion. Default: the tuned weights.",
)


@click.command(epilog='Example: kiwi search "undo a bad release" --source all --type directive --limit 5')
@click.argument("query", nargs=-1, required=True)
@SOURCE
@click.option("--type", "item_type", type=click.Choice([t.value for t in ITEM_TYPES]), help="Only items of this type.")
@click.option("--category", default="", help="Only items of this category.")
@click.option("--author", default="", help="Only items of this author.")
@click.option(
    "--tag", "tags", multiple=True, help="Only items with this tag. Repeatable: an item must have all of them."
)
@click.option("--namespace", default="", help="Only items of this namespace, the first segment of the id.")
@click.option("--signer", default="", help="Only items signed by this principal or key id.")
@click.option(
    "--since", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"]), help="Only items signed since this time, UTC."
)
@click.option("--limit", "-n", type=int, help="Number of hits to show. Default: 10.")
@click.option("--alpha", type=float, help="Weight of the vector leg, 0 (words only) to 1 (vectors only).")
@WEIGHTS
@click.option(
    "--fusion",
    type=click.Choice(get_args(FusionMethod)),
    default="convex",
    help="Combine scores (convex) or ranks (rrf).",
)
@click.option("--per-signer", callback=_cap, metavar="N|off", help="Most hits of one signer.")
@click.option("--explain", is_flag=True, help="Show how each score was computed.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.pass_obj
def search(
    session: Session,
    query: tuple[str, ...],
    source: str | None,
    item_type: str | None,
    category: str,
    author: str,
    tags: tuple[str, ...],
    namespace: str,
    signer: str,
    since: datetime | None,
    limit: int | None,
    alpha: float | None,
    weights: FusionWeights | None,
    fusion: FusionMethod,
    per_signer: int | None,
    explain: bool,
    form: str,
) -> int:
    """Find items by meaning and by words. Every hit is verified before it is shown."""
    filters = Filters(
        ItemType(item_type) if item_type else None,
        category,
        author,
        tags,
        namespace,
        signer,
        since.replace(tzinfo=UTC) if since else None,
    )
    search_query = SearchQuery(" ".join(query), filters=filters, weights=weights, fusion=fusion)
    flags = {"source": source, "limit": limit, "alpha": alpha, "per_signer": per_signer}
    reply = session.run(lambda app: use_case.search(app, search_query), **flags)
    for tier in reply.tiers:
        if tier.error:
            session.log_error("search", str(tier.error["code"]), f"{tier.tier}: {tier.error['message']}")
    _show(session, reply, form, explain)
    return exit_code_of(reply)


def exit_code_of(reply: SearchReply) -> int:
    """Return 0 for a complete reply, 3 when a tier failed or a hit was refused, 1 when no tier answered."""
    if reply.complete:
        return DONE
    return PARTLY if any(t.state in ("ok", "refused") for t in reply.tiers) else FAILED


def _show(session: Session, reply: SearchReply, form: str, explain: bool) -> None:
    if session.as_json:
        session.print_json(hits.reply_json(reply, explain))
    elif form == "json":
        session.print_json(hits.reply_json(reply)["hits"])
    elif form == "jsonl":
        for rank, hit in enumerate(reply.hits, start=1):
            session.print(render.json_text(hits.hit_json(rank, hit), indent=None))
    elif reply.hits:
        texts = {"md": hits.hits_markdown, "paths": hits.hits_paths}
        show = texts.get(form) or (lambda r: hits.hits_text(r, session.style, explain))
        session.print(show(reply))
        if explain and form == "text":
            session.print(f"\n{hits.explanation_text(reply, session.style)}")
    for line in hits.notices(reply):
        session.notify(line)
