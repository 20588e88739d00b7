"""Which commit a workspace stands at."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

SECONDS = 5.0
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def head_commit(root: Path) -> str:
    """Return the commit that is checked out at `root`, as hex; empty outside of git's care. Blocking."""
    command = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", "HEAD^{commit}"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told if _COMMIT.fullmatch(told) else ""
