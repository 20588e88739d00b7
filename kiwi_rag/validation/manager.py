"""The gate as one numbered procedure. Each number stands in the trust specification and names one module here.

 0. Bounds        bounds        bytes, encoding, characters that hide or reorder
 1. Form          formats       strict XML, YAML, Python; never executed
 2. Structure     structure     required elements, name and path agree
 3. Metadata      metadata      SemVer, description, lengths
 4. Permissions   permissions   known verbs; a script declares what it uses
 5. Secrets       secrets       live-format credentials
 6. Hidden        hidden        instructions that a reader would not see
 7. Signature     signature     DSSE, strict Ed25519
 8. Authority     signature     the signer may sign this item, then and now
 9. Time          time          not in the future, not too old
10. Version       versions      immutable, never below the highest seen
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kiwi_rag.errors import Rejected, SignatureRefused
from kiwi_rag.model import Admission, Document, Envelope, Finding, Item, Passage, has_errors
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import document_statement, statement
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.telemetry import span
from kiwi_rag.validation import signature
from kiwi_rag.validation import signature as time
from kiwi_rag.validation import signature as versions
from kiwi_rag.validation.audit import AuditSink
from kiwi_rag.validation.document_gate import DocumentFile, inspect, inspect_document, statement_findings
from kiwi_rag.validation.issuing import issue
from kiwi_rag.validation.policy import Policy
from kiwi_rag.validation.signature import ItemCandidate, Signed


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What steps 0–6 say of a candidate: the parsed item where there is one, and every finding."""

    item: Item | None
    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """Whether nothing refuses; says nothing of signature or authority."""
        return self.item is not None and not has_errors(self.findings)


