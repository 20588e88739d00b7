"""The versions of an item: how two copies of it differ, and which versions each tier has or had."""

from __future__ import annotations

import asyncio
import difflib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kiwi_rag.collection import Collection
from kiwi_rag.errors import KiwiError, NotFound, Refused, RegistryError, SourceUnreadable, UsageError
from kiwi_rag.formats.bump import version_order
from kiwi_rag.formats.source import SourceFile, display_path, read_item
from kiwi_rag.model import Finding, ItemRef, sha256_hex
from kiwi_rag.render import safe, value_text
from kiwi_rag.search.verify import only_one, parse_address
from kiwi_rag.services import Services
from kiwi_rag.signing.statement import format_time
from kiwi_rag.usecases import item_files, items
from kiwi_rag.usecases.item_files import find_file
from kiwi_rag.usecases.items import FoundItem
from kiwi_rag.validation.signature import EDITED, envelope_of

MAX_COMPARED = 20_000
"""Lines of two versions of a file; finding the differences of more could take very long."""
# Facts that may differ without the files; all others follow from them.
_BESIDE_CONTENT = frozenset({"version", "signer", "yanked", "executables", "category", "author", "tags"})


@dataclass(frozen=True, slots=True)
class ItemCopy:
    """An item as a tier has it, or as its file is now.

    ``about`` is what was signed or declared about the files: version, signer, time, executables and metadata.
    """

    label: str
    files: Mapping[str, bytes]
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two copies of an item differ: facts with their two values, and the files' unified diff."""

    old: str
    new: str
    facts: Mapping[str, tuple[Any, Any]]
    diff: Sequence[str]

    @property
    def differs(self) -> bool:
        """Whether what was signed differs; a signer or a time alone does, too."""
        return bool(self.facts or self.diff)

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        facts = {name: {"old": old, "new": new} for name, (old, new) in self.facts.items()}
        return {"old": self.old, "new": self.new, "differs": self.differs, "facts": facts, "diff": list(self.diff)}

    def lines(self) -> Iterator[str]:
        """Yield it as text for people."""
        if self.differs:
            yield from (f"--- {self.old}", f"+++ {self.new}")
        for name, values in self.facts.items():
            if self.diff and name not in _BESIDE_CONTENT:
                continue  # the files show it
            old, new = map(value_text, values)
            yield f"{name}: {old} → {new}"
        yield from self.diff


async def diff(app: Services, first: str, second: str = "") -> Comparison:
    """Compare the items at two addresses, or paths of files. What is at an address is verified.

    With one address or path, the item's file is compared with what it names; without a version and a tier with what is
    indexed of it, and if that is the same with what is published.

    Raises
    ------
    KiwiError
        As `items.find`.
    """
    if second:
        return _compare(await _copy_at(app, first), await _copy_at(app, second))
    named = source_at(app, first)
    address = None if named else parse_address(first)
    found = find_file(app, address) if address else named
    if found is None:
        raise NotFound(f"{first} has no file here to compare it with", hint=f"kiwi diff {first} REF")
    tier, source = found
    file, ref = await asyncio.to_thread(_copy_of_file, app, tier, source), f"{source.item_type}:{source.item_id}"
    published = [f"{ref}@registry"] if app.registry_connection.exists else []
    compared = None
    for text in [first] if address and (address.version or address.tier) else [f"{ref}@{tier.name}", *published]:
        with suppress(NotFound):
            compared = _compare(await _copy_at(app, text), file)
            if compared.differs:
                return compared
    if compared is None:
        raise NotFound(f"{first} is neither indexed nor published", hint=_add_command(source))
    return compared


