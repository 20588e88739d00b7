"""The registry's tables: one definition for items and documents, public and private.

Each table that holds content is defined once, in schema ``kiwi_private``, and has two partitions. The one in ``kiwi``
holds what everybody may read, the one in ``kiwi_private`` private items and all documents, which only the functions of
``kiwi_owner`` read. Which partition a row is in shows in its number: statements and passages below `PUBLIC` are public,
and collections above 0. Numbers of the two come from different sequences, so that no gap between public ones tells how
much is private.

Revision ID: 0100
"""

from alembic import op

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None

PUBLIC = 1_000_000_000_000

_PLAIN = (
    """
    create table kiwi.settings (
        name text primary key,
        value text not null
    )
    """,
    """
    create table kiwi.signers (
        key_id text primary key generated always as (encode(sha256(public_key), 'hex')) stored,
        public_key bytea not null check (octet_length(public_key) = 32),
        principal text not null check (length(principal) between 1 and 200),
        item_patterns text[] not null check (cardinality(item_patterns) > 0),
        item_types text[] not null check (
            cardinality(item_types) > 0
            and item_types <@ array['directive', 'script', 'knowledge', 'skill', 'document']
        ),
        valid_after timestamptz,
        valid_before timestamptz,
        status text not null default 'active' check (status in ('active', 'retired', 'compromised')),
        status_changed_at timestamptz not null default now(),
        status_reason text not null default '',
        enrolled_at timestamptz not null default now(),
        user_id uuid
    )
    """,
    """
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
    """,
    "create index audit_refused on kiwi.audit (key_id, at) where event = 'refused'",
    "create index audit_yanked on kiwi.audit (seq) where event = 'yank'",
    "create index audit_distrusted on kiwi.audit (seq) where event in ('retired', 'compromised')",
    # Advisory locks belong to whoever asks for their number; a row of this table can be locked by Kiwi's functions
    # alone.
    "create table kiwi_private.locks (name text primary key)",
    """
    insert into kiwi_private.locks (name)
    select unnest(array['audit', 'index', 'tuning'])
    union all select kind || n from unnest(array['item', 'document']) as kind, generate_series(0, 255) as n
    """,
    # Postgres's own leaves out more words than Kiwi does. It needs no rights: the template is there.
    "create text search dictionary kiwi.english (template = pg_catalog.snowball, language = english)",
)

