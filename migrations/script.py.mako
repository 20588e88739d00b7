"""${message}

Revision ID: ${up_revision}
"""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Say what holds data from now on; function bodies belong into sql/."""


def downgrade() -> None:
    """Undo it."""
