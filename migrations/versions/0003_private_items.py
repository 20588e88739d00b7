"""Private items: kept apart from the public ones of the same name, each owner's for itself.

Revision ID: 0003
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_UPGRADE = (
    # What a version's owner is called where nobody is logged in through Supabase: the signer's principal.
    "alter table kiwi.item_versions add column owner_name text not null default ''",
    """
    update kiwi.item_versions as v set owner_name = s.principal
    from kiwi.signers as s where s.key_id = v.signer
    """,
    # Versions are counted within this key, so that a private item tells nobody of its existence by being in the way.
    """
    alter table kiwi.item_versions add column owner_key text not null generated always as (
        case
            when visibility = 'public' then ''
            when owner_id is not null then 'uid:' || owner_id::text
            else 'principal:' || owner_name
        end
    ) stored
    """,
    "alter table kiwi.item_versions drop constraint item_versions_item_type_folded_id_version_key",
    "alter table kiwi.item_versions add unique (item_type, folded_id, version, owner_key)",
    "drop index kiwi.item_versions_newest",
    """
    create index item_versions_newest
        on kiwi.item_versions (item_type, folded_id, owner_key, version_key desc, sequence desc)
    """,
    "create index item_versions_private on kiwi.item_versions (digest) where visibility = 'private'",
    # Their arguments, or their columns, have changed.
    "drop function if exists public.publish_item(jsonb)",
    "drop function if exists kiwi.publish_item(jsonb)",
    "drop function if exists kiwi.check_version(jsonb)",
    "drop function if exists public.get_item(text, text, text)",
    "drop function if exists public.list_items(jsonb)",
    "drop function if exists public.item_status(text, text)",
)
_DOWNGRADE = (
    "drop index kiwi.item_versions_private",
    "drop index kiwi.item_versions_newest",
    "create index item_versions_newest on kiwi.item_versions (item_type, folded_id, version_key desc, sequence desc)",
    "alter table kiwi.item_versions drop constraint item_versions_item_type_folded_id_version_owner_key_key",
    "alter table kiwi.item_versions add unique (item_type, folded_id, version)",
    "alter table kiwi.item_versions drop column owner_key",
    "alter table kiwi.item_versions drop column owner_name",
)


def upgrade() -> None:
    """Add owners, and count versions by owner."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Give up owners; refused where two owners hold the same version of an item."""
    for statement in _DOWNGRADE:
        op.execute(statement)
