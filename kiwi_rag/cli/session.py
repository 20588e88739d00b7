"""What every command shares: opening the app, writing to stdout and stderr, bars, and exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from kiwi_rag import render
from kiwi_rag.config import process_environment, resolve
from kiwi_rag.errors import ConfigError, KiwiError, NotFound, Refused, RegistryRefused, Rejected, UsageError
from kiwi_rag.services import Services
from kiwi_rag.telemetry import logs

DONE, FAILED, USAGE, PARTLY, REFUSED = range(5)
INTERRUPTED = 130
_STYLES: dict[str, dict[str, Any]] = {
    "id": {"bold": True},
    "ok": {"fg": "green"},
    "dim": {"dim": True},
    "bad": {"fg": "red"},
}
_Result = TypeVar("_Result")


class ProcessContext:
    """What a run of the command line has around it: its process's own. The service has one for each caller."""

    stdout: Any = None
    """Where data go; None: this process's stdout."""
    stderr: Any = None

    def check(self, command: str | None) -> None:
        """Return if a command may run here."""

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables."""
        return process_environment()

    def open(self, project: Path | None, flags: Mapping[str, Any]) -> Services:
        """Return the app for this run."""
        return Services.open(self.environment(), Path.cwd(), project, flags)

    def run(self, app: Services, work: Callable[[Services], Awaitable[_Result]]) -> _Result:
        """Run `work` with `app`, which is closed afterwards."""

        async def opened() -> _Result:
            async with app:
                return await work(app)

        return asyncio.run(opened())


@dataclass(slots=True)
class Session:
    """One run of the command line: its global flags, and how it talks."""

    project: Path | None = None
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    around: ProcessContext = field(default_factory=ProcessContext)
    command: str = ""

    @classmethod
    def early(cls, arguments: list[str] | None, commands: Collection[str] = ()) -> Session:
        """Return what can be told before parsing, for errors of the parser itself and for the log."""
        words = sys.argv[1:] if arguments is None else arguments
        given = words[: words.index("--")] if "--" in words else words
        command = next((word for word in given if word in commands), "")
        return cls(as_json="--json" in given, verbose="--verbose" in given or "-v" in given, command=command)

    def app(self, **flags: Any) -> Services:
        """Return the app for this run."""
        return self.around.open(self.project, flags)

    def run(self, work: Callable[[Services], Awaitable[_Result]], **flags: Any) -> _Result:
        """Run `work` with an app that is closed afterwards."""
        return self.around.run(self.app(**flags), work)

    def out(self, text: str) -> None:
        """Write data to stdout."""
        click.echo(text, file=self.around.stdout, color=self._color)

    def data(self, value: Any) -> None:
        """Write data to stdout as JSON."""
        click.echo(render.json_text(value), file=self.around.stdout)

    def say(self, text: str) -> None:
        """Write a notice to stderr."""
        if not self.quiet:
            click.echo(render.safe(text), file=self.around.stderr, err=True, color=self._color)

    @property
    def _color(self) -> bool | None:
        return False if self.around.environment().get("NO_COLOR") else None

    def style(self, text: str, role: str) -> str:
        """Colour `text` for a terminal; `out` strips it anywhere else."""
        return click.style(text, **_STYLES[role])

    @property
    def draws_bars(self) -> bool:
        """Whether progress is shown: on a terminal only, and not with --quiet."""
        return not self.quiet and sys.stderr.isatty()

    @contextlib.contextmanager
    def bar(self, what: str, unit: str) -> Iterator[Callable[[int], Callable[[int], None]]]:
        """Give a function that takes a total and returns what to call with each step; draws only on a terminal."""
        from tqdm import tqdm

        bars: list[Any] = []

        def begin(total: int) -> Callable[[int], None]:
            hidden = not self.draws_bars or not total
            width, height = shutil.get_terminal_size()  # 80 × 24 where the terminal does not say
            bars.append(tqdm(total=total, desc=what, unit=unit, ncols=width, nrows=height, disable=hidden))
            return lambda steps: bars[-1].update(steps) and None

        try:
            yield begin
        finally:
            for drawn in bars:
                drawn.close()

    def failed(self, error: KiwiError) -> int:
        """Report an error and return the exit code."""
        if self.as_json:
            click.echo(render.json_text({"error": error.as_dict()}), err=True)
        elif isinstance(error, Rejected):
            click.echo(render.rejection_text(error, self.style), err=True)
        else:
            click.echo(f"kiwi: {render.safe(error.message)}", err=True)
            if error.hint:
                click.echo(f"    → {render.safe(error.hint)}", err=True)
        if self.verbose and error.__cause__ is not None:
            cause = f"    caused by {type(error.__cause__).__name__}: {error.__cause__}"
            click.echo(render.safe(cause), err=True)
        if exit_code(error) == FAILED and not isinstance(error, NotFound):
            self.remember(self.command, error.code, error.own_words)
        return exit_code(error)

    def remember(self, command: str, code: str, message: str) -> None:
        """Log a failure, for ``kiwi status``; where that cannot be done the command goes on as if it had been."""
        with contextlib.suppress(ConfigError):
            logs.append_error(resolve(self.around.environment()).settings.user_dir, command, code, message)

    def log(self, app: Services) -> None:
        """Begin to log what happens, for a command that stays."""
        logs.configure(app.user_dir, app.settings.log_level, verbose=self.verbose)

    def end_in_order(self) -> None:
        """Let SIGTERM end a command that stays as Ctrl-C does: what is open is closed, what was traced is sent."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(DONE))

    def usage(self, error: click.ClickException) -> int:
        """Report a mistake in the command line itself."""
        near = getattr(error, "possibilities", None)
        message = (error.message if near else error.format_message()).removesuffix(".")
        message += f"; did you mean {near[0]!r}?" if near else ""
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "kiwi"
        return self.failed(UsageError(message[:1].lower() + message[1:], hint=f"{path} --help"))

    def stopped(self) -> int:
        """Report Ctrl-C."""
        click.echo("stopped; run it again to go on where it stopped", err=True)
        return INTERRUPTED

    def pipe_closed(self) -> int:
        """Leave quietly when the reader of stdout went away."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def exit_code(error: KiwiError) -> int:
    """Return the exit code of an error: usage 2, refused by the gate 4, anything else 1."""
    if isinstance(error, UsageError):
        return USAGE
    return REFUSED if isinstance(error, Refused | RegistryRefused) else FAILED


def ask_passphrase(*, confirm: bool = False) -> str:
    """Ask for a passphrase on the terminal; return an empty text where there is none."""
    if not sys.stdin.isatty():
        return ""
    return str(click.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True))
