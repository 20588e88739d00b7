"""Steps 0 to 6 of the gate for items. The numbers are those of `kiwi_rag.validation.manager`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from kiwi_rag.formats import parse_item, skill
from kiwi_rag.formats.documents import is_python
from kiwi_rag.model import Finding, Item, Severity
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing.statement import is_nameable
from kiwi_rag.validation import checks, injection, permissions, secrets, skill_scripts
from kiwi_rag.validation.signature import ItemCandidate


def inspect_item(candidate: ItemCandidate, hidden: Severity = "error") -> tuple[Item | None, tuple[Finding, ...]]:
    """Run steps 0 to 6 over the files of an item; return the item and every finding, in the order of the steps.

    The item is None if it cannot be parsed. The findings then hold at least one error. `hidden` is the severity of
    hidden instructions under the tier's policy.
    """
    # 0. Bounds
    refusals = list(_wrong_files(candidate))
    if refusals:
        return None, tuple(refusals)
    item_type, path = candidate.item_type, candidate.path
    text, findings = checks.check_bounds(candidate.files[candidate.main], path)
    others, more = _check_other_files(candidate)
    findings += more
    if text is None:
        return None, tuple(findings)
    if item_type is ItemType.SCRIPT:
        findings += checks.check_python_encoding(text, path)
    # 1. Form
    outcome = parse_item(item_type, candidate.item_id, text, path, candidate.files)
    findings += outcome.findings
    item = outcome.item
    if item is not None:
        item = replace(item, executables=candidate.executables)
        findings += checks.check_structure(item, path)  # 2. Structure
        findings += checks.check_metadata(item, path)  # 3. Metadata
        findings += permissions.check_permissions(item, path)  # 4. Permissions
        for name, script in others.items():
            if is_python(name, script):
                findings += skill_scripts.check_skill_script(item, script, candidate.path_of(name))
    # 5. Secrets
    findings += secrets.check_secrets(text, item.metadata if item else None, path)
    for name, other in others.items():
        findings += secrets.check_secrets(other, _headings(item, name), candidate.path_of(name))
    # 6. Hidden instructions
    findings += injection.check_injection(item_type, text, path, hidden)
    for name, other in others.items():
        findings += injection.check_file(candidate.path_of(name), other, hidden)
    return item, tuple(findings)


def _headings(item: Item | None, name: str) -> dict[str, list[str]]:
    """Return the headings of a file, which are decoded from YAML and JSON, to be searched for credentials."""
    sections = [section for section in item.sections if section.file == name] if item else []
    return {"headings": [text for section in sections for text in section.heading]}


def _wrong_files(candidate: ItemCandidate) -> Iterator[Finding]:
    """Yield a finding for each way in which the files are not those of an item of this type."""
    expected = ItemRef(candidate.item_type, candidate.item_id).main_file
    path, files = candidate.path, candidate.files
    if candidate.main != expected or expected not in files:
        message = f"the main file of a {candidate.item_type} of this id is {expected}"
        yield Finding("structure.files", message, path=path, hint=f"add {expected}, or rename the file")
    elif not candidate.item_type.is_folder and (len(files) > 1 or candidate.executables):
        message = f"a {candidate.item_type} is one file, which is not marked as executable"
        yield Finding("structure.files", message, path=path, hint="use a skill for an item of several files")
    total = sum(map(len, files.values()))
    if candidate.item_type.is_folder and (exceeded := skill.exceeded_limit(len(files), total, path)):
        yield exceeded
    yield from _wrong_names(candidate)


def _wrong_names(candidate: ItemCandidate) -> Iterator[Finding]:
    """Yield a finding for each name that no statement can hold, or that some file system would mix up with another."""
    files = {_folded(name) for name in candidate.files}
    spelled = {_folded(f"{candidate.main}.sig"): ""}
    for name in sorted(candidate.files):
        problem = "" if is_nameable(name) else "cannot be the name of a file of an item"
        for path in [*reversed(PurePosixPath(name).parents), PurePosixPath(name)][1:] if not problem else []:
            step = str(path)
            if spelled.setdefault(_folded(step), step) != step:
                problem = f"differs from {spelled[_folded(step)] or 'the name of the signature'!r} in case only"
            elif step != name and _folded(step) in files:
                problem = f"is below {step!r}, which is a file"
        if problem:
            message = f"{name.encode('ascii', 'backslashreplace').decode()[:80]!r} {problem[:200]}"
            yield Finding("structure.file-name", message, path=candidate.path, hint="rename the file")


def _folded(name: str) -> bytes:
    return name.encode("utf-8", "replace").lower()  # ASCII alone, as the statement's rule


def _check_other_files(candidate: ItemCandidate) -> tuple[Mapping[str, str], list[Finding]]:
    """Run step 0 over the files of a skill beside ``SKILL.md``; return the texts of those that are text."""
    texts: dict[str, str] = {}
    findings: list[Finding] = []
    for name in sorted(candidate.files.keys() - {candidate.main}):
        data, path = candidate.files[name], candidate.path_of(name)
        if skill.is_asset(name, data):
            findings += _check_asset(name, data, candidate)
            continue
        text, found = checks.check_bounds(data, path)
        findings += [finding for finding in found if finding.code != "bounds.empty"]
        if text is not None:
            texts[name] = text
            findings += checks.check_python_encoding(text, path) if is_python(name, text) else []
    return texts, findings


def _check_asset(name: str, data: bytes, candidate: ItemCandidate) -> Iterator[Finding]:
    path = candidate.path_of(name)
    if len(data) > skill.MAX_ASSET_BYTES:
        message = f"the file is larger than {skill.MAX_ASSET_BYTES >> 20} MiB"
        yield Finding("bounds.size", message, path=path, hint="make it smaller, or link to it")
    if name in candidate.executables:
        message = "a binary file is marked as executable"
        yield Finding("structure.executable", message, path=path, hint=f"chmod -x {path}, or add its source instead")
