"""From a file to a signed file: judged as the gate would, signed in memory, then written; and copies between tiers."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import semver

from kiwi_rag.collection import Tier
from kiwi_rag.errors import (
    EmbeddingError,
    RegistryError,
    Rejected,
    SignatureRefused,
    SourceUnreadable,
    UnknownSigner,
    UsageError,
)
from kiwi_rag.formats import SourceFile, path_of, read_source, walk
from kiwi_rag.formats.bump import FIRST, add_version, version_line, with_version
from kiwi_rag.ingest import read, side_path
from kiwi_rag.model import Envelope, Item
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.signing import statement
from kiwi_rag.signing.keys import SigningKey
from kiwi_rag.signing.trust import TrustPolicy, verify
from kiwi_rag.storage.atomic import write_user_file
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation import signature as versions
from kiwi_rag.validation.manager import ValidationManager
from kiwi_rag.validation.signature import ItemCandidate, envelope_of, finding_of

if TYPE_CHECKING:
    from kiwi_rag.services import Services

BUMPS = ("patch", "minor", "major")
HISTORY_SECONDS = 5.0
"""How long to wait for a registry when a file is signed; publishing compares the versions again."""


def sources_of(paths: Sequence[Path], ai_dir: Path) -> list[SourceFile]:
    """Return the item files that `paths` name: files, or folders at or below the ``.ai`` folder `ai_dir`.

    Raises
    ------
    UsageError
        When a path is not there, or names no item file of this tier.
    """
    found = list(walk(ai_dir))
    chosen: dict[Path, SourceFile] = {}
    for path in paths:
        below = list(_below(path.absolute(), ai_dir.absolute(), found))
        if not below and not _holds(path.absolute(), ai_dir.absolute()):
            raise UsageError(
                f"{path} is not an item file or folder of {ai_dir}",
                hint="items are directives/*.md, scripts/*.py and knowledge/*.md below .ai",
            )
        chosen.update({source.path: source for source in below})
    return list(chosen.values())


class KnownVersions:
    """The versions of an item that each of several tiers ever had; a registry is asked once, and given up when silent.

    Parameters
    ----------
    local
        The local tiers that have an index.
    registry
        Gives the registry, where there is one.
    seconds
        How long the registry may take for all answers together.
    """

    def __init__(
        self, local: Sequence[Tier[VectorStore]], registry: Callable[[], Tier[VectorStore]] | None, seconds: float
    ) -> None:
        self._local = local
        self._registry = registry
        self._seconds = seconds
        self.silent = ""

    async def of(self, ref: ItemRef, *, fully: bool) -> dict[str, Mapping[str, str]]:
        """Return tier name → (version → content sha256); the registry's are left out unless asked `fully`."""
        found = {tier.name: await tier.store.history(ref) for tier in self._local}
        if fully and self._registry:
            found["registry"] = await self._published(self._registry, ref)
        return found

    async def _published(self, registry: Callable[[], Tier[VectorStore]], ref: ItemRef) -> Mapping[str, str]:
        if self.silent:
            return {}
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                return await registry().store.history(ref)
        except TimeoutError:
            self.silent = "the registry did not answer in time"
        except (RegistryError, EmbeddingError) as error:
            self.silent = error.message
        finally:
            self._seconds = max(self._seconds - (time.monotonic() - begun), 0.1)
        return {}


def known_versions(app: Services) -> KnownVersions:
    """Return the versions that the local tiers with an index, and the registry if there is one, ever had."""
    local = [app.local(name) for name in app.source_names("local") if app.is_indexed(name)]
    registry = app.registry if app.registry_connection.exists else None
    return KnownVersions(local, registry, min(HISTORY_SECONDS, app.settings.deadline))


@dataclass(frozen=True, slots=True)
class Draft:
    """A file as it is to be written: judged by the gate, signed in memory, nothing of it on disk yet.

    ``fresh`` when it is signed anew; ``wrote`` is the line that declares its new version, where that was raised.
    """

    source: SourceFile
    candidate: ItemCandidate
    item: Item
    fresh: bool
    wrote: str = ""

    @property
    def ref(self) -> ItemRef:
        """What is signed."""
        return self.item.ref

    def write(self) -> None:
        """Write the text, if its version was raised, and the signature, if it is new."""
        if self.wrote:
            write_user_file(self.source.path, self.candidate.data, keep_rights=True)
        if self.fresh and self.candidate.side is not None:
            write_user_file(side_path(self.source.path), self.candidate.side)


