"""``kiwi search``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from kiwi_rag import present
from kiwi_rag.app import App
from kiwi_rag.cli.session import DONE, FAILED, PARTLY, Session
from kiwi_rag.model import Filters, SearchQuery, SearchReply
from kiwi_rag.refs import ItemType
from kiwi_rag.tiers import SOURCES

SOURCE = click.option("--source", type=click.Choice(list(SOURCES)), help="Tiers to ask; default: local.")
FORMATS = ["text", "json", "jsonl", "md", "paths"]


@click.command(epilog='Example: kiwi search "undo a bad release" --source all --type directive --limit 5')
@click.argument("query", nargs=-1, required=True)
@SOURCE
@click.option("--type", "item_type", type=click.Choice([t.value for t in ItemType]), help="Only this type.")
@click.option("--category", default="", help="Only this category.")
@click.option("--author", default="", help="Only this author.")
@click.option("--tag", "tags", multiple=True, help="Only items with this tag; repeatable, all must be there.")
@click.option("--namespace", default="", help="Only ids whose first segment this is.")
@click.option("--signer", default="", help="Only items signed by this principal or key id.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"]), help="Only signed since, UTC.")
@click.option("--limit", "-n", type=int, help="Hits to show; default 10.")
@click.option("--alpha", type=float, help="Weight of the vector leg, 0 (words only) to 1 (vectors only).")
@click.option("--explain", is_flag=True, help="Show how each score came about.")
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
    explain: bool,
    form: str,
) -> int:
    """Find items by meaning and by words. Every hit is verified again before it is shown."""
    filters = Filters(
        ItemType(item_type) if item_type else None,
        category,
        author,
        tags,
        namespace,
        signer,
        since.replace(tzinfo=UTC) if since else None,
    )
    flags = {"source": source, "limit": limit, "alpha": alpha}
    reply = session.run(lambda app: _search(app, " ".join(query), filters), **flags)
    _show(session, reply, form, explain)
    return exit_code_of(reply)


async def _search(app: App, text: str, filters: Filters) -> SearchReply:
    s = app.settings
    alpha = None if s.alpha < 0 else s.alpha
    query = SearchQuery(text, s.source, filters, s.limit, alpha, s.half_life_days or None)
    return await app.searcher(s.source).search(query)


def exit_code_of(reply: SearchReply) -> int:
    """Return 0 when complete, 3 when a tier failed or a hit was refused, 1 when no tier answered."""
    if reply.complete:
        return DONE
    return PARTLY if any(t.state in ("ok", "refused") for t in reply.tiers) else FAILED


def _show(session: Session, reply: SearchReply, form: str, explain: bool) -> None:
    if session.as_json:
        session.data(present.reply_json(reply))
    elif form == "json":
        session.data(present.reply_json(reply)["hits"])
    elif form == "jsonl":
        for rank, hit in enumerate(reply.hits, start=1):
            session.out(present.json_text(present.hit_json(rank, hit), indent=None))
    elif reply.hits:
        texts = {"md": present.hits_markdown, "paths": present.hits_paths}
        show = texts.get(form) or (lambda r: present.hits_text(r, session.style, explain))
        session.out(show(reply))
    for line in present.notices(reply):
        session.say(line)
