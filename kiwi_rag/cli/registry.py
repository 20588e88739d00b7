"""``kiwi audit --tier registry``: the registry's audit log, as far as its reader may see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import render
from kiwi_rag.cli.registry_index import index, tune, verify
from kiwi_rag.cli.revocation import accept, retire, revoke
from kiwi_rag.cli.session import DONE, PARTLY, Session
from kiwi_rag.errors import AuditBroken, RegistryError, RegistryRefused, RegistryUnreachable, UsageError
from kiwi_rag.services import Services
from kiwi_rag.signing.trust import SignerStatus

if TYPE_CHECKING:
    from kiwi_rag.validation.audit import AuditHead

_BATCH = 2000


async def show_log(session: Session, app: Services, since: int, limit: int) -> int:
    """Print the registry's newest audit records."""
    from kiwi_rag.registry import client

    async with app.registry_session() as caller:
        head = (await client.registry_news(caller, 0, 0, app.settings.registry_name)).head
    rows: list[dict[str, Any]] = []
    async for batch in _batches(app, max(since, head.seq - limit), limit):
        rows += batch
    if session.as_json:
        session.data(rows)
    else:
        for r in rows:
            session.out(render.audit_line(r))
    if not rows:
        session.say("the log is empty")
    return DONE


async def verify_log(session: Session, app: Services) -> int:
    """Verify the registry's chain: record by record where this role may read them, and against what was seen before.

    Raises
    ------
    AuditBroken, ChainShortened, ChainForked
        When it does not hold.
    """
    seen = app.monitor.pinned.head()
    await app.monitor.check(fully=True)
    head = app.monitor.pinned.head()
    try:
        await _verify_records(app, seen, head)
        how = "every record verified here"
    except RegistryRefused:
        how = "its records are for the registry's admins"
    compared = f"follows the head seen before ({seen.seq})" if seen.seq else "seen for the first time"
    if session.as_json:
        session.data({"seq": head.seq, "hash": head.hash, "seen": seen.seq, "records": how.startswith("every")})
    else:
        session.out(f"{head.seq} records, head {head.hash}")
    session.say(f"{compared}; {how}")
    return DONE


async def _verify_records(app: Services, seen: AuditHead, head: AuditHead) -> None:
    from kiwi_rag.monitor.monitor import verify_rows
    from kiwi_rag.validation.audit import AuditHead

    reached = AuditHead()
    async for batch in _batches(app, 0, head.seq):
        reached = verify_rows(batch, reached)
        for known in (seen, head):
            own = [row["hash"] for row in batch if row["seq"] == known.seq]
            if own not in ([], [known.hash]):
                raise AuditBroken(f"the registry's record {known.seq} is not the one whose hash it gave before")
    if reached != head:
        raise AuditBroken(f"the registry's audit log ends at record {reached.seq}, but it named {head.seq} as its last")


async def _batches(app: Services, since: int, limit: int) -> AsyncIterator[Sequence[dict[str, Any]]]:
    from kiwi_rag.registry.client import audit_records

    while limit > 0:
        async with app.registry_session() as caller:
            batch = (await audit_records(caller, since, min(limit, _BATCH)))[:limit]
        if not batch:
            return
        yield batch
        since, limit = int(batch[-1]["seq"]), limit - len(batch)


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


async def _start(session: Session, app: Services, port: int | None) -> int:
    from kiwi_rag.registry import server

    _require_embedded(app)
    server.start(app.registry_dir, keep=True, port=port)
    await app.prepare_registry()
    session.say(f"running in {app.registry_dir}; stop it with: kiwi registry stop")
    if not session.quiet:
        session.out(server.server_state(app.registry_dir).tcp_uri or app.registry_connection.url())
    return DONE


async def _migrate(session: Session, app: Services) -> int:
    changed = await app.registry_connection.migrate()
    session.say("migrated to the newest schema" if changed else "the schema is the newest already")
    return DONE


async def _status(session: Session, app: Services) -> int:
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
                session.out(render.safe(f"{name}: {_shown(one)}"))
    return PARTLY if problem else DONE


def _shown(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)


def _server_row(app: Services) -> dict[str, Any]:
    from kiwi_rag.registry import server

    if not app.registry_connection.is_embedded:
        return {"where": app.registry_connection.description, "running": None}
    state = server.server_state(app.registry_dir)
    return {
        "where": app.registry_connection.description,
        "running": state.running,
        "kept": state.kept,
        "pid": state.pid,
    }


async def _enrol(session: Session, app: Services, principal: str) -> int:
    named = [signer for signer in app.trust.by_key.values() if signer.principal == principal]
    found = [signer for signer in named if signer.status is SignerStatus.ACTIVE]
    if not found:
        what = f"no key of {principal} is active" if named else f"you trust nobody called {principal!r}"
        raise UsageError(what, hint="kiwi trust list")
    for signer in found:
        await app.enrol(signer)
        session.out(signer.key_id)
    return DONE


async def _signers(session: Session, app: Services) -> int:
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
            session.out(render.safe("  ".join(str(value) for value in row.values())))
    return DONE


def _require_embedded(app: Services) -> None:
    if not app.registry_connection.is_embedded:
        raise UsageError(
            f"Kiwi does not run this registry: {app.registry_connection.description}",
            hint="unset KIWI_REGISTRY_URL and SUPABASE_URL, or ask its operator",
        )
