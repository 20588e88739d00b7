"""The page Home, with the first steps of a new user: a key, trust in it, a folder, its index, the first search.

Each step is done, or says what to do. The list is gone when all are done, or when the user hides it. And the page
Settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from starlette.requests import Request

from kiwi_rag.errors import UsageError
from kiwi_rag.http.web.page import Done, Form, Page, PageGroup
from kiwi_rag.http.web.workspaces import workspace_rows
from kiwi_rag.model import sha256_hex
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import check_new_principal
from kiwi_rag.sources.file_states import RunState
from kiwi_rag.storage.atomic import create_file, disk_errors
from kiwi_rag.usecases import trust
from kiwi_rag.usecases.status import collect_status

MIN_PASSPHRASE = 8
KEY_NAME = "default"
CHOICES = "first-steps"
"""Folder of the user tier with a file for each choice."""
Choice = Literal["without-key", "searched", "hidden"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its title, and what was done; ``result`` is empty as long as it is to do."""

    name: str
    title: str
    result: str


class Home(PageGroup):
    """Home, the forms of the steps that are done there, and the settings."""

    async def home(self, _request: Request) -> Page:
        """Show the collections, what needs attention, and the search box."""
        status = await collect_status(self._app)
        attention = [(row["tier"], one) for row in status["tiers"] for one in str(row["problems"]).split("; ") if one]
        if problem := status["model"]["problem"]:
            attention.append(("model", f"{problem}: kiwi doctor"))
        rows = await workspace_rows(self._context, self._workspaces, brief=True)
        steps = await asyncio.to_thread(self.steps, [row for row in rows if not row["library"]])
        values = {"status": status, "attention": attention, "rows": rows, "running": self._context.jobs.running}
        key = {"principal": self._app.principal, "min_passphrase": MIN_PASSPHRASE}
        return Page("home.html", {**values, **key, "steps": steps})

    async def settings(self, _request: Request) -> Page:
        """Show each setting, its value, and where it came from."""
        return Page("settings.html", {"rows": self._app.resolved.origins})

    def steps(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[Step]:
        """Return all steps, none when nothing is left to do; `rows` are the states of the workspaces."""
        folder = self._app.user_dir / CHOICES
        if (hidden := folder / "hidden").exists():
            return ()
        none = "continued without a key" if (folder / "without-key").exists() else ""
        names = keys.names(self._app.keys_dir)
        trusted = ", ".join(sorted({signer.principal for signer in self._app.trust.by_key.values()}))
        roots = [row["root"] for row in rows]
        indexed = [row["root"] for row in rows if row.get("complete") or row.get("run") == RunState.PARTLY]
        steps = [
            Step("key", "A key to sign with", ", ".join(names) or none),
            Step("trust", "Trust in your key", "" if self._untrusted() else trusted or none),
            Step("folder", "A folder to search", ", ".join(map(str, roots))),
            Step("index", "Its index", ", ".join(map(str, indexed))),
            Step("search", "The first search", "done" if (folder / "searched").exists() else ""),
        ]
        if all(step.result for step in steps):
            with suppress(OSError):  # they stay away when a folder is removed later
                create_file(hidden)
        return () if hidden.exists() else steps

    async def make_key(self, form: Form) -> Done:
        """Make a key with the passphrase of the form, and trust it."""
        passphrase = form.get("passphrase", "")
        if len(passphrase) < MIN_PASSPHRASE:
            raise UsageError(f"the passphrase has fewer than {MIN_PASSPHRASE} characters", hint="choose a longer one")
        if passphrase != form.get("passphrase_again"):
            raise UsageError("the two passphrases differ", hint="go back and type the same one twice")
        given = KEY_NAME, form.get("principal", "").strip(), (), lambda: passphrase
        path, signer = await asyncio.to_thread(trust.create_key, self._app, *given)
        return Done("/", f"Made the key {KEY_NAME} of {signer.principal} in {path}, and trusted it.")

    async def skip_key(self, _form: Form) -> Done:
        """Go on without a key."""
        await asyncio.to_thread(note_choice, self._app.user_dir, "without-key")
        return Done("/", "Documents can be searched without a key. To sign items, make one: kiwi keys new")

    async def trust_keys(self, form: Form) -> Done:
        """Trust the user's keys that the trust file does not have."""
        principal = check_new_principal(form.get("principal", "").strip() or self._app.principal)
        for public_key in self._untrusted():
            trust.trust_own_key(self._app, public_key, principal, ())
        return Done("/", f"The keys of {principal} on this machine are trusted.")

    async def hide(self, _form: Form) -> Done:
        """Show the steps no longer."""
        await asyncio.to_thread(note_choice, self._app.user_dir, "hidden")
        return Done("/", "The first steps are hidden.")

    pages: ClassVar = {"/": home, "/settings": settings}
    actions: ClassVar = {
        "/first-steps/key": make_key, "/first-steps/without-key": skip_key,
        "/first-steps/trust": trust_keys, "/first-steps/hide": hide,
    }  # fmt: skip

    def _untrusted(self) -> Sequence[bytes]:
        """Return this user's public keys that have no entry in the trust files."""
        found = keys.public_keys(self._app.keys_dir).values()
        return [key for key in found if sha256_hex(key) not in self._app.trust.by_key]


def note_choice(user_dir: Path, choice: Choice) -> None:
    """Remember a choice of the user, or that the first search was made.

    Raises
    ------
    StoreFull, StoreError
        When it cannot be written.
    """
    path = user_dir / CHOICES / choice
    with disk_errors(path, "write"):
        create_file(path)
