"""``kiwi diff``, ``log``, ``verify`` and ``why``: how versions of an item differ, and whether one is trusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kiwi_rag import render
from kiwi_rag.cli.search import SOURCE
from kiwi_rag.cli.session import DONE, PARTLY, REFUSED, Session, command
from kiwi_rag.errors import NotFound
from kiwi_rag.search.verify import parse_address
from kiwi_rag.services import Services
from kiwi_rag.usecases import history, items
from kiwi_rag.usecases.installed_skills import verify_installed
from kiwi_rag.usecases.trust import fetch_revocations

if TYPE_CHECKING:
    from kiwi_rag.usecases.explain import Check
    from kiwi_rag.usecases.history import VersionRecord

REF_OR_PATH = click.argument("ref", metavar="REF|PATH")
_ROLES = {"+": "ok", "-": "bad", "@": "dim"}


@command(epilog="Example: kiwi diff acme/slo, or kiwi diff acme/slo@1.0.0 acme/slo@1.1.0")
@REF_OR_PATH
@click.argument("other", metavar="[REF|PATH]", default="")
async def diff(session: Session, app: Services, ref: str, other: str) -> int:
    """Compare two versions of an item, or two tiers: version, signer, metadata and files. Both are verified.

    With one REF or PATH the item's file is compared with what is indexed, and if that is the same with what is
    published; a file that is not signed is marked. Exit code 3: they differ.
    """
    found = await history.diff(app, ref, other)
    lines = (session.style(render.safe(line), _ROLES.get(line[:1], "")) for line in found.lines())
    session.print_data(found.as_dict(), lines)
    session.notify("" if found.differs else f"{found.old} and {found.new} are the same")
    return PARTLY if found.differs else DONE


@command(epilog="Example: kiwi log acme/deploy/staging, or kiwi log acme/slo@registry")
@REF_OR_PATH
async def log(session: Session, app: Services, ref: str) -> int:
    """List the versions of an item that each tier has or had, newest first: time, signer, digest and state.

    The time is that of the signature; of an earlier version it is that of its admission, and says so.
    """
    rows, problem = await history.log(app, ref)
    lines = (
        f"{row.tier}  {row.version}  {_time_of(row)}  {row.signer}  {row.digest[:16]}  {row.state}"
        + (f": {row.reason}" if row.reason else "")
        + ("  private" if row.private else "")
        for row in rows
    )
    session.print_data([asdict(row) for row in rows], map(render.safe, lines))
    if problem:
        session.notify(f"the registry's versions are missing: {problem.message}")
    return PARTLY if problem else DONE


@command(epilog="Example: kiwi verify, or kiwi verify acme/deploy/staging --source user")
@click.argument("refs", nargs=-1)
@SOURCE
async def verify(session: Session, app: Services, refs: tuple[str, ...], source: str | None) -> int:
    """Verify indexed items and installed skills again, and compare them with their files and between tiers.

    Exit code 4: an item was refused. Exit code 3: a file was changed, a version was yanked, an installed skill is
    missing, or two tiers have the same version with different content. Skills that agents find and kiwi.lock does not
    list are named.
    """
    wanted, source = [parse_address(ref) for ref in refs], source or "local"
    session.notify(await fetch_revocations(app))
    verdicts = [*await items.verify(app, wanted, source), *await verify_installed(app, wanted, source)]
    if wanted and not verdicts:
        raise NotFound(f"{', '.join(refs)}: not found in {source}", hint="kiwi list shows what is there")
    lines = (
        f"{'✓' if one.state == 'verified' else '✗'} {one.tier}  {one.ref}  {one.state}  {one.signer}{one.reason}"
        for one in verdicts
    )
    session.print_data([verdict.as_dict() for verdict in verdicts], map(render.safe, lines))
    states = [one.state for one in verdicts]
    rare = (name for name in ("conflict", "missing", "unlisted") if name in states)
    named = ("verified", "changed", "yanked", "refused", *rare)
    session.notify(", ".join(f"{states.count(name)} {name}" for name in named))
    return REFUSED if "refused" in states else DONE if set(states) <= {"verified", "unlisted"} else PARTLY


@command(epilog="Example: kiwi why acme/slo, or kiwi why .ai/knowledge/acme/slo.md")
@REF_OR_PATH
async def why(session: Session, app: Services, ref: str) -> int:
    """Explain why an item or a file is trusted, or not: each step of the gate and of verification, and what to do.

    Of a path the file is examined as the next index run will do it. What is an item id or address is not read as a
    path: a path has a suffix, or begins with ./ or /. Exit code 4: it is refused. Exit code 3: it is
    trusted, but was changed, yanked or shadowed.
    """
    from kiwi_rag.usecases.explain import explain  # loads the registry's client, which `verify` does not need

    session.notify(await fetch_revocations(app))
    found = await explain(app, ref)
    session.print_data(found.as_dict(), (line for check in found.checks for line in _check_lines(session, check)))
    session.notify(f"{found.what}: {found.state}")
    return {"trusted": DONE, "refused": REFUSED}.get(found.state, PARTLY)


def _time_of(row: VersionRecord) -> str:
    """Return when a version was signed or, where only that is known, admitted."""
    return f"admitted {row.at}" if row.at and row.state == "earlier" else row.at or "–"


def _check_lines(session: Session, check: Check) -> Iterator[str]:
    mark = session.style(*{True: ("✓", "ok"), False: ("✗", "bad"), None: ("–", "dim")}[check.ok])
    number = "" if check.step is None else check.step
    yield f"{mark} {number:>2} {check.name:<19}  {render.safe(check.says)}"
    if check.hint:
        yield f"{'':25}→ {render.safe(check.hint)}"
