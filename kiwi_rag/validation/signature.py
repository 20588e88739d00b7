"""Steps 7 to 10: signature, authority of the signer, time of signing, and version, as findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import semver

from kiwi_rag.errors import SignatureRefused, Unsigned
from kiwi_rag.formats.knowledge import DEFAULT_VERSION
from kiwi_rag.formats.source import ItemCandidate
from kiwi_rag.model import Document, Envelope, Finding, Item, Passage
from kiwi_rag.signing import statement
from kiwi_rag.signing.statement import IndexStatement, ItemStatement, format_time, passage_digest
from kiwi_rag.signing.trust import TrustPolicy, VerifiedPayload, verify, verify_index
from kiwi_rag.system import differing_executables
from kiwi_rag.validation.admission import Policy
from kiwi_rag.validation.checks import MAX_FINDINGS

MAX_SKEW = timedelta(minutes=5)
"""How far in the future a time of signing may be."""
EDITED = frozenset({
    "signature.content", "signature.unlisted-file", "signature.missing-file", "signature.executables",
})  # fmt: skip
"""Codes of files that are not those that were signed."""


def envelope_of(candidate: ItemCandidate) -> Envelope:
    """Return the candidate's envelope; nothing is verified yet.

    Raises
    ------
    SignatureRefused
        One of its subclasses: there is no signature, or its file is malformed, or was written by a pre-release Kiwi.
    """
    if candidate.envelope is not None:
        return candidate.envelope
    if candidate.signature is None:
        raise Unsigned(f"{candidate.path or candidate.ref} is not signed", hint=f"kiwi sign {candidate.path}")
    return statement.read_signature_file(candidate.signature)


def given_values(candidate: ItemCandidate) -> tuple[tuple[str, Any], ...]:
    """Return what the candidate's statement says about metadata that its files do not declare; nothing is verified.

    Step 7 compares the item's metadata with the same statement after it is verified, so a forged one is refused there.
    """
    try:
        signed = statement.parse_item(envelope_of(candidate).payload)
    except SignatureRefused:
        return ()
    undeclared = ("version", DEFAULT_VERSION)  # of a file without a version, whose signer chose none
    named = replace(signed.ref, version=None)
    return tuple(value for value in signed.given if value != undeclared) if named == candidate.ref else ()


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """Steps 7 to 9: verifies signatures, the signers' authority and the time, and compares statements with contents.

    Each method returns the verified statement, or None with the findings that say why it does not count; and the
    findings about its time.
    """

    trust: TrustPolicy
    audience: str
    policy: Policy
    now: datetime

    def check_item(
        self, candidate: ItemCandidate, item: Item | None
    ) -> tuple[VerifiedPayload[ItemStatement] | None, list[Finding]]:
        """Check the signature of an item; it is None if steps 0 and 1 could not read it."""
        try:  # 7. Signature and 8. Authority
            signed = verify(envelope_of(candidate), self.trust, self._received_at)
            mismatches = list(_item_mismatches(candidate, item, signed.statement, self.audience))
        except SignatureRefused as error:
            return None, [finding_of(error, candidate.path)]
        if mismatches:
            edited, sign = any(code in EDITED for code, _ in mismatches), f"kiwi sign {candidate.path}"
            hint = f"if you edited it: {sign} --bump patch" if edited else f"sign it again: {sign} --force"
            shown = mismatches[:MAX_FINDINGS]
            return None, [Finding(code, message, path=candidate.path, hint=hint) for code, message in shown]
        return signed, self._check_time(signed.statement.signed_at, candidate.path)

    def check_document(
        self, document: Document, passages: Sequence[Passage], envelope: Envelope
    ) -> tuple[VerifiedPayload[IndexStatement] | None, list[Finding]]:
        """Check the signature of a document that was split into `passages`."""
        try:  # 7. Signature and 8. Authority
            signed = verify_index(envelope, self.trust, self._received_at)
        except SignatureRefused as error:
            return None, [finding_of(error, document.path)]
        mismatches = _document_mismatches(document, passages, signed.statement, self.audience)
        hint = "index it again: kiwi workspace index"
        found = [Finding(code, message, path=document.path, hint=hint) for code, message in mismatches]
        return (None, found) if found else (signed, self._check_time(signed.statement.signed_at, document.path))

    @property
    def _received_at(self) -> datetime | None:
        """The time by which a retired key is judged; None for the time that the statement claims."""
        return self.now if self.policy.received_now else None

    def _check_time(self, signed_at: datetime, path: str) -> list[Finding]:
        # 9. Time
        at, again = f"signed at {format_time(signed_at)}", f"sign it again: kiwi sign {path} --force"
        if signed_at - self.now > MAX_SKEW:
            message = f"{at}, which is in the future (now {format_time(self.now)})"
            return [Finding("time.future", message, path=path, hint=f"set the clock right, then {again}")]
        if self.policy.max_age and self.now - signed_at > self.policy.max_age:
            message = f"{at}, over {self.policy.max_age.days} days ago"
            return [Finding("time.old", message, path=path, hint=f"review it and {again}")]
        return []


def finding_of(error: SignatureRefused, path: str) -> Finding:
    """Return an exception as a finding, with `path` in its hint in the place of PATH."""
    hint = error.hint.replace("PATH", path) if path else error.hint
    return Finding(f"signature.{error.code}", error.message, path=path, hint=hint)


def _item_mismatches(
    candidate: ItemCandidate, item: Item | None, signed: ItemStatement, audience: str
) -> Iterator[tuple[str, str]]:
    if replace(signed.ref, version=None) != candidate.ref:
        yield "signature.other-item", f"the signature is for {signed.ref}, not for {candidate.ref}"
    if signed.registry != audience:
        yield "signature.audience", f"signed for registry {signed.registry!r}; here registry_name is {audience!r}"
    mismatches = list(_file_mismatches(candidate, signed))
    yield from mismatches
    if item is None or mismatches:  # other files have other metadata
        return
    if signed.ref.version != item.ref.version:
        yield "signature.version", f"signed as version {signed.ref.version}; the file declares {item.ref.version}"
    if statement.canonical(signed.metadata) != statement.canonical(item.metadata):
        yield "signature.metadata", "the metadata of the file differs from what was signed"


def _file_mismatches(candidate: ItemCandidate, signed: ItemStatement) -> Iterator[tuple[str, str]]:
    digests, is_folder = candidate.digests, candidate.item_type.is_folder
    if signed.main != candidate.main:
        yield "signature.main", f"the signed main file is {signed.main}, not {candidate.main}"
    for name in sorted(digests.keys() | signed.digests.keys()):
        if name not in signed.digests:
            yield "signature.unlisted-file", f"{name} is not among the signed files"
        elif name not in digests:
            yield "signature.missing-file", f"{name} was signed and is missing"
        elif digests[name] != signed.digests[name]:
            yield "signature.content", f"the content{f' of {name}' * is_folder} differs from what was signed"
    for name in sorted(differing_executables(candidate.executables, signed.executables)):
        now, then = ("is", "was not") if name in candidate.executables else ("is not", "was")
        yield "signature.executables", f"{name} {now} executable and {then} when it was signed"


def _document_mismatches(
    document: Document, passages: Sequence[Passage], signed: IndexStatement, audience: str
) -> Iterator[tuple[str, str]]:
    """Yield a code and a message for each part of a verified statement that differs from the document."""
    parts = (
        ("signature.audience", "registry", signed.registry, audience),
        ("signature.other-item", "path", signed.path, document.path),
        ("signature.content", "content", dict(signed.digests), dict(document.digests)),
        ("signature.metadata", "metadata", dict(signed.metadata), dict(document.metadata)),
        ("signature.passages", "passages", signed.passages, tuple(map(passage_digest, passages))),
    )
    for code, part, signed_value, value in parts:
        if signed_value != value:
            yield code, f"the signed {part} differs from that of the document"


def check_versions(item: Item, history: Mapping[str, str], holder: str, path: str, tier: str = "") -> list[Finding]:
    """Return a finding if the item's version conflicts with those that the tier `holder` admitted.

    `history` is version → content sha256; `path` and `tier` locate the file for the command in the hint.
    """
    if conflicts(item, history):
        return [_conflict(item, holder, path, tier)]
    if is_rollback(item, history):
        version, highest = item.ref.version or "", max(history, key=semver.Version.parse)
        message = f"version {version} is below {highest}, the highest admitted version of {item.ref.item_id}"
        hint = f"choose a version above {highest}; {_bump_hint(path, tier)}"
        if version in history:  # with this content: `conflicts` was false
            message += f"; the content is that of {version}, which was admitted earlier"
            hint = f"to bring the older content back, {_bump_hint(path, tier)}" if tier else _bump_hint(path, tier)
        return [Finding("version.rollback", message, path=path, hint=hint)]
    return []


def check_other_tiers(item: Item, histories: Mapping[str, Mapping[str, str]], path: str, tier: str) -> list[Finding]:
    """Return a finding for each other tier (by name) that has the item's version with other content."""
    return [_conflict(item, other, path, tier) for other, history in histories.items() if conflicts(item, history)]


def _conflict(item: Item, holder: str, path: str, tier: str) -> Finding:
    place = "published to the registry" if holder == "registry" else f"admitted to the {holder} tier"
    message = f"version {item.ref.version} of {item.ref.item_id} was {place} with other content"
    return Finding("version.immutable", message, path=path, hint=_bump_hint(path, tier))


def _bump_hint(path: str, tier: str) -> str:
    """Return the command that raises the version of the file at `path` in `tier`; without a tier there is no file."""
    if not tier:
        return "its signer has to raise its version"
    where = " --tier user" if tier == "user" else ""
    return f"raise the version: kiwi sign {shlex.quote(path)}{where} --bump patch"


def is_rollback(item: Item, history: Mapping[str, str]) -> bool:
    """Return whether the item's version, a valid one, is below the highest that was admitted."""
    own = semver.Version.parse(item.ref.version or "")
    return any(own < semver.Version.parse(version) for version in history)


def conflicts(item: Item, history: Mapping[str, str]) -> bool:
    """Return whether other content was admitted under the item's version."""
    return history.get(item.ref.version or "") not in (None, item.content_sha256)
