"""``kiwi registry``: start, stop, migrate, status and signers; and ``kiwi audit --tier registry``."""

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


@click.group()
def registry() -> None:
    """Start, stop, migrate and inspect the registry."""


@registry.command(epilog="Example: kiwi registry start, or kiwi registry start --port 54329")
@click.option(
    "--port", type=click.IntRange(1024, 65535), help="Also listen on this port of 127.0.0.1, with a password."
)
@click.pass_obj
def start(session: Session, port: int | None) -> int:
    """Start the embedded registry, migrate its schema, and keep it running until `kiwi registry stop`.

    Otherwise the first command that needs it starts it, and the last one stops it. The URL of the server is printed on
    stdout; with --port it names the file of the password.
    """
    return session.run(lambda app: _start(session, app, port))


@registry.command(epilog="Example: kiwi registry stop")
@click.pass_obj
def stop(session: Session) -> int:
    """Stop the embedded registry. Its data are kept."""
    from kiwi_rag.registry import server

    app = session.app()
    _require_embedded(app)
    session.notify("the registry was stopped" if server.stop(app.registry_dir) else "the registry was not running")
    return DONE


@registry.command(
    epilog="Example: kiwi registry migrate (of the server that KIWI_REGISTRY_URL names, or the embedded one)"
)
@click.pass_obj
def migrate(session: Session) -> int:
    """Migrate the registry's schema: tables, functions and roles. Needs a role that may create them."""
    return session.run(lambda app: _migrate(session, app))


@registry.command(epilog="Example: kiwi registry status")
@click.pass_obj
def status(session: Session) -> int:
    """Show the registry's address, whether it answers, its schema, and the number of items."""
    return session.run(lambda app: _status(session, app))


for command in (index, tune, verify, retire, revoke, accept):
    registry.add_command(command)


@registry.command(epilog="Example: kiwi registry enrol ada@acme.example")
@click.argument("principal")
@click.pass_obj
def enrol(session: Session, principal: str) -> int:
    """Let a signer of your trust file publish, with the same key, patterns and types. Needs the role kiwi_admin."""
    return session.run(lambda app: _enrol(session, app, principal))


@registry.command(epilog="Example: kiwi registry signers")
@click.pass_obj
def signers(session: Session) -> int:
    """List the signers that may publish to the registry."""
    return session.run(lambda app: _signers(session, app))


async def _start(session: Session, app: Services, port: int | None) -> int:
    from kiwi_rag.registry import server

    _require_embedded(app)
    server.start(app.registry_dir, keep=True, port=port)
    await app.prepare_registry()
    session.notify(f"the registry runs in {app.registry_dir}; stop it with: kiwi registry stop")
    if not session.quiet:
        session.print(server.server_state(app.registry_dir).tcp_uri or app.registry_connection.url())
    return DONE


async def _migrate(session: Session, app: Services) -> int:
    changed = await app.registry_connection.migrate()
    session.notify("migrated to the newest schema" if changed else "the schema is the newest one already")
    return DONE


async def _status(session: Session, app: Services) -> int:
    row = _server_row(app)
    problem = ""
    if row["running"] is not False:
        try:
            store = app.registry().store
            content = await store.status()
            row |= {"items": content.items, "passages": content.passages, **content.details}
            with suppress(RegistryRefused):  # only indexers and admins may read the queue
                row |= await store.index_status()
            problem, row["running"] = "; ".join(content.problems), True
        except RegistryError as error:
            problem, row["running"] = f"{error.message} ({error.hint})", not isinstance(error, RegistryUnreachable)
    row["problem"] = problem
    if session.as_json:
        session.print_json(row)
    else:
        for name, value in row.items():
            for one in value if isinstance(value, list) else [value]:
                session.print(render.safe(f"{name}: {_shown(one)}"))
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
        what = f"{principal} has no active key" if named else f"your trust file has no signer {principal!r}"
        raise UsageError(what, hint="kiwi trust list")
    for signer in found:
        await app.enrol(signer)
        session.print(signer.key_id)
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
        session.print_json(rows)
    else:
        for row in rows:
            session.print(render.safe("  ".join(str(value) for value in row.values())))
    return DONE


def _require_embedded(app: Services) -> None:
    if not app.registry_connection.is_embedded:
        raise UsageError(
            f"{app.registry_connection.description} is not the embedded registry, so Kiwi cannot start or stop it",
            hint="unset KIWI_REGISTRY_URL and SUPABASE_URL to use the embedded one",
        )


async def show_log(session: Session, app: Services, since: int, limit: int) -> int:
    """Print the registry's newest audit records."""
    from kiwi_rag.registry import client

    async with app.registry_session() as caller:
        head = (await client.registry_news(caller, 0, 0, app.settings.registry_name)).head
    rows: list[dict[str, Any]] = []
    async for batch in _batches(app, max(since, head.seq - limit), limit):
        rows += batch
    if session.as_json:
        session.print_json(rows)
    else:
        for r in rows:
            session.print(render.audit_line(r))
    if not rows:
        session.notify("the audit log is empty")
    return DONE


async def verify_log(session: Session, app: Services) -> int:
    """Verify the registry's hash chain: each record if this role may read them, and the head against the pinned one.

    Raises
    ------
    AuditBroken, ChainShortened, ChainForked
        When the chain is broken, or does not contain the pinned head.
    """
    pinned = app.monitor.pinned.head()
    await app.monitor.check(fully=True)
    head = app.monitor.pinned.head()
    try:
        await _verify_records(app, pinned, head)
        all_read, how = True, "every record was verified"
    except RegistryRefused:
        all_read, how = False, "the records were not verified, because only the registry's admins may read them"
    compared = (
        f"the log continues from pinned record {pinned.seq}" if pinned.seq else "the log was read for the first time"
    )
    if session.as_json:
        session.print_json({"seq": head.seq, "hash": head.hash, "seen": pinned.seq, "records": all_read})
    else:
        session.print(f"{head.seq} records, head {head.hash}")
    session.notify(f"{compared}; {how}")
    return DONE


async def _verify_records(app: Services, pinned: AuditHead, head: AuditHead) -> None:
    from kiwi_rag.monitor.monitor import verify_rows
    from kiwi_rag.validation.audit import AuditHead

    reached = AuditHead()
    async for batch in _batches(app, 0, head.seq):
        reached = verify_rows(batch, reached)
        for expected in (pinned, head):
            found = [row["hash"] for row in batch if row["seq"] == expected.seq]
            if found not in ([], [expected.hash]):
                raise AuditBroken(f"the registry's audit record {expected.seq} has another hash than before")
    if reached != head:
        raise AuditBroken(f"the registry's audit log ends at record {reached.seq}, but its head is record {head.seq}")


async def _batches(app: Services, since: int, limit: int) -> AsyncIterator[Sequence[dict[str, Any]]]:
    from kiwi_rag.registry.client import audit_records

    while limit > 0:
        async with app.registry_session() as caller:
            batch = (await audit_records(caller, since, min(limit, _BATCH)))[:limit]
        if not batch:
            return
        yield batch
        since, limit = int(batch[-1]["seq"]), limit - len(batch)
