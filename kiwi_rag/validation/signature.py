"""Steps 7 to 10: signature, authority of the signer, time of signing, and version, as findings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import semver

from kiwi_rag.errors import MalformedEnvelope, SignatureRefused, Unsigned
from kiwi_rag.model import Envelope, Finding, Item
from kiwi_rag.model.refs import ItemType
from kiwi_rag.signing import statement
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer, TrustPolicy, authorised
from kiwi_rag.validation.policy import Policy


@dataclass(frozen=True, slots=True)
class ItemCandidate:
    """An item that was not admitted yet: its bytes, and its signature as a side file or as an envelope.

    ``path`` and ``tier`` are used in messages only.
    """

    item_type: ItemType
    item_id: str
    data: bytes
    side: bytes | None = None
    envelope: Envelope | None = None
    path: str = ""
    tier: str = ""

    @property
    def name(self) -> str:
        """Type and id, as text."""
        return f"{self.item_type}:{self.item_id}"


def envelope_of(candidate: ItemCandidate) -> Envelope:
    """Return the candidate's envelope; nothing is verified yet.

    Raises
    ------
    Unsigned
        When there is no signature.
    MalformedEnvelope
        When the content is not UTF-8, or the side file is malformed.
    """
    if candidate.envelope is not None:
        return candidate.envelope
    if candidate.side is None:
        raise Unsigned(f"{candidate.path or candidate.name} is not signed", hint=f"kiwi sign {candidate.path}")
    try:
        return statement.envelope_of(candidate.data.decode(), candidate.side)
    except UnicodeDecodeError as error:
        raise MalformedEnvelope("the content is not UTF-8, so no signature over it can be read") from error


@dataclass(frozen=True, slots=True)
class Signed:
    """A verified signature: the result of steps 7 and 8."""

    envelope: Envelope
    signed_at: datetime
    signer: Signer


def check_signature(
    candidate: ItemCandidate, item: Item | None, trust: TrustPolicy, audience: str, received_at: datetime | None
) -> tuple[Signed | None, list[Finding]]:
    """Verify the candidate's signature and its signer's authority.

    Returns
    -------
    The verified signature, or None with the findings that say why it does not count.
    """
    try:
        envelope = envelope_of(candidate)
        signed = statement.parse(envelope.payload)
        signers = trust.signers_of(envelope)
        mismatches = _mismatches(candidate, item, signed, audience)
        signer = authorised(signers, signed, trust.threshold, received_at)
    except SignatureRefused as error:
        return None, [finding_of(error, candidate.path)]
    return (None, mismatches) if mismatches else (Signed(envelope, signed.signed_at, signer), [])


def finding_of(error: SignatureRefused, path: str) -> Finding:
    """Return an exception as a finding, with `path` in its hint in the place of PATH."""
    hint = error.hint.replace("PATH", path) if path else error.hint
    return Finding(f"signature.{error.code}", error.message, path=path, hint=hint)


def _mismatches(
    candidate: ItemCandidate, item: Item | None, signed: statement.Statement, audience: str
) -> list[Finding]:
    found: list[tuple[str, str]] = []
    if (signed.ref.item_type, signed.ref.item_id) != (candidate.item_type, candidate.item_id):
        found.append(("signature.other-item", f"the signature is for {signed.ref}, not for {candidate.name}"))
    if signed.registry != audience:
        found.append(
            ("signature.audience", f"signed for registry {signed.registry!r}; here registry_name is {audience!r}")
        )
    if signed.content.encode() != candidate.data:
        found.append(("signature.content", "the content differs from what was signed"))
    if item is not None and signed.ref.version != item.ref.version:
        found.append(
            ("signature.version", f"signed as version {signed.ref.version}; the file declares {item.ref.version}")
        )
    if item is not None and statement.canonical(signed.metadata) != statement.canonical(item.metadata):
        found.append(("signature.metadata", "the metadata of the file differs from what was signed"))
    hint = f"sign it again: kiwi sign {candidate.path} --force"
    return [Finding(code, message, path=candidate.path, hint=hint) for code, message in found]


def check_time(signed_at: datetime, now: datetime, policy: Policy, path: str) -> list[Finding]:
    """Return a finding if `signed_at` is further in the future than the allowed skew, or too old for the policy."""
    if signed_at - now > policy.max_skew:
        return [
            Finding(
                "time.future",
                f"signed at {format_time(signed_at)}, which is in the future (now {format_time(now)})",
                path=path,
                hint=f"set the clock right, then sign again: kiwi sign {path} --force",
            )
        ]
    if policy.max_age and now - signed_at > policy.max_age:
        return [
            Finding(
                "time.old",
                f"signed at {format_time(signed_at)}, over {policy.max_age.days} days ago",
                path=path,
                hint=f"review it and sign it again: kiwi sign {path} --force",
            )
        ]
    return []


def check_versions(item: Item, history: Mapping[str, str], path: str, tier: str = "") -> list[Finding]:
    """Return a finding if the item's version conflicts with the admitted ones (`history`: version → content sha256).

    `path` and `tier` locate the file for the command in the hint.
    """
    version = item.ref.version or ""
    if conflicts(item, history):
        message = f"version {version} of {item.ref.item_id} was admitted with other content"
        return [Finding("version.immutable", message, path=path, hint=_bump_hint(path, tier))]
    highest = max(history, key=semver.Version.parse, default=None)
    if highest and semver.Version.parse(version) < semver.Version.parse(highest):
        message = f"version {version} is below {highest}, the highest admitted version of {item.ref.item_id}"
        hint = f"choose a version above {highest}; {_bump_hint(path, tier)}"
        return [Finding("version.rollback", message, path=path, hint=hint)]
    return []


def check_other_tiers(item: Item, histories: Mapping[str, Mapping[str, str]], path: str, tier: str) -> list[Finding]:
    """Return a finding for each other tier (by name) that has the item's version with other content."""
    return [
        Finding("version.immutable", _conflict_message(item, other), path=path, hint=_bump_hint(path, tier))
        for other, history in histories.items()
        if conflicts(item, history)
    ]


def _bump_hint(path: str, tier: str) -> str:
    """Return the command that raises the version of the file at `path` in `tier`; without a tier there is no file."""
    if not tier:
        return "its signer has to raise its version"
    where = " --tier user" if tier == "user" else ""
    return f"raise the version: kiwi sign {shlex.quote(path)}{where} --bump patch"


def conflicts(item: Item, history: Mapping[str, str]) -> bool:
    """Return whether other content was admitted under the item's version."""
    return history.get(item.ref.version or "") not in (None, item.content_sha256)


def _conflict_message(item: Item, tier: str) -> str:
    where = "published to the registry" if tier == "registry" else f"admitted to the {tier} tier"
    return f"version {item.ref.version} of {item.ref.item_id} was {where} with other content"
