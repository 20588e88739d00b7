"""The first steps of a new user, on Home: a key, trust in it, a folder, its index, the first search.

Each step is done, or says what to do. The list is gone when all are done, or when the user hides it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from kiwi_rag.errors import ConfigError, NotFound, UsageError
from kiwi_rag.http.web.page import Done, Form, PageGroup
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.model import sha256_hex
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import check_principal
from kiwi_rag.sources.file_states import RunState
from kiwi_rag.storage.atomic import create_file
from kiwi_rag.usecases import trust

MIN_PASSPHRASE = 8
KEY_NAME = "default"
Choice = Literal["without-key", "searched", "hidden"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its title, and what was done; ``result`` is empty as long as it is to do."""

    name: str
    title: str
    result: str


class FirstSteps(PageGroup):
    """The steps, and the forms of those that are done on Home.

    Parameters
    ----------
    context
        What tells which steps are done.
    """

    def __init__(self, context: ServerContext) -> None:
        self._app = context.app
        self._choices = context.app.user_dir / "first-steps"
        forms = {"key": self.make_key, "without-key": self.skip_key, "trust": self.trust_keys, "hide": self.hide}
        self.actions = {f"/first-steps/{name}": run for name, run in forms.items()}

    def steps(self, rows: Sequence[Mapping[str, Any]]) -> Sequence[Step]:
        """Return all steps, none when nothing is left to do; `rows` are the states of the workspaces."""
        if self._was_chosen("hidden"):
            return ()
        none = "continued without a key" if self._was_chosen("without-key") else ""
        names = keys.names(self._app.keys_dir)
        trusted = ", ".join(sorted({signer.principal for signer in self._app.trust.by_key.values()}))
        roots = [row["root"] for row in rows]
        indexed = [row["root"] for row in rows if row.get("complete") or row.get("run") == RunState.PARTLY]
        steps = [
            Step("key", "A key to sign with", ", ".join(names) or none),
            Step("trust", "Trust in your key", "" if self._untrusted() else trusted or none),
            Step("folder", "A folder to search", ", ".join(map(str, roots))),
            Step("index", "Its index", ", ".join(map(str, indexed))),
            Step("search", "The first search", "done" if self._was_chosen("searched") else ""),
        ]
        if all(step.result for step in steps):
            with suppress(OSError):  # they stay away when a folder is removed later
                create_file(self._choices / "hidden")
        return () if self._was_chosen("hidden") else steps

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
        await self._choose("without-key")
        return Done("/", "Documents can be searched without a key. To sign items, make one: kiwi keys new")

    async def trust_keys(self, form: Form) -> Done:
        """Trust the user's keys that the trust file does not have."""
        principal = check_principal(form.get("principal", "").strip() or self._app.principal)
        for public_key in self._untrusted():
            trust.trust_own_key(self._app, public_key, principal, ())
        return Done("/", f"The keys of {principal} on this machine are trusted.")

    async def hide(self, _form: Form) -> Done:
        """Show the steps no longer."""
        await self._choose("hidden")
        return Done("/", "The first steps are hidden.")

    async def note_search(self) -> None:
        """Remember that something was searched."""
        with suppress(ConfigError):  # a search does not fail because of it
            await self._choose("searched")

    async def _choose(self, choice: Choice) -> None:
        """Remember a choice of the user, or that the first search was made.

        Raises
        ------
        ConfigError
            When it cannot be written.
        """
        path = self._choices / choice
        try:
            await asyncio.to_thread(create_file, path)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error

    def _was_chosen(self, choice: Choice) -> bool:
        return (self._choices / choice).exists()

    def _untrusted(self) -> Sequence[bytes]:
        """Return this user's public keys that have no entry in the trust files."""
        found, folder = [], self._app.keys_dir
        for name in keys.names(folder):
            with suppress(NotFound):  # its public half is missing
                found.append(keys.public_key(name, folder))
        return [key for key in found if sha256_hex(key) not in self._app.trust.by_key]
