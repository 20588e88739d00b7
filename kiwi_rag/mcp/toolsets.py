"""The toolsets: modules with a function ``toolset`` that returns one. The server knows them by this table alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import UsageError

if TYPE_CHECKING:
    from kiwi_rag.mcp.house import House
    from kiwi_rag.mcp.tool import Tool

TOOLSETS = {
    "items": "kiwi_rag.mcp.items",
    "workspace": "kiwi_rag.mcp.workspace",
    "documents": "kiwi_rag.mcp.documents",
}
"""Name → module."""

DEFAULT = "items,workspace"
"""What is offered unless a server is told otherwise."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A resource that there is."""

    uri: str
    name: str
    mime_type: str


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """A family of resources: ``uri`` is an RFC 6570 template.

    `read` gets what stands for its variables, and returns a resource's text and media type. `listed` gets where to
    begin and how many to look at, and returns those of them that are worth listing, and whether there are more.
    """

    uri: str
    name: str
    title: str
    description: str
    read: Callable[[House, Mapping[str, str]], Awaitable[tuple[str, str]]]
    listed: Callable[[House, int, int], Awaitable[tuple[Sequence[Listed], bool]]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: ``arguments`` are name → description; those in ``required`` must be given."""

    name: str
    title: str
    description: str
    arguments: Mapping[str, str]
    required: tuple[str, ...]
    render: Callable[[House, Mapping[str, str]], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Toolset:
    """What a room offers to agents; ``names`` are those of the toolsets that it was put together from."""

    tools: Sequence[Tool]
    resources: Sequence[ResourceTemplate] = ()
    prompts: Sequence[Prompt] = ()
    names: Sequence[str] = ()

    def __add__(self, other: Toolset) -> Toolset:
        return Toolset(
            (*self.tools, *other.tools), (*self.resources, *other.resources), (*self.prompts, *other.prompts)
        )


def named(text: str) -> Sequence[str]:
    """Return the toolsets that a list with commas names, each once; none is loaded.

    Raises
    ------
    UsageError
        When there is none of a name.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in TOOLSETS]
    if unknown or not names:
        raise UsageError(f"there is no toolset {', '.join(unknown) or 'named'}", hint=", ".join(TOOLSETS))
    return list(dict.fromkeys(names))


def load(text: str, *, allow_write: bool = False) -> Toolset:
    """Return the toolsets that a list with commas names as one; tools that change something only with `allow_write`.

    Raises
    ------
    UsageError
        When there is none of a name.
    """
    names = named(text)
    offered: Any = sum((import_module(TOOLSETS[name]).toolset() for name in names), Toolset(()))
    tools = [tool for tool in offered.tools if allow_write or tool.effects.read_only or tool.rebuildable]
    return Toolset(tools, offered.resources, offered.prompts, names)
