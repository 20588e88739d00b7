"""The Weaviate server that Kiwi starts itself: one container, by Docker Compose and ``weaviate.yml`` beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kiwi_rag.config import Settings
from kiwi_rag.errors import StoreUnreachable, UsageError

FILE = Path(__file__).with_suffix(".yml")
URL = "http://127.0.0.1:27501"
SECONDS = 600.0
"""How long an action may take; the first start downloads the image."""
_UP = ("up", "--detach", "--wait")
ACTIONS: Mapping[str, Sequence[str]] = {"start": _UP, "stop": ("stop",), "recreate": (*_UP, "--force-recreate")}
"""What can be done → the words for Docker Compose. The data is in a volume, which none of them removes."""


def check(action: str) -> None:
    """Return if an action is possible.

    Raises
    ------
    UsageError
        When Docker is not installed, or there is no such action.
    """
    if shutil.which("docker") is None:
        raise UsageError("Docker is not installed", hint="install it, or set KIWI_WEAVIATE_URL to a server that runs")
    if action not in ACTIONS:
        raise UsageError(f"there is no action {action[:40]!r}", hint=f"one of {', '.join(ACTIONS)}")


def run(action: str, settings: Settings) -> None:
    """Start, stop or recreate the container, and wait until it is healthy, or has stopped. Blocking.

    Raises
    ------
    UsageError
        As `check`.
    StoreUnreachable
        When Docker Compose fails or takes too long.
    """
    check(action)
    command = [shutil.which("docker") or "docker", "compose", "--file", str(FILE), *ACTIONS[action]]
    env = {**os.environ, "WEAVIATE_API_KEY": settings.weaviate_api_key}
    hint = f"docker compose --file {FILE} logs"
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreUnreachable(f"docker compose did not {action} Weaviate: {error}"[:400], hint=hint) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise StoreUnreachable(f"docker compose could not {action} Weaviate: {last[:300]}", hint=hint)
