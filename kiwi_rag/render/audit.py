"""Records of an audit log → lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kiwi_rag.render.items import safe


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
        return _value(details)
    return "; ".join(f"{key}: {_value(value)}" for key, value in details.items())


def _value(value: Any) -> str:
    if value is None or value in ([], ""):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key}: {_value(inner)}" for key, inner in value.items()) + ")"
    return ", ".join(map(_value, value)) if isinstance(value, list | tuple) else str(value)
