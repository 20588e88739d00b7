"""Bringing a registry to the newest schema, and asking which one it has. Blocking; run in a worker thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kiwi_rag.errors import RegistryOutdated
from kiwi_rag.registry import scripts
from kiwi_rag.registry.driver_errors import checked_url, translated
from kiwi_rag.registry.locate import locate

if TYPE_CHECKING:
    from alembic.config import Config

_CONNECT_SECONDS = 10


def migrate(url: str, *, audience: str = "") -> None:
    """Bring the database at `url` to the newest schema; change nothing where it has it.

    Safe to run from several processes at once: they queue up behind an advisory lock.

    Parameters
    ----------
    url
        ``postgresql://…`` of a role that may create roles, schemas and extensions.
    audience
        The registry's name, to set it where none is set yet; statements must be signed for it.

    Raises
    ------
    RegistryError
        When the database cannot be reached, or refuses.
    """
    from alembic import command
    from sqlalchemy import create_engine
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    _check_not_newer(url)
    options = {"connect_timeout": _CONNECT_SECONDS}
    engine = create_engine(scripts.sqlalchemy_url(checked_url(url)), connect_args=options, poolclass=NullPool)
    with translated(wrapped=(DBAPIError,)), engine.begin() as connection:
        command.upgrade(_config(attributes={"connection": connection}), "head")
    if audience:
        _name(url, audience)


def schema_version(url: str) -> str | None:
    """Return the newest revision that was applied; None for a database without a registry.

    Raises
    ------
    RegistryUnreachable
        When there is no connection.
    """
    return _applied(url)[0]


def is_current(url: str) -> bool:
    """Whether both tables and functions are those of this version of Kiwi.

    Raises
    ------
    RegistryUnreachable
        When there is no connection.
    """
    return _applied(url) == (scripts.head(), scripts.digest())


def bring_up_to_date(url: str, *, audience: str = "") -> bool:
    """Migrate where that is needed; return whether it was. Costs one short query where it is not."""
    if is_current(url):
        return False
    migrate(url, audience=audience)
    return True


def script(*, start: str = "", transaction: bool = True) -> str:
    """Return one SQL script from revision `start` to the newest, as ``alembic upgrade head --sql`` prints it.

    Parameters
    ----------
    start
        The revision that the database has; empty for one without a registry.
    transaction
        Whether the script opens and ends its transaction itself; else whoever runs it must.
    """
    import io

    from alembic import command

    out = io.StringIO()
    config = _config(output=out, attributes={"transaction": transaction})
    command.upgrade(config, f"{start}:head" if start else "head", sql=True)
    return out.getvalue()


def _config(*, attributes: dict[str, object] | None = None, output: object = None) -> Config:
    from alembic.config import Config

    config = Config(output_buffer=output) if output else Config()  # type: ignore[arg-type]
    config.set_main_option("script_location", str(locate("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(attributes or {})
    return config


def _applied(url: str) -> tuple[str | None, str | None]:
    import psycopg

    query = """
        select (select max(version_num) from kiwi.alembic_version),
            (select value from kiwi.settings where name = 'sql_digest')
    """
    with translated(), psycopg.connect(checked_url(url), connect_timeout=_CONNECT_SECONDS) as connection:
        try:
            row = connection.execute(query).fetchone()
        except psycopg.errors.UndefinedTable:
            return None, None
    return (row[0], row[1]) if row else (None, None)


def _check_not_newer(url: str) -> None:
    revision = schema_version(url)
    if revision is not None and revision > scripts.head():
        raise RegistryOutdated(
            f"the registry is at revision {revision}, and this Kiwi knows revisions up to {scripts.head()}",
            hint="install the Kiwi that migrated it, or a newer one",
        )


def _name(url: str, audience: str) -> None:
    import psycopg

    with translated(), psycopg.connect(url, connect_timeout=_CONNECT_SECONDS) as connection:
        named = connection.execute("select from kiwi.settings where name = 'audience'").fetchone()
        if named is None:
            connection.execute("select public.set_audience(%s)", [audience])
