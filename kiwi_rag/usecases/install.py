"""Skills where agents look for them: installed from a tier, updated, verified and removed.

A plan is made first: every skill is found, verified, passed through the gate and compared with what is on disk. Only
then are folders written, one after another, each with its entry in ``kiwi.lock``.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import semver

from kiwi_rag import render
from kiwi_rag.config import process_environment, resolve
from kiwi_rag.errors import (
    KiwiError,
    NotFound,
    Refused,
    SignatureRefused,
    SourceUnreadable,
    Unsigned,
    UsageError,
    Yanked,
)
from kiwi_rag.formats.source import SourceFile, display_path, path_of, read_item
from kiwi_rag.integrations.ai_clients import client_folder
from kiwi_rag.integrations.skill_folders import FOLDERS, LOCK_NAME, LockedSkill, SkillLock, SkillPlace, write_skill
from kiwi_rag.model import Envelope, Filters, Finding, ItemRef, ItemType
from kiwi_rag.search.state import edited_files
from kiwi_rag.search.verify import Address, parse_address
from kiwi_rag.services import Services
from kiwi_rag.signing.statement import digest_of, parse_item
from kiwi_rag.signing.trust import verify
from kiwi_rag.storage.atomic import remove_leftovers
from kiwi_rag.usecases import items
from kiwi_rag.usecases.item_files import check_names, remove_files
from kiwi_rag.usecases.items import FoundItem, Verdict
from kiwi_rag.validation.audit import AuditEvent
from kiwi_rag.validation.manager import candidate_of
from kiwi_rag.validation.signature import envelope_of

_SKILLS = Filters(ItemType.SKILL)


class LockDiffers(Refused, code="lock-differs"):
    """What would be installed is not what the lock file says."""


class NotIndexed(NotFound, code="not-indexed"):
    """A version is on disk, signed, and not in the index."""


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


def place_of(app: Services, tier: str) -> SkillPlace:
    """Return where skills are installed for the project or the user."""
    if tier == "user":
        own = {"claude": client_folder("claude", process_environment())}
        return SkillPlace(tier, Path.home(), app.user_dir / LOCK_NAME, own, app.user_dir / ItemType.SKILL.folder)
    base = app.root(tier).parent
    return SkillPlace(tier, base, base / LOCK_NAME, sources=app.root(tier) / ItemType.SKILL.folder)


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
            found = await (_find_locked(self.app, self.place, locked) if locked else _find_named(self.app, address))
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
            newest = await _newest(self.app, locked)
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
        after = _entry(found, [*(before.clients if before else ()), *clients] or ["agents"])
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
        known = [_signers(self.app, one) for one in self.place.envelopes(found.signed.ref.item_id.rpartition("/")[2])]
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


def _signers(app: Services, envelope: Envelope) -> Mapping[str, str]:
    """Return key ids and principals of those who signed an envelope, whether or not they still may."""
    try:
        return {one.key_id: one.principal for one in app.trust.signers_of(envelope)}
    except SignatureRefused:
        return {"": "a key that is not trusted"}


def _tiers(app: Services) -> Sequence[str]:
    return app.source_names("all" if app.registry_connection.exists else "local")


async def _find_named(app: Services, address: Address) -> FoundItem:
    """Return the skill at an address; a yanked one only if the address has its version."""
    version, tier = (f"@{part}" if part else "" for part in (address.version, address.tier))
    try:
        found = await items.find(app, f"skill:{address.item_id}{version}{tier}", _tiers(app))
    except Yanked as error:
        raise Yanked(error.message, hint=error.hint.replace("kiwi get", "kiwi install")) from error
    except NotFound as error:
        raise type(error)(error.message, hint=await _near(app, address) or error.hint) from error
    if (found.state.yanked or found.stored.yanked_at) and not address.version:
        ref = found.signed.ref
        raise Yanked(f"{ref} was yanked", hint=f"to install it nevertheless: kiwi install {ref.item_id}@{ref.version}")
    return found


async def _near(app: Services, address: Address) -> str:
    """Return the command that makes a skill found: by its full id, or after its file is indexed; empty if none does."""
    tier = _tier_with_file(app, ItemRef(ItemType.SKILL, address.item_id, address.version))
    if tier and address.tier in (None, tier):
        return _index_command(tier)
    named = {
        item.ref.item_id
        for tier in await items.list_items(app, "all" if app.registry_connection.exists else "local", _SKILLS)
        for item in tier.items
        if item.ref.item_id.endswith(f"/{address.item_id}")
    }
    return f"kiwi install {named.pop()}" if len(named) == 1 else ""


async def _find_locked(app: Services, place: SkillPlace, locked: LockedSkill) -> FoundItem:
    """Return exactly the locked version, from the first tier that has it as it is locked."""
    problems: list[KiwiError] = []
    for tier in _tiers(app):
        try:
            found = await items.find(app, f"{locked.ref}@{tier}", ())
        except NotFound:
            continue
        except Refused as error:
            raise type(error)(f"{locked.ref}: {error.message}", hint=error.hint) from error
        except KiwiError as error:  # this tier may have it
            problems.append(error)
            continue
        entry = _entry(found, locked.clients)
        other = [name for name in ("statement", "key_id", "registry") if getattr(entry, name) != getattr(locked, name)]
        if not other:
            return found
        message = f"{LOCK_NAME} has {locked.ref} with another {other[0]} than the {tier} tier"
        problems.insert(0, LockDiffers(message, hint=f"if that is right: kiwi install {locked.id}@{locked.version}"))
    missing = f"no tier has {locked.ref}, which {LOCK_NAME} names"
    raise problems[0] if problems else await _missing(app, place, missing, locked)


async def _missing(app: Services, place: SkillPlace, message: str, locked: LockedSkill) -> NotFound:
    """Return the error for a locked version that no tier has: it may be a file that is not indexed, or be replaced."""
    if tier := _tier_with_file(app, locked.ref):
        return NotIndexed(f"{message}; its file in the {tier} tier is not indexed", hint=_index_command(tier))
    if (await _newest(app, locked)).state == "outdated":
        return NotFound(message, hint=f"kiwi update --force {locked.name}{place.option}")
    return NotFound(message, hint=f"kiwi search {locked.name!r} --source all")


def _tier_with_file(app: Services, ref: ItemRef) -> str:
    """Return the first local tier whose file of an item has a signature of this version, or of any without one."""
    for name in app.source_names("local"):
        path = path_of(app.root(name), ref)
        found = read_item(SourceFile(path, ref.item_type, ref.item_id), app.root(name))
        with suppress(SignatureRefused):
            if not isinstance(found, Finding):
                signed = parse_item(envelope_of(found).payload).ref
                if ref.version in (None, signed.version):
                    return name
    return ""


def _index_command(tier: str) -> str:
    return f"kiwi index{' --tier user' if tier == 'user' else ''}"


def _entry(found: FoundItem, clients: Sequence[str]) -> LockedSkill:
    signed, signer = found.signed, found.signer
    about = signed.ref.item_id, signed.ref.version or "", found.stored.digest, signer.key_id, signer.principal
    return LockedSkill(*about, signed.registry, tuple(name for name in FOLDERS if name in clients))


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest version of an installed skill, and whether that is ``current``, ``outdated``, ``yanked``, ``unknown``.

    ``problem`` says why it is yanked or unknown.
    """

    locked: LockedSkill
    state: str
    found: FoundItem | None = None
    problem: KiwiError | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        about = {"id": self.locked.id, "installed": self.locked.version, "state": self.state}
        found = self.found
        newest = {"newest": found and found.signed.ref.version, "tier": found and found.tier.name}
        signer = {"signer": found and found.signer.principal, "installed_signer": self.locked.principal}
        return {**about, **newest, **signer, "problem": self.problem.message if self.problem else ""}


