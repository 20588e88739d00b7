"""The documentation of a package as files of its own: copied from where it is installed, or out of its archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.sources.library.package import Package


@dataclass(frozen=True)
class Unpacked:
    """How many files were written, and how many bytes they have together."""

    files: int
    size: int


def unpack(package: Package, target: Path, archive: Path | None = None, *, code: bool = False) -> Unpacked:
    """Replace the folder `target` by the documentation of a package, from its archive or where it is installed.

    With `code`, source code that has documentation in it is unpacked, too. Nothing of the package is executed.

    Raises
    ------
    ArchiveRefused
        When the archive has links, devices, names outside of it, equal names but for case, or too much in it.
    SourceUnreadable
        When an installed file cannot be read.
    StoreError
        When `target` cannot be written.
    """
    raise NotImplementedError
