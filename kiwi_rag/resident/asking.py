"""The caller's side: a command line that the service can answer is sent there, and its answer written out.

Everything that could make the answer differ from the command line's own is left to the command line.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from kiwi_rag.resident import calls, place, protocol
from kiwi_rag.resident.protocol import NotServed

_FLAGS = frozenset({"--json", "--quiet", "--verbose"})
_LOCAL = ("--help", "--version", "--weights", "--project")
"""Options after the command that print through click itself, or name a file or folder of the caller's."""


def answer(arguments: list[str]) -> int | None:
    """Let the service run a command line; return the exit code, or None where it is not one for the service.

    Raises
    ------
    NotServed
        When there is a service, and it does not answer. Nothing was written.
    """
    place_of_command = _command(arguments)
    flags, command, rest = arguments[:place_of_command], *_first(arguments[place_of_command:])
    if command not in protocol.SERVED and command != protocol.MCP:
        return None
    folder = place.run_folder(os.environ)
    if os.environ.get("KIWI_SERVICE") == "off" or "_KIWI_COMPLETE" in os.environ or not calls.is_there(folder):
        return None
    if os.environ.get("OTEL_TRACES_EXPORTER", "none") != "none":
        raise NotServed("this process is to be traced")
    with calls.troubles():
        message = _message(flags)
    if command == protocol.MCP:
        from kiwi_rag.resident.relay import relay

        return relay(folder, {**message, "ask": protocol.MCP, "toolsets": _toolsets(rest)})
    return _write(calls.call(folder, {**message, **_asked(message["flags"], command, rest)}))


def is_verbose(arguments: list[str]) -> bool:
    """Whether the user wants to hear why the service was not used."""
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(word == "--verbose" or (_is_short(word) and "v" in word) for word in flags)


def _command(arguments: list[str]) -> int:
    """Return the place of the command: the first word that is no global flag, nor the value of one."""
    number = 0
    while number < len(arguments):
        word = arguments[number]
        if word == "--project":
            number += 1
        elif not (word.startswith("--project=") or word in _FLAGS or _is_short(word)):
            return number
        number += 1
    return len(arguments)


def _is_short(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1:].strip("qv")


def _first(words: list[str]) -> tuple[str, list[str]]:
    return (words[0], words[1:]) if words else ("", [])


def _message(flags: list[str]) -> dict[str, Any]:
    """Return what holds of every request: which code, where, and in which environment."""
    cwd = os.getcwd()  # noqa: PTH109 - pathlib costs five milliseconds
    others, project = _apart(flags, cwd)
    return {
        "code": protocol.code_fingerprint(),
        "flags": others,
        "project": project,
        "cwd": cwd,
        "environment": protocol.sent_environment(os.environ),
        "network": protocol.network_fingerprint(os.environ),
    }


def _apart(flags: list[str], cwd: str) -> tuple[list[str], str]:
    """Return the flags without the project's folder, and that folder in full; empty where it is to be found."""
    others: list[str] = []
    project = ""
    words = iter(flags)
    for word in words:
        name, _, value = word.partition("=")
        if name == "--project":
            project = os.path.join(cwd, value if "=" in word else next(words, ""))  # noqa: PTH118
            if not os.path.isdir(project):  # noqa: PTH112
                raise NotServed(f"{project} is not a folder")
        else:
            others.append(word)
    return others, project


def _asked(flags: list[str], command: str, rest: list[str]) -> dict[str, Any]:
    for word in rest:
        if word.startswith(_LOCAL) or (word[:1] == "-" and word[1:2] != "-" and "h" in word):
            raise NotServed(f"{word} is not for it")
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.encoding.lower().replace("_", "-") != "utf-8":
            raise NotServed("the output is not UTF-8")
    return {
        "ask": protocol.COMMAND,
        "arguments": [*flags, command, *rest],
        "terminals": [sys.stdout.isatty(), sys.stderr.isatty()],
    }


def _toolsets(rest: list[str]) -> str:
    """Return what ``--toolsets`` says, empty for the usual ones; with any other option it is not for the service."""
    if len(rest) == 2 and rest[0] == "--toolsets":
        return rest[1]
    if len(rest) == 1 and rest[0].startswith("--toolsets="):
        return rest[0].partition("=")[2]
    if rest:
        raise NotServed(f"kiwi mcp {' '.join(rest)} is not for it")
    return ""


def _write(given: dict[str, Any]) -> int:
    """Write the answer as the command line would have; where that cannot be, nothing of it."""
    code, output = given.get("exit"), given.get("output")
    if not isinstance(code, int) or not isinstance(output, list):
        raise NotServed("its answer is not readable")
    try:
        written = [(sys.stderr if number == 2 else sys.stdout, str(text)) for number, text in output]
        for stream, text in written:
            text.encode(stream.encoding, stream.errors or "strict")
    except (TypeError, ValueError):
        raise NotServed("its answer cannot be written here") from None
    for stream, text in written:
        stream.write(text)
        stream.flush()
    return code
