"""``kiwi registry``: start, stop, migrate, status and signers; and ``kiwi audit --tier registry``."""

from __future__ import annotations

from typing import Any

import click

from kiwi_rag import render
from kiwi_rag.cli.registry_index import index, tune, verify
from kiwi_rag.cli.revocation import accept, retire, revoke
from kiwi_rag.cli.session import DONE, PARTLY, Session, with_services
from kiwi_rag.services import Services
from kiwi_rag.usecases import registry as use_case


@click.group()
def registry() -> None:
    """Start, stop, migrate and inspect the registry."""


@registry.command(epilog="Example: kiwi registry start, or kiwi registry start --port 54329")
@click.option(
    "--port", type=click.IntRange(1024, 65535), help="Also listen on this port of 127.0.0.1, with a password."
)
@with_services
async def start(session: Session, app: Services, port: int | None) -> int:
    """Start the embedded registry, migrate its schema, and keep it running until `kiwi registry stop`.

    Otherwise the first command that needs it starts it, and the last one stops it. The URL of the server is printed on
    stdout; with --port it names the file of the password.
    """
    await use_case.start(app, port)
    session.notify(f"the registry runs in {app.registry_dir}; stop it with: kiwi registry stop")
    if not session.quiet:
        session.print(use_case.server_url(app))
    return DONE


@registry.command(epilog="Example: kiwi registry stop")
@click.pass_obj
def stop(session: Session) -> int:
    """Stop the embedded registry. Its data are kept."""
    was_running = use_case.stop(session.app())
    session.notify("the registry was stopped" if was_running else "the registry was not running")
    return DONE


@registry.command(
    epilog="Example: kiwi registry migrate (of the server that KIWI_REGISTRY_URL names, or the embedded one)"
)
@with_services
async def migrate(session: Session, app: Services) -> int:
    """Migrate the registry's schema: tables, functions and roles. Needs a role that may create them."""
    changed = await app.registry_connection.migrate()
    session.notify("migrated to the newest schema" if changed else "the schema is the newest one already")
    return DONE


@registry.command(epilog="Example: kiwi registry status")
@with_services
async def status(session: Session, app: Services) -> int:
    """Show the registry's address, whether it answers, its schema, and the number of items."""
    row = await use_case.collect_state(app)
    if session.as_json:
        session.print_json(row)
    for name, value in () if session.as_json else row.items():
        for one in value if isinstance(value, list) else [value]:
            session.print(render.safe(f"{name}: {_shown(one)}"))
    return PARTLY if row["problem"] else DONE


def _shown(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)


for command in (index, tune, verify, retire, revoke, accept):
    registry.add_command(command)


@registry.command(epilog="Example: kiwi registry enrol ada@acme.example")
@click.argument("principal")
@with_services
async def enrol(session: Session, app: Services, principal: str) -> int:
    """Let a signer of your trust file publish, with the same key, patterns and types. Needs the role kiwi_admin."""
    for signer in use_case.active_signers(app, principal):
        await app.enrol(signer)
        session.print(signer.key_id)
    return DONE


@registry.command(epilog="Example: kiwi registry signers")
@with_services
async def signers(session: Session, app: Services) -> int:
    """List the signers that may publish to the registry."""
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
    for row in () if session.as_json else rows:
        session.print(render.safe("  ".join(str(value) for value in row.values())))
    return DONE
