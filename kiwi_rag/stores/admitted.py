"""What every store asks of records before it writes them: the gate's seal, one item, one model, whole."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, NotAdmitted, UsageError
from kiwi_rag.model import Admission, EmbeddingRecord
from kiwi_rag.validation.seal import require_passages, require_sealed

_UNIT_TOLERANCE = 1e-3


def one_admission(records: Sequence[EmbeddingRecord]) -> Admission:
    """Return the one sealed admission that all `records` belong to.

    Raises
    ------
    UsageError
        When there are no records, or two passages have one ordinal.
    NotAdmitted
        When a seal is missing, two items are mixed, or these are not the passages that were signed of a document.
    FingerprintMismatch
        When two models made the vectors.
    EmbeddingError
        When a vector is not a finite unit vector.
    """
    if not records:
        raise UsageError("an item is stored by its passages, and there are none")
    first = require_sealed(records[0].admission)
    for record in records:
        if record.admission is not first and require_sealed(record.admission) != first:
            raise NotAdmitted(f"records of two admissions are mixed: {first.ref} and {record.admission.ref}")
    if len({(record.fingerprint, record.vector.shape) for record in records}) > 1:
        raise FingerprintMismatch(f"{first.ref}: its passages were embedded by two models")
    if len({record.passage.ordinal for record in records}) < len(records):
        raise UsageError(f"{first.ref}: two passages have one ordinal")
    _check_vectors(records)
    require_passages(first, [record.passage for record in records])
    return first


def _check_vectors(records: Sequence[EmbeddingRecord]) -> None:
    import numpy as np

    rows = np.stack([record.vector for record in records]).astype(np.float64)
    unit = abs(np.linalg.norm(rows, axis=1) - 1.0) < _UNIT_TOLERANCE if rows.ndim == 2 else np.zeros(1, bool)
    if not unit.all():
        bad = records[int(np.argmin(unit))]
        raise EmbeddingError(f"{bad.admission.ref}: passage {bad.passage.ordinal} has no unit vector")
