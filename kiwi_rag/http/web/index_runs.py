"""The pages Add, which adds a folder of the server to the user's workspaces, and Indexing, which shows their runs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kiwi_rag.chunking import DOCUMENTS
from kiwi_rag.config import LOCAL_PROVIDERS, process_environment
from kiwi_rag.consent import PURPOSES, is_local
from kiwi_rag.embedding.usage import RemoteCall, UsageLog, parse_prices
from kiwi_rag.errors import UsageError
from kiwi_rag.http.libraries import addition_work, allowed_roots, check_folder, folders_below, parse_addition
from kiwi_rag.http.web.page import Done, Form, Page, PageGroup, confirm, render_part
from kiwi_rag.http.web.workspaces import contents, workspace_rows
from kiwi_rag.mcp.context import require_idle
from kiwi_rag.mcp.jobs import STEP_SECONDS, wait
from kiwi_rag.mcp.workspace import index_work
from kiwi_rag.services import Services
from kiwi_rag.services.documents import store_hosts
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.sources.library.discover import INCLUDED, select
from kiwi_rag.sources.workspace.config import write_name
from kiwi_rag.sources.workspace.source import walk
from kiwi_rag.usecases.status import cache_state, model_state, read_history

SHOWN_RUNS = 100
MAX_FILES = 50_000
"""Files that are counted in a folder."""
BYTES_A_PASSAGE, BYTES_A_TOKEN = 500, 3.5
"""For estimates. In five trees of documentation, specifications and code passages had 360 to 580 bytes each."""
_PROSE = (".md", ".mdx", ".rst", ".adoc", ".txt", ".html")
_SAMPLE = "A release that fails its health check is rolled back to the version before, and the engineer is paged. "


class Indexing(PageGroup):
    """The pages of indexing: a folder is added, and runs are started, watched and stopped."""

    _rate = 0.0

    async def show_folder(self, request: Request) -> Page:
        """Show the folders below one, or what was found in the one that was chosen."""
        if origin := request.query_params.get("library", ""):
            return Page("add_library.html", await self._found_library(origin))
        if chosen := request.query_params.get("chosen", ""):
            return Page("add_found.html", await self._found(chosen))
        given, roots = request.query_params.get("folder", ""), allowed_roots(self._context)
        here = check_folder(given, roots) if given else None
        folders = await asyncio.to_thread(folders_below, here, roots) if here else roots
        return Page("add.html", {"here": here, "roots": roots, "folders": folders})

    async def _found_library(self, origin: str) -> Mapping[str, Any]:
        addition = parse_addition(self._context, {"origin": origin})
        package, hosts = await asyncio.to_thread(addition.locate)
        folder = package.folder if package and not hosts else None
        found = await asyncio.to_thread(survey, folder, is_library=True) if folder else {}
        about = {"origin": addition.origin, "package": package, "folder": folder}
        return {**about, **await self._estimated(self._app, found, hosts)}

    async def add_library(self, form: Form) -> Done:
        """Add a folder or a package as a library, and start to index it."""
        require_idle(self._context)
        lists = {"include": form.get("include", "").split(), "code": form.get("code") == "yes"}
        addition = parse_addition(self._context, {"origin": "", **form, **lists})
        note_consent(self._app, form, (await asyncio.to_thread(addition.locate))[1])
        self._context.jobs.start(f"add {addition.origin}", addition_work(self._context, addition))
        return Done("/indexing", f"{addition.origin} is being added as a library and indexed.")

    async def add(self, form: Form) -> Done:
        """Add the folder to the user's workspaces, and start to index it."""
        require_idle(self._context)
        name = form.get("name", "").strip()
        async with self._opened(form.get("folder", "")) as (app, workspace):
            root = workspace.config.root
            note_consent(app, form)
            if name and name != workspace.config.name:
                write_name(root, name)
        self._workspaces.add(root)
        await self._start(str(root))
        return Done("/indexing", f"{root} was added and is being indexed.")

    async def _found(self, given: str) -> Mapping[str, Any]:
        async with self._opened(given) as (app, workspace):
            root = workspace.config.root
            about = {"root": root, "name": workspace.config.name, "outer": workspace.outer}
            return {**about, **await self._estimated(app, await asyncio.to_thread(survey, root))}

    async def _estimated(self, app: Services, found: Mapping[str, Any], hosts: Sequence[str] = ()) -> Mapping[str, Any]:
        """Return what was found with what indexing it takes; before a download from `hosts` nothing is found."""
        remote = app.settings.embedding_provider not in LOCAL_PROVIDERS
        cost = estimate_cost(app, found["bytes"]) if remote and found else None
        seconds = None if remote or not found else found["passages"] / await self._passages_a_second()
        leaves = [f"Kiwi {PURPOSES[purpose]} {host}." for purpose, host in what_leaves(app, hosts)]
        return {**found, "model": model_state(app), "leaves": leaves, "cost": cost, "seconds": seconds}

    async def _passages_a_second(self) -> float:
        """Return how many passages a second the model embeds on this machine, measured once."""
        if not self._rate:
            await self._context.warm()
            embed, texts = self._app.embed.uncached, [f"{number}. {5 * _SAMPLE}" for number in range(8)]
            started = time.monotonic()
            await embed.documents(texts)
            self._rate = len(texts) / (time.monotonic() - started)
        return self._rate

    @asynccontextmanager
    async def _opened(self, given: str) -> AsyncIterator[tuple[Services, Workspace]]:
        """Yield what a folder's workspace would be."""
        folder = check_folder(given, allowed_roots(self._context))
        async with Services.open(process_environment(), folder, folder) as app:
            if app.project_dir and app.project_dir.resolve() == app.user_dir.resolve():
                raise UsageError(f"{folder} holds your own items and cannot be a workspace", hint="choose one below it")
            yield app, Workspace(app)

    async def show_runs(self, _request: Request) -> Page:
        """Show the running or the last run, each workspace, and the history."""
        app, running = self._app, self._context.jobs.running
        rows = await workspace_rows(self._context, self._workspaces)
        records = await asyncio.to_thread(lambda: [*islice(read_history(app.user_dir), SHOWN_RUNS)])
        cache = await asyncio.to_thread(cache_state, app)
        if running and running.state != "running":  # the rows are those of before its end
            rows = await workspace_rows(self._context, self._workspaces)
        values = {"rows": rows, "job": self._context.jobs.latest, "history": records, "sizes": DOCUMENTS}
        return Page("indexing.html", {**values, "cache": cache, "embed": app.embed}, part="indexing_part.html")

    async def run(self, form: Form) -> Done:
        """Index what has changed, which continues a run that was stopped; or empty an index and make it again."""
        root, rebuild = form.get("root", ""), form.get("rebuild") == "yes"
        if rebuild:
            async with self._workspaces.scope(root) as opened:
                loss = await contents(opened)
            question = f"Rebuild the index of {root}? {loss} are removed, and not found until they are indexed again."
            confirm(form, question, "Rebuild")
        await self._start(root, rebuild=rebuild)
        return Done("/indexing", f"The run over {root} has begun.")

    async def _start(self, root: str, *, rebuild: bool = False) -> None:
        async with self._workspaces.scope(root) as opened:
            require_idle(self._context)
            self._context.jobs.start(f"index {root}", index_work(self._context, opened, rebuild=rebuild))

    async def stop(self, form: Form) -> Done:
        """Stop a run; what it has stored is kept."""
        await self._context.jobs.cancel(self._context.jobs.get(form.get("job", "")))
        return Done("/indexing", "Stopping the run. What it has stored is kept, and the next run continues from there.")

    async def events(self, _request: Request) -> Response:
        """Answer with the progress of the running run each second, until it ends."""
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        while job := self._context.jobs.running:
            lines = render_part("run.html", {"job": job}).splitlines()
            yield "".join(f"data: {line}\n" for line in lines) + "\n"
            await wait(job, STEP_SECONDS)
        yield "event: ended\ndata:\n\n"

    pages: ClassVar = {"/add": show_folder, "/indexing": show_runs, "/indexing/events": events}
    actions: ClassVar = {"/add": add, "/add/library": add_library, "/indexing/run": run, "/indexing/stop": stop}


