"""Out of the index: every hit is verified again before it is shown."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from kiwi_rag.chunking import split
from kiwi_rag.collection import RANKS, Tier
from kiwi_rag.errors import NotFound, Refused, StoreCorrupt, UsageError
from kiwi_rag.formats import parse_item
from kiwi_rag.lexical import K1, bm25_weights
from kiwi_rag.model import Candidate, Candidates, CollectionStatistics, Passage, StoredItem, StoreQuery, sha256_hex
from kiwi_rag.model.refs import ITEM_TYPES, ItemRef, ItemType, check_item_id
from kiwi_rag.signing.statement import digest_of
from kiwi_rag.signing.trust import TrustPolicy, VerifiedPayload, verify
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.telemetry import span
from kiwi_rag.validation.policy import Policy


class HitChanged(Refused):
    """What the index says of an item is not what was signed."""

    code = "changed"


@dataclass(frozen=True, slots=True)
class VerifiedItem:
    """A stored item whose envelope verified just now."""

    stored: StoredItem
    verified: VerifiedPayload


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
    item = parse_item(item_type, item_id, content).item
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


_SLACK = 1e-3
MAX_COUNT = 1 << 53
"""Larger whole numbers are none that a double holds, and no collection has as many passages."""
MAX_CANDIDATES = 20_000
"""Twice the greatest depth, and as many private passages as one owner may reasonably have."""
_WHOLLY = ": nothing of this tier is shown"


def check_statistics(told: CollectionStatistics) -> CollectionStatistics:
    """Return a tier's statistics if a collection can have them.

    Raises
    ------
    StoreCorrupt
        When a number is negative, huge or none, or a term is in more passages than there are.
    """
    frequencies = told.document_frequency.values()
    numbers = (told.passages, told.items, told.total_length, *frequencies)
    if not all(isinstance(number, int) and 0 <= number <= MAX_COUNT for number in numbers):
        raise StoreCorrupt(f"the tier's statistics hold what is no count{_WHOLLY}")
    if any(frequency > told.passages for frequency in frequencies):
        raise StoreCorrupt(f"the tier's statistics count a term in more passages than there are{_WHOLLY}")
    if told.items > told.passages or bool(told.items) != bool(told.passages):
        raise StoreCorrupt(f"the tier's statistics count {told.items} items in {told.passages} passages{_WHOLLY}")
    return told


def check_candidates(told: Candidates, question: StoreQuery, *, comparable: bool = True) -> Candidates:
    """Return a tier's candidates if they can be an answer to `question`.

    Without `comparable` scores, which are only an order, the words leg has no highest score.

    Raises
    ------
    StoreCorrupt
        When there are far more than were asked for, a score is none that its leg can give, or a candidate does not
        have the shape of one.
    """
    if len(told.items) > MAX_CANDIDATES:
        raise StoreCorrupt(
            f"the tier gave {len(told.items)} passages where {question.depth} a leg were asked for{_WHOLLY}"
        )
    highest = (K1 + 1) * sum(bm25_weights(question.statistics, question.terms).values())
    ceiling = highest if comparable else sys.float_info.max / 2
    for candidate in told.items:
        if not _are_scores(candidate, ceiling):
            raise StoreCorrupt(f"the tier gave {candidate.ref} a score that no passage can have{_WHOLLY}")
        if not _is_formed(candidate, candidate.passage):
            raise StoreCorrupt(f"the tier gave a malformed passage of {candidate.ref}{_WHOLLY}")
    return told


def _are_scores(candidate: Candidate, ceiling: float) -> bool:
    item = candidate.item
    cosines = (candidate.cosine, item.best, item.first, item.centroid)
    words = (candidate.bm25, item.best_words, item.words)
    ranged = all(_is_score(c, -1, 1) for c in cosines) and all(_is_score(w, 0, ceiling) for w in words)
    return ranged and candidate.cosine <= item.best + _SLACK and candidate.bm25 <= item.best_words + _SLACK


def _is_score(score: object, low: float, high: float) -> bool:
    """Whether `score` is a number of the range, with room for rounding; a NaN is in none."""
    return isinstance(score, int | float) and low - _SLACK <= score <= high + _SLACK * max(1.0, high)


def _is_formed(candidate: Candidate, passage: Passage) -> bool:
    texts = (candidate.ref.item_id, passage.text, passage.context, *passage.heading)
    numbers = (passage.ordinal, passage.start_line, passage.end_line)
    moment = candidate.signed_at
    timed = isinstance(moment, datetime) and moment.tzinfo is not None
    return timed and all(isinstance(t, str) for t in texts) and all(isinstance(n, int) and n >= 0 for n in numbers)


_ADDRESS = re.compile(r"(?:(?P<type>\w+):)?(?P<id>[^@:]+)(?:@(?P<version>\d[^@:]*))?(?:@(?P<tier>[a-z]+))?(?::\d+)?")


@dataclass(frozen=True, slots=True)
class Address:
    """``[type:]item_id[@version][@tier][:line]``, read; the line is what a search prints, and does not count."""

    item_type: ItemType | None
    item_id: str
    version: str | None
    tier: str | None

    def refs(self) -> list[ItemRef]:
        """Return the references it may mean, one a type."""
        types = [self.item_type] if self.item_type else list(ITEM_TYPES)
        return [ItemRef(t, self.item_id, self.version) for t in types]


def parse_address(text: str) -> Address:
    """Read an address such as ``acme/deploy/staging``, ``script:acme/lag@1.2.0`` or ``acme/slo@registry``.

    Raises
    ------
    UsageError
        When it is none; an illegal id is an `InvalidItemId`.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or (match["tier"] and match["tier"] not in RANKS):
        raise UsageError(f"{text!r} is not an address", hint="[type:]item_id[@version][@project|user|registry]")
    if match["type"] and match["type"] not in ITEM_TYPES:
        raise UsageError(f"there is no item type {match['type']!r}", hint=", ".join(ITEM_TYPES))
    item_type = ItemType(match["type"]) if match["type"] else None
    return Address(item_type, check_item_id(match["id"]), match["version"], match["tier"])


