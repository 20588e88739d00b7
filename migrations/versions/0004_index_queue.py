"""Who indexes what: a row for each version that an indexer locks while it works, and several models side by side.

Revision ID: 0004
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# What waits is computed (kiwi.pending_versions); this row is what a worker locks, and remembers what went wrong.
_INDEX_QUEUE = """
create table kiwi.index_queue (
    digest text primary key references kiwi.item_versions (digest),
    attempts integer not null default 0 check (attempts >= 0),
    not_before timestamptz not null default '-infinity',
    problem text not null default '' check (length(problem) <= 1000)
)
"""

# Null while a model's collection is being built beside the active one; the one that became ready last is active.
_READY = "alter table kiwi.collections add column ready_at timestamptz"


def upgrade() -> None:
    """Create the queue with a row for each version there is; every collection there is stays searchable."""
    op.execute(_INDEX_QUEUE)
    op.execute("alter table kiwi.index_queue enable row level security")
    op.execute("insert into kiwi.index_queue (digest) select digest from kiwi.item_versions")
    op.execute(_READY)
    op.execute("update kiwi.collections set ready_at = now()")


def downgrade() -> None:
    """Forget what went wrong, and which model is active."""
    op.execute("alter table kiwi.collections drop column ready_at")
    op.execute("drop table kiwi.index_queue")
