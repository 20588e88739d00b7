"""Items by address: find, list, verify, copy to a local tier and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kiwi_rag import render
from kiwi_rag.collection import Collection
from kiwi_rag.errors import KiwiError, NotFound, Refused, RegistryContradicted, StoreError, UsageError, Withheld, Yanked
from kiwi_rag.formats.source import SourceFile, path_of
from kiwi_rag.model import Admission, Filters, Finding, ItemRef, ItemState, StoredItem, VersionConflict, sha256_hex
from kiwi_rag.registry.calls import time_limit
from kiwi_rag.search.state import find_version_conflicts, read_state, read_states
from kiwi_rag.search.verify import Address, VerifiedItem, only_one, parse_address, require_files, verify_stored
from kiwi_rag.services import Services
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.telemetry import span
from kiwi_rag.usecases import item_files
from kiwi_rag.usecases.trust import WAIT_SECONDS
from kiwi_rag.validation.audit import AuditEvent
from kiwi_rag.validation.manager import candidate_of

if TYPE_CHECKING:
    from kiwi_rag.monitor.monitor import ConsistencyCheck


@dataclass(frozen=True, slots=True)
class FoundItem(VerifiedItem):
    """A verified item, with its path, its tier, and whether its file changed or its version was yanked."""

    tier: Collection
    state: ItemState


def permission_warnings(app: Services, found: FoundItem) -> list[Finding]:
    """Return what the scripts of an item use without declaring it, as the gate of today finds it."""
    candidate = replace(candidate_of(found.stored.envelope, found.stored.files), path=found.stored.path)
    findings = app.gate.inspect(candidate).findings
    return [finding for finding in findings if finding.code.startswith("permissions.")]


def state_warnings(found: FoundItem) -> list[str]:
    """Return what happened to an item since it was signed: that its version was yanked, that its file changed."""
    stored, lines = found.stored, []
    if stored.yanked_at:
        reason = f": {stored.yank_reason}" if stored.yank_reason else ""
        lines.append(f"{stored.ref} was yanked on {stored.yanked_at:%Y-%m-%d}{reason}")
    elif found.state.yanked:
        lines.append(f"{stored.ref} was yanked; kiwi show {stored.ref}@registry says why")
    if found.state.changed:
        lines.append(f"{found.state.changed}; this is the text that was signed")
    return lines


async def find(app: Services, text: str, names: Sequence[str], hint: str = "") -> FoundItem:
    """Return the item at an address, verified, from the tier in the address, else the first of `names` that has it.

    Raises
    ------
    NotFound
        When no tier has it, with `hint`; `Yanked` when its version was yanked.
    UsageError
        When the address is malformed, or matches several items.
    Refused
        When it does not verify.
    KiwiError
        The error of a tier that could not be read and may have the item.
    """
    address = parse_address(text)
    tiers, problems = [address.tier] if address.tier else names, list[KiwiError]()
    for name in tiers:
        try:
            tier = app.tier(name)
            item = await _find_in(tier, address, app.trust)
        except (Refused, UsageError):
            raise
        except Yanked as error:
            problems.append(error)
        except NotFound:
            continue
        except KiwiError as error:  # this tier may have it
            problems.insert(0, error)
        else:
            if item:
                (state,) = await asyncio.to_thread(read_states, [(item, tier)])
                return FoundItem(_with_path(tier, item.stored), item.signed, item.signer, tier, state)
    if problems:
        raise problems[0]
    raise NotFound(f"no item {text} in {', '.join(tiers)}", hint=hint or f"kiwi search {address.item_id!r}")


async def find_copies(app: Services, ref: ItemRef) -> Mapping[str, FoundItem | KiwiError]:
    """Return what each tier has of an item, verified, or why it cannot be shown; tiers without the item are left out.

    An embedded registry that is stopped is not started for this.
    """
    copies: dict[str, FoundItem | KiwiError] = {}
    for name in [*app.source_names("local"), *(["registry"] if app.registry_connection.exists else [])]:
        try:
            async with time_limit(min(WAIT_SECONDS, app.settings.deadline), f"the {name} tier"):
                if name == "registry":
                    app.registry_connection.require_running()
                copies[name] = await find(app, f"{ref.item_type}:{ref.item_id}@{name}", ())
        except KiwiError as error:
            if type(error) is not NotFound:  # its subclass `Yanked` says that the tier has it
                copies[name] = error
    return copies


async def _find_in(tier: Collection, address: Address, trust: TrustPolicy) -> VerifiedItem | None:
    """Return the item with an address in a tier, verified with all its files; None where there is none."""
    # With all revocations, and first: without them no item of the registry can be trusted.
    check = await tier.monitor.check(fully=True) if tier.monitor else None
    found = {ref: stored for ref in address.refs() if (stored := await get_stored(tier, ref))}
    if ref := only_one(list(found), address.item_id):
        stored = found[ref]
        remaining = check.apply_revocations(trust) if check else trust
        item = require_files(verify_stored(stored, ref, remaining, tier))
        if check:
            await check.check_consistency(stored, item.signer.key_id, newest=address.version is None)
            await asyncio.to_thread(check.save)
        return item
    if check:
        await _check_absent(tier, check, address)
    return None


async def _check_absent(tier: Collection, check: ConsistencyCheck, address: Address) -> None:
    """Raise an error if a registry has to serve an item at an address: `Withheld` where it names one."""
    for ref in address.refs():
        await check.check_missing(ref)
        if not (named := await check.monitor.find_named(ref)):
            continue
        if await get_stored(tier, ref):  # published since the first request
            raise Refused(f"{ref} was published a moment ago", hint="run the command again")
        message = f"{ref} is withheld: the registry {named}, and does not return it"
        raise Withheld(message, hint="ask the registry's operator why; what it lists: kiwi list --source registry")


async def get_stored(tier: Collection, ref: ItemRef) -> StoredItem | None:
    """Return what a tier has of an item, not verified; of a registry also a yanked version that `ref` names."""
    with span("kiwi.store", tier=tier.name, step="get"):
        stored = await tier.store.get(ref)
    return stored or (await tier.monitor.get_yanked(ref) if tier.monitor else None)


async def copy(app: Services, found: FoundItem, target: str, *, overwrite: bool) -> tuple[Admission, Path]:
    """Write an item's file and signature to a local tier, and index it; return its admission and its file.

    Raises
    ------
    Rejected
        When the tier does not admit it.
    UsageError
        When its file exists with other content and `overwrite` is not set.
    """
    to, candidate = app.local(target), candidate_of(found.stored.envelope, found.stored.files)
    async with to.writing():
        admission, placed = await item_files.add_item(app, to, candidate, overwrite=overwrite)
    return admission, placed.path


@dataclass(frozen=True, slots=True)
class TierItems:
    """The items of a tier, and what cannot be listed."""

    tier: str
    items: tuple[StoredItem, ...]
    problems: tuple[str, ...]


async def list_items(app: Services, source: str, filters: Filters) -> list[TierItems]:
    """Return the indexed items of each tier that `source` names; they are not verified."""
    return [await _list_tier(app, name, filters) for name in app.source_names(source)]


async def _list_tier(app: Services, name: str, filters: Filters) -> TierItems:
    try:
        tier = app.tier(name)
        if tier.monitor:
            await tier.monitor.check()
        stored = await tier.store.list(filters)
    except KiwiError as error:
        return TierItems(name, (), (error.message,))
    problems = tuple(f"{item.ref} is not listed: {item.problem}" for item in stored if item.problem)
    return TierItems(name, tuple(_with_path(tier, item) for item in stored if not item.problem), problems)


def _with_path(tier: Collection, stored: StoredItem) -> StoredItem:
    """Return a stored item with the path that its file has in a local tier."""
    return replace(stored, path=str(path_of(tier.root, stored.ref))) if tier.root else stored


async def list_verified(
    app: Services, filters: Filters, begin: int, count: int
) -> tuple[list[tuple[str, VerifiedItem]], bool]:
    """Return those of `count` items of the local tiers from `begin` on that verify, and whether there are more."""
    tiers = [app.local(name) for name in app.source_names("local")]
    items = [(tier, stored) for tier in tiers for stored in await tier.store.list(filters)]
    trust = app.trust

    def page() -> list[tuple[str, VerifiedItem]]:
        found = []
        for tier, stored in items[begin : begin + count]:
            with suppress(KiwiError):
                found.append((tier.name, verify_stored(stored, stored.ref, trust, tier)))
        return found

    return await asyncio.to_thread(page), begin + count < len(items)


async def list_documents(workspace: Collection, filters: Filters) -> tuple[list[dict[str, Any]], int]:
    """Return a row for each document that verifies, JSON-ready, and how many documents do not.

    ``sha256`` is the digest of the file after redaction, ``passages_sha256`` that of its passages' digests in order:
    two indexes with the same rows have the same content.
    """
    trust = workspace.trust()
    rows: list[dict[str, Any]] = []
    refused = 0
    for stored in await workspace.store.list(filters):
        try:
            signed = verify_stored(stored, stored.ref, trust, workspace).signed
        except Refused:
            refused += 1
            continue
        passages = sha256_hex("".join(signed.passages).encode())
        facts = {name: signed.metadata.get(name, "") for name in ("file_type", "title", "service", "domain")}
        counted = {"passages": len(signed.passages), "passages_sha256": passages}
        rows.append({"path": signed.path, **facts, "sha256": signed.digests[signed.path], **counted})
    return rows, refused


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of verifying an indexed item again: verified, changed, yanked, refused or conflict.

    An installed skill may also be missing or unlisted.
    """

    tier: str
    ref: ItemRef
    state: str = "verified"
    signer: str = ""
    reason: str = ""
    conflict: VersionConflict | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        row = {"tier": self.tier, "ref": str(self.ref), "state": self.state, "signer": self.signer}
        conflict = {"conflict": self.conflict.as_dict()} if self.conflict else {}
        return {**row, "reason": self.reason, **conflict}


