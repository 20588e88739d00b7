"""Verification of what stores return: items and passages, the shape of a tier's responses; and the addresses of items.

An index is not trusted. Every hit is verified again before it is shown, and statistics and scores are checked for
bounds, because they influence the ranking before any item is verified.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from kiwi_rag.chunking import split
from kiwi_rag.collection import RANKS, Collection
from kiwi_rag.errors import Refused, StoreCorrupt, UsageError
from kiwi_rag.formats import parse_item
from kiwi_rag.lexical import K1, bm25_weights
from kiwi_rag.model import (
    ITEM_TYPES,
    Candidate,
    Candidates,
    CollectionStatistics,
    ItemRef,
    ItemType,
    Passage,
    StoredItem,
    StoreQuery,
    check_item_id,
    sha256_hex,
)
from kiwi_rag.signing.statement import digest_of, passage_digest
from kiwi_rag.signing.trust import Signer, TrustPolicy, VerifiedPayload, verify, verify_index


class HitChanged(Refused, code="changed"):
    """The index's columns for an item differ from what was signed."""


@dataclass(frozen=True, slots=True)
class VerifiedItem:
    """A stored item or document whose envelope verified just now, with the statement that was signed, and by whom."""

    stored: StoredItem
    signed: Any
    signer: Signer

    @property
    def content(self) -> str:
        """The text of an item's main file, where it was fetched."""
        return self.stored.files[self.signed.main].decode()


def verify_stored(stored: StoredItem, ref: ItemRef, trust: TrustPolicy, tier: Collection) -> VerifiedItem:
    """Verify what a tier's store returned for `ref`: signature, signer, audience, identity, digests, and its files.

    A document must be signed for the tier's workspace.

    Raises
    ------
    SignatureRefused
        When the envelope does not verify now.
    HitChanged
        When the store's columns or files differ from the signed statement.
    """
    if stored.problem:
        raise HitChanged(stored.problem)
    received = stored.admitted_at if tier.policy.received_now else None
    is_document = ref.item_type is ItemType.DOCUMENT
    verified: VerifiedPayload[Any] = (verify_index if is_document else verify)(stored.envelope, trust, received)
    signed = verified.statement
    if signed.registry != tier.audience:
        message = f"signed for registry {signed.registry!r}, and registry_name is {tier.audience!r} here"
        raise HitChanged(message, hint=f"is registry_name right? KIWI_REGISTRY_NAME={signed.registry}")
    if is_document:
        is_other = (signed.collection, signed.path) != (tier.workspace, ref.item_id)
    else:
        is_other = signed.ref.key != ref.key or bool(ref.version and signed.ref.version != ref.version)
    if is_other:
        raise HitChanged(f"the index calls it {ref}, but {signed.ref} was signed")
    if stored.digest != digest_of(stored.envelope) or stored.content_sha256 != signed.content_sha256:
        raise HitChanged("the stored digests are not those of the signed payload")
    if any(signed.digests.get(name) != sha256_hex(data) for name, data in stored.files.items()):
        raise HitChanged("a stored file is not the one that was signed")
    return VerifiedItem(stored, signed, verified.signer)


def verify_passage(item: VerifiedItem, candidate: Candidate) -> Passage:
    """Return the candidate's passage if it was signed; the index's copy of the text is not trusted.

    Raises
    ------
    HitChanged
        When the passage belongs to another version, or its text was not signed.
    """
    if candidate.ref.item_type is not ItemType.DOCUMENT:
        return _verify_item_passage(item, candidate)
    signed, passage = item.signed, candidate.passage
    if not 0 <= passage.ordinal < len(signed.passages) or signed.passages[passage.ordinal] != passage_digest(passage):
        raise HitChanged(f"the index has text of {signed.path} that was not signed")
    return passage


