"""Kiwi's tasks in VS Code's ``.vscode/tasks.json``: one that watches the workspace, one that indexes it.

Source of the format: code.visualstudio.com/docs/reference/tasks-appendix. A task of type ``process`` is started by its
arguments, without a shell, in the workspace's folder. ``folderOpen`` starts it as soon as the folder is open, if the
user trusts the folder and lets tasks start by themselves (setting ``task.allowAutomaticTasks``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any

from kiwi_rag.clients.json_text import checked, parsed, with_value, without
from kiwi_rag.clients.refusals import Malformed, NameTaken
from kiwi_rag.clients.server import NAME, Server

WATCH = "Kiwi: watch the workspace"
INDEX = "Kiwi: index the workspace"
_GROUP = "workspace"
_VERSION = "2.0.0"
_STARTED: Mapping[str, Mapping[str, Any]] = {
    WATCH: {"type": "process", "command": NAME, "args": [_GROUP, "watch"]},
    INDEX: {"type": "process", "command": NAME, "args": [_GROUP, "index"]},
}
# What a new task says beside that; it is the user's from then on.
_MANNERS: Mapping[str, Mapping[str, Any]] = {
    WATCH: {
        "isBackground": True,
        "problemMatcher": [],
        "runOptions": {"runOn": "folderOpen", "instanceLimit": 1},
        "presentation": {"reveal": "never", "panel": "dedicated"},
    },
    INDEX: {
        "problemMatcher": [],
        "runOptions": {"instanceLimit": 1},
        "presentation": {"reveal": "always", "panel": "dedicated"},
    },
}


@dataclass(frozen=True, slots=True)
class JsonTasks:
    """Kiwi's tasks in the array that is named `key`; `server` plays no part: a project's files say ``kiwi``."""

    key: str
    server: Server

    def put(self, text: str) -> str:
        """Return `text` with both tasks in it, new or renewed.

        Raises
        ------
        Malformed
            When it is not what VS Code reads.
        NameTaken
            When a task of the same label starts something else.
        """
        edited = text if text.strip() else with_value("{}\n", ("version",), _VERSION)
        for label in _STARTED:
            edited = self._with(edited, label)
        return edited

    def take(self, text: str) -> str:
        """Return `text` without them; `text` itself where there are none."""
        tasks = self._tasks(text)
        for number in reversed([number for number, task in enumerate(tasks) if _is_kiwis(task)]):
            root = parsed(text)
            del root[self.key][number]
            text = checked(without(text, self.key, number), root)
        return text

    def _with(self, text: str, label: str) -> str:
        tasks = self._tasks(text)
        number = next((n for n, task in enumerate(tasks) if _label(task) == label), len(tasks))
        there = tasks[number] if number < len(tasks) else {"label": label, **_STARTED[label], **_MANNERS[label]}
        if not _is_kiwis(there):
            raise NameTaken(f"there already is a task {label!r}, and it does not start kiwi")
        entry = {**there, **_STARTED[label]}
        if number == len(tasks):
            edited = with_value(text, (self.key, number), entry)
        else:
            edited = text
            for name in [name for name in entry if there.get(name) != entry[name]]:
                edited = with_value(edited, (self.key, number, name), entry[name])
        return checked(edited, {**parsed(text), self.key: [*tasks[:number], entry, *tasks[number + 1 :]]})

    def _tasks(self, text: str) -> Sequence[Any]:
        root = parsed(text) if text.strip() else {}
        if not isinstance(root, dict):
            raise Malformed("it is not an object")
        tasks = root.get(self.key, [])
        if not isinstance(tasks, list):
            raise Malformed(f"{self.key} is not an array")
        return tasks


def _label(task: Any) -> str:
    return str(task.get("label", "")) if isinstance(task, Mapping) else ""


def _is_kiwis(task: Any) -> bool:
    """Return whether a task is one of Kiwi's: by its label, and by what it starts."""
    if _label(task) not in _STARTED or not isinstance(task.get("args"), list):
        return False
    program = PureWindowsPath(str(task.get("command", ""))).stem.lower()  # reads both kinds of slashes
    return program == NAME and _GROUP in task["args"]
