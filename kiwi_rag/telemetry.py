"""Tracing and logs. Spans are for an OpenTelemetry collector, and cost nothing without configuration.

Kiwi uses a separate tracer provider and not the process's global one, because spans of other libraries may quote what
a caller sent (those of the MCP SDK do, in error messages). A caller's trace still continues, because its id is in the
OpenTelemetry context.

Kiwi's log has one JSON object a line, in ``logs/`` below the user tier's folder, for users and for ``kiwi status``. Any
number of processes write to it. A failure to log never fails the command that logs.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import MissingExtra, UsageError
from kiwi_rag.storage.json_lines import RotatingLines

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

Value = str | bool | int | float
SetAttributes = Callable[..., None]
"""Sets attributes of the current span, by keyword."""

EXPORT_SECONDS = 3.0
"""The timeout of an export without ``OTEL_EXPORTER_OTLP_TIMEOUT``; a command waits for its export at the end."""
_EXPORTERS = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
}
_tracers: list[Tracer] = []
_RUN: ContextVar[str] = ContextVar("run", default="")


def begin_run(what: str) -> None:
    """Begin a run in this context, such as a command or a tool's call: what it costs is counted together."""
    _RUN.set(f"{datetime.now(UTC).isoformat(timespec='milliseconds')[:-6]}Z {what}")


def current_run() -> str:
    """Return when the current run began, in UTC, and what it does; empty outside of runs."""
    return _RUN.get()


@contextmanager
def tracing(environ: Mapping[str, str]) -> Iterator[None]:
    """Trace the block if OpenTelemetry's variables enable it; spans are exported before the block ends.

    ``OTEL_TRACES_EXPORTER`` is ``otlp`` or ``console`` (which writes to stderr); other values are ignored.

    Raises
    ------
    MissingExtra
        When the exporter is not installed.
    UsageError
        When ``OTEL_EXPORTER_OTLP_PROTOCOL`` is unknown.
    """
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter not in ("otlp", "console") or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield
        return
    provider = _provider(environ if exporter == "otlp" else None)
    _tracers.append(provider.get_tracer("kiwi_rag"))
    try:
        yield
    finally:
        _tracers.pop()
        provider.shutdown()


@contextmanager
def span(name: str, **attributes: Value) -> Iterator[SetAttributes]:
    """Trace the block as a child of the current span, across tasks and threads; also usable as a decorator.

    Of an exception only the code or the type is recorded, because its message may quote the query.
    """
    if not _tracers:
        yield lambda **_: None
        return
    from opentelemetry.trace import StatusCode

    with _tracers[-1].start_as_current_span(
        name, attributes=_prefixed(attributes), record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield lambda **more: current.set_attributes(_prefixed(more))
        except BaseException as error:
            current.set_attribute("error.type", str(getattr(error, "code", "") or type(error).__name__))
            current.set_status(StatusCode.ERROR)
            raise


@contextmanager
def current_span(**attributes: Value) -> Iterator[SetAttributes]:
    """Add to the current span, which the caller's caller has opened."""
    if not _tracers:
        yield lambda **_: None
        return
    from opentelemetry.trace import get_current_span

    current = get_current_span()
    current.set_attributes(_prefixed(attributes))
    yield lambda **more: current.set_attributes(_prefixed(more))


def _prefixed(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {f"kiwi.{name}": value for name, value in attributes.items()}


def _provider(environ: Mapping[str, str] | None) -> TracerProvider:
    """Return what exports by OTLP as the environment says, or without it to stderr, as stdout is for data."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor

    # This detector alone: others, which the environment can enable, add the command line and thus the query.
    provider = TracerProvider(resource=Resource({"service.name": "kiwi"}).merge(OTELResourceDetector().detect()))
    to_console = environ is None and SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr))
    provider.add_span_processor(to_console or BatchSpanProcessor(_otlp_exporter(environ or {})))
    return provider


def _otlp_exporter(environ: Mapping[str, str]) -> SpanExporter:
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environ[name] for name in names if environ.get(name)), "http/protobuf")
    if protocol not in _EXPORTERS:
        message = f"there is no OTLP exporter for the protocol {protocol!r}"
        raise UsageError(message, hint=f"one of: {', '.join(_EXPORTERS)}")
    try:
        exporter: Any = import_module(_EXPORTERS[protocol])
    except ModuleNotFoundError as error:
        hint = "pip install 'kiwi-rag[otel]', or set OTEL_EXPORTER_OTLP_PROTOCOL to an installed one"
        message = f"OTEL_TRACES_EXPORTER=otlp needs the exporter for {protocol}, which is not installed"
        raise MissingExtra(message, hint=hint) from error
    is_set = any(environ.get(f"OTEL_EXPORTER_OTLP_{name}TIMEOUT") for name in ("", "TRACES_"))
    made: SpanExporter = exporter.OTLPSpanExporter(timeout=None if is_set else EXPORT_SECONDS)
    return made


LOG_FOLDER, LOG_NAME = "logs", "kiwi.jsonl"
MAX_BYTES = 1 << 20
MAX_CHARACTERS = 500
_LOGGER = "kiwi_rag"
_FIELDS = ("command", "tool", "outcome", "milliseconds", "code")


def configure_log(user_dir: Path, level: str, *, verbose: bool = False) -> None:
    """Write Kiwi's records from `level` up, and warnings of libraries, to the log, and when `verbose` also to stderr.

    For long-running interfaces. A second call only changes the level.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, _FileHandler) for handler in root.handlers):
        root.addHandler(_FileHandler(user_dir))
        if verbose:
            root.addHandler(logging.StreamHandler(sys.stderr))
            root.handlers[-1].setFormatter(_JsonLines())
    logging.getLogger(_LOGGER).setLevel(level.upper())


