"""Hits, items and findings → text, Markdown, JSON, for all interfaces."""

from __future__ import annotations

from kiwi_rag.render.agents import agents_state_lines, content_page, delimited, error_text, hits_page
from kiwi_rag.render.audit import audit_line
from kiwi_rag.render.hits import (
    SNIPPET_CHARACTERS,
    explanation_json,
    explanation_text,
    hit_json,
    hits_markdown,
    hits_paths,
    hits_text,
    notices,
    place,
    reply_json,
    signed_by,
    snippet,
    state_json,
    state_lines,
    tier_json,
)
from kiwi_rag.render.items import (
    Style,
    finding_text,
    findings_text,
    item_json,
    json_text,
    plain,
    rejection_text,
    safe,
    status_lines,
    status_notice,
    yank_json,
)
from kiwi_rag.render.usage import usage_lines

__all__ = [
    "SNIPPET_CHARACTERS",
    "Style",
    "agents_state_lines",
    "audit_line",
    "content_page",
    "delimited",
    "error_text",
    "explanation_json",
    "explanation_text",
    "finding_text",
    "findings_text",
    "hit_json",
    "hits_markdown",
    "hits_page",
    "hits_paths",
    "hits_text",
    "item_json",
    "json_text",
    "notices",
    "place",
    "plain",
    "rejection_text",
    "reply_json",
    "safe",
    "signed_by",
    "snippet",
    "state_json",
    "state_lines",
    "status_lines",
    "status_notice",
    "tier_json",
    "usage_lines",
    "yank_json",
]
