"""``kiwi install``, ``update``, ``outdated`` and ``uninstall``: skills where agents look for them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kiwi_rag import render
from kiwi_rag.cli.items import warn
from kiwi_rag.cli.session import DONE, PARTLY, YES, Session, command, confirm, option
from kiwi_rag.formats.source import display_path
from kiwi_rag.integrations.skill_folders import FOLDERS
from kiwi_rag.services import Services
from kiwi_rag.usecases.install import PlannedSkill, SkillInstaller
from kiwi_rag.usecases.installed_skills import Newest, list_newest, place_of
from kiwi_rag.usecases.trust import fetch_revocations

NAMES = click.argument("names", nargs=-1)
TO = option("--to", "target", choices=("project", "user"), default="project", help="Below the project, or your home.")
FORCE = option("--force", is_flag=True, help="Also replace or remove folders that were edited or are not Kiwi's.")


@command(epilog="Example: kiwi install acme/cache-report, or kiwi install --frozen")
@click.argument("refs", nargs=-1)
@TO
@option("--client", "clients", multiple=True, choices=FOLDERS, help="Whose folder. Default: agents (.agents/skills).")
@option("--frozen", is_flag=True, help="Install exactly what kiwi.lock says, and do not change it.")
@FORCE
@YES
async def install(
    session: Session, app: Services, refs: Sequence[str], target: str, clients: Sequence[str], *,
    frozen: bool, force: bool, yes: bool,
) -> None:  # fmt: skip
    """Install skills where agents look for them, verified, with their signatures; without REFS those of kiwi.lock.

    A skill is copied to .agents/skills/NAME, or with --client claude to .claude/skills/NAME, and kiwi.lock says which
    version that is and who signed it. Everything is checked before anything is written.
    """
    session.notify(await fetch_revocations(app))
    installer = _installer(app, target, force=force)
    plans = await installer.plan_install(refs, clients, frozen=frozen)
    words = ["install", *refs, *(f"--client {name}" for name in clients), *["--frozen"] * frozen]
    await _apply(session, installer, plans, words, yes=yes)


@command(epilog="Example: kiwi update, or kiwi update cache-report")
@NAMES
@TO
@FORCE
@YES
async def update(session: Session, app: Services, names: Sequence[str], target: str, *, force: bool, yes: bool) -> None:
    """Update installed skills, all or those of NAMES, to the newest version that a tier has."""
    session.notify(await fetch_revocations(app))
    installer = _installer(app, target, force=force)
    await _apply(session, installer, await installer.plan_update(names), ["update", *names], yes=yes)


def _installer(app: Services, target: str, *, force: bool) -> SkillInstaller:
    return SkillInstaller(app, place_of(app, target), force)


async def _apply(
    session: Session, installer: SkillInstaller, plans: Sequence[PlannedSkill], words: Sequence[str], *, yes: bool
) -> None:
    command = " ".join(["kiwi", *words]) + installer.place.option + " --force" * installer.force
    for plan in plans:
        warn(session, installer.app, plan.found)
        if plan.other_signer:
            signers = f"{plan.other_signer} signed the installed version, {plan.found.signer.principal} this one"
            confirm(f"{plan.after.ref}: {signers}. Install it?", command, yes=yes, undone=f"{signers}; nothing changed")
    await installer.apply(plans)
    lines = (line for plan in plans for line in _lines(plan))
    session.print_data([plan.as_dict() for plan in plans], lines, empty="nothing to do")


def _lines(plan: PlannedSkill) -> list[str]:
    was = f"{plan.before.version} → " if plan.before and plan.action == "updated" else ""
    head = f"{plan.action}  {plan.after.id} {was}{plan.after.version}"
    by = f"from {plan.found.tier.name}, signed by {plan.found.signer.principal}"
    return [render.safe(f"{head}  {by}"), *(f"  {display_path(folder)}" for folder in plan.folders)]


@command(epilog="Example: kiwi outdated, or kiwi outdated --to user")
@TO
async def outdated(session: Session, app: Services, target: str) -> int:
    """List installed skills and the newest version of each.

    Exit code 3: one is outdated or was yanked, or a tier that may have a newer version cannot be read (unknown).
    """
    session.notify(await fetch_revocations(app))
    found = await list_newest(app, place_of(app, target))
    heading = ("skill", "installed", "newest", "tier", "signed by", "state")
    rows = [heading, *map(_row, found)] if found else []
    session.print_data([one.as_dict() for one in found], map(render.safe, render.table(rows, range(6)) if rows else ()))
    session.notify(*(f"{one.locked.id}: {one.problem.message} → {one.problem.hint}" for one in found if one.problem))
    session.notify("" if found else "no skill is installed here; install one with: kiwi install REF")
    return DONE if all(one.state == "current" for one in found) else PARTLY


def _row(one: Newest) -> tuple[str, ...]:
    newest = one.found.signed.ref.version or "" if one.found else ""
    about = (one.found.tier.name, one.found.signer.principal) if one.found else ("", "")
    return (one.locked.id, one.locked.version, newest, *about, one.state)


@command(epilog="Example: kiwi uninstall cache-report")
@click.argument("names", nargs=-1, required=True)
@TO
@FORCE
async def uninstall(session: Session, app: Services, names: Sequence[str], target: str, *, force: bool) -> None:
    """Remove installed skills from the folders of their clients and from kiwi.lock."""
    removed = await _installer(app, target, force=force).uninstall(names)
    rows = [{"id": one.id, "version": one.version, "clients": one.clients} for one in removed]
    session.print_data(rows, (f"uninstalled  {one.id} {one.version}" for one in removed))


_EXAMPLES = """\b
Example: kiwi export --well-known public                       all skills of the project and the user
         kiwi export --well-known public acme/canary-release   this one
"""
