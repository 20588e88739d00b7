"""From a file to a signed file: checked by the gate, signed in memory, then written; and copies between tiers."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING

import semver

from kiwi_rag.collection import Collection
from kiwi_rag.errors import (
    EmbeddingError,
    MalformedEnvelope,
    RegistryError,
    Rejected,
    SignatureRefused,
    SourceUnreadable,
    UnknownSigner,
    UsageError,
)
from kiwi_rag.formats.bump import FIRST, add_version, version_line, with_version
from kiwi_rag.formats.source import ItemCandidate, SourceFile, path_of, read_item, signature_path, walk
from kiwi_rag.integrations.skill_folders import write_skill
from kiwi_rag.model import Envelope, Finding, Item, ItemRef, ItemType, sha256_hex
from kiwi_rag.registry.calls import time_limit
from kiwi_rag.signing import statement
from kiwi_rag.signing.keys import SigningKey
from kiwi_rag.signing.statement import ItemStatement
from kiwi_rag.signing.trust import verify
from kiwi_rag.sources.source import read
from kiwi_rag.storage.atomic import disk_errors, remove_folder, write_user_files
from kiwi_rag.system import HAS_MODES, windows_problem
from kiwi_rag.validation import signature as versions
from kiwi_rag.validation.manager import ValidationManager
from kiwi_rag.validation.signature import envelope_of, finding_of

if TYPE_CHECKING:
    from kiwi_rag.services import Services

HISTORY_SECONDS = 5.0
"""Seconds to wait for a registry's answer when a file is signed; publishing compares the versions again."""
_ITEM_FILES = "items are directives/*.md, scripts/*.py, knowledge/*.md and skills/*/SKILL.md below .ai"


def sources_of(paths: Sequence[Path], ai_dir: Path) -> list[SourceFile]:
    """Return the item files that `paths` name: files, or folders at or below the ``.ai`` folder `ai_dir`.

    Raises
    ------
    UsageError
        When a path does not exist, or names no item file of this tier.
    """
    found = list(walk(ai_dir))
    chosen: dict[Path, SourceFile] = {}
    for path in paths:
        below = [source for source in found if _is_named(source, path.absolute())]
        if not below and path.absolute() not in (ai_dir.absolute(), ai_dir.absolute().parent):  # a tier may be empty
            raise UsageError(f"{path} is not an item file or folder of {ai_dir}", hint=_ITEM_FILES)
        chosen.update({source.path: source for source in below})
    return list(chosen.values())


class VersionHistories:
    """The versions of an item that each of several tiers ever had.

    A registry that fails or does not answer in time is not queried again: ``registry_problem`` says what happened.
    """

    def __init__(self, app: Services) -> None:
        self._local = [app.local(name) for name in app.source_names("local") if app.has_index(app.root(name))]
        self._registry = app.registry if app.registry_connection.exists else None
        self._seconds = min(HISTORY_SECONDS, app.settings.deadline)
        self.registry_problem = ""

    async def of(self, ref: ItemRef, *, fully: bool) -> dict[str, Mapping[str, str]]:
        """Return tier name → (version → content sha256); the registry's are included only when `fully` is set."""
        found = {tier.name: await tier.store.history(ref) for tier in self._local}
        if not fully or self._registry is None or self.registry_problem:
            return found
        try:
            async with time_limit(self._seconds):
                found["registry"] = await self._registry().store.history(ref)
        except (RegistryError, EmbeddingError) as error:
            self.registry_problem = error.message
        return found


@dataclass(frozen=True, slots=True)
class Draft:
    """A file as it is to be written: checked by the gate and signed in memory, not yet on disk.

    ``fresh`` is set when the signature is new; ``wrote`` is the line with the version, if that was raised.
    """

    source: SourceFile
    candidate: ItemCandidate
    item: Item
    fresh: bool
    wrote: str = ""

    @property
    def ref(self) -> ItemRef:
        """The reference of the signed item."""
        return self.item.ref

    def write(self) -> None:
        """Write the main file if its version was raised, and the signature if it is new."""
        main, signature = self.candidate.files[self.candidate.main], self.candidate.signature
        files = {self.source.path: main} if self.wrote else {}
        if self.fresh and signature is not None:
            files[signature_path(self.source.path)] = signature
        write_user_files(files, keep_rights=True)