def append_error(user_dir: Path, command: str, code: str, message: str) -> None:
    """Append the failure of a command; do nothing where the log cannot be written."""
    logger = logging.Logger(f"{_LOGGER}.cli")
    logger.addHandler(_FileHandler(user_dir))
    logger.error(message, extra={"command": command, "code": code})


def read_last_errors(user_dir: Path, limit: int) -> list[dict[str, Any]]:
    """Return the newest errors, the latest first, each as it was written; empty where the log cannot be read."""
    lines = (line for data in _open_log(user_dir).contents() for line in reversed(data.splitlines()))
    return list(islice(filter(None, (_parsed(line) for line in lines if b'"ERROR"' in line)), limit))


class _JsonLines(logging.Formatter):
    """Formats records as JSON in ASCII, without control characters that a terminal would interpret.

    Of libraries the source line stands for the message, which may quote user input.
    """

    def format(self, record: logging.LogRecord) -> str:
        is_own = record.name.partition(".")[0] == _LOGGER
        message = record.getMessage() if is_own else f"{record.module}:{record.lineno}"
        at = datetime.fromtimestamp(record.created, UTC).isoformat()
        entry: dict[str, Any] = {"at": at, "level": record.levelname, "logger": record.name, "pid": os.getpid()}
        entry["message"] = message[:MAX_CHARACTERS].encode("utf-8", "replace").decode()  # a file name's lone surrogate
        if is_own:
            entry |= {name: value for name in _FIELDS if (value := getattr(record, name, "")) != ""}
        if record.exc_info and record.exc_info[0]:
            entry["exception"] = record.exc_info[0].__name__
        return json.dumps(entry, default=str)


class _FileHandler(logging.Handler):
    """Appends to the log. It opens the file for each record, so that other processes may rotate or delete it."""

    def __init__(self, user_dir: Path) -> None:
        super().__init__()
        self.setFormatter(_JsonLines())
        self._user_dir = user_dir

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a full or read-only disk, missing rights, a link: logging must not fail the command
            with suppress(FileExistsError):
                (self._user_dir / LOG_FOLDER).mkdir(mode=0o700)
            _open_log(self._user_dir).append(f"{self.format(record)}\n".encode())


def _open_log(user_dir: Path) -> RotatingLines:
    return RotatingLines(user_dir / LOG_FOLDER / LOG_NAME, MAX_BYTES, private=True)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return an error's record; None for anything else, such as a line truncated by a full disk."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_error = isinstance(record, Mapping) and record.get("level") == "ERROR" and isinstance(record.get("at"), str)
    return dict(record) if is_error else None