def source_at(app: Services, text: str) -> tuple[Collection, SourceFile] | None:
    """Return the tier and the item of a path, of its file or of a skill's folder; None where there is neither.

    What is an address is never a path: a clone may have a file at any path.

    Raises
    ------
    UsageError
        When the path is in no tier, or is not of exactly one item.
    """
    with suppress(UsageError):
        parse_address(text)
        return None
    path = app.cwd / text
    if not (os.path.isfile(path) or os.path.isfile(path / "SKILL.md")):  # noqa: PTH113  # it may be too long for a name
        return None
    for name in app.source_names("local"):
        if path.absolute().is_relative_to(app.root(name).absolute()):
            sources = item_files.sources_of([path.with_name(path.name.removesuffix(".sig"))], app.root(name))
            if len(sources) != 1:
                raise UsageError(f"{path} holds {len(sources)} items", hint="name the file of one item")
            return app.local(name), sources[0]
    raise UsageError(f"{path} is in no tier", hint="name a file below .ai, or an item")


async def _copy_at(app: Services, text: str) -> ItemCopy:
    if named := source_at(app, text):
        return await asyncio.to_thread(_copy_of_file, app, *named)
    found = await items.find(app, text, app.source_names("all"))
    signed, stored = found.signed, found.stored
    yanked = stored.yanked_at is not None or found.state.yanked
    label = f"{signed.ref}@{found.tier.name}"
    about = {"version": signed.ref.version, "signer": found.signer.principal, "yanked": yanked}
    return ItemCopy(label, stored.files, {**about, "executables": signed.executables, **signed.metadata})


def _copy_of_file(app: Services, tier: Collection, source: SourceFile) -> ItemCopy:
    """Return an item as its file is now; its signature counts only if the gate accepts it."""
    candidate = read_item(source, app.root(tier.name))
    if isinstance(candidate, Finding):
        raise SourceUnreadable(candidate.message, hint=candidate.hint)
    item, signed, findings = app.gate.examine(candidate, tier.policy, {})
    refused = next((f.code for f in findings if f.code.startswith("signature.")), "signature.unsigned")
    if signed is None and refused not in EDITED:  # the signature did not verify: what it says of the file means nothing
        item, *_ = app.gate.examine(replace(candidate, signature=None), tier.policy, {})
    version, metadata = (item.ref.version, item.metadata) if item else ("", {})
    signer = signed.signer.principal if signed else "none"
    if refused == "signature.unknown-signer":
        signer = f"unknown key {envelope_of(candidate).signatures[0][0][:16]}…"
    state = "" if signed else f" ({refused.removeprefix('signature.').replace('content', 'edited, not signed')})"
    about = {"version": version, "signer": signer, "yanked": False, "executables": candidate.executables, **metadata}
    return ItemCopy(f"{display_path(source.path)}{state}", candidate.files, about)


def _compare(old: ItemCopy, new: ItemCopy) -> Comparison:
    names = dict.fromkeys([*old.about, *new.about])
    values = {name: (old.about.get(name), new.about.get(name)) for name in names}
    facts = {name: pair for name, pair in values.items() if pair[0] != pair[1]}
    return Comparison(old.label, new.label, facts, unified_diff(old.files, new.files, old.label, new.label))


def unified_diff(old: Mapping[str, bytes], new: Mapping[str, bytes], before: str, after: str) -> list[str]:
    """Return how the files of two versions, which are called `before` and `after`, differ."""
    found: list[str] = []
    for name in sorted({*old, *new}):
        if old.get(name) == new.get(name):
            continue
        was, now = (text_lines(files[name]) if name in files else [] for files in (old, new))
        if len(was) + len(now) > MAX_COMPARED:
            found.append(f"{name} is too long to be compared here: kiwi show prints both versions")
        else:
            found += difflib.unified_diff(was, now, f"{before} {name}", f"{after} {name}", lineterm="")
    return found


