"""Import: what teams have in other tools' files becomes items, without an edit; and again after those files changed.

A plan says what becomes of each file, and nothing is written for it. Then every item is signed in memory, admitted,
written and indexed. A copy that was edited is never replaced: the audit log says which contents an import wrote.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import semver

from kiwi_rag import config
from kiwi_rag.errors import KiwiError, Rejected, SignatureRefused, UsageError
from kiwi_rag.formats import imported
from kiwi_rag.formats.bump import FIRST, add_metadata, add_version, next_version, with_version
from kiwi_rag.formats.source import ItemCandidate, display_path, read_item
from kiwi_rag.integrations.skill_folders import LOCK_NAME
from kiwi_rag.model import Finding, Item, ItemRef, ItemType, check_item_id, content_digest, has_errors
from kiwi_rag.services import Services
from kiwi_rag.signing import statement
from kiwi_rag.sources.imports import ImportableFile, find, link_problem, of_index
from kiwi_rag.usecases import item_files, sign
from kiwi_rag.usecases.installed_skills import place_of
from kiwi_rag.usecases.skill_index import has_index, read_index
from kiwi_rag.validation.audit import AuditEvent
from kiwi_rag.validation.signature import conflicts, envelope_of

_NOTES = (ItemType.KNOWLEDGE, ItemType.SKILL)
"""The types of which a statement may give the metadata."""
_REWRITTEN = ("form.yaml", "metadata.", "structure.name")
"""Findings about the metadata of a note, which is then written again with what could be read of it."""
_NO_NAMESPACE = "none"
"""Stands in ids until it is known that an item without a signature needs one."""
_MAX_NAMED = 5
"""Files or signers that a message names; an index may have a thousand skills with one id."""
_OF_SIGNATURES = ("signature.", "time.")
_OF_SIGNERS = ("signature.unknown-signer", "signature.wrong-key")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How items are named and described; ``write`` puts metadata into the files, ``force`` replaces edited copies."""

    namespace: str = ""
    author: str = ""
    tags: tuple[str, ...] = ()
    write: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class ImportRow:
    """What becomes of a file or a folder: ``state`` is new, changed, unchanged, or refused because of ``error``.

    ``candidate`` and ``item`` are what is to be signed, or is signed already; ``note`` is what differs in the copy.
    """

    path: str
    kind: str
    state: str
    ref: ItemRef | None = None
    error: KiwiError | None = None
    candidate: ItemCandidate | None = None
    item: Item | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        row = {"path": self.path, "kind": self.kind, "state": self.state, "ref": str(self.ref or ""), "note": self.note}
        return {**row, "error": self.error.as_dict()} if self.error else row


def namespace_of(app: Services, tier: str, given: str = "") -> tuple[str, str]:
    """Return the first part of the ids of new items, and what sets it; two empty texts where nothing does.

    `given` goes first, then the user's own setting, then what comes with a repository: ``kiwi.lock``, and the setting
    of the project.

    Raises
    ------
    InvalidItemId
        When it is not legal; `LockInvalid` when the lock file is malformed.
    """
    setting = own = _namespace_setting(app.resolved)
    if app.project_dir and setting[1] == str(app.project_dir / "config.yaml"):
        own = _namespace_setting(config.resolve({"KIWI_HOME": str(app.user_dir)}))
    found = (given, "--namespace") if given else own
    if not found[0]:
        locked = place_of(app, tier).read_lock().namespace
        found = (locked, LOCK_NAME) if locked else setting
    return (check_item_id(found[0]), found[1]) if found[0] else ("", "")


def _namespace_setting(resolved: config.Resolved) -> tuple[str, str]:
    return next((origin.value, origin.source) for origin in resolved.origins if origin.name == "namespace")


