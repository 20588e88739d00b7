"""Knowledge: where metadata is taken from, what it falls back to, and which YAML is refused."""

from __future__ import annotations

import json

import pytest

from kiwi_rag.errors import UsageError
from kiwi_rag.formats import parse_item
from kiwi_rag.formats.bump import with_version
from kiwi_rag.model import Item
from kiwi_rag.model.refs import ItemType

YAML = """\
title: Cold starts
version: "1.10.0"
description: >
  Why the first call
  is slow.
category: ops
author: ann
tags: [latency, cold-start]
"""
BODY = """
# Cold starts

The first call loads the model.

## Numbers

```yaml
title: Not metadata
# not a heading
```
"""


def parsed(content: str, item_id: str = "ops/cold-starts") -> Item:
    outcome = parse_item(ItemType.KNOWLEDGE, item_id, content, "cold-starts.md")
    assert outcome.item is not None, outcome.findings
    return outcome.item


def error_codes(content: str) -> list[str]:
    outcome = parse_item(ItemType.KNOWLEDGE, "a", content, "a.md")
    return [f.code for f in outcome.findings if f.is_error]


@pytest.mark.parametrize("block", ["---\n{}---\n", "```yaml\n{}```\n", "~~~yml\n{}~~~\n"])
@pytest.mark.parametrize("above", ["", "\n", "<!-- tool:signed:2026\n\n", "<!-- t:signed:1 -->\n<!-- t:signed:2\n"])
def test_metadata_stands_in_a_leading_block(block: str, above: str) -> None:
    item = parsed(above + block.format(YAML) + BODY)
    assert item.metadata == {
        "name": "cold-starts",
        "title": "Cold starts",
        "description": "Why the first call is slow.",
        "category": "ops",
        "author": "ann",
        "tags": ["latency", "cold-start"],
    }
    assert item.ref.version == "1.10.0"
    assert item.findings == ()


def test_yaml_further_down_is_prose() -> None:
    item = parsed(BODY + "\n---\nversion: 9.9.9\n---\n")
    assert item.title == "Cold starts"
    assert item.metadata["description"] == "The first call loads the model."
    assert item.ref.version == "0.0.0"
    assert [(f.code, f.severity) for f in item.findings] == [("metadata.version-missing", "warning")]


def test_headings_in_code_are_no_headings() -> None:
    headings = [s.heading for s in parsed(BODY).sections if s.kind == "body"]
    assert headings == [("Cold starts",), ("Cold starts", "Numbers")]


def test_scalars_stay_as_they_are_written() -> None:
    item = parsed("---\nversion: 1.0\ntitle: 2026-01-02\nauthor: no\ncategory: ~\ndescription: 0x10\n---\n")
    assert (item.ref.version, item.title, item.metadata["author"]) == ("1.0", "2026-01-02", "no")
    assert (item.metadata["category"], item.metadata["description"]) == ("", "0x10")
    json.dumps(dict(item.metadata))


@pytest.mark.parametrize(
    ("block", "code", "line"),
    [
        ("a: &x [1]\nb: *x", "form.yaml-alias", 2),
        ("title: t\nb: !!python/object/apply:os.system ['true']", "form.yaml-tag", 3),
        ("title: a\ntitle: b", "form.yaml-duplicate-key", 3),
        ("a: b\nc: d: e", "form.yaml", 3),
        ("just words", "form.yaml-mapping", 2),
        ("a: b\n--- {c: d}", "form.yaml-mapping", 2),
        ("a: b\n? [c]\n: d", "form.yaml-mapping", 3),
        ("a: " + "[" * 50 + "]" * 50, "form.yaml-size", 2),
        ("\n".join(f"k{n}: v" for n in range(900)), "form.yaml-size", None),
        ("a: " + "x" * 20_000, "form.yaml-size", 2),
    ],
)
def test_dangerous_or_broken_yaml_is_refused(block: str, code: str, line: int | None) -> None:
    outcome = parse_item(ItemType.KNOWLEDGE, "a", f"---\n{block}\n---\ntext\n", "a.md")
    assert outcome.item is None
    assert [f.code for f in outcome.findings] == [code]
    assert line is None or outcome.findings[0].line == line


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    levels = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert error_codes("---\n" + "\n".join(levels) + "\n---\n") == ["form.yaml-alias"]


def test_text_is_wanted_where_text_belongs() -> None:
    assert error_codes("---\ntitle: [a]\ntags: {a: b}\n---\nx\n") == ["metadata.type", "metadata.type"]


def test_unclosed_front_matter_is_prose_with_a_warning() -> None:
    item = parsed("---\nA rule, then text.\n")
    assert "form.metadata-unclosed" in [f.code for f in item.findings]


def test_a_byte_order_mark_hides_no_metadata() -> None:
    item = parsed(f"\ufeff---\n{YAML}---\n{BODY}")
    assert item.title == "Cold starts"
    assert item.content.startswith("\ufeff")


@pytest.mark.parametrize("version", ["version: 1.0.0 # now", "version: '1.0.0'", 'version:   "1.0.0"'])
def test_version_is_replaced_where_it_is_declared(version: str) -> None:
    content = f"---\ntitle: version 1.0.0\n{version}\n---\nversion: 1.0.0\n"
    changed = with_version(ItemType.KNOWLEDGE, content, "1.1.0")
    assert parsed(changed).ref.version == "1.1.0"
    assert changed == content.replace(version, version.replace("1.0.0", "1.1.0"), 1)


def test_a_version_that_does_not_stand_on_its_own_is_not_replaced() -> None:
    with pytest.raises(UsageError):
        with_version(ItemType.KNOWLEDGE, "---\nversion: |\n  1.0.0\n---\n", "1.1.0")


def test_a_version_in_the_body_is_not_the_declared_one() -> None:
    with pytest.raises(UsageError):
        with_version(ItemType.KNOWLEDGE, "---\ntitle: a\n---\nversion: 1.0.0\n", "1.1.0")
