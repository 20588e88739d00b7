"""Scripts: described by docstring and dunders, read without being run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiwi_rag.formats import parse_item
from kiwi_rag.formats.bump import with_version
from kiwi_rag.model import Item
from kiwi_rag.model.refs import ItemType

SCRIPT = '''\
#!/usr/bin/env python3
"""Rotate the logs of a host.

Keeps a week.
"""

import gzip
from pathlib import Path

__version__ = "1.0.0"
__category__ = "ops"
__author__ = "ann"
__tags__ = ["logs", "disk"]
__permissions__: list[str] = ["write"]

# The oldest first.
KEEP = 7


@staticmethod
def rotate(path: Path, keep: int = KEEP) -> int:
    """Rotate one file."""
    return keep


class Host:
    """A host."""

    def name(self): ...


print("done")
'''


def parsed(content: str) -> Item:
    outcome = parse_item(ItemType.SCRIPT, "ops/rotate", content, "rotate.py")
    assert outcome.item is not None, outcome.findings
    return outcome.item


def codes(content: str) -> list[str]:
    return [f.code for f in parse_item(ItemType.SCRIPT, "ops/rotate", content, "rotate.py").findings]


def test_metadata_comes_from_docstring_and_dunders() -> None:
    item = parsed(SCRIPT)
    assert item.ref.version == "1.0.0"
    assert item.metadata == {
        "name": "rotate",
        "description": "Rotate the logs of a host.",
        "category": "ops",
        "author": "ann",
        "tags": ["logs", "disk"],
        "permissions": ["write"],
        "imports": ["gzip", "pathlib"],
    }


def test_summary_holds_docstring_functions_and_comments() -> None:
    summary = parsed(SCRIPT).sections[0]
    assert (summary.start_line, summary.end_line) == (2, 5)
    for text in ("Keeps a week.", "rotate(path: Path, keep: int=KEEP) -> int: Rotate one file.", "The oldest first."):
        assert text in summary.text


def test_functions_and_classes_are_sections_with_their_decorators() -> None:
    sections = {s.heading: s for s in parsed(SCRIPT).sections if s.heading}
    assert sections["rotate",].text.startswith("@staticmethod\ndef rotate")
    assert set(sections) == {("rotate",), ("Host",)}


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    parse_item(ItemType.SCRIPT, "a", f'"""d"""\nopen({str(mark)!r}, "w").close()\nraise SystemExit(1)\n')
    assert not mark.exists()


@pytest.mark.parametrize("text", ["def f(:\n", "x = 1\n  y = 2\n", "a\0b", "\ud800"])
def test_what_is_not_python_is_refused(text: str) -> None:
    assert codes(text) == ["form.python"]


def test_a_syntax_error_names_its_line() -> None:
    assert parse_item(ItemType.SCRIPT, "a", "x = 1\ny = = 2\n").findings[0].line == 2


@pytest.mark.parametrize(
    "text",
    ["-" * 8_000 + "1", "(a" + "\n+a" * 40_000 + ")", "(a" + "\n.a" * 40_000 + ")", "(a" + "\n()" * 40_000 + ")"],
)
def test_code_nested_to_break_a_parser_is_refused(text: str) -> None:
    assert codes(text) == ["form.python-nesting"]


def test_endless_lines_are_refused() -> None:
    assert codes('x = f"' + "{a}" * 80_000 + '"') == ["form.python-line"]


@pytest.mark.parametrize("value", ["os.environ['V']", "'1' + '.0'", "f'{x}'", "1"])
def test_metadata_must_be_literal(value: str) -> None:
    assert codes(f"__version__ = {value}\n") == ["metadata.type"]


def test_a_second_declaration_is_refused() -> None:
    assert codes('__permissions__ = []\n__permissions__ = ["eval"]\n') == ["metadata.duplicate-key"]


def test_version_is_replaced_where_it_is_declared() -> None:
    content = '"""Über 1.0.0"""\nOTHER = "1.0.0"; __version__ = "1.0.0"  # 1.0.0\n'
    changed = with_version(ItemType.SCRIPT, content, "1.0.1")
    assert changed == '"""Über 1.0.0"""\nOTHER = "1.0.0"; __version__ = "1.0.1"  # 1.0.0\n'
