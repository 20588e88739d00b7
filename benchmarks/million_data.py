"""A registry of any size for the benchmarks: clustered vectors, texts after Zipf's law, really signed items.

Rows go straight into the tables by COPY, as the owner of the database, past the gate and past the check of each
signature (25 ms each, as ``sql_signature`` measures). Everything else is as an indexer leaves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg

from benchmarks.data import TOPICS, clustered, vocabulary, zipf
from kiwi_rag.lexical import terms
from kiwi_rag.model import Item, Section
from kiwi_rag.model.refs import ItemRef, ItemType
from tests.conformance.items import FINGERPRINT, KEY, REGISTRY, SIGNED

PER_ITEM = 10
WORDS = 40
STEP = 10_000
VOCABULARY = 50_000
_LETTERS = vocabulary(VOCABULARY)
_TERMS = [terms(word) for word in _LETTERS]
_ITEM_COLUMNS = "payload_type, payload, signature, signer, public_key"
_PASSAGE_COLUMNS = (
    "statement_id, collection_id, dimension, ordinal, text, context, heading, start_line, end_line, length, terms, "
    "frequencies, searchable, embedding"
)
_PASSAGE_TYPES = (
    "int8", "int4", "int4", "int4", "text", "text", "text[]", "int4", "int4", "int4", "text[]", "int4[]", "bool",
    "vector",
)  # fmt: skip


def topics_of(count: int, seed: int) -> np.ndarray:
    """Draw a topic each; some are twenty times as frequent as others."""
    weights = np.arange(1, TOPICS + 1) ** -0.35
    return np.random.default_rng(seed).choice(TOPICS, count, p=weights / weights.sum())


def queries(count: int) -> np.ndarray:
    """Vectors to ask with: each about the topic of one of the first thousand items, and none of those stored."""
    about = np.random.default_rng(2**31).choice(topics_of(STEP // PER_ITEM, 0), count)
    return clustered(about, 2**31 + 1)


def words(count: int, length: int, seed: int) -> np.ndarray:
    """Numbers of words, ``length`` a row, that follow Zipf's law."""
    return zipf(np.random.default_rng(seed), count, length, VOCABULARY)


def text_of(numbers: np.ndarray) -> str:
    """The words of a row of `words`."""
    return " ".join(_LETTERS[n] for n in numbers)


def metadata(number: int) -> dict[str, Any]:
    """What an item can be filtered by: a tenth has category ``c0``, a hundredth author ``a0``."""
    scattered = number * 2_654_435_761 % 2**32 >> 8
    return {
        "name": f"item {number}",
        "category": f"c{scattered % 10}",
        "author": f"a{scattered % 100}",
        "tags": ["ops"],
    }


def item_id(number: int) -> str:
    """The name of an item; namespace ``n0`` has one in ten thousand."""
    return f"n{number % 10_000}/item-{number}"


def matrix(begin: int, end: int) -> np.ndarray:
    """The vectors of passages `begin` to `end`, both multiples of `STEP`; the row of passage_id 1 is 0."""
    return np.concatenate([_chunk(first) for first in range(begin, end, STEP)])


