"""Kiwi's entries among the hooks of Claude Code: in its settings, each event has groups, and each group commands.

Source, read in November 2026: code.claude.com/docs/en/hooks. Claude Code does not wait for a hook that is ``async``.
After a session it waits for 1.5 seconds, or as long as the longest ``timeout`` of a hook says.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kiwi_rag.integrations.config_edit import JSON, Malformed, starts_kiwi

VERBS = ("memory", "hook")
"""The arguments by which a command is recognised as Kiwi's."""
RECALL = "--recall"
_KEY = "hooks"
_IMPORTS: dict[str, dict[str, Any]] = {"Stop": {"async": True, "timeout": 60}, "SessionEnd": {"timeout": 10}}
_RECALLS: dict[str, dict[str, Any]] = {"UserPromptSubmit": {"timeout": 10}}


@dataclass(frozen=True, slots=True)
class HookEntries:
    """The hooks that import a session's finished exchanges, and with `recall` the one that adds memory to a prompt.

    Parameters
    ----------
    program
        What starts Kiwi: the program, and arguments before `VERBS`.
    """

    program: Sequence[str]
    recall: bool = False

    def put(self, text: str) -> str:
        """Return `text` with the hooks in it, new or with their command renewed.

        Raises
        ------
        Malformed
            When Claude Code could not read the text.
        """
        text = text if text.strip() else JSON.blank
        for event in _IMPORTS:
            text = self._put_in(text, event, [*self.program, *VERBS])
        for event in _RECALLS if self.recall else ():
            text = self._put_in(text, event, [*self.program, *VERBS, RECALL])
        return text if self.recall else _without(text, *_RECALLS)

    def take(self, text: str) -> str:
        """Return `text` without Kiwi's hooks; `text` itself where there are none."""
        return _without(text, *_IMPORTS, *_RECALLS)

    @staticmethod
    def _put_in(text: str, event: str, words: Sequence[str]) -> str:
        root = JSON.parse(text)
        command = shlex.join(words)
        for group, at in _kiwis(root, event):
            hook = root[_KEY][event][group][_KEY][at]
            if hook["command"] == command:
                return text
            hook["command"] = command
            return JSON.edit(text, (_KEY, event, group, _KEY, at, "command"), command, root)
        new = {_KEY: [{"type": "command", "command": command, **(_IMPORTS | _RECALLS)[event]}]}
        groups = root.setdefault(_KEY, {}).setdefault(event, [])
        groups.append(new)
        return JSON.edit(text, (_KEY, event, len(groups) - 1), new, root)


def _without(text: str, *events: str) -> str:
    """Return `text` without Kiwi's hooks on these events, nor the groups and events that are empty then."""
    for event in events:
        while found := next(_kiwis(root := JSON.parse(text if text.strip() else JSON.blank), event), None):
            group: list[str | int] = [_KEY, event, found[0]]
            outwards = [*group, _KEY, found[1]], group, group[:2]
            path = next((path for path in outwards if len(_at(root, path[:-1])) > 1), group[:1])
            del _at(root, path[:-1])[path[-1]]
            text = JSON.edit(text, path, None, root)
    return text


def _at(root: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        root = root[key]
    return root


def _kiwis(root: Mapping[str, Any], event: str) -> Iterator[tuple[int, int]]:
    """Yield where Kiwi's hooks on an event are: the number of the group, and that in the group."""
    events = root.get(_KEY, {})
    groups = events.get(event, []) if isinstance(events, dict) else None
    if not isinstance(groups, list):
        raise Malformed(f"{_KEY} is not an object of arrays")
    for group, inner in enumerate(groups):
        hooks = inner.get(_KEY) if isinstance(inner, Mapping) else None
        for at, hook in enumerate(hooks if isinstance(hooks, list) else ()):
            if isinstance(hook, Mapping) and _is_kiwis(hook.get("command")):
                yield group, at


def _is_kiwis(command: object) -> bool:
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    entry = {"command": words[0], "args": words[1:]} if words else {}
    return all(starts_kiwi(entry, verb) for verb in VERBS)
