"""A collection: a named set of items or documents with its store, policy, trust and the state of its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, cast

from kiwi_rag.errors import UnknownFilter
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation.admission import Policy

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from kiwi_rag.monitor.monitor import RegistryMonitor
    from kiwi_rag.signing.trust import TrustPolicy
    from kiwi_rag.sources.file_states import FileStates
    from kiwi_rag.stores.local import LocalVectorStore
    from kiwi_rag.stores.local.audit import SqliteAuditLog

    StoreT_co = TypeVar("StoreT_co", bound=VectorStore, covariant=True, default=VectorStore)
else:
    from typing import TypeVar

    StoreT_co = TypeVar("StoreT_co", covariant=True)  # the default of a type variable is known from Python 3.13 on

MEMORY = "memory"
"""The name of the tier that a conversation memory is."""
RANKS = {"project": 0, "user": 1, "registry": 2}
SOURCES = {
    "project": ("project",),
    "user": ("user",),
    "registry": ("registry",),
    "local": ("project", "user"),
    "all": ("project", "user", "registry"),
}


YankLookup = Callable[[Sequence[str]], frozenset[str]]
"""Returns those of some digests whose versions were yanked, as far as this user knows. Blocks for a short time."""


@dataclass(frozen=True)
class Collection(Generic[StoreT_co]):
    """The items of one tier (project, user, registry), or the documents of one workspace.

    Items of a lower `rank` shadow those of a higher one. ``trust`` returns whose statements are accepted now, and
    ``audience`` is the registry name that they must be signed for. ``audit`` is the log on this machine. ``root`` is
    the ``.ai`` folder with the signed files, or the workspace's root; the registry has none. ``states`` is what is
    known of the files below it. ``monitor`` compares a registry's answers with its pinned state; other collections
    have none. ``yanked`` returns which versions any registry yanked. ``workspace`` is the name of the workspace that
    the documents' statements have; empty for items. ``read`` returns the bytes of a document that is no file below
    the root, and raises `FileNotFoundError`.
    """

    name: str
    rank: int
    store: StoreT_co
    policy: Policy
    trust: Callable[[], TrustPolicy]
    audience: str
    audit: SqliteAuditLog
    root: Path | None = None
    states: FileStates | None = None
    monitor: RegistryMonitor | None = None
    yanked: YankLookup = lambda _: frozenset()
    workspace: str = ""
    read: Callable[[str], bytes] | None = None

    @property
    def local_index(self) -> LocalVectorStore | None:
        """The store as an index on this machine, which has one writer at a time; None for a store that others share."""
        return cast("LocalVectorStore", self.store) if self.store.capabilities.kind == "local" else None

    @property
    def words_first(self) -> LocalVectorStore | None:
        """The local index of documents, which are stored for the search by words before they are embedded."""
        return self.local_index if self.workspace else None

    def writing(self) -> AbstractAsyncContextManager[None]:
        """Hold the writer's lock of a local index for a whole run; a shared store has none."""
        return self.local_index.writing() if self.local_index else nullcontext()

    async def clear(self) -> None:
        """Remove everything from the index, and what is known of the files."""
        await self.store.clear()
        if self.states is not None:
            self.states.clear()


def tier_names(source: str) -> Sequence[str]:
    """Return the tiers that a source names.

    Raises
    ------
    UnknownFilter
        When there is no such source.
    """
    try:
        return SOURCES[source]
    except KeyError as error:
        raise UnknownFilter(f"there is no source {source!r}", hint=f"one of {', '.join(SOURCES)}") from error
