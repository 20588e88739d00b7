"""``kiwi memory``: add, import, search, read, forget and export the exchanges of a conversation memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click
from click.core import ParameterSource

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, PARTLY, TIME, YES, Command, Group, Session, confirm, option
from kiwi_rag.errors import KiwiError, NotFound, SourceUnreadable, UsageError
from kiwi_rag.services import Services
from kiwi_rag.services.memory import Memory
from kiwi_rag.sources.memory.exchanges import Selection
from kiwi_rag.system import process_deadline

# The hooks of an AI client run `kiwi memory hook` after each answer, so functions import what only they need.
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_MAX_INPUT = 16 << 20


def _not_empty(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse an empty text that was given, as by a script with an unset variable: it would mean everything."""
    if not value and ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
        raise click.BadParameter("it is empty")
    return value


_USER = "The user's memory, also in a project."
_narrowed = partial(option, default="", callback=_not_empty)
SESSION = _narrowed("--session", "session_id", help="Only exchanges of this session.")
THREAD = _narrowed("--thread", "thread_id", help="Only exchanges of this thread.")
LISTED = 10
"""Number of exchanges that a question shows before it is answered, and of lines that an import could not read."""


class _MemoryCommand(Command):
    """A command whose coroutine function gets the session, the open services and the memory that is meant."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params.append(click.Option(["--user", "of_user"], is_flag=True, help=_USER))

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function with the parameters."""
        session, parameters = ctx.ensure_object(Session), dict(ctx.params)
        of_user = parameters.pop("of_user")

        async def opened(app: Services) -> Any:
            async with Memory(app, of_user=of_user) as memory:
                return await self.callback(session, app, memory, **parameters)

        return session.run(opened)


class _MemoryGroup(Group):
    command_class = _MemoryCommand


@click.group(cls=_MemoryGroup, epilog='Example: kiwi memory import, then kiwi memory search "the old queue"')
def memory() -> None:
    """Remember conversations verbatim, find what was said, and forget it for good.

    A project has a memory of its own; outside of a project, and with --user, it is that of the user. Both are on this
    machine, and no other user's.
    """


_ADD_EXAMPLES = """\b
Example: kiwi memory add exchange.json
         kiwi memory add --session s1 --user-message-file question.txt --assistant-message-file answer.txt
JSON has the fields session_id, user_message and assistant_message, and may have id, timestamp, thread_id,
prior_exchange_ids, thread_session_id, thread_continuation_seq and metadata. Without FILE it is read from stdin.
"""


@memory.command(epilog=_ADD_EXAMPLES)
@click.argument("file", type=click.File("rb"), default="-")
@option("--session", "session_id", default="", help="Session of the exchange.")
@option("--thread", "thread_id", default="", help="Thread of the exchange.")
@option("--user-message-file", type=_FILE, help="What the user said, in place of JSON.")
@option("--assistant-message-file", type=_FILE, help="What the assistant answered, in place of JSON.")
async def add(
    session: Session, _app: Services, memory: Memory, file: BinaryIO, user_message_file: Path | None,
    assistant_message_file: Path | None, **ids: str,
) -> None:  # fmt: skip
    """Add one exchange, which is on the disk when its id is printed.

    Credentials, hidden instructions and invisible characters are taken out before anything is stored. Its text is no
    argument, because other users see the arguments of a process.
    """
    from kiwi_rag.usecases.memory import added_json, new_exchange

    files = {"user_message": user_message_file, "assistant_message": assistant_message_file}
    given = {name: _read_text(path) for name, path in files.items() if path} or _read_json(file)
    added = await memory.add(new_exchange({**given, **{name: one for name, one in ids.items() if one}}))
    outcome = "added" if added.is_new else "unchanged"
    session.print_data(added_json(added), [f"{outcome}  {render.safe(added.exchange.id)}"])
    session.notify(*(f"taken out: {finding.code}: {finding.message}" for finding in added.findings))
    session.notify(added.pending and f"it is stored, but not found yet: {added.pending}")


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnreadable(f"{path} cannot be read as UTF-8: {error}") from error


def _read_json(file: BinaryIO) -> dict[str, Any]:
    from kiwi_rag.usecases.memory import parse_given

    if file.isatty():
        raise UsageError("there is no exchange to add", hint="kiwi memory add --help")
    return parse_given(file.read(_MAX_INPUT + 1), _MAX_INPUT)


_IMPORT_EXAMPLES = """\b
Example: kiwi memory import                        transcripts of this project, as far as they are new
         kiwi memory import memory.jsonl           an export, or a transcript
         kiwi memory import --user --all-projects  all transcripts into the user's memory
"""


