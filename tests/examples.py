"""How often chance is tried: a moderate number of times in every run, many times in `make soak`.

An everyday run tries half of each property's own number of examples. ``KIWI_EXAMPLES=1`` tries all of them, and a
larger number multiplies them, so that an expensive property stays cheaper than the others. ``KIWI_KILLS`` is how often
a test kills a process and looks at what is left, and ``KIWI_RACES`` how often callers race on the registry.
``KIWI_SIZES=full`` gives inputs that only show that time is bounded their full size.
"""

from __future__ import annotations

import os

from hypothesis import settings

MULTIPLE = float(os.environ.get("KIWI_EXAMPLES", "0.5"))
KILLS = int(os.environ.get("KIWI_KILLS", "2"))
RACES = int(os.environ.get("KIWI_RACES", "10"))
FULL_SIZES = os.environ.get("KIWI_SIZES") == "full"


def register() -> None:
    """Make the profile of properties that do not say how many examples they need; none has a time limit."""
    settings.register_profile("default", max_examples=_times(70), deadline=None)
    settings.load_profile("default")


def examples(count: int) -> settings:
    """Return the settings of a property that `count` examples try well enough in an everyday run."""
    return settings(max_examples=_times(count), deadline=None)


def _times(count: int) -> int:
    return int(count * MULTIPLE)


def size(full: int, part: int = 4) -> int:
    """Return the length of an input, or the limit of its time: a quarter, or 1 of `part`, in an everyday run."""
    return full if FULL_SIZES else full // part
