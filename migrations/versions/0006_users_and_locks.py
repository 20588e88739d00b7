"""Signers are bound to users; locks that nobody else can take; nothing for the planner to tell of what is private.

Revision ID: 0006
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Advisory locks belong to whoever asks for their number; a row of this table can be locked by Kiwi's functions alone.
_LOCKS = "create table kiwi.locks (name text primary key)"
_NAMES = """
insert into kiwi.locks (name)
select unnest(array['audit', 'index']) union all select 'item' || n from generate_series(0, 255) as n
"""
# Estimates made of a column's values are shown to whoever may EXPLAIN, also those of rows that a policy hides.
_NO_STATISTICS = """
do $$
declare
    named name;
begin
    for named in
        select attname from pg_catalog.pg_attribute
        where attrelid = 'kiwi.item_versions'::regclass and attnum > 0 and not attisdropped
    loop
        execute format('alter table kiwi.item_versions alter column %I set statistics 0', named);
    end loop;
    if exists (select from pg_catalog.pg_roles where rolname = session_user and rolsuper) then
        reset role;
        delete from pg_catalog.pg_statistic where starelid = 'kiwi.item_versions'::regclass;
        set local role kiwi_owner;
    end if;
end
$$
"""
_UPGRADE = (
    # Who owns the private items of a signer where people log in through Supabase.
    "alter table kiwi.signers add column user_id uuid",
    _LOCKS,
    _NAMES,
    "alter table kiwi.locks enable row level security",
    _NO_STATISTICS,
    "create index audit_yanked on kiwi.audit (seq) where event = 'yank'",
    "create index audit_distrusted on kiwi.audit (seq) where event in ('retired', 'compromised')",
    # Their arguments have changed.
    "drop function if exists public.enrol_signer(text, text, text[], text[], timestamptz, timestamptz)",
    "drop function if exists kiwi.enrol_signer(text, text, text[], text[], timestamptz, timestamptz)",
    "drop function if exists kiwi.note_refusal(jsonb, jsonb)",
    "drop function if exists kiwi.open_to_all(kiwi.item_versions, jsonb, text)",
)
_DOWNGRADE = (
    "drop index kiwi.audit_distrusted",
    "drop index kiwi.audit_yanked",
    "drop table kiwi.locks",
    "alter table kiwi.signers drop column user_id",
)


def upgrade() -> None:
    """Add users of signers, and rows to lock; keep values out of the planner's statistics."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Give up both."""
    for statement in _DOWNGRADE:
        op.execute(statement)