class ValidationManager:
    """The gate. It raises or returns the admitted value; there is no way around it and no way to switch it off.

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
        """Run steps 0–6, which need no signature."""
        item, findings = inspect(candidate.item_type, candidate.item_id, candidate.data, candidate.path, policy.hidden)
        return ValidationResult(item, tuple(findings))

    @span("kiwi.gate", step="admit")
    def admit(
        self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink
    ) -> Admission:
        """Run the whole procedure and write one audit record, whichever way it ends.

        Parameters
        ----------
        history
            Versions of this item that the tier ever admitted: version → content sha256.

        Raises
        ------
        Rejected
            With every finding of every step.
        """
        item, signed, findings = self._judged(candidate, policy, history, audit)
        admission = self._admission(item, signed, findings, policy)
        audit.append("admitted", str(admission.ref), admission.digest, admission.key_id, {"policy": policy.name})
        return admission

    def check(self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink) -> Item:
        """Return the item if `admit` would admit the candidate: what must hold before anything of it is written.

        Raises
        ------
        Rejected
            With every finding of every step; one audit record is written then.
        """
        return self._judged(candidate, policy, history, audit)[0]

    @span("kiwi.gate", step="inspect-document")
    def inspect_document(self, file: DocumentFile, policy: Policy, audit: AuditSink) -> Document:
        """Run steps 0-6 over a workspace's file and return what was kept of it.

        Raises
        ------
        Rejected
            When nothing can be kept; one audit record is written.
        """
        document, findings = inspect_document(file, policy)
        if document is None:
            raise self.reject(f"{ItemType.DOCUMENT}:{file.path}", findings, policy, audit)
        return document

    @span("kiwi.gate", step="admit-document")
    def admit_document(
        self, document: Document, passages: Sequence[Passage], envelope: Envelope, policy: Policy, audit: AuditSink
    ) -> Admission:
        """Run steps 7-9 over a document that was inspected, split and signed; write one audit record either way.

        A document has no version (step 10): a later statement about a path takes the place of the one before.

        Raises
        ------
        Rejected
            With every finding.
        """
        signed, findings = self._document_signature(document, passages, envelope, policy)  # 7-9
        if signed is None or has_errors(findings):
            claimed = envelope.signatures[0][0] if envelope.signatures else ""
            self._record(str(document.ref), claimed, findings, policy, audit)
            raise Rejected(str(document.ref), findings)
        admission = self._admission(document, signed, (*document.findings, *findings), policy)
        audit.append("admitted", str(admission.ref), admission.digest, admission.key_id, {"policy": policy.name})
        return admission

    def inspect_or_raise(self, candidate: ItemCandidate, policy: Policy, audit: AuditSink) -> Item:
        """Return the item if steps 0–6 find nothing to refuse: what must hold before anything is signed.

        Raises
        ------
        Rejected
            With every finding; one audit record is written.
        """
        content = self.inspect(candidate, policy)
        if content.item is None or not content.valid:
            self._audit_rejection(candidate, content.findings, policy, audit)
            raise Rejected(candidate.name, content.findings)
        return content.item

    def reject(self, name: str, findings: Sequence[Finding], policy: Policy, audit: AuditSink) -> Rejected:
        """Record a candidate that cannot even be read, and return the rejection to raise."""
        self._record(name, "", findings, policy, audit)
        return Rejected(name, findings)

    def _judged(
        self, candidate: ItemCandidate, policy: Policy, history: Mapping[str, str], audit: AuditSink
    ) -> tuple[Item, Signed, tuple[Finding, ...]]:
        content = self.inspect(candidate, policy)  # 0-6
        signed, findings = self._signature(candidate, content.item, policy, history)  # 7-10
        findings = (*content.findings, *findings)
        if content.item is None or signed is None or has_errors(findings):
            self._audit_rejection(candidate, findings, policy, audit)
            raise Rejected(candidate.name, findings)
        return content.item, signed, findings

    def _signature(
        self, candidate: ItemCandidate, item: Item | None, policy: Policy, history: Mapping[str, str]
    ) -> tuple[Signed | None, tuple[Finding, ...]]:
        now = self._now()
        received = now if policy.received_now else None
        signed, findings = signature.check_signature(candidate, item, self.trust, self.audience, received)  # 7, 8
        if signed is not None:
            findings += time.check_time(signed.signed_at, now, policy, candidate.path)  # 9
        if item is not None and not has_errors(findings):
            findings += versions.check_versions(item, history, candidate.path, candidate.tier)  # 10
        return signed, tuple(findings)

    def _document_signature(
        self, document: Document, passages: Sequence[Passage], envelope: Envelope, policy: Policy
    ) -> tuple[Signed | None, tuple[Finding, ...]]:
        now = self._now()
        try:
            read, signer = document_statement.verify(envelope, self.trust, now if policy.received_now else None)  # 7, 8
        except SignatureRefused as error:
            return None, (signature.finding_of(error, document.path),)
        findings = statement_findings(read, document, passages, self.audience)
        findings += time.check_time(read.signed_at, now, policy, document.path)  # 9
        return Signed(envelope, read.signed_at, signer), tuple(findings)

    def _admission(self, item: Item, signed: Signed, findings: tuple[Finding, ...], policy: Policy) -> Admission:
        return issue(
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

    def _audit_rejection(
        self, candidate: ItemCandidate, findings: Sequence[Finding], policy: Policy, audit: AuditSink
    ) -> None:
        signatures = candidate.envelope.signatures if candidate.envelope else ()
        claimed = signatures[0][0] if signatures else ""
        self._record(candidate.name, claimed, findings, policy, audit)

    def _record(self, name: str, claimed: str, findings: Sequence[Finding], policy: Policy, audit: AuditSink) -> None:
        codes = sorted({f.code for f in findings if f.is_error})
        audit.append("rejected", name, "", claimed, {"policy": policy.name, "findings": codes})


def candidate_of(envelope: Envelope) -> ItemCandidate:
    """Return the candidate that a stored envelope makes, for running the gate over it again.

    Raises
    ------
    MalformedEnvelope
        When its payload is not a canonical item statement.
    """
    read = statement.parse(envelope.payload)
    return ItemCandidate(
        read.ref.item_type, read.ref.item_id, read.content.encode(), envelope=envelope, path=str(read.ref)
    )


def ref_of(candidate: ItemCandidate) -> ItemRef:
    """Return the candidate's reference, without a version."""
    return ItemRef(candidate.item_type, candidate.item_id)
