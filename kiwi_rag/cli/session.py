"""What all commands share: opening the services, writing to stdout and stderr, progress bars and exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from kiwi_rag import render
from kiwi_rag.config import find_project, home_of, process_environment, resolve
from kiwi_rag.consent import ASK
from kiwi_rag.errors import REFUSALS, ConfigError, KiwiError, NotFound, Rejected, UsageError
from kiwi_rag.local_service import terminal_columns
from kiwi_rag.services import Services
from kiwi_rag.system import call_on_signals
from kiwi_rag.telemetry import append_error, begin_run, configure_log

DONE, FAILED, USAGE, PARTLY, REFUSED = range(5)
INTERRUPTED = 130
_STYLES: Any = {
    "id": {"bold": True}, "match": {"bold": True, "underline": True},
    "ok": {"fg": "green"}, "dim": {"dim": True}, "bad": {"fg": "red"},
}  # fmt: skip
_Result = TypeVar("_Result")


@dataclass(slots=True)
class Session:
    """One run of the command line: its global options, and its output to stdout and stderr.

    The local service has a subclass of it, for commands of other processes.
    """

    project: Path | None = None
    cwd: Path | None = None
    """The folder in whose project the command works, where that is not the folder of the process."""
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    command: str = ""

    @classmethod
    def before_parsing(cls, arguments: list[str] | None, commands: Collection[str] = ()) -> Session:
        """Return a session with the global options as far as they are clear before parsing, to report parser errors."""
        words = sys.argv[1:] if arguments is None else arguments
        options = words[: words.index("--")] if "--" in words else words
        command = next((word for word in options if word in commands), "")
        return cls(as_json="--json" in options, verbose="--verbose" in options or "-v" in options, command=command)

    def check(self, command: str | None) -> None:
        """Raise `Declined` if a command must not run in this process."""

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables."""
        return process_environment()

    def app(self, **flags: Any) -> Services:
        """Return the services for this run."""
        return Services.open(self.environment(), self.cwd or Path.cwd(), self.project, flags)

    def run(self, work: Callable[[Services], Awaitable[_Result]], **flags: Any) -> _Result:
        """Open the services, run `work` with them, and close them."""
        self.begin_run()
        ASK.set((lambda question: click.confirm(render.safe(question), err=True)) if sys.stdin.isatty() else None)
        app = self.app(**flags)

        async def opened() -> _Result:
            async with app:
                return await work(app)

        # On Windows the default loop is another one, with which psycopg does not work.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(opened())

    def begin_run(self) -> None:
        """Begin a run of this command, to which the cost of remote embedding is counted."""
        context = click.get_current_context(silent=True)
        begin_run(context.command_path if context else "kiwi")

    def find_project(self) -> Path | None:
        """Return the project's folder: that of --project, else the nearest one with .ai from here upwards."""
        found = None if self.project else find_project(Path.cwd(), home_of(process_environment()))
        return found.parent if found else self.project

    @property
    def index_command(self) -> str:
        """The command that indexes the documents of the folder that the command line names."""
        return " ".join(["kiwi workspace index", *([shlex.quote(str(self.project))] if self.project else [])])

    def print(self, text: str, *, err: bool = False) -> None:
        """Write data to stdout, or another line to stderr; without colours where there is no terminal, or NO_COLOR."""
        click.echo(text, err=err, color=False if self.environment().get("NO_COLOR") else None)

    def print_json(self, value: Any) -> None:
        """Write data to stdout as JSON."""
        self.print(render.json_text(value))

    def print_data(self, value: Any, lines: Iterable[str] = (), *, empty: str = "") -> None:
        """Write data to stdout: `value` as JSON with --json, else `lines`; without any, the notice `empty`."""
        if self.as_json:
            self.print_json(value)
        for line in () if self.as_json else lines:
            self.print(line)
        self.notify("" if value else empty)

    def print_receipt(self, text: str) -> None:
        """Write a line to stdout once something is durable; with --json the data at the end says it."""
        if not self.as_json:
            self.print(text)

    def notify(self, *notices: str) -> None:
        """Write notices to stderr, except empty ones."""
        for line in () if self.quiet else filter(None, notices):
            self.print(render.safe(line), err=True)

    def notify_old_index(self, old: Path | None) -> None:
        """Notify that only a pre-release Kiwi indexed some files, if `old` is its index."""
        what = "is the index of a pre-release Kiwi and stays as it is; a new one is made beside it"
        self.notify(f"{old} {what}" if old else "")

    def style(self, text: str, role: str) -> str:
        """Colour `text` for a terminal; `print` removes the colours when stdout is none."""
        return click.style(text, **_STYLES[role]) if role in _STYLES else text

    @property
    def width(self) -> int:
        """Columns of the terminal that shows stdout, or of COLUMNS; else 0: lines are as long as they are."""
        return terminal_columns(self.environment(), sys.stdout)

    @property
    def shows_progress(self) -> bool:
        """Whether progress bars are drawn: on a terminal, without --quiet."""
        return not self.quiet and sys.stderr.isatty()

    @contextlib.contextmanager
    def progress_bar(self, what: str, unit: str) -> Iterator[Callable[..., Callable[[int], None]]]:
        """Yield a function that takes a total, begins a bar, and returns the function that advances it.

        Called again for the next stage, with its name and unit, it sets the same bar back to nothing done.
        """
        from tqdm import tqdm

        bar: Any = None

        def begin(total: int, stage: str = what, unit: str = unit) -> Callable[[int], None]:
            nonlocal bar
            hidden = not self.shows_progress or not total
            if bar is None or bar.disable:
                width, height = shutil.get_terminal_size()  # 80 × 24 if the terminal does not report its size
                size: Any = {"ncols": width, "nrows": height}
                bar = bars.enter_context(tqdm(total=total, desc=stage, unit=unit, disable=hidden, **size))
            elif not hidden:
                bar.desc, bar.unit = f"{stage}: ", unit
                bar.reset(total)
            advance: Callable[[int], None] = bar.update
            return advance

        with contextlib.ExitStack() as bars:
            yield begin

    def report_error(self, error: KiwiError) -> int:
        """Print an error on stderr, and return the exit code."""
        text = render.safe(f"kiwi: {error.message}" + (f"\n    → {error.hint}" if error.hint else ""))
        if self.as_json:
            text = render.json_text({"error": error.as_dict()})
        elif isinstance(error, Rejected):
            text = render.rejection_text(error, self.style)
        if self.verbose and error.__cause__ is not None:
            text += render.safe(f"\n    caused by {type(error.__cause__).__name__}: {error.__cause__}")
        click.echo(text, err=True)
        if exit_code(error) == FAILED and not isinstance(error, NotFound):
            self.log_error(self.command, error.code, error.loggable_message)
        return exit_code(error)

    def report_refusals(self, refused: Iterable[KiwiError]) -> int:
        """Print refusals on stderr, except with --json, which has them on stdout. Return the exit code."""
        code = DONE
        for refusal in refused:
            code = REFUSED
            if not self.as_json:
                self.report_error(refusal)
        return code

    def log_error(self, command: str, code: str, message: str) -> None:
        """Append a failure to the error log that ``kiwi status`` shows; a log that cannot be written is no error."""
        with contextlib.suppress(ConfigError):
            append_error(resolve(self.environment()).settings.user_dir, command, code, message)

    def start_logging(self, app: Services) -> None:
        """Start logging, for a command that runs until it is stopped; it asks its terminal nothing from now on."""
        ASK.set(None)
        configure_log(app.user_dir, app.settings.log_level, verbose=self.verbose)

    async def report_until_stopped(
        self, what: str, outcomes: AsyncGenerator[_Result], report: Callable[[_Result], None]
    ) -> None:
        """Report each outcome of `what` this command does, until Ctrl-C or SIGTERM cancels it."""

        async def report_all() -> None:
            self.notify(f"{what}; stop with Ctrl-C")
            async with contextlib.aclosing(outcomes):
                async for outcome in outcomes:
                    report(outcome)

        reporting = asyncio.create_task(report_all())
        call_on_signals(reporting.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await reporting

    def report_usage(self, error: click.ClickException) -> int:
        """Report an error in the command line's syntax. A group without a command prints its help."""
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
            return error.exit_code
        similar = getattr(error, "possibilities", None)
        message = (error.message if similar else error.format_message()).removesuffix(".")
        message += f"; did you mean {similar[0]!r}?" if similar else ""
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "kiwi"
        return self.report_error(UsageError(message[:1].lower() + message[1:], hint=f"{path} --help"))

    def report_os_error(self, error: OSError) -> int:
        """Report what the operating system refused, and no part of Kiwi has explained: a write to a full disk."""
        from kiwi_rag.storage.atomic import disk_error

        found = disk_error(error.filename or "the disk", error)
        found.__cause__ = error
        return self.report_error(found)

    def report_interrupt(self) -> int:
        """Report Ctrl-C."""
        click.echo("stopped; run the command again to continue", err=True)
        return INTERRUPTED

    def close_stdout(self) -> int:
        """End without a message when the reader of stdout has closed it."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _set_in_session(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value and parameter.name:
        setattr(ctx.ensure_object(Session), parameter.name, value)


FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


def _global_options(*, hidden: bool) -> list[click.Option]:
    option = functools.partial(click.Option, hidden=hidden, expose_value=False, callback=_set_in_session)
    return [
        option(["--project"], type=FOLDER, help="Project folder. Default: the nearest with .ai, from here upwards."),
        option(["--json", "as_json"], is_flag=True, help="Print data and errors as JSON."),
        option(["--quiet", "-q"], is_flag=True, help="Print no notices and no progress on stderr."),
        option(["--verbose", "-v"], is_flag=True, help="Show the cause of each error."),
    ]


GLOBAL_OPTIONS = _global_options(hidden=False)
_AFTER_COMMAND = _global_options(hidden=True)


class _WithGlobalOptions(click.Command):
    """A command that takes the global options, except where it has an option of the same name."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters, and the global options."""
        own = super().get_params(ctx)
        present = {name for parameter in own for name in parameter.opts}
        return [*own, *(one for one in _AFTER_COMMAND if not present & set(one.opts))]


class Command(_WithGlobalOptions):
    """A command whose function gets the session, and the services if it names them; a coroutine gets them open."""

    callback: Callable[..., Any]

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function with the parameters."""
        session = ctx.ensure_object(Session)
        if inspect.iscoroutinefunction(self.callback):
            return session.run(functools.partial(self.callback, session, **ctx.params))
        named = {"app": session.app()} if "app" in inspect.signature(self.callback).parameters else {}
        return ctx.invoke(self.callback, session, **named, **ctx.params)


class Group(_WithGlobalOptions, click.Group):
    """A group of such commands."""

    command_class = Command


def command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a function a command."""
    return click.command(name, cls=Command, **attributes)


class _Choice(click.Choice[Any]):
    """Values of which one is to be given; of an enumeration, its member is."""

    def normalize_choice(self, choice: Any, ctx: click.Context | None) -> str:
        return str(choice)


def option(*names: str, choices: Iterable[str] = (), **attributes: Any) -> Callable[[Any], Any]:
    """Return an option whose help shows the default, unless that is empty, and that takes one of `choices` only."""
    if choices:
        attributes["type"] = _Choice(choices)
    return click.option(*names, **{"show_default": bool(attributes.get("default")), **attributes})


class _UtcTime(click.ParamType[datetime]):
    """A moment in one of the forms of ISO 8601, as Kiwi prints it; UTC unless it says otherwise."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            moment = datetime.fromisoformat(str(value))
            return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{str(value)[:40]!r} is no time; write 2026-01-31, or 2026-01-31T12:00Z", param, ctx)


TIME = _UtcTime()
YES = option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, command: str, *, yes: bool, undone: str = "nothing was changed") -> None:
    """Ask the user to confirm, on a terminal, unless `yes` is set.

    Raises
    ------
    UsageError
        Without a confirmation; `undone` says what was not done, `command` is the command to confirm with --yes.
    """
    if not yes and not (sys.stdin.isatty() and click.confirm(render.safe(question), err=True)):
        raise UsageError(f"not confirmed; {undone}", hint=f"{command} --yes")


def exit_code(error: KiwiError) -> int:
    """Return the exit code of an error: 2 for usage, 4 for a refusal, 1 for any other."""
    return USAGE if isinstance(error, UsageError) else REFUSED if isinstance(error, REFUSALS) else FAILED


def ask_passphrase(*, confirm: bool = False) -> str:
    """Prompt for a passphrase on the terminal; return an empty string without a terminal."""
    if not sys.stdin.isatty():
        return ""
    return str(click.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True))