@memory.command("import", epilog=_IMPORT_EXAMPLES)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, exists=True))
@option("--client", choices=("claude", "codex", "all"), default="all", help="Whose transcripts are looked for.")
@option("--all-projects", is_flag=True, help="Transcripts of all projects, not only of this one.")
async def import_(
    session: Session, _app: Services, memory: Memory, paths: tuple[Path, ...], client: str, all_projects: bool
) -> int:
    """Add the exchanges of Claude Code's and Codex's transcripts, or of the files that are named.

    Only what is new since the last import is read. Exit code 3: some could not be read, or were refused.
    """
    from kiwi_rag.cli.workspace import index_callbacks
    from kiwi_rag.render.memory import import_lines, import_problems, import_rest
    from kiwi_rag.sources.memory.transcript_formats import FORMATS
    from kiwi_rag.usecases.memory_import import find_sources, import_exchanges, import_transcripts

    if all_projects and not memory.is_of_user:
        raise UsageError("the memory of a project has no other project's conversations", hint="add --user")
    project = None if all_projects else session.find_project() or Path.cwd()
    clients = [*FORMATS] if client == "all" else [client]
    found = await asyncio.to_thread(find_sources, paths, clients, session.environment(), project)
    with session.progress_bar("import", "files") as planned, session.progress_bar("words", "exchanges") as begin:
        advance = planned(len(found.transcripts) + len(found.exports))
        add = partial(memory.add_all, callbacks=index_callbacks(session, begin, "exchanges"))
        report = await import_transcripts(add, memory.table, _each(found.transcripts, advance))
        for one in _each(found.exports, advance):
            await import_exchanges(add, one, report)
    report.unreadable |= found.unreadable
    data = report.as_dict()
    session.print_data(data, import_lines(data))
    _list_beginning(session, import_problems(data))
    none = f"there are no transcripts of {project or 'any project'}; name a file, or see --help"
    session.notify(import_rest(data) if any(found) else none)
    return DONE if report.is_complete else PARTLY


def _each(items: Iterable[Any], advance: Callable[[int], None]) -> Iterator[Any]:
    """Yield items, and advance a bar after each."""
    for one in items:
        yield one
        advance(1)


@memory.command(epilog='Example: kiwi memory search "why did we drop the old queue" --since 2026-10-01')
@click.argument("query", nargs=-1, required=True)
@SESSION
@THREAD
@option("--since", type=TIME, help="Only exchanges since this time, UTC.")
@option("--limit", "-n", type=int, help="Number of exchanges to show. Default: the setting memory_results.")
@option("--explain", is_flag=True, help="Show how each score was computed.")
@option("--format", "form", choices=("text", "json", "jsonl"), default="text")
async def search(
    session: Session, app: Services, memory: Memory, query: tuple[str, ...], limit: int | None, explain: bool,
    form: str, **narrowed: Any,
) -> int:  # fmt: skip
    """Find exchanges by meaning and by words. Each is verified before it is shown."""
    from kiwi_rag.cli.search import show_reply
    from kiwi_rag.search.searcher import MAX_LIMIT
    from kiwi_rag.usecases.memory import MemoryQuery, search_memory

    if limit is not None and not 1 <= limit <= MAX_LIMIT:
        raise UsageError(f"limit {limit} is not between 1 and {MAX_LIMIT}", hint="-n 5, or the setting memory_results")
    question = MemoryQuery(" ".join(query), limit or app.settings.memory_results, **narrowed)
    reply = await search_memory(memory, question, app.settings)
    return show_reply(session, reply.shown, reply.as_dict(), form, explain, memory.index_command)


@memory.command(epilog='Example: kiwi memory context "deploying to staging" --tokens 1000')
@click.argument("query", nargs=-1, required=True)
@option("--tokens", type=click.IntRange(1), default=2000, help="Most tokens of all excerpts together.")
@option("--results", type=click.IntRange(1, 50), help="Most excerpts. Default: the setting memory_results.")
@option("--session", "prefer_session", default="", help="What this session has comes first.")
async def context(
    session: Session, app: Services, memory: Memory, query: tuple[str, ...], tokens: int, results: int | None,
    prefer_session: str,
) -> int:  # fmt: skip
    """Print what an agent would be given: the exchanges that match best, with their neighbours, within a budget."""
    from kiwi_rag.render.hits import notices
    from kiwi_rag.usecases.memory import MemoryQuery, get_context

    question = MemoryQuery(" ".join(query), results or app.settings.memory_results, prefer_session=prefer_session)
    found = await get_context(memory, question, app.settings, tokens)
    session.print_data(found.as_dict(), [render.safe(found.text)] if found.excerpts else ())
    for line in notices(found.reply.shown, update=memory.index_command):
        session.notify(line)
    nothing_fits = bool(found.reply.found) and not found.excerpts
    session.notify(f"nothing fits into {render.counted(tokens, 'tokens')}" if nothing_fits else "")
    return DONE if found.reply.complete and not nothing_fits else PARTLY


