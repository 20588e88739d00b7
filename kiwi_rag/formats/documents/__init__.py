"""A workspace's files → sections with true line ranges. One module a format; the content decides which.

Parsing never raises for bad content: what cannot be read as its format becomes plain text, with a warning.

| file type | kinds of section |
| --- | --- |
| markdown | section, front-matter |
| adr | context, drivers, options, decision, consequences, section |
| openapi | info, endpoint, schema, definition |
| asyncapi | info, channel, message, schema, definition |
| yaml, json | definition |
| java | class, method, field |
| python | module, class, function |
| plantuml | diagram |
| text | text |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import PurePosixPath

from kiwi_rag.formats.outcome import ParsedDocument

FILE_TYPES = ("markdown", "adr", "openapi", "asyncapi", "yaml", "json", "java", "python", "plantuml", "text")


def parse(path: str, text: str) -> ParsedDocument:
    """Return the sections of `text`, the file at `path` below its root; the text decides its format.

    Bad content never raises: a file that cannot be read as what it is becomes ``text``, with one finding of severity
    ``warning`` and code ``document.malformed`` that names the line.
    """
    from kiwi_rag.formats.documents.detect import detect, service_of

    form = detect(path, text)
    document = _structured(path, text, form) if form in {"yaml", "json"} else _parser(form)(path, text)
    title = document.title or PurePosixPath(path).name
    return replace(document, title=title, service=document.service or service_of(path))


def _structured(path: str, text: str, language: str) -> ParsedDocument:
    from kiwi_rag.formats.documents import structured
    from kiwi_rag.formats.documents.text import malformed
    from kiwi_rag.formats.outcome import MalformedSource

    try:
        return structured.parse(text, language)
    except MalformedSource as error:
        return malformed(path, text, language.upper(), error.message, error.line)


def _parser(form: str) -> Callable[[str, str], ParsedDocument]:
    """Return the function that reads a form; imported here, as few files need tree-sitter."""
    parser: Callable[[str, str], ParsedDocument] = import_module(f"{__name__}.{form}").parse
    return parser