@dataclass(frozen=True, slots=True)
class Author:
    """A signer of the files of a tier; each file is checked as it would be written, and nothing is written.

    ``principal`` appears in the command that is shown to trust an unknown key. A bump raises the version of a properly
    signed file that is below the highest only if ``restores_old`` is set.
    """

    tier: Collection
    gate: ValidationManager
    key: SigningKey
    histories: VersionHistories
    principal: str
    restores_old: bool = True

    async def drafts(
        self, sources: Sequence[SourceFile], *, bump: str | None = None, force: bool = False
    ) -> tuple[list[Draft], list[Rejected]]:
        """Return the files that may be written, and the rejections of the others.

        Parameters
        ----------
        bump
            Raise the version of a file that changed since it was signed, or whose version was admitted with other
            content or is below the highest; add a version to a file that has none.
        force
            Sign files again that have a valid signature.

        Raises
        ------
        UsageError
            When the line that declares the version cannot be rewritten.
        """
        drafts, rejections = [], []
        for source in sources:
            try:
                drafts.append(await self._draft(source, bump, force))
            except Rejected as rejection:
                rejections.append(rejection)
        return drafts, rejections

    async def _draft(self, source: SourceFile, bump: str | None, force: bool) -> Draft:
        candidate = read(source, self.tier, self.gate)
        if not force:
            self._check_signer(candidate)
        candidate = self._trusted(candidate)
        raised = await self._raised(candidate, bump) if bump else candidate
        item = self.gate.inspect_or_raise(raised, self.tier.policy, self.tier.audit)
        wrote = "" if raised.files is candidate.files else _declaration(item, candidate.path)
        fresh = raised is not candidate or force or signed_statement(self.gate, self.tier, candidate, item) is None
        contents = await self.histories.of(item.ref, fully=fresh)
        if fresh:
            raised = self.sign(raised, item, contents.get(self.tier.name, {}))
        if found := versions.check_other_tiers(item, contents, candidate.path, self.tier.name):
            raise self._reject(candidate, found)
        return Draft(source, raised, item, fresh, wrote)

    def sign(self, candidate: ItemCandidate, item: Item, history: Mapping[str, str]) -> ItemCandidate:
        """Return the candidate of an inspected item with a new signature; `history` is that of the tier.

        Raises
        ------
        Rejected
            When the key is not trusted here, or the tier would not admit the signed item.
        """
        self._check_key(candidate)
        signature = statement.signature_file(self.key.sign(item, self.gate.audience))
        signed = replace(candidate, signature=signature, given=())
        self.gate.check(signed, self.tier.policy, history, self.tier.audit)
        return signed

    def _trusted(self, candidate: ItemCandidate) -> ItemCandidate:
        """Return the candidate, without a signature that does not verify: none of its values may be signed again."""
        try:
            verify(envelope_of(candidate), self.gate.trust)
        except SignatureRefused:
            return replace(candidate, signature=None)
        return candidate

    async def _raised(self, candidate: ItemCandidate, part: str) -> ItemCandidate:
        """Return the candidate with a higher version if it changed, else unchanged; errors are left to the gate."""
        content = self.gate.inspect(candidate)
        item = content.item
        if item is None:
            return candidate
        contents = await self.histories.of(item.ref, fully=True)
        missing = is_version_missing(content.findings)
        if not missing and not semver.Version.is_valid(item.ref.version or ""):
            return candidate
        taken = any(versions.conflicts(item, history) for history in contents.values())
        old = self.restores_old and not missing and versions.is_rollback(item, contents.get(self.tier.name, {}))
        if signed_statement(self.gate, self.tier, candidate, item) and not (taken or old):
            return candidate
        declared = () if missing else (item.ref.version or "",)
        version = _next_version([*declared, *(v for history in contents.values() for v in history)], part, missing)
        if not missing and is_version_missing(self.gate.inspect(replace(candidate, signature=None)).findings):
            given = dict(versions.given_values(candidate)) | {"version": version}
            return replace(candidate, given=tuple(given.items()))
        change = add_version if missing else with_version
        try:
            data = change(item.ref.item_type, item.content, version).encode()
        except UsageError as error:
            raise UsageError(f"{candidate.path}: {error.message}; nothing was changed", hint=error.hint) from error
        return replace(candidate, files={**candidate.files, candidate.main: data})

    def _check_signer(self, candidate: ItemCandidate) -> None:
        """Reject a file whose signer is not trusted here, because a new signature would replace that one."""
        try:
            envelope = envelope_of(candidate)
            known = {self.key.key_id, *self.gate.trust.by_key}
            if known.isdisjoint(key_id for key_id, _ in envelope.signatures):  # else the gate verifies it
                verify(envelope, self.gate.trust)
        except UnknownSigner as error:
            own = f"to replace the signature by yours: kiwi sign {shlex.quote(candidate.path)} --force"
            found = replace(finding_of(error, candidate.path), hint=f"{error.hint}; {own}")
            raise self._reject(candidate, [found]) from error
        except SignatureRefused:
            pass  # such a signature has to be replaced

    def _check_key(self, candidate: ItemCandidate) -> None:
        signer = self.gate.trust.by_key.get(self.key.key_id)
        try:
            if signer is None:
                hint = f"kiwi trust add {self.key.public_key.hex()} --principal {shlex.quote(self.principal)}"
                message = f"the key {self.key.name!r} (key id {self.key.key_id[:16]}…) is not trusted here"
                raise UnknownSigner(message, hint=hint)
            signer.authorise_signing()
        except SignatureRefused as error:
            raise self._reject(candidate, [finding_of(error, candidate.path)]) from error

    def _reject(self, candidate: ItemCandidate, found: Sequence[Finding]) -> Rejected:
        return self.gate.reject(str(candidate.ref), found, self.tier.policy, self.tier.audit)