@dataclass(frozen=True, slots=True)
class Author:
    """Who signs files of a tier: judges each as it would be written, and writes nothing.

    ``principal`` is named in the command that has an unknown key trusted.
    """

    tier: Tier[VectorStore]
    gate: ValidationManager
    key: SigningKey
    known: KnownVersions
    principal: str

    async def drafts(
        self, sources: Sequence[SourceFile], *, bump: str | None = None, force: bool = False
    ) -> tuple[list[Draft], list[Rejected]]:
        """Return what may be written, and the rejections of the rest.

        Parameters
        ----------
        bump
            Raise the version of what is not signed as it is, and of what another content was admitted under; add one
            where there is none.
        force
            Sign again what has a valid signature.

        Raises
        ------
        UsageError
            When a version cannot be raised in place.
        """
        ready, refused = [], []
        for source in sources:
            try:
                ready.append(await self._draft(source, bump, force))
            except Rejected as rejection:
                refused.append(rejection)
        return ready, refused

    async def _draft(self, source: SourceFile, bump: str | None, force: bool) -> Draft:
        candidate = read(source, self.tier, self.gate)
        raised = await self._raised(candidate, bump) if bump else candidate
        item = self.gate.inspect_or_raise(raised, self.tier.policy, self.tier.audit)
        wrote = "" if raised is candidate else _declaration(item, candidate.path)
        if not (wrote or force) and _is_signed(candidate, item, self.gate):
            self._check_other_tiers(candidate, item, await self.known.of(item.ref, fully=False))
            return Draft(source, candidate, item, fresh=False)
        self._check_key(candidate)
        known = await self.known.of(item.ref, fully=True)
        signed = replace(raised, side=statement.side_file(self.key.sign(item, self.gate.audience)))
        self.gate.check(signed, self.tier.policy, known.get(self.tier.name, {}), self.tier.audit)
        self._check_other_tiers(candidate, item, known)
        return Draft(source, signed, item, fresh=True, wrote=wrote)

    async def _raised(self, candidate: ItemCandidate, part: str) -> ItemCandidate:
        """Return the candidate with a higher version where it changed, else as it is; the gate says what is wrong."""
        content = self.gate.inspect(candidate, self.tier.policy)
        item = content.item
        if item is None:
            return candidate
        known = await self.known.of(item.ref, fully=True)
        taken = any(versions.conflicts(item, history) for history in known.values())
        if _is_signed(candidate, item, self.gate) and not taken:
            return candidate
        missing = any(finding.code == "metadata.version-missing" for finding in content.findings)
        if not missing and not semver.Version.is_valid(item.ref.version or ""):
            return candidate
        declared = () if missing else (item.ref.version or "",)
        version = _next_version([*declared, *(v for history in known.values() for v in history)], part, missing)
        change = add_version if missing else with_version
        try:
            data = change(item.ref.item_type, item.content, version).encode()
        except UsageError as error:
            raise UsageError(f"{candidate.path}: {error.message}; nothing was changed", hint=error.hint) from error
        return replace(candidate, data=data)

    def _check_other_tiers(self, candidate: ItemCandidate, item: Item, known: Mapping[str, Mapping[str, str]]) -> None:
        found = versions.check_other_tiers(item, known, candidate.path, self.tier.name)
        if found:
            raise self.gate.reject(candidate.name, found, self.tier.policy, self.tier.audit)

    def _check_key(self, candidate: ItemCandidate) -> None:
        signer = self.gate.trust.by_key.get(self.key.key_id)
        try:
            if signer is None:
                raise UnknownSigner(
                    f"the key {self.key.name!r} (key id {self.key.key_id[:16]}…) is not trusted here",
                    hint=f"kiwi trust add {self.key.public_key.hex()} --principal {shlex.quote(self.principal)}",
                )
            signer.authorise_signing()
        except SignatureRefused as error:
            found = [finding_of(error, candidate.path)]
            raise self.gate.reject(candidate.name, found, self.tier.policy, self.tier.audit) from error


