"""What a setup would change in a client's files: worked out whole before anything is written, then written or shown."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.clients.files import Backups, ClientFile
from kiwi_rag.clients.jsonc import JsonServers
from kiwi_rag.clients.marked import Paragraph
from kiwi_rag.clients.places import ClientEnvironment
from kiwi_rag.clients.refusals import Malformed, MalformedClientFile, NameTaken
from kiwi_rag.clients.server import NAME, TOOLSETS, Server, starting_command
from kiwi_rag.clients.table import Client
from kiwi_rag.clients.tasks import JsonTasks
from kiwi_rag.clients.toml import TomlServers

Editor = JsonServers | TomlServers | JsonTasks | Paragraph
_HINT = "mend the file, or move it away, and run this again; nothing was written"


@dataclass(frozen=True, slots=True)
class Change:
    """One file that is to say something else.

    Parameters
    ----------
    file
        The file as it is.
    after
        Its bytes to be; None: it is to go.
    is_first
        Whether nothing of Kiwi's is in the file yet, so that what it says now is worth keeping.
    """

    file: ClientFile
    after: bytes | None
    is_first: bool

    def diff(self) -> str:
        """Return the change as a unified diff, however the lines end."""
        old, new = self.file, ClientFile(self.file.path, self.after)
        was, is_now = ("/dev/null" if one.data is None else str(one.path) for one in (old, new))
        lines = difflib.unified_diff(old.text().splitlines(), new.text().splitlines(), was, is_now, lineterm="")
        return "\n".join(lines)


def make_plan(  # noqa: PLR0913  # what is asked for, by name
    client: Client,
    around: ClientEnvironment,
    backups: Backups,
    *,
    project: bool,
    remove: bool,
    toolsets: str = TOOLSETS,
) -> Sequence[Change]:
    """Return what setting a client up with `toolsets`, or taking Kiwi out of it, changes; nothing is written.

    Raises
    ------
    ClientFileError
        When one of its files cannot be read, is malformed, or has another server of Kiwi's name.
    """
    changes = []
    for path, editor in _editors(client, around, project=project, toolsets=toolsets):
        file = ClientFile.read(path, around.may_lead_into(project=project))
        try:
            change = _taken(file, editor, backups) if remove else _put(file, editor)
        except Malformed as error:
            raise MalformedClientFile(f"{file.path}:{error.line}: {error.what}", hint=_HINT) from error
        except NameTaken as error:
            raise NameTaken(f"{file.path}: {error.message}", hint="rename that one, and run this again") from error
        changes.append(change)
    return [change for change in changes if change.after != change.file.data]


def carry_out(plan: Sequence[Change], backups: Backups, *, project: bool) -> None:
    """Write what a plan says; call it while `backups` is locked, as `make_plan` before it.

    Raises
    ------
    ClientFileError
        When a file cannot be written; those before it stay written, and a second run finishes.
    """
    for change in plan:
        if change.is_first:
            backups.keep(change.file)
        change.file.write(change.after, 0o644 if project else 0o600)


def _editors(
    client: Client, around: ClientEnvironment, *, project: bool, toolsets: str
) -> Iterator[tuple[Path, Editor]]:
    level = client.project if project and client.project else client.user
    # What a project's files say has to be right on everybody's machine.
    command = [NAME] if project else starting_command(around.environ.get("PATH"), by_name=client.sees_path)
    server = Server(command[0], (*command[1:], *level.args), level.extra, toolsets)
    yield around.file(level.config), client.format(client.key, server)
    if level.rules:
        yield around.file(level.rules), Paragraph(level.head, toolsets)


def _put(file: ClientFile, editor: Editor) -> Change:
    text = file.text()
    edited = editor.put(text)
    return Change(file, file.data if edited == text else file.encoded(edited), editor.take(text) == text)


def _taken(file: ClientFile, editor: Editor, backups: Backups) -> Change:
    """Return the file without Kiwi's part: as it was before where nothing else changed since, gone where it was not."""
    text, before = file.text(), backups.of(file.path)
    left = editor.take(text)
    after: bytes | None = file.encoded(left)
    if left == text:
        after = file.data
    elif before.data is not None and editor.take(editor.put(before.text())) == left:  # whatever Kiwi's part said
        after = before.data
    elif before.data is None and left == editor.take(editor.put("")):
        after = None
    return Change(file, after, is_first=False)
