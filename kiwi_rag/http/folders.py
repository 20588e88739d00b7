"""Which folders of this machine a caller of the service may add: those below an allowed root, without hidden ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kiwi_rag.errors import Refused
from kiwi_rag.mcp.context import ServerContext


def allowed_roots(context: ServerContext) -> Sequence[Path]:
    """Return the user's home and the folder of the service's workspace."""
    return [*dict.fromkeys([Path.home().resolve(), context.workspace.config.root.resolve()])]


def folders_below(folder: Path, roots: Sequence[Path]) -> Sequence[Path]:
    """Return the folders in one, without hidden ones and links to elsewhere."""
    found = sorted(path for path in folder.iterdir() if path.name.isprintable() and path.name[0] != ".")
    # Path.is_dir raises where a link leads through a folder that this user may not enter.
    return [path for path in found if os.path.isdir(path) and _is_allowed(path.resolve(), roots)]  # noqa: PTH112


def check_folder(given: str, roots: Sequence[Path]) -> Path:
    """Return the folder that a caller names, with links resolved.

    Raises
    ------
    Refused
        When it is not below an allowed root, or cannot be read. One that does not exist gets the same message.
    """
    with suppress(OSError, ValueError, RuntimeError):
        folder = Path(given).resolve(strict=True)
        if folder.is_dir() and _is_allowed(folder, roots) and os.access(folder, os.R_OK | os.X_OK):
            return folder
    hint = f"choose one below {' or '.join(map(str, roots))}"
    raise Refused(f"{given[:200]!r} is no folder that can be added", hint=hint)


def _is_allowed(folder: Path, roots: Sequence[Path]) -> bool:
    below = [folder.relative_to(root).parts for root in roots if folder.is_relative_to(root)]
    return any(not any(part.startswith(".") for part in parts) for parts in below)