def _next_version(known: Sequence[str], part: str, missing: bool) -> str:
    """Return the version after the highest of `known`; a file that had none begins with 1.0.0."""
    highest = max(map(semver.Version.parse, known), default=None)
    if missing and (highest is None or highest < FIRST):
        return FIRST
    return str(highest.next_version(part)) if highest else FIRST


def _declaration(item: Item, path: str) -> str:
    number, text = version_line(item.ref.item_type, item.content)
    return f"{path}:{number}: {text}"


def write_signature(path: Path, envelope: Envelope) -> None:
    """Write ``<file>.sig``, wholly or not at all."""
    write_user_file(side_path(path), statement.side_file(envelope))


def place_item(ai_dir: Path, envelope: Envelope, *, overwrite: bool = False) -> SourceFile:
    """Write a verified item and its signature where they belong below `ai_dir`, and return the file.

    Raises
    ------
    UsageError, SourceUnreadable
        As `check_place`; or when the folder cannot be written.
    """
    placed, content = check_place(ai_dir, envelope, overwrite=overwrite)
    write_user_file(placed.path, content)
    write_signature(placed.path, envelope)
    return placed


def check_place(ai_dir: Path, envelope: Envelope, *, overwrite: bool = False) -> tuple[SourceFile, bytes]:
    """Return the file that an item would be written to below `ai_dir`, and its bytes; nothing is written.

    Raises
    ------
    UsageError
        When other content stands there and `overwrite` is not set.
    SourceUnreadable
        When a link would lead the write out of `ai_dir`.
    """
    signed = statement.parse(envelope.payload)
    path, content = path_of(ai_dir, signed.ref), signed.content.encode()
    if not path.parent.resolve().is_relative_to(ai_dir.resolve()) or path.is_symlink():
        raise SourceUnreadable(f"{path} leaves {ai_dir} by a link", hint="remove the link")
    if path.exists() and not overwrite and read_source(path, ai_dir) != content:
        raise UsageError(f"{path} holds other content", hint="look at the difference, then use --force")
    return SourceFile(path, signed.ref.item_type, signed.ref.item_id), content


def remove_files(source: SourceFile) -> None:
    """Remove a file and its signature; one that is gone already is no error.

    Raises
    ------
    SourceUnreadable
        When it cannot be removed.
    """
    try:
        if source.path.parent.is_symlink():
            raise SourceUnreadable(f"{source.path.parent} is a link", hint="remove the link")
        source.path.unlink(missing_ok=True)
        side_path(source.path).unlink(missing_ok=True)
    except OSError as error:
        raise SourceUnreadable(f"cannot remove {source.path}: {error.strerror}") from error


async def judge_copy(
    source: SourceFile, of: Tier[VectorStore], to: Tier[VectorStore], gate: ValidationManager, known: KnownVersions
) -> Envelope:
    """Return a file's envelope if the tier `to` would admit a copy; nothing is written.

    Raises
    ------
    Rejected
        When it does not verify, `to` would not admit it, or other content of its version is known anywhere.
    """
    candidate = read(source, of, gate)
    histories = await known.of(ItemRef(candidate.item_type, candidate.item_id), fully=True)
    item = gate.check(candidate, to.policy, histories.get(to.name, {}), to.audit)
    if found := versions.check_other_tiers(item, histories, candidate.path, of.name):
        raise gate.reject(candidate.name, found, to.policy, to.audit)
    return envelope_of(candidate)


def _is_signed(candidate: ItemCandidate, item: Item, gate: ValidationManager) -> bool:
    trust: TrustPolicy = gate.trust
    try:
        signed = verify(envelope_of(candidate), trust).statement
    except SignatureRefused:
        return False
    same = signed.ref == item.ref and signed.content == item.content and signed.registry == gate.audience
    return same and statement.canonical(signed.metadata) == statement.canonical(item.metadata)


def _holds(path: Path, ai_dir: Path) -> bool:
    """Whether `path` is the whole tier, which may well be empty."""
    return path in (ai_dir, ai_dir.parent)


def _below(path: Path, ai_dir: Path, sources: Sequence[SourceFile]) -> Iterator[SourceFile]:
    for source in sources:
        here = source.path.absolute()
        if here == path or path in here.parents:
            yield source
