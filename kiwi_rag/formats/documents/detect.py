"""What a file is: its content decides, its name is a hint where the content allows several answers.

Every look is at the beginning of a text, or at its headings, and linear.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from kiwi_rag.formats.documents.adr import is_decision_record

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
    return "adr" if is_decision_record(path, text) else "markdown"
