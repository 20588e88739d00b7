"""The statements that make and remove indexes over vectors. An owner's, each outside of any transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

    from kiwi_rag.registry.tuning.choice import Choice

# Kept in halves: two thirds of the time and half of the memory, at the same recall; what is found is ordered by the
# vectors themselves.
_CREATE = """
create index concurrently {name} on kiwi.item_embeddings
using {method} ((embedding::extensions.halfvec(384)) extensions.halfvec_cosine_ops) with ({options})
where searchable and collection_id = {collection}
"""
_NAMES = """
select c.relname, i.indisvalid
from pg_catalog.pg_class as c
join pg_catalog.pg_index as i on i.indexrelid = c.oid
where c.relnamespace = 'kiwi'::regnamespace and c.relname ~ '^item_embeddings_nearest_[0-9]+_[0-9]+$'
"""


def create(connection: psycopg.Connection[Any], collection: int, choice: Choice) -> str:
    """Build an index beside what is there, while others read and write; return its name."""
    from psycopg import sql

    taken = {name for name, _ in connection.execute(_NAMES)}
    name = next(
        name for n in range(1, len(taken) + 2) if (name := f"item_embeddings_nearest_{collection}_{n}") not in taken
    )
    options = sql.SQL("lists = {}").format(sql.Literal(choice.lists)) if choice.lists else sql.SQL("m = 16")
    statement = sql.SQL(_CREATE).format(
        name=sql.Identifier(name),
        method=sql.Identifier(choice.method),
        options=options,
        collection=sql.Literal(collection),
    )
    connection.execute("select set_config('maintenance_work_mem', %s, false)", [f"{choice.memory}MB"])
    connection.execute(statement)
    return name


def drop_unused(connection: psycopg.Connection[Any]) -> list[str]:
    """Remove what no tuning recorded: builds that were broken off, what was replaced, what was of a model now gone."""
    from psycopg import sql

    kept = {row[0] for row in connection.execute("select index_name from kiwi.vector_indexes")}
    gone = [name for name, valid in connection.execute(_NAMES) if not valid or name not in kept]
    for name in gone:
        connection.execute(sql.SQL("drop index concurrently if exists {}").format(sql.Identifier("kiwi", name)))
    return gone
