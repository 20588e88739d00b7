"""What a user remembers of the registries that they met, and what contradicts it; above `kiwi_rag.registry`."""

from __future__ import annotations
