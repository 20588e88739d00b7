"""kill -9 at random points of a command, spread over the time that it takes on this machine now."""

from __future__ import annotations

import os
import random
import subprocess
import time

from tests.examples import KILLS
from tests.interfaces.conftest import Kiwi

SEED = int(os.environ.get("KIWI_SEED", "7"))
MOST_ROUNDS = 10 * KILLS


class KillLoop:
    """Starts a command again and again, and kills it on the way.

    Parameters
    ----------
    kiwi, command
        Who runs what.
    seconds
        How long the command takes now; whenever it ended before it was killed, what it took then.
    """

    def __init__(self, kiwi: Kiwi, command: list[str], seconds: float) -> None:
        self.chance = random.Random(SEED)
        self.kills = self.rounds = 0
        self._kiwi = kiwi
        self._command = command
        self._seconds = seconds

    @property
    def is_over(self) -> bool:
        """Whether the command was killed often enough."""
        assert self.rounds < MOST_ROUNDS, "the command is over before it can be killed"
        return self.kills >= KILLS

    def run_and_kill(self) -> tuple[str, bool]:
        """Start the command and kill it; return what it wrote to stdout and whether it was killed."""
        self.rounds += 1
        begun = time.monotonic()
        process = self._kiwi.start("--quiet", *self._command)
        try:
            out, err = process.communicate(timeout=self._seconds * self.chance.uniform(0.1, 0.95))
        except subprocess.TimeoutExpired:
            process.kill()
            self.kills += 1
            return process.communicate()[0], True
        assert process.returncode == 0, err
        self._seconds = time.monotonic() - begun
        return out, False


def seconds_of(kiwi: Kiwi, *command: str) -> float:
    """Run a command to its end in a process of its own; return how long it took."""
    begun = time.monotonic()
    process = kiwi.start("--quiet", *command)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return time.monotonic() - begun
