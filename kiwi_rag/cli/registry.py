"""``kiwi registry``: the embedded server, the schema, and what waits for vectors."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from kiwi_rag import present
from kiwi_rag.app import App
from kiwi_rag.cli.indexing import index, verify
from kiwi_rag.cli.session import DONE, PARTLY, Session
from kiwi_rag.cli.tuning import tune
from kiwi_rag.cli.withdraw import accept, retire, revoke
from kiwi_rag.errors import RegistryError, RegistryRefused, RegistryUnreachable, UsageError
from kiwi_rag.signing.trust import SignerStatus


@click.group()
def registry() -> None:
    """Start, stop, migrate and inspect the registry."""


@registry.command(epilog="Example: kiwi registry start, or kiwi registry start --port 54329")
@click.option("--port", type=click.IntRange(1024, 65535), help="Listen on 127.0.0.1 too, with a password.")
@click.pass_obj
def start(session: Session, port: int | None) -> int:
    """Start the embedded registry and keep it running until `kiwi registry stop`; bring its schema up to date.

    Without this it is started by the first command that needs it, and stopped by the last. On stdout stands where it
    listens; of a port, the URL names the file of its password.
    """
    return session.run(lambda app: _start(session, app, port))


@registry.command(epilog="Example: kiwi registry stop")
@click.pass_obj
def stop(session: Session) -> int:
    """Stop the embedded registry; its data stay."""
    from kiwi_rag.registry import server

    app = session.app()
    _require_embedded(app)
    session.say("stopped" if server.stop(app.registry_dir) else "it was not running")
    return DONE


@registry.command(
    epilog="Example: kiwi registry migrate (of the server that KIWI_REGISTRY_URL names, or the embedded one)"
)
@click.pass_obj
def migrate(session: Session) -> int:
    """Bring the registry to the newest schema: tables, functions, roles. Needs a role that may create them."""
    return session.run(lambda app: _migrate(session, app))


@registry.command(epilog="Example: kiwi registry status")
@click.pass_obj
def status(session: Session) -> int:
    """Show where the registry is, whether it answers, its schema and what it holds."""
    return session.run(lambda app: _status(session, app))


for command in (index, tune, verify, retire, revoke, accept):
    registry.add_command(command)


@registry.command(epilog="Example: kiwi registry enrol ada@acme.example")
@click.argument("principal")
@click.pass_obj
def enrol(session: Session, principal: str) -> int:
    """Let a signer that you trust publish: its key, patterns and types, as in your trust file. Needs kiwi_admin."""
    return session.run(lambda app: _enrol(session, app, principal))


@registry.command(epilog="Example: kiwi registry signers")
@click.pass_obj
def signers(session: Session) -> int:
    """List who may publish to the registry."""
    return session.run(lambda app: _signers(session, app))


async def _start(session: Session, app: App, port: int | None) -> int:
    from kiwi_rag.registry import server

    _require_embedded(app)
    server.start(app.registry_dir, keep=True, port=port)
    await app.prepare_registry()
    session.say(f"running in {app.registry_dir}; stop it with: kiwi registry stop")
    if not session.quiet:
        session.out(server.server_state(app.registry_dir).tcp_uri or app.registry_url())
    return DONE


async def _migrate(session: Session, app: App) -> int:
    changed = await app.migrate_registry()
    session.say("migrated to the newest schema" if changed else "the schema is the newest already")
    return DONE


async def _status(session: Session, app: App) -> int:
    row = _server_row(app)
    problem = ""
    if row["running"] is not False:
        try:
            store = app.registry().store
            held = await store.status()
            row |= {"items": held.items, "passages": held.passages, **held.details}
            with suppress(RegistryRefused):  # the queue is for indexers and admins
                row |= await store.index_status()
            problem, row["running"] = "; ".join(held.problems), True
        except RegistryError as error:
            problem, row["running"] = f"{error.message} ({error.hint})", not isinstance(error, RegistryUnreachable)
    row["problem"] = problem
    if session.as_json:
        session.data(row)
    else:
        for name, value in row.items():
            for one in value if isinstance(value, list) else [value]:
                session.out(present.safe(f"{name}: {_shown(one)}"))
    return PARTLY if problem else DONE


def _shown(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)


def _server_row(app: App) -> dict[str, Any]:
    from kiwi_rag.registry import server

    if not app.registry_is_embedded:
        return {"where": app.registry_place, "running": None}
    state = server.server_state(app.registry_dir)
    return {"where": app.registry_place, "running": state.running, "kept": state.kept, "pid": state.pid}


async def _enrol(session: Session, app: App, principal: str) -> int:
    named = [signer for signer in app.trust.by_key.values() if signer.principal == principal]
    found = [signer for signer in named if signer.status is SignerStatus.ACTIVE]
    if not found:
        what = f"no key of {principal} is active" if named else f"you trust nobody called {principal!r}"
        raise UsageError(what, hint="kiwi trust list")
    for signer in found:
        await app.enrol(signer)
        session.out(signer.key_id)
    return DONE


async def _signers(session: Session, app: App) -> int:
    rows = [
        {
            "principal": row.signer.principal,
            "status": row.signer.status.value,
            "items": ",".join(row.signer.patterns),
            "types": ",".join(row.signer.types),
            "key_id": row.signer.key_id,
        }
        for row in await app.enrolled()
    ]
    if session.as_json:
        session.data(rows)
    else:
        for row in rows:
            session.out(present.safe("  ".join(str(value) for value in row.values())))
    return DONE


def _require_embedded(app: App) -> None:
    if not app.registry_is_embedded:
        raise UsageError(
            f"Kiwi does not run this registry: {app.registry_place}",
            hint="unset KIWI_REGISTRY_URL and SUPABASE_URL, or ask its operator",
        )
