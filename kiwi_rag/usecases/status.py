"""What the interfaces share: settings applied to a query, finding one item, and the state of all parts of Kiwi."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kiwi_rag import render
from kiwi_rag.config import Settings
from kiwi_rag.errors import KiwiError, NotFound, Refused, UsageError, Yanked
from kiwi_rag.model import ItemState, SearchQuery
from kiwi_rag.telemetry import logs

if TYPE_CHECKING:
    from kiwi_rag.collection import Tier
    from kiwi_rag.search.verify import Address, VerifiedItem
    from kiwi_rag.services import Services
    from kiwi_rag.stores.base import VectorStore

PROBE_SECONDS = 2.0
"""How long to wait for a server's answer."""
MAX_ERRORS = 10


def apply_settings(query: SearchQuery, settings: Settings) -> SearchQuery:
    """Return a query with the search settings, which include the flags of this call."""
    return replace(
        query,
        source=settings.source,
        limit=settings.limit,
        alpha=None if settings.alpha < 0 else settings.alpha,
        half_life_days=settings.half_life_days or None,
        per_signer=None if settings.per_signer < 0 else settings.per_signer,
    )


async def item_state(tier: Tier[VectorStore], item: VerifiedItem) -> ItemState:
    """Return whether an item's file changed since it was signed, and whether its version was yanked."""
    from kiwi_rag.search.state import read_states

    (state,) = await asyncio.to_thread(read_states, [(item, tier)])
    return state


async def find_item(app: Services, address: Address, names: Sequence[str]) -> tuple[Tier[VectorStore], VerifiedItem]:
    """Return the item at an address, verified, from the first of the named tiers that has it.

    Raises
    ------
    NotFound
        When no tier has it; `Yanked` when its version was yanked.
    UsageError
        When the address matches several items.
    Refused
        When it does not verify.
    KiwiError
        The error of a tier that could not be read and may have the item.
    """
    from kiwi_rag.search.verify import find

    failure: KiwiError | None = None
    yanked: Yanked | None = None
    for name in names:
        try:
            return await find(address, [app.tier(name)], app.trust, app.settings.registry_name)
        except Yanked as error:
            yanked = error
        except NotFound:
            continue
        except (Refused, UsageError):
            raise
        except KiwiError as error:
            failure = error
    if cause := failure or yanked:
        raise cause
    kind = f"{address.item_type}:" if address.item_type else ""
    version = f"@{address.version}" if address.version else ""
    raise NotFound(
        f"no item {kind}{address.item_id}{version} in {', '.join(names)}", hint=f"kiwi search {address.item_id!r}"
    )


async def collect_status(app: Services, service: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of tiers, model, cache, last errors and service, JSON-ready. Starts and loads nothing.

    `service` is the state of the local service, from `kiwi_rag.local_service.client.state`.
    """
    errors = await asyncio.to_thread(logs.read_last_errors, app.user_dir, MAX_ERRORS)
    return {
        "tiers": await tier_rows(app),
        "model": model_state(app),
        "cache": await asyncio.to_thread(cache_state, app),
        "errors": [_error_row(record) for record in errors],
        "service": dict(service),
        "project": str(app.project_dir or ""),
        "trusted_signers": len(app.trust.signers),
    }


def model_state(app: Services) -> dict[str, Any]:
    """Return which model is used and where it is, JSON-ready; loads nothing and contacts no server."""
    name = app.settings.embedding_provider
    state = {"provider": name, "name": app.settings.embedding_model, "fingerprint": "", "place": "", "problem": ""}
    try:
        embed = app.embed
    except KiwiError as error:
        return {**state, "problem": error.message}
    if app.settings.embedding_dimension:  # if 0, a remote provider would contact its server
        state |= {"name": embed.fingerprint.model, "fingerprint": str(embed.fingerprint)}
    return {**state, "place": embed.place, "problem": "" if embed.place else "its files are not on this machine"}


def cache_state(app: Services) -> dict[str, Any]:
    """Return the path and size of the cache, JSON-ready; only Kiwi's own files in that folder are counted."""
    folder = app.settings.cache_path
    size = 0
    for pattern in ("models/**/*", "embeddings.sqlite*", "usage.jsonl*", "probes/*"):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):  # removed meanwhile, or not readable
                size += path.lstat().st_size if path.is_file() else 0
    return {"path": str(folder), "bytes": size}


def _error_row(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "at": record["at"],
        "what": record.get("command") or record.get("tool") or record.get("logger", ""),
        "code": record.get("code") or record.get("exception", ""),
        "message": record.get("message", ""),
    }


async def tier_rows(app: Services) -> list[dict[str, Any]]:
    """Return a row for each tier, and for the workspace's index if there is one, JSON-ready; starts nothing."""
    local = [await _local_row(app, name) for name in app.source_names("local")]
    return [*local, *await _workspace_rows(app), await _registry_row(app)]


async def _local_row(app: Services, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"tier": name, "items": "", "passages": "", "model": "", "problems": ""}
    try:
        state = await app.local(name).store.status()
    except KiwiError as error:
        return {**row, "problems": error.message}
    counts = {"items": state.items, "passages": state.passages, "model": state.fingerprint}
    return {**row, **counts, "problems": "; ".join(state.problems)}


async def _workspace_rows(app: Services) -> list[dict[str, Any]]:
    from kiwi_rag.services.workspace import TIER, Workspace
    from kiwi_rag.sources.workspace.report import BEGUN, RUN

    row: dict[str, Any] = {"tier": TIER, "documents": "", "passages": "", "model": "", "problems": ""}
    async with Workspace(app) as workspace:
        try:
            if not workspace.is_indexed:
                return []
            async with asyncio.timeout(PROBE_SECONDS):
                store = workspace.tier.store
                state, run = await store.status(), await store.get_note(RUN)
        except TimeoutError:
            return [{**row, "problems": f"the index did not answer within {PROBE_SECONDS:g} s"}]
        except KiwiError as error:
            return [{**row, "problems": render.safe(error.message)}]
    unfinished = ["the last index run did not finish: continue it with kiwi workspace index"] if run == BEGUN else []
    counts = {"documents": state.items, "passages": state.passages, "model": state.fingerprint}
    return [{**row, **counts, "problems": "; ".join([*state.problems, *unfinished])}]


async def _registry_row(app: Services) -> dict[str, Any]:
    from kiwi_rag.registry import server

    if not app.registry_connection.is_embedded:
        where = {"tier": "registry", "where": render.safe(app.registry_connection.description)}
        return {**where, **await _probe(app)}
    state = server.server_state(app.registry_dir)
    return {
        "tier": "registry",
        "where": f"embedded, {render.safe(str(app.registry_dir))}",
        "state": "running" if state.running else "not running",
        "problems": "",
    }


async def _probe(app: Services) -> dict[str, Any]:
    """Return whether a registry that is not embedded answers within `PROBE_SECONDS`, and what it contains."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            status = await app.registry().store.status()
    except TimeoutError:
        return {"state": "silent", "problems": f"the registry did not answer within {PROBE_SECONDS:g} s"}
    except KiwiError as error:
        return {"state": "failed", "problems": render.safe(error.message)}
    return {"state": "answers", "items": status.items, "problems": "; ".join(status.problems)}
