"""The page Item: its verified content, its versions, and who signed what; a version is published or yanked there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from starlette.requests import Request

from kiwi_rag.errors import NotFound, Refused, RegistryError
from kiwi_rag.http.web.page import Done, Form, Page, PageGroup, confirm
from kiwi_rag.http.web.search import editor_address
from kiwi_rag.ingest.publication import NotPublished
from kiwi_rag.ingest.sync import Callbacks
from kiwi_rag.mcp.jobs import Job
from kiwi_rag.search.verify import parse_address
from kiwi_rag.services import Services
from kiwi_rag.signing import dsse
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.usecases import add, history, items, registry
from kiwi_rag.usecases.install import SkillInstaller
from kiwi_rag.usecases.installed_skills import place_of, verify_installed
from kiwi_rag.usecases.items import FoundItem


class Items(PageGroup):
    """The page of one item."""

    async def show(self, request: Request) -> Page:
        """Show one file of an item, verified again, and how its files differ from those of another version."""
        given = request.query_params
        app = await self._workspaces.services(root := given.get("root", ""))
        found = await _find(app, given.get("ref", ""))
        other = await _find(app, given["with"]) if given.get("with") else None
        ref, stored = found.signed.ref, found.stored
        name = given.get("file") or found.signed.main
        if name not in stored.files:
            raise NotFound(f"{ref} has no file {name[:200]!r}", hint=f"kiwi show {ref}")
        copies = await items.find_copies(app, ref)
        local = [copy for copy in copies.values() if isinstance(copy, FoundItem) and copy.tier.root]
        is_readable = "registry" in copies and not isinstance(copies["registry"], RegistryError)
        path = str(Path(stored.path).parent / name) if stored.path else ""
        about = [parse_address(ref.item_id)]
        values = {
            "found": found, "file": name, "root": root, "lines": history.text_lines(stored.files[name]),
            "editor": editor_address(found.tier.root, path, 1), "warnings": items.state_warnings(found),
            "undeclared": await asyncio.to_thread(items.permission_warnings, app, found), "copies": copies,
            "kept": [(copy, await copy.tier.store.history(ref)) for copy in local], "trusted": app.trust.by_key,
            "published": await app.registry_client.item_status(ref) if is_readable else (), "other": other,
            "diff": await asyncio.to_thread(_diff, other, found) if other else None,
            "statement": json.loads(stored.envelope.payload), "envelope": dsse.encode(stored.envelope),
            "installed": await verify_installed(app, about, "local") if ref.item_type.is_folder else (),
        }  # fmt: skip
        return Page("item.html", values)

    async def index(self, form: Form) -> Done:
        """Index the items in the ``.ai`` of a workspace, as a job."""
        app = await self._workspaces.services(root := form.get("root", ""))

        async def work(job: Job) -> Mapping[str, object]:
            report = job.report = SyncReport()
            async with self._context.writing:
                callbacks = Callbacks(job.set_total, report=lambda: report)
                return (await add.update_index(app, "project", callbacks, 1, rebuild=False)).as_dict()

        self._context.jobs.start(f"index the items of {root}", work)
        return Done("/indexing", f"The items of {root} are being indexed.")

    async def publish(self, form: Form) -> Done:
        """Publish the version of an item that its project has."""
        app, ref = await self._workspaces.services(root := form.get("root", "")), form.get("ref", "")
        files = add.files_of(app, [ref.partition("@")[0]])
        confirm(form, f"Publish {ref}? Every reader of the registry sees it, and it can only be yanked.", "Publish it")
        async with self._context.writing:
            [outcome] = [one async for one in (await add.prepare_publication(app)).publish(files)]
        if isinstance(outcome, NotPublished):
            raise outcome.error
        return _published(ref, root, f"{ref} is published.")

    async def yank(self, form: Form) -> Done:
        """Withdraw the version that the form names from the registry."""
        app = await self._workspaces.services(root := form.get("root", ""))
        ref = await registry.find_published(app, form.get("ref", ""))
        confirm(form, registry.yank_question(ref), "Yank it")
        count = await registry.yank(app, ref, form.get("reason", ""))
        return _published(ref, root, f"{ref} was yanked{'' if count else ' already; nothing changed'}.")

    async def install(self, form: Form) -> Done:
        """Install the version of a skill that the form names for the agents that work in a project."""
        app, ref = await self._workspaces.services(root := form.get("root", "")), form.get("ref", "")
        installer = SkillInstaller(app, place_of(app, "project"))
        async with self._context.writing:
            [plan] = await installer.plan_install([ref], ())
            before = f" {plan.other_signer} signed the installed version." if plan.other_signer else ""
            question = f"Install {plan.after.ref} in {installer.place.base}, signed by {plan.found.signer.principal}?"
            confirm(form, f"{question}{before} Agents that work there follow it.", "Install it")
            await installer.apply([plan])
        return Done(f"/item?ref={quote(ref)}&root={quote(root)}", f"{plan.after.ref} is installed.")

    pages: ClassVar = {"/item": show}
    actions: ClassVar = {
        "/item/index": index, "/item/publish": publish, "/item/yank": yank, "/item/install": install,
    }  # fmt: skip


def _published(ref: object, root: str, message: str) -> Done:
    return Done(f"/item?ref={quote(f'{ref}@registry')}&root={quote(root)}", message)


async def _find(app: Services, text: str) -> FoundItem:
    names = app.source_names("all" if "@" in text else app.settings.source)
    try:
        return await items.find(app, text, names)
    except Refused as error:
        message = f"{text} does not verify, so nothing of it is shown: {error.message}"
        raise Refused(message, hint=error.hint or "kiwi doctor") from error


def _diff(old: FoundItem, new: FoundItem) -> list[str]:
    """Return how the files of two versions differ, as a unified diff."""
    before, after = (f"{one.signed.ref}@{one.tier.name}" for one in (old, new))
    return history.unified_diff(old.stored.files, new.stored.files, before, after)
