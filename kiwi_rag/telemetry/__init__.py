"""Tracing: spans for an OpenTelemetry collector. Without configuration they cost nothing.

Kiwi uses a separate tracer provider and not the process's global one, because spans of other libraries may quote what
a caller sent (those of the MCP SDK do, in error messages). A caller's trace still continues, because its id is in the
OpenTelemetry context.
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
SetAttributes = Callable[..., None]
"""Sets attributes of the current span, by keyword."""

EXPORT_SECONDS = 3.0
"""The timeout of an export without ``OTEL_EXPORTER_OTLP_TIMEOUT``; a command waits for its export at the end."""
_EXPORTERS = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
}
_tracers: list[Tracer] = []


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
    provider = _provider(_otlp_processor(environ) if exporter == "otlp" else _console_processor())
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
        yield _ignore
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


def _ignore(**_: Value) -> None:
    return


def _prefixed(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {f"kiwi.{name}": value for name, value in attributes.items()}


def _provider(processor: SpanProcessor) -> TracerProvider:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider

    # This detector alone: others, which the environment can enable, add the command line and thus the query.
    resource = Resource({"service.name": "kiwi"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(processor)
    return provider


def _console_processor() -> SpanProcessor:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    return SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr))  # stdout is for data


def _otlp_processor(environ: Mapping[str, str]) -> SpanProcessor:
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environ[name] for name in names if environ.get(name)), "http/protobuf")
    if protocol not in _EXPORTERS:
        raise UsageError(
            f"there is no OTLP exporter for the protocol {protocol!r}", hint=f"one of: {', '.join(_EXPORTERS)}"
        )
    try:
        exporter: Any = import_module(_EXPORTERS[protocol])
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"OTEL_TRACES_EXPORTER=otlp needs the exporter for {protocol}, which is not installed",
            hint="pip install 'kiwi-rag[otel]', or set OTEL_EXPORTER_OTLP_PROTOCOL to an installed one",
        ) from error
    is_set = any(environ.get(f"OTEL_EXPORTER_OTLP_{name}TIMEOUT") for name in ("", "TRACES_"))
    return BatchSpanProcessor(exporter.OTLPSpanExporter(timeout=None if is_set else EXPORT_SECONDS))
