"""Refusals are counted for each caller and minute, so that each pair has one audit record.

Revision ID: 0101
"""

from alembic import op

revision = "0101"
down_revision = "0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make caller and minute the primary key."""
    op.execute("alter table kiwi_private.refusals drop constraint refusals_pkey, add primary key (caller, minute)")


def downgrade() -> None:
    """Refuse: 0100 would count the calls of several minutes as one."""
    raise NotImplementedError("restore a backup of the database instead")
