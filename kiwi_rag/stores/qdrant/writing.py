"""Writing one item, so that whoever reads finds the whole old one or the whole new one, whatever breaks off.

Qdrant has no transactions; it has conditional updates, which is enough:

1. Read the item's head: its *turn*, and the generation that counts.
2. Say that a generation is being written, and write its passages, beside those that count.
3. Replace the head by one that names the new generation, *if its turn is still the one that was read*.
4. Read the head again: who replaced it for this turn? If it was another writer, take the passages back and begin anew.
5. Remove the passages of all generations before, and the word that one is being written.

Readers leave out of items that are being written every generation but the head's (`narrowing.unsettled`). A writer that
broke off leaves that word behind: the next write of the item removes what it left, and so does a sweep, which first
takes the turn, so that even a writer that was only slow cannot make a generation count whose passages are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kiwi_rag.errors import StoreBusy
from kiwi_rag.stores.qdrant import layout, points, reading
from kiwi_rag.stores.qdrant.narrowing import equals
from kiwi_rag.stores.qdrant.points import Turn
from kiwi_rag.stores.qdrant.reading import Head

if TYPE_CHECKING:
    from qdrant_client import models

    from kiwi_rag.model import Admission, EmbeddingRecord
    from kiwi_rag.model.refs import ItemRef
    from kiwi_rag.stores.qdrant.collection import Collection

_TRIES = 12
_PASSAGES_AT_ONCE = 100  # some MB as JSON; a server takes 32 MB at once unless it was told otherwise
_TURN_FIELDS = (*reading.TURN_FIELDS, "versions")


async def put(collection: Collection, admission: Admission, records: Sequence[EmbeddingRecord]) -> None:
    """Store an item wholly. Changes nothing when it is there already.

    Raises
    ------
    StoreBusy
        When others keep writing the same item at the same time.
    """
    item, state = layout.item_key(admission.ref), points.state_of(admission, records)
    for _ in range(_TRIES):
        before = await head_of(collection, item)
        if before.state == state and await _is_whole(collection, before):
            return
        turn = Turn(item, before.turn + 1, f"{before.turn + 1}-{state[:32]}")
        versions = _with_version(before.versions, admission)
        head = points.head_point(turn, admission, records, state, versions)
        await _stage(collection, turn, points.passage_points(turn, records), head)
        if await _took(collection, turn):
            return
    raise StoreBusy(f"others keep writing {admission.ref} at the same time", hint="let one machine index a file")


async def remove(collection: Collection, ref: ItemRef) -> bool:
    """Remove an item, if it is there in that version; its versions stay on record."""
    item = layout.item_key(ref)
    for _ in range(_TRIES):
        (found,) = await collection.retrieve([layout.head_id(item)], (*_TURN_FIELDS, "version")) or (None,)
        before = reading.head(found.payload, item) if found else Head(item)
        if not before.generation or (ref.version and found and (found.payload or {}).get("version") != ref.version):
            return False
        turn = Turn(item, before.turn + 1, "")
        await _stage(collection, turn, [], points.gone_point(turn, before.versions))
        if await _took(collection, turn):
            return True
    raise StoreBusy(f"others keep writing {ref} at the same time", hint="let one machine index a file")


async def sweep(collection: Collection, before: datetime) -> int:
    """Remove what writers left behind that began before a time and never ended; return how many writes that were."""
    from qdrant_client import models

    old = models.FieldCondition(key="at", range=models.DatetimeRange(lt=before))
    left = await collection.scroll(models.Filter(must=[equals("kind", "writing"), old]), ("item", "turn"))
    for point in left:
        told = point.payload or {}
        if isinstance(told.get("item"), str) and isinstance(told.get("turn"), int):
            await _clear_away(collection, told["item"], told["turn"], str(point.id))
    return len(left)


async def head_of(collection: Collection, item: str) -> Head:
    """Return an item's head; one of turn 0 where there is none.

    Raises
    ------
    StoreCorrupt
        When it cannot be read.
    """
    found = await collection.retrieve([layout.head_id(item)], _TURN_FIELDS)
    return reading.head(found[0].payload, item) if found else Head(item)


async def _stage(
    collection: Collection, turn: Turn, passages: Sequence[models.PointStruct], head: models.PointStruct
) -> None:
    """Steps 2 and 3: most items take one request, of which a broken connection leaves all or nothing."""
    batches = list(_batches(passages)) or [[]]
    first, last = [_upsert([points.writing_point(turn, datetime.now(UTC))])], [_replace(head, turn.number - 1)]
    for number, batch in enumerate(batches, start=1):
        written = [_upsert(batch)] if batch else []
        await collection.update([*(first if number == 1 else []), *written, *(last if number == len(batches) else [])])


async def _took(collection: Collection, turn: Turn) -> bool:
    """Steps 4 and 5: whether this write's generation is the one that counts now."""
    now = await head_of(collection, turn.item)
    if now.turn < turn.number:
        return False  # a replica that is behind: what was written stays, and the same write is tried again
    ours = (now.turn, now.generation) == (turn.number, turn.generation)
    await collection.update([_cleaning(turn) if ours else _withdrawing(turn)])
    return ours