# The row is the signed statement: whatever can be read from the payload is generated from it. A CHECK must not read
# another table (a restore would fail), so the key stands in the row. `owner_key` is empty for what is public,
# 'uid:…' or 'principal:…' of a private item's owner, 'collection:…' of a document: versions are counted within it, so
# that nothing private is in the way of anything else.
_STATEMENTS = f"""
create table kiwi_private.all_statements (
    sequence bigint primary key,
    payload_type text not null check (payload_type = 'application/vnd.in-toto+json'),
    payload bytea not null check (octet_length(payload) <= 4194304),
    signature bytea not null check (octet_length(signature) = 64),
    signer text not null references kiwi.signers (key_id),
    public_key bytea not null,
    received_at timestamptz not null default now(),
    owner_key text not null default '',
    yanked_at timestamptz,
    yank_reason text not null default '',
    digest text not null generated always as (encode(sha256(payload), 'hex')) stored,
    predicate_type text not null generated always as (kiwi.payload_json(payload) ->> 'predicateType') stored
        check (predicate_type in ('urn:kiwi:item:v1', 'urn:kiwi:index:v1')),
    registry text not null generated always as (kiwi.predicate_text(payload, 'registry')) stored,
    collection text not null
        generated always as (coalesce(kiwi.predicate_text(payload, 'collection'), 'items')) stored,
    item_type text not null generated always as (kiwi.statement_type(payload)) stored
        check (item_type in ('directive', 'script', 'knowledge', 'skill', 'document')),
    item_id text collate "C" not null generated always as (kiwi.statement_id(payload)) stored,
    folded_id text collate "C" not null generated always as (
        case kiwi.statement_type(payload)
            when 'document' then kiwi.statement_id(payload) else kiwi.fold_item_id(kiwi.statement_id(payload))
        end
    ) stored,
    version text not null generated always as (coalesce(kiwi.predicate_text(payload, 'version'), '')) stored,
    version_key text collate "C" not null
        generated always as (coalesce(kiwi.version_key(kiwi.predicate_text(payload, 'version')), '')) stored,
    metadata jsonb not null generated always as (kiwi.payload_json(payload) -> 'predicate' -> 'metadata') stored,
    content_sha256 text not null generated always as (kiwi.content_digest(payload)) stored,
    signed_passages integer
        generated always as (jsonb_array_length(kiwi.payload_json(payload) -> 'predicate' -> 'passages')) stored,
    signed_at timestamptz not null
        generated always as (kiwi.parse_time(kiwi.predicate_text(payload, 'signed_at'))) stored,
    constraint statements_owner check ((owner_key = '') = (sequence < {PUBLIC})),
    constraint statements_place check ((item_type = 'document') = (owner_key = 'collection:' || collection)),
    constraint statements_public_key check (signer = encode(sha256(public_key), 'hex')),
    constraint statements_canonical check (kiwi.is_canonical(payload)),
    constraint statements_signature
        check (kiwi.ed25519_verify(public_key, kiwi.dsse_pae(payload_type, payload), signature))
) partition by range (sequence)
"""
# Public items share what has the same digest (holder 0). What a private item holds is its own.
_BLOBS = """
create table kiwi_private.all_blobs (
    holder bigint not null,
    sha256 text not null,
    content bytea not null check (octet_length(content) <= 5242880),
    primary key (holder, sha256),
    constraint blobs_digest check (sha256 = encode(sha256(content), 'hex'))
) partition by range (holder)
"""
# Filled by a trigger from the payload. A document has no blob: what is kept of it are its passages.
_STATEMENT_FILES = f"""
create table kiwi_private.all_statement_files (
    statement_id bigint not null references kiwi_private.all_statements (sequence) on delete cascade,
    path text collate "C" not null,
    sha256 text not null,
    holder bigint check (holder = case when statement_id < {PUBLIC} then 0 else statement_id end),
    primary key (statement_id, path),
    foreign key (holder, sha256) references kiwi_private.all_blobs (holder, sha256)
) partition by range (statement_id)
"""
# All vectors of a collection are one model's. A private item's passages are in a collection of their owner's, beside
# the public one of the same model. `ready_at` is null while a collection is being built; of the public ones, that
# which became ready last is active. `passages`, `items` and `total_length` count what is searchable.
_COLLECTIONS = """
create table kiwi_private.collections (
    collection_id integer primary key,
    name text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    kind text not null generated always as (case name when 'items' then 'items' else 'documents' end) stored,
    owner_key text not null,
    fingerprint text not null,
    dimension integer not null check (dimension between 1 and 16000),
    ready_at timestamptz,
    passages bigint not null default 0 check (passages >= 0),
    items bigint not null default 0 check (items >= 0),
    total_length bigint not null default 0 check (total_length >= 0),
    unique (owner_key, fingerprint),
    unique (collection_id, dimension),
    check ((owner_key = '') = (collection_id > 0)),
    check ((name = 'items') = (owner_key <> 'collection:' || name))
)
"""
# The vector may come later than the words. The scan reads vectors beside their rows; texts and terms are read only of
# what was found, and go to TOAST (measured at 384 dimensions: 2 to 2.5 times the time otherwise). `main` keeps a vector
# in its row as long as the row fits a page, which `plain` would insist on.
_PASSAGES = """
create table kiwi_private.all_passages (
    passage_id bigint not null,
    collection_id integer not null,
    dimension integer not null,
    statement_id bigint not null references kiwi_private.all_statements (sequence) on delete cascade,
    ordinal integer not null check (ordinal >= 0),
    file text not null default '',
    kind text not null default '',
    text text not null,
    context text not null,
    heading text[] not null check (array_position(heading, null) is null),
    start_line integer not null,
    end_line integer not null,
    length integer not null check (length >= 0),
    terms text[] not null,
    frequencies integer[] not null check (cardinality(frequencies) = cardinality(terms)),
    searchable boolean not null default false,
    embedding extensions.vector check (extensions.vector_dims(embedding) = dimension)
        check (abs(extensions.vector_norm(embedding) - 1) < 0.001),
    digest text not null
        generated always as (kiwi.passage_digest(text, context, heading, start_line, end_line, kind, file)) stored,
    unique (collection_id, statement_id, ordinal),
    foreign key (collection_id, dimension) references kiwi_private.collections (collection_id, dimension)
) partition by range (collection_id)
"""
# The inverted index and its statistics hold exactly the searchable passages. No foreign keys: checking them for each
# word of each passage takes half of the time. `field` is the part of the text that a word stands in: body, heading,
# title or symbol, by its first letter.
_POSTINGS = """
create table kiwi_private.all_postings (
    collection_id integer not null,
    term text collate "C" not null,
    passage_id bigint not null,
    frequency integer not null check (frequency > 0),
    length integer not null,
    field "char" not null default 'b' check (field in ('b', 'h', 't', 's')),
    primary key (collection_id, term, passage_id, field) include (frequency, length)
) partition by range (collection_id)
"""
_TERM_STATISTICS = """
create table kiwi_private.all_term_statistics (
    collection_id integer not null references kiwi_private.collections,
    term text collate "C" not null,
    passages bigint not null check (passages > 0),
    primary key (collection_id, term)
) partition by range (collection_id)
"""
_DEFINITIONS = (_STATEMENTS, _BLOBS, _STATEMENT_FILES, _COLLECTIONS, _PASSAGES, _POSTINGS, _TERM_STATISTICS)

