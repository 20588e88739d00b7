"""Step 6: hidden instructions, which are text that an agent reads and a person does not see.

The Markdown is parsed, then the HTML in it, then the CSS in that. What the rendered page does not show is a finding if
it reads like an instruction: comments, elements that a style hides or a browser does not show, attributes, link
definitions and footnotes without a use, what follows the language of a code block. So are link targets that are
programs or data. All else that is shown passes, even if it quotes an attack, and so does all text in code.

Every scan here is linear in the length of the text, because the text may be hostile.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from kiwi_rag.formats.documents import CODE_TYPES
from kiwi_rag.formats.elements import unescape
from kiwi_rag.formats.outcome import line_starts
from kiwi_rag.model import Finding, Severity
from kiwi_rag.validation import page
from kiwi_rag.validation.checks import MAX_FINDINGS
from kiwi_rag.validation.instructions import PROSE, instructs
from kiwi_rag.validation.page import Unseen

# What a reader of Markdown does not see depends on its markup. A reader of source code sees all of it.
MARKDOWN = ("markdown", "adr", "mdx")
# Source code, schemas included: nothing renders it, so its reader sees its comments, and "<!--" in a string.
_CODE = frozenset({
    *(".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".kt"),
    *(".kts", ".scala", ".rb", ".php", ".pl", ".sh", ".bash", ".zsh", ".ps1", ".sql", ".swift", ".lua", ".r", ".dart"),
    *(".groovy", ".gradle", ".css", ".scss", ".less", ".proto", ".tf", ".ex", ".exs", ".clj", ".hs", ".ml", ".m"),
    *(".java", ".py", ".pyi", ".pyw", ".xsd", ".dtd"),
})  # fmt: skip
MAX_SPANS = 2_000
"""Hidden places in a text that are listed one by one; all text after them is one more."""

# Comments that control a tool, or are notes of an author: linters, tables of contents, licences, generated regions.
_MARK = re.compile(
    r"\W*+(?:toc|tocstop|more|truncate|markdownlint|prettier|textlint|vale|cspell|spell-?checker|lint|eslint|remark"
    r"|doctoc|omit in toc|no-toc|dprint|mdformat|mdx|embedme|vim:|SPDX-|Copyright|SECTION|REGION|endregion|BEGIN|END"
    r"|START|all-contributors|AUTO-?GENERATED|readme|badges?|TODO|FIXME|XXX|HACK|NOTE|WIP|generated|this (?:file|page|"
    r"section|table|list|block) (?:is|was)|YAML|[\w-]+=|(?:[\w-]+:){1,4}(?:start|begin|end)\Z)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{2,}")
_HTML_SUFFIXES = (".html", ".htm", ".xhtml", ".xml", ".svg", ".vue")
# JSON may escape the brackets.
_BEGIN_COMMENT = re.compile(r"(?:<|\\u003[cC])!--")
_END_COMMENT = re.compile(r"--(?:>|\\u003[eE])")
_LINE_END = re.compile(r"[\n\"]")
_TARGET = re.compile(
    r"\]\([ \t]*<?|^ {0,3}\[[^\]\n]{1,200}\]:[ \t]*<?|<(?=[A-Za-z&])|\b(?:href|src|action)[ \t]*=[ \t]*[\"']?",
    re.MULTILINE | re.IGNORECASE,
)
_TARGET_END = re.compile(r"[\s)>\"']")
_SCHEME = re.compile(r"(javascript|vbscript|data):", re.IGNORECASE)
# The first characters of such a target: its letters, an entity, or white space that renderers drop. A cheap test, as
# almost no link passes it.
_SCHEME_START = re.compile(r"[\s\x00-\x20&]|[jvd][\s\x00-\x20&ab]", re.IGNORECASE)
_RASTER = re.compile(r"data:image/(?:png|jpe?g|gif|webp|avif)[;,]", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{[^}]{1,80}\}|%7B|\$\(|<[a-z_ ]{1,40}", re.IGNORECASE)

_VISIBLE = "write it as visible text, or remove it"
# Code of an instruction: what it stands in, code of the warning about other text, hint.
_MESSAGES = {
    "hidden.comment-instruction": ("an HTML comment", "hidden.comment", _VISIBLE),
    "hidden.element": ("a hidden element", "hidden.element", "make it visible, or remove it"),
    "hidden.attribute": ("an attribute, a title or a label", "", _VISIBLE),
    "hidden.definition": ("a link or footnote that is not used", "", "use it in the text, or remove it"),
    "hidden.image": ("the alternative text of an image", "", "shorten it to what the image shows"),
}


class Span(NamedTuple):
    """The offsets of something hidden, and the finding about it."""

    start: int
    end: int
    finding: Finding


def check_injection(text: str, path: str = "", file_type: str = "markdown") -> list[Finding]:
    """Return what in a file is hidden from its reader and may speak to an agent."""
    return [span.finding for span in spans(text, path, file_type)[:MAX_FINDINGS]]


def spans(text: str, path: str = "", file_type: str = "markdown") -> list[Span]:
    """Return everything in a text that is hidden from its reader.

    In Markdown and HTML, what may instruct an agent is an error, a longer other comment or element a warning. In other
    formats only HTML comments that may instruct an agent are hidden, and in source code nothing is.
    """
    if file_type in MARKDOWN:
        unseen, visible = page.unseen_in_markdown(text, path.lower().endswith(".mdx"))
        return _listed(text, path, _judged(unseen), _target_spans(visible), _image_spans(visible))
    if file_type == "html":
        return _listed(text, path, _judged(page.unseen_in_html(text)))
    if file_type in CODE_TYPES or PurePosixPath(path).suffix.lower() in _CODE:
        return []
    return _listed(text, path, _judged(_all_comments(text, path)))


def _judged(unseen: Iterable[Unseen]) -> Iterator[Span]:
    """Yield a finding for what reads like an instruction, and warnings about longer comments and hidden elements."""
    for start, end, code, text, least in unseen:
        words = " ".join(text.split())
        what, warned, hint = _MESSAGES[code]
        is_mark = code == "hidden.comment-instruction" and _MARK.match(words)
        if instructs(words, PROSE if is_mark else least):
            message = f"{what} that may instruct an agent: {words[:60]!r}"
            yield Span(start, end, Finding(code, message, hint=hint))
        elif warned and least < PROSE and not is_mark and len(_WORD.findall(words)) >= 4:
            message = f"{what} that a reader does not see: {words[:60]!r}"
            yield Span(start, end, Finding(warned, message, hint=hint, severity="warning"))


def _all_comments(text: str, path: str) -> Iterator[Unseen]:
    """Yield the HTML comments in a text of any format.

    An unclosed comment reaches to the end of the text in HTML. In other formats it is visible, so it is taken to reach
    to the end of its line.
    """
    closed, last = True, 0
    for match in _BEGIN_COMMENT.finditer(text):
        if match.start() < last:
            continue
        end = _END_COMMENT.search(text, match.end()) if closed else None
        closed = end is not None
        last = end.end() if end else _end_of_open(text, match.end(), path)
        words = text[match.end() : end.start() if end else last]
        yield Unseen(match.start(), last, "hidden.comment-instruction", words)


def _end_of_open(text: str, position: int, path: str) -> int:
    end = None if path.lower().endswith(_HTML_SUFFIXES) else _LINE_END.search(text, position)
    return end.start() if end else len(text)


def _listed(text: str, path: str, *kinds: Iterator[Span]) -> list[Span]:
    """Return the spans of every kind with their lines: at most `MAX_SPANS` errors and `MAX_FINDINGS` warnings a kind.

    If there are more errors, one more span covers all text after them.
    """
    found: list[Span] = []
    end = len(text)
    for kind in kinds:
        errors = 0
        for number, span in enumerate(kind):
            errors += span.finding.is_error
            if errors > MAX_SPANS:
                end = min(end, span.start)
                break
            if span.finding.is_error or number < MAX_FINDINGS:
                found.append(span)
    found = [span for span in found if span.start < end]
    if end < len(text):
        message = f"the file has more than {MAX_SPANS:,} hidden places; all text after them counts as one"
        found.append(Span(end, len(text), Finding("hidden.rest", message, hint="make the text visible")))
    starts = line_starts(text) if found else []
    return [
        Span(start, end, replace(finding, line=bisect_right(starts, start), path=path)) for start, end, finding in found
    ]


def _target_spans(visible: str) -> Iterator[Span]:
    last = 0
    for match in _TARGET.finditer(visible):
        if match.start() < last or not _SCHEME_START.match(visible, match.end()):
            continue
        # Renderers decode entities and drop white space before they read the scheme.
        target = re.sub(r"[\s\x00-\x20]+", "", unescape(visible[match.end() : match.end() + 120]))
        if scheme := _SCHEME.match(target):
            severity: Severity = "warning" if _RASTER.match(target) else "error"
            message = f"a link or image whose target is {scheme[1].lower()}:"
            end = _TARGET_END.search(visible, match.end())
            last = end.start() if end else len(visible)
            hint = "link to a file or an https address"
            yield Span(match.start(), last, Finding("hidden.link", message, hint=hint, severity=severity))


def _image_spans(visible: str) -> Iterator[Span]:
    for match in page.IMAGE.finditer(visible):
        if match[2] and _PLACEHOLDER.search(match[2]):
            message = "a remote image whose address has a placeholder, which sends text away"
            yield Span(match.start(), match.end(), Finding("hidden.image", message, hint="use a fixed address"))
