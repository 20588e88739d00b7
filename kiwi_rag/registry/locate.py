"""Where ``sql/`` and ``migrations/`` stand: inside an installed wheel, or at the root of a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from kiwi_rag.errors import RegistryOutdated

_PACKAGE = Path(__file__).resolve().parent.parent


def locate(folder: Literal["sql", "migrations"]) -> Path:
    """Return the folder's path.

    A wheel carries both below ``kiwi_rag/_database``; a checkout has them beside the package.

    Raises
    ------
    RegistryOutdated
        When neither place has it: the installation is incomplete.
    """
    for root in (_PACKAGE / "_database", _PACKAGE.parent):
        if (root / folder / ".." / "migrations" / "env.py").exists():
            return (root / folder).resolve()
    raise RegistryOutdated(f"this installation of Kiwi lacks its {folder}/ folder", hint="reinstall kiwi-rag")
