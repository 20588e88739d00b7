"""Adding a library from a folder or a package, and the state of its index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiwi_rag import render
from kiwi_rag.consent import Allow
from kiwi_rag.errors import DownloadFailed, NotFound, UsageError
from kiwi_rag.services.library import Libraries, LibraryIndex
from kiwi_rag.signing.statement import is_nameable
from kiwi_rag.sources.file_states import RunState
from kiwi_rag.sources.library.download import Progress, download, index_hosts
from kiwi_rag.sources.library.package import Package, locate, parse_origin
from kiwi_rag.sources.library.record import PATH, Library, check_id, check_version
from kiwi_rag.sources.library.unpack import unpack
from kiwi_rag.usecases.status import collect_workspace_status


@dataclass(frozen=True, slots=True)
class Addition:
    """What to add: a folder, ``npm:NAME[@V]`` or ``pypi:NAME[@V]``; `id` and `version` replace what it says of itself.

    ``from_folder`` is the project whose installed packages are meant. With `include`, only the files below these
    folders are its documentation. With `code`, source code with documentation in it is indexed, too.
    """

    origin: str
    from_folder: Path
    id: str = ""
    version: str = ""
    include: Sequence[str] = ()
    code: bool = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for an id, a version or a folder that cannot be one."""
        check_id(self.id or "/any/name")
        check_version(self.version or "1")
        if wrong := [folder[:80] for folder in self.include if not is_nameable(folder.rstrip("/"))]:
            raise UsageError(f"{wrong[0]!r} is no folder of a library", hint="name one below it, as docs/guide")

    def save(self, libraries: Libraries, allow: Allow, progress: Progress) -> tuple[Library, str]:
        """Store the documentation and its record; the index is updated after that. Blocking.

        Return the library, and why not all of its documentation may be there; empty where all of it is.

        An npm package that is installed has all of its documentation. A Python package has it in its source archive,
        which is downloaded in the version that is installed.

        Raises
        ------
        UsageError
            When it has no version, or its id or version is not allowed.
        NotFound, DownloadFailed, ConsentRequired
            When the package is neither installed nor to be had.
        """
        installed, hosts = self.locate()
        if installed and not hosts:
            return self._store(libraries, installed), ""
        ecosystem, name, wanted = parse_origin(self.origin)
        version = wanted or (installed.version if installed else "")
        try:
            with download(f"{ecosystem}:{name}" + (version and f"@{version}"), allow=allow, progress=progress) as found:
                return self._store(libraries, *found), ""
        except (DownloadFailed, NotFound) as error:
            if installed is None:
                raise
            return self._store(libraries, installed), f"only what is installed was added: {error.message}"

    def locate(self) -> tuple[Package | None, Sequence[str]]:
        """Return what is on this machine, and the hosts that the archive is downloaded from, if it has to be. Blocking.

        Raises
        ------
        NotFound
            When it is a folder that does not exist.
        """
        ecosystem, installed = parse_origin(self.origin)[0], None
        with suppress(NotFound) if ecosystem != PATH else nullcontext():
            installed = locate(self.origin, self.from_folder)
        is_whole = ecosystem == PATH or (ecosystem == "npm" and installed)
        return installed, () if is_whole else index_hosts(ecosystem)

    def _store(self, libraries: Libraries, package: Package, archive: Path | None = None) -> Library:
        include = [folder.rstrip("/") for folder in self.include]
        library = package.library(libraries.records, id=self.id, version=self.version, include=include, code=self.code)
        if library.origin != PATH:
            unpack(package, library.root, archive, include=library.include, code=library.code)
        libraries.records.write(library)
        return library


_STATUS = {"": "NotStarted", RunState.BEGUN: "InProgress", RunState.COMPLETE: "Completed", RunState.PARTLY: "Failed"}
"""The state of the last index run → the status of a library."""


async def collect_library_status(index: LibraryIndex, *, brief: bool = False) -> Mapping[str, Any]:
    """Return a library's record and the state of its index, JSON-ready; a `brief` one reads no document."""
    library, stats = index.library, await collect_workspace_status(index, brief=brief)
    states = index.tier.states if index.is_indexed else None
    return {
        "id": library.canonical,
        **render.attributes(library, "title", "version", "origin"),
        "aliases": list(library.aliases),
        "root": str(library.root),
        "status": _STATUS[stats["run"]],
        "last_indexed": states.written_at() if states else "",
        "commit": states.run_commit() if states else library.commit,
        "stats": stats,
    }
