"""Items and findings → text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kiwi_rag.errors import Rejected
from kiwi_rag.model import Finding, StoredItem
from kiwi_rag.present.text import Style, plain, safe


def item_json(stored: StoredItem, signed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored item, JSON-ready; `signed` adds what was verified."""
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
    """Return when and why an item was taken back, JSON-ready; nothing for one that was not."""
    if stored.yanked_at is None:
        return {}
    return {"yanked_at": stored.yanked_at.isoformat(), "yank_reason": stored.yank_reason}


def finding_text(finding: Finding, style: Style = plain) -> str:
    """Return a finding as ``where: severity code: message`` and, on a second line, what mends it."""
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