def signed_statement(
    gate: ValidationManager, tier: Collection, candidate: ItemCandidate, item: Item | None
) -> ItemStatement | None:
    """Return the statement of a candidate that is properly signed, as it is, by a signer whom the tier trusts."""
    check = versions.SignatureCheck(gate.trust, gate.audience, tier.policy, datetime.now(UTC))
    signed = check.check_item(candidate, item)[0]
    return signed.statement if signed else None


def is_version_missing(findings: Sequence[Finding]) -> bool:
    """Return whether a file declares no version."""
    return any(finding.code == "metadata.version-missing" for finding in findings)


def _next_version(existing: Sequence[str], part: str, missing: bool) -> str:
    """Return the version after the highest of `existing`; a file without a version starts with 1.0.0."""
    highest = max(map(semver.Version.parse, existing), default=None)
    if missing and (highest is None or highest < FIRST):
        return FIRST
    return str(highest.next_version(part)) if highest else FIRST


def _declaration(item: Item, path: str) -> str:
    number, text = version_line(item.ref.item_type, item.content)
    return f"{path}:{number}: {text}"


def place_item(ai_dir: Path, envelope: Envelope, files: Mapping[str, bytes], *, overwrite: bool = False) -> SourceFile:
    """Write the files of a verified item and its signature below `ai_dir`, and return the main file.

    Of a skill, the folder is replaced as a whole: an interruption leaves the old one or the new one.

    Raises
    ------
    UsageError, SourceUnreadable, MalformedEnvelope
        As `check_place`.
    StoreFull, StoreError
        When a file cannot be written; of files that belong together none is replaced then.
    """
    placed = check_place(ai_dir, envelope, files, overwrite=overwrite)
    if not placed.item_type.is_folder:
        (content,) = files.values()
        signature = {signature_path(placed.path): statement.signature_file(envelope)}
        write_user_files({placed.path: content, **signature})
        return placed
    write_skill(placed.path.parent, envelope, files)
    return placed


def check_place(ai_dir: Path, envelope: Envelope, files: Mapping[str, bytes], *, overwrite: bool = False) -> SourceFile:
    """Return the main file of an item that would be written below `ai_dir`; nothing is written.

    Raises
    ------
    UsageError
        When the item exists with other content and `overwrite` is not set, a skill and another item would share a
        folder, or Windows cannot write one of its names.
    SourceUnreadable
        When a symbolic link leads out of `ai_dir`.
    MalformedEnvelope
        When `files` are not exactly those that were signed.
    """
    signed = statement.parse_item(envelope.payload)
    digests = {name: sha256_hex(data) for name, data in files.items()}
    if digests != signed.digests or signed.main != signed.ref.main_file:
        raise MalformedEnvelope(f"the files of {signed.ref} are not those that were signed")
    placed = find_place(ai_dir, signed.ref, files)
    path = placed.path
    if path.exists() and not overwrite and not _is_same(placed, ai_dir, signed, files):
        raise UsageError(f"{path} exists with other content", hint="compare them, then use --force to overwrite it")
    return placed


