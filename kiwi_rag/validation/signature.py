"""Steps 7 and 8: the signature, and the authority of whoever made it, as findings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kiwi_rag.errors import MalformedEnvelope, SignatureRefused, Unsigned
from kiwi_rag.model import Envelope, Finding, Item
from kiwi_rag.refs import ItemType
from kiwi_rag.signing import statement
from kiwi_rag.signing.trust import Signer, TrustPolicy, authorised


@dataclass(frozen=True, slots=True)
class Candidate:
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


def envelope_of(candidate: Candidate) -> Envelope:
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


def check(
    candidate: Candidate, item: Item | None, trust: TrustPolicy, audience: str, received_at: datetime | None
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


def _mismatches(candidate: Candidate, item: Item | None, read: statement.Statement, audience: str) -> list[Finding]:
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
