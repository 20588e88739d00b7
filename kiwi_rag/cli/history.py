"""``kiwi diff``, ``log`` and ``why``: how versions of an item differ, which there are, and why one is trusted."""

from __future__ import annotations

from dataclasses import asdict

import click

from kiwi_rag import render
from kiwi_rag.cli.items import REF
from kiwi_rag.cli.session import DONE, PARTLY, Session, command
from kiwi_rag.services import Services
from kiwi_rag.usecases import history

_ROLES = {"+": "ok", "-": "bad", "@": "dim"}


@command(epilog="Example: kiwi diff acme/slo, or kiwi diff acme/slo@1.0.0 acme/slo@1.1.0")
@REF
@click.argument("other", metavar="[REF]", default="")
async def diff(session: Session, app: Services, ref: str, other: str) -> int:
    """Compare two versions of an item, or two tiers: version, signer, metadata and files. Both are verified.

    With one REF the item's file is compared with what is indexed, and if that is the same with what is published; a
    file that is not signed is marked. Exit code 3: they differ.
    """
    found = await history.diff(app, ref, other)
    lines = (session.style(render.safe(line), _ROLES.get(line[:1], "")) for line in found.lines())
    session.print_data(found.as_dict(), lines)
    session.notify("" if found.differs else f"{found.old} and {found.new} are the same")
    return PARTLY if found.differs else DONE


@command(epilog="Example: kiwi log acme/deploy/staging, or kiwi log acme/slo@registry")
@REF
async def log(session: Session, app: Services, ref: str) -> int:
    """List the versions of an item that each tier has or had, newest first: time, signer, digest and state."""
    rows, problem = await history.log(app, ref)
    lines = (
        f"{row.tier}  {row.version}  {row.at or '–'}  {row.signer}  {row.digest[:16]}  {row.state}"
        + (f": {row.reason}" if row.reason else "")
        + ("  private" if row.private else "")
        for row in rows
    )
    session.print_data([asdict(row) for row in rows], map(render.safe, lines))
    if problem:
        session.notify(f"the registry's versions are missing: {problem.message}")
    return PARTLY if problem else DONE
