"""``kiwi import``: items made of files that teams have for other tools."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kiwi_rag import render
from kiwi_rag.cli.items import KEY, PATHS, TIER
from kiwi_rag.cli.session import PARTLY, Session, ask_passphrase, command, option
from kiwi_rag.formats.source import display_path
from kiwi_rag.services import Services
from kiwi_rag.sources.source import describe_error
from kiwi_rag.usecases.import_items import Importer, ImportOptions, ImportRow


@command("import", epilog="Example: kiwi import docs .cursor/rules AGENTS.md --namespace acme --dry-run")
@PATHS
@option("--namespace", default="", help="First part of the ids. Default: from kiwi.lock, else the setting namespace.")
@option("--author", default="", help="The author of items whose files name none.")
@option("--tag", "tags", multiple=True, help="A tag of items whose files have none; can be repeated.")
@option("--write", is_flag=True, help="Put metadata into the copies, not into their signatures only.")
@option("--force", is_flag=True, help="Replace copies that were edited, and items of the same ids.")
@option("--dry-run", is_flag=True, help="Show what would become of each file, and write nothing.")
@TIER
@KEY
async def import_items(
    session: Session, app: Services, paths: Sequence[Path], tier: str, key: str, *, dry_run: bool, **given: Any
) -> int:
    """Make items of files and folders: copy them to the tier, sign and index them.

    It takes folders with SKILL.md, indexes of skills, Markdown, AGENTS.md, CLAUDE.md, Cursor rules, Claude commands and
    agents, Copilot prompts, directives and scripts. Run again, it imports what has changed, with a new version.
    Exit code 3: some files were refused; 4: all were.
    """
    importer = Importer(app, tier, ImportOptions(**given))
    rows = await importer.plan(paths)
    if not dry_run:
        rows = [row async for row in importer.store(rows, key, ask_passphrase)]
    session.print_data({"dry_run": dry_run, "files": [row.as_dict() for row in rows]}, _table(rows))
    if problem := importer.registry_problem:
        session.notify(f"{problem}; its versions were not compared with these items, kiwi publish does it")
    done = [row for row in rows if row.error is None]
    if dry_run:
        session.notify("nothing was written")
    elif any(row.candidate for row in done):
        session.notify(*_next_commands(app.root(tier), tier, done))
    code = session.report_refusals(dict.fromkeys(row.error for row in rows if row.error))
    return PARTLY if code and done else code


def _table(rows: Sequence[ImportRow]) -> Sequence[str]:
    """Return a line for each file: what becomes of it, what it is, its path, the item, and what else is to be said."""
    notes = (describe_error(row.error) if row.error else row.note for row in rows)
    cells = [(r.state, r.kind, r.path, str(r.ref or "-"), note) for r, note in zip(rows, notes, strict=True)]
    return render.table([[render.safe(cell) for cell in row] for row in cells], left=range(5))


def _next_commands(root: Path, tier: str, rows: Sequence[ImportRow]) -> Sequence[str]:
    """Return the commands for what was imported, after an edit."""
    folders = {root / row.ref.item_type.folder / row.ref.namespace for row in rows if row.ref}
    where = " ".join(shlex.quote(display_path(folder)) for folder in sorted(folders))
    where += " --tier user" if tier == "user" else ""
    return f"after an edit: kiwi add {where} --bump patch", f"to share them: kiwi publish {where}"
