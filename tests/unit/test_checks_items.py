"""Steps 2 and 3: names, categories, steps, versions, descriptions and lengths."""

from __future__ import annotations

import pytest

from kiwi_rag.formats import parse_item
from kiwi_rag.model import Finding, Item
from kiwi_rag.model.refs import ItemType
from kiwi_rag.validation import checks


def directive(
    attributes: str = 'name="deploy" version="1.0.0"',
    inner: str = "<description>d</description>",
    below: str = "<step name='x'>",
) -> Item:
    content = f"```xml\n<directive {attributes}>\n{inner}\n</directive>\n```\n{below}\n"
    outcome = parse_item(ItemType.DIRECTIVE, "acme/deploy", content)
    assert outcome.item is not None, outcome.findings
    return outcome.item


def knowledge(front: str, body: str = "Text.") -> Item:
    outcome = parse_item(ItemType.KNOWLEDGE, "acme/deploy", f"---\n{front}\n---\n\n{body}\n")
    assert outcome.item is not None, outcome.findings
    return outcome.item


def told(findings: list[Finding]) -> set[tuple[str, str]]:
    return {
        (f.code, f.severity) for f in findings if f.code not in ("metadata.category-missing", "metadata.author-missing")
    }


@pytest.mark.parametrize("name", ["deployment", "Deploy", "deploy\u200b", "acme/deploy"])
def test_a_name_that_is_not_the_files_is_refused(name: str) -> None:
    findings = checks.check_structure(directive(f'name="{name}" version="1.0.0"'), "deploy.md")
    assert [(f.code, f.line) for f in findings] == [("structure.name", 2)]


def test_a_zero_width_character_written_as_an_entity_is_refused() -> None:
    item = directive(inner="<description>a&#x200b;b</description>")
    assert ("metadata.character", "error") in told(checks.check_metadata(item))


def test_a_missing_name_is_refused() -> None:
    assert told(checks.check_structure(directive('version="1.0.0"'))) == {("structure.name-missing", "error")}


def test_knowledge_names_are_held_to_the_file_too() -> None:
    assert told(checks.check_structure(knowledge("name: other"))) == {("structure.name", "error")}


def test_another_category_than_the_folder_is_a_warning() -> None:
    assert told(checks.check_structure(knowledge("title: x\ncategory: ops"))) == {("structure.category", "warning")}
    assert checks.check_structure(knowledge("title: x\ncategory: acme/")) == []


def test_a_directive_without_steps_is_a_warning() -> None:
    assert told(checks.check_structure(directive(below=""))) == {("structure.no-steps", "warning")}


def test_steps_in_the_block_are_named_and_unique() -> None:
    steps = "<process>\n<step name='a'>x</step>\n<step>y</step>\n<step name='a'>z</step>\n</process>"
    findings = checks.check_structure(directive(inner=steps))
    assert [(f.code, f.line) for f in findings] == [("structure.step-name", 5), ("structure.step-duplicate", 6)]


def test_steps_below_the_block_may_repeat() -> None:
    assert checks.check_structure(directive(below="<step name='a'>\n<step name='a'>\n")) == []


def test_inputs_are_named_and_unique() -> None:
    inputs = "<inputs><input name='a'/><input/><input name='a'/></inputs>"
    assert told(checks.check_structure(directive(inner=inputs))) == {
        ("structure.input-name", "error"),
        ("structure.input-duplicate", "error"),
    }


@pytest.mark.parametrize(
    "version", ["1.0", "v1.0.0", "latest", "1.0.0.0", "01.0.0", "1.0.0-", "1.0.٣", "1.0.0+" + "a" * 80]
)
def test_what_is_no_semantic_version_is_refused(version: str) -> None:
    assert told(checks.check_metadata(directive(f'name="deploy" version="{version}"'))) == {
        ("metadata.version", "error")
    }


@pytest.mark.parametrize("version", ["1.0.0", "0.0.0", "1.2.3-rc.1+build.5"])
def test_semantic_versions_pass(version: str) -> None:
    assert told(checks.check_metadata(directive(f'name="deploy" version="{version}"'))) == set()


def test_a_directive_needs_version_and_description() -> None:
    assert told(checks.check_metadata(directive('name="deploy"', inner=""))) == {
        ("metadata.version-missing", "error"),
        ("metadata.description-missing", "error"),
    }


def test_knowledge_may_go_without_a_description() -> None:
    assert told(checks.check_metadata(knowledge("title: x", body="# x"))) == {
        ("metadata.description-missing", "warning")
    }


def test_missing_category_and_author_are_warnings() -> None:
    severities = {f.code: f.severity for f in checks.check_metadata(knowledge("title: x"))}
    assert severities == {"metadata.category-missing": "warning", "metadata.author-missing": "warning"}


@pytest.mark.parametrize("front", [f"description: {'x' * 2001}", f"title: {'x' * 301}", f"author: {'x' * 201}"])
def test_lengths_are_bounded(front: str) -> None:
    assert ("metadata.length", "error") in told(checks.check_metadata(knowledge(front)))


@pytest.mark.parametrize("tags", [f"[{', '.join(f't{n}' for n in range(51))}]", f"[{'x' * 65}]"])
def test_tags_are_bounded(tags: str) -> None:
    assert ("metadata.tags", "error") in told(checks.check_metadata(knowledge(f"title: x\ntags: {tags}")))
