"""Skills where agents look for them: installed from a tier, updated, verified and removed.

A plan is made first: every skill is found, verified, passed through the gate and compared with what is on disk. Only
then are folders written, one after another, each with its entry in ``kiwi.lock``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kiwi_rag import render
from kiwi_rag.config import process_environment, resolve
from kiwi_rag.errors import UsageError
from kiwi_rag.formats.source import SourceFile
from kiwi_rag.integrations.skill_folders import LOCK_NAME, LockedSkill, SkillLock, SkillPlace, write_skill
from kiwi_rag.model import Envelope, ItemType
from kiwi_rag.search.verify import Address, parse_address
from kiwi_rag.services import Services
from kiwi_rag.storage.atomic import remove_leftovers
from kiwi_rag.usecases.installed_skills import LockDiffers, entry_of, find_locked, find_named, newest_of, signers_of
from kiwi_rag.usecases.item_files import check_names, remove_files
from kiwi_rag.usecases.items import FoundItem
from kiwi_rag.validation.audit import AuditEvent
from kiwi_rag.validation.manager import candidate_of


@dataclass(frozen=True, slots=True)
class PlannedSkill:
    """A skill that passed all checks, its lock entries before and after, and the folders that are to be written.

    ``other_signer`` is who signed the installed version, if that is another principal than who signed this one.
    """

    found: FoundItem
    before: LockedSkill | None
    after: LockedSkill
    folders: Sequence[Path]
    other_signer: str = ""

    @property
    def action(self) -> str:
        """What is done: ``installed``, ``updated`` or ``unchanged``."""
        if self.before and self.before.version != self.after.version:
            return "updated"
        return "installed" if self.folders or self.before != self.after else "unchanged"

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        about = render.attributes(self.after, "id", "version", "statement", "key_id", "clients")
        about |= {"signer": self.found.signer.principal, "from": self.found.tier.name, "action": self.action}
        return {**about, "was": self.before and self.before.version, "folders": list(map(str, self.folders))}


@dataclass(frozen=True, slots=True)
class SkillInstaller:
    """Installs, updates and removes the skills of a place; with ``force`` it replaces folders that are not as signed.

    The methods raise a `KiwiError`, the first reason why a skill cannot be installed, before anything is written.
    """

    app: Services
    place: SkillPlace
    force: bool = False

    async def plan_install(
        self, wanted: Sequence[str], clients: Sequence[str], *, frozen: bool = False
    ) -> list[PlannedSkill]:
        """Return what installing skills changes, those of the lock file where none is named; nothing is written.

        Parameters
        ----------
        clients
            The clients to install for, beside those in the lock file; ``agents`` for a skill that it does not have.
        frozen
            Install nothing but what the lock file says.
        """
        lock, plans = self.place.read_lock(), list[PlannedSkill]()
        for text in wanted or [one.id for one in lock.skills]:
            address = _address_of(lock, text)
            locked = lock.require(address.item_id) if frozen or not wanted else None
            found = await (find_locked(self.app, self.place, locked) if locked else find_named(self.app, address))
            plans.append(plan := await self._plan(lock, found, clients))
            if frozen and (plan.after != locked or address.version not in (None, plan.after.version)):
                message = f"{LOCK_NAME} has {found.signed.ref}, and --frozen installs nothing else, for no other client"
                raise LockDiffers(message, hint="leave out --frozen")
            lock = lock.with_skill(plan.after)
        return plans

    async def plan_update(self, names: Sequence[str]) -> list[PlannedSkill]:
        """Return what updating installed skills, all or those of `names`, changes; nothing is written."""
        lock, plans = self.place.read_lock(), []
        for locked in [lock.require(name) for name in names] or lock.skills:
            newest = await newest_of(self.app, locked)
            if newest.problem:
                raise newest.problem
            if newest.state == "outdated" and newest.found:
                plans.append(await self._plan(lock, newest.found, ()))
        return plans

    async def _plan(self, lock: SkillLock, found: FoundItem, clients: Sequence[str]) -> PlannedSkill:
        """Return a skill as it is to be installed, once the gate and what is on disk permit it."""
        signed, tier = found.signed, self.app.local(self.place.tier)
        before, same_name = lock.get(signed.ref.item_id), lock.get(signed.ref.item_id.rpartition("/")[2])
        if same_name and same_name != before:
            hint = f"kiwi uninstall {same_name.name}{self.place.option}"
            raise UsageError(f"{same_name.ref} is installed, and has the same name as {signed.ref}", hint=hint)
        after = entry_of(found, [*(before.clients if before else ()), *clients] or ["agents"])
        if before and before.key_id == after.key_id:
            after = replace(after, principal=before.principal)  # a teammate may know this key by another name
        check_names(signed.ref, signed.digests)
        candidate = candidate_of(found.stored.envelope, found.stored.files)
        await asyncio.to_thread(self.app.gate.check, candidate, tier.policy, {}, tier.audit)
        return PlannedSkill(found, before, after, self._to_write(found, after), self._other_signer(found, before))

    def _to_write(self, found: FoundItem, skill: LockedSkill) -> list[Path]:
        """Return the folders of a skill that do not hold it yet; raise where one must not be replaced."""
        folders = [self.place.folder(client, skill.name) for client in skill.clients]
        return [folder for folder in folders if self._check(folder, skill.id) != found.stored.envelope]

    def _other_signer(self, found: FoundItem, before: LockedSkill | None) -> str:
        """Return who signed what is installed or locked, if that is another principal than who signed `found`.

        The lock file comes with a repository. So what it says is asked about, too, but answers nothing.
        """
        known = [signers_of(self.app, one) for one in self.place.envelopes(found.signed.ref.item_id.rpartition("/")[2])]
        known += [{before.key_id: before.principal}] if before else []
        own = found.signer
        others = [one for one in known if own.key_id not in one and own.principal not in one.values()]
        return ", ".join(others[0].values()) if others else ""

    def _check(self, folder: Path, item_id: str) -> Envelope | None:
        """Return the envelope of the skill in a folder; with ``force``, None where `SkillPlace.check` raises."""
        try:
            return self.place.check(folder, item_id)
        except UsageError:
            if self.force:
                return None
            raise

    async def apply(self, plans: Sequence[PlannedSkill]) -> None:
        """Write the folders of the plans, and an entry of the lock file after each skill."""
        async with self.app.local(self.place.tier).writing():
            lock = self.place.read_lock()
            self._check_again(plans, lock)
            for plan in plans:
                stored = plan.found.stored
                for folder in (folders := self._to_write(plan.found, plan.after)):
                    remove_leftovers(folder)
                    write_skill(folder, stored.envelope, stored.files)
                if folders:
                    self._record("installed", plan.after, folders)
                if plan.after != plan.before:
                    lock = lock.with_skill(plan.after)
                    self.place.write_lock(lock)

    def _check_again(self, plans: Sequence[PlannedSkill], lock: SkillLock) -> None:
        """Raise where a plan no longer holds: another process, or a person who takes time to answer, came between."""
        for plan in plans:
            self._to_write(plan.found, plan.after)
            other = self._other_signer(plan.found, plan.before)
            if lock.get(plan.after.name) not in (plan.before, plan.after) or other not in ("", plan.other_signer):
                raise UsageError(f"another process changed {plan.after.name} meanwhile", hint="run this command again")
            lock = lock.with_skill(plan.after)

    async def uninstall(self, names: Sequence[str]) -> list[LockedSkill]:
        """Remove installed skills, and return their entries of the lock file."""
        async with self.app.local(self.place.tier).writing():
            lock = self.place.read_lock()
            removed = [lock.require(name) for name in dict.fromkeys(names)]
            folders = {one.id: [self.place.folder(client, one.name) for client in one.clients] for one in removed}
            for one in removed:
                for folder in folders[one.id]:
                    self._check(folder, one.id)
            for one in removed:
                for folder in folders[one.id]:
                    remove_leftovers(folder)
                    remove_files(SourceFile(folder / one.ref.main_file, ItemType.SKILL, one.name))
                self._record("uninstalled", one, folders[one.id])
                lock = lock.without(one)
                self.place.write_lock(lock)
        return removed

    def _record(self, event: str, skill: LockedSkill, folders: Sequence[Path]) -> None:
        details = {"folders": list(map(str, folders))}
        self.app.local(self.place.tier).audit.append(
            AuditEvent(event, str(skill.ref), skill.statement, skill.key_id, details)
        )


def _address_of(lock: SkillLock, text: str) -> Address:
    """Return the address of a skill, whose id may be a name that the lock file completes.

    The lock file comes with a repository, so it does not say so against the namespace that the user has set.
    """
    address = parse_address(text)
    if address.item_type not in (None, ItemType.SKILL):
        raise UsageError(f"{text} is no skill, and only skills are installed", hint=f"kiwi get {text}")
    item_id, own = lock.complete(address.item_id), resolve(process_environment()).settings.namespace
    if own and address.item_id != item_id != f"{own}/{address.item_id}":
        message = f"{address.item_id} is {item_id} by {LOCK_NAME}, but your own namespace is {own}"
        raise UsageError(message, hint=f"name the whole id: kiwi install {own}/{address.item_id}")
    return replace(address, item_type=ItemType.SKILL, item_id=item_id)
