"""What Kiwi tells those who look after it: spans for a collector of their own, and a log of JSON Lines.

Neither holds what was asked or found: no query, no text of an item, no arguments, no secrets.
"""

from kiwi_rag.telemetry.spans import Note, span, tracing

__all__ = ["Note", "span", "tracing"]
