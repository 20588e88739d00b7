"""A conversation memory, wired: the table of its exchanges, and the index that is made from it.

There is one for each project, and one for the user. Both are of this user on this machine alone: their files lie in a
folder that is named by a secret of the user, so that what comes with a cloned repository is never read.
"""

from __future__ import annotations

import asyncio
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kiwi_rag.collection import MEMORY
from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, KiwiError, NotFound, StoreError
from kiwi_rag.model import Exchange, Finding, ItemRef, ItemType, SearchQuery, SearchReply, SearchResult
from kiwi_rag.services import Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.sources.memory.exchanges import ExchangeTable, Outcome, Selection
from kiwi_rag.sources.memory.source import MemorySource
from kiwi_rag.sources.source import describe_error
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.storage.atomic import make_private
from kiwi_rag.validation.audit import AuditEvent

if TYPE_CHECKING:
    from kiwi_rag.embedding import EmbeddingProvider
    from kiwi_rag.ingest import IngestContext
    from kiwi_rag.ingest.sync import Callbacks
    from kiwi_rag.sources.source import SyncReport

CHECK_SECONDS = 60.0
"""After so many seconds a search looks again for exchanges that are stored and not indexed."""
_SET_ASIDE = re.compile(r"\.(?:corrupt|foreign|damaged)-\d+(?:-wal|-shm)?$")
_REFUSALS = {
    Outcome.FORGOTTEN: ("exchange.forgotten", "it was forgotten, and is not stored again"),
    Outcome.OTHER_SESSION: ("exchange.session", "another session has an exchange of this id"),
    Outcome.OTHER_CONTENT: ("exchange.changed", "an exchange of this id is stored with other content"),
}


@dataclass(frozen=True, slots=True)
class AddedExchange:
    """What became of one exchange: as it is stored, and what was taken out of it.

    ``pending`` says why it is stored but not found yet; the next use of the memory indexes it.
    """

    exchange: Exchange
    is_new: bool
    findings: Sequence[Finding] = ()
    pending: str = ""


@dataclass(frozen=True, slots=True)
class AddedExchanges:
    """What became of many exchanges: ids that are new, how many were there before, and why others were refused."""

    new: Sequence[str]
    known: int
    refused: Mapping[str, Sequence[Finding]]
    findings: Sequence[Finding]
    report: SyncReport | None = None


@dataclass(frozen=True, slots=True)
class Recollection:
    """An exchange that a search found, verified, with the hit; the message that matched is the hit's passage."""

    exchange: Exchange
    hit: SearchResult


