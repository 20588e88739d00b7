"""A user of the real commands: a home with keys, a project, a cache, and the environment of its processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.timing import timed
from tests.shared import ROOT

KIWI = (sys.executable, "-m", "kiwi_rag.cli")
MODELS_OF = Path(os.environ.get("KIWI_CACHE_DIR", ROOT / ".cache/kiwi")).absolute()
"""The cache of whoever runs the benchmarks: its model files serve all of them."""


@dataclass(frozen=True)
class Place:
    """A project with a home and a cache of its own; the cache holds the model and no vectors."""

    project: Path
    cache: Path
    env: Mapping[str, str]

    @classmethod
    def below(cls, folder: Path, *, shared_cache: bool = False) -> Place:
        """Make a home with a key and an empty project.

        With `shared_cache`, vectors that earlier runs left are used again: only where no time is measured.
        """
        folder.chmod(0o755)
        for name in ("home", "project", "cache"):
            (folder / name).mkdir()
        if (MODELS_OF / "models").is_dir():
            (folder / "cache/models").symlink_to(MODELS_OF / "models")
        cache = MODELS_OF if shared_cache else folder / "cache"
        env = {"KIWI_CACHE_DIR": str(cache), "KIWI_KEY_PASSPHRASE": "bench", "PYTHONPATH": str(ROOT)}
        # As users have it: without bytecode files each command would compile the modules anew.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        place = cls(folder / "project", cache, inherited | env).with_home(folder / "home")
        place.run("init")
        place.run("keys", "new")
        return place

    def with_home(self, home: Path) -> Place:
        """Return the same place, seen by somebody with another home."""
        return replace(self, env={**self.env, "HOME": str(home), "KIWI_HOME": str(home / ".ai")})

    def copy_in(self, items: Path) -> None:
        """Copy a folder of items over the project's ``.ai``, readable for all and writable for the owner only."""
        shutil.copytree(items, self.project / ".ai", dirs_exist_ok=True)
        for path in (self.project / ".ai").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def call(self, *arguments: str, accept: Sequence[int] = (0,)) -> tuple[float, str]:
        """Run a command; return its seconds and what it printed."""
        seconds, done = timed(
            lambda: subprocess.run(
                [*KIWI, *arguments], env=dict(self.env), cwd=self.project, capture_output=True, text=True, check=False
            )
        )
        if done.returncode not in accept:
            raise SystemExit(f"kiwi {' '.join(arguments)}: exit code {done.returncode}: {done.stderr[-2000:].strip()}")
        return seconds, done.stdout

    def forget(self) -> None:
        """Remove the index and every vector."""
        shutil.rmtree(self.project / ".ai/vectors", ignore_errors=True)
        for file in self.cache.glob("embeddings.sqlite*"):
            file.unlink()

    def run(self, *arguments: str, accept: Sequence[int] = (0,)) -> float:
        """Run a command quietly; return its seconds."""
        return self.call("-q", *arguments, accept=accept)[0]