def check_names(ref: ItemRef, files: Iterable[str]) -> None:
    """Raise `UsageError` on Windows if it cannot write a file of an item by its name."""
    for name in () if HAS_MODES else files:
        if problem := windows_problem(PureWindowsPath(ref.item_id, name)):
            hint = f"ask its author to rename it; kiwi show {ref} prints it"
            raise UsageError(f"{name} of {ref} cannot be written on Windows: {problem}", hint=hint)


def find_place(ai_dir: Path, ref: ItemRef, files: Iterable[str]) -> SourceFile:
    """Return the main file of an item with these files, whatever is there now; raise as `check_place` does."""
    path = path_of(ai_dir, ref)
    folder = path.parent
    check_names(ref, files)
    linked = path.is_symlink() or (ref.item_type.is_folder and folder.is_symlink())
    if linked or not folder.resolve().is_relative_to(ai_dir.resolve()):
        raise SourceUnreadable(f"{path} leads out of {ai_dir} through a symbolic link", hint="remove the link")
    if ref.item_type.is_folder:
        _check_folder(ai_dir, folder)
    return SourceFile(path, ref.item_type, ref.item_id)


def _check_folder(ai_dir: Path, folder: Path) -> None:
    """Raise `UsageError` if a skill in `folder` would be inside of another, or would replace what is no skill."""
    main = ItemType.SKILL.folder
    for outer in folder.relative_to(ai_dir / main).parents:
        if outer.name and (ai_dir / main / outer / "SKILL.md").exists():
            raise UsageError(f"{folder} is inside of the skill {ai_dir / main / outer}", hint="remove one of the two")
    if folder.exists() and not (folder / "SKILL.md").is_file():
        raise UsageError(f"{folder} exists and is not a skill", hint="move it away; it is not overwritten")


def _is_same(placed: SourceFile, ai_dir: Path, signed: ItemStatement, files: Mapping[str, bytes]) -> bool:
    found = read_item(placed, ai_dir)
    expected = files, signed.executables
    return not isinstance(found, Finding) and (found.files, found.executables) == expected


def check_removable(source: SourceFile) -> None:
    """Raise `SourceUnreadable` when a folder on the way to an item is a link; nothing is removed."""
    folders = source.item_id.count("/") + 1 + source.item_type.is_folder  # up to that of the type
    for folder in source.path.parents[:folders]:
        if folder.is_symlink():
            raise SourceUnreadable(f"{folder} is a symbolic link", hint="remove the link")


def remove_files(source: SourceFile) -> None:
    """Remove an item and its signature, of a skill the whole folder; a missing one is no error.

    Raises
    ------
    SourceUnreadable, StoreError
        As `check_removable`, or when it cannot be removed.
    """
    check_removable(source)
    with disk_errors(source.path, "remove"):
        if source.item_type.is_folder:
            remove_folder(source.path.parent)
            return
        source.path.unlink(missing_ok=True)
        signature_path(source.path).unlink(missing_ok=True)


async def check_copy(
    source: SourceFile, of: Collection, to: Collection, gate: ValidationManager,
    histories: VersionHistories,
) -> tuple[Envelope, Mapping[str, bytes]]:  # fmt: skip
    """Return a file's envelope and the item's files if the tier `to` would admit a copy; nothing is written.

    Raises
    ------
    Rejected
        When it does not verify, `to` would not admit it, or a tier has its version with other content.
    """
    candidate = read(source, of, gate)
    contents = await histories.of(ItemRef(candidate.item_type, candidate.item_id), fully=True)
    item = gate.check(candidate, to.policy, contents.get(to.name, {}), to.audit)
    if found := versions.check_other_tiers(item, contents, candidate.path, of.name):
        raise gate.reject(str(candidate.ref), found, to.policy, to.audit)
    return envelope_of(candidate), candidate.files


def _is_named(source: SourceFile, path: Path) -> bool:
    """Return whether `path` names a source: the file itself, a file of the skill, or a folder above."""
    file = source.path.absolute()
    inside = source.item_type.is_folder and file.parent in path.parents
    return file == path or path in file.parents or (inside and os.path.lexists(path))