_BY_STATEMENT = ("statements", "blobs", "statement_files")
_BY_COLLECTION = ("passages", "postings", "term_statistics")


def _partitions() -> list[str]:
    bounds = dict.fromkeys(_BY_STATEMENT, PUBLIC) | dict.fromkeys(_BY_COLLECTION, 1)
    created = []
    for table, bound in bounds.items():
        below, above = ("kiwi", "kiwi_private") if table in _BY_STATEMENT else ("kiwi_private", "kiwi")
        part = f"create table {{}}.{table} partition of kiwi_private.all_{table} for values from ({{}}) to ({{}})"
        created.append(part.format(below, "minvalue", bound))
        created.append(part.format(above, bound, "maxvalue"))
    return created


_AFTER = (
    "alter table kiwi.blobs add check (holder = 0)",
    "alter table kiwi_private.all_passages alter column embedding set storage main",
    "alter table kiwi.passages alter column embedding set storage main",
    "alter table kiwi_private.passages alter column embedding set storage main",
    # Numbers of what is public say nothing of what is private.
    "create sequence kiwi.statement_number",
    f"create sequence kiwi_private.statement_number start {PUBLIC}",
    "create sequence kiwi.passage_number",
    f"create sequence kiwi_private.passage_number start {PUBLIC}",
    "create sequence kiwi.collection_number as integer",
    "create sequence kiwi_private.collection_number as integer increment -1 start -1 maxvalue -1 minvalue -2147483647",
    "alter table kiwi.statements alter column sequence set default nextval('kiwi.statement_number')",
    "alter table kiwi.passages alter column passage_id set default nextval('kiwi.passage_number')",
    "create unique index statements_digest on kiwi.statements (digest)",
    "create unique index statements_version on kiwi.statements (item_type, folded_id, version)",
    # Deferrable: a document is stored before the one whose place it takes goes.
    """
    alter table kiwi_private.statements
        add constraint statements_digest unique (owner_key, digest) deferrable,
        add constraint statements_version unique (owner_key, item_type, folded_id, version) deferrable
    """,
    # An item is asked for by its name, and its type may be left open.
    """
    create index statements_newest
        on kiwi_private.all_statements (owner_key, folded_id, item_type, version_key desc, sequence desc)
    """,
    "create index statements_signer on kiwi_private.all_statements (signer)",
    # What filters ask for, of public items: the planner's statistics of these expressions tell nothing of others.
    "create index statements_category on kiwi.statements ((metadata ->> 'category'))",
    "create index statements_author on kiwi.statements ((metadata ->> 'author'))",
    "create index statements_tags on kiwi.statements using gin ((metadata -> 'tags') jsonb_path_ops)",
    "create index statements_namespace on kiwi.statements (split_part(item_id, '/', 1))",
    "create index statements_signed_at on kiwi.statements (signed_at)",
    "create index statement_files_blob on kiwi_private.all_statement_files (holder, sha256)",
    "create unique index passages_id on kiwi.passages (passage_id)",
    "create unique index passages_id on kiwi_private.passages (passage_id)",
    "create index passages_statement on kiwi_private.all_passages (statement_id)",
    "create index postings_passage on kiwi_private.all_postings (passage_id)",
    # Of one frequency the shortest passage first: BM25's order, whatever the average length is. See strongest_postings.
    "create index postings_impact on kiwi_private.all_postings (collection_id, term, frequency, length, passage_id)",
    """
    create index term_statistics_endings
        on kiwi_private.all_term_statistics (collection_id, reverse(term) collate "C")
    """,
    # Counts change in place, so that an update touches no index.
    "alter table kiwi.term_statistics set (fillfactor = 70)",
    "alter table kiwi_private.term_statistics set (fillfactor = 70)",
    # What waits is computed; this row is what an indexer locks while it works, and remembers what went wrong.
    """
    create table kiwi_private.index_queue (
        statement_id bigint primary key references kiwi_private.all_statements (sequence) on delete cascade,
        attempts integer not null default 0 check (attempts >= 0),
        not_before timestamptz not null default '-infinity',
        problem text not null default '' check (length(problem) <= 1000)
    )
    """,
    # One row a collection that was tuned: what was asked for, and what became of it. `effort` is what the method reads,
    # probed lists or ef_search; `wide_effort` the same for a search under a filter. `passages` is how many there were
    # then. Recall is null where the method is exact, and until it is measured.
    """
    create table kiwi_private.vector_indexes (
        collection_id integer primary key references kiwi_private.collections on delete cascade,
        asked text not null check (asked in ('auto', 'exact', 'ivfflat', 'hnsw')),
        method text not null check (method in ('exact', 'ivfflat', 'hnsw')),
        index_name name not null default '',
        lists integer check (lists > 0),
        effort integer check (effort > 0),
        wide_effort integer check (wide_effort >= effort),
        passages bigint not null check (passages >= 0),
        wanted_recall float8 not null check (wanted_recall > 0 and wanted_recall <= 1),
        recall float8 check (recall between 0 and 1),
        tuned_at timestamptz not null default now(),
        check ((method = 'exact') = (index_name = '')),
        check (method = 'exact' or effort is not null and wide_effort is not null),
        check ((method = 'ivfflat') = (lists is not null))
    )
    """,
    # When what a document's path no longer has was signed. It outlives the document and its collection: whoever may
    # delete and put, but has no key, could else put an older statement in the place of a newer one. One a signer, so
    # that those of a key that turns out to be compromised do not count, and hide no other's.
    """
    create table kiwi_private.removed_documents (
        owner_key text not null,
        path text collate "C" not null,
        signer text not null references kiwi.signers (key_id),
        signed_at timestamptz not null,
        primary key (owner_key, path, signer)
    )
    """,
    "create index removed_documents_signer on kiwi_private.removed_documents (signer)",
    # How often a caller was refused within the minute, and how many calls were refused unread since.
    """
    create table kiwi_private.refusals (
        caller text primary key,
        minute timestamptz not null,
        refused integer not null,
        unread integer not null
    )
    """,
    """
    do $$
    declare
        ours regclass;
    begin
        for ours in
            select oid from pg_catalog.pg_class
            where relnamespace in ('kiwi'::regnamespace, 'kiwi_private'::regnamespace) and relkind in ('r', 'p')
                and relname <> 'alembic_version'
        loop
            execute format('alter table %s enable row level security', ours);
        end loop;
    end
    $$
    """,
)


def upgrade() -> None:
    """Create the tables, with row level security on each."""
    for statement in (*_PLAIN, *_DEFINITIONS, *_partitions(), *_AFTER):
        op.execute(statement)


def downgrade() -> None:
    """Refuse: there is nothing before this revision."""
    raise NotImplementedError("0100 is the first revision: drop the database instead")
