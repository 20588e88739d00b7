"""Skills: what SKILL.md and the other files say, which folders are skills, and how they are read and split."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.chunking import split
from kiwi_rag.errors import UsageError
from kiwi_rag.formats import parse_item, skill
from kiwi_rag.formats.bump import add_version, version_line, with_version
from kiwi_rag.formats.source import ItemCandidate, SourceFile, locate, path_of, read_item, walk
from kiwi_rag.model import Finding
from kiwi_rag.model.refs import ItemRef, ItemType
from tests import skills


def parsed(content: str) -> Any:
    return parse_item(ItemType.SKILL, "acme/pdf-forms", content)


def front(*lines: str) -> str:
    return "\n".join(["---", "name: pdf-forms", "description: Fill in forms.", *lines, "---", "", "# Text", ""])


def test_the_front_matter_describes_a_skill() -> None:
    item = skills.item()
    assert item.ref == ItemRef(ItemType.SKILL, "acme/pdf-forms", "1.0.0")
    assert item.metadata == {
        "name": "pdf-forms",
        "description": "Fill in PDF forms and read their fields. Use it when somebody has a form to complete.",
        "license": "Apache-2.0",
        "compatibility": "",
        "category": "",
        "author": "ada",
        "tags": ["pdf", "forms"],
        "permissions": [],
        "allowed_tools": ["Bash(git diff:*)", "Read"],
    }
    assert (item.main, item.files, item.executables) == ("SKILL.md", skills.FILES, skills.EXECUTABLES)
    assert item.findings == ()


def test_a_skill_without_a_version_is_at_0_0_0_with_a_warning() -> None:
    outcome = parsed(front())
    assert outcome.item.ref.version == "0.0.0"
    assert [(f.code, f.severity) for f in outcome.findings] == [("metadata.version-missing", "warning")]


@pytest.mark.parametrize("content", ["# Text\n", "", "```yaml\nname: pdf-forms\n```\n", "---\nname: x\n"])
def test_a_skill_begins_with_front_matter(content: str) -> None:
    outcome = parsed(content)
    assert outcome.item is None
    assert "form.no-front-matter" in [f.code for f in outcome.findings]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("name: [a]", "form.yaml-duplicate-key"),
        ("license: [a]", "metadata.type"),
        ("metadata: text", "metadata.type"),
        ("metadata: {version: [1]}", "metadata.type"),
        ("metadata: {tags: {a: b}}", "metadata.type"),
        ("allowed-tools: {a: b}", "metadata.type"),
        ("hooks: text", "metadata.unknown-key"),
        ('metadata: {client: {"emoji": "x"}}', "metadata.nested"),
    ],
)
def test_what_the_front_matter_may_not_say(line: str, code: str) -> None:
    assert code in [f.code for f in parsed(front(line)).findings]


def test_an_unknown_key_and_a_nested_value_are_told_with_their_lines() -> None:
    text = front("license: MIT", "hooks: text", "metadata:", "  version: 1.0.0", "  client:", "    emoji: x")
    assert [(f.code, f.line) for f in parsed(text).findings] == [("metadata.unknown-key", 5), ("metadata.nested", 8)]


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        ("Read Write", ["Read", "Write"]),
        ("Bash(git:*), Read", ["Bash(git:*)", "Read"]),
        ("[Bash(git add:*), mcp__x__y]", ["Bash(git add:*)", "mcp__x__y"]),
    ],
)
def test_allowed_tools_are_words_with_arguments(tools: str, found: list[str]) -> None:
    assert parsed(front(f"allowed-tools: {tools}")).item.metadata["allowed_tools"] == found


def test_every_text_file_has_sections_and_no_asset_has() -> None:
    sections = skills.item().sections
    assert {s.file for s in sections} == {"", *skills.FILES} - {"SKILL.md", "assets/logo.png", "scripts/__init__.py"}
    assert [s.kind for s in sections if not s.file] == ["summary", "body", "body"]


def test_passages_name_their_file_and_are_its_lines() -> None:
    item = skills.item()
    passages = split(item)
    assert [p.ordinal for p in passages] == list(range(len(passages)))
    for passage in passages[1:]:
        lines = item.lines(passage.file)[passage.start_line - 1 : passage.end_line]
        assert passage.text == "\n".join(lines)
    third = next(p for p in passages if "ombudsman" in p.text)
    assert (third.file, third.start_line, third.heading) == ("references/fields.md", 1, ("Fields",))
    assert "references/fields.md" in third.context
    covered = {(p.file, n) for p in passages for n in range(p.start_line, p.end_line + 1)}
    for file in {s.file for s in item.sections}:
        assert {(file, n) for n, line in enumerate(item.lines(file), 1) if line.strip()} <= covered


def test_lines_of_windows_are_counted_the_same() -> None:
    item = skills.item({**skills.FILES, "references/fields.md": b"\xef\xbb\xbf# Fields\r\n\r\none\r\ntwo\r\n"})
    (passage,) = [p for p in split(item) if p.file == "references/fields.md"]
    assert passage.text == "# Fields\n\none\ntwo"
    assert item.lines("references/fields.md")[passage.start_line - 1 : passage.end_line] == passage.text.split("\n")


def test_headings_hold_no_character_that_is_not_seen() -> None:
    content = b'{"a\\u202eb": {"c": "%s"}}' % (b"x" * 300)
    item = skills.item({**skills.FILES, "assets/template.json": content})
    assert all(text.isprintable() for section in item.sections for text in section.heading)


@pytest.mark.parametrize(
    ("name", "data", "asset"),
    [
        ("a.png", skills.PNG, True),
        ("a.PNG", skills.PNG, True),
        ("a.png", b"\xff", True),
        ("a.png", b"plain text", False),
        ("a.md", skills.PNG, False),
        ("run.sh", b"#!/bin/sh\n\0", False),
        ("instructions", b"read me\0", False),
    ],
)
def test_a_binary_asset_is_told_by_its_name_and_its_content(name: str, data: bytes, asset: bool) -> None:
    assert skill.is_asset(name, data) is asset


VERSIONS = [
    front("metadata:", "  version: 1.0.0", "  author: ada"),
    front("metadata:", '  author: ada  # "x"', '  version: "1.0.0"  # now'),
    front("metadata:", "    version: '1.0.0'", "license: MIT"),
    front("metadata: {author: ada, version: 1.0.0}"),
    front('metadata: {version: "1.0.0", author: ada}'),
    front("metadata:", "  version: 1.0.0").replace("\n", "\r\n"),
    "\ufeff" + front("metadata:", "  version: 1.0.0"),
]


@pytest.mark.parametrize("content", VERSIONS, ids=range(len(VERSIONS)))
def test_a_version_is_replaced_in_place(content: str) -> None:
    assert parsed(content).item.ref.version == "1.0.0"
    assert with_version(ItemType.SKILL, content, "2.1.0") == content.replace("1.0.0", "2.1.0")


UNVERSIONED = [
    front(),
    front("metadata:", "  author: ada"),
    front("metadata:", "      author: ada", "license: MIT"),
    front("metadata: {}"),
    front("metadata: {author: ada}"),
    front("metadata:"),
    front("compatibility: 'needs version: 3'"),
    front("metadata:", "  author: ada").replace("\n", "\r\n"),
    "\ufeff" + front("license: MIT"),
]


@pytest.mark.parametrize("content", UNVERSIONED, ids=range(len(UNVERSIONED)))
def test_a_version_is_added_below_metadata(content: str) -> None:
    before, after = parsed(content).item, parsed(add_version(ItemType.SKILL, content, "1.0.0")).item
    assert after.ref.version == "1.0.0"
    assert after.metadata == before.metadata
    assert 'version: "1.0.0"' in version_line(ItemType.SKILL, after.content)[1]
    assert ("\r\n" in content) == ("\r\n" in after.content)
    assert after.content.count("\r") == (after.content.count("\n") if "\r\n" in content else 0)


def test_only_the_metadata_of_the_front_matter_has_the_version() -> None:
    body = front("metadata:", "  author: ada") + "\nmetadata:\n  version: 9.9.9\n"
    with pytest.raises(UsageError, match="declares no version"):
        with_version(ItemType.SKILL, body, "2.0.0")
    assert parsed(front("other:", "  version: 1.0.0")).item.ref.version == "0.0.0"


def test_folders_with_skill_md_are_found_and_nothing_inside_them(tmp_path: Path) -> None:
    skills.write(tmp_path)
    skills.write(tmp_path, {"SKILL.md": b"x", "inner/SKILL.md": b"x", "inner/deploy.md": b"x"}, "acme/outer")
    (tmp_path / "skills/acme/notes").mkdir()
    (tmp_path / "skills/acme/notes/read.md").write_text("x")
    (tmp_path / "skills/acme/.hidden").mkdir()
    (tmp_path / "skills/acme/.hidden/SKILL.md").write_text("x")
    found = [(source.item_type, source.item_id, source.path, source.problem) for source in walk(tmp_path)]
    assert found == [
        (ItemType.SKILL, "acme/outer", tmp_path / "skills/acme/outer/SKILL.md", None),
        (ItemType.SKILL, "acme/pdf-forms", tmp_path / "skills/acme/pdf-forms/SKILL.md", None),
    ]


@pytest.mark.parametrize("item_id", ["acme/PD F", "acme/a.b", "."])
def test_a_folder_whose_name_is_no_id_is_a_problem(tmp_path: Path, item_id: str) -> None:
    skills.write(tmp_path, {"SKILL.md": b"x"}, item_id)
    (source,) = walk(tmp_path)
    assert source.problem is not None
    assert source.problem.code == "source.item-id"


def test_a_linked_folder_of_a_skill_is_a_problem(tmp_path: Path) -> None:
    main = skills.write(tmp_path / "elsewhere")
    (tmp_path / ".ai/skills").mkdir(parents=True)
    (tmp_path / ".ai/skills/pdf-forms").symlink_to(main.parent)
    (source,) = walk(tmp_path / ".ai")
    assert source.problem is not None
    assert source.problem.code == "source.linked-folder"


def test_a_file_of_a_skill_locates_it(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    for name in skills.FILES:
        assert locate(tmp_path, main.parent / name) == (ItemType.SKILL, skills.ID)
    assert locate(tmp_path, tmp_path / "skills/acme/new/SKILL.md") == (ItemType.SKILL, "acme/new")
    assert path_of(tmp_path, ItemRef(ItemType.SKILL, skills.ID)) == main
    with pytest.raises(UsageError):
        locate(tmp_path, tmp_path / "skills/acme/read.md")


def read(main: Path, root: Path) -> ItemCandidate | Finding:
    return read_item(SourceFile(main, ItemType.SKILL, skills.ID), root)


def test_a_skill_is_read_as_a_whole_with_its_executables(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    main.with_name("SKILL.md.sig").write_bytes(b"signature")
    found = read(main, tmp_path)
    assert isinstance(found, ItemCandidate)
    assert (found.ref, found.main) == (ItemRef(ItemType.SKILL, skills.ID), "SKILL.md")
    assert (found.files, found.executables, found.signature) == (skills.FILES, skills.EXECUTABLES, b"signature")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (".env", "source.hidden-file"),
        ("scripts/.DS_Store", "source.hidden-file"),
        (".git/config", "source.hidden-file"),
        ("scripts/__pycache__/fill.cpython-311.pyc", "source.hidden-file"),
    ],
)
def test_what_a_tool_left_in_a_skill_refuses_it(tmp_path: Path, name: str, code: str) -> None:
    main = skills.write(tmp_path)
    (main.parent / name).parent.mkdir(parents=True, exist_ok=True)
    (main.parent / name).write_text("x")
    found = read(main, tmp_path)
    assert isinstance(found, Finding)
    assert found.code == code


def test_another_hidden_file_of_a_skill_is_one_of_its_files(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    (main.parent / "assets/.dockerignore").write_text("dist\n")
    found = read(main, tmp_path)
    assert isinstance(found, ItemCandidate)
    assert found.files == {**skills.FILES, "assets/.dockerignore": b"dist\n"}


@pytest.mark.parametrize("name", ["SKILL.md", "scripts/fill.py", "SKILL.md.sig", "references", "gone"])
def test_a_link_in_a_skill_refuses_it(tmp_path: Path, name: str) -> None:
    main = skills.write(tmp_path)
    target, link = tmp_path / "target", main.parent / name
    if link.exists():
        link.rename(target)
    link.symlink_to(target)
    found = read(main, tmp_path)
    assert isinstance(found, Finding)
    assert found.code == "source.linked-file"


def test_a_pipe_in_a_skill_is_not_waited_for(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    os.mkfifo(main.parent / "pipe")
    found = read(main, tmp_path)
    assert isinstance(found, Finding)
    assert found.code == "source.unreadable"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({f"a{n}.txt": b"x" for n in range(skill.MAX_FILES)}, "bounds.files"),
        ({f"a{n}.png": skills.PNG + bytes(1 << 20) for n in range(6)}, "bounds.size"),
    ],
)
def test_a_skill_that_is_too_large_is_not_read_to_its_end(tmp_path: Path, more: dict[str, bytes], code: str) -> None:
    found = read(skills.write(tmp_path, {**skills.FILES, **more}), tmp_path)
    assert isinstance(found, Finding)
    assert found.code == code


VALUES = {
    "plain": "plain", "é": "é", "yes": "yes", "on": "on", "2026-01-31": "2026-01-31", "12:30:45": "12:30:45",
    "3": 3, "-4": -4, "010": "010", "1.5": 1.5, "1e3": 1000.0, ".inf": ".inf", "'7'": "7",
    "true": True, "False": False, '"true"': "true", "null": None, "~": None, "": None,
    "[a, 2]": ["a", 2], "{b: {c: 1}}": {"b": {"c": 1}},
}  # fmt: skip


@pytest.mark.parametrize("written", VALUES)
def test_front_matter_has_the_types_of_yaml_1_2_in_json(written: str) -> None:
    found = skill.front_matter_json(f"---\nname: x\ndescription: About x.\nother: {written}\n---\nText.\n")
    assert found == {"name": "x", "description": "About x.", "other": VALUES[written]}
    assert type(found["other"]) is type(VALUES[written])


NO_OBJECTS = ["- a list", "a: &x 1\nb: *x", "a: !!python/name:os.system", "a: 1\na: 2", 'a: "\\ud800"', "a: ["]
NO_OBJECTS += ["a: " + "[" * 500 + "]" * 500, "? [a]\n: 1", "a: 1e999"]


@pytest.mark.parametrize("block", NO_OBJECTS)
def test_front_matter_that_is_no_json_object_is_none(block: str) -> None:
    assert skill.front_matter_json(f"---\n{block}\n---\n") is None


@pytest.mark.parametrize("content", ["", "# No front matter\n", "---\nname: x\n"])
def test_text_without_front_matter_has_none(content: str) -> None:
    assert skill.front_matter_json(content) is None
