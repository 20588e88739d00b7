"""Why an item is trusted, or not: each step of the gate and of verification in words, with what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from kiwi_rag.collection import RANKS, Collection
from kiwi_rag.errors import KiwiError, Refused, RegistryContradicted
from kiwi_rag.formats.bump import version_order
from kiwi_rag.formats.source import ItemCandidate, SourceFile, display_path, path_of, read_item
from kiwi_rag.model import Finding, ItemRef, StoredItem, has_errors
from kiwi_rag.monitor.pinned_state import pinned_states
from kiwi_rag.search.state import read_state
from kiwi_rag.search.verify import VerifiedItem, only_one, parse_address, require_files, verify_stored
from kiwi_rag.services import Services
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer
from kiwi_rag.usecases import items
from kiwi_rag.usecases.history import source_at
from kiwi_rag.usecases.item_files import find_file
from kiwi_rag.usecases.project_trust import project_trust_problem
from kiwi_rag.validation.admission import Policy
from kiwi_rag.validation.manager import ValidationManager, candidate_of

# The steps of the gate by number, with the codes of their findings, and what is said where there is none.
_STEPS = (
    ("Bounds", "bounds source structure.files structure.file-name structure.executable", "sizes and characters"),
    ("Form", "form", "parsed strictly, not executed"),
    ("Structure", "structure", "required parts are there; the name is that of the file"),
    ("Metadata", "metadata", "version, description and lengths"),
    ("Permissions", "permissions", "known ones; scripts declare what they use"),
    ("Secrets", "secrets", "no credential was found"),
    ("Hidden instructions", "hidden", "nothing is hidden from a reader of the rendered page"),
    ("Signature", "signature", "{signature}"),
    ("Authority", "signature.unknown-signer signature.wrong-key", "{authority}"),
    ("Time", "time", "signed at {time}"),
    ("Version", "version", "{version}"),
)
_NUMBER = {code: number for number, (_, codes, _) in enumerate(_STEPS) for code in codes.split()}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked; ``step`` is its number in the gate.

    ``ok`` is None where it could not be checked, or where there is nothing to decide. An item is shown nevertheless,
    with what is wrong, where ``refuses`` is not set.
    """

    name: str
    ok: bool | None
    says: str
    hint: str = ""
    step: int | None = None
    refuses: bool = True


@dataclass(frozen=True, slots=True)
class TrustExplanation:
    """Why an item is trusted, or not: ``what`` was examined, and the checks in order."""

    what: str
    checks: Sequence[Check]

    @property
    def state(self) -> str:
        """``trusted``, ``refused``, or ``trusted, but`` with what its hits say."""
        failed = [check for check in self.checks if check.ok is False]
        if any(check.refuses for check in failed):
            return "refused"
        return f"trusted, but {', '.join(check.name.lower() for check in failed)}" if failed else "trusted"

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {"what": self.what, "state": self.state, "checks": [asdict(check) for check in self.checks]}


async def explain(app: Services, text: str) -> TrustExplanation:
    """Explain why the item at an address, or else the file at a path, is trusted or not. Nothing is recorded.

    Raises
    ------
    NotFound
        When no tier has such an item, in its index or as a file.
    UsageError
        When the address is malformed, or the path is in no tier.
    """
    if named := source_at(app, text):
        return await _explain_file(app, *named)
    address, problem = parse_address(text), None
    for name in [address.tier] if address.tier else app.source_names("all"):
        has_items = app.registry_connection.exists if name == "registry" else app.has_index(app.root(name))
        tier = app.tier(name)
        try:
            refs = address.refs() if has_items else ()
            found = {ref: stored for ref in refs if (stored := await items.get_stored(tier, ref))}
        except KiwiError as error:
            problem = error
            continue
        if ref := only_one([*found], text):
            return await _explain_stored(app, tier, found[ref], newest=address.version is None)
    if address.tier != "registry" and (file := find_file(app, address)) and _has_version(app, *file, address.version):
        return await _explain_file(app, *file)
    if problem:
        raise problem
    missing = await items.find(app, text, app.source_names("all"))  # raises with the reason, such as a yank
    return await _explain_stored(app, missing.tier, missing.stored, newest=address.version is None)


