"""Out of the index: every hit is verified again before it is shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from kiwi_rag.chunking import split
from kiwi_rag.errors import Refused
from kiwi_rag.formats import parse
from kiwi_rag.model import Candidate, Passage, StoredItem, sha256_hex
from kiwi_rag.refs import ItemRef, ItemType
from kiwi_rag.signing.statement import digest_of
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
    if stored.problem:
        raise HitChanged(stored.problem)
    received = stored.admitted_at if policy.received_now else None
    verified = verify(stored.envelope, trust, received)
    signed = verified.statement
    if signed.registry != audience:
        hint = f"is registry_name right? KIWI_REGISTRY_NAME={signed.registry}"
        raise HitChanged(f"signed for registry {signed.registry!r}, and registry_name is {audience!r} here", hint=hint)
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
    summaries, passages = _signed_passages(signed.ref.item_type, signed.ref.item_id, signed.content)
    if passage.ordinal == 0 or any(_same(passage, p) for p in passages[:summaries]):
        about = str(signed.metadata.get("description") or signed.ref.item_id)
        summary = replace(passages[0], ordinal=passage.ordinal) if passages else passage
        return replace(summary, text=about, context="")
    own = next((p for p in passages if _same(passage, p)), None) or _whole_lines(signed.content, passage)
    if own is None:
        raise HitChanged("the index shows text that is not in the signed content at these lines")
    return own


@lru_cache(maxsize=256)
def _signed_passages(item_type: ItemType, item_id: str, content: str) -> tuple[int, tuple[Passage, ...]]:
    """Return how many passages signed content makes of its summary, which come first, and all that it makes."""
    item = parse(item_type, item_id, content).item
    if item is None:
        return 0, ()
    summary = replace(item, sections=tuple(s for s in item.sections if s.kind == "summary"))
    return len(split(summary)), split(item)


def _same(shown: Passage, own: Passage) -> bool:
    """Whether the index's passage is this one; the context, made for the model, is not compared but replaced."""
    names = ("text", "heading", "start_line", "end_line")
    return all(getattr(shown, name) == getattr(own, name) for name in names)


def _whole_lines(content: str, passage: Passage) -> Passage | None:
    """Return a passage that another version of Kiwi cut, if it is whole signed lines: half of one may say the opposite.

    What the index says of its headings is not shown.
    """
    start, end = passage.start_line, passage.end_line
    lines = content.splitlines()[start - 1 : end] if 1 <= start <= end else []
    same = bool(passage.text.split()) and passage.text.split() == "\n".join(lines).split()
    same = same and all(heading in content for heading in passage.heading)
    return replace(passage, heading=(), context="") if same else None
