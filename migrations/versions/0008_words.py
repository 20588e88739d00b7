"""Postings in the order of what they add to a score; the vocabulary by its endings; a stemmer without stop words.

Revision ID: 0008
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_UPGRADE = (
    # Of one frequency the shortest passage first: BM25's order, whatever the average length is. See strongest_postings.
    "create index postings_impact on kiwi.postings (collection_id, term, frequency, length, passage_id)",
    'create index term_statistics_endings on kiwi.term_statistics (collection_id, reverse(term) collate "C")',
    # Postgres's own leaves out more words than Kiwi does. It needs no rights: the template is there.
    "create text search dictionary kiwi.english (template = pg_catalog.snowball, language = english)",
    # score_passages does this itself now.
    "drop function if exists kiwi.score_private_passages(bigint[], text[], float8[], float8)",
    # It gives more columns now.
    "drop function if exists kiwi.matching_passages(integer, text[], float8[], float8, integer, jsonb)",
)
_DOWNGRADE = (
    "drop function if exists kiwi.query_terms(text)",
    "drop text search dictionary kiwi.english",
    "drop function if exists kiwi.matching_passages(integer, text[], float8[], float8, integer, jsonb)",
    "drop index kiwi.term_statistics_endings",
    "drop index kiwi.postings_impact",
)


def upgrade() -> None:
    """Add both indexes, and make room for a function's new form."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Give them up."""
    for statement in _DOWNGRADE:
        op.execute(statement)
