"""The workspaces of this user that the pages show: the service's own, and those that were added."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from kiwi_rag.config import process_environment
from kiwi_rag.errors import ConfigError, NotFound, UsageError
from kiwi_rag.http.apps import Apps
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.services import Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.storage.atomic import write_json
from kiwi_rag.storage.safe_open import read_optional

_MAX_BYTES = 1 << 20


class Workspaces:
    """Workspaces by their root folder, opened on first use; closed by `aclose`.

    Parameters
    ----------
    context
        The context of the service, whose workspace is shown without being added.
    apps
        What keeps stores and models open, so that all workspaces share one model.
    """

    def __init__(self, context: ServerContext, apps: Apps) -> None:
        self._context, self._apps = context, apps
        self._file = context.app.user_dir / "workspaces.json"
        self._read: tuple[object, Sequence[Path]] = (), ()  # what the file was when it was read, and its folders
        self._opened: dict[Path, tuple[Services, Workspace]] = {}
        self._stack = AsyncExitStack()

    @property
    def roots(self) -> Sequence[Path]:
        """The root folders, the service's own first."""
        own = self._context.workspace
        shown = own.is_indexed or self._context.app.project_dir is not None
        return [*dict.fromkeys([*([own.config.root.resolve()] if shown else []), *self._added()])]

    async def open(self, root: str) -> Workspace:
        """Return the workspace at a root folder; raises as `services`."""
        return (await self._open(root))[1]

    @asynccontextmanager
    async def scope(self, root: str) -> AsyncIterator[DocumentIndex]:
        """Yield the index of a workspace, by its root folder, or of a library in its scope, by its id with the version.

        Raises
        ------
        NotFound
            When it is neither.
        """
        libraries = {one.canonical: one for one in await asyncio.to_thread(self._context.libraries.all)}
        if root not in libraries or root in map(str, self.roots):
            yield await self.open(root)
        else:
            with self._context.libraries.scope(libraries[root]) as index:
                yield index

    async def services(self, root: str) -> Services:
        """Return the services of a root folder, whose project tier are the items in its ``.ai``; of none the service's.

        Raises
        ------
        NotFound
            When it is none of `roots`.
        """
        return (await self._open(root))[0] if root else self._context.app

    async def _open(self, root: str) -> tuple[Services, Workspace]:
        folder = next((one for one in self.roots if str(one) == root), None)
        if folder is None:
            raise NotFound(f"no such library or workspace: {root[:200]}", hint="add it on the page Add")
        if folder == self._context.workspace.config.root.resolve():
            return self._context.app, self._context.workspace
        if folder not in self._opened:
            app = Services.open(process_environment(), folder, folder)
            lent = await self._stack.enter_async_context(self._apps.lend(app))
            self._opened[folder] = lent, await self._stack.enter_async_context(Workspace(lent))
        return self._opened[folder]

    def add(self, root: Path) -> None:
        """Show this folder's workspace from now on."""
        if not root.is_dir():
            raise NotFound(f"{root} is not a folder", hint="choose another one")
        self._write([*dict.fromkeys([*self._added(), root.resolve()])])

    def remove(self, root: Path) -> None:
        """Show it no longer; its index is kept."""
        left = [one for one in self._added() if one != root]
        if len(left) == len(self._added()):
            raise UsageError(f"{root} was not added here", hint="the service was started in it; start it elsewhere")
        self._write(left)

    async def aclose(self) -> None:
        """Close all that were opened."""
        await self._stack.aclose()

    def _added(self) -> Sequence[Path]:
        try:
            found = self._file.stat() if self._file.exists() else None
            state = found and (found.st_ino, found.st_mtime_ns, found.st_size)
            if state != self._read[0]:
                content = read_optional(self._file, _MAX_BYTES)
                self._read = state, [Path(str(one)) for one in json.loads(content or b"[]")]
            return self._read[1]
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{self._file} is not a list of folders", hint=f"rm {self._file}") from error

    def _write(self, roots: Sequence[Path]) -> None:
        write_json(self._file, [str(one) for one in roots])