def allowed(chosen: dict[str, Any], passages: int) -> np.ndarray | None:
    """Which rows of the matrix a filter lets through; None for all."""
    if not chosen:
        return None
    matching = [
        all(
            metadata(number).get(k) == v or (k == "namespace" and item_id(number).startswith(f"{v}/"))
            for k, v in chosen.items()
        )
        for number in range(passages // PER_ITEM)
    ]
    return np.repeat(np.array(matching), PER_ITEM)


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Enrol the signer, start the collection, and take down what would check each row."""
    connection.execute("select public.set_audience(%s)", [REGISTRY])
    connection.execute("select public.enrol_signer(%s, 'ada@acme', '{*}')", [KEY.public_key.hex()])
    connection.execute("alter table kiwi.statements disable trigger user")
    for name in ("canonical", "signature"):
        connection.execute(f"alter table kiwi_private.all_statements drop constraint statements_{name}")
    connection.execute("select public.begin_collection(%s)", [FINGERPRINT])


def load(connection: psycopg.Connection[Any], begin: int, end: int) -> None:
    """Add passages `begin` to `end`, multiples of `STEP`, of which none are there yet; without postings."""
    from pgvector.psycopg import register_vector

    connection.execute("set search_path = extensions, public")
    register_vector(connection)
    for first in range(begin, end, STEP):
        with connection.transaction():
            _load_items(connection, first // PER_ITEM, (first + STEP) // PER_ITEM)
            copy = f"copy kiwi.passages ({_PASSAGE_COLUMNS}) from stdin (format binary)"
            with connection.cursor().copy(copy) as out:
                out.set_types(_PASSAGE_TYPES)
                for row in _passages(first):
                    out.write_row(row)
    connection.execute("""
        update kiwi_private.collections as c set passages = s.passages, total_length = s.total, items = s.items
        from (
            select count(*) as passages, sum(length) as total, count(*) filter (where ordinal = 0) as items
            from kiwi.passages
        ) as s
    """)
    connection.execute("vacuum analyze")


def load_postings(connection: psycopg.Connection[Any]) -> None:
    """Fill the inverted index from the passages' own terms, its indexes last: row by row they would take hours."""
    kept = connection.execute("""
        select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), coalesce(c.conname, ''),
            coalesce(pg_get_constraintdef(c.oid), '')
        from pg_index as i left join pg_constraint as c on c.conindid = i.indexrelid and c.contype = 'p'
        where i.indrelid = 'kiwi.postings'::regclass
    """).fetchall()
    with connection.transaction():
        connection.execute("set local maintenance_work_mem = '1GB'")
        connection.execute("set local work_mem = '256MB'")
        for name, _, constraint, _ in kept:
            connection.execute(
                f"alter table kiwi.postings drop constraint {constraint}" if constraint else f"drop index {name}"
            )
        connection.execute("""
            insert into kiwi.postings (collection_id, term, passage_id, frequency, length)
            select e.collection_id, pair.term, e.passage_id, pair.frequency, e.length
            from kiwi.passages as e, unnest(e.terms, e.frequencies) as pair (term, frequency)
        """)
        for _, index, constraint, definition in kept:
            connection.execute(
                f"alter table kiwi.postings add constraint {constraint} {definition}" if constraint else index
            )
        connection.execute("""
            insert into kiwi.term_statistics (collection_id, term, passages)
            select collection_id, term, count(*) from kiwi.postings group by collection_id, term
        """)
    connection.execute("vacuum analyze kiwi.postings")
    connection.execute("vacuum analyze kiwi.term_statistics")


def _load_items(connection: psycopg.Connection[Any], begin: int, end: int) -> None:
    with connection.cursor().copy(f"copy kiwi.statements ({_ITEM_COLUMNS}) from stdin") as out:
        for number in range(begin, end):
            ref, text = ItemRef(ItemType.DIRECTIVE, item_id(number), "1.0.0"), f"item {number}"
            files = {ref.main_file: text.encode()}
            item = Item(ref, files, ref.main_file, metadata(number), (Section("body", text, 1, 1),))
            envelope = KEY.sign(item, REGISTRY, SIGNED)
            signature = envelope.signatures[0][1]
            out.write_row((envelope.payload_type, envelope.payload, signature, KEY.key_id, KEY.public_key))


def _chunk(first: int) -> np.ndarray:
    """The vectors of `STEP` passages, those of an item around the centre of one topic."""
    return clustered(np.repeat(topics_of(STEP // PER_ITEM, first), PER_ITEM), first + 1)


def _passages(first: int) -> Iterator[tuple[Any, ...]]:
    for place, (vector, numbers) in enumerate(zip(_chunk(first), words(STEP, WORDS, first + 2), strict=True)):
        frequencies = Counter(term for n in numbers for term in _TERMS[n])
        ordinal = place % PER_ITEM
        yield (
            (first + place) // PER_ITEM + 1, 1, len(vector), ordinal, text_of(numbers), "", [], ordinal + 1,
            ordinal + 1, frequencies.total(), list(frequencies), list(frequencies.values()), True, vector,
        )  # fmt: skip