class Memory(DocumentIndex):
    """The conversation memory of a project, or of the user.

    Parameters
    ----------
    app
        Settings, model and trust.
    of_user
        Take the user's memory, also in a project.
    folder
        The name of its folders; several memories may be side by side.
    embed
        The embedding provider, in place of the settings'.
    """

    kind = policy = MEMORY
    # Without Chroma, which writes memory that it did not set to its files: what was forgotten may be in it.
    local_options: Mapping[str, Any] = MappingProxyType({"exact_limit": sys.maxsize, "audit_digests": False})

    def __init__(
        self, app: Services, *, of_user: bool = False, folder: str = MEMORY, embed: EmbeddingProvider | None = None
    ) -> None:
        self.is_of_user = of_user or app.project_dir is None
        super().__init__(app, app.user_dir if self.is_of_user else app.root("project"), folder)
        self.index_command = self.command("reindex")
        self._embed = embed
        self._writer: IngestContext | None = None
        self._checked_at = -math.inf

    @cached_property
    def table(self) -> ExchangeTable:
        """The exchanges."""
        table = ExchangeTable(self._app.own_folder(self._folder.joinpath(*self._below)) / "exchanges.sqlite3")
        self._opened.callback(table.close)
        days = self._app.settings.memory_retention_days
        old = Selection(before=datetime.now(UTC) - timedelta(days=days))
        if days and table.path.exists() and table.count(old):
            # What is too old is read by nothing from now on; the index has it until the next writer.
            table.begin_forgetting(old)
        return table

    @cached_property
    def config(self) -> WorkspaceConfig:
        """The folder of the table, and the name of the collection, which no workspace or library has."""
        folder = self.table.path.parent
        return WorkspaceConfig(folder, f"mem__{folder.name}")

    @property
    def project(self) -> Path | None:
        """The folder of its project; None where it is the user's memory."""
        return None if self.is_of_user else self._folder.parent

    @property
    def title(self) -> str:
        """Whose memory it is."""
        return f"the memory of {self.project or 'the user'}"

    @property
    def store_kind(self) -> str:
        """Local, unless a store is named for memories."""
        return self._app.settings.memory_store

    @property
    def embed(self) -> EmbeddingProvider:
        """The model without the cache, which would keep digests of what was said."""
        return (self._embed or self._app.embed).uncached

    @property
    def source(self) -> MemorySource:
        """The exchanges, for one run."""
        return MemorySource(self.table)

    def command(self, words: str) -> str:
        """Return a command for this memory, and no other."""
        return f"kiwi memory {words}{' --user' if self.is_of_user else ''}"

    def read(self, path: str) -> bytes:
        """Return the canonical JSON of the exchange at a path; `FileNotFoundError` when there is none."""
        return self.table.get(path)[0]

    async def writer(self, *args: Any, catch_up: bool = True, **options: Any) -> IngestContext:
        """Return what writes to the index, as `DocumentIndex.writer` does, and finish what a killed process left.

        Without `catch_up`, what is stored and not indexed is left to the caller.
        """
        if self._writer is None or options.get("rebuild"):
            self._writer = replace(await super().writer(*args, **options), embed=self.embed)
            folder = self._app.index_folder(self._folder, *self._below)
            await asyncio.to_thread(make_private, folder)  # it has digests of what was said
            if catch_up:
                await self._catch_up(self._writer)
        return self._writer

    async def update(self, *args: Any, **options: Any) -> SyncReport:
        """Update the index, as `DocumentIndex.update` does; what was forgotten does not stay in it."""
        newest = await asyncio.to_thread(self.table.newest)
        await self._erase_forgotten()
        report = await super().update(*args, **options)
        if await self._is_behind():
            await self._erase_forgotten()
        if report.model_failure is None:
            await asyncio.to_thread(self.table.mark_indexed, 0, newest)
        return report

    async def _erase_forgotten(self) -> None:
        """Erase from a local index what the table does not have: it was forgotten while a process indexed it."""
        if (local := self.tier.local_index) and self.is_indexed:
            stored = {path for path, _, _ in await asyncio.to_thread(self.table.versions)}
            if gone := [ref for ref in await local.digests() if ref.item_id not in stored]:
                await self._erase(gone)

    async def _catch_up(self, writer: IngestContext) -> None:
        """Forget what has to be, and index what is stored and not indexed.

        Another process was killed meanwhile, or could not write to the index. With another model everything would have
        to be embedded again, which takes a command of its own.
        """
        await self._forget_due()
        if await self._is_of_model() and await self._is_behind():
            await self.update(writer)
        self._checked_at = time.monotonic()

    async def _forget_due(self) -> None:
        """Finish what a killed process began to forget, and forget what is too old."""
        await self._finish_forgetting()
        await self.expire()

    async def _is_of_model(self) -> bool:
        """Whether a local index has the vectors of this model; a shared store answers for itself."""
        status = None if self.is_shared else await self.tier.store.status()
        return status is None or status.fingerprint in ("", str(self.embed.fingerprint))

    async def add(self, exchange: Exchange) -> AddedExchange:
        """Store one exchange, durable on return, and index it.

        Raises
        ------
        Rejected
            When it is refused: too large, with ids that cannot be ones, forgotten before, or other than the exchange
            of its id.
        StoreError
            When it cannot be stored.
        """
        from kiwi_rag.validation.exchange_gate import inspect_exchange

        cleaned, findings = await asyncio.to_thread(inspect_exchange, exchange)
        if cleaned is None:
            raise self._reject(exchange, findings)
        with suppress(KiwiError):  # `_index` meets it again, and reports it
            await self.writer()
        outcome = (await asyncio.to_thread(self.table.add, [cleaned]))[0]
        if outcome in _REFUSALS:
            raise self._reject(exchange, [_finding(exchange, outcome)])
        pending = await self._index(cleaned) if outcome is Outcome.NEW else ""
        return AddedExchange(cleaned, outcome is Outcome.NEW, findings, pending)

    async def add_all(
        self, exchanges: Sequence[Exchange], /, callbacks: Callbacks | None = None, *, replace: bool = False
    ) -> AddedExchanges:
        """Store exchanges in one transaction, and index them; those that are refused do not stop the others.

        With `replace`, one is stored in place of that with its id, unless that is of another session.

        Raises
        ------
        StoreError
            When they cannot be stored: then none is.
        """
        from kiwi_rag.validation.exchange_gate import inspect_exchange

        inspected = await asyncio.to_thread(lambda: list(map(inspect_exchange, exchanges)))
        kept = [one for one, _ in inspected if one is not None]
        outcomes = await asyncio.to_thread(partial(self.table.add, kept, replace=replace))
        refused = {of.id: found for of, (one, found) in zip(exchanges, inspected, strict=True) if one is None}
        refused |= {one.id: [_finding(one, how)] for one, how in zip(kept, outcomes, strict=True) if how in _REFUSALS}
        new = [one.id for one, how in zip(kept, outcomes, strict=True) if how is Outcome.NEW]
        cleaned = [finding for one, found in inspected if one is not None for finding in found]
        for exchange in exchanges:
            if exchange.id in refused:
                self._reject(exchange, refused[exchange.id])
        report = None
        if Outcome.NEW in outcomes or Outcome.REPLACED in outcomes:
            writer = await self.writer(catch_up=False)  # the update below indexes what was left before, too
            await self._forget_due()
            report = await self.update(writer, callbacks=callbacks)
            self._checked_at = time.monotonic()
        return AddedExchanges(new, outcomes.count(Outcome.KNOWN), refused, cleaned, report)

    async def search(self, query: SearchQuery, hint: str = "") -> SearchReply:
        """Search the exchanges; each hit verifies against its row in the table. Raises as `indexed_tier`."""
        from kiwi_rag.search import Searcher

        if not self.is_indexed and not await asyncio.to_thread(self.table.count):
            hint = hint or f"{self.command('import')}, or kiwi memory add --help"
            raise NotFound(f"{self.title} is empty", hint=hint)
        if time.monotonic() - self._checked_at > CHECK_SECONDS:
            with suppress(StoreError, EmbeddingError):  # what is indexed is searched, and the reply says so
                await self._catch_up(await self.writer(catch_up=False))
            if not await self._is_of_model():
                raise FingerprintMismatch(f"{self.title} was indexed with another model", hint=self.index_command)
        if query.filters.since and query.filters.ids is None and not self.is_shared:
            # The store knows when an exchange was indexed, which may be long after.
            recent = await asyncio.to_thread(self.table.paths, Selection(since=query.filters.since))
            query = replace(query, filters=replace(query.filters, ids=tuple(recent)))
        searcher = Searcher([self.indexed_tier(hint)], self.embed, self._app.settings.deadline)
        reply = await searcher.search(query)
        return replace(reply, unfinished=reply.unfinished or await self._is_behind())

    async def recall(self, query: SearchQuery) -> tuple[Sequence[Recollection], SearchReply]:
        """Return the exchanges that a query finds, best first, and the reply with their hits."""
        reply = await self.search(query)
        found = await asyncio.to_thread(lambda: [Exchange.of(self.read(hit.ref.item_id)) for hit in reply.hits])
        return [Recollection(one, hit) for one, hit in zip(found, reply.hits, strict=True)], reply

    async def preview_forget(self, selection: Selection, limit: int) -> tuple[int, Sequence[Exchange]]:
        """Return how many exchanges `forget` would remove, and the first of them; `UsageError` as there."""
        selection.require_named()
        count = await asyncio.to_thread(self.table.count, selection)
        return count, await asyncio.to_thread(self.table.select, selection, limit)

    async def forget(self, selection: Selection, *, keep: bool = True) -> Sequence[str]:
        """Remove the exchanges that a selection names for good, from the table, the index and the disk; return ids.

        With `keep` their ids are remembered, and not stored again.

        A process that is killed meanwhile leaves nothing half-forgotten: they are in no result from the first moment
        on, and the next use of the memory removes the rest.

        Raises
        ------
        UsageError
            When the selection names nothing.
        StoreBusy
            When another process writes to the memory, or reads it for half a minute; what is left is removed later.
        """
        selection.require_named()
        ids = await asyncio.to_thread(partial(self.table.begin_forgetting, selection, keep=keep))
        await self._finish_forgetting()
        return ids

    async def expire(self) -> Sequence[str]:
        """Forget what is older than the retention allows; return the ids."""
        days = self._app.settings.memory_retention_days
        return await self.forget(Selection(before=datetime.now(UTC) - timedelta(days=days))) if days else []

    async def _finish_forgetting(self) -> None:
        pending = await asyncio.to_thread(self.table.indexed_forgotten)
        if not pending:
            return
        if self.is_indexed:
            await self._erase([ItemRef(ItemType.DOCUMENT, path) for path in pending.values()])
            event = AuditEvent("forgotten", MEMORY, "", "", {"ids": list(pending)})
            await asyncio.to_thread(self.tier.audit.append, event)
        await asyncio.to_thread(self.table.finish_forgetting, pending)

    async def _erase(self, refs: Sequence[ItemRef]) -> None:
        """Remove exchanges from the index, and what is known of them as files."""
        from kiwi_rag.ingest import states_of

        tier = self.tier
        if tier.local_index:
            await tier.local_index.erase(refs)
            await asyncio.to_thread(_remove_set_aside, tier.local_index.folder)
        else:
            for ref in refs:
                await tier.store.delete(ref)
        await asyncio.to_thread(states_of(tier).erase, [ref.item_id for ref in refs])

    async def _index(self, exchange: Exchange) -> str:
        """Index one exchange; return why that is left for later, if it is."""
        from kiwi_rag.ingest import ingest_document

        try:
            writer = await self.writer()
            content = await asyncio.to_thread(self.source.read, exchange.path)
            admission = await ingest_document(exchange.path, content, self.tier, writer, self.source.rules)
            if await asyncio.to_thread(self.table.count, Selection(ids=(exchange.id,))):
                await asyncio.to_thread(self.table.mark_indexed, content.changed_ns, content.changed_ns)
            else:
                await self._erase([admission.ref])
        except FileNotFoundError:
            return "it was forgotten meanwhile"
        except KiwiError as error:
            self._checked_at = -math.inf
            return f"{describe_error(error)}; {self.index_command} indexes it"
        return ""

    async def _is_behind(self) -> bool:
        """Whether the index has other exchanges than the table, or not all of their vectors.

        Another process is adding some, or one was killed.
        """
        if self.is_shared:
            return False
        state = await self.tier.store.status() if self.is_indexed else None
        count = await asyncio.to_thread(self.table.count)
        if state is None or state.items != count or state.unembedded:
            return count > 0 or state is not None
        return await asyncio.to_thread(self.table.has_unindexed)

    def _reject(self, exchange: Exchange, findings: Sequence[Finding]) -> KiwiError:
        from kiwi_rag.validation.admission import policy_of
        from kiwi_rag.validation.manager import ValidationManager

        gate = ValidationManager(self.read_trust(), self._app.settings.registry_name)
        return gate.reject(exchange.path, findings, policy_of(self.policy), self.tier.audit)


def _finding(exchange: Exchange, outcome: Outcome) -> Finding:
    code, message = _REFUSALS[outcome]
    return Finding(code, message, path=exchange.path, hint="add it under another id")


def _remove_set_aside(folder: Path) -> None:
    """Remove the files that a repair has set aside: they have what was forgotten since, and can be made again."""
    for path in folder.iterdir():
        if _SET_ASIDE.search(path.name):
            path.unlink(missing_ok=True)