def _verify_item_passage(item: VerifiedItem, candidate: Candidate) -> Passage:
    """Return an item's passage from the *signed* file that it names.

    It must be one that the chunker makes of that file, or equal the file at its lines. A summary is composed from
    metadata (a long one makes several passages), so the signed description is shown for it.
    """
    signed, passage = item.signed, candidate.passage
    if candidate.digest != item.stored.digest or candidate.ref.version != signed.ref.version:
        raise HitChanged("the passage belongs to another version of the item")
    files = item.stored.files
    for name in (signed.main, passage.file or signed.main):
        if name not in files:
            raise HitChanged(f"the store has no file {name} of the item")
    content = files[passage.file or signed.main].decode("utf-8", "replace")
    other = (passage.file, content) if passage.file else ("", "")
    summaries, passages = _signed_passages(signed.ref, signed.given, item.content, *other)
    if not passage.file and (passage.ordinal == 0 or any(_same(passage, p) for p in passages[:summaries])):
        about = str(signed.metadata.get("description") or signed.ref.item_id)
        summary = replace(passages[0], ordinal=passage.ordinal) if passages else passage
        return replace(summary, text=about, context="")
    found = next((p for p in passages if _same(passage, p)), None) or _whole_lines(content, passage)
    if found is None:
        raise HitChanged("the index has text that is not in the signed content at these lines")
    return found


@lru_cache(maxsize=256)
def _signed_passages(
    ref: ItemRef, given: tuple[tuple[str, Any], ...], main: str, file: str, content: str
) -> tuple[int, tuple[Passage, ...]]:
    """Return how many of an item's passages are of its summary, which come first, and all passages.

    They are those of its main file, and of another `file` of its folder where that has a name.
    """
    files = {ref.main_file: main.encode()} | ({file: content.encode()} if file else {})
    item = parse_item(ref.item_type, ref.item_id, main, files=files, given=given).item
    if item is None:
        return 0, ()
    summary = replace(item, sections=tuple(s for s in item.sections if s.kind == "summary"))
    return len(split(summary)), split(item)


def _same(indexed: Passage, signed: Passage) -> bool:
    """Whether the index's passage is this one. The context is not compared: the signed passage's replaces it."""
    names = ("text", "heading", "start_line", "end_line", "file")
    return all(getattr(indexed, name) == getattr(signed, name) for name in names)


def _whole_lines(content: str, passage: Passage) -> Passage | None:
    """Return a passage that another version of Kiwi split, if it consists of whole signed lines.

    Whole lines, because a part of a line may state the opposite ("never" left out). The heading is dropped: it was not
    compared with the signed structure.
    """
    start, end = passage.start_line, passage.end_line
    lines = content.splitlines()[start - 1 : end] if 1 <= start <= end else []
    same = bool(passage.text.split()) and passage.text.split() == "\n".join(lines).split()
    same = same and all(heading in content for heading in passage.heading)
    return replace(passage, heading=(), context="") if same else None


_SLACK = 1e-3  # what rounding to single precision may add to a score
MAX_COUNT = 1 << 53
"""The largest integer that a double holds exactly; no collection has as many passages."""
MAX_CANDIDATES = 20_000
"""Far above twice the greatest depth, with room for as many private passages as one owner may have."""
_TIER_IGNORED = "; nothing of this tier is shown"


def check_statistics(statistics: CollectionStatistics) -> CollectionStatistics:
    """Return a tier's statistics if they are possible for a collection.

    Raises
    ------
    StoreCorrupt
        When a count is negative, too large or no integer, or a term is in more passages than there are.
    """
    frequencies, passages, items = statistics.document_frequency.values(), statistics.passages, statistics.items
    numbers = (passages, items, statistics.total_length, statistics.unembedded, *frequencies)
    if not all(isinstance(number, int) and 0 <= number <= MAX_COUNT for number in numbers):
        raise StoreCorrupt(f"the tier's statistics contain a value that is no count{_TIER_IGNORED}")
    if any(number > passages for number in (statistics.unembedded, *frequencies)):
        raise StoreCorrupt(f"the tier's statistics count a term in more passages than there are{_TIER_IGNORED}")
    if items > passages or bool(items) != bool(passages):
        raise StoreCorrupt(f"the tier's statistics count {items} items in {passages} passages{_TIER_IGNORED}")
    return statistics


