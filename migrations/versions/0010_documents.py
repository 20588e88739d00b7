"""Documents of workspaces: what was signed of each file, its passages with their vectors, and the words in them.

Revision ID: 0010
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# All vectors of a workspace are one model's.
_WORKSPACES = """
create table kiwi.workspaces (
    workspace_id integer generated always as identity primary key,
    name text not null unique check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    fingerprint text not null,
    begun_at timestamptz not null default now()
)
"""

# The row is the signed statement, as an item's is. A CHECK must not read another table, so the key stands in the row.
# `rules` names the rules that the file was read and judged by; it is not signed, and nothing here depends on it.
_DOCUMENTS = """
create table kiwi.documents (
    document_id bigint generated always as identity primary key,
    workspace_id integer not null references kiwi.workspaces,
    payload_type text not null check (payload_type = 'application/vnd.kiwi.document.v1+json'),
    payload bytea not null check (octet_length(payload) <= 4194304),
    signature bytea not null check (octet_length(signature) = 64),
    signer text not null references kiwi.signers (key_id),
    public_key bytea not null,
    received_at timestamptz not null default now(),
    rules text not null default '' check (length(rules) <= 4000),
    total_length bigint not null check (total_length >= 0),
    digest text not null generated always as (encode(sha256(payload), 'hex')) stored unique,
    registry text not null generated always as (kiwi.payload_text(payload, 'registry')) stored,
    workspace text not null generated always as (kiwi.payload_text(payload, 'workspace')) stored,
    path text collate "C" not null generated always as (kiwi.payload_text(payload, 'path')) stored,
    content_sha256 text not null generated always as (kiwi.payload_text(payload, 'content_sha256')) stored,
    metadata jsonb not null generated always as (kiwi.payload_json(payload) -> 'metadata') stored,
    passage_digests jsonb not null generated always as (kiwi.payload_json(payload) -> 'passages') stored,
    passages integer not null
        generated always as (jsonb_array_length(kiwi.payload_json(payload) -> 'passages')) stored,
    signed_at timestamptz not null
        generated always as (kiwi.parse_time(kiwi.payload_text(payload, 'signed_at'))) stored,
    unique (workspace_id, path),
    constraint documents_public_key check (signer = encode(sha256(public_key), 'hex')),
    constraint documents_canonical check (kiwi.is_canonical(payload)),
    constraint documents_signature
        check (kiwi.ed25519_verify(public_key, kiwi.dsse_pae(payload_type, payload), signature))
)
"""

# Whether a passage is one of those that were signed, a trigger checks: see sql/triggers/documents.sql. The vectors
# stand in the rows, where a scan finds them; texts go out of its way (revision 0009 tells why).
_PASSAGES = """
create table kiwi.document_passages (
    passage_id bigint generated always as identity primary key,
    document_id bigint not null references kiwi.documents on delete cascade,
    workspace_id integer not null,
    ordinal integer not null check (ordinal >= 0),
    text text not null,
    context text not null,
    heading text[] not null check (array_position(heading, null) is null),
    start_line integer not null,
    end_line integer not null,
    kind text not null,
    length integer not null check (length >= 0),
    digest text not null
        generated always as (kiwi.passage_digest(text, context, heading, start_line, end_line, kind)) stored,
    embedding extensions.vector(384) not null check (abs(extensions.vector_norm(embedding) - 1) < 0.001),
    unique (document_id, ordinal)
)
"""

# The inverted index. How many passages hold a word is counted in it, so that writers share no counter and none waits
# for another; the vocabulary is there for misspelt words, and keeps words that have gone. No foreign keys:
# checking them for each word of each passage took half of the time; a trigger takes a document's postings along.
_POSTINGS = """
create table kiwi.document_postings (
    workspace_id integer not null,
    term text collate "C" not null,
    passage_id bigint not null,
    document_id bigint not null,
    frequency integer not null check (frequency > 0),
    length integer not null,
    primary key (workspace_id, term, passage_id) include (document_id, frequency, length)
)
"""
_TERMS = """
create table kiwi.document_terms (
    workspace_id integer not null references kiwi.workspaces,
    term text collate "C" not null,
    primary key (workspace_id, term)
)
"""
# What writers leave for who comes next, about a workspace that may have no document yet.
_NOTES = """
create table kiwi.workspace_notes (
    workspace text not null check (workspace ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    name text not null check (length(name) between 1 and 100),
    text text not null check (length(text) <= 4000),
    primary key (workspace, name)
)
"""
# When what a document's path no longer has was signed. It outlives the document and its workspace: whoever may delete
# and put, but has no key, could else put an older statement in the place of a newer one. One a signer, so that those of
# a key that turns out to be compromised do not count, and hide no other's. Workspaces are named, as they begin anew.
_MARKS = """
create table kiwi.document_marks (
    workspace text not null,
    path text collate "C" not null,
    signer text not null references kiwi.signers (key_id),
    signed_at timestamptz not null,
    primary key (workspace, path, signer)
)
"""
_TABLES = (
    "workspaces", "documents", "document_passages", "document_postings", "document_terms", "workspace_notes",
    "document_marks",
)  # fmt: skip

_UPGRADE = (
    "alter table kiwi.signers drop constraint signers_item_types_check",
    """
    alter table kiwi.signers add constraint signers_item_types_check check (
        cardinality(item_types) > 0 and item_types <@ array['directive', 'script', 'knowledge', 'document']
    )
    """,
    _WORKSPACES,
    _DOCUMENTS,
    _PASSAGES,
    "alter table kiwi.document_passages alter column embedding set storage plain",
    _POSTINGS,
    _TERMS,
    _NOTES,
    _MARKS,
    # What statistics add up, without the payloads.
    "create index documents_sizes on kiwi.documents (workspace_id) include (signer, passages, total_length)",
    "create index documents_signer on kiwi.documents (signer)",
    "create index document_marks_signer on kiwi.document_marks (signer)",
    "create index document_passages_workspace on kiwi.document_passages (workspace_id)",
    "create index document_postings_document on kiwi.document_postings (document_id)",
    'create index document_terms_endings on kiwi.document_terms (workspace_id, reverse(term) collate "C")',
    *(f"alter table kiwi.{table} enable row level security" for table in _TABLES),
    # Their own: a document of thousands of passages takes seconds, and no item is to wait for it.
    "insert into kiwi.locks (name) select 'document' || n from generate_series(0, 255) as n",
    # It takes two arguments more.
    "drop function if exists kiwi.open_envelope(jsonb)",
)
_DOWNGRADE = (
    "drop function if exists kiwi.store_document_passages(kiwi.documents, jsonb)",
    *(f"drop table kiwi.{table}" for table in reversed(_TABLES)),
    "delete from kiwi.locks where name like 'document%'",
    "drop function if exists kiwi.open_envelope(jsonb, text, integer)",
    "alter table kiwi.signers drop constraint signers_item_types_check",
    "delete from kiwi.signers where item_types <@ array['document']",
    "update kiwi.signers set item_types = array_remove(item_types, 'document')",
    """
    alter table kiwi.signers add constraint signers_item_types_check
        check (cardinality(item_types) > 0 and item_types <@ array['directive', 'script', 'knowledge'])
    """,
)


def upgrade() -> None:
    """Create the tables, with row level security on each, and let signers sign documents."""
    for statement in _UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    """Drop the documents, and the signers of nothing else."""
    for statement in _DOWNGRADE:
        op.execute(statement)
