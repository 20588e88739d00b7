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
Steps 0 to 6 are in `inspection`, of items, and in `document_gate`, of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kiwi_rag.errors import Rejected
from kiwi_rag.formats.source import SourceFile, display_path, read_item
from kiwi_rag.model import Admission, Document, Envelope, Finding, Item, Passage, has_errors
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import statement
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.telemetry import span
from kiwi_rag.validation import signature
from kiwi_rag.validation.audit import AuditSink
from kiwi_rag.validation.document_gate import DocumentFile, inspect_document
from kiwi_rag.validation.inspection import inspect_item
from kiwi_rag.validation.issuing import issue
from kiwi_rag.validation.policy import Policy
from kiwi_rag.validation.signature import ItemCandidate, SignatureCheck, Signed


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The result of steps 0 to 6: the parsed item, None if the candidate cannot be parsed, and every finding."""

    item: Item | None
    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """Whether steps 0 to 6 found no error. Signature and authority are not part of it."""
        return self.item is not None and not has_errors(self.findings)


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
    def inspect(self, candidate: ItemCandidate, policy: Policy) -> ValidationResult:
        """Run steps 0 to 6, which need no signature."""
        return ValidationResult(*inspect_item(candidate, policy.hidden))

    @span("kiwi.gate", step="admit")
    def admit(
        self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink
    ) -> Admission:
        """Run the whole procedure and write one audit record, of the admission or of the rejection.

        Parameters
        ----------
        history
            Versions of this item that the tier ever admitted: version → content sha256.

        Raises
        ------
        Rejected
            With every finding of every step.
        """
        item, signed, findings = self._run_steps(candidate, policy, history, audit)
        return self._record_admission(item, signed, findings, policy, audit)

    def check(self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink) -> Item:
        """Return the item if `admit` would admit the candidate. Callers check this before they write anything.

        Raises
        ------
        Rejected
            With every finding of every step; one audit record is written then.
        """
        return self._run_steps(candidate, policy, history, audit)[0]

    def inspect_or_raise(self, candidate: ItemCandidate, policy: Policy, audit: AuditSink) -> Item:
        """Return the item if steps 0 to 6 find no error. Callers check this before they sign anything.

        Raises
        ------
        Rejected
            With every finding; one audit record is written.
        """
        result = self.inspect(candidate, policy)
        if result.item is None or not result.valid:
            raise self._reject_candidate(candidate, result.findings, policy, audit)
        return result.item

    def read(self, source: SourceFile, root: Path, policy: Policy, audit: AuditSink, tier: str = "") -> ItemCandidate:
        """Read an item and its signature from a folder below `root`; `tier` is named in messages.

        Raises
        ------
        Rejected
            When it has no legal id or cannot be read; one audit record is written.
        """
        candidate = read_candidate(source, root, tier)
        if isinstance(candidate, Finding):
            name = f"{source.item_type}:{source.item_id}" if source.item_id and not source.problem else str(source.path)
            raise self.reject(name, [candidate], policy, audit)
        return candidate

    def reject(self, name: str, findings: Sequence[Finding], policy: Policy, audit: AuditSink) -> Rejected:
        """Record the rejection of a candidate that cannot be read, and return the exception to raise."""
        return self._record_rejection(name, "", findings, policy, audit)

    @span("kiwi.gate", step="inspect-document")
    def inspect_document(self, file: DocumentFile, policy: Policy, audit: AuditSink) -> Document:
        """Run steps 0 to 6 over a file of a workspace and return the document without what was redacted.

        Raises
        ------
        Rejected
            When nothing of the file can be indexed; one audit record is written.
        """
        document, findings = inspect_document(file, policy)
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
            raise self._record_rejection(str(document.ref), _claimed_key(envelope), findings, policy, audit)
        return self._record_admission(document, signed, (*document.findings, *findings), policy, audit)

    def _run_steps(
        self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink
    ) -> tuple[Item, Signed, tuple[Finding, ...]]:
        item, found = inspect_item(candidate, policy.hidden)  # 0 to 6
        signed, more = self._signature_check(policy).check_item(candidate, item)  # 7 to 9
        # 10. Version: of a candidate that is not signed properly, the version that it claims means nothing.
        if item is not None and not has_errors(more):
            more += signature.check_versions(item, history, candidate.path, candidate.tier)
        findings = (*found, *more)
        if item is None or signed is None or has_errors(findings):
            raise self._reject_candidate(candidate, findings, policy, audit)
        return item, signed, findings

    def _signature_check(self, policy: Policy) -> SignatureCheck:
        return SignatureCheck(self.trust, self.audience, policy, self._now())

    def _record_admission(
        self, item: Item, signed: Signed, findings: tuple[Finding, ...], policy: Policy, audit: AuditSink
    ) -> Admission:
        admission = issue(
            Admission(
                item=replace(item, findings=findings),
                envelope=signed.envelope,
                digest=statement.digest_of(signed.envelope),
                key_id=signed.signer.key_id,
                principal=signed.signer.principal,
                findings=findings,
                policy=policy.name,
                signed_at=signed.signed_at,
                admitted_at=self._now(),
            )
        )
        audit.append("admitted", str(admission.ref), admission.digest, admission.key_id, {"policy": policy.name})
        return admission

    def _reject_candidate(
        self, candidate: ItemCandidate, findings: Sequence[Finding], policy: Policy, audit: AuditSink
    ) -> Rejected:
        return self._record_rejection(candidate.name, _claimed_key(candidate.envelope), findings, policy, audit)

    def _record_rejection(
        self, name: str, claimed_key: str, findings: Sequence[Finding], policy: Policy, audit: AuditSink
    ) -> Rejected:
        codes = sorted({finding.code for finding in findings if finding.is_error})
        audit.append("rejected", name, "", claimed_key, {"policy": policy.name, "findings": codes})
        return Rejected(name, findings)


def _claimed_key(envelope: Envelope | None) -> str:
    """Return the key id that the first signature claims; it is a hint, which no step verified."""
    return envelope.signatures[0][0] if envelope and envelope.signatures else ""


def read_candidate(source: SourceFile, root: Path, tier: str = "") -> ItemCandidate | Finding:
    """Return the item of a file below `root`, or a finding that says why it cannot be read."""
    path = display_path(source.path)
    if source.problem is not None or source.item_id is None:
        return source.problem or Finding("source.item-id", "the file has no item id", path=str(source.path))
    item = read_item(source, root)
    if isinstance(item, Finding):
        return item
    return ItemCandidate(
        source.item_type,
        source.item_id,
        item.files,
        item.main,
        item.executables,
        item.signature,
        path=path,
        tier=tier,
    )


def candidate_of(envelope: Envelope, files: Mapping[str, bytes]) -> ItemCandidate:
    """Return the candidate of a stored envelope and its files, to run the gate over it again.

    Raises
    ------
    MalformedEnvelope
        When its payload is not a canonical item statement.
    """
    signed = statement.parse_item(envelope.payload)
    ref = signed.ref
    return ItemCandidate(
        ref.item_type, ref.item_id, files, signed.main, signed.executables, envelope=envelope, path=str(ref)
    )


def ref_of(candidate: ItemCandidate) -> ItemRef:
    """Return the candidate's reference, without a version."""
    return ItemRef(candidate.item_type, candidate.item_id)