async def verify(app: Services, wanted: Sequence[Address], source: str) -> list[Verdict]:
    """Verify indexed items again, all or those at `wanted`, and compare them with their files and between tiers."""
    keys = {ref.key for address in wanted for ref in address.refs()}
    verdicts: list[Verdict] = []
    compared = []
    for name in app.source_names(source):
        tier = app.tier(name)
        check = await tier.monitor.check() if tier.monitor else None
        held = await tier.store.list(Filters())
        yanked = await asyncio.to_thread(tier.yanked, [stored.digest for stored in held])
        chosen = [stored for stored in held if not wanted or stored.ref.key in keys]
        trust = tier.trust()
        verdicts += [await _verify_again(tier, trust, stored, check, yanked) for stored in chosen]
        compared += [(tier, chosen)] if tier.root else []
        if check:
            verdicts += [] if wanted else await _find_withheld(tier, held, check)
            await asyncio.to_thread(check.save)
    registry = app.registry() if "registry" in app.source_names(source) else None
    conflicts = await find_version_conflicts(compared, registry)
    return [_with_conflict(verdict, conflicts) for verdict in verdicts]


async def _verify_again(
    tier: Collection, trust: TrustPolicy, stored: StoredItem, check: ConsistencyCheck | None,
    yanked: Container[str],
) -> Verdict:  # fmt: skip
    try:
        # The files of a local tier are verified, too; a registry's are when they are used.
        whole = await tier.store.get(stored.ref) if tier.root else None
        item = verify_stored(whole or stored, stored.ref, trust, tier)
        if whole:
            require_files(item)
        if check:
            await check.check_consistency(stored, item.signer.key_id, newest=True)
    except Refused as error:
        reason = f"{error.code}: {error.message}"
        try:
            tier.audit.append(AuditEvent("verify-refused", str(stored.ref), stored.digest, "", {"reason": error.code}))
        except StoreError as unwritten:
            reason = f"{reason}; the audit log has no record of it: {unwritten.message}"
        return Verdict(tier.name, stored.ref, "refused", reason=reason)
    state = await asyncio.to_thread(read_state, item, tier, yanked)
    reason = "".join(f"  {line}" for line in render.state_lines(stored.ref, state))
    name = state.labels[0] if state.labels else "verified"
    return Verdict(tier.name, stored.ref, name, item.signer.principal, reason)