@memory.command("list", epilog="Example: kiwi memory list, then kiwi memory list --session ID")
@SESSION
@THREAD
@option("--limit", "-n", type=click.IntRange(1), default=50, help="Number of sessions or exchanges to list.")
async def list_memory(
    session: Session, _app: Services, memory: Memory, session_id: str, thread_id: str, limit: int
) -> None:
    """List the sessions, the last one first; or the exchanges of one, the oldest first."""
    from kiwi_rag.render.memory import exchange_line, session_line
    from kiwi_rag.usecases.memory import session_json

    selection = Selection(session_id=session_id, thread_id=thread_id)
    if selection.is_empty:
        rows = [session_json(one) for one in await asyncio.to_thread(memory.table.sessions, limit + 1)]
        lines = [*map(session_line, rows)]
    else:
        found = await asyncio.to_thread(memory.table.select, selection, limit + 1)
        rows, lines = [one.as_dict() for one in found], [*map(exchange_line, found)]
    nothing = "" if rows else _nothing_listed(memory, selection)
    session.print_data(rows[:limit], lines[:limit], empty=nothing)
    session.notify(f"there is more: --limit {2 * limit}" if len(rows) > limit else "")


def _nothing_listed(memory: Memory, selection: Selection) -> str:
    named = {"session": selection.session_id, "thread": selection.thread_id}
    if not (selection.is_empty or memory.table.count() == 0):
        what = " and ".join(f"{noun} {name[:200]!r}" for noun, name in named.items() if name)
        return f"{memory.title} has nothing of {what}; {memory.command('list')}"
    return f"{memory.title} has none; {memory.command('import')}, or kiwi memory add --help"


@memory.command(epilog="Example: kiwi memory show ID --neighbours 2")
@click.argument("exchange_id", metavar="ID")
@option("--neighbours", type=click.IntRange(0, 50), default=0, help="Also exchanges of its session on each side.")
async def show(session: Session, _app: Services, memory: Memory, exchange_id: str, neighbours: int) -> None:
    """Print an exchange as it is stored."""
    from kiwi_rag.render.memory import exchange_lines

    found = await asyncio.to_thread(memory.table.select, Selection(ids=(exchange_id,)))
    if not found:
        raise NotFound(
            f"{memory.title} has no exchange {exchange_id[:200]!r}", hint=memory.command("list --session ID")
        )
    before, after = await asyncio.to_thread(memory.table.neighbours, exchange_id, neighbours)
    data = {"before": [one.as_dict() for one in before], "after": [one.as_dict() for one in after]}
    lines = [line for one in [*before, *found, *after] for line in exchange_lines(one)]
    session.print_data({"exchange": found[0].as_dict(), **data}, lines)


_FORGET_EXAMPLES = """\b
Example: kiwi memory forget ID ID
         kiwi memory forget --session ID --matching "the customer's name"
         kiwi memory forget --before 2026-01-31
         kiwi memory forget --all --yes
"""


@memory.command(epilog=_FORGET_EXAMPLES)
@click.argument("ids", nargs=-1, metavar="ID")
@SESSION
@THREAD
@option("--before", type=TIME, help="Only exchanges before this time, UTC.")
@_narrowed("--matching", help="Only exchanges in which this text occurs, in any case.")
@option("--all", "everything", is_flag=True, help="All exchanges of this memory.")
@YES
async def forget(
    session: Session, _app: Services, memory: Memory, ids: tuple[str, ...], session_id: str, thread_id: str,
    before: datetime | None, matching: str, everything: bool, yes: bool,
) -> int:  # fmt: skip
    """Remove exchanges for good: from the texts, the index, the vectors, the logs and the free space of their files.

    Those that all options together name are removed. Their ids stay as tombstones, so that no import brings them back.
    Exit code 3: some of the ids are not there.
    """
    from kiwi_rag.render.memory import exchange_line, forget_words
    from kiwi_rag.usecases.memory import EVERYTHING

    selection = Selection(ids, session_id, thread_id, before=before, text=matching)
    if everything is not selection.is_empty:
        message = "--all and other options exclude each other" if everything else "nothing says what is to be forgotten"
        raise UsageError(message, hint="kiwi memory forget --help")
    selection = EVERYTHING if everything else selection
    count, first = await memory.preview_forget(selection, LISTED)
    stored = {one.id for one in await asyncio.to_thread(memory.table.select, Selection(ids))} if ids else set()
    absent = [f"there is no exchange {one[:200]!r}" for one in ids if one not in stored]
    if not count:
        raise NotFound(", ".join(absent[:LISTED]) or f"nothing in {memory.title} matches", hint=memory.command("list"))
    _list_beginning(session, absent)
    if not yes:
        _list_beginning(session, [*map(exchange_line, first)], count)
        question = f"Forget {render.counted(count, 'exchanges')} of {memory.title} for good?"
        confirm(question, memory.command(forget_words(selection)), yes=False, undone="nothing was forgotten")
    forgotten = await memory.forget(selection)
    session.print_data({"forgotten": list(forgotten)}, [f"forgot {render.counted(len(forgotten), 'exchanges')}"])
    session.notify("their ids stay as tombstones: no import brings them back")
    return PARTLY if absent else DONE


