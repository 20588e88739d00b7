"""The index over a registry's vectors: built by size, measured against exact answers, and kept so. Blocking.

Building needs the role that owns the tables, and a connection whose session is its own (no pooler in transaction mode).
"""

from __future__ import annotations

from kiwi_rag.registry.tuning.choice import EXACT_BELOW, METHODS, Choice, Method, choose
from kiwi_rag.registry.tuning.procedure import Tuning, may_tune, tune

__all__ = ["EXACT_BELOW", "METHODS", "Choice", "Method", "Tuning", "choose", "may_tune", "tune"]
