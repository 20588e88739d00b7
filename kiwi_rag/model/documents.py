"""Searching a workspace: what is asked of its documents, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kiwi_rag.model.items import Passage
from kiwi_rag.model.search import Filters, RefusedHit, TierOutcome


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """What is asked of a workspace. ``per_file`` is how many passages of one file may be among the hits, 0 any number.

    ``alpha`` is the vector leg's share of a score, None for the tuned one.
    """

    text: str
    filters: Filters = field(default_factory=Filters)
    limit: int = 10
    per_file: int = 2
    alpha: float | None = None


@dataclass(frozen=True, slots=True)
class DocumentHit:
    """A passage of a document, verified a moment ago; its metadata are those that were signed.

    ``score`` is in [0, 1], but for what its kind and its path add to it, which ``parts`` tells: ``cosine``, ``bm25``,
    the legs ``vectors`` and ``words`` in [0, 1], ``alpha``, ``kind`` and ``path``. ``changed`` says that the file has
    changed since it was indexed, so that lines may have moved; None where there is no file to look at.
    """

    path: str
    passage: Passage
    metadata: Mapping[str, str]
    score: float
    parts: Mapping[str, Any]
    content_sha256: str
    digest: str
    key_id: str
    principal: str
    signed_at: datetime
    changed: bool | None = None


@dataclass(frozen=True, slots=True)
class DocumentReply:
    """What a search of a workspace found. ``kind`` is what the query was read as asking for, empty for nothing special.

    ``refused`` are hits that did not verify, ``gone`` paths of hits whose file is not there any more; neither is shown.
    ``unfinished`` tells that the last index run was broken off, or is still under way: files may be missing.
    """

    query: DocumentQuery
    hits: tuple[DocumentHit, ...]
    outcome: TierOutcome
    kind: str = ""
    refused: tuple[RefusedHit, ...] = ()
    gone: tuple[str, ...] = ()
    read_as: Mapping[str, str] = field(default_factory=dict)
    unfinished: bool = False

    @property
    def complete(self) -> bool:
        """Whether the index is whole and answered, and everything it gave verified."""
        return self.outcome.state == "ok" and not self.refused and not self.unfinished