def _list_beginning(session: Session, lines: Sequence[str], count: int = 0) -> None:
    """Print the first lines, and how many of `count` are left; without one, of all lines."""
    left = (count or len(lines)) - LISTED
    session.notify(*lines[:LISTED], f"and {left} more" if left > 0 else "")


@memory.command(epilog="Example: kiwi memory export memory.jsonl")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), default="-")
async def export(session: Session, _app: Services, memory: Memory, file: Path) -> None:
    """Write all exchanges as lines of JSON, the oldest first, to FILE, mode 0600, or to stdout. `import` reads them."""
    from kiwi_rag.usecases.memory import export_lines, export_to

    if str(file) != "-":
        count = export_to(file, memory)
        session.notify(f"wrote {render.counted(count, 'exchanges')} to {file}")
    else:
        count = 0
        for line in export_lines(memory):
            session.print(line.decode().rstrip("\n"))
            count += 1
    session.notify("" if count else f"{memory.title} is empty")


@memory.command(epilog="Example: kiwi memory reindex --rebuild")
@option("--rebuild", is_flag=True, help="Empty the index first; the exchanges stay.")
async def reindex(session: Session, app: Services, memory: Memory, rebuild: bool) -> int:
    """Bring the index up to date with the exchanges, also after another model was chosen."""
    from kiwi_rag.cli.workspace import update_index

    writer = await memory.writer(rebuild=rebuild, catch_up=False)
    return await update_index(session, app, memory, writer, rebuild=rebuild)


@memory.command(epilog="Example: kiwi memory stats")
async def stats(session: Session, app: Services, memory: Memory) -> None:
    """Show how much is remembered, since when, where, and how much of it is not indexed yet."""
    from kiwi_rag.render.memory import stats_lines
    from kiwi_rag.usecases.memory import collect_memory_stats

    data = await collect_memory_stats(memory, app.settings)
    session.print_data(data, stats_lines(data))
    session.notify(f"not all exchanges are found yet: {memory.index_command}" if data["pending"] else "")


HOOK_SECONDS = {"Stop": 50.0, "SessionEnd": 8.0, "UserPromptSubmit": 8.0}
"""After so many seconds a hook ends itself, by its event: before the client does, which waits for the last two."""


@memory.command(cls=Command, epilog="Claude Code runs it, after kiwi setup claude --memory.")
@option("--recall", is_flag=True, help="Print what is remembered about the prompt, for its context.")
@option("--user", "of_user", is_flag=True, help=_USER)
def hook(session: Session, /, recall: bool, of_user: bool) -> int:
    """Add what is new in a session of Claude Code, or recall what its prompt is about; stdin is the hook's call.

    The memory is that of the project of the session's folder, the user's if it is in none.
    It always ends with exit code 0, in time, so that it does not stop the client; errors are in Kiwi's log.
    """
    from kiwi_rag.integrations.ai_clients import client_folder
    from kiwi_rag.usecases.memory_import import parse_hook_call, run_hook

    async def answered(app: Services) -> str:
        async with Memory(app, of_user=of_user) as memory:
            return await run_hook(memory, app.settings, call, recall=recall)

    def limited(seconds: float) -> AbstractContextManager[None]:
        return process_deadline(seconds, partial(log, "timeout", f"the hook took over {seconds:g} s"))

    log, shortest = partial(session.log_error, "memory hook"), min(HOOK_SECONDS.values())
    try:
        with limited(shortest):
            call = parse_hook_call(sys.stdin.buffer.read(_MAX_INPUT), client_folder("claude", session.environment()))
        session.cwd = call.folder
        with limited(HOOK_SECONDS.get(call.event, shortest)):
            if output := session.run(answered):
                session.print(output)
    except KiwiError as error:
        log(error.code, error.loggable_message)
    except Exception as error:  # noqa: BLE001  # whatever it is, it must not stop the client
        log("error", f"an error that Kiwi did not expect: {type(error).__name__}")
    return DONE