def check_candidates(candidates: Candidates, query: StoreQuery, *, comparable: bool = True) -> Candidates:
    """Return a tier's candidates if they are a possible answer to `query`.

    Without `comparable` scores, which are only an order, the lexical leg has no highest score.

    Raises
    ------
    StoreCorrupt
        When there are far more than requested, a score is outside of its leg's range, or a candidate is malformed.
    """
    if len(candidates.items) > MAX_CANDIDATES:
        returned = f"the tier returned {len(candidates.items)} passages, and {query.depth} a leg were requested"
        raise StoreCorrupt(f"{returned}{_TIER_IGNORED}")
    # BM25 saturates: a term contributes less than idf · (k1 + 1), however often it occurs.
    highest = (K1 + 1) * sum(bm25_weights(query.statistics, query.terms).values())
    ceiling = highest if comparable else sys.float_info.max / 2
    for candidate in candidates.items:
        if not _are_scores(candidate, ceiling):
            raise StoreCorrupt(f"the tier returned an impossible score of {candidate.ref}{_TIER_IGNORED}")
        if not _is_formed(candidate, candidate.passage):
            raise StoreCorrupt(f"the tier returned a malformed passage of {candidate.ref}{_TIER_IGNORED}")
    return candidates


def _are_scores(candidate: Candidate, ceiling: float) -> bool:
    item = candidate.item
    cosines = (candidate.cosine, item.best, item.first, item.centroid)
    words = (candidate.bm25, item.best_words, item.words)
    in_range = all(_is_score(c, -1, 1) for c in cosines) and all(_is_score(w, 0, ceiling) for w in words)
    return in_range and candidate.cosine <= item.best + _SLACK and candidate.bm25 <= item.best_words + _SLACK


def _is_score(score: object, low: float, high: float) -> bool:
    """Whether `score` is a number in the range, allowing for rounding; NaN is in no range."""
    return isinstance(score, int | float) and low - _SLACK <= score <= high + _SLACK * max(1.0, high)


def _is_formed(candidate: Candidate, passage: Passage) -> bool:
    texts = (candidate.ref.item_id, passage.text, passage.context, passage.file, *passage.heading)
    numbers = (passage.ordinal, passage.start_line, passage.end_line)
    signed_at = candidate.signed_at
    has_time = isinstance(signed_at, datetime) and signed_at.tzinfo is not None
    return has_time and all(isinstance(t, str) for t in texts) and all(isinstance(n, int) and n >= 0 for n in numbers)


_ADDRESS = re.compile(r"(?:(?P<type>\w+):)?(?P<id>[^@:]+)(?:@(?P<version>\d[^@:]*))?(?:@(?P<tier>[a-z]+))?(?::\d+)?")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed ``[type:]item_id[@version][@tier][:line]``. The line, which search results print, is ignored."""

    item_type: ItemType | None
    item_id: str
    version: str | None
    tier: str | None

    def refs(self) -> list[ItemRef]:
        """Return the possible references, one for each type."""
        types = [self.item_type] if self.item_type else list(ITEM_TYPES)
        return [ItemRef(t, self.item_id, self.version) for t in types]


def parse_address(text: str) -> Address:
    """Parse an address such as ``acme/deploy/staging``, ``script:acme/lag@1.2.0`` or ``acme/slo@registry``.

    Raises
    ------
    UsageError
        When it is malformed; for an illegal id an `InvalidItemId`.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or (match["tier"] and match["tier"] not in RANKS):
        raise UsageError(f"{text!r} is not an address", hint="[type:]item_id[@version][@project|user|registry]")
    if match["type"] and match["type"] not in ITEM_TYPES:
        raise UsageError(f"there is no item type {match['type']!r}", hint=", ".join(ITEM_TYPES))
    item_type = ItemType(match["type"]) if match["type"] else None
    return Address(item_type, check_item_id(match["id"]), match["version"], match["tier"])


def only_one(found: Sequence[ItemRef], text: str) -> ItemRef | None:
    """Return the item that was found at an address, None where none was.

    Raises
    ------
    UsageError
        When the address matches several.
    """
    if len(found) > 1:
        raise UsageError(f"{text} is several items: {', '.join(map(str, found))}", hint="put the type in front")
    return found[0] if found else None


def require_files(item: VerifiedItem) -> VerifiedItem:
    """Return a verified item if all of its files were fetched.

    Raises
    ------
    HitChanged
        When the store lacks one.
    """
    missing = sorted(item.signed.digests.keys() - item.stored.files.keys())
    if missing:
        raise HitChanged(f"the store has no file {missing[0]} of the item")
    return item
