"""A workspace's files → sections with true line ranges. One module a format; the content decides which.

Parsing never raises for bad content: what cannot be read as its format becomes plain text, with a warning. What a file
is, its content decides; its name is a hint where the content allows several answers. Every look is at the beginning of
a text, or at its headings, and linear.

| file type | kinds of section |
| --- | --- |
| markdown, rst, html, asciidoc, notebook | section |
| adr | context, drivers, options, decision, consequences, section |
| openapi | info, endpoint, schema, definition |
| asyncapi | info, channel, message, schema, definition |
| yaml, json | definition |
| java | class, method, field |
| python | module, class, function |
| every other of `CODE_TYPES` (TSX is typescript, JSX javascript) | module, class, method, function, field |
| plantuml | diagram |
| exchange | turn |
| text | text |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import PurePosixPath

from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument, Stretch, flat, one_line
from kiwi_rag.model import Finding

CODE_TYPES = (
    *("c", "cpp", "csharp", "go", "java", "javascript", "kotlin", "php", "python", "ruby", "rust", "shell", "sql"),
    *("swift", "typescript"),
)
"""The file types that are source code."""
FILE_TYPES = (
    *("markdown", "adr", "openapi", "asyncapi", "yaml", "json", *CODE_TYPES, "plantuml", "text"),
    *("rst", "html", "asciidoc", "notebook"),
)
WRITTEN = {"mdx": "markdown", "rst": "text", "html": "text", "asciidoc": "text", "notebook": "json", "exchange": "json"}
"""The forms whose readers do not see the lines of the file, and those in which these lines are read as they stand."""
_MODULES = {"adr": "markdown", "json": "structured", "yaml": "structured"} | dict.fromkeys((*CODE_TYPES, "tsx"), "code")
_NAMES = {
    **{"json": "JSON", "yaml": "YAML", "rst": "reStructuredText", "html": "HTML", "asciidoc": "AsciiDoc"},
    **{"mdx": "MDX", "notebook": "a notebook", "exchange": "an exchange"},
    **{"cpp": "C++", "csharp": "C#", "javascript": "JavaScript", "php": "PHP"},
    **{"sql": "SQL", "tsx": "TypeScript", "typescript": "TypeScript"},
}
_TITLE_AT_MOST = 80
_START = re.compile(r"\s*@start[a-z]+\b[ \t]*(.*)", re.IGNORECASE)
_END = re.compile(r"\s*@end[a-z]+\b", re.IGNORECASE)
_DIAGRAM_TITLE = re.compile(r"\s*title[ \t]+(.+)", re.IGNORECASE)
_MARKUP = re.compile(r"<[^<>]*>|\*\*|//|__|==|\"")

_HEAD = 65_536
_FORMS = {
    suffix: form
    for form, suffixes in {
        "markdown": ".md .markdown .mdown .mkd",
        "python": ".py .pyi .pyw",
        "plantuml": ".puml .plantuml .iuml .pu .wsd",
        "json": ".json .jsonc .json5 .jsonl .ndjson .geojson .jsonld .webmanifest .code-workspace",
        "yaml": ".yaml .yml",
        "java": ".java",
        "mdx": ".mdx",
        "rst": ".rst .rest",
        "html": ".html .htm .xhtml",
        "asciidoc": ".adoc .asciidoc .asc",
        "notebook": ".ipynb",
        "exchange": ".exchange",
        "typescript": ".ts .mts .cts",
        "tsx": ".tsx",
        "javascript": ".js .mjs .cjs .jsx .es6",
        "go": ".go",
        "rust": ".rs",
        "c": ".c .h",
        "cpp": ".cpp .cc .cxx .c++ .hpp .hh .hxx .h++ .ipp .inl .tpp .cu .cuh .ino",
        "csharp": ".cs .csx",
        "ruby": ".rb .rake .gemspec .ru",
        "php": ".php .phtml .php5",
        "kotlin": ".kt .kts",
        "swift": ".swift",
        "sql": ".sql .ddl",
        "shell": ".sh .bash .zsh .ksh .bats",
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
_SHEBANG = re.compile(
    r"#![^\n]*?\b(?:(python)[\d.]*|(ts-node|tsx|deno)|(node|nodejs|bun)|(ruby)|(php)|(swift)|(?:ba|z|k|da)?sh)\b"
)
_SHEBANG_FORMS = ("shell", "python", "typescript", "javascript", "ruby", "php", "swift")
# What only C++ has, in a header that either language may have.
_CPP = re.compile(
    r"^[ \t]*(?:class[ \t]+\w|namespace\b|template[ \t]*<|using[ \t]+\w|(?:public|private|protected):)", re.MULTILINE
)
_KEY = re.compile(
    r"(?:---[^\n]*\n|%YAML[^\n]*\n|[ \t]*\n|[ \t]*#[^\n]*\n)*+[\"']?[\w$][\w.$-]*[\"']?[ ]?:(?:[ \t]|\n|$)"
)
_API = re.compile(r"^[\"']?(?:openapi|swagger|asyncapi)[\"']?:[ \t]*[\"']?\d", re.MULTILINE)
_JSON_START = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[\[{\"\]])")
_TITLE = re.compile(r"\s*# \S")
_SUBTITLE = re.compile(r"^## \S", re.MULTILINE)
_ASCIIDOC = re.compile(r"^={1,3} \S", re.MULTILINE)
_RST = re.compile(r"^([=\-~^*#+\"])\1{2,}[ \t]*$", re.MULTILINE)
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
        if form in {"plantuml", "text"}:
            document = _plain(text, form)
        else:  # imported here, as few files need tree-sitter
            document = import_module(f"{__name__}.{_MODULES.get(form, form)}").parse(text, form)
    except MalformedSource as error:
        document = _unreadable(path, text, form, error)
    return replace(
        document,
        title=document.title or PurePosixPath(path).name,
        service=document.service or service_of(path),
        findings=tuple(replace(finding, path=path) for finding in document.findings),
    )


def _unreadable(path: str, text: str, form: str, error: MalformedSource) -> ParsedDocument:
    """Return a text that cannot be read in its form as plain text, with a warning; Markdown stays Markdown."""
    name, hint = _NAMES.get(form, form.title()), f"leave it out with a line in .kiwiignore: {path}"
    if error.code == "document.large":
        code, message = error.code, f"the file has over {error} of {name}, so it is indexed as plain text"
        hint = f"split it, or {hint}"
    elif error.code == "document.grammar":
        code, message = error.code, f"{error} is not installed as required, so {name} is indexed as plain text"
        hint = f"install it: pip install {error}; then kiwi workspace index --rebuild"
    else:
        code, message = "document.malformed", f"unreadable as {name}, so it is indexed as plain text: {error}"
        hint = f"correct the file if it is invalid, or {hint}"
    finding = Finding(code, message, error.line, hint=hint, severity="warning")
    file_type = "markdown" if form in {"markdown", "adr", "mdx"} else "text"
    return replace(_plain(text, "text"), file_type=file_type, title="", findings=(finding,))


def _plain(text: str, form: str) -> ParsedDocument:
    """Return plain text as one section, or PlantUML as one for each diagram, under its title, else its name.

    The title of a plain text is the first line if that looks like a title. A text without ``@start`` is one diagram.
    See https://plantuml.com/commons for titles and names of diagrams.
    """
    lines = text.split("\n")
    if form == "plantuml":
        diagrams = flat(lines, _diagrams(lines))
        return ParsedDocument(form, next((each.heading[0] for each in diagrams if each.heading), ""), diagrams)
    found = flat(lines, [Stretch("text", 1, len(lines))])
    return ParsedDocument(form, _title(found[0].text.split("\n", 1)) if found else "", found)


def _title(parts: list[str]) -> str:
    """Return the first line where it is short, begins like a title and stands apart from what follows; else empty."""
    first, rest = parts[0].strip(), parts[1] if len(parts) > 1 else ""
    apart = not rest.split("\n", 1)[0].strip(" =-~*#")
    return first if apart and first[:1].isalnum() and len(first) <= _TITLE_AT_MOST else ""


def _diagrams(lines: Sequence[str]) -> Iterator[Stretch]:
    begin = 1
    for end in _ends(lines):
        title = _diagram_title(lines[begin - 1 : end])
        yield Stretch("diagram", begin, end, (title,) if title else ())
        begin = end + 1


def _ends(lines: Sequence[str]) -> list[int]:
    """Return the last line of each diagram, of an unclosed one that before the next; the last one takes the rest."""
    ends: list[int] = []
    is_open = False
    for number, line in enumerate(lines, start=1):
        starts = _START.match(line) is not None
        if is_open and (starts or _END.match(line)):
            ends.append(number - starts)
            is_open = False
        is_open |= starts
    # What follows the last end belongs to that diagram.
    return [*(ends if is_open else ends[:-1]), len(lines)]


def _diagram_title(lines: Sequence[str]) -> str:
    titles = (match[1] for line in lines if (match := _DIAGRAM_TITLE.match(line)))
    names = (match[1] for line in lines if (match := _START.match(line)))
    found = next(titles, "") or next(names, "")
    return one_line(_MARKUP.sub(" ", found.replace("\\n", " ")))


def is_python(path: str, text: str) -> bool:
    """Return whether Python would run a file: by its suffix, or by its first line."""
    return _FORMS.get(PurePosixPath(path).suffix.lower()) == "python" or _interpreted(text) == "python"


def _interpreted(text: str) -> str:
    """Return the form that the first line of a script names, or nothing."""
    match = _SHEBANG.match(text)
    return _SHEBANG_FORMS[match.lastindex or 0] if match else ""


def detect(path: str, text: str) -> str:
    """Return how `text` is to be read: as ``markdown``, ``adr``, ``yaml``, ``json``, one of `CODE_TYPES`, ``tsx``,
    ``plantuml``, ``text`` or one of `WRITTEN`. Whether YAML or JSON is an OpenAPI or AsyncAPI description shows once it
    is read.
    """
    suffix = PurePosixPath(path).suffix.lower()
    form, head = _FORMS.get(suffix, ""), text[:_HEAD]
    if form == "markdown":  # whatever it begins with: what it hides is looked for as Markdown hides it
        return _prose(path, text)
    if form == "plantuml" or _DIAGRAM.match(head):
        return "plantuml"
    if form == "json" and _KEY.match(head):
        return "yaml"
    if _belies(suffix, form, head):
        return "text"
    if suffix == ".h" and _CPP.search(head):
        return "cpp"
    # What follows the last dot of a name such as "notes-1.2" is no suffix.
    is_open = suffix in _OPEN or suffix[1:].isdigit()
    return form or (_by_content(path, text, head) if is_open else "text")


def _belies(suffix: str, form: str, head: str) -> bool:
    """Whether a text is not what its suffix says: keys and signatures end in .asc, translations of Qt in .ts."""
    return (
        (form == "java" and not _JAVA.search(head))
        or (form == "typescript" and head.lstrip()[:2] in {"<?", "<!"})
        or (suffix == ".asc" and not _ASCIIDOC.search(head))
    )


def service_of(path: str) -> str:
    """Return the service that a path names: its last folder or file name of the form ``svc-…``, without suffixes."""
    parts = [part.split(".", 1)[0] for part in reversed(PurePosixPath(path).parts)]
    return next((part for part in parts if _SERVICE.fullmatch(part)), "")


def _by_content(path: str, text: str, head: str) -> str:
    if form := _interpreted(head):
        return form
    if _JSON_START.match(head) and text[-_HEAD:].rstrip()[-1:] in {"}", "]"}:
        return "json"
    if _KEY.match(head) and (head.startswith("---") or _API.search(head)):
        return "yaml"
    if _TITLE.match(head) and _SUBTITLE.search(head):
        return _prose(path, text)
    return "rst" if _RST.search(head) and _is_rst(head) else "text"


def _is_rst(head: str) -> bool:
    from kiwi_rag.formats.documents.rst import is_rst

    return is_rst(head)


def _prose(path: str, text: str) -> str:
    from kiwi_rag.formats.documents.markdown import is_decision_record

    return "adr" if is_decision_record(path, text) else "markdown"