def text_lines(content: bytes) -> list[str]:
    """Return the lines of a file as search results count them; for a binary one a line that describes it."""
    try:
        return safe(content.decode().replace("\r\n", "\n")).removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        return [f"A binary file of {len(content)} bytes with the SHA-256 digest {sha256_hex(content)}."]


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A version of an item in a tier.

    ``at`` is when it was signed, or, where only the audit log has it still, when it was admitted. ``state`` is
    indexed, earlier, changed, published, yanked or refused; ``reason`` says why it was yanked or refused.
    """

    tier: str
    version: str
    at: str
    signer: str
    digest: str
    state: str
    reason: str = ""
    private: bool = False


async def log(app: Services, text: str) -> tuple[list[VersionRecord], KiwiError | None]:
    """Return the versions of an item in each tier, newest first; and why the registry's are missing, if they are.

    `text` is its address, or a path.

    Raises
    ------
    NotFound
        When no tier ever had the item.
    UsageError
        When the address is malformed, or matches several items; or as `source_at`.
    """
    file = source_at(app, text)
    address, problem = parse_address(f"{file[1].item_type}:{file[1].item_id}" if file else text), None
    found: dict[ItemRef, list[VersionRecord]] = {}
    for ref in (ItemRef(one.item_type, one.item_id) for one in address.refs()):
        rows = [row for name in app.source_names("local") for row in await _local_versions(app, name, ref)]
        try:
            rows += await _published_versions(app, ref) if app.registry_connection.exists and problem is None else []
        except RegistryError as error:
            problem = error
        if chosen := [row for row in rows if address.tier in (None, row.tier)]:
            found[ref] = chosen
    if only := only_one([*found], text):
        return found[only], problem
    file = file or find_file(app, address)
    hint = _add_command(file[1]) if file else "kiwi list --source all"
    raise problem or NotFound(f"no tier ever had an item {text}", hint=hint)


def _add_command(source: SourceFile) -> str:
    return f"kiwi add {shlex.quote(display_path(source.path))}"


async def _local_versions(app: Services, name: str, ref: ItemRef) -> list[VersionRecord]:
    if not app.has_index(app.root(name)):
        return []
    tier = app.local(name)
    versions = _newest_first(await tier.store.history(ref))
    names = [f"{ref}@{version}" for version in versions]
    admitted = {one.ref: one for one in tier.audit.admissions(names, tier.policy.name)} if names else {}
    current = await tier.store.get(ref, ())
    rows = []
    for version in versions:
        if current and current.ref.version == version:
            rows.append(await _verified_version(app, current.ref, name, "indexed"))
            continue
        record = admitted.get(f"{ref}@{version}")
        signer = app.trust.by_key.get(record.key_id) if record else None
        about = (f"{record.at[:19]}Z", record.digest) if record else ("", "")
        who = signer.principal if signer else f"key id {record.key_id[:16]}…" if record else ""
        rows.append(VersionRecord(name, version, about[0], who, about[1], "earlier"))
    return rows


async def _published_versions(app: Services, ref: ItemRef) -> list[VersionRecord]:
    rows = {row["version"]: row for row in await app.registry_client.item_status(ref)}
    versions = [ItemRef(ref.item_type, ref.item_id, version) for version in _newest_first(rows)]
    return [await _verified_version(app, one, "registry", "published", rows[one.version or ""]) for one in versions]


async def _verified_version(
    app: Services, ref: ItemRef, tier: str, state: str, row: Mapping[str, Any] | None = None
) -> VersionRecord:
    """Return a version that a tier has, verified; one that does not verify has the state refused."""
    try:
        found: FoundItem = await items.find(app, f"{ref}@{tier}", ())
    except (Refused, NotFound) as error:
        digest, signer = (row["digest"], f"key id {row['key_id'][:16]}…") if row else ("", "")
        return VersionRecord(tier, ref.version or "", "", signer, digest, "refused", error.message)
    stored, labels = found.stored, found.state.labels
    about = format_time(found.signed.signed_at), found.signer.principal, stored.digest
    state = labels[0] if labels else state
    return VersionRecord(tier, ref.version or "", *about, state, stored.yank_reason or "", stored.private)


def _newest_first(versions: Mapping[str, Any]) -> list[str]:
    return sorted(versions, key=version_order, reverse=True)
