"""The archive of a package, from the index of its ecosystem; its digest is checked, and nothing in it is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kiwi_rag.sources.library.package import Package, locate

Allow = Callable[[str, str, int], None]
"""Is called with host, purpose and bytes to come (0: not known) before each connection; raises without consent."""
Progress = Callable[[int, int], None]
"""Is called with the bytes that have arrived, and the bytes of the whole archive (0: not known)."""


@contextmanager
def download(origin: str, *, allow: Allow, progress: Progress) -> Iterator[tuple[Package, Path]]:
    """Yield the package that ``npm:NAME[@V]`` or ``pypi:NAME[@V]`` names, and its archive for `unpack`.

    Without a version it is the newest release. The archive is removed when the block ends.

    Raises
    ------
    NotFound
        When the index has no such package or version, or no source archive of it.
    DownloadFailed
        When the index cannot be reached or answers with something else.
    ArchiveRefused
        When the archive differs from its digest, is too large, or cannot be read.
    """
    allow(origin, "", 0)
    progress(0, 0)
    if origin:
        raise NotImplementedError
    yield locate(origin, Path()), Path()