def _has_version(app: Services, tier: Collection, source: SourceFile, version: str | None) -> bool:
    """Return whether a file declares this version, where one is named."""
    if version is None:
        return True
    candidate = read_item(source, app.root(tier.name))
    item = None if isinstance(candidate, Finding) else app.gate.inspect(candidate).item
    return item is not None and item.ref.version == version


async def _explain_file(app: Services, tier: Collection, source: SourceFile) -> TrustExplanation:
    """Explain what the next index run makes of a file."""
    ref, root = ItemRef(source.item_type, source.item_id), app.root(tier.name)
    candidate, history, stored = read_item(source, root, tier.name), dict[str, str](), None
    if app.has_index(root) and source.item_id:
        history, stored = dict(await tier.store.history(ref)), await tier.store.get(ref, ())
    checks = [*_gate_checks(app, candidate, tier.policy, history, app.gate)]
    says, next_step = f"the {tier.name} tier does not have it", f"kiwi index --tier {tier.name}"
    if stored:
        says, next_step = f"the {tier.name} tier has {stored.ref}", f"kiwi why {ref}@{tier.name}"
    checks += [Check("Index", None, says, next_step), *_trust_checks(app)]
    return TrustExplanation(display_path(source.path), checks)


async def _explain_stored(app: Services, tier: Collection, stored: StoredItem, *, newest: bool) -> TrustExplanation:
    """Explain an item that a tier has: the gate as at its admission, by the trust of today; then what a search does.

    `newest` is set for what a registry serves as the newest version, which no address named.
    """
    what, trust, more = f"{stored.ref}@{tier.name}", app.trust, list[Check]()
    checks: list[Check] = []
    try:
        if tier.monitor:
            check = await tier.monitor.check(fully=True)
            trust = check.apply_revocations(trust)
            is_newest = newest and stored.yanked_at is None
            await check.check_consistency(stored, "", newest=is_newest)  # what it finds is not saved
            head = tier.monitor.pinned.read().head.seq
            more.append(Check("Registry", True, f"it says what it said before; its audit log has {head} records"))
    except RegistryContradicted as error:
        more.append(Check("Registry", False, error.message, error.hint))
    gate = ValidationManager(trust, app.settings.registry_name, lambda: stored.admitted_at)
    try:
        path = display_path(path_of(tier.root, stored.ref)) if tier.root else "PATH"
        candidate = replace(candidate_of(stored.envelope, stored.files), path=path)
        highest, history = version_order(stored.ref.version or ""), await tier.store.history(stored.ref)
        known = {version: content for version, content in history.items() if version_order(version) <= highest}
        checks += _gate_checks(app, candidate, tier.policy, known, gate)
        item = require_files(verify_stored(stored, stored.ref, trust, tier))
        checks.append(Check("Index", True, "it is what was signed"))
        more += [check async for check in _state_checks(app, tier, item)]
    except Refused as error:
        checks.append(Check("Index", False, error.message, error.hint))
    return TrustExplanation(what, [*checks, *more, *_trust_checks(app)])