def _cleaning(turn: Turn) -> models.UpdateOperation:
    """Remove the generations before, and the words that they and this one are being written."""
    from qdrant_client import models

    earlier = models.FieldCondition(key="turn", range=models.Range(lt=turn.number))
    writings = models.Filter(must=[equals("kind", "writing"), earlier])
    return _delete(turn.item, _passages_but(turn.number, turn.generation), writings, _own_word(turn))


def _withdrawing(turn: Turn) -> models.UpdateOperation:
    """Take back a generation that lost its turn. No other write can ever make it count."""
    from qdrant_client import models

    own = models.Filter(must=[equals("kind", "passage"), equals("generation", turn.generation)])
    return _delete(turn.item, own, _own_word(turn))


async def _clear_away(collection: Collection, item: str, number: int, writing: str) -> None:
    now = await head_of(collection, item)
    if now.turn < number:
        await collection.update([_take_turn(now, number)])
        now = await head_of(collection, item)
    if now.turn >= number:
        await collection.update([_delete(item, _passages_but(now.turn, now.generation), _ids(writing))])


def _take_turn(now: Head, number: int) -> models.UpdateOperation:
    """Take an item's turn without changing what counts of it."""
    from qdrant_client import models

    if not now.turn:
        return _replace(points.gone_point(Turn(now.item, number, ""), {}), 0)
    still = models.Filter(must=[_ids(layout.head_id(now.item)), equals("turn", now.turn)])
    return models.SetPayloadOperation(set_payload=models.SetPayload(payload={"turn": number}, filter=still))


async def _is_whole(collection: Collection, head: Head) -> bool:
    from qdrant_client import models

    own = models.Filter(
        must=[equals("item", head.item), equals("kind", "passage"), equals("generation", head.generation)]
    )
    return await collection.count(own) == head.of


def _with_version(versions: Mapping[str, str], admission: Admission) -> dict[str, str]:
    if not admission.ref.version:  # a document has none
        return dict(versions)
    # The first content of a version stays on record for good, whatever comes later under its name.
    return {admission.ref.version: admission.item.content_sha256, **versions}


def _batches(passages: Sequence[models.PointStruct]) -> Iterator[list[models.PointStruct]]:
    for start in range(0, len(passages), _PASSAGES_AT_ONCE):
        yield list(passages[start : start + _PASSAGES_AT_ONCE])


def _upsert(found: list[models.PointStruct]) -> models.UpdateOperation:
    from qdrant_client import models

    return models.UpsertOperation(upsert=models.PointsList(points=found))


def _replace(head: models.PointStruct, turn: int) -> models.UpdateOperation:
    """Replace a head if its turn is still `turn`; where there is none, it is made."""
    from qdrant_client import models

    still = models.Filter(must=[equals("turn", turn)])
    return models.UpsertOperation(upsert=models.PointsList(points=[head], update_filter=still))


def _delete(item: str, *conditions: models.Condition) -> models.UpdateOperation:
    """Remove what of an item meets any of some conditions."""
    from qdrant_client import models

    condition = models.Filter(must=[equals("item", item)], should=list(conditions))
    return models.DeleteOperation(delete=models.FilterSelector(filter=condition))


def _ids(*ids: str) -> models.HasIdCondition:
    from qdrant_client import models

    return models.HasIdCondition(has_id=list(ids))


def _own_word(turn: Turn) -> models.HasIdCondition:
    return _ids(layout.writing_id(turn.item, turn.generation))


def _passages_but(turn: int, generation: str) -> models.Filter:
    """Return the condition for the passages of generations up to a turn, but for one."""
    from qdrant_client import models

    upto = models.FieldCondition(key="turn", range=models.Range(lte=turn))
    return models.Filter(must=[equals("kind", "passage"), upto], must_not=[equals("generation", generation)])
