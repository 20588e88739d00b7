"""Out of the index: every hit is verified again before it is shown."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kiwi_rag.errors import Refused
from kiwi_rag.formats import parse
from kiwi_rag.model import Candidate, Passage, StoredItem, sha256_hex
from kiwi_rag.passages import split
from kiwi_rag.refs import ItemRef
from kiwi_rag.signing.statement import Statement, digest_of
from kiwi_rag.signing.trust import TrustPolicy, Verified, verify
from kiwi_rag.validation.policy import Policy


class HitChanged(Refused):
    """What the index says of an item is not what was signed."""

    code = "changed"


@dataclass(frozen=True, slots=True)
class VerifiedItem:
    """A stored item whose envelope verified just now."""

    stored: StoredItem
    verified: Verified


def verify_stored(stored: StoredItem, ref: ItemRef, trust: TrustPolicy, audience: str, policy: Policy) -> VerifiedItem:
    """Verify what a store gave back for `ref`: signature, signer, audience, identity, digest.

    Raises
    ------
    SignatureRefused
        When the envelope does not verify any more.
    HitChanged
        When the store's columns differ from the signed payload.
    """
    received = stored.admitted_at if policy.received_now else None
    verified = verify(stored.envelope, trust, received)
    signed = verified.statement
    if signed.registry != audience:
        raise HitChanged(f"signed for registry {signed.registry!r}, this one is {audience!r}")
    if signed.ref.key != ref.key or (ref.version and signed.ref.version != ref.version):
        raise HitChanged(f"the index calls it {ref}, but {signed.ref} was signed")
    if stored.digest != digest_of(stored.envelope) or stored.content_sha256 != sha256_hex(signed.content.encode()):
        raise HitChanged("the stored digests are not those of the signed payload")
    return VerifiedItem(stored, verified)


def verified_passage(item: VerifiedItem, candidate: Candidate) -> Passage:
    """Return the candidate's passage as the *signed* content has it; the index's own copy of the text is not trusted.

    A body passage must stand in the signed content at its lines. A summary is composed (a long one makes several
    passages), so what is shown for it is the signed description.

    Raises
    ------
    HitChanged
        When the passage belongs to another version, or its text is not in the signed content.
    """
    signed, passage = item.verified.statement, candidate.passage
    if candidate.digest != item.stored.digest or candidate.ref.version != signed.ref.version:
        raise HitChanged("the passage belongs to another version of the item")
    if passage.ordinal == 0 or not _stands_in(signed.content, passage):
        if passage.ordinal and not _is_summary(signed, passage):
            raise HitChanged("the index shows text that is not in the signed content at these lines")
        return replace(passage, text=str(signed.metadata.get("description") or signed.ref.item_id), context="")
    return passage


def _stands_in(content: str, passage: Passage) -> bool:
    lines = content.splitlines()[max(passage.start_line, 1) - 1 : passage.end_line]
    return _words(passage.text) in _words("\n".join(lines)) and all(h in content for h in passage.heading)


def _is_summary(signed: Statement, passage: Passage) -> bool:
    """Say whether the signed content itself, split again, makes this passage of its summary."""
    item = parse(signed.ref.item_type, signed.ref.item_id, signed.content).item
    if item is None:
        return False
    summary = replace(item, sections=tuple(s for s in item.sections if s.kind == "summary"))
    return any((p.ordinal, p.text) == (passage.ordinal, passage.text) for p in split(summary))


def _words(text: str) -> str:
    return " ".join(text.split())
