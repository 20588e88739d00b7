"""The registry's tables.

Revision ID: 0001
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SETTINGS = """
create table kiwi.settings (
    name text primary key,
    value text not null
)
"""

_SIGNERS = """
create table kiwi.signers (
    key_id text primary key generated always as (encode(sha256(public_key), 'hex')) stored,
    public_key bytea not null check (octet_length(public_key) = 32),
    principal text not null check (length(principal) between 1 and 200),
    item_patterns text[] not null check (cardinality(item_patterns) > 0),
    item_types text[] not null
        check (cardinality(item_types) > 0 and item_types <@ array['directive', 'script', 'knowledge']),
    valid_after timestamptz,
    valid_before timestamptz,
    status text not null default 'active' check (status in ('active', 'retired', 'compromised')),
    status_changed_at timestamptz not null default now(),
    status_reason text not null default '',
    enrolled_at timestamptz not null default now()
)
"""

# The row is the signed statement: whatever can be read from the payload is generated from it.
_ITEM_VERSIONS = """
create table kiwi.item_versions (
    sequence bigint generated always as identity primary key,
    payload_type text not null check (payload_type = 'application/vnd.kiwi.item.v1+json'),
    payload bytea not null check (octet_length(payload) <= 1048576),
    signature bytea not null check (octet_length(signature) = 64),
    signer text not null references kiwi.signers (key_id),
    received_at timestamptz not null default now(),
    digest text not null generated always as (encode(sha256(payload), 'hex')) stored unique,
    registry text not null generated always as (kiwi.payload_text(payload, 'registry')) stored,
    item_type text not null generated always as (kiwi.payload_text(payload, 'item_type')) stored
        check (item_type in ('directive', 'script', 'knowledge')),
    item_id text not null generated always as (kiwi.payload_text(payload, 'item_id')) stored
        check (item_id ~ '^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*){0,7}$' and length(item_id) <= 128),
    folded_id text not null
        generated always as (kiwi.fold_item_id(kiwi.payload_text(payload, 'item_id'))) stored,
    version text not null generated always as (kiwi.payload_text(payload, 'version')) stored,
    version_key text collate "C" not null
        generated always as (kiwi.version_key(kiwi.payload_text(payload, 'version'))) stored,
    content text not null generated always as (kiwi.payload_text(payload, 'content')) stored,
    metadata jsonb not null generated always as (kiwi.payload_json(payload) -> 'metadata') stored,
    content_sha256 text not null
        generated always as (kiwi.text_sha256(kiwi.payload_text(payload, 'content'))) stored,
    signed_at timestamptz not null
        generated always as (kiwi.parse_time(kiwi.payload_text(payload, 'signed_at'))) stored,
    visibility text not null default 'public' check (visibility in ('public', 'private')),
    owner_id uuid,
    yanked_at timestamptz,
    yank_reason text not null default '',
    unique (item_type, folded_id, version)
)
"""

# Vectors of two models live in two collections and never meet.
_COLLECTIONS = """
create table kiwi.collections (
    collection_id integer generated always as identity primary key,
    fingerprint text not null unique,
    passages bigint not null default 0 check (passages >= 0),
    total_length bigint not null default 0 check (total_length >= 0)
)
"""

_ITEM_EMBEDDINGS = """
create table kiwi.item_embeddings (
    passage_id bigint generated always as identity primary key,
    digest text not null references kiwi.item_versions (digest),
    collection_id integer not null references kiwi.collections,
    ordinal integer not null check (ordinal >= 0),
    text text not null,
    context text not null,
    heading text[] not null,
    start_line integer not null,
    end_line integer not null,
    length integer not null check (length >= 0),
    terms text[] not null,
    frequencies integer[] not null check (cardinality(frequencies) = cardinality(terms)),
    searchable boolean not null default false,
    embedding extensions.vector(384) not null check (abs(extensions.vector_norm(embedding) - 1) < 0.001),
    unique (digest, collection_id, ordinal)
)
"""

# The inverted index and its statistics hold exactly the searchable passages.
_POSTINGS = """
create table kiwi.postings (
    collection_id integer not null references kiwi.collections,
    term text collate "C" not null,
    passage_id bigint not null references kiwi.item_embeddings,
    frequency integer not null check (frequency > 0),
    length integer not null,
    primary key (collection_id, term, passage_id) include (frequency, length)
)
"""

_TERM_STATISTICS = """
create table kiwi.term_statistics (
    collection_id integer not null references kiwi.collections,
    term text collate "C" not null,
    passages bigint not null check (passages > 0),
    primary key (collection_id, term)
)
"""

_AUDIT = """
create table kiwi.audit (
    seq bigint primary key,
    at timestamptz not null,
    event text not null,
    ref text not null,
    digest text not null,
    key_id text not null,
    details jsonb not null,
    previous_hash text not null,
    hash text not null unique
)
"""

_INDEXES = (
    "create index item_versions_newest on kiwi.item_versions (item_type, folded_id, version_key desc, sequence desc)",
    "create index item_versions_signer on kiwi.item_versions (signer)",
    "create index item_embeddings_collection on kiwi.item_embeddings (collection_id, digest) where searchable",
    "create index postings_passage on kiwi.postings (passage_id)",
)
_TABLES = (
    "settings", "signers", "item_versions", "collections", "item_embeddings", "postings", "term_statistics", "audit",
)  # fmt: skip


def upgrade() -> None:
    """Create the tables, with row level security on each."""
    creations = (
        _SETTINGS, _SIGNERS, _ITEM_VERSIONS, _COLLECTIONS, _ITEM_EMBEDDINGS, _POSTINGS, _TERM_STATISTICS, _AUDIT,
    )  # fmt: skip
    for statement in (*creations, *_INDEXES):
        op.execute(statement)
    for table in _TABLES:
        op.execute(f"alter table kiwi.{table} enable row level security")


def downgrade() -> None:
    """Drop the tables, and with them everything that was published."""
    for table in reversed(_TABLES):
        op.execute(f"drop table kiwi.{table}")
