"""Build a grouped Markdown changelog from conventional commit subjects between two Git revisions.

Breaking changes come first, whatever their type. Commits that follow no convention are kept under "Other": hiding them
would make the list look complete when it is not.
"""

from __future__ import annotations

import argparse
import re
import subprocess  # runs git only, with a fixed argument list
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__version__ = "1.4.2"
__category__ = "acme/release"
__author__ = "developer-experience"
__tags__ = ["changelog", "release-notes", "git", "conventional-commits"]
__permissions__ = ["subprocess"]

TITLES = {
    "breaking": "Breaking changes",
    "feat": "Features",
    "fix": "Fixes",
    "perf": "Performance",
    "revert": "Reverted",
    "other": "Other",
}
INTERNAL_TYPES = frozenset({"build", "chore", "ci", "docs", "refactor", "style", "test"})
_SUBJECT = re.compile(r"(?P<type>[a-z]+)(?:\((?P<scope>[^)]+)\))?(?P<bang>!)?: (?P<text>.+)")
_RECORD_END = "\x1e"


@dataclass(frozen=True)
class Change:
    """One commit, read by the Conventional Commits 1.0.0 rules."""

    kind: str
    scope: str
    text: str
    breaking: bool

    @property
    def section(self) -> str:
        """Key of the section in which the change is listed; empty for internal ones."""
        if self.breaking:
            return "breaking"
        if self.kind in INTERNAL_TYPES:
            return ""
        return self.kind if self.kind in TITLES else "other"


def parse_commit(message: str) -> Change:
    """Read a commit message: subject line, and ``BREAKING CHANGE:`` as a footer anywhere below it."""
    subject, _, body = message.strip().partition("\n")
    footer = re.search(r"^BREAKING[ -]CHANGE: ", body, re.MULTILINE) is not None
    match = _SUBJECT.fullmatch(subject.strip())
    if match is None:
        return Change("other", "", subject.strip(), footer)
    return Change(match["type"], match["scope"] or "", match["text"], footer or bool(match["bang"]))


def build(messages: Iterable[str], title: str) -> str:
    """Return the changelog as Markdown; equal lines are listed once, order within a section is the given one."""
    sections: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for change in map(parse_commit, messages):
        scope = f"**{change.scope}**: " if change.scope else ""
        sections[change.section][f"- {scope}{change.text}"] = None
    blocks = [f"## {heading}\n\n" + "\n".join(sections[key]) for key, heading in TITLES.items() if sections[key]]
    return "\n\n".join([f"# {title}", *(blocks or ["No changes that a reader would notice."])]) + "\n"


def read_messages(repository: Path, since: str, until: str) -> list[str]:
    """Return the messages of all non-merge commits in ``since..until``, newest first.

    Raises
    ------
    subprocess.CalledProcessError
        If git does not know one of the revisions.
    """
    command = [
        "git",
        "-C",
        str(repository),
        "log",
        "--no-merges",
        f"--format=%B{_RECORD_END}",
        f"{since}..{until}",
        "--",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [record.strip() for record in done.stdout.split(_RECORD_END) if record.strip()]


def main(argv: list[str] | None = None) -> int:
    """Write the changelog of a range to standard output."""
    parser = argparse.ArgumentParser(description="Build a changelog from conventional commits.")
    parser.add_argument("since", help="tag or commit that is not included")
    parser.add_argument("until", nargs="?", default="HEAD")
    parser.add_argument("--repository", type=Path, default=Path())
    parser.add_argument("--title", default="Changes")
    options = parser.parse_args(argv)
    try:
        messages = read_messages(options.repository, options.since, options.until)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(error.stderr)
        return 1
    sys.stdout.write(build(messages, options.title))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