async def list_newest(app: Services, place: SkillPlace) -> list[Newest]:
    """Return the newest version of each installed skill."""
    return [await _newest(app, locked) for locked in place.read_lock().skills]


async def _newest(app: Services, locked: LockedSkill) -> Newest:
    """Return the newest version that a tier has and that was not yanked.

    A tier that cannot be read may have a newer one: then it is unknown, unless another tier has a newer one.
    """
    copies = (await items.find_copies(app, ItemRef(ItemType.SKILL, locked.id))).values()
    problems = [one for one in copies if isinstance(one, KiwiError) and not isinstance(one, Yanked)]
    good = [one for one in copies if isinstance(one, FoundItem) and not one.state.yanked]
    newest = max(good, key=_version, default=None)
    installed = semver.Version.parse(locked.version)
    if newest and _version(newest) > installed:
        return Newest(locked, "outdated", newest)
    if unindexed := next((one for one in good if semver.Version.parse(one.state.newer or "0.0.0") > installed), None):
        problem = NotIndexed(unindexed.state.changed.rpartition(": ")[0], hint=_index_command(unindexed.tier.name))
        return Newest(locked, "unknown", newest, problem)
    if problems:
        return Newest(locked, "unknown", newest, problems[0])
    if await asyncio.to_thread(app.yanked, [locked.statement]):
        hint = f"kiwi uninstall {locked.name}"
        return Newest(locked, "yanked", newest, Yanked(f"{locked.ref} was yanked, and no version is newer", hint=hint))
    if newest is None:
        missing = NotFound(f"no tier has {locked.id}", hint=f"kiwi search {locked.name!r} --source all")
        return Newest(locked, "unknown", problem=missing)
    return Newest(locked, "current", newest)


