"""Compare two env files by key and report what is missing, extra or empty, without showing any value.

Used before a deploy: the first file is what the new build asks for (``.env.example``), the second what the
environment has. Exit code 1 means that a needed key is missing or empty.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

__version__ = "1.2.0"
__category__ = "acme/deploy"
__author__ = "platform-runtime"
__tags__ = ["deploy", "configuration", "environment-variables"]

_LINE = re.compile(r"\s*(?:export\s+)?(?P<key>[A-Za-z_][A-Za-z0-9_]*)\s*=(?P<value>.*)")
OPTIONAL_MARK = "# optional"


@dataclass(frozen=True)
class EnvDifference:
    """Keys that differ; each tuple is sorted."""

    missing: tuple[str, ...]
    empty: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def blocks_deploy(self) -> bool:
        """Whether the wanted build would start without something it needs."""
        return bool(self.missing or self.empty)


def parse_env(text: str) -> dict[str, str]:
    """Return key → raw value, quotes removed; comments and lines that assign nothing are skipped."""
    found = (_LINE.fullmatch(line) for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {m["key"]: _unquote(m["value"]) for m in found if m}


def optional_keys(text: str) -> frozenset[str]:
    """Return the keys whose line ends in ``# optional``: they may be missing or empty."""
    marked = (line for line in text.splitlines() if line.rstrip().endswith(OPTIONAL_MARK))
    return frozenset(key for line in marked for key in parse_env(line))


def compare(wanted: str, present: str) -> EnvDifference:
    """Compare the text of two env files.

    Parameters
    ----------
    wanted, present
        Contents of the file with the needed keys and of the file that the environment uses.
    """
    needs, has = parse_env(wanted), parse_env(present)
    required = needs.keys() - optional_keys(wanted)
    return EnvDifference(
        missing=tuple(sorted(required - has.keys())),
        empty=tuple(sorted(key for key in required & has.keys() if not has[key])),
        extra=tuple(sorted(has.keys() - needs.keys())),
    )


def render(difference: EnvDifference) -> str:
    """Return one line per finding; empty when the files agree."""
    rows = [("missing", difference.missing), ("empty", difference.empty), ("extra", difference.extra)]
    return "".join(f"{kind:<8} {key}\n" for kind, keys in rows for key in keys)


def _unquote(value: str) -> str:
    bare = value.strip().removesuffix(OPTIONAL_MARK).strip()
    quoted = len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "'\""
    return bare[1:-1] if quoted else bare


def main(argv: list[str] | None = None) -> int:
    """Read the two files, write the report, return 1 if the deploy should stop."""
    parser = argparse.ArgumentParser(description="Compare two env files by key; values are never shown.")
    parser.add_argument("wanted", type=Path, help="file that lists what the build needs")
    parser.add_argument("present", type=Path, help="file that the environment uses")
    options = parser.parse_args(argv)
    difference = compare(options.wanted.read_text("utf-8"), options.present.read_text("utf-8"))
    sys.stdout.write(render(difference))
    return int(difference.blocks_deploy)


if __name__ == "__main__":
    raise SystemExit(main())
