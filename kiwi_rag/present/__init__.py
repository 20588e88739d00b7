"""Hits, items and findings → text, Markdown, JSON. Every door shows results through here."""

from kiwi_rag.present.agents import agents_state_lines, content_page, delimited, hits_page
from kiwi_rag.present.audit import audit_line
from kiwi_rag.present.explain import explanation_json, explanation_text
from kiwi_rag.present.hits import (
    SNIPPET_CHARACTERS,
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
from kiwi_rag.present.items import finding_text, findings_text, item_json, rejection_text, yank_json
from kiwi_rag.present.standing import standing_lines, standing_notice
from kiwi_rag.present.text import Style, json_text, plain, safe
from kiwi_rag.present.usage import usage_lines

__all__ = [
    "SNIPPET_CHARACTERS",
    "Style",
    "agents_state_lines",
    "audit_line",
    "content_page",
    "delimited",
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
    "standing_lines",
    "standing_notice",
    "state_json",
    "state_lines",
    "tier_json",
    "usage_lines",
    "yank_json",
]
