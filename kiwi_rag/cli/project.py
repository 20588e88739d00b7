"""``kiwi init``, ``config`` and ``completion``."""

from __future__ import annotations

from pathlib import Path

import click

from kiwi_rag import present
from kiwi_rag.cli.session import Session
from kiwi_rag.config import PROJECT_FOLDER, home_of, process_environment
from kiwi_rag.errors import StoreError, UsageError
from kiwi_rag.refs import ITEM_TYPES
from kiwi_rag.storage.atomic import create_file

_IGNORE = b"# The index is made from the signed files beside it; it never belongs in a repository.\nvectors/\n"


@click.command(epilog="Example: kiwi init, or kiwi init ../service")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.pass_obj
def init(session: Session, folder: Path) -> None:
    """Make a project's .ai folder with a place for each type of item. Safe to run again."""
    root = folder.resolve() / PROJECT_FOLDER
    if root == home_of(process_environment()).resolve():
        raise UsageError(f"{root} is the user tier, not a project's", hint="run it in the project's folder")
    try:
        for item_type in ITEM_TYPES:
            (root / item_type.folder).mkdir(parents=True, exist_ok=True)
        create_file(root / ".gitignore", _IGNORE, mode=0o644)
    except OSError as error:
        raise StoreError(f"cannot make {root}: {error.strerror}") from error
    session.say(f"{root} is ready: directives/, scripts/, knowledge/")
    session.say("next: kiwi keys new, put an item there, kiwi sign .ai, kiwi index")


@click.command("config", epilog="Example: kiwi config --resolved")
@click.option("--resolved", is_flag=True, help="Also where each value came from.")
@click.pass_obj
def show_config(session: Session, resolved: bool) -> None:
    """Show the settings in force: defaults < ~/.ai/config.yaml < .ai/config.yaml < KIWI_* < flags."""
    origins = session.app().resolved.origins
    if session.as_json:
        session.data({o.name: {"value": o.shown, "from": o.source} for o in origins})
        return
    for origin in origins:
        came = f"  # {origin.source}" if resolved else ""
        session.out(present.safe(f"{origin.name}: {origin.shown}{came}"))


@click.command(epilog="Example: kiwi completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_obj
def completion(session: Session, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    from kiwi_rag.cli import kiwi

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"no completion for {shell}")
    session.out(found(kiwi, {}, "kiwi", "_KIWI_COMPLETE").source())
