"""The gate: one numbered procedure that every candidate passes. The numbers are those of the trust specification.

 0. Bounds                checks        bytes, encoding, characters that hide or reorder others
 1. Form                  formats       strict XML, YAML and Python; never executed
 2. Structure             checks        required elements; name and path agree
 3. Metadata              checks        SemVer version, description, lengths
 4. Permissions           permissions   known verbs; a script declares what it uses
 5. Secrets               secrets       credentials in the formats of live services
 6. Hidden instructions   injection     text that an agent reads and a person does not see
 7. Signature             signature     DSSE, strict Ed25519
 8. Authority             signature     the signer may sign this item, and might when it was signed
 9. Time                  signature     not in the future, not too old
10. Version               signature     immutable, never below the highest seen

Every step runs, so that a rejection lists every finding; only what step 0 or 1 cannot read ends the later ones.
Steps 0 to 6 of items are here, those of documents in `document_gate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import semver

from kiwi_rag.errors import Rejected
from kiwi_rag.formats import parse_item, skill
from kiwi_rag.formats.documents import detect, is_python
from kiwi_rag.formats.outcome import ValidationResult
from kiwi_rag.formats.source import ItemCandidate, SourceFile, display_path, read_item
from kiwi_rag.model import Admission, Document, Envelope, Finding, Item, ItemType, Passage, has_errors
from kiwi_rag.signing import statement
from kiwi_rag.signing.statement import is_nameable
from kiwi_rag.signing.trust import TrustPolicy, VerifiedPayload
from kiwi_rag.telemetry import span
from kiwi_rag.validation import checks, document_gate, injection, permissions, secrets, signature
from kiwi_rag.validation.admission import Policy, issue
from kiwi_rag.validation.audit import AuditEvent, AuditSink
from kiwi_rag.validation.document_gate import DocumentFile
from kiwi_rag.validation.signature import SignatureCheck

Verified = VerifiedPayload[statement.ItemStatement] | VerifiedPayload[statement.IndexStatement]


class ValidationManager:
    """The gate. Each method raises or returns the verified value. No parameter skips a step.

    Parameters
    ----------
    trust
        Who may sign what.
    audience
        The registry name that payloads must be signed for.
    now
        The clock, UTC.
    """

    def __init__(
        self, trust: TrustPolicy, audience: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.trust = trust
        self.audience = audience
        self._now = now

    @span("kiwi.gate", step="inspect")
    def inspect(self, candidate: ItemCandidate) -> ValidationResult:
        """Run steps 0 to 6, which need no signature and are the same in every tier."""
        return inspect_item(candidate)

    @span("kiwi.gate", step="admit")
    def admit(
        self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink
    ) -> Admission:
        """Run the whole procedure and write one audit record, of the admission or of the rejection.

        `history` are the versions of this item that the tier ever admitted: version → content sha256.

        Raises
        ------
        Rejected
            With every finding of every step.
        """
        return self._record_admission(*self._run_steps(candidate, policy, history, audit), policy, audit)

    def check(self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink) -> Item:
        """Return the item if `admit` would admit the candidate. Callers check this before they write anything.

        Raises
        ------
        Rejected
            With every finding of every step; one audit record is written then.
        """
        return self._run_steps(candidate, policy, history, audit)[0]

    def inspect_or_raise(self, candidate: ItemCandidate, policy: Policy, audit: AuditSink) -> Item:
        """Return the item with its warnings if steps 0 to 6 find no error. Callers check this before they sign.

        Raises
        ------
        Rejected
            With every finding; one audit record is written.
        """
        item, findings = self.inspect(candidate)
        if item is None or has_errors(findings):
            raise self.reject(str(candidate.ref), findings, policy, audit, candidate.envelope)
        return replace(item, findings=findings)

    def read(self, source: SourceFile, root: Path, policy: Policy, audit: AuditSink, tier: str = "") -> ItemCandidate:
        """Read an item and its signature from a folder below `root`; `tier` is named in messages.

        Raises
        ------
        Rejected
            When it has no legal id or cannot be read; one audit record is written.
        """
        candidate = read_item(source, root, tier)
        if isinstance(candidate, Finding):
            name = display_path(source.path) if source.problem else f"{source.item_type}:{source.item_id}"
            raise self.reject(name, [candidate], policy, audit)
        return candidate

    @span("kiwi.gate", step="inspect-document")
    def inspect_document(self, file: DocumentFile, policy: Policy, audit: AuditSink) -> Document:
        """Run steps 0 to 6 over a file of a workspace and return the document without what was redacted.

        Raises
        ------
        Rejected
            When nothing of the file can be indexed; one audit record is written.
        """
        document, findings = document_gate.inspect_document(file, policy)
        if document is None:
            raise self.reject(f"{ItemType.DOCUMENT}:{file.path}", findings, policy, audit)
        return document

    @span("kiwi.gate", step="admit-document")
    def admit_document(
        self, document: Document, passages: Sequence[Passage], envelope: Envelope, policy: Policy, audit: AuditSink
    ) -> Admission:
        """Run steps 7 to 9 over a document that was inspected, split and signed; write one audit record either way.

        A document has no version (step 10): a later statement about a path replaces the one before.

        Raises
        ------
        Rejected
            With every finding.
        """
        signed, findings = self._signature_check(policy).check_document(document, passages, envelope)
        if signed is None or has_errors(findings):
            raise self.reject(str(document.ref), findings, policy, audit, envelope)
        return self._record_admission(document, signed, (*document.findings, *findings), policy, audit)

    def reject(
        self, name: str, findings: Sequence[Finding], policy: Policy, audit: AuditSink, envelope: Envelope | None = None
    ) -> Rejected:
        """Record a rejection, and return the exception to raise.

        The record names the key that the first signature claims; it is a hint, which no step verified.
        """
        claimed = envelope.signatures[0][0] if envelope and envelope.signatures else ""
        codes = sorted({finding.code for finding in findings if finding.is_error})
        audit.append(AuditEvent("rejected", name, "", claimed, {"policy": policy.name, "findings": codes}))
        return Rejected(name, findings)

    def examine(
        self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str]
    ) -> tuple[Item | None, VerifiedPayload[statement.ItemStatement] | None, tuple[Finding, ...]]:
        """Run the whole procedure and record nothing; return the item, its verified statement, and every finding."""
        item, found = inspect_item(candidate)  # 0 to 6
        signed, more = self._signature_check(policy).check_item(candidate, item)  # 7 to 9
        # 10. Version: of a candidate that is not signed properly, the version that it claims means nothing.
        if item is not None and semver.Version.is_valid(item.ref.version or "") and not has_errors(more):
            more += signature.check_versions(item, history, policy.name, candidate.path, candidate.tier)
        return item, signed, (*found, *more)

    def _run_steps(
        self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink
    ) -> tuple[Item, VerifiedPayload[statement.ItemStatement], tuple[Finding, ...]]:
        item, signed, findings = self.examine(candidate, policy, history)
        if item is None or signed is None or has_errors(findings):
            raise self.reject(str(candidate.ref), findings, policy, audit, candidate.envelope)
        return item, signed, findings

    def _signature_check(self, policy: Policy) -> SignatureCheck:
        return SignatureCheck(self.trust, self.audience, policy, self._now())

    def _record_admission(
        self, item: Item, signed: Verified, findings: tuple[Finding, ...], policy: Policy, audit: AuditSink
    ) -> Admission:
        digest, signer = statement.digest_of(signed.envelope), signed.signer
        admission = issue(Admission(
            replace(item, findings=findings), signed.envelope, digest, key_id=signer.key_id, principal=signer.principal,
            policy=policy.name, signed_at=signed.statement.signed_at, admitted_at=self._now(),
        ))  # fmt: skip
        audit.append(AuditEvent("admitted", str(item.ref), digest, signer.key_id, {"policy": policy.name}))
        return admission


def candidate_of(envelope: Envelope, files: Mapping[str, bytes]) -> ItemCandidate:
    """Return the candidate of a stored envelope and its files, to run the gate over it again.

    Raises
    ------
    MalformedEnvelope
        When its payload is not a canonical item statement.
    """
    signed = statement.parse_item(envelope.payload)
    names = signed.ref.item_type, signed.ref.item_id
    return ItemCandidate(*names, files, signed.main, signed.executables, envelope=envelope, path=str(signed.ref))


def inspect_item(candidate: ItemCandidate) -> ValidationResult:
    """Run steps 0 to 6 over the files of an item; the findings are in the order of the steps."""
    # 0. Bounds
    refusals = tuple(_wrong_files(candidate))
    if refusals:
        return ValidationResult(None, refusals)
    item_type, path = candidate.item_type, candidate.path
    text, findings = checks.check_bounds(candidate.files[candidate.main], path)
    others, more = _check_other_files(candidate)
    findings += more
    if text is None:
        return ValidationResult(None, tuple(findings))
    if item_type is ItemType.SCRIPT:
        findings += checks.check_python_encoding(text, path)
    # 1. Form
    given = candidate.given or signature.given_values(candidate)
    outcome = parse_item(item_type, candidate.item_id, text, path, candidate.files, given)
    findings += outcome.findings
    item = outcome.item
    if item is not None:
        item = replace(item, executables=candidate.executables)
        findings += checks.check_structure(item, path)  # 2. Structure
        findings += checks.check_metadata(item, path)  # 3. Metadata
        findings += permissions.check_permissions(item, path)  # 4. Permissions
        for name, script in others.items():
            if is_python(name, script):
                findings += permissions.check_skill_script(item, script, candidate.path_of(name))
    # 5. Secrets
    findings += secrets.check_secrets(text, item.metadata if item else None, path)
    for name, other in others.items():  # their headings may be decoded from YAML and JSON
        headings = [section.heading for section in item.sections if section.file == name] if item else []
        findings += secrets.check_secrets(other, {"headings": headings}, candidate.path_of(name))
    # 6. Hidden instructions
    findings += injection.check_injection(text, path, "python" if item_type is ItemType.SCRIPT else "markdown")
    findings += injection.check_injection("\n\n".join(checks.texts_in([value for _, value in given])), path, "markdown")
    for name, other in others.items():
        where = candidate.path_of(name)
        findings += injection.check_injection(other, where, detect(where, other))
    return ValidationResult(item, tuple(findings))


def _wrong_files(candidate: ItemCandidate) -> Iterator[Finding]:
    """Yield a finding for each way in which the files are not those of an item of this type."""
    expected, is_folder = candidate.ref.main_file, candidate.item_type.is_folder
    path, files = candidate.path, candidate.files
    if candidate.main != expected or expected not in files:
        message = f"the main file of a {candidate.item_type} of this id is {expected}"
        yield Finding("structure.files", message, path=path, hint=f"add {expected}, or rename the file")
    elif not is_folder and (len(files) > 1 or candidate.executables):
        message = f"a {candidate.item_type} is one file, which is not marked as executable"
        yield Finding("structure.files", message, path=path, hint="use a skill for an item of several files")
    if is_folder and (exceeded := skill.exceeded_limit(len(files), sum(map(len, files.values())), path)):
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
    texts, findings = dict[str, str](), list[Finding]()
    for name in sorted(candidate.files.keys() - {candidate.main}):
        data, path = candidate.files[name], candidate.path_of(name)
        if name.startswith(".") or "/." in name:
            message, hint = f"{name} is a hidden file, which a listing leaves out", "rename it, unless a tool needs it"
            findings.append(Finding("structure.hidden-file", message, path=path, hint=hint, severity="warning"))
        if skill.is_asset(name, data):
            findings += _check_asset(data, path, name in candidate.executables)
            continue
        text, found = checks.check_bounds(data, path)
        findings += [finding for finding in found if finding.code != "bounds.empty"]
        if text is not None:
            texts[name] = text
            findings += checks.check_python_encoding(text, path) if is_python(name, text) else []
    return texts, findings


def _check_asset(data: bytes, path: str, is_executable: bool) -> Iterator[Finding]:
    if len(data) > skill.MAX_ASSET_BYTES:
        message = f"the file is larger than {skill.MAX_ASSET_BYTES >> 20} MiB"
        yield Finding("bounds.size", message, path=path, hint="make it smaller, or link to it")
    if is_executable:
        message = "a binary file is marked as executable"
        yield Finding("structure.executable", message, path=path, hint=f"chmod -x {path}, or add its source instead")
