"""How things stand → lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kiwi_rag.present.text import safe

ERRORS_SHOWN = 3


def standing_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each tier, the model, the cache, each of the newest errors, and the resident service."""
    return [safe("  ".join(str(word) for word in words if word != "")) for words in _rows(data)]


def standing_notice(data: Mapping[str, Any]) -> str:
    """Return what is said beside it: whom this user trusts, and where this is."""
    return safe(f"trusted signers: {data['trusted_signers']}; project: {data['project'] or 'none here'}")


def _rows(data: Mapping[str, Any]) -> Iterator[list[Any]]:
    for row in data["tiers"]:
        yield [f"{value} {name}" if isinstance(value, int) else value for name, value in row.items()]
    model = data["model"]
    yield ["model", model["provider"], model["fingerprint"] or model["name"], model["place"], model["problem"]]
    yield ["cache", data["cache"]["path"], f"{data['cache']['bytes'] / 1e6:.1f} MB"]
    for error in data["errors"][:ERRORS_SHOWN]:
        yield ["error", error["at"][:19], error["what"], error["code"], error["message"]]
    yield ["service", *_service(data["service"])]


def _service(service: Mapping[str, Any]) -> list[Any]:
    if service["state"] != "running":
        return list(service.values())
    minutes = service.get("uptime_seconds", 0) // 60
    since = f"for {minutes} min" if minutes < 120 else f"for {minutes // 60} h"
    counts = [f"{service[name]} {name}" for name in ("requests", "sessions") if name in service]  # as its version tells
    return ["running", f"process {service.get('pid')}", service.get("version"), since, ", ".join(counts)]
