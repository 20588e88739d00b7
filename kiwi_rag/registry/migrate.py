"""Migration of a registry to the newest schema, and which schema it has. Blocking; run in a worker thread."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from kiwi_rag.errors import RegistryOutdated
from kiwi_rag.registry.calls import checked_url, translate_errors

if TYPE_CHECKING:
    from alembic.config import Config

_CONNECT_SECONDS = 10


def migrate(url: str, *, audience: str = "") -> None:
    """Migrate the database at `url` to the newest schema.

    Several processes may do so at once: an advisory lock lets one after the other in.

    Parameters
    ----------
    url
        ``postgresql://…`` of a role that may create roles, schemas and extensions.
    audience
        The registry's name, for which statements are signed; set where the registry has none yet.

    Raises
    ------
    RegistryError
        When the database cannot be reached, or refuses a statement.
    """
    from alembic import command
    from sqlalchemy import create_engine
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    revision, _ = applied(url)
    if revision is not None and revision > head():
        message = f"the registry has revision {revision}, and this Kiwi has revisions up to {head()}"
        raise RegistryOutdated(message, hint="install the Kiwi that migrated it, or a newer one")
    options = {"connect_timeout": _CONNECT_SECONDS}
    engine = create_engine(sqlalchemy_url(url), connect_args=options, poolclass=NullPool)
    with translate_errors():
        try:
            with engine.begin() as connection:
                command.upgrade(config(connection=connection), "head")
            if audience:
                with engine.begin() as connection:
                    connection.exec_driver_sql(_NAME_IT, (audience,))
        except DBAPIError as error:
            raise error.orig or error from error


def is_current(url: str) -> bool:
    """Whether both tables and functions are those of this version of Kiwi.

    Raises
    ------
    RegistryUnreachable
        When there is no connection.
    """
    return applied(url) == (head(), digest())


def bring_up_to_date(url: str, *, audience: str = "") -> bool:
    """Migrate if the schema is not the newest; return whether it was migrated. Otherwise this costs one short query."""
    if is_current(url):
        return False
    migrate(url, audience=audience)
    return True


def config(output: TextIO | None = None, **attributes: object) -> Config:
    """Return alembic's configuration, with `output` for a script, and attributes for ``migrations/env.py``."""
    from alembic.config import Config

    made = Config(output_buffer=output)
    made.set_main_option("script_location", str(locate("migrations")).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    made.attributes.update(attributes)
    return made


def applied(url: str) -> tuple[str | None, str | None]:
    """Return the newest revision that the database has, and the `digest` of its code; None without a registry.

    Raises
    ------
    RegistryUnreachable
        When there is no connection.
    """
    import psycopg

    with translate_errors(), psycopg.connect(checked_url(url), connect_timeout=_CONNECT_SECONDS) as connection:
        try:
            row = connection.execute(_APPLIED).fetchone()
        except psycopg.errors.UndefinedTable:
            return None, None
    return row or (None, None)


_APPLIED = """
select (select max(version_num) from kiwi.alembic_version),
    (select value from kiwi.settings where name = 'sql_digest')
"""
_NAME_IT = """
select public.set_audience(%s) where not exists (select from kiwi.settings where name = 'audience')
"""
# Any fixed number: the key of the advisory lock that a migration holds until its transaction ends.
_MIGRATION_LOCK = 7_310_595_114_001
_FOLDERS = ("functions", "triggers", "policies", "views", "comments", "grants")
# Waiting for another migration may take a minute. Waiting for a table's lock may not: statements of running searches
# queue up behind it.
_LOCK = f"""set local lock_timeout = '60s';
select pg_advisory_xact_lock({_MIGRATION_LOCK});
set local lock_timeout = '10s';
set local statement_timeout = 0;
set local client_min_messages = warning;
set local check_function_bodies = false;
"""


def before_revisions() -> Iterator[str]:
    """Yield what runs before the revisions: the lock, then roles, schemas and the functions of generated columns."""
    yield _LOCK
    yield from _texts("bootstrap")


def after_revisions() -> Iterator[str]:
    """Yield what runs after the revisions, each time anew: all code, then the record of its digest."""
    for folder in _FOLDERS:
        yield from _texts(folder)
    yield (
        f"insert into kiwi.settings (name, value) values ('sql_digest', '{digest()}') "  # noqa: S608  # hex digits
        "on conflict (name) do update set value = excluded.value;"
    )
    yield "notify pgrst, 'reload schema';"  # PostgREST reads the new functions at once
    yield "reset role;"


@lru_cache(maxsize=1)
def digest() -> str:
    """Return the hex SHA-256 of all SQL files and their names, which `is_current` compares."""
    state = hashlib.sha256()
    for path in sorted(locate("sql").rglob("*.sql")):
        state.update(path.relative_to(locate("sql")).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


@lru_cache(maxsize=1)
def head() -> str:
    """Return the newest revision; file names begin with it, so alembic need not be imported."""
    return max(path.name[:4] for path in (locate("migrations") / "versions").glob("[0-9]*.py"))


def sqlalchemy_url(url: str) -> str:
    """Return `url` with the name of the driver, as SQLAlchemy requires."""
    scheme, _, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if scheme in {"postgres", "postgresql"} else url


def _texts(folder: str) -> Iterator[str]:
    for path in sorted((locate("sql") / folder).glob("**/*.sql")):
        yield f"-- sql/{path.relative_to(locate('sql')).as_posix()}\n{path.read_text(encoding='utf-8')}"


_PACKAGE = Path(__file__).resolve().parent.parent


def locate(folder: Literal["sql", "migrations"]) -> Path:
    """Return the folder's path.

    A wheel has both below ``kiwi_rag/_database``, a checkout beside the package.

    Raises
    ------
    RegistryOutdated
        When neither exists: the installation is incomplete.
    """
    for root in (_PACKAGE / "_database", _PACKAGE.parent):
        if (root / folder / ".." / "migrations" / "env.py").exists():
            return (root / folder).resolve()
    raise RegistryOutdated(f"this installation of Kiwi has no folder {folder}/", hint="reinstall kiwi-rag")