def _gate_checks(
    app: Services, candidate: ItemCandidate | Finding, policy: Policy, history: Mapping[str, str],
    gate: ValidationManager,
) -> Iterator[Check]:  # fmt: skip
    """Yield the eleven steps of the gate over a candidate, or over a file that could not be read as one."""
    item, signed, findings = (
        (None, None, (candidate,)) if isinstance(candidate, Finding) else gate.examine(candidate, policy, history)
    )
    by_step: dict[int, list[Finding]] = {}
    for finding in findings:
        number = _NUMBER.get(finding.code, _NUMBER[finding.code.partition(".")[0]])
        by_step.setdefault(number, []).append(finding)
    failed = [number for number in sorted(by_step) if has_errors(by_step[number])]
    facts = dict.fromkeys(("signature", "authority", "time", "version"), "")
    if signed and item:
        signer, highest = signed.signer, max(history, key=version_order, default="none")
        facts = {
            "signature": f"the key with id {signer.key_id[:16]}… signed exactly these files",
            "authority": f"{signer.principal} is {signer.rights}; {_listed(app, signer)}",
            "time": format_time(signed.statement.signed_at),
            "version": f"{item.ref.version}; the highest version admitted is {highest}",
        }
    for number, (name, _, good) in enumerate(_STEPS):
        found = by_step.get(number, [])
        says = "; ".join(f.message for f in found if f.is_error or number not in failed)
        if number in failed:
            hint = next(f.hint for f in found if f.is_error)
            yield Check(name, False, says, hint, number)
        elif failed and _is_skipped(number, failed, parsed=item is not None, signed=signed is not None):
            because = failed[-1] if number > 6 else failed[0]
            yield Check(name, None, f"not checked: step {because} failed", "", number)
        else:
            yield Check(name, True, good.format(**facts) + (f"; warning: {says}" if says else ""), "", number)


def _is_skipped(number: int, failed: Sequence[int], *, parsed: bool, signed: bool) -> bool:
    """Whether a step did not run, or says nothing, because another one failed."""
    if number > 6:
        return not (parsed and signed) or number > failed[-1] > 6
    return not parsed and number > 0 and (failed[0] == 0 or number in (2, 3, 4))


def _listed(app: Services, signer: Signer) -> str:
    """Return in which line of which trust file a key is listed."""
    for path in filter(None, (app.user_trust, app.project_trust)):
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").lower().splitlines()
            for number, line in enumerate(lines, 1):
                if signer.public_key.hex() in line:
                    return f"{display_path(path)}:{number}"
    return "not listed"


async def _state_checks(app: Services, tier: Collection, item: VerifiedItem) -> AsyncIterator[Check]:
    """Yield what happened to a verified item since it was signed, and what other tiers have of it."""
    stored, ref = item.stored, replace(item.stored.ref, version=None)
    yanked = await asyncio.to_thread(tier.yanked, [stored.digest])
    state = await asyncio.to_thread(read_state, item, tier, yanked)
    if tier.root:
        says = state.changed or "it is the one that was signed"
        yield Check("Changed" if state.changed else "File", not state.changed, says, refuses=False)
    if state.yanked:
        reason = f": {stored.yank_reason}" if stored.yank_reason else f"; kiwi show {stored.ref}@registry says why"
        says = f"the registry withdrew this version{reason}"
        yield Check("Yanked", False, says, "use another version", refuses=False)
    for name, copy in (await items.find_copies(app, ref)).items():
        if name == tier.name or isinstance(copy, KiwiError) or copy.stored.digest == stored.digest:
            continue
        says = f"the {name} tier has {copy.stored.ref} by {copy.signer.principal}"
        if copy.stored.ref == stored.ref and copy.stored.content_sha256 != stored.content_sha256:
            yield Check("Conflict", False, f"{says}, with other content", "kiwi verify", refuses=False)
        elif RANKS[name] < tier.rank:
            hint = f"kiwi diff {ref}@{tier.name} {ref}@{name}"
            yield Check("Shadowed", False, f"{says}, which a search shows in its place", hint, refuses=False)
        else:
            yield Check("Other tier", None, says)


def _trust_checks(app: Services) -> Iterator[Check]:
    """Yield whether the project's trust file counts, and when each registry's revocations were read."""
    if app.project_trust and app.project_trust.is_file():
        problem = project_trust_problem(app)
        says = problem or f"{display_path(app.project_trust)} is pinned, or adds nothing to yours"
        yield Check("Trust file", None if problem else True, says, "kiwi trust project" if problem else "")
    for pinned in pinned_states(app.monitor_dir):
        with closing(pinned):
            about, notices = pinned.read(), pinned.notices()
        at = f"{about.checked_at:%Y-%m-%d %H:%M} UTC" if about.checked_at else "never"
        says = f"{about.identity}: last read {at}; {len(notices)} keys were retired or revoked"
        yield Check("Revocations", None, says)
