"""Signing files and folders, raising versions, and writing items below ``.ai`` as a whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kiwi_rag.errors import MalformedEnvelope, OldSignature, Rejected, SourceUnreadable, UsageError
from kiwi_rag.formats.source import SourceFile, read_item, signature_path, walk
from kiwi_rag.model import Envelope, content_digest
from kiwi_rag.model.refs import ItemType
from kiwi_rag.signing import keys, statement
from kiwi_rag.signing.trust import Signer, TrustPolicy, verify
from kiwi_rag.storage import atomic
from kiwi_rag.usecases import item_files, sign
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.manager import ValidationManager
from tests import skills
from tests.conformance.documents import ListedLog

PRE_RELEASE = Path(__file__).parents[1] / "data/pre-release/.ai"
ADA = keys.generate("ada")
# The key that signed the files in tests/data/pre-release, made by the code of before.
PAST = keys.derived("ada", b"a test key of the fixtures", b"kiwi tests")
TRUST = TrustPolicy((Signer("ada@acme", ADA.public_key), Signer("ada@acme", PAST.public_key)))
NOW = datetime(2026, 11, 22, tzinfo=UTC)


class Histories:
    """What tiers are said to have had: version → content digest, the same for every item."""

    def __init__(self, **versions: str) -> None:
        self.versions = versions

    async def of(self, ref: object, *, fully: bool) -> dict[str, Mapping[str, str]]:
        return {"project": self.versions}


def author(ai_dir: Path, histories: Histories | None = None, key: keys.SigningKey = ADA) -> sign.Author:
    tier: Any = SimpleNamespace(name="project", root=ai_dir, policy=policy_of("project"), audit=ListedLog())
    known: Any = histories or Histories()
    return sign.Author(tier, ValidationManager(TRUST, "kiwi"), key, known, "ada@acme")


async def signed(ai_dir: Path, path: Path | None = None, **options: Any) -> list[sign.Draft]:
    """Sign what `path` names and write it; the gate must refuse nothing."""
    histories = options.pop("histories", None)
    sources = item_files.sources_of([path or ai_dir], ai_dir)
    drafts, refused = await author(ai_dir, histories).drafts(sources, **options)
    assert refused == []
    for draft in drafts:
        draft.write()
    return drafts


def envelope_of(main: Path) -> Envelope:
    return statement.read_signature_file(signature_path(main).read_bytes())


async def test_a_skill_is_signed_as_a_whole(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    before = skills.on_disk(main.parent)
    (draft,) = await signed(tmp_path)
    assert draft.fresh
    assert not draft.wrote
    after = skills.on_disk(main.parent)
    del after["SKILL.md.sig"]
    assert after == before
    read = verify(envelope_of(main), TRUST).statement
    assert (read.ref.item_id, read.ref.version, read.executables) == (skills.ID, "1.0.0", skills.EXECUTABLES)
    assert set(read.digests) == set(skills.FILES)


async def test_a_signed_skill_is_not_signed_again_without_force(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    await signed(tmp_path)
    before = signature_path(main).read_bytes()
    (draft,) = await signed(tmp_path)
    assert not draft.fresh
    assert signature_path(main).read_bytes() == before
    (draft,) = await signed(tmp_path, force=True)
    assert draft.fresh


@pytest.mark.parametrize(
    "path", ["", "skills", "skills/acme/pdf-forms", *(f"skills/{skills.ID}/{n}" for n in skills.FILES)]
)
async def test_a_skill_is_named_by_its_folder_and_by_its_files(tmp_path: Path, path: str) -> None:
    skills.write(tmp_path)
    assert [source.item_id for source in item_files.sources_of([tmp_path / path], tmp_path)] == [skills.ID]


def test_a_path_that_names_no_item_is_refused(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    for path in (main.parent / "gone.md", tmp_path / "skills/acme/other", tmp_path / "notes"):
        with pytest.raises(UsageError):
            item_files.sources_of([path], tmp_path)


async def test_bump_raises_the_version_of_a_skill_whose_other_file_changed(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    await signed(tmp_path)
    (main.parent / "references/fields.md").write_text("# Fields\n\nOther.\n")
    (draft,) = await signed(tmp_path, bump="minor")
    assert draft.wrote.endswith('version: "1.1.0"')
    assert main.read_text() == skills.MAIN.format(version="1.1.0")
    assert verify(envelope_of(main), TRUST).statement.ref.version == "1.1.0"
    (draft,) = await signed(tmp_path, bump="minor")
    assert (draft.fresh, draft.wrote) == (False, "")


async def test_an_older_version_is_raised_only_by_an_author_who_restores_old_ones(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    await signed(tmp_path)
    digest = content_digest(verify(envelope_of(main), TRUST).statement.digests)
    one = author(tmp_path, Histories(**{"1.0.0": digest, "1.1.0": "aa"}))
    sources = item_files.sources_of([main], tmp_path)
    (kept,), refused = await replace(one, restores_old=False).drafts(sources, bump="patch")
    assert (kept.fresh, kept.ref.version, refused) == (False, "1.0.0", [])
    (raised,), refused = await one.drafts(sources, bump="patch")
    assert (raised.fresh, raised.ref.version, refused) == (True, "1.1.1", [])


async def test_bump_adds_a_version_to_a_skill_without_one(tmp_path: Path) -> None:
    text = skills.MAIN.replace('  version: "{version}"\n', "")
    main = skills.write(tmp_path, {**skills.FILES, "SKILL.md": text.encode()})
    (draft,) = await signed(tmp_path, bump="patch")
    assert draft.wrote.endswith(':7: version: "1.0.0"')
    assert main.read_text() == text.replace("metadata:\n", 'metadata:\n  version: "1.0.0"\n')


async def test_an_edited_skill_under_an_admitted_version_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    main = skills.write(tmp_path)
    await signed(tmp_path)
    history = Histories(**{"1.0.0": content_digest(verify(envelope_of(main), TRUST).statement.digests)})
    (main.parent / "scripts/fill.py").write_text("pass\n")
    before = skills.on_disk(main.parent)
    drafts, (refused,) = await author(tmp_path, history).drafts(item_files.sources_of([tmp_path], tmp_path))
    assert drafts == []
    assert [finding.code for finding in refused.findings] == ["version.immutable"]
    assert refused.findings[0].hint.endswith("SKILL.md --bump patch")
    assert skills.on_disk(main.parent) == before


@pytest.mark.parametrize("name", [".env", "scripts/__pycache__/fill.pyc"])
async def test_a_skill_with_a_hidden_file_is_not_signed(tmp_path: Path, name: str) -> None:
    main = skills.write(tmp_path, {**skills.FILES, name: b"x"})
    drafts, (refused,) = await author(tmp_path).drafts(item_files.sources_of([tmp_path], tmp_path))
    assert (drafts, [finding.code for finding in refused.findings]) == ([], ["source.hidden-file"])
    assert not signature_path(main).exists()


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """Three items that a pre-release Kiwi signed, with its own code."""
    shutil.copytree(PRE_RELEASE, tmp_path / ".ai")
    return tmp_path / ".ai"


def test_a_signature_of_a_pre_release_is_told_apart(past: Path) -> None:
    sources = list(walk(past))
    assert [source.item_type for source in sources] == [ItemType.DIRECTIVE, ItemType.SCRIPT, ItemType.KNOWLEDGE]
    for source in sources:
        with pytest.raises(OldSignature):
            envelope_of(source.path)
        candidate: Any = read_item(source, past, "project")
        with pytest.raises(Rejected) as caught:
            ValidationManager(TRUST, "kiwi").admit(candidate, policy_of("project"), {}, ListedLog())
        (finding,) = [finding for finding in caught.value.findings if finding.is_error]
        assert (finding.code, finding.message) == ("signature.old-format", "signed by a pre-release Kiwi")
        assert finding.hint == f"kiwi sign {source.path}"


async def test_a_pre_release_item_is_signed_anew_with_the_version_that_it_has(past: Path) -> None:
    before = {source.path: source.path.read_bytes() for source in walk(past)}
    versions = {path: json.loads(signature_path(path).read_bytes())["statement"]["version"] for path in before}
    drafts = await signed(past)
    assert [draft.fresh for draft in drafts] == [True] * 3
    assert {path: path.read_bytes() for path in before} == before
    assert {path: verify(envelope_of(path), TRUST).statement.ref.version for path in before} == versions


def sealed(version: str = "1.0.0", **changes: bytes | None) -> tuple[Envelope, dict[str, bytes]]:
    files = skills.files(version, **changes)
    return ADA.sign(skills.item(files), "kiwi", NOW), files


def test_a_skill_is_placed_byte_for_byte(tmp_path: Path) -> None:
    envelope, files = sealed()
    placed = item_files.place_item(tmp_path, envelope, files)
    assert placed == SourceFile(tmp_path / f"skills/{skills.ID}/SKILL.md", ItemType.SKILL, skills.ID)
    found = read_item(placed, tmp_path)
    assert (found.files, found.executables) == (files, skills.EXECUTABLES)  # type: ignore[union-attr]
    assert envelope_of(placed.path) == envelope
    assert [path.name for path in placed.path.parent.parent.iterdir()] == ["pdf-forms"]
    item_files.place_item(tmp_path, envelope, files)


def test_another_content_is_placed_only_when_told_to(tmp_path: Path) -> None:
    item_files.place_item(tmp_path, *sealed())
    folder = tmp_path / "skills" / skills.ID
    before = skills.on_disk(folder)
    newer = sealed("1.1.0", NOTICE=None)
    with pytest.raises(UsageError, match="exists with other content"):
        item_files.place_item(tmp_path, *newer)
    assert skills.on_disk(folder) == before
    item_files.place_item(tmp_path, *newer, overwrite=True)
    assert set(skills.on_disk(folder)) == {*newer[1], "SKILL.md.sig"}


@pytest.mark.parametrize("what", ["more.txt", "mode", "hidden"])
def test_a_skill_that_differs_in_anything_is_not_overwritten(tmp_path: Path, what: str) -> None:
    folder = item_files.place_item(tmp_path, *sealed()).path.parent
    if what == "mode":
        (folder / "NOTICE").chmod(0o755)
    else:
        (folder / (".env" if what == "hidden" else what)).write_text("x")
    with pytest.raises(UsageError, match="exists with other content"):
        item_files.check_place(tmp_path, *sealed())


@pytest.mark.parametrize("change", ["altered", "more", "less"])
def test_other_files_than_those_that_were_signed_are_not_placed(tmp_path: Path, change: str) -> None:
    envelope, files = sealed()
    files |= {"altered": {"NOTICE": b"x"}, "more": {"x": b""}}.get(change, {})
    if change == "less":
        del files["NOTICE"]
    with pytest.raises(MalformedEnvelope):
        item_files.place_item(tmp_path, envelope, files)
    assert list(tmp_path.iterdir()) == []


def test_a_skill_is_not_placed_inside_of_another_nor_over_other_folders(tmp_path: Path) -> None:
    skills.write(tmp_path, {"SKILL.md": b"x"}, "acme")
    with pytest.raises(UsageError, match="inside of the skill"):
        item_files.place_item(tmp_path, *sealed())
    (tmp_path / "skills/acme/SKILL.md").unlink()
    skills.write(tmp_path, {"SKILL.md": b"x"}, "acme/pdf-forms/inner")
    with pytest.raises(UsageError, match="is not a skill"):
        item_files.place_item(tmp_path, *sealed(), overwrite=True)
    assert (tmp_path / "skills/acme/pdf-forms/inner/SKILL.md").exists()


@pytest.mark.parametrize("link", ["skills", "skills/acme", "skills/acme/pdf-forms"])
def test_a_skill_is_neither_placed_nor_removed_through_a_link(tmp_path: Path, link: str) -> None:
    outside = skills.write(tmp_path / "outside").parent
    root = tmp_path / ".ai"
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(tmp_path / "outside" / link)
    assert (root / f"skills/{skills.ID}/SKILL.md").exists()
    before = skills.on_disk(outside)
    with pytest.raises(SourceUnreadable):
        item_files.place_item(root, *sealed(), overwrite=True)
    with pytest.raises(SourceUnreadable):
        item_files.remove_files(SourceFile(root / f"skills/{skills.ID}/SKILL.md", ItemType.SKILL, skills.ID))
    assert skills.on_disk(outside) == before


class Interruption(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("system_call", [True, False])
@pytest.mark.parametrize("step", range(40))
def test_an_interrupted_write_leaves_the_old_skill_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, system_call: bool
) -> None:
    """Between two renames, where the system cannot exchange folders, neither may be there; never a mixture."""
    item_files.place_item(tmp_path, *sealed())
    folder = tmp_path / "skills" / skills.ID
    before = skills.on_disk(folder)
    calls = iter(range(1_000))

    def interrupting(name: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == step:
                raise Interruption(name)
            return real(*arguments, **options)

        return call

    newer = sealed("1.1.0", NOTICE=None)
    with monkeypatch.context() as patch:
        for name in ("atomic_write", "_sync_folder", "_exchange"):
            patch.setattr(atomic, name, interrupting(name, getattr(atomic, name)))
        if not system_call:
            patch.setattr(atomic, "_exchange", lambda *_: False)
        patch.setattr(Path, "rename", interrupting("rename", Path.rename))
        interrupted = False
        try:
            item_files.place_item(tmp_path, *newer, overwrite=True)
        except Interruption:
            interrupted = True
    new = {**newer[1], "SKILL.md.sig": statement.signature_file(newer[0])}
    found = skills.on_disk(folder)
    contents = {name: data for name, (data, _) in found.items()}
    allowed = [before, {}] if not system_call else [before]
    assert found in allowed or contents == new
    assert interrupted or contents == new


def test_a_skill_is_removed_as_a_whole(tmp_path: Path) -> None:
    placed = item_files.place_item(tmp_path, *sealed())
    item_files.remove_files(placed)
    assert not placed.path.parent.exists()
    assert list(placed.path.parent.parent.iterdir()) == []
    item_files.remove_files(placed)


def test_an_item_of_one_file_is_placed_and_removed_with_its_signature(past: Path, tmp_path: Path) -> None:
    source = next(walk(past))
    candidate: Any = read_item(source, past)
    item = ValidationManager(TRUST, "kiwi").inspect(candidate).item
    assert item is not None
    envelope = ADA.sign(item, "kiwi", NOW)
    placed = item_files.place_item(tmp_path / "other", envelope, item.files)
    assert (placed.path.read_bytes(), envelope_of(placed.path)) == (source.path.read_bytes(), envelope)
    with pytest.raises(MalformedEnvelope):
        item_files.check_place(tmp_path / "other", envelope, {placed.path.name: b"other"})
    item_files.remove_files(placed)
    assert list(placed.path.parent.iterdir()) == []
