"""Items, findings and the state of Kiwi → text that is safe for terminals, and JSON.

``hits`` shows the results of searches, ``agents`` is for answers to language models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kiwi_rag.errors import Rejected
from kiwi_rag.model import Finding, ItemRef, ItemState, StoredItem

ERRORS_SHOWN = 3
# C0 and C1 controls without tab and newline, and the characters that change the direction of text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_HEADINGS = ("model", "calls", "texts", "tokens", "cost", "p50", "p95", "failures")
_SUMS = ("calls", "texts", "tokens", "tokens_unknown", "cost_usd", "cost_unknown", "failures")

Style = Callable[[str, str], str]
"""Called with a text and its role, returns the text with a terminal's colours.

Roles are ``id``, ``title``, ``match``, ``ok``, ``dim``, ``bad``, and empty for none.
"""


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


def counted(count: int, nouns: str) -> str:
    """Return a number and its noun, which is given in the plural: ``1 query``, ``2 queries``."""
    return f"{count} {re.sub('ies$', 'y', nouns).removesuffix('s') if count == 1 else nouns}"


def signed_by(principal: str, state: ItemState) -> str:
    """Return the principal with a check mark, or with the words that say what changed since the item was signed."""
    return f"{safe(principal)} ✓" if state.verified else f"{safe(principal)}, {' and '.join(state.labels)}"


def state_json(state: ItemState) -> dict[str, Any]:
    """Return an item's state, JSON-ready; ``verified`` is true if it is neither changed nor yanked."""
    return {"verified": state.verified, "changed": bool(state.changed), "yanked": state.yanked}


def state_lines(ref: ItemRef, state: ItemState) -> list[str]:
    """Return a line for each way in which an item is no longer as it was signed."""
    yanked = [f"yanked: kiwi show {ref}@registry says why"] if state.yanked else []
    # Nothing follows `state.changed` on its line: it may end with the command that admits the file's new text.
    return [*yanked, *([f"changed: {safe(state.changed)}"] if state.changed else [])]


def attributes(record: object, *names: str) -> dict[str, Any]:
    """Return attributes of a record by name, JSON-ready: a tuple as a list."""
    values = ((name, getattr(record, name)) for name in names)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


