"""The page Models and stores: the embedding model with its use, and each store with what it can do and its health."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from starlette.requests import Request

from kiwi_rag import render
from kiwi_rag.collection import Collection
from kiwi_rag.config import LOCAL_PROVIDERS
from kiwi_rag.embedding.cache import CachedEmbeddingProvider
from kiwi_rag.embedding.usage import usage_rows
from kiwi_rag.errors import KiwiError
from kiwi_rag.http.web.page import Done, Form, Page, PageGroup, confirm
from kiwi_rag.registry.calls import time_limit
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.usecases import registry, weaviate
from kiwi_rag.usecases.status import PROBE_SECONDS, cache_state, model_state

SENTENCE = "A test sentence of Kiwi, sent to measure how long the model takes."
DAYS = 30
"""Days whose use of remote models is shown."""


class Stores(PageGroup):
    """The page of one service."""

    async def show(self, _request: Request) -> Page:
        """Show the model, its use of the last days, and the stores; starts nothing."""
        app, since = self._app, datetime.now(UTC).date() - timedelta(days=DAYS - 1)
        log = app.settings.cache_path / "usage.jsonl"
        rows = await asyncio.to_thread(usage_rows, log, since)
        places: list[str | Path] = [*app.source_names("local"), *self._workspaces.roots]
        values = {
            "model": self._model(), "cache": await asyncio.to_thread(cache_state, app), "sentence": SENTENCE,
            "usage": [{**row, "cells": render.usage_cells(row)} for row in rows], "since": since.isoformat(),
            "stores": await asyncio.gather(*map(self._state, places)), "registry": await self._registry(),
            "log": str(log), "weaviate": bool(shutil.which("docker")) or app.settings.workspace_store == "weaviate",
        }  # fmt: skip
        return Page("stores.html", values)

    async def test(self, _form: Form) -> Done:
        """Embed a sentence with the model itself, without the cache."""
        model = self._app.embed.uncached
        started = time.perf_counter()
        (vector,) = await asyncio.to_thread(model.encode, [SENTENCE])
        took, length = (time.perf_counter() - started) * 1000, float(vector @ vector) ** 0.5
        name = f"{model.fingerprint.model} embedded the sentence in {took:.1f} ms"
        return Done("/stores", f"{name}: {len(vector)} dimensions, a vector of length {length:.3f}.")

    async def run_weaviate(self, form: Form) -> Done:
        """Start, stop or recreate the Weaviate server of this machine."""
        weaviate.check(action := form.get("action", ""))
        if action != "start":
            confirm(form, f"{action.capitalize()} Weaviate? Searches in it fail meanwhile. Its data stays.", "Do it")
        await asyncio.to_thread(weaviate.run, action, self._app.settings)
        done = {"start": "runs", "stop": "was stopped", "recreate": "was recreated and runs"}[action]
        return Done("/stores", f"Weaviate {done}; its address is {weaviate.URL}.")

    pages: ClassVar = {"/stores": show}
    actions: ClassVar = {"/stores/test": test, "/stores/weaviate": run_weaviate}

    def _model(self) -> Mapping[str, Any]:
        state, app = model_state(self._app), self._app
        known = asdict(app.embed.fingerprint) if state["fingerprint"] else {}
        cached = app.embed if not state["problem"] else None
        counts = (cached.encoded, cached.hits) if isinstance(cached, CachedEmbeddingProvider) else None
        return {**state, **known, "counts": counts, "is_remote": app.settings.embedding_provider not in LOCAL_PROVIDERS}

    async def _state(self, place: str | Path) -> Mapping[str, Any]:
        """Return what the store of a tier, by its name, or of a workspace, by its root folder, can do and has.

        Where it cannot be reached, why.
        """
        is_tier, settings = isinstance(place, str), self._app.settings
        name = f"Items of the {place} tier" if is_tier else f"Documents of {place}"
        is_local = is_tier or settings.workspace_store == "local"
        try:
            async with time_limit(settings.deadline if is_local else PROBE_SECONDS, "the store"):
                store = (await self._collection(place)).store
                status = await store.status()
                about = {"can": store.capabilities, "status": status, "facts": _shown(status.details)}
                return {"name": name, **about, "error": None}
        except KiwiError as error:
            return {"name": name, "error": error.as_dict()}

    async def _collection(self, place: str | Path) -> Collection[VectorStore]:
        if isinstance(place, str):
            return self._app.local(place)
        return (await self._workspaces.open(str(place))).indexed_tier(f"kiwi workspace index {shlex.quote(str(place))}")

    async def _registry(self) -> Mapping[str, Any]:
        app, connection = self._app, self._app.registry_connection
        row: dict[str, Any] = {"running": False, "kept": False, "facts": {}}
        row |= {"where": connection.description, "is_embedded": connection.is_embedded}
        try:
            async with time_limit(app.settings.deadline if connection.is_embedded else PROBE_SECONDS):
                state = await registry.collect_state(app)
            facts = {name: value for name, value in state.items() if name not in (*row, "problem")}
            return {**row, **state, "facts": _shown(facts)}
        except KiwiError as error:
            return {**row, "problem": error.message}


def _shown(facts: Mapping[str, Any]) -> Mapping[str, str]:
    known = {name: value for name, value in facts.items() if value not in (None, "", [], {})}
    return {name.replace("_", " ").capitalize(): render.value_text(value) for name, value in known.items()}