async def find(
    address: Address, tiers: Sequence[Tier[VectorStore]], trust: TrustPolicy, audience: str
) -> tuple[Tier[VectorStore], VerifiedItem]:
    """Return the item an address means, from the first tier that holds it, verified.

    Raises
    ------
    NotFound
        When no asked tier holds it; `Yanked` when a registry took it back.
    UsageError
        When it means several items of that tier.
    Refused
        When it does not verify, or contradicts what a registry said before.
    """
    for tier in tiers:
        # Fully, and before anything is taken: a registry that cannot be asked who was revoked gives nothing.
        look = await tier.witness.check(fully=True) if tier.witness else None
        found = [stored async for stored in _held(address, tier)]
        if len(found) > 1:
            names = ", ".join(f"{stored.ref.item_type}:{stored.ref.item_id}" for _, stored in found)
            raise UsageError(f"{address.item_id} is several items: {names}", hint="put the type in front")
        for ref, stored in found:
            counting = look.apply_revocations(trust) if look else trust
            item = verify_stored(stored, ref, counting, audience, tier.policy)
            if look:
                await look.check_consistency(stored, item.verified.signer.key_id, newest=address.version is None)
                await asyncio.to_thread(look.save)
            return tier, item
        if look:
            for ref in address.refs():
                await look.check_missing(ref)
    asked = ", ".join(tier.name for tier in tiers)
    raise NotFound(f"no item {address.item_id} in {asked or 'any tier'}", hint=f"kiwi search {address.item_id!r}")


async def _held(address: Address, tier: Tier[VectorStore]) -> AsyncIterator[tuple[ItemRef, StoredItem]]:
    for ref in address.refs():
        with span("kiwi.store", tier=tier.name, step="get"):
            stored = await tier.store.get(ref)
        if stored is None and tier.witness:
            stored = await tier.witness.get_yanked(ref)
        if stored is not None:
            yield ref, stored