def item_json(stored: StoredItem, signed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored item, JSON-ready, with the verified members `signed`."""
    about = {"item_type": stored.ref.item_type.value, **attributes(stored.ref, "item_id", "version")}
    about |= attributes(stored, "digest", "content_sha256", "path", "passages", "private")
    return {**about, "admitted_at": stored.admitted_at.isoformat(), **yank_json(stored), **signed}


def yank_json(stored: StoredItem) -> dict[str, Any]:
    """Return when and why an item was yanked, JSON-ready; empty for one that was not."""
    at = stored.yanked_at
    return {"yanked_at": at.isoformat(), "yank_reason": stored.yank_reason} if at else {}


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return rows, of which the first is the heading, as lines with columns aligned right, those in `left` left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = "  ".join(f"{{:{'<' if n in left else '>'}{width}}}" for n, width in enumerate(widths))
    return [line.format(*row).rstrip() for row in rows]


def file_tree(files: Mapping[str, bytes], executables: Sequence[str]) -> list[str]:
    """Return the files of an item as a tree, those of a folder before its folders, with sizes."""
    total = counted(sum(map(len, files.values())), "bytes")
    lines, above = [f"{counted(len(files), 'files')}, {total}:"], tuple[str, ...]()
    for *folders, name in sorted((path.split("/") for path in files), key=lambda parts: (parts[:-1], parts[-1])):
        for depth, folder in enumerate(folders, 1):
            if tuple(folders[:depth]) != above[:depth]:
                lines.append(f"{'  ' * depth}{folder}/")
        above, path = tuple(folders), "/".join([*folders, name])
        mark = ", executable" if path in executables else ""
        lines.append(f"{'  ' * (len(folders) + 1)}{name}  ({counted(len(files[path]), 'bytes')}{mark})")
    return lines


def finding_text(finding: Finding, style: Style = plain) -> str:
    """Return a finding as ``where: severity code: message`` and, on a second line, how to fix it."""
    where = safe(f"{finding.where}: ") if finding.where else ""
    head = style(f"{finding.severity} {finding.code}", "bad" if finding.is_error else "dim")
    return f"{where}{head}: {safe(finding.message)}" + (f"\n    → {safe(finding.hint)}" if finding.hint else "")


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
        at = f"indexed {row['indexed_at'][:16]}Z" if row.get("indexed_at") else ""
        shown = {**row, "indexed_at": at}.items()
        yield [counted(value, name) if isinstance(value, int) else value for name, value in shown]
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
    counts = ", ".join(counted(service.get(name, "?"), name) for name in ("requests", "sessions"))
    return ["running", f"process {service.get('pid')}", service.get("version"), since, counts]


def vectors_for(embedded: float) -> str:
    """Return how much of an index is embedded, as a share of its passages; 100% only if all are."""
    return f"vectors for {int(100 * embedded)}%"


def workspace_text(stats: Mapping[str, Any], kind: str = "workspace") -> str:
    """Return the state of the index of a workspace, or of another `kind` of documents, as lines."""
    types = ", ".join(f"{count} {name}" for name, count in stats["file_types"].items())
    lines = [
        f"{kind:<9}  {stats['workspace']}  {stats['root']}",
        f"documents  {stats['documents']}  ({types})" if types else f"documents  {stats['documents']}",
        f"passages   {stats['passages']}" + (f"  ({vectors_for(stats['embedded'])})" if stats["passages"] else ""),
        f"model      {stats['model'] or '–'}",
    ]
    if stats["store"] == "local":
        lines.append(f"run        {'words ' if stats['embedded'] < 1 else ''}{stats['run'] or 'none yet'}")
        lines.append(f"size       {stats['bytes'] / (1 << 20):.1f} MiB  {stats['path']}")
    else:
        lines.append(f"store      {stats['store']}, shared")
    return safe("\n".join([*lines, *(f"problem    {problem}" for problem in stats["problems"])]))


def audit_line(record: Mapping[str, Any]) -> str:
    """Return a record on one line: number, time, event, reference, start of the digest, details."""
    words = [record["seq"], record["at"], record["event"], record["ref"], record["digest"][:16]]
    return safe("  ".join([*(str(word) for word in words if word != ""), details_text(record["details"])]).rstrip())


def details_text(details: Mapping[str, Any] | str) -> str:
    """Return a record's details as ``key: value``, separated by semicolons; `details` may be their JSON text."""
    if isinstance(details, str):
        try:
            details = json.loads(details)
        except ValueError:
            return str(details)
    if not isinstance(details, Mapping):
        return value_text(details)
    return "; ".join(f"{key}: {value_text(value)}" for key, value in details.items())


def value_text(value: Any) -> str:
    """Return a value that may hold others on one line, for people."""
    if value is None or value in ([], ""):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key}: {value_text(inner)}" for key, inner in value.items()) + ")"
    return ", ".join(map(value_text, value)) if isinstance(value, list | tuple) else str(value)


def usage_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table with a line for each of `rows`, of which there is one, and a sum if there are several.

    A ``+`` after tokens or cost means that some calls are not included, as the server did not report tokens or the
    price is unknown; a ``?`` means that none is included.
    """
    group = next((name for name in ("run", "day") if name in rows[0]), "day")
    total = {name: sum(row[name] for row in rows) for name in _SUMS} | {group: "all", "provider": "", "model": ""}
    shown = [*rows, total] if len(rows) > 1 else rows
    cells = [(row[group] or "unknown", *usage_cells(row)) for row in shown]
    return [safe(line) for line in table([(group, *_HEADINGS), *cells], left=(0, 1))]


def usage_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return model, counts, tokens, cost, latencies and failures of one of the rows, as `usage_lines` shows them."""
    successes = row["calls"] - row["failures"]
    return (
        f"{row['provider']} {row['model']}".strip(), f"{row['calls']:,}", f"{row['texts']:,}",
        _with_mark(f"{row['tokens']:,}", row["tokens_unknown"], successes),
        _with_mark(_dollars(row["cost_usd"]), row["cost_unknown"], successes),
        _seconds(row.get("p50_seconds")), _seconds(row.get("p95_seconds")), f"{row['failures']:,}",
    )  # fmt: skip


def _with_mark(text: str, unknown: int, of: int) -> str:
    return text if not unknown else "?" if unknown == of else f"{text}+"


def _dollars(amount: float) -> str:
    if not amount or amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.01 else f"${amount:.6f}"


def _seconds(seconds: float | None) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds else ""