async def _find_withheld(tier: Collection, held: Sequence[StoredItem], check: ConsistencyCheck) -> list[Verdict]:
    """Return a refusal for each item in the pinned state that the registry no longer has, without a yank."""
    there = {stored.ref.key for stored in held}
    found = []
    for ref in check.monitor.pinned.items():
        try:
            if ref.key not in there:
                await check.check_missing(ref)
        except RegistryContradicted as error:
            found.append(Verdict(tier.name, ref, "refused", reason=f"{error.code}: {error.message}"))
        except (Yanked, Refused):
            pass  # the registry reports that it was yanked
    return found


def _with_conflict(verdict: Verdict, conflicts: Sequence[VersionConflict]) -> Verdict:
    """Return the verdict conflict for a version with other content in another tier, unless the item is refused."""
    for conflict in conflicts:
        if verdict.ref == conflict.ref and verdict.tier in conflict.digests and verdict.state != "refused":
            reason = f"  {conflict}: {conflict.hint}"
            verdict = replace(verdict, state="conflict", reason=reason, conflict=conflict)
    return verdict


async def find_local(app: Services, text: str, tier: str) -> tuple[Collection, ItemRef, StoredItem, Path]:
    """Return the tier, the reference, the index entry and the file of the item at an address; it is not verified.

    The tier that the address names goes before `tier`.

    Raises
    ------
    NotFound
        When there is none.
    UsageError
        When the address names the registry, or matches several items.
    """
    address = parse_address(text)
    tier = address.tier or tier
    if tier == "registry":
        raise UsageError(f"{text} is in the registry, which keeps what was published", hint=f"kiwi yank {text}")
    target = app.local(tier)
    found = {ref: stored for ref in address.refs() if (stored := await target.store.get(ref, ()))}
    ref = only_one(list(found), text)
    if ref is None:
        raise NotFound(f"the {tier} tier has no item {text!r}", hint=f"kiwi list --source {tier}")
    # The path is derived from the id, because a damaged index could name any of the user's files.
    return target, ref, found[ref], path_of(app.root(tier), found[ref].ref)


async def delete(tier: Collection, ref: ItemRef, stored: StoredItem, path: Path) -> None:
    """Delete an item's file, signature and index entry, as `find_local` returned them.

    The index is first: a full disk, which it meets, leaves the file there.
    """
    source = SourceFile(path, ref.item_type, ref.item_id)
    item_files.check_removable(source)
    async with tier.writing():
        await tier.store.delete(ref)
        item_files.remove_files(source)
        if tier.states:
            tier.states.delete(str(path))
        tier.audit.append(AuditEvent("deleted", str(ref), stored.digest, "", {}))
