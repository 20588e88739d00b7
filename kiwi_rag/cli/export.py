"""``kiwi export``: skills as an index that web sites publish for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from kiwi_rag.cli.session import Session, command, option
from kiwi_rag.render import counted
from kiwi_rag.services import Services
from kiwi_rag.usecases import items, skill_index

_EXAMPLES = """\b
Example: kiwi export --well-known public                       all skills of the project and the user
         kiwi export --well-known public acme/canary-release   this one
"""


@command(epilog=_EXAMPLES)
@click.argument("refs", nargs=-1)
@option(
    "--well-known", "site", required=True, metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
    help="The folder of a web site, whose .well-known/agent-skills is replaced.",
)  # fmt: skip
async def export(session: Session, app: Services, refs: tuple[str, ...], site: Path) -> None:
    """Write verified skills as an index of the format Agent Skills Discovery: index.json, and an archive of each skill.

    Each archive has the files that were signed and their signature, so that Kiwi can verify the author where it is
    imported. If a skill does not verify, or was yanked, nothing is written.
    """
    packed = await skill_index.pack_skills(app, refs)
    session.notify(*(f"warning: {line}" for one in packed for line in items.state_warnings(one.found)))
    path = skill_index.write_index(site, packed)
    about = [(one, {"ref": str(one.found.signed.ref), "signer": one.found.signer.principal}) for one in packed]
    rows = [{**one.entry, **more, "size": len(one.archive)} for one, more in about]
    session.print_data(rows, (f"{row['ref']}  {row['url']}  {row['digest']}" for row in rows))
    session.notify(f"{counted(len(rows), 'skills')} in {path}")