class Importer:
    """Plans and makes the import of files into a local tier.

    ``namespace_notice`` says which namespace ids were made with, and what sets it, where that was not an option.
    """

    def __init__(self, app: Services, tier: str, options: ImportOptions) -> None:
        self._app, self._options, self._gate = app, options, app.gate
        self._tier, self._root = app.local(tier), app.root(tier)
        self._namespace, self._namespace_source = namespace_of(app, tier, options.namespace)
        self.namespace_notice = ""
        self.histories = sign.VersionHistories(app)

    @cached_property
    def _written(self) -> frozenset[tuple[str, str]]:
        """The contents that imports wrote here: type and id of the item, and its content digest."""
        records = self._tier.audit.newest(limit=1 << 62)
        return frozenset((r.ref, r.details["content"]) for r in records if r.event == "imported")

    async def plan(self, paths: Sequence[Path]) -> list[ImportRow]:
        """Return what becomes of each file at or below `paths`; nothing is written.

        Raises
        ------
        UsageError
            When a path does not exist, there is nothing to import, or an id has to be made without a namespace.
        """
        failed: dict[str, KiwiError] = {}
        same: dict[Any, list[ImportableFile]] = {}
        rows: list[ImportRow] = []
        for one in self._found(paths, failed):
            try:
                known = self._with_signature(one)
            except Rejected as error:
                rows.append(replace(_refusal(one, error), ref=None))  # nothing proves its id
                continue
            same.setdefault(known.candidate.ref.key, []).append(known)
        if any(one.candidate.signature is None for group in same.values() for one in group):
            self._require_namespace()
        rows += [ImportRow(path, "file", "refused", error=error) for path, error in failed.items()]
        for group in same.values():
            rows += [await self._row(group[0])] if len(group) == 1 else _collisions(group)
        if not rows:
            hint = "it takes Markdown, Cursor rules, folders with SKILL.md, directives, and scripts"
            raise UsageError(f"nothing to import in {', '.join(map(str, paths))}", hint=hint)
        return sorted(rows, key=lambda row: row.path)

    def _require_namespace(self) -> None:
        if not self._namespace:
            hint = "add --namespace NAME, or set it for all imports, as in namespace: acme in .ai/config.yaml"
            raise UsageError("the items need a namespace, the first part of their ids", hint=hint)
        if not self._options.namespace:
            self.namespace_notice = f"the namespace is {self._namespace}, from {self._namespace_source}"

    def _found(self, paths: Sequence[Path], failed: dict[str, KiwiError]) -> Iterator[ImportableFile]:
        """Yield the skills of the paths that are indexes of skills, and what is found at the others."""
        # Without "..", which after a link would lead to the folder above the link's target.
        problems = {path: link_problem(path) for path in (Path(os.path.normpath(path)) for path in paths)}
        failed.update({display_path(path): error for path, error in problems.items() if error})
        paths = [path for path, error in problems.items() if error is None]
        indexes = [path for path in paths if has_index(path)]
        namespace = self._namespace or _NO_NAMESPACE
        yield from find([path for path in paths if path not in indexes], self._root, namespace, failed)
        for path in indexes:
            try:
                yield from (of_index(*skill, namespace, f"{path}/{skill.name}") for skill in read_index(path))
            except Rejected as error:
                failed[display_path(path)] = error

    def _with_signature(self, found: ImportableFile) -> ImportableFile:
        """Return a signed skill under the id that it was signed as; others as they are.

        Raises
        ------
        Rejected
            When the signature does not verify; with ``force``, the skill is returned without it.
        """
        candidate = own = found.candidate
        if candidate.signature is None:
            return found
        with suppress(SignatureRefused):  # of which the gate makes a finding
            named = statement.parse_item(envelope_of(candidate).payload)
            own = replace(candidate, item_id=named.ref.item_id, executables=named.executables)  # archives lose modes
        _, signed, findings = self._gate.examine(own, self._tier.policy, {})
        problems = [_signature_problem(one) for one in findings if one.is_error and one.code.startswith(_OF_SIGNATURES)]
        if signed and not problems:
            return replace(found, candidate=own)
        if not self._options.force:
            raise Rejected(candidate.path, problems)
        note = f"replaces the signature of {self._claimed_signers(candidate)}: {problems[0].message}"
        return replace(found, candidate=replace(candidate, signature=None), note=note)

    def _claimed_signers(self, candidate: ItemCandidate) -> str:
        """Return whose signatures a candidate says it has: names of trusted keys, ids of others."""
        names, trusted = list[str](), self._gate.trust.by_key
        with suppress(SignatureRefused):
            for key_id, _ in envelope_of(candidate).signatures[:_MAX_NAMED]:
                names.append(trusted[key_id].principal if key_id in trusted else f"the key {key_id[:16]}…")
        return ", ".join(names) or "an unnamed key"

    async def _row(self, found: ImportableFile) -> ImportRow:
        try:
            return await self._planned(found)
        except KiwiError as error:
            return _refusal(found, error)

    async def _planned(self, found: ImportableFile) -> ImportRow:
        candidate, ref = found.candidate, found.candidate.ref
        place = item_files.find_place(self._root, ref, candidate.files)
        old = read_item(place, self._root) if place.path.exists() else None
        if isinstance(old, Finding):
            raise Rejected(str(ref), [old])
        signed = sign.signed_statement(self._gate, self._tier, old, self._gate.inspect(old).item) if old else None
        known, values = dict(signed.given if signed else ()), self._values(found)
        if old and signed:
            same, item, _ = self._variant(found, {**values, **known, "version": signed.ref.version})
            if (same.files, same.executables) == (old.files, old.executables):
                return ImportRow(candidate.path, found.kind, "unchanged", item.ref)
        if old and old.files != candidate.files and not self._is_replaceable(old):
            hint = "compare the two; to import it nevertheless, add --force"
            raise UsageError(f"{display_path(place.path)} was not imported, or edited since", hint=hint)
        kept = {name: known[name] for name in ("author", "tags") if name in known and not getattr(self._options, name)}
        changed, item, note = await self._next(found, values | kept, signed.ref.version if signed else None)
        state = "changed" if old else "new"
        note = "; ".join(filter(None, (note, found.note)))
        return ImportRow(candidate.path, found.kind, state, item.ref, candidate=changed, item=item, note=note)

    def _is_replaceable(self, old: ItemCandidate) -> bool:
        return self._options.force or (str(old.ref), content_digest(old.digests)) in self._written

    async def _next(
        self, found: ImportableFile, values: Mapping[str, Any], old: str | None
    ) -> tuple[ItemCandidate, Item, str]:
        """Return the candidate with the version that the file declares, or the first; a higher one if that is taken."""
        if found.candidate.signature is not None:
            return self._variant(found, values)
        histories = await self.histories.of(found.candidate.ref, fully=True)
        _, declared = self._declared(found.candidate)
        version = declared if semver.Version.is_valid(declared) else FIRST
        made = self._variant(found, {**values, "version": version})
        known = [*filter(None, [old]), *(known for history in histories.values() for known in history)]
        highest = max(known, key=semver.Version.parse, default=version)
        is_taken = version == old or any(conflicts(made[1], history) for history in histories.values())
        if is_taken or semver.Version.parse(version) < semver.Version.parse(highest):
            return self._variant(found, {**values, "version": next_version(known)})
        return made

    def _variant(self, found: ImportableFile, values: Mapping[str, Any]) -> tuple[ItemCandidate, Item, str]:
        """Return the candidate and the item with these values for metadata, and what differs in the copy.

        Raises
        ------
        Rejected
            When steps 0 to 6 of the gate find errors, also after metadata that is not strict was written again.
        """
        problems: Sequence[Finding] = ()
        for candidate, note in self._variants(found, values):
            item, findings = self._gate.inspect(candidate)
            if item and not has_errors(findings):
                return candidate, item, note
            problems = problems or findings
            if not any(finding.is_error and finding.code.startswith(_REWRITTEN) for finding in findings):
                break
        raise Rejected(str(found.candidate.ref), problems)

    def _variants(self, found: ImportableFile, values: Mapping[str, Any]) -> Iterator[tuple[ItemCandidate, str]]:
        candidate, content = found.candidate, found.content
        if found.candidate.signature is not None:
            yield candidate, "keeps its signature"
            return
        data = self._with_metadata(candidate, content, values)
        given = tuple(values.items()) if candidate.item_type in _NOTES else ()
        note = "" if data == content else "metadata written"
        yield _with_content(candidate, data, given), note
        if candidate.item_type is ItemType.KNOWLEDGE:
            yield _with_content(candidate, imported.rewritten(content, values), given), "metadata written again"

    def _values(self, found: ImportableFile) -> dict[str, Any]:
        """Return the metadata that an item gets where its files declare none; it has no version yet."""
        folder, options = found.candidate.item_id.rpartition("/")[0], self._options
        tags = tuple(dict.fromkeys((*options.tags, *found.tags)))
        return {"version": "", "category": folder, "author": options.author, "tags": tags}

    def _with_metadata(self, candidate: ItemCandidate, content: str, values: Mapping[str, Any]) -> str:
        """Return the main file with the version, where it has to be in the file; with all metadata if that is asked."""
        item, declared = self._declared(candidate)
        item_type, version = candidate.item_type, values["version"]
        if declared not in ("", version):
            content = with_version(item_type, content, version)
        if item is None or (item_type in _NOTES and not self._options.write):
            return content
        if item_type not in _NOTES:
            return content if declared else add_version(item_type, content, version)
        present = {**item.metadata, "version": declared}
        return add_metadata(item_type, content, {name: v for name, v in values.items() if not present[name]})

    def _declared(self, candidate: ItemCandidate) -> tuple[Item | None, str]:
        """Return the item as its files alone declare it, None where they cannot be read, and its version if any."""
        item, findings = self._gate.inspect(replace(candidate, signature=None))
        return item, "" if item is None or sign.is_version_missing(findings) else item.ref.version or ""

    async def store(
        self, rows: Sequence[ImportRow], key: str, ask_passphrase: Callable[[], str]
    ) -> AsyncGenerator[ImportRow]:
        """Sign the rows that are new or changed, then write and index them; yield each row as it is then."""
        author = None
        if any(row.candidate and row.candidate.signature is None for row in rows):
            signing_key = self._app.signing_key(key, ask_passphrase)
            author = sign.Author(self._tier, self._gate, signing_key, self.histories, self._app.principal)
        signed = [await self._signed(row, author) for row in rows]
        async with self._tier.writing():
            for row in signed:
                if row.candidate and row.item:
                    await self._store(row.candidate, row.item)
                yield row

    async def _signed(self, row: ImportRow, author: sign.Author | None) -> ImportRow:
        if row.candidate is None or row.item is None:
            return row
        history = (await self.histories.of(row.item.ref, fully=False)).get(self._tier.name, {})
        try:
            if author and row.candidate.signature is None:
                return replace(row, candidate=author.sign(row.candidate, row.item, history))
            self._gate.check(row.candidate, self._tier.policy, history, self._tier.audit)
        except Rejected as error:
            return replace(row, state="refused", error=error, candidate=None)
        return row

    async def _store(self, candidate: ItemCandidate, item: Item) -> None:
        admission, _ = await item_files.add_item(self._app, self._tier, candidate, overwrite=True)
        event = "imported", str(candidate.ref), admission.digest, admission.key_id
        self._tier.audit.append(AuditEvent(*event, {"content": item.content_sha256}))


