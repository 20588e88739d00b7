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

Every step runs, so that a rejection lists every finding; only what step 0 or 1 cannot read ends the later ones. For
documents, `document_gate` runs steps 0 to 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kiwi_rag.errors import Rejected, SignatureRefused
from kiwi_rag.formats import parse_item
from kiwi_rag.model import Admission, Document, Envelope, Finding, Item, Passage, Severity, has_errors
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import document_statement, statement
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.telemetry import span
from kiwi_rag.validation import checks, injection, permissions, secrets, signature
from kiwi_rag.validation.audit import AuditSink
from kiwi_rag.validation.document_gate import DocumentFile, inspect_document, statement_findings
from kiwi_rag.validation.issuing import issue
from kiwi_rag.validation.policy import Policy
from kiwi_rag.validation.signature import ItemCandidate, Signed


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
        item, findings = inspect_item(
            candidate.item_type, candidate.item_id, candidate.data, candidate.path, policy.hidden
        )
        return ValidationResult(item, findings)

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
        signed, findings = self._check_document_signature(document, passages, envelope, policy)
        if signed is None or has_errors(findings):
            raise self._record_rejection(str(document.ref), _claimed_key(envelope), findings, policy, audit)
        return self._record_admission(document, signed, (*document.findings, *findings), policy, audit)

    def _run_steps(
        self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink
    ) -> tuple[Item, Signed, tuple[Finding, ...]]:
        content = self.inspect(candidate, policy)  # 0 to 6
        signed, findings = self._check_signature(candidate, content.item, policy, history)  # 7 to 10
        findings = (*content.findings, *findings)
        if content.item is None or signed is None or has_errors(findings):
            raise self._reject_candidate(candidate, findings, policy, audit)
        return content.item, signed, findings

    def _check_signature(
        self, candidate: ItemCandidate, item: Item | None, policy: Policy, history: Mapping[str, str]
    ) -> tuple[Signed | None, tuple[Finding, ...]]:
        """Run steps 7 to 10 over an item; it is None if steps 0 and 1 could not read it."""
        now = self._now()
        received_at = now if policy.received_now else None
        # 7. Signature and 8. Authority
        signed, findings = signature.check_signature(candidate, item, self.trust, self.audience, received_at)
        # 9. Time
        if signed is not None:
            findings += signature.check_time(signed.signed_at, now, policy, candidate.path)
        # 10. Version: of a candidate that is not signed properly, the version that it claims means nothing.
        if item is not None and not has_errors(findings):
            findings += signature.check_versions(item, history, candidate.path, candidate.tier)
        return signed, tuple(findings)

    def _check_document_signature(
        self, document: Document, passages: Sequence[Passage], envelope: Envelope, policy: Policy
    ) -> tuple[Signed | None, tuple[Finding, ...]]:
        """Run steps 7 to 9 over a document."""
        now = self._now()
        received_at = now if policy.received_now else None
        # 7. Signature and 8. Authority
        try:
            signed_statement, signer = document_statement.verify(envelope, self.trust, received_at)
        except SignatureRefused as error:
            return None, (signature.finding_of(error, document.path),)
        findings = statement_findings(signed_statement, document, passages, self.audience)
        # 9. Time
        findings += signature.check_time(signed_statement.signed_at, now, policy, document.path)
        return Signed(envelope, signed_statement.signed_at, signer), tuple(findings)

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


def inspect_item(
    item_type: ItemType, item_id: str, data: bytes, path: str = "", hidden_severity: Severity = "error"
) -> tuple[Item | None, tuple[Finding, ...]]:
    """Run steps 0 to 6 over the bytes of an item; return the item and every finding, in the order of the steps.

    The item is None if it cannot be parsed. The findings then hold at least one error. `hidden_severity` is the
    severity of hidden instructions under the tier's policy.
    """
    # 0. Bounds
    text, findings = checks.check_bounds(data, path)
    if text is None:
        return None, tuple(findings)
    if item_type is ItemType.SCRIPT:
        findings += checks.check_python_encoding(text, path)
    # 1. Form
    outcome = parse_item(item_type, item_id, text, path)
    findings += outcome.findings
    if outcome.item is not None:
        findings += checks.check_structure(outcome.item, path)  # 2. Structure
        findings += checks.check_metadata(outcome.item, path)  # 3. Metadata
        findings += permissions.check_permissions(outcome.item, path)  # 4. Permissions
    # 5. Secrets
    findings += secrets.check_secrets(text, outcome.item.metadata if outcome.item else None, path)
    # 6. Hidden instructions
    findings += injection.check_injection(item_type, text, path, hidden_severity)
    return outcome.item, tuple(findings)


def _claimed_key(envelope: Envelope | None) -> str:
    """Return the key id that the first signature claims; it is a hint, which no step verified."""
    return envelope.signatures[0][0] if envelope and envelope.signatures else ""


def candidate_of(envelope: Envelope) -> ItemCandidate:
    """Return the candidate of a stored envelope, to run the gate over it again.

    Raises
    ------
    MalformedEnvelope
        When its payload is not a canonical item statement.
    """
    signed = statement.parse(envelope.payload)
    ref = signed.ref
    return ItemCandidate(ref.item_type, ref.item_id, signed.content.encode(), envelope=envelope, path=str(ref))


def ref_of(candidate: ItemCandidate) -> ItemRef:
    """Return the candidate's reference, without a version."""
    return ItemRef(candidate.item_type, candidate.item_id)
