"""Collections count their items: BM25 of an item as one document needs their average length.

Revision ID: 0007
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_ARGUMENTS = "extensions.vector, text[], float8[], float8, integer, jsonb, text"
_UPGRADE = (
    "alter table kiwi.collections add column items bigint not null default 0 check (items >= 0)",
    """
    update kiwi.collections as c
    set items = (
        select count(distinct e.digest) from kiwi.item_embeddings as e
        where e.collection_id = c.collection_id and e.searchable
    )
    """,
    # They give more columns now, and take one argument more.
    f"drop function if exists public.search_hybrid({_ARGUMENTS})",
    f"drop function if exists kiwi.search_hybrid({_ARGUMENTS})",
)
_DOWNGRADE = ("alter table kiwi.collections drop column items",)


def upgrade() -> None:
    """Add the count, and make room for the functions' new form."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Give it up."""
    for statement in _DOWNGRADE:
        op.execute(statement)
