"""The report of an index run of a workspace, file by file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kiwi_rag.errors import KiwiError, Rejected
from kiwi_rag.model import Finding

RUN = "workspace-run"
"""The name under which a store keeps the state of the last run over the whole workspace."""
BEGUN, COMPLETE, PARTLY = "begun", "complete", "partly"
"""The states: from the first write on; after the last one; and after the last one where files failed."""


def describe_error(error: KiwiError) -> str:
    """Return why one file failed: of a rejection, the message of each finding."""
    messages = (
        [finding.message for finding in error.findings if finding.is_error] if isinstance(error, Rejected) else []
    )
    return "; ".join(messages) or error.message


@dataclass(slots=True)
class WorkspaceReport:
    """The outcome of one run; paths are relative to the workspace's root.

    ``indexed`` holds paths in the order in which they were stored, ``moved`` new path → old path of files with the same
    bytes. ``skipped`` is path → why it is no document (empty, no text, too large), ``failed`` path → its error; the
    index keeps its last document of a failed file. ``warnings`` say what was redacted in a file, or why one was read as
    plain text. ``passages`` counts those that were stored.
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
