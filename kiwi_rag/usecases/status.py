"""What every door does alike: asking as the settings say, finding one item, saying how things stand."""

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
ERRORS_TOLD = 10


def as_set(query: SearchQuery, settings: Settings) -> SearchQuery:
    """Return a query with what the settings, and the flags that stand for them, say of every search."""
    return replace(
        query,
        source=settings.source,
        limit=settings.limit,
        alpha=None if settings.alpha < 0 else settings.alpha,
        half_life_days=settings.half_life_days or None,
        per_signer=None if settings.per_signer < 0 else settings.per_signer,
    )


async def item_state(tier: Tier[VectorStore], item: VerifiedItem) -> ItemState:
    """Return whether an item's file was changed since it was signed, and whether its version was yanked."""
    from kiwi_rag.search.state import read_states

    (state,) = await asyncio.to_thread(read_states, [(item, tier)])
    return state


async def find_item(app: Services, address: Address, names: Sequence[str]) -> tuple[Tier[VectorStore], VerifiedItem]:
    """Return the item an address means, verified, from the first of the named tiers that holds it.

    Raises
    ------
    NotFound
        When none of them does; `Yanked` when a registry took it back.
    UsageError
        When it means several items.
    Refused
        When it does not verify.
    KiwiError
        What a tier failed with that might have held it: unreachable is not absent.
    """
    from kiwi_rag.search.verify import find

    unreachable: KiwiError | None = None
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
            unreachable = error
    if told := unreachable or yanked:
        raise told
    kind = f"{address.item_type}:" if address.item_type else ""
    version = f"@{address.version}" if address.version else ""
    named = f"{kind}{address.item_id}{version}"
    raise NotFound(f"no item {named} in {', '.join(names)}", hint=f"kiwi search {address.item_id!r}")


async def standing(app: Services, service: Mapping[str, Any]) -> dict[str, Any]:
    """Return how things stand, JSON-ready: tiers, model, cache, last errors, service. Starts and loads nothing.

    `service` is how the local service does, as `kiwi_rag.local_service.client.state` tells it.
    """
    return {
        "tiers": await tier_rows(app),
        "model": model_state(app),
        "cache": await asyncio.to_thread(cache_state, app),
        "errors": [
            _error_row(record) for record in await asyncio.to_thread(logs.read_last_errors, app.user_dir, ERRORS_TOLD)
        ],
        "service": dict(service),
        "project": str(app.project_dir or ""),
        "trusted_signers": len(app.trust.signers),
    }


def model_state(app: Services) -> dict[str, Any]:
    """Return which model is used and where it is; nothing is loaded, and no server is asked."""
    name = app.settings.embedding_provider
    state = {"provider": name, "name": app.settings.embedding_model, "fingerprint": "", "place": "", "problem": ""}
    try:
        embed = app.embed
    except KiwiError as error:
        return {**state, "problem": error.message}
    if app.settings.embedding_dimension:  # where that is 0, a remote provider would ask its server
        state |= {"name": embed.fingerprint.model, "fingerprint": str(embed.fingerprint)}
    return {**state, "place": embed.place, "problem": "" if embed.place else "its files are not on this machine"}


def cache_state(app: Services) -> dict[str, Any]:
    """Return where the cache is and how large; what is not Kiwi's in that folder does not count."""
    folder = app.settings.cache_path
    size = 0
    for path in (
        p for pattern in ("models/**/*", "embeddings.sqlite*", "usage.jsonl*", "probes/*") for p in folder.glob(pattern)
    ):
        with contextlib.suppress(OSError):  # gone a moment ago, or not ours to look at
            size += path.lstat().st_size if path.is_file() else 0
    return {"path": str(folder), "bytes": size}


def _error_row(record: dict[str, Any]) -> dict[str, Any]:
    what = record.get("command") or record.get("tool") or record.get("logger", "")
    told = {"at": record["at"], "what": what, "code": record.get("code") or record.get("exception", "")}
    return {**told, "message": record.get("message", "")}


async def tier_rows(app: Services) -> list[dict[str, Any]]:
    """Return what each tier holds and what is wrong with it, JSON-ready; starts nothing.

    The index of the workspace is one of them where there is one.
    """
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
            return [{**row, "problems": f"the index gave no answer within {PROBE_SECONDS:g} s"}]
        except KiwiError as error:
            return [{**row, "problems": render.safe(error.message)}]
    unfinished = ["the last run has not come to its end: kiwi workspace index goes on with it"] if run == BEGUN else []
    counts = {"documents": state.items, "passages": state.passages, "model": state.fingerprint}
    return [{**row, **counts, "problems": "; ".join([*state.problems, *unfinished])}]


async def _registry_row(app: Services) -> dict[str, Any]:
    from kiwi_rag.registry import server

    if not app.registry_is_embedded:
        where = {"tier": "registry", "where": render.safe(app.registry_place)}
        return {**where, **await _probe(app)}
    state = server.server_state(app.registry_dir)
    return {
        "tier": "registry",
        "where": f"embedded, {render.safe(str(app.registry_dir))}",
        "state": "running" if state.running else "not running",
        "problems": "",
    }


async def _probe(app: Services) -> dict[str, Any]:
    """Say whether a registry elsewhere answers, having waited for it no longer than a person does."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            held = await app.registry().store.status()
    except TimeoutError:
        return {"state": "silent", "problems": f"the registry gave no answer within {PROBE_SECONDS:g} s"}
    except KiwiError as error:
        return {"state": "failed", "problems": render.safe(error.message)}
    return {"state": "answers", "items": held.items, "problems": "; ".join(held.problems)}
