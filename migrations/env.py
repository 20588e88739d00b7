"""Alembic's environment: one transaction under one lock brings a database to the newest schema.

Lock, ``sql/bootstrap``, revisions, the rest of ``sql/``: all of it or nothing. ``alembic upgrade head --sql`` prints
the same as one script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic import context

from kiwi_rag.registry import migrate

if TYPE_CHECKING:
    from sqlalchemy import Connection

_VERSION_TABLE: dict[str, Any] = {"version_table": "alembic_version", "version_table_schema": "kiwi"}


def online() -> None:
    """Run over the connection that the caller handed over, or over a new one to ``sqlalchemy.url``."""
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _apply(connection)
        return
    from sqlalchemy import create_engine

    engine = create_engine(migrate.sqlalchemy_url(context.config.get_main_option("sqlalchemy.url") or ""))
    with engine.begin() as fresh:
        _apply(fresh)
    engine.dispose()


def _apply(connection: Connection) -> None:
    # The driver's own cursor: SQLAlchemy would take every '%' in a function body for a parameter.
    run = connection.connection.driver_connection.cursor().execute
    for text in migrate.before_revisions():
        run(text)
    context.configure(connection=connection, transactional_ddl=True, **_VERSION_TABLE)
    context.run_migrations()
    for text in migrate.after_revisions():
        run(text)


def offline() -> None:
    """Print the script."""
    transaction = bool(context.config.attributes.get("transaction", True))
    plain = {"paramstyle": "named"}  # else every '%' of a statement is printed twice
    context.configure(dialect_name="postgresql", dialect_opts=plain, transactional_ddl=transaction, **_VERSION_TABLE)
    with context.begin_transaction():
        say = context.get_context().impl.static_output
        for text in migrate.before_revisions():
            say(text)
        context.run_migrations()
        for text in migrate.after_revisions():
            say(text)


if context.is_offline_mode():
    offline()
else:
    online()