def survey(root: Path, *, is_library: bool = False) -> Mapping[str, Any]:
    """Return what an index run over a folder would read, without opening a file: counts by suffix, and an estimate.

    Of a library, that is its documentation.
    """
    listed = list(islice(walk(root), MAX_FILES + 1))
    if is_library:
        roles = select(file.path for file in listed)
        listed = [file for file in listed if roles.get(file.path, INCLUDED) != INCLUDED]
    paths, size = [PurePosixPath(file.path) for file in listed[:MAX_FILES]], sum(file.size for file in listed)
    types = Counter(path.suffix.lower() or "no suffix" for path in paths).most_common()
    docs = Counter(str(path.parent) for path in paths if path.suffix in _PROSE).most_common(1)
    counts = {"files": len(paths), "bytes": size, "passages": max(len(paths), -(-size // BYTES_A_PASSAGE))}
    about = {"items": any(root.glob(".ai/[dks]*/*")), "partial": len(listed) > MAX_FILES}  # directives to skills
    return {**counts, **about, "types": types, "docs": docs}


def estimate_cost(app: Services, size: int) -> float | None:
    """Return what embedding so many bytes costs in US dollars; None if the price is not known. Contacts no server."""
    provider: Any = app.embed.uncached
    first = getattr(provider, "servers", (provider,))[0]
    prices = UsageLog(app.settings.cache_path / "usage.jsonl", parse_prices(app.settings.embedding_prices))
    return prices.cost(RemoteCall(first.provider, first.model, 1, int(size / BYTES_A_TOKEN), 0.0))


def note_consent(app: Services, form: Form, downloads: Sequence[str] = ()) -> None:
    """Allow the hosts that a page named, if its form has the consent.

    Raises
    ------
    UsageError
        When it does not.
    """
    leaving = what_leaves(app, downloads)
    if leaving and form.get("consent") != "yes":
        raise UsageError("nothing was sent: the consent was not given", hint="go back and tick the box")
    for purpose, host in leaving:
        app.consent.change(host, [purpose])


def what_leaves(app: Services, downloads: Sequence[str] = ()) -> Sequence[tuple[str, str]]:
    """Return the purposes and hosts for which other machines are contacted; empty if everything stays on this one."""
    places = [] if app.settings.embedding_provider in LOCAL_PROVIDERS else app.embed.place.split(", ")
    hosts = [("embedding", urlsplit(place).hostname or "") for place in places]
    hosts += [("download", host) for host in downloads]
    hosts += [("store", host) for host in store_hosts(app.settings, app.settings.workspace_store)]
    return [(purpose, host) for purpose, host in hosts if not is_local(host)]
