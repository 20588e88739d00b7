"""How often chance is tried: a moderate number of times in every run, many times in `make soak`.

``KIWI_EXAMPLES`` multiplies each property's own number of examples, so that an expensive property stays cheaper than
the others. ``KIWI_KILLS`` is how often a test kills a process and looks at what is left, and
``KIWI_RACES`` how often callers race on the registry. ``KIWI_SIZES=full`` gives inputs that only show that time is
bounded their full size.
"""

from __future__ import annotations

import os

from hypothesis import settings

MULTIPLE = int(os.environ.get("KIWI_EXAMPLES", "1"))
KILLS = int(os.environ.get("KIWI_KILLS", "3"))
RACES = int(os.environ.get("KIWI_RACES", "20"))
FULL_SIZES = os.environ.get("KIWI_SIZES") == "full"


def register() -> None:
    """Make the profile of properties that do not say how many examples they need; none has a time limit."""
    settings.register_profile("default", max_examples=70 * MULTIPLE, deadline=None)
    settings.load_profile("default")


def examples(count: int) -> settings:
    """Return the settings of a property that `count` examples try well enough in an everyday run."""
    return settings(max_examples=count * MULTIPLE, deadline=None)


def size(full: int, part: int = 4) -> int:
    """Return the length of an input, or the limit of its time: a quarter, or 1 of `part`, in an everyday run."""
    return full if FULL_SIZES else full // part
