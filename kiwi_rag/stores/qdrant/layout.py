"""How an index lies in a Qdrant collection: kinds of points, their ids, what is indexed, and which server can do it.

A collection holds four kinds of points, told apart by their payload's ``kind``:

``passage``
    One passage of one *generation* of an item, with two vectors: ``dense``, the model's, and ``words``, its terms.
``head``
    One an item, without vectors: which generation of it counts, its signed envelope, and every version ever admitted.
``gone``
    The head of an item that was deleted: its versions, and its turn.
``writing``
    A write that has begun; it is removed when the passages of the generation before are.

Ids are UUIDs of version 5: of the item for its head; of item, generation and place for a passage. A generation is
named by its *turn* (one more than the head's when the write began) and a digest of all that is written, so that no two
writes with different content ever share a point.
"""

from __future__ import annotations

from uuid import UUID, uuid5

from kiwi_rag.model.refs import ItemRef

SCHEMA = 1
MIN_SERVER = (1, 16)
"""Conditional updates and a collection's own metadata came with Qdrant 1.16; without the first, writers would race."""
DENSE = "dense"
WORDS = "words"
REFERENCE_LENGTH = 100.0
"""The passage length, in terms, that the ``words`` vectors are weighted for; see `kiwi_rag.stores.qdrant.weights`."""

_NAMESPACE = UUID("5f0cbd0f-5c0a-5d0e-9d4e-3f6a1c1b7c11")
_BUCKETS = 8
_KEYWORDS = (
    "kind",
    "item",
    "generation",
    "item_type",
    "item_id",
    "folders",
    "namespace",
    "category",
    "author",
    "tags",
    "principal",
    "key_id",
    "file_type",
    "service",
    "domain",
)
_INTEGERS = ("turn", "length", "of")
_MOMENTS = ("signed_at", "at")


def bucket(term: str) -> str:
    """Return the payload key that `term` is indexed under.

    Terms are spread over a few keys by their first character, so that the vocabulary that a slip of the finger may have
    been meant for is one facet of bounded size: Qdrant can tell a key's values, but not those with a given beginning.
    """
    return f"terms_{ord(term[0]) % _BUCKETS}"


def indexes() -> dict[str, str]:
    """Return payload key → type of its index; all that is filtered, counted or ordered by has one."""
    buckets = {f"terms_{number}": "keyword" for number in range(_BUCKETS)}
    texts = dict.fromkeys(_KEYWORDS, "keyword")
    return texts | dict.fromkeys(_INTEGERS, "integer") | dict.fromkeys(_MOMENTS, "datetime") | buckets


def item_key(ref: ItemRef) -> str:
    """Return the text that names an item whatever its version and spelling."""
    item_type, item_id = ref.key
    return f"{item_type}:{item_id}"


def head_id(item: str) -> str:
    """Return the id of an item's head."""
    return str(uuid5(_NAMESPACE, f"head\0{item}"))


def writing_id(item: str, generation: str) -> str:
    """Return the id of the point that says that a generation is being written."""
    return str(uuid5(_NAMESPACE, f"writing\0{item}\0{generation}"))


def passage_id(item: str, generation: str, place: int) -> str:
    """Return the id of a passage; `place` counts from 0 within the item, in the order of the ordinals."""
    return str(uuid5(_NAMESPACE, f"passage\0{item}\0{generation}\0{place}"))
