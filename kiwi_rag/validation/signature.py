"""Steps 7 and 8: the signature, and the authority of whoever made it, as findings."""

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
    """Something that wants in: an item's bytes, and its signature as a side file or as a whole envelope.

    ``path`` and ``tier``, which say where a file is, are only for messages.
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
        When there is none.
    MalformedEnvelope
        When the bytes or the side file cannot make one.
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
    """What steps 7 and 8 established."""

    envelope: Envelope
    signed_at: datetime
    signer: Signer


def check_signature(
    candidate: ItemCandidate, item: Item | None, trust: TrustPolicy, audience: str, received_at: datetime | None
) -> tuple[Signed | None, list[Finding]]:
    """Verify the candidate's signature and its signer's authority.

    Returns
    -------
    What was established, or None with the findings that say why not.
    """
    try:
        envelope = envelope_of(candidate)
        read = statement.parse(envelope.payload)
        signers = trust.who_signed(envelope)
        mismatches = _mismatches(candidate, item, read, audience)
        signer = authorised(signers, read, trust.threshold, received_at)
    except SignatureRefused as error:
        return None, [finding_of(error, candidate.path)]
    return (None, mismatches) if mismatches else (Signed(envelope, read.signed_at, signer), [])


def finding_of(error: SignatureRefused, path: str) -> Finding:
    """Return a refusal as a finding; its hint names `path` where it says PATH."""
    hint = error.hint.replace("PATH", path) if path else error.hint
    return Finding(f"signature.{error.code}", error.message, path=path, hint=hint)


def _mismatches(candidate: ItemCandidate, item: Item | None, read: statement.Statement, audience: str) -> list[Finding]:
    found: list[tuple[str, str]] = []
    if (read.ref.item_type, read.ref.item_id) != (candidate.item_type, candidate.item_id):
        found.append(("signature.other-item", f"the signature is for {read.ref}, not for {candidate.name}"))
    if read.registry != audience:
        found.append(
            ("signature.audience", f"signed for registry {read.registry!r}, and registry_name is {audience!r} here")
        )
    if read.content.encode() != candidate.data:
        found.append(("signature.content", "the signed content is not the content at hand"))
    if item is not None and read.ref.version != item.ref.version:
        found.append(("signature.version", f"signed as version {read.ref.version}, the file says {item.ref.version}"))
    if item is not None and statement.canonical(read.metadata) != statement.canonical(item.metadata):
        found.append(("signature.metadata", "the signed metadata is not what the content says"))
    hint = f"sign it again: kiwi sign {candidate.path} --force"
    return [Finding(code, message, path=candidate.path, hint=hint) for code, message in found]


def check_time(signed_at: datetime, now: datetime, policy: Policy, path: str) -> list[Finding]:
    """Return what is wrong with `signed_at`: in the future beyond the allowed skew, or too old for this policy."""
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
    """Return what is wrong with the item's version against what was admitted before (version → content sha256).

    `path` and `tier` say where its file is, for the command that raises the version.
    """
    version = item.ref.version or ""
    if conflicts(item, history):
        message = f"version {version} of {item.ref.item_id} was admitted with other content"
        return [Finding("version.immutable", message, path=path, hint=_way_out(path, tier))]
    highest = max(history, key=semver.Version.parse, default=None)
    if highest and semver.Version.parse(version) < semver.Version.parse(highest):
        message = f"version {version} is below {highest}, the highest seen of {item.ref.item_id}"
        hint = f"choose a version above {highest}; {_way_out(path, tier)}"
        return [Finding("version.rollback", message, path=path, hint=hint)]
    return []


def check_others(item: Item, histories: Mapping[str, Mapping[str, str]], path: str, tier: str) -> list[Finding]:
    """Return a finding for each other tier (by name) that has the item's version with other content."""
    return [
        Finding("version.immutable", _elsewhere(item, other), path=path, hint=_way_out(path, tier))
        for other, history in histories.items()
        if conflicts(item, history)
    ]


def _way_out(path: str, tier: str) -> str:
    """Return the command that raises the version of the file at `path` in `tier`, or who else has to."""
    if not tier:
        return "whoever signs it has to raise its version"
    where = " --tier user" if tier == "user" else ""
    return f"raise the version: kiwi sign {shlex.quote(path)}{where} --bump patch"


def conflicts(item: Item, history: Mapping[str, str]) -> bool:
    """Say whether other content was admitted under the item's version."""
    return history.get(item.ref.version or "") not in (None, item.content_sha256)


def _elsewhere(item: Item, tier: str) -> str:
    done = "published to the registry" if tier == "registry" else f"admitted to the {tier} tier"
    return f"version {item.ref.version} of {item.ref.item_id} was {done} with other content"
