"""``kiwi ask`` answers a question from what a search finds; ``kiwi consent`` says where data may be sent."""

from __future__ import annotations

from contextlib import aclosing

import click

from kiwi_rag.cli.library import find_library
from kiwi_rag.cli.search import SOURCE
from kiwi_rag.cli.session import DONE, PARTLY, Session, command, option
from kiwi_rag.consent import PURPOSES
from kiwi_rag.errors import UsageError
from kiwi_rag.render.layout import fold, fold_notice
from kiwi_rag.services import Services
from kiwi_rag.services.library import Libraries
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.usecases.ask import LIMIT, TOKENS, begin, marked_line, search_of

_EXAMPLES = """\b
Example: kiwi ask "how is a bad release rolled back?" --source all
         kiwi ask "which service writes check-ins?" --workspace
         kiwi ask "how is a query parameter validated?" --library fastapi
"""


@command(epilog=_EXAMPLES)
@click.argument("question", nargs=-1, required=True)
@SOURCE
@option("--workspace", "documents", is_flag=True, help="Search this repository's documents, not items.")
@option("--library", metavar="ID", default="", help="Search the documentation of this library.")
@option("--limit", "-n", type=click.IntRange(1, 50), default=LIMIT, help="Most passages that the model reads.")
@option("--tokens", type=click.IntRange(100, 100_000), default=TOKENS, help="About how long they are together.")
@option("--format", "form", choices=("text", "json", "md"), default="text")
@option("--no-stream", is_flag=True, help="Print nothing before the answer is complete.")
async def ask(
    session: Session, app: Services, question: tuple[str, ...], source: str | None, library: str, documents: bool,
    limit: int, tokens: int, form: str, no_stream: bool,
) -> int:  # fmt: skip
    """Answer a question from the passages that a search finds, with citations that are checked.

    A sentence is shown once it is checked. One that cites nothing, cites a source that does not exist, or quotes what
    its source does not say, is marked. Without a chat model (KIWI_CHAT_PROVIDER) the passages are shown.
    """
    session.as_json = session.as_json or form == "json"
    async with Workspace(app) as workspace, Libraries(app) as libraries:
        if library and not (source or documents):
            library = find_library(session, libraries, library).canonical
        given = {"source": source, "library": library, "workspace": documents, "limit": limit}
        search = search_of(app, libraries, workspace, given)
        answer = await begin(app, " ".join(question), [search], limit=limit, tokens=tokens)
        async with aclosing(answer.stream()) as sentences:
            async for sentence in sentences:
                if not (no_stream or session.as_json):
                    _show(session, marked_line(sentence), form)
    if session.as_json:
        session.print_json(answer.as_dict())
    else:
        held = map(marked_line, answer.sentences if no_stream else ())
        for line in [*held, *([""] if answer.sentences else []), *answer.sources()]:
            _show(session, line, form)
    for line in answer.notices:
        session.notify("\n".join(fold_notice(line, session.width)))
    return DONE if answer.is_complete else PARTLY


def _show(session: Session, text: str, form: str) -> None:
    # Other programs render Markdown: a model's text must not bring HTML, links and pictures with it.
    text = text.replace("<", "&lt;").replace("](", "]\\(") if form == "md" else text
    for line in text.split("\n"):
        session.print("\n".join(fold([(line, "")], session.width, first="", indent="")))


@command(
    epilog="Example: kiwi consent list, kiwi consent allow api.openai.com --purpose chat, or kiwi consent revoke HOST"
)
@click.argument("action", type=click.Choice(["list", "allow", "revoke"]))
@click.argument("host", default="")
@option("--purpose", "purposes", choices=PURPOSES, multiple=True, help="Only for this. Repeatable. Default: for all.")
async def consent(session: Session, app: Services, action: str, host: str, purposes: tuple[str, ...]) -> None:
    """Choose to which hosts data may leave this machine, and what for.

    Kiwi asks before it sends anything to a host that is not allowed. Hosts of the setting consent are not listed.
    """
    if (action == "list") is bool(host):
        raise UsageError(f"kiwi consent {action} takes {'no' if host else 'a'} host", hint="kiwi consent --help")
    if host:
        app.consent.change(host, purposes, allowed=action == "allow")
    hosts = app.consent.all()
    session.print_data(hosts, [f"{name}  {', '.join(allowed)}" for name, allowed in hosts.items()])
    if not hosts:
        session.notify("no host is allowed; Kiwi asks before anything leaves this machine")
