"""Kiwi's tasks in VS Code's ``.vscode/tasks.json``: one that watches the workspace, one that indexes it.

Source of the format: code.visualstudio.com/docs/reference/tasks-appendix. A task of type ``process`` is started by its
arguments, without a shell, in the workspace's folder. ``folderOpen`` starts it as soon as the folder is open, if the
user trusts the folder and lets tasks start by themselves (setting ``task.allowAutomaticTasks``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kiwi_rag.integrations.client_files import Backups, FileChange, plan_changes
from kiwi_rag.integrations.config_edit import JSON, NAME, ConfigEntries, Entry

WATCH = "Kiwi: watch the workspace"
INDEX = "Kiwi: index the workspace"
THEN = "open the folder again: the watch task starts with it, if VS Code is allowed to start tasks by itself"
"""What the user does next."""

_GROUP = "workspace"


def _task(label: str, verb: str, options: Mapping[str, Any]) -> Entry:
    """Return a task; `options` are what a new one says beside what it starts, and are the user's from then on."""
    started = {"type": "process", "command": NAME, "args": [_GROUP, verb]}
    return Entry(label, _GROUP, lambda there: {"label": label, **started, **(there or options), **started})


TASKS = ConfigEntries(
    replace(JSON, blank='{\n  "version": "2.0.0"\n}\n'),
    "tasks",
    [
        _task(
            WATCH,
            "watch",
            {
                "isBackground": True,
                "problemMatcher": [],
                "runOptions": {"runOn": "folderOpen", "instanceLimit": 1},
                "presentation": {"reveal": "never", "panel": "dedicated"},
            },
        ),
        _task(
            INDEX,
            "index",
            {
                "problemMatcher": [],
                "runOptions": {"instanceLimit": 1},
                "presentation": {"reveal": "always", "panel": "dedicated"},
            },
        ),
    ],
    labelled=True,
)


def plan_tasks(project: Path, backups: Backups, *, remove: bool = False) -> Sequence[FileChange]:
    """Return what adding the tasks to a project, or taking them out, changes; nothing is written.

    Raises
    ------
    ClientFileError
        When the file cannot be read, is malformed, or has another task of the same label.
    """
    return plan_changes([(project / ".vscode/tasks.json", TASKS)], [project], backups, remove=remove)
