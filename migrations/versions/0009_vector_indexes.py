"""The vector leg at any size: what was tuned, vectors beside their rows, and filters that find their items by index.

Revision ID: 0009
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# One row a collection that was tuned: what was asked for, and what became of it. `effort` is what the method reads,
# probed lists or ef_search; `wide_effort` the same for a search under a filter. `passages` is how many there were then.
# Recall is null where the method is exact, and until it is measured.
_VECTOR_INDEXES = """
create table kiwi.vector_indexes (
    collection_id integer primary key references kiwi.collections on delete cascade,
    asked text not null check (asked in ('auto', 'exact', 'ivfflat', 'hnsw')),
    method text not null check (method in ('exact', 'ivfflat', 'hnsw')),
    index_name name not null default '',
    lists integer check (lists > 0),
    effort integer check (effort > 0),
    wide_effort integer check (wide_effort >= effort),
    passages bigint not null check (passages >= 0),
    wanted_recall float8 not null check (wanted_recall > 0 and wanted_recall <= 1),
    recall float8 check (recall between 0 and 1),
    tuned_at timestamptz not null default now(),
    check ((method = 'exact') = (index_name = '')),
    check (method = 'exact' or effort is not null and wide_effort is not null),
    check ((method = 'ivfflat') = (lists is not null))
)
"""
# 384 floats beside text and terms are more than a fourth of a page: they went into the TOAST table, where a scan looks
# each one up (2 to 2.5 times the time). What is read only for what was found, texts and terms, goes there instead. The
# cast there and back has every row written anew; CLUSTER would, too, but the Supabase CLI takes it out of the
# transaction. In one statement, since a new type alone brings back that type's own way of storing.
_INLINE = """
alter table kiwi.item_embeddings
    alter column embedding type extensions.vector(384) using embedding::real[],
    alter column embedding set storage plain
"""
# Of public items alone, so that the planner's statistics of these expressions tell nothing of private ones.
_FILTERS = (
    "create index item_versions_category on kiwi.item_versions ((metadata ->> 'category')) where visibility = 'public'",
    "create index item_versions_author on kiwi.item_versions ((metadata ->> 'author')) where visibility = 'public'",
    """
    create index item_versions_tags on kiwi.item_versions using gin ((metadata -> 'tags') jsonb_path_ops)
    where visibility = 'public'
    """,
    """
    create index item_versions_namespace on kiwi.item_versions (split_part(item_id, '/', 1))
    where visibility = 'public'
    """,
    "create index item_versions_signed_at on kiwi.item_versions (signed_at) where visibility = 'public'",
)
_UPGRADE = (
    _VECTOR_INDEXES,
    "alter table kiwi.vector_indexes enable row level security",
    "insert into kiwi.locks (name) values ('tuning')",
    _INLINE,
    *_FILTERS,
    # It tells now which way it took.
    "drop function if exists kiwi.nearest_passages(integer, extensions.vector, integer, jsonb)",
)
_DOWNGRADE = (
    # First, since it takes the lock without which drop_vector_indexes() would give up.
    "alter table kiwi.item_embeddings alter column embedding set storage external",
    "select kiwi.drop_vector_indexes(c.collection_id) from kiwi.collections as c",
    "drop function if exists kiwi.nearest_passages(integer, extensions.vector, integer, jsonb)",
    "drop index kiwi.item_versions_category",
    "drop index kiwi.item_versions_author",
    "drop index kiwi.item_versions_tags",
    "drop index kiwi.item_versions_namespace",
    "drop index kiwi.item_versions_signed_at",
    "delete from kiwi.locks where name = 'tuning'",
    "drop function if exists kiwi.usable_index(integer)",
    "drop table kiwi.vector_indexes",
)


def upgrade() -> None:
    """Create the table, move vectors into their rows, and make filters quick."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Forget what was tuned, with the indexes."""
    for statement in _DOWNGRADE:
        op.execute(statement)
