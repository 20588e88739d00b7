"""Text safe for terminals; items, findings and the state of Kiwi → text and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kiwi_rag.errors import Rejected
from kiwi_rag.model import Finding, StoredItem

# C0 and C1 controls without tab and newline, and the characters that change the direction of text.
ERRORS_SHOWN = 3
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

Style = Callable[[str, str], str]
"""Called with a text and its role (``id``, ``ok``, ``dim``, ``bad``); returns the text with a terminal's colours."""


def plain(text: str, _role: str) -> str:
    """Return `text` without colours."""
    return text


def safe(text: str) -> str:
    """Return `text` with control and direction-changing characters replaced, which a terminal would interpret."""
    return _CONTROL.sub("�", text)


def json_text(value: Any, indent: int | None = 2) -> str:
    """Return `value` as JSON, with characters that a terminal would interpret escaped; `indent` None gives one line."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def item_json(stored: StoredItem, signed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored item, JSON-ready, with the verified members `signed`."""
    return {
        "item_type": stored.ref.item_type.value,
        "item_id": stored.ref.item_id,
        "version": stored.ref.version,
        "digest": stored.digest,
        "content_sha256": stored.content_sha256,
        "path": stored.path,
        "passages": stored.passages,
        "private": stored.private,
        "admitted_at": stored.admitted_at.isoformat(),
        **yank_json(stored),
        **signed,
    }


def yank_json(stored: StoredItem) -> dict[str, Any]:
    """Return when and why an item was yanked, JSON-ready; empty for one that was not."""
    if stored.yanked_at is None:
        return {}
    return {"yanked_at": stored.yanked_at.isoformat(), "yank_reason": stored.yank_reason}


def finding_text(finding: Finding, style: Style = plain) -> str:
    """Return a finding as ``where: severity code: message`` and, on a second line, how to fix it."""
    role = "bad" if finding.is_error else "dim"
    where = f"{finding.where}: " if finding.where else ""
    head = f"{safe(where)}{style(f'{finding.severity} {finding.code}', role)}: {safe(finding.message)}"
    return f"{head}\n    → {safe(finding.hint)}" if finding.hint else head


def rejection_text(rejection: Rejected, style: Style = plain) -> str:
    """Return a rejection with all its findings."""
    return "\n".join([safe(rejection.message), *("  " + finding_text(f, style) for f in rejection.findings)])


def findings_text(findings: Iterable[Finding], style: Style = plain) -> str:
    """Return findings, one under the other."""
    return "\n".join(finding_text(f, style) for f in findings)


def status_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each tier, the model, the cache, each of the newest errors, and the local service."""
    return [safe("  ".join(str(word) for word in words if word != "")) for words in _rows(data)]


def status_notice(data: Mapping[str, Any]) -> str:
    """Return the number of trusted signers and the project, for people."""
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
    counts = [
        f"{service[name]} {name}" for name in ("requests", "sessions") if name in service
    ]  # absent in older versions of the service
    return ["running", f"process {service.get('pid')}", service.get("version"), since, ", ".join(counts)]


def workspace_text(stats: Mapping[str, Any]) -> str:
    """Return the state of a workspace's index as lines."""
    types = ", ".join(f"{count} {name}" for name, count in stats["file_types"].items())
    lines = [
        f"workspace  {stats['workspace']}  {stats['root']}",
        f"documents  {stats['documents']}  ({types})" if types else f"documents  {stats['documents']}",
        f"passages   {stats['passages']}",
        f"model      {stats['model'] or '–'}",
    ]
    if stats["store"] == "local":
        lines.append(f"run        {stats['run'] or 'none yet'}")
        lines.append(f"size       {stats['bytes'] / (1 << 20):.1f} MiB  {stats['path']}")
    else:
        lines.append(f"store      {stats['store']}, shared")
    return safe("\n".join([*lines, *(f"problem    {problem}" for problem in stats["problems"])]))
