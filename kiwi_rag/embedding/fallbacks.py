"""The list of servers that stand in for the first one, as a setting says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kiwi_rag.errors import UsageError

SERVERS = ("openai", "ollama")
"""Providers that are servers."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """A server that serves the first one's model: its provider, address, the model's name there, and its key."""

    provider: str
    base_url: str
    model: str
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How servers are used; every one may be left out.

    ``fallbacks`` and ``fallback_keys`` are as in `parse_fallbacks`; ``identity`` is a name of one's own for the model
    that all of them serve; ``batch_texts`` and ``batch_tokens`` are what one request may hold, 0 for the provider's
    own; ``prices`` is as in `kiwi_rag.embedding.usage.parse_prices`.
    """

    fallbacks: str = ""
    fallback_keys: str = field(default="", repr=False)
    identity: str = ""
    batch_texts: int = 0
    batch_tokens: int = 0
    prices: str = ""


def parse_fallbacks(text: str, provider: str, model: str, keys: str = "") -> Sequence[Fallback]:
    """Return the servers that `text` lists, in order.

    Parameters
    ----------
    text
        ``[openai|ollama] URL [MODEL]``, several with commas between; what is left out is the first server's.
    provider, model
        The first server's.
    keys
        A key a server, with commas between; empty where a server wants none. A key never goes to another server than
        the one it stands for.

    Raises
    ------
    UsageError
        If the list or the keys are not of that form.
    """
    entries = [entry.split() for entry in text.split(",") if entry.strip()]
    secrets = [key.strip() for key in keys.split(",")] if keys.strip() else []
    if len(secrets) > len(entries):
        raise UsageError("embedding_fallback_keys has more keys than embedding_fallbacks has servers")
    padded = secrets + [""] * (len(entries) - len(secrets))
    return [_fallback(words, provider, model, key) for words, key in zip(entries, padded, strict=True)]


def _fallback(words: Sequence[str], provider: str, model: str, key: str) -> Fallback:
    named, rest = (words[0], words[1:]) if words[0] in SERVERS else (provider, words)
    if not 1 <= len(rest) <= 2 or "://" not in rest[0]:
        raise UsageError(
            "embedding_fallbacks lists servers as: [openai|ollama] URL [MODEL], with commas between",
            hint="for example: KIWI_EMBEDDING_FALLBACKS='ollama http://127.0.0.1:11434 all-minilm'",
        )
    return Fallback(named, rest[0], rest[1] if len(rest) == 2 else model, key)
