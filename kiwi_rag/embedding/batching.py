"""How many texts, and how much of each, one request may hold.

No tokenizer of the server's model is at hand, so tokens are estimated from bytes: English prose has about four bytes a
token, code and other scripts about three (a Chinese character is three bytes and about one token).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BYTES_A_TOKEN = 3


def estimated_tokens(text: str) -> int:
    """Return about how many tokens `text` has, rather too many than too few."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN)


def cut(text: str, tokens: int) -> str:
    """Return the head of `text` that has about `tokens` tokens; all of it where `tokens` is 0."""
    if not tokens or estimated_tokens(text) <= tokens:
        return text
    return text.encode("utf-8", "replace")[: tokens * BYTES_A_TOKEN].decode("utf-8", "ignore")


def requests(texts: Sequence[str], size: int, tokens: int) -> Iterator[Sequence[str]]:
    """Yield `texts` in order, in runs of at most `size` texts and about `tokens` tokens (0: any number of them)."""
    run: list[str] = []
    held = 0
    for text in texts:
        weight = estimated_tokens(text)
        if run and (len(run) == size or (tokens and held + weight > tokens)):
            yield run
            run, held = [], 0
        run.append(text)
        held += weight
    if run:
        yield run
