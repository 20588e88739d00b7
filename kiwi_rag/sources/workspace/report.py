"""What an index run of a workspace did, file by file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kiwi_rag.errors import KiwiError, Rejected
from kiwi_rag.model import Finding

RUN = "workspace-run"
"""The note that says where a run over the whole workspace stands."""
BEGUN, COMPLETE, PARTLY = "begun", "complete", "partly"
"""From its first write on; after its last; and the same where files failed."""


def describe_error(error: KiwiError) -> str:
    """Return what went wrong with one file: of what the gate says, each finding."""
    found = [finding.message for finding in error.findings if finding.is_error] if isinstance(error, Rejected) else []
    return "; ".join(found) or error.message


@dataclass(slots=True)
class WorkspaceReport:
    """One run's outcome; paths stand below the workspace's root.

    ``indexed`` holds paths in the order in which they were stored, ``moved`` new path → old path of files that are the
    same under another name. ``skipped`` is path → why it is no document (empty, no text, too large), ``failed`` path →
    what went wrong; a file that failed keeps what was indexed of it before. ``warnings`` tell what was taken out of a
    file, or why one was read as plain text. ``passages`` counts those that were stored.
    """

    indexed: list[str] = field(default_factory=list)
    unchanged: int = 0
    removed: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, KiwiError] = field(default_factory=dict)
    warnings: list[Finding] = field(default_factory=list)
    passages: int = 0
    complete: bool = True

    def as_dict(self) -> Mapping[str, Any]:
        """Return the report as JSON-ready data."""
        return {
            "indexed": list(self.indexed),
            "unchanged": self.unchanged,
            "removed": list(self.removed),
            "moved": [{"path": new, "from": old} for new, old in self.moved.items()],
            "skipped": [{"path": path, "reason": reason} for path, reason in self.skipped.items()],
            "failed": [
                {"path": path, **error.as_dict(), "message": describe_error(error)}
                for path, error in self.failed.items()
            ],
            "warnings": [finding.as_dict() for finding in self.warnings],
            "passages": self.passages,
            "complete": self.complete,
        }
