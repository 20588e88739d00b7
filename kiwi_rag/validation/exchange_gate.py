"""The gate of a conversation memory: what of an exchange is stored at all.

A conversation cannot be corrected by its author, so what a file would be refused for is taken out of it: invisible
characters, credentials and hidden instructions, in messages and metadata alike. So is what was recalled from a memory,
which would else be stored as if it had been said again. The gate of documents judges what is left when it is indexed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kiwi_rag.errors import UsageError
from kiwi_rag.model import Exchange, Finding
from kiwi_rag.model.exchanges import without_recalled
from kiwi_rag.signing.statement import MAX_PATH_CHARACTERS
from kiwi_rag.validation import secrets
from kiwi_rag.validation.document_gate import clean_text, without_secrets

MAX_BYTES = 1 << 20
"""Bytes of an exchange as canonical JSON. An answer that a model gives has a hundredth of it."""
MAX_METADATA_BYTES = 64 << 10
MAX_ID_CHARACTERS = 200
_TOO_LARGE = f"it has over {MAX_BYTES >> 20} MiB"
_HINTS = {
    "exchange.id": "choose another id",
    "exchange.size": "shorten its messages, or add it as several exchanges",
    "exchange.json": "use metadata that JSON can hold",
    "exchange.empty": "give it at least one message",
}


def inspect_exchange(exchange: Exchange) -> tuple[Exchange | None, list[Finding]]:
    """Return an exchange as it is stored, and every finding; None in its place when it is refused."""
    if problems := list(_problems(exchange)):
        return None, problems
    findings: list[Finding] = []

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            text, found = clean_text(without_recalled(value), exchange.path)
            findings.extend(found)
            return text
        if isinstance(value, dict):
            return {clean(key): clean(without_named(key, inner)) for key, inner in value.items()}
        return [clean(inner) for inner in value] if isinstance(value, list | tuple) else value

    def without_named(key: str, value: Any) -> Any:
        """Return a value, or a list of lines, without what is a credential under its name or over its lines."""
        lines = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) for one in lines):
            return value
        text, found = without_secrets(f"{key}: " + "\n".join(lines), exchange.path)
        findings.extend(found)
        return text.removeprefix(f"{key}: ") if found else value

    messages = clean(exchange.user_message), clean(exchange.assistant_message)
    cleaned = replace(
        exchange, user_message=messages[0], assistant_message=messages[1], metadata=clean(dict(exchange.metadata))
    )
    problems = list(_left_problems(cleaned))
    return None if problems else cleaned, [*problems, *findings]


def _problems(exchange: Exchange) -> Iterator[Finding]:
    ids = {
        "id": exchange.id, "session_id": exchange.session_id, "thread_id": exchange.thread_id or "-",
        "thread_session_id": exchange.thread_session_id or "-",
    } | {f"prior_exchange_ids[{n}]": one for n, one in enumerate(exchange.prior_exchange_ids)}  # fmt: skip
    for name, value in ids.items():
        if not value or len(value) > MAX_ID_CHARACTERS or not value.isprintable() or value != value.strip():
            message = f"{name} is not 1 to {MAX_ID_CHARACTERS} printable characters without spaces at its ends"
            yield _refusal(exchange, "exchange.id", message)
    if len(exchange.path) > MAX_PATH_CHARACTERS:
        yield _refusal(exchange, "exchange.id", "its ids are too long together")
    if secrets.spans("\n".join(ids.values())):
        yield _refusal(exchange, "exchange.id", "an id holds a credential, and ids are kept for good")
    try:
        size = len(json.dumps(dict(exchange.metadata)))
    except (TypeError, ValueError, RecursionError) as error:
        yield _refusal(exchange, "exchange.json", f"its metadata cannot be written as JSON: {type(error).__name__}")
    else:
        if size > MAX_METADATA_BYTES:
            yield _refusal(exchange, "exchange.size", f"its metadata has over {MAX_METADATA_BYTES >> 10} KiB")
    if len(exchange.user_message) + len(exchange.assistant_message) > MAX_BYTES:
        yield _refusal(exchange, "exchange.size", _TOO_LARGE)


def _left_problems(exchange: Exchange) -> Iterator[Finding]:
    """Yield why a cleaned exchange cannot be stored."""
    try:
        size = len(exchange.canonical)
    except UsageError as error:
        yield _refusal(exchange, "exchange.json", error.message)
        return
    if size > MAX_BYTES:
        yield _refusal(exchange, "exchange.size", _TOO_LARGE)
    if not exchange.text.strip():
        yield _refusal(exchange, "exchange.empty", "neither message has any text")


def _refusal(exchange: Exchange, code: str, message: str) -> Finding:
    return Finding(code, message, path=exchange.path[:MAX_PATH_CHARACTERS], hint=_HINTS[code])