def _collisions(group: Sequence[ImportableFile]) -> list[ImportRow]:
    """Return a refusal of each file of a group that would become one item."""
    ref, names = group[0].candidate.ref, [found.candidate.path for found in group]
    shown = names if len(names) <= _MAX_NAMED else [*names[:_MAX_NAMED], f"{len(names) - _MAX_NAMED} more"]
    error = UsageError(
        f"{' and '.join(shown)} would become {ref}", hint="rename one of them, or import them one by one"
    )
    return [_refusal(found, error) for found in group]


def _refusal(found: ImportableFile, error: KiwiError) -> ImportRow:
    return ImportRow(found.candidate.path, found.kind, "refused", found.candidate.ref, error)


def _signature_problem(finding: Finding) -> Finding:
    """Return a finding about a signature with the way out for who imports the skill, and did not write it."""
    advice = finding.hint if finding.code in _OF_SIGNERS else "get it from its author again"
    return replace(finding, hint=f"{advice}; to sign it as it is with your key instead, add --force")


def _with_content(candidate: ItemCandidate, content: str, given: tuple[tuple[str, Any], ...]) -> ItemCandidate:
    """Return a candidate with another main file, if that differs, and with metadata for its statement."""
    if content != candidate.files[candidate.main].decode(errors="replace"):
        candidate = replace(candidate, files={**candidate.files, candidate.main: content.encode()})
    return replace(candidate, given=given)
