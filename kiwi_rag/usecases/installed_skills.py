"""The skills that are installed: which versions tiers have of them, whether newer ones exist, and verifying them."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import semver

from kiwi_rag.config import process_environment
from kiwi_rag.errors import KiwiError, NotFound, Refused, SignatureRefused, SourceUnreadable, Unsigned, Yanked
from kiwi_rag.formats.source import SourceFile, display_path, path_of, read_item
from kiwi_rag.integrations.ai_clients import client_folder
from kiwi_rag.integrations.skill_folders import FOLDERS, LOCK_NAME, LockedSkill, SkillPlace
from kiwi_rag.model import Envelope, Filters, Finding, ItemRef, ItemType
from kiwi_rag.search.state import edited_files
from kiwi_rag.search.verify import Address
from kiwi_rag.services import Services
from kiwi_rag.signing.statement import digest_of, parse_item
from kiwi_rag.signing.trust import verify
from kiwi_rag.usecases import items
from kiwi_rag.usecases.items import FoundItem, Verdict
from kiwi_rag.validation.signature import envelope_of

_SKILLS = Filters(ItemType.SKILL)


class LockDiffers(Refused, code="lock-differs"):
    """What would be installed is not what the lock file says."""


class NotIndexed(NotFound, code="not-indexed"):
    """A version is on disk, signed, and not in the index."""


def place_of(app: Services, tier: str) -> SkillPlace:
    """Return where skills are installed for the project or the user."""
    if tier == "user":
        own = {"claude": client_folder("claude", process_environment())}
        return SkillPlace(tier, Path.home(), app.user_dir / LOCK_NAME, own, app.user_dir / ItemType.SKILL.folder)
    base = app.root(tier).parent
    return SkillPlace(tier, base, base / LOCK_NAME, sources=app.root(tier) / ItemType.SKILL.folder)


def signers_of(app: Services, envelope: Envelope) -> Mapping[str, str]:
    """Return key ids and principals of those who signed an envelope, whether or not they still may."""
    try:
        return {one.key_id: one.principal for one in app.trust.signers_of(envelope)}
    except SignatureRefused:
        return {"": "a key that is not trusted"}


def _tiers(app: Services) -> Sequence[str]:
    return app.source_names("all" if app.registry_connection.exists else "local")


async def find_named(app: Services, address: Address) -> FoundItem:
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


async def find_locked(app: Services, place: SkillPlace, locked: LockedSkill) -> FoundItem:
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
        entry = entry_of(found, locked.clients)
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
    if (await newest_of(app, locked)).state == "outdated":
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
    return [await newest_of(app, locked) for locked in place.read_lock().skills]


async def newest_of(app: Services, locked: LockedSkill) -> Newest:
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
        await find_locked(app, place, locked)
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


def entry_of(found: FoundItem, clients: Sequence[str]) -> LockedSkill:
    signed, signer = found.signed, found.signer
    about = signed.ref.item_id, signed.ref.version or "", found.stored.digest, signer.key_id, signer.principal
    return LockedSkill(*about, signed.registry, tuple(name for name in FOLDERS if name in clients))
