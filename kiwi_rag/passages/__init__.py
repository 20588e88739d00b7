"""Sections → passages of the wanted size, with context, overlap and true lines; and what the model sees of each."""

from kiwi_rag.passages.chunker import TextChunker
from kiwi_rag.passages.documents import split_document
from kiwi_rag.passages.embedded import embedded_text
from kiwi_rag.passages.items import OVERLAP_TOKENS, TARGET_TOKENS, split
from kiwi_rag.passages.tokens import estimate_tokens

__all__ = [
    "OVERLAP_TOKENS",
    "TARGET_TOKENS",
    "TextChunker",
    "embedded_text",
    "estimate_tokens",
    "split",
    "split_document",
]
