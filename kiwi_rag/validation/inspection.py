"""Steps 0 to 6 of the gate for items. The numbers are those of `kiwi_rag.validation.manager`."""

from __future__ import annotations

from kiwi_rag.formats import parse_item
from kiwi_rag.model import Finding, Item, Severity
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.validation import checks, injection, permissions, secrets
from kiwi_rag.validation.signature import ItemCandidate


def inspect_item(candidate: ItemCandidate, hidden: Severity = "error") -> tuple[Item | None, tuple[Finding, ...]]:
    """Run steps 0 to 6 over the files of an item; return the item and every finding, in the order of the steps.

    The item is None if it cannot be parsed. The findings then hold at least one error. `hidden` is the severity of
    hidden instructions under the tier's policy.
    """
    item_type, path = candidate.item_type, candidate.path
    expected = ItemRef(item_type, candidate.item_id).main_file
    if candidate.main != expected or set(candidate.files) != {expected} or candidate.executables:
        return None, (_wrong_files(candidate, expected),)
    # 0. Bounds
    text, findings = checks.check_bounds(candidate.files[expected], path)
    if text is None:
        return None, tuple(findings)
    if item_type is ItemType.SCRIPT:
        findings += checks.check_python_encoding(text, path)
    # 1. Form
    outcome = parse_item(item_type, candidate.item_id, text, path)
    findings += outcome.findings
    if outcome.item is not None:
        findings += checks.check_structure(outcome.item, path)  # 2. Structure
        findings += checks.check_metadata(outcome.item, path)  # 3. Metadata
        findings += permissions.check_permissions(outcome.item, path)  # 4. Permissions
    # 5. Secrets
    findings += secrets.check_secrets(text, outcome.item.metadata if outcome.item else None, path)
    # 6. Hidden instructions
    findings += injection.check_injection(item_type, text, path, hidden)
    return outcome.item, tuple(findings)


def _wrong_files(candidate: ItemCandidate, expected: str) -> Finding:
    message = f"a {candidate.item_type} is the one file {expected}, which is not marked as executable"
    return Finding("structure.files", message, path=candidate.path, hint="use a skill for an item of several files")
