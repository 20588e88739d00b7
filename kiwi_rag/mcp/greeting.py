"""The answer to ``initialize`` from constants, until the SDK is there; a test compares it with the SDK's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kiwi_rag import __version__
from kiwi_rag.mcp.instructions import NAME, TITLE, instructions

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Those that begin with ``initialize``; who asks for another is offered the last."""

_CAPABILITIES = {
    "prompts": {"listChanged": False},
    "resources": {"subscribe": False, "listChanged": False},
    "tools": {"listChanged": False},
}


def greeting(line: bytes, toolsets: Iterable[str]) -> dict[str, Any] | None:
    """Return the answer to a line of a server that offers these toolsets, None when it is no plain ``initialize``."""
    try:
        message = json.loads(line)
        params = message["params"]
        info, version = params["clientInfo"], params["protocolVersion"]
        plain = (
            message["jsonrpc"] == "2.0"
            and message["method"] == "initialize"
            and isinstance(message["id"], str | int)
            and not isinstance(message["id"], bool)
            and all(isinstance(text, str) for text in (version, info["name"], info["version"]))
            and isinstance(params["capabilities"], dict)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return {"jsonrpc": "2.0", "id": message["id"], "result": _result(version, toolsets)} if plain else None


def _result(version: str, toolsets: Iterable[str]) -> dict[str, Any]:
    return {
        "capabilities": _CAPABILITIES,
        "instructions": instructions(toolsets),
        "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
        "serverInfo": {"name": NAME, "title": TITLE, "version": __version__},
    }
