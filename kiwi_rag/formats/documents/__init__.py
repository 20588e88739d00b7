"""A workspace's files → sections with true line ranges. One module a format; the content decides which.

Parsing never raises for bad content: what cannot be read as its format becomes plain text, with a warning. What a file
is, its content decides; its name is a hint where the content allows several answers. Every look is at the beginning of
a text, or at its headings, and linear.

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

import re
from dataclasses import replace
from importlib import import_module
from pathlib import PurePosixPath

from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument
from kiwi_rag.model import Finding

FILE_TYPES = ("markdown", "adr", "openapi", "asyncapi", "yaml", "json", "java", "python", "plantuml", "text")
_MODULES = {"adr": "markdown", "json": "structured", "yaml": "structured", "plantuml": "text"}
_NAMES = {"json": "JSON", "yaml": "YAML"}
_HEAD = 65_536
_FORMS = {
    suffix: form
    for form, suffixes in {
        "markdown": ".md .markdown .mdown .mdx .mkd",
        "python": ".py .pyi .pyw",
        "plantuml": ".puml .plantuml .iuml .pu .wsd",
        "json": ".json .jsonc .json5 .jsonl .ndjson .geojson .jsonld .webmanifest .code-workspace",
        "yaml": ".yaml .yml",
        "java": ".java",
    }.items()
    for suffix in suffixes.split()
}
# Suffixes that say little: what is inside is looked for.
_OPEN = frozenset({"", ".txt", ".text", ".spec", ".template", ".tmpl", ".example", ".sample", ".bak", ".orig"})

_DIAGRAM = re.compile(r"\s*(?:'[^\n]*\n\s*)*@start[a-z]+\b")
_JAVA = re.compile(
    r"^[ \t]*(?:package[ \t]+[\w.]+[ \t]*;|import[ \t]+(?:static[ \t]+)?[\w.*]+[ \t]*;"
    r"|(?:(?:public|abstract|final|sealed|strictfp|open)[ \t]+)*"
    r"(?:class|interface|enum|record|@interface|module)[ \t]+\w)",
    re.MULTILINE,
)
_SHEBANG = re.compile(r"#![^\n]*\bpython[\d.]*\b")
_KEY = re.compile(
    r"(?:---[^\n]*\n|%YAML[^\n]*\n|[ \t]*\n|[ \t]*#[^\n]*\n)*+[\"']?[\w$][\w.$-]*[\"']?[ ]?:(?:[ \t]|\n|$)"
)
_API = re.compile(r"^[\"']?(?:openapi|swagger|asyncapi)[\"']?:[ \t]*[\"']?\d", re.MULTILINE)
_JSON_START = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[\[{\"\]])")
_TITLE = re.compile(r"\s*# \S")
_SUBTITLE = re.compile(r"^## \S", re.MULTILINE)
_SERVICE = re.compile(r"svc-[a-z0-9]+(?:[-_][a-z0-9]+)*", re.IGNORECASE)


def parse(path: str, text: str) -> ParsedDocument:
    """Return the sections of `text`, the file at `path` below its root; the text decides its format.

    Bad content never raises: a file that cannot be read as what it is becomes ``text``, with one finding of severity
    ``warning`` and code ``document.malformed`` that names the line, or ``document.large``.
    """
    return parse_as(path, text, detect(path, text))


def parse_as(path: str, text: str, form: str) -> ParsedDocument:
    """Return the sections of `text`, read as `form`, one of those that `detect` returns."""
    try:
        document = _read(text, form)
    except MalformedSource as error:
        document = _plain(path, text, form, error)
    return replace(
        document,
        title=document.title or PurePosixPath(path).name,
        service=document.service or service_of(path),
        findings=tuple(replace(finding, path=path) for finding in document.findings),
    )


def _read(text: str, form: str) -> ParsedDocument:
    # Imported here, as few files need tree-sitter.
    document: ParsedDocument = import_module(f"{__name__}.{_MODULES.get(form, form)}").parse(text, form)
    return document


def _plain(path: str, text: str, form: str, error: MalformedSource) -> ParsedDocument:
    """Return a text that cannot be read in its form as plain text, with a warning; Markdown stays Markdown."""
    name, hint = _NAMES.get(form, form.title()), f"leave it out with a line in .kiwiignore: {path}"
    if error.code == "document.large":
        code, message = error.code, f"the file has over {error} of {name}, so it is indexed as plain text"
        hint = f"split it, or {hint}"
    else:
        code, message = "document.malformed", f"the file is not {name}, so it is indexed as plain text: {error}"
        hint = f"correct the file, or {hint}"
    finding = Finding(code, message, error.line, hint=hint, severity="warning")
    file_type = "markdown" if form in {"markdown", "adr"} else "text"
    return replace(_read(text, "text"), file_type=file_type, title="", findings=(finding,))


def is_python(path: str, text: str) -> bool:
    """Return whether Python would run a file: by its suffix, or by its first line."""
    return _FORMS.get(PurePosixPath(path).suffix.lower()) == "python" or _SHEBANG.match(text) is not None


def is_markdown(path: str) -> bool:
    """Return whether a file is read as Markdown because of its suffix, whatever it contains."""
    return _FORMS.get(PurePosixPath(path).suffix.lower()) == "markdown"


def detect(path: str, text: str) -> str:
    """Return how `text` is to be read: as ``markdown``, ``adr``, ``yaml``, ``json``, ``java``, ``python``, ``plantuml``
    or ``text``. Whether YAML or JSON is an OpenAPI or AsyncAPI description shows once it is read.
    """
    suffix = PurePosixPath(path).suffix.lower()
    form, head = _FORMS.get(suffix, ""), text[:_HEAD]
    if form == "markdown":  # whatever it begins with: what it hides is looked for as Markdown hides it
        return _prose(path, text)
    if form == "plantuml" or _DIAGRAM.match(head):
        return "plantuml"
    if form == "json" and _KEY.match(head):
        return "yaml"
    if form == "java" and not _JAVA.search(head):
        return "text"
    # What follows the last dot of a name such as "notes-1.2" is no suffix.
    is_open = suffix in _OPEN or suffix[1:].isdigit()
    return form or (_by_content(path, text, head) if is_open else "text")


def service_of(path: str) -> str:
    """Return the service that a path names: its last folder or file name of the form ``svc-…``, without suffixes."""
    parts = [part.split(".", 1)[0] for part in reversed(PurePosixPath(path).parts)]
    return next((part for part in parts if _SERVICE.fullmatch(part)), "")


def _by_content(path: str, text: str, head: str) -> str:
    if _SHEBANG.match(head):
        return "python"
    if _JSON_START.match(head) and text[-_HEAD:].rstrip()[-1:] in {"}", "]"}:
        return "json"
    if _KEY.match(head) and (head.startswith("---") or _API.search(head)):
        return "yaml"
    if _TITLE.match(head) and _SUBTITLE.search(head):
        return _prose(path, text)
    return "text"


def _prose(path: str, text: str) -> str:
    from kiwi_rag.formats.documents.markdown import is_decision_record

    return "adr" if is_decision_record(path, text) else "markdown"
