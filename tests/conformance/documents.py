"""Documents for stores: really inspected, signed and admitted by the gate; vectors from a seeded generator."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kiwi_rag.model import Admission, EmbeddingRecord, Passage
from kiwi_rag.model.refs import ITEM_TYPES, ItemType
from kiwi_rag.signing.keys import Indexer, SigningKey
from kiwi_rag.signing.trust import Signer, TrustPolicy
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.audit import AuditEvent, AuditRecord, seal_record, verify_records
from kiwi_rag.validation.document_gate import DocumentFile
from kiwi_rag.validation.manager import ValidationManager
from tests.conformance.items import FINGERPRINT, KEY, REGISTRY, SIGNED, unit_vector

WORKSPACE = "harbour"
SIGNER = Signer("ada@acme", KEY.public_key, types=(*ITEM_TYPES, ItemType.DOCUMENT))


class ListedLog:
    """An audit log in memory, sealed and verified as any other."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def append(self, event: AuditEvent, /) -> None:
        self.records.append(seal_record(verify_records(self.records), "2026-03-02T00:00:00Z", event))


def document(
    path: str,
    texts: Sequence[str],
    key: SigningKey = KEY,
    at: datetime = SIGNED,
    labels: dict[str, str] | None = None,
    workspace: str = WORKSPACE,
    context: str = "Harbour",
    included: dict[str, bytes] | None = None,
    kind: str = "section",
) -> tuple[Admission, list[Passage]]:
    """An admitted document of one line a passage, and after them one for each included file."""
    trust = TrustPolicy((SIGNER, Signer("other@acme", key.public_key, types=(ItemType.DOCUMENT,))))
    gate, policy, log = ValidationManager(trust, REGISTRY), policy_of("documents"), ListedLog()
    file = DocumentFile(path, "\n".join(texts).encode(), labels or {}, included or {})
    inspected = gate.inspect_document(file, policy, log)
    passages = [Passage(n, text, context, ("Top",), n + 1, n + 1, kind) for n, text in enumerate(texts)]
    for n, (name, data) in enumerate((included or {}).items(), start=len(texts)):
        passages.append(Passage(n, data.decode(), context, ("Top",), 1, 1, "text", name))
    envelope = Indexer(key, REGISTRY, workspace).sign(inspected, passages, at)
    return gate.admit_document(inspected, passages, envelope, policy, log), passages


def records_of(
    admitted: tuple[Admission, Sequence[Passage]], seed: int = 0, fingerprint: str = FINGERPRINT
) -> list[EmbeddingRecord]:
    """The records of an admitted document, with vectors from `seed` on."""
    admission, passages = admitted
    return [EmbeddingRecord(admission, p, unit_vector(seed + p.ordinal), fingerprint) for p in passages]


async def fill(store: VectorStore) -> None:
    """Store twelve documents of two passages each."""
    for n in range(12):
        labels = {
            "service": f"svc-{n % 3}",
            "domain": "Quay" if n % 2 else "Deck",
            "file_type": "adr" if n in (4, 5) else "markdown",
        }
        path = f"docs/{'a' if n < 6 else 'b'}/File {n:02d}.md"
        texts = [f"berth number {n} is free", f"the tide of day {n} turns"]
        await store.put([records_of(document(path, texts, labels=labels), seed=100 + 2 * n)])
