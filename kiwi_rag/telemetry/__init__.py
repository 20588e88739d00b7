"""Spans: what took how long, for an OpenTelemetry collector. Free as long as nobody asked for them.

They go through a tracer provider of Kiwi's own, not the process's global one: other libraries' spans may quote what a
caller sent (the MCP SDK's do, in the messages of errors). A caller's own trace is gone on with all the same, as that is
kept in the context.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import Tracer

Value = str | bool | int | float
Note = Callable[..., None]
"""Called with attributes that are known only now, by name."""

EXPORT_SECONDS = 3.0
"""What a collector may take, where ``OTEL_EXPORTER_OTLP_TIMEOUT`` says nothing: a command waits for it at its end."""
_EXPORTERS = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
}
_tracers: list[Tracer] = []


@contextmanager
def tracing(environ: Mapping[str, str]) -> Iterator[None]:
    """Trace the block where OpenTelemetry's own variables ask for it; what was traced is sent before it ends.

    ``OTEL_TRACES_EXPORTER`` is ``otlp`` or ``console`` (which writes to stderr); any other value is not for Kiwi.

    Raises
    ------
    MissingExtra
        When the exporter is not installed.
    UsageError
        When ``OTEL_EXPORTER_OTLP_PROTOCOL`` names one that there is not.
    """
    wanted = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if wanted not in ("otlp", "console") or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield
        return
    provider = _provider(_exporting(environ) if wanted == "otlp" else _printing())
    _tracers.append(provider.get_tracer("kiwi_rag"))
    try:
        yield
    finally:
        _tracers.pop()
        provider.shutdown()


@contextmanager
def span(name: str, **attributes: Value) -> Iterator[Note]:
    """Trace the block as a span below the one around it, over tasks and threads alike; also a decorator of functions.

    Of an exception only its code, or its type, is noted: the message may quote what was asked.
    """
    if not _tracers:
        yield _nothing
        return
    from opentelemetry.trace import StatusCode

    with _tracers[-1].start_as_current_span(
        name, attributes=_named(attributes), record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield lambda **more: current.set_attributes(_named(more))
        except BaseException as error:
            current.set_attribute("error.type", str(getattr(error, "code", "") or type(error).__name__))
            current.set_status(StatusCode.ERROR)
            raise


def _nothing(**_: Value) -> None:
    return


def _named(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {f"kiwi.{name}": value for name, value in attributes.items()}


def _provider(processor: SpanProcessor) -> TracerProvider:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider

    # This one detector alone: others can be switched on that add the command line, and with it the query.
    resource = Resource({"service.name": "kiwi"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(processor)
    return provider


def _printing() -> SpanProcessor:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    return SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr))  # stdout is for data


def _exporting(environ: Mapping[str, str]) -> SpanProcessor:
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environ[name] for name in names if environ.get(name)), "http/protobuf")
    if protocol not in _EXPORTERS:
        raise UsageError(f"there is no OTLP exporter for {protocol!r}", hint=f"one of: {', '.join(_EXPORTERS)}")
    try:
        exporter: Any = import_module(_EXPORTERS[protocol])
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"OTEL_TRACES_EXPORTER=otlp wants the exporter for {protocol}, which is not installed",
            hint="pip install 'kiwi-rag[otel]', or OTEL_EXPORTER_OTLP_PROTOCOL=grpc, which is there",
        ) from error
    is_set = any(environ.get(f"OTEL_EXPORTER_OTLP_{name}TIMEOUT") for name in ("", "TRACES_"))
    return BatchSpanProcessor(exporter.OTLPSpanExporter(timeout=None if is_set else EXPORT_SECONDS))
