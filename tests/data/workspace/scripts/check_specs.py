"""Fail the build when an OpenAPI file breaks a rule of docs/api-guidelines.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

METHODS = ("get", "put", "post", "delete", "patch")


def load(path: Path) -> dict[str, Any]:
    """Read a specification, YAML or JSON by its suffix."""
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)


def operations(spec: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return method, path and operation of everything that a specification offers."""
    return [
        (method, path, item[method])
        for path, item in spec.get("paths", {}).items()
        for method in METHODS
        if method in item
    ]


def complaints(spec: dict[str, Any]) -> list[str]:
    """Name operations without an identifier and paths that carry a version."""
    found = [
        f"{method.upper()} {path}: no operationId" for method, path, op in operations(spec) if "operationId" not in op
    ]
    return found + [
        f"{path}: a path carries no version" for path in spec.get("paths", {}) if "/v1" in path or "/v2" in path
    ]


def main() -> int:
    """Check every file of architecture/specs; return the number of files with complaints."""
    bad = 0
    for path in sorted(Path("architecture/specs").iterdir()):
        found = complaints(load(path))
        bad += bool(found)
        for line in found:
            print(f"{path}: {line}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
