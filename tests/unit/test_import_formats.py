"""What files of other tools become: type, id, and metadata that strict YAML does not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kiwi_rag.errors import InvalidItemId, KiwiError, UsageError
from kiwi_rag.formats import imported, parse_item
from kiwi_rag.formats.bump import add_metadata
from kiwi_rag.model import ItemType
from kiwi_rag.sources.imports import ImportableFile, find, of_index

DIRECTIVE = '# Flush\n\n```xml\n<directive name="flush" version="1.0.0">\n</directive>\n```\n'


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("docs/README.md", "# Hi", "note"),
        ("AGENTS.md", "", "agent instructions"),
        ("web/CLAUDE.local.md", "", "agent instructions"),
        ("/p/.cursor/rules/css.mdc", "", "Cursor rule"),
        ("/p/.claude/commands/git/review.md", "", "Claude command"),
        (".claude/agents/reviewer.md", "", "Claude agent"),
        (".github/prompts/plan.prompt.md", "", "Copilot prompt"),
        (".github/copilot-instructions.md", "", "Copilot instructions"),
        ("docs/flush.md", DIRECTIVE, "directive"),
        ("docs/about-directives.md", "A `<directive>` has a name.", "note"),
        ("tools/scripts/run.py", "print(1)", "script"),
        ("run.py", '__version__ = "1.0.0"', "script"),
        ("run.py", "print(1)", None),
    ],
)
def test_a_file_is_recognised_by_its_path_and_its_content(path: str, content: str, kind: str | None) -> None:
    found = imported.recognise(path, content)
    assert (found and found[0]) == kind
    of_kind = {"directive": ItemType.DIRECTIVE, "script": ItemType.SCRIPT}
    assert found is None or found[1] is of_kind.get(found[0], ItemType.KNOWLEDGE)


@pytest.mark.parametrize(
    ("path", "item_id"),
    [
        ("README.md", "readme"),
        ("guides/Deploy Notes (old).md", "guides/deploy-notes-old"),
        ("\u00dcbersicht/Gr\u00f6\u00dfe & Ma\u00df.md", "uebersicht/groesse-mass"),
        ("U\u0308bung.md", "uebung"),
        ("caf\u00e9/\u00cele.markdown", "cafe/ile"),
        ("v1.2/notes.2024.md", "v1-2/notes-2024"),
        (".cursor/rules/react.mdc", "cursor/rules/react"),
        (".github/prompts/plan.prompt.md", "github/prompts/plan"),
        ("hit_rate.py", "hit_rate"),
        ("-draft-.md", "draft"),
        ("\u65e5\u672c notes.md", "notes"),
    ],
)
def test_an_id_is_made_of_the_path(path: str, item_id: str) -> None:
    assert imported.id_of(path) == item_id


@pytest.mark.parametrize("path", ["\u90e8\u7f72.md", "docs/---.md", "a/b/c/d/e/f/g/h/i.md", f"{'x' * 129}.md"])
def test_a_path_without_an_id_is_refused(path: str) -> None:
    with pytest.raises(InvalidItemId):
        imported.id_of(path)


def test_loose_metadata_is_read_as_other_tools_read_it() -> None:
    block = (
        "---\ntitle: It: breaks YAML\ndescription: >-\n  Two lines\n  of text\nglobs: *.ts, **/*.tsx\n"
        "tags:\n  - one\n  - 'two'\nalwaysApply: true\nowner:\n---\n# Body\n"
    )
    assert imported.loose_metadata(block) == {
        "title": "It: breaks YAML", "description": "Two lines of text", "globs": ["*.ts", "**/*.tsx"],
        "tags": ["one", "two"], "alwaysApply": "true", "owner": "",
    }  # fmt: skip
    assert imported.loose_metadata("# None\n") == {"tags": [], "globs": []}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_metadata_is_written_again_so_that_strict_yaml_reads_it(end: str) -> None:
    content = f"---{end}globs: *.ts{end}---{end}# Body{end}{end}Text.{end}"
    text = imported.rewritten(content, {"version": "1.0.0", "tags": ["*.ts"], "author": "", "title": 'A "title": x'})
    assert text.endswith(f"# Body{end}{end}Text.{end}")
    item = parse_item(ItemType.KNOWLEDGE, "a/b", text).item
    assert item is not None
    assert (item.ref.version, item.metadata["tags"], item.metadata["title"]) == ("1.0.0", ["*.ts"], 'A "title": x')


def test_metadata_is_added_to_a_skill_as_texts() -> None:
    plain = "---\nname: pdf\ndescription: PDFs.\n---\n# PDF\n"
    values = {"version": "1.0.0", "tags": ["one", "two"], "author": ""}
    added = add_metadata(ItemType.SKILL, plain, values)
    assert added == plain.replace("PDFs.\n", 'PDFs.\nmetadata:\n  version: "1.0.0"\n  tags: "one, two"\n')
    for kept in ("metadata:\n  author: grace\n", "metadata: {author: grace}\n", "metadata: {}\n", "metadata:\n"):
        text = add_metadata(ItemType.SKILL, plain.replace("PDFs.\n", f"PDFs.\n{kept}"), values)
        item = parse_item(ItemType.SKILL, "a/pdf", text).item
        assert item is not None
        assert (item.ref.version, item.metadata["tags"]) == ("1.0.0", ["one", "two"])
        assert item.metadata["author"] == ("grace" if "grace" in kept else "")


def write(folder: Path, *names: str, text: str = "# Text\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def found_at(root: Path, *names: str) -> dict[str, ImportableFile]:
    """Return what is found at paths below `root`, by the reference that it gets."""
    failed: dict[str, KiwiError] = {}
    rows = list(find([root / name for name in names], root / ".ai", "acme", failed))
    assert failed == {}
    return {str(row.candidate.ref): row for row in rows}


def test_ids_are_relative_to_the_path_that_was_named(tmp_path: Path) -> None:
    write(tmp_path, "docs/guides/one.md", "docs/two.md", "three.md")
    assert set(found_at(tmp_path, "docs/guides")) == {"knowledge:acme/one"}
    assert set(found_at(tmp_path, "docs/two.md", "three.md")) == {"knowledge:acme/two", "knowledge:acme/three"}
    everything = {"knowledge:acme/docs/guides/one", "knowledge:acme/docs/two", "knowledge:acme/three"}
    assert set(found_at(tmp_path, ".")) == everything


def test_a_file_that_is_named_twice_is_found_once(tmp_path: Path) -> None:
    write(tmp_path, "docs/one.md")
    assert set(found_at(tmp_path, "docs", "docs/one.md", "docs/../docs")) == {"knowledge:acme/one"}


def test_a_skill_is_found_as_a_whole_and_by_the_name_that_it_declares(tmp_path: Path) -> None:
    main = "---\nname: pdf-forms\ndescription: Forms.\n---\n# Forms\n"
    write(tmp_path, "skills/PDF Forms/SKILL.md", text=main)
    write(tmp_path, "skills/PDF Forms/references/more.md", "skills/PDF Forms/nested/SKILL.md", "skills/README.md")
    write(tmp_path, "skills/PDF Forms/.DS_Store", "skills/PDF Forms/__pycache__/x.pyc", "skills/lower_case/skill.md")
    found = found_at(tmp_path, "skills")
    assert set(found) == {"skill:acme/pdf-forms", "skill:acme/lower-case", "knowledge:acme/readme"}
    forms = found["skill:acme/pdf-forms"].candidate
    assert set(forms.files) == {"SKILL.md", "references/more.md", "nested/SKILL.md"}
    assert set(found["skill:acme/lower-case"].candidate.files) == {"SKILL.md"}
    assert set(found_at(tmp_path, "skills/PDF Forms/SKILL.md")) == {"skill:acme/pdf-forms"}
    assert set(found_at(tmp_path, "skills/PDF Forms")) == {"skill:acme/pdf-forms"}


def test_patterns_of_a_cursor_rule_become_tags(tmp_path: Path) -> None:
    write(tmp_path, "ts.mdc", text="---\nglobs: *.ts,*.tsx\nalwaysApply: true\n---\n- Strict.\n")
    assert found_at(tmp_path, ".")["knowledge:acme/ts"].tags == ("*.ts", "*.tsx", "always")


def test_links_out_and_links_in_skills_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "outside.md", "skills/pdf/SKILL.md")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/out.md").symlink_to(tmp_path / "outside.md")
    (tmp_path / "docs/out.csv").symlink_to(tmp_path / "outside.md")
    (tmp_path / "skills/pdf/more.txt").symlink_to(tmp_path / "outside.md")
    failed: dict[str, KiwiError] = {}
    paths = [tmp_path / "docs", tmp_path / "skills"]
    assert list(find(paths, tmp_path / ".ai", "acme", failed)) == []
    assert {Path(path).name for path in failed} == {"out.md", "SKILL.md"}


@pytest.mark.parametrize("name", ["nowhere", ".ai/knowledge/acme/one.md", ".ai/config.yaml", "data.json"])
def test_what_is_no_file_to_import_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, ".ai/knowledge/acme/one.md", ".ai/config.yaml", "data.json")
    with pytest.raises(UsageError):
        list(find([tmp_path / name], tmp_path / ".ai", "acme", {}))


def test_of_the_folder_of_the_items_only_other_files_are_found(tmp_path: Path) -> None:
    write(tmp_path, ".ai/knowledge/acme/one.md", ".ai/notes.md", ".ai/skills/loose.md", ".ai/skills/pdf/SKILL.md")
    assert set(found_at(tmp_path, ".ai")) == {"knowledge:acme/notes", "knowledge:acme/skills/loose"}


def test_a_skill_of_an_index_has_its_signature_apart_from_its_files() -> None:
    main = b"---\nname: pdf\ndescription: PDFs.\n---\n# PDF\n"
    files = {"SKILL.md": main, "SKILL.md.sig": json.dumps({}).encode(), "references/a.md": b"A\n"}
    found = of_index("pdf", files, ("references/a.md",), "acme", "index.json")
    assert found.candidate.executables == ("references/a.md",)
    assert str(found.candidate.ref) == "skill:acme/pdf"
    assert set(found.candidate.files) == {"SKILL.md", "references/a.md"}
    assert found.candidate.signature == b"{}"
