"""Indexes that lead with what is asked for, as servers older than 18 need them; functions whose arguments changed.

Revision ID: 0005
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_UPGRADE = (
    "drop index kiwi.item_versions_newest",
    # An item is asked for by its name, and its type may be left open.
    """
    create index item_versions_newest
        on kiwi.item_versions (folded_id, item_type, owner_key, version_key desc, sequence desc)
    """,
    "drop index kiwi.item_versions_private",
    "create index item_versions_private on kiwi.item_versions (owner_key) where visibility = 'private'",
    "create index audit_refused on kiwi.audit (key_id, at) where event = 'refused'",
    # Their arguments, or their columns, have changed.
    "drop function if exists public.drop_collection(text)",
    "drop function if exists kiwi.drop_collection(text)",
    "drop function if exists public.indexed_items(text, integer)",
    "drop function if exists kiwi.indexed_versions(text, integer)",
    "drop function if exists public.indexed_items(text, integer)",
    "drop function if exists kiwi.indexed_versions(text, integer)",
    "drop function if exists kiwi.waiting_versions(text)",
    "drop function if exists kiwi.model_progress(boolean)",
    "drop function if exists kiwi.private_passages(integer, jsonb)",
)
_DOWNGRADE = (
    "drop index kiwi.audit_refused",
    "drop index kiwi.item_versions_private",
    "create index item_versions_private on kiwi.item_versions (digest) where visibility = 'private'",
    "drop index kiwi.item_versions_newest",
    """
    create index item_versions_newest
        on kiwi.item_versions (item_type, folded_id, owner_key, version_key desc, sequence desc)
    """,
)


def upgrade() -> None:
    """Replace two indexes, and add one for refusals."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Go back to the indexes that there were."""
    for statement in _DOWNGRADE:
        op.execute(statement)
