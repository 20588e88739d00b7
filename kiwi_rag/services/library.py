"""The libraries of this user, and the scope in which a call uses the documents of one.

A caller names a library by its id. This module resolves the id and enters the scope of the library's collection; no
interface passes the name of a collection, and no store is opened for a name that a caller gave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from kiwi_rag.collection import Collection
from kiwi_rag.errors import NoSuchLibrary, StoreError
from kiwi_rag.model import SearchQuery, SearchReply
from kiwi_rag.services import ClosesOpened, Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.sources.library.discover import LibrarySource
from kiwi_rag.sources.library.record import Library, LibraryRecords
from kiwi_rag.sources.library.versions import Resolution, resolve
from kiwi_rag.sources.workspace.config import WorkspaceConfig

TIER = "library"
_SCOPE: ContextVar[Library | None] = ContextVar("kiwi_library", default=None)
"""The library whose collection this call may use; None: that of the workspace, which is the global one."""


class LibraryIndex(DocumentIndex):
    """The index of one version of a library.

    Parameters
    ----------
    app
        Settings, model and trust.
    library
        The record of the library.
    """

    kind = TIER

    def __init__(self, app: Services, library: Library) -> None:
        super().__init__(app, app.user_dir, "libraries", library.name)
        self.library = library
        self.index_command = f"kiwi library reindex {library.canonical}"

    @cached_property
    def config(self) -> WorkspaceConfig:
        """The folder with the documentation, and the name of the collection."""
        return WorkspaceConfig(self.library.root, self.library.name)

    @property
    def title(self) -> str:
        """The id with the version."""
        return self.library.canonical

    @property
    def tier(self) -> Collection:
        """The collection of the documents, in the scope of this library alone.

        Raises
        ------
        StoreError
            When this call is in the scope of another library, or of none.
        """
        if _SCOPE.get() != self.library:
            raise StoreError(f"{self.title} is used outside of its scope", hint="this is a defect of Kiwi; report it")
        return super().tier

    @property
    def source(self) -> LibrarySource:
        """The files that are documentation, for one run."""
        return LibrarySource(self.config, self.tier.policy.max_bytes, self.library)

    async def search(self, query: SearchQuery, hint: str = "") -> SearchReply:
        """Search the documentation; the metadata of each hit names the ``library`` with its version."""
        reply = await super().search(query, hint)
        named = (replace(hit, metadata={**hit.metadata, "library": self.title}) for hit in reply.hits)
        return replace(reply, hits=tuple(named))


class Libraries(ClosesOpened):
    """The libraries of this user; what was opened is released by `close`.

    Parameters
    ----------
    app
        Settings, model and trust.

    Attributes
    ----------
    records
        The records of the libraries.
    """

    def __init__(self, app: Services) -> None:
        self._app = app
        self.records = LibraryRecords(app.user_dir / "libraries")
        self._indexes: dict[Library, LibraryIndex] = {}
        self._opened = AsyncExitStack()

    def all(self) -> Sequence[Library]:
        """Return the libraries whose records can be read, by id. Blocking."""
        return self.records.list()[0]

    def resolve(self, ref: str, path_context: Path | None = None) -> Resolution:
        """Return the library and version that a caller means; `path_context` is a file of their project. Blocking.

        Raises
        ------
        NoSuchLibrary, VersionNotIndexed
            When there is none; another version is never taken in its place. The hint names records that are damaged.
        """
        found, damaged = self.records.list()
        try:
            return resolve(found, ref, path_context)
        except NoSuchLibrary as error:
            error.hint = "; ".join([*(f"{one.message}: {one.hint}" for one in damaged), error.hint])
            raise

    @contextmanager
    def scope(self, library: Library) -> Iterator[LibraryIndex]:
        """Use the collection of a library in the block, and in the tasks that it starts."""
        if library not in self._indexes:
            index = self._indexes[library] = LibraryIndex(self._app, library)
            self._opened.push_async_callback(index.close)
        token = _SCOPE.set(library)
        try:
            yield self._indexes[library]
        finally:
            _SCOPE.reset(token)

    async def remove(self, library: Library) -> None:
        """Delete the index of a library, its record, and what was unpacked for it; what was indexed in place stays.

        Raises
        ------
        UsageError
            When its index is shared.
        StoreBusy, StoreError
            When another process writes to the index, or it cannot be deleted.
        """
        with self.scope(library) as index:
            if index.is_indexed:
                await index.delete_index()
        self._indexes.pop(library, None)
        await asyncio.to_thread(self.records.remove, library)
