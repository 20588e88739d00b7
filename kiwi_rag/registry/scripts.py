"""The SQL texts that a migration runs around its revisions, in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

from kiwi_rag.registry.locate import locate

# Any fixed number; it names "someone migrates a Kiwi registry" among the database's advisory locks.
_MIGRATION_LOCK = 7_310_595_114_001
_FOLDERS = ("functions", "triggers", "policies", "views", "comments", "grants")
_LOCK = f"""set local lock_timeout = '60s';
select pg_advisory_xact_lock({_MIGRATION_LOCK});
set local lock_timeout = '10s';
set local statement_timeout = 0;
set local client_min_messages = warning;
set local check_function_bodies = false;
"""


def before_revisions() -> Iterator[str]:
    """Yield the lock, then roles, schemas and what generated columns are made of."""
    yield _LOCK
    yield from _texts("bootstrap")


def after_revisions() -> Iterator[str]:
    """Yield everything re-runnable, then the note of what was applied."""
    for folder in _FOLDERS:
        yield from _texts(folder)
    yield (
        f"insert into kiwi.settings (name, value) values ('sql_digest', '{digest()}') "  # noqa: S608  # hex digits
        "on conflict (name) do update set value = excluded.value;"
    )
    yield "notify pgrst, 'reload schema';"  # PostgREST finds new functions at once; nobody else listens
    yield "reset role;"


@lru_cache(maxsize=1)
def digest() -> str:
    """Return the hex SHA-256 of all SQL texts, names included: what ``is_current`` compares."""
    state = hashlib.sha256()
    for path in sorted(locate("sql").rglob("*.sql")):
        state.update(path.relative_to(locate("sql")).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


@lru_cache(maxsize=1)
def head() -> str:
    """Return the newest revision. Revisions are numbered by their file names, so alembic is not needed for it."""
    return max(path.name[:4] for path in (locate("migrations") / "versions").glob("[0-9]*.py"))


def sqlalchemy_url(url: str) -> str:
    """Return `url` with the driver named, as SQLAlchemy wants it."""
    scheme, _, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if scheme in {"postgres", "postgresql"} else url


def _texts(folder: str) -> Iterator[str]:
    for path in sorted((locate("sql") / folder).glob("**/*.sql")):
        yield f"-- sql/{path.relative_to(locate('sql')).as_posix()}\n{path.read_text(encoding='utf-8')}"
