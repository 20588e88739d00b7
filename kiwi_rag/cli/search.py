"""``kiwi search``: find items in the tiers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, FAILED, PARTLY, Session
from kiwi_rag.collection import SOURCES
from kiwi_rag.model import FusionMethod, FusionWeights, SearchQuery, SearchReply
from kiwi_rag.model.refs import ITEM_TYPES
from kiwi_rag.render import hits
from kiwi_rag.usecases import search as use_case

ITEM_TYPE = click.option(
    "--type", "item_type", type=click.Choice([t.value for t in ITEM_TYPES]), help="Only items of this type."
)
NAMESPACE = click.option("--namespace", default="", help="Only items of this namespace, the first segment of the id.")
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
@ITEM_TYPE
@click.option("--category", default="", help="Only items of this category.")
@click.option("--author", default="", help="Only items of this author.")
@click.option(
    "--tag", "tags", multiple=True, help="Only items with this tag. Repeatable: an item must have all of them."
)
@NAMESPACE
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
    session: Session, /, query: tuple[str, ...], since: datetime | None, weights: FusionWeights | None,
    fusion: FusionMethod, explain: bool, form: str, **given: Any,
) -> int:  # fmt: skip
    """Find items by meaning and by words. Every hit is verified before it is shown."""
    filters = use_case.filters_of({**given, "since": since.replace(tzinfo=UTC) if since else None})
    search_query = SearchQuery(" ".join(query), filters=filters, weights=weights, fusion=fusion)
    flags = {name: given[name] for name in ("source", "limit", "alpha", "per_signer")}
    reply = session.run(lambda app: use_case.search(app, search_query), **flags)
    for tier in reply.tiers:
        if tier.error:
            session.log_error("search", str(tier.error["code"]), f"{tier.tier}: {tier.error['message']}")
    whole = hits.reply_json(reply, explain)
    show_reply(session, reply, whole, form, lambda: _text(session, reply, form, explain), hits.notices(reply))
    return exit_code_of(reply)


def _text(session: Session, reply: SearchReply, form: str, explain: bool) -> str:
    if form == "md":
        return hits.hits_markdown(reply)
    if form == "paths":
        return hits.hits_paths(reply)
    explained = f"\n\n{hits.explanation_text(reply, session.style)}" if explain else ""
    return hits.hits_text(reply, session.style, explain) + explained


def exit_code_of(reply: SearchReply) -> int:
    """Return 0 for a complete reply, 3 when a tier failed or a hit was refused, 1 when no tier answered."""
    if reply.complete:
        return DONE
    return PARTLY if any(t.state in ("ok", "refused") for t in reply.tiers) else FAILED


def show_reply(  # a reply in each of its forms
    session: Session, reply: SearchReply, data: Mapping[str, Any], form: str, text: Callable[[], str],
    notices: Iterable[str],
) -> None:  # fmt: skip
    """Print a reply: `data` or its hits as JSON, or `text`; and the notices."""
    if session.as_json:
        session.print_json(data)
    elif form == "json":
        session.print_json(data["hits"])
    elif form == "jsonl":
        for row in data["hits"]:
            session.print(render.json_text(row, indent=None))
    elif reply.hits:
        session.print(text())
    for line in notices:
        session.notify(line)
