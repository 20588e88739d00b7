"""From a file to a signed file: checked by the gate, signed in memory, then written; and copies between tiers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import semver

from kiwi_rag.collection import Collection
from kiwi_rag.errors import EmbeddingError, RegistryError, Rejected, SignatureRefused, UnknownSigner, UsageError
from kiwi_rag.formats.bump import FIRST, add_version, next_version, version_line, with_version
from kiwi_rag.formats.source import ItemCandidate, SourceFile, signature_path
from kiwi_rag.model import Finding, Item, ItemRef
from kiwi_rag.registry.calls import time_limit
from kiwi_rag.signing import statement
from kiwi_rag.signing.keys import SigningKey
from kiwi_rag.signing.statement import ItemStatement
from kiwi_rag.signing.trust import verify
from kiwi_rag.sources.source import read
from kiwi_rag.storage.atomic import write_user_files
from kiwi_rag.validation import signature as versions
from kiwi_rag.validation.manager import ValidationManager
from kiwi_rag.validation.signature import envelope_of, finding_of

if TYPE_CHECKING:
    from kiwi_rag.services import Services

HISTORY_SECONDS = 5.0
"""Seconds to wait for a registry's answer when a file is signed; publishing compares the versions again."""


class VersionHistories:
    """The versions of an item that each of several tiers ever had.

    A registry that fails or does not answer in time is not queried again: ``registry_problem`` says what happened, and
    is empty otherwise.
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
            consequence = "its versions were not compared with these files, kiwi publish does it"
            self.registry_problem = f"{error.message}; {consequence}"
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
        candidate = self._trusted(read(source, self.tier, self.gate), force)
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

    def _trusted(self, candidate: ItemCandidate, force: bool) -> ItemCandidate:
        """Return the candidate, without a signature that does not verify; `force` replaces an unknown signer's."""
        try:
            envelope = envelope_of(candidate)
            verify(envelope, self.gate.trust)
        except UnknownSigner as error:
            if not force and self.key.key_id not in dict(envelope.signatures):
                own = f"to replace the signature by yours: kiwi sign {shlex.quote(candidate.path)} --force"
                found = replace(finding_of(error, candidate.path), hint=f"{error.hint}; {own}")
                raise self._reject(candidate, [found]) from error
        except SignatureRefused:
            pass  # such a signature has to be replaced
        else:
            return candidate
        return replace(candidate, signature=None)  # none of its values may be signed again

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
        known = [version for history in contents.values() for version in history]
        version = next_version([*known, *(() if missing else [item.ref.version or ""])], part)
        if missing:
            version = max(version, FIRST, key=semver.Version.parse)
        if not missing and is_version_missing(self.gate.inspect(replace(candidate, signature=None)).findings):
            given = dict(versions.given_values(candidate)) | {"version": version}
            return replace(candidate, given=tuple(given.items()))
        change = add_version if missing else with_version
        try:
            data = change(item.ref.item_type, item.content, version).encode()
        except UsageError as error:
            raise UsageError(f"{candidate.path}: {error.message}; nothing was changed", hint=error.hint) from error
        return replace(candidate, files={**candidate.files, candidate.main: data})

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


def _declaration(item: Item, path: str) -> str:
    number, text = version_line(item.ref.item_type, item.content)
    return f"{path}:{number}: {text}"


async def check_copy(
    source: SourceFile, of: Collection, to: Collection, gate: ValidationManager, histories: VersionHistories
) -> ItemCandidate:
    """Return a file's item if the tier `to` would admit a copy; nothing is written.

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
    return candidate
