"""A skill of twelve files for tests: two scripts, an image, nested folders; in memory and on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kiwi_rag.formats.source import ItemCandidate
from kiwi_rag.model import Item
from kiwi_rag.model.refs import ItemType
from kiwi_rag.validation.manager import inspect_item

ID = "acme/pdf-forms"
MAIN = """---
name: pdf-forms
description: Fill in PDF forms and read their fields. Use it when somebody has a form to complete.
license: Apache-2.0
allowed-tools: Bash(git diff:*) Read
metadata:
  version: "{version}"
  author: ada
  tags: pdf, forms
---

# PDF forms

Run `scripts/fill.py`, then compare the result with the original.

## Which fields there are

See references/fields.md.
"""
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\xff"
FILES: Mapping[str, bytes] = {
    "SKILL.md": MAIN.format(version="1.0.0").encode(),
    "references/fields.md": b"# Fields\n\nA ticked checkbox has the value Yes; the ombudsman signs field nine.\n",
    "references/errors.md": b"# Errors\n\n## Locked forms\n\nAsk for the password of the owner.\n",
    "references/deep/nested/limits.txt": b"A form has at most 4,000 fields.\n",
    "scripts/fill.py": b'"""Fill in a form."""\n\n\ndef fill(form):\n    """Fill in every field."""\n    return form\n',
    "scripts/compare.sh": b'#!/bin/sh\ndiff "$1" "$2"\n',
    "scripts/__init__.py": b"",
    "assets/logo.png": PNG,
    "assets/template.json": b'{"name": "", "date": ""}\n',
    "assets/style.css": b"body { margin: 0 }\n",
    "NOTICE": b"Made by Acme.\n",
    "LICENSE.txt": b"Apache License, version 2.0\n",
}
EXECUTABLES = ("scripts/compare.sh",)


def files(version: str = "1.0.0", **changes: bytes | None) -> dict[str, bytes]:
    """The files of the skill; `changes` replace or, where None, leave out one, with ``__`` for a slash."""
    changed = {"SKILL.md": MAIN.format(version=version).encode(), **changes}
    return {name: data for name, data in {**FILES, **changed}.items() if data is not None}


def candidate(of: Mapping[str, bytes] = FILES, executables: tuple[str, ...] = EXECUTABLES) -> ItemCandidate:
    path = f".ai/skills/{ID}/SKILL.md"
    return ItemCandidate(ItemType.SKILL, ID, of, "SKILL.md", executables, path=path)


def item(of: Mapping[str, bytes] = FILES) -> Item:
    found, findings = inspect_item(candidate(of))
    assert found is not None, findings
    return found


def write(ai_dir: Path, of: Mapping[str, bytes] = FILES, item_id: str = ID) -> Path:
    """Write the skill below `ai_dir`; return its SKILL.md."""
    folder = ai_dir / "skills" / item_id
    for name, data in of.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if name in EXECUTABLES else 0o644)
    return folder / "SKILL.md"


def on_disk(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Name → content and whether it may be executed, of every file in `folder`."""
    paths = [path for path in folder.rglob("*") if not path.is_dir()]
    return {p.relative_to(folder).as_posix(): (p.read_bytes(), bool(p.stat().st_mode & 0o111)) for p in paths}