def _version(found: FoundItem) -> semver.Version:
    return semver.Version.parse(found.signed.ref.version or "")


async def verify_installed(app: Services, wanted: Sequence[Address], source: str) -> list[Verdict]:
    """Verify installed skills again, all or those at `wanted`: their signature, their files, and the lock file.

    Skills that the lock file does not list, and agents find nevertheless, are among the verdicts.
    """
    keys = {ref.key for address in wanted for ref in address.refs()}
    verdicts = []
    for place in [place_of(app, tier) for tier in app.source_names(source) if tier != "registry"]:
        lock = place.read_lock()
        for locked in lock.skills:
            if not wanted or locked.ref.key in keys:
                verdicts += await _verdicts(app, place, locked)
        for client, name in place.unlisted(lock).values():
            verdicts.append(await asyncio.to_thread(_judge_unlisted, app, place, client, name))
    return [one for one in verdicts if not wanted or one.ref.key in keys]


async def _remedy(app: Services, place: SkillPlace, locked: LockedSkill) -> str:
    """Return the command that puts back an edited skill: what was signed, or the newest version where that is gone."""
    try:
        await _find_locked(app, place, locked)
    except NotFound as error:
        return f"{error.message}: {error.hint}"
    except KiwiError:
        pass  # the installation says what it is
    return f"put back what was signed: kiwi install --force{place.option}"


async def _verdicts(app: Services, place: SkillPlace, locked: LockedSkill) -> list[Verdict]:
    verdicts = []
    for client in locked.clients:
        try:
            signer, state, reason = await asyncio.to_thread(_judge, app, place, locked, client)
            if state in ("changed", "missing"):
                reason += f"; {await _remedy(app, place, locked)}"
        except Refused as error:
            signer, state, reason = "", "refused", f"{error.code}: {error.message}"
        except KiwiError as error:
            signer, state, reason = "", "changed", f"{error.message}; {error.hint}"
        verdicts.append(Verdict(place.shown(client), locked.ref, state, signer, reason and f"  {reason}"))
    return verdicts


def _judge(app: Services, place: SkillPlace, locked: LockedSkill, client: str) -> tuple[str, str, str]:
    """Return the signer, the state and a reason of one installed skill; raise where it does not verify."""
    folder = place.folder(client, locked.name)
    if not folder.exists():
        return "", "missing", f"{FOLDERS[client]}/{locked.name} is not there"
    found = place.read(folder, locked.id)
    if isinstance(found, Finding):
        return "", "changed", found.message
    verified = verify(envelope_of(found), app.trust)
    signed, principal = verified.statement, verified.signer.principal
    if signed.registry != app.settings.registry_name:
        raise Refused(f"signed for registry {signed.registry!r}, and registry_name is another one here")
    if (signed.ref, digest_of(verified.envelope)) != (locked.ref, locked.statement):
        return principal, "changed", f"it holds {signed.ref}, and not what {LOCK_NAME} says"
    if edited := edited_files(found, signed):
        return principal, "changed", f"{FOLDERS[client]}/{locked.name}/{min(edited)} was edited since it was installed"
    if app.yanked([locked.statement]):
        return principal, "yanked", f"kiwi show {locked.ref}@registry says why"
    return principal, "verified", ""


def _judge_unlisted(app: Services, place: SkillPlace, client: str, name: str) -> Verdict:
    """Return the verdict on a skill that the lock file does not list, by the signature in its folder."""
    ref, signer, state, way_out = ItemRef(ItemType.SKILL, name), "", "unlisted", "remove its folder"
    try:
        folder = place.folder(client, name)
        found = place.read(folder, name)
        if isinstance(found, Finding):
            raise SourceUnreadable(found.message)
        verified = verify(envelope_of(found), app.trust)
        ref, signer = verified.statement.ref, verified.signer.principal
        way_out = f"to list it: kiwi install {ref.item_id} --client {client}{place.option}"
        if ref.item_id.rpartition("/")[2] != name or edited_files(found, verified.statement):
            state, way_out = "changed", f"its files are not what {signer} signed; remove its folder"
    except Unsigned:
        path, tier = shlex.quote(display_path(folder)), " --tier user" * (place.tier == "user")
        way_out = f"nobody signed it; remove its folder, or make it an item: kiwi import {path}{tier}"
    except KiwiError as error:
        state = "refused" if isinstance(error, Refused) else state
        way_out = f"{error.message}; remove its folder"
    return Verdict(place.shown(client), ref, state, signer, f"  {LOCK_NAME} does not list it; {way_out}")
