"""Seals an admission. An import contract lets only the gate import this module."""

from __future__ import annotations

from dataclasses import replace

from kiwi_rag.model import Admission
from kiwi_rag.validation.seal import seal_of


def issue(admission: Admission) -> Admission:
    """Return `admission` with the gate's seal on it."""
    return replace(admission, seal=seal_of(admission))
