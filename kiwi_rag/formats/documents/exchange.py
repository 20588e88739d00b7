"""An exchange of a conversation memory: each message is a section, under the name of its speaker.

The file is the exchange as JSON (`kiwi_rag.model.exchanges.Exchange.as_dict`); its reader sees the messages. The title
is the date with the names of the speakers, by which every message is found, too.
"""

from __future__ import annotations

import json

from kiwi_rag.errors import UsageError
from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument, Stretch, flat, one_line
from kiwi_rag.model import RenderedLine
from kiwi_rag.model.exchanges import Exchange

KIND = "turn"
"""The kind of each section. That of a message in AsyncAPI is another, whose text is no prose."""
_NAME = 60
"""Characters of a speaker's name in a title or a heading."""


def parse(text: str, form: str) -> ParsedDocument:
    """Return the messages of an exchange as sections of the kind ``turn``.

    Raises
    ------
    MalformedSource
        If the text is not the JSON of an exchange.
    """
    exchange, lines = _read(text), list[str]()
    messages = [_add(lines, speaker, message) for speaker, message in exchange.messages]
    moment, speakers = exchange.timestamp, dict.fromkeys(heading for stretch in messages for heading in stretch.heading)
    title = f"{moment.day} {moment:%B %Y}, {' and '.join(speakers)}"
    rendered = tuple(RenderedLine(line, 1) for line in lines)
    return ParsedDocument(form, title, flat(lines, messages), rendered=rendered)


def _read(text: str) -> Exchange:
    try:
        return Exchange.of(json.loads(text))
    except (ValueError, RecursionError, UsageError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise MalformedSource("document.malformed", f"it is no exchange: {error}", line) from error


def _add(lines: list[str], speaker: str, message: str) -> Stretch:
    """Add the lines of a message to those of the exchange, after a blank one; return where they are."""
    lines += [""] if lines else []
    start, name = len(lines) + 1, one_line(speaker)[:_NAME]
    lines += f"{name}: {message}".replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return Stretch(KIND, start, len(lines), (name,))
