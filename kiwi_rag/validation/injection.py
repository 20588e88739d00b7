"""Step 6: hidden instructions, which are text that an agent reads and a person does not see.

In Markdown these are comments, elements that are styled away, alternative texts of remote images, and link targets that
are programs or data. Code blocks, code spans and prose are visible, so they pass, even if they quote an attack.

Every scan here is linear in the length of the text, because the text may be hostile.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from kiwi_rag.formats import elements, markdown
from kiwi_rag.formats.documents import CODE_TYPES
from kiwi_rag.formats.outcome import line_starts
from kiwi_rag.model import Finding, Severity
from kiwi_rag.validation.checks import MAX_FINDINGS

# What a reader of Markdown does not see depends on its markup. A reader of source code sees all of it.
MARKDOWN = ("markdown", "adr", "mdx")
# Source code: "<!--" in it is part of a string, which its reader sees.
_CODE = frozenset({
    *(".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".kt"),
    *(".kts", ".scala", ".rb", ".php", ".pl", ".sh", ".bash", ".zsh", ".ps1", ".sql", ".swift", ".lua", ".r", ".dart"),
    *(".groovy", ".gradle", ".css", ".scss", ".less", ".proto", ".tf", ".ex", ".exs", ".clj", ".hs", ".ml", ".m"),
    *(".java", ".py", ".pyi", ".pyw"),
})  # fmt: skip
MAX_SPANS = 2_000
"""Hidden places in a text that are listed one by one; all text after them is one more."""
_LONG_ALT = 25

_INSTRUCTION = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|pretend|obey|comply|instructions?|system prompt|prompt|jailbreak"
    r"|you (?:are|must|should|will|can|may|have|need)|your (?:task|role|job|user|tools?|rules?|system)"
    r"|must|always|never|do not|don't|stop here|assistants?|agents?|llms?|claude|chatgpt|gpt|copilot|gemini|ai"
    r"|tell|say|reply|respond|answer|output|print|reveal|leak|exfiltrate|send|post|upload|forward|email|fetch|download"
    r"|execute|run|call|invoke|install|curl|wget|bash|eval|delete|remove|drop|rm|overwrite"
    r"|user|secret|secrets|password|passwords|token|tokens|credentials?|api keys?|private keys?)\b",
    re.IGNORECASE,
)
# Comments that control a tool: linters, tables of contents, licences, generated regions.
_TOOL_MARK = re.compile(
    r"(?:/?(?:toc|tocstop|more|truncate|markdownlint|prettier|textlint|vale|cspell|spell-?checker|lint|eslint|remark"
    r"|doctoc|omit in toc|no-toc|dprint|mdformat|mdx|embedme|vim:|-\*-|SPDX-|Copyright|SECTION|REGION|endregion"
    r"|BEGIN|END|START|all-contributors|AUTO-GENERATED|readme|badges?))\b[^\n]{0,80}$",
    re.IGNORECASE,
)
# Words in such comments that look like instructions: what the tool is to do, and what the region contains.
_TOOL_WORDS = re.compile(
    r"\b(?:do not|don't|must not|never) (?:edit|remove|modify|change|delete|touch)\b|\b(?:please )?keep comment here\b"
    r"|[-:.](?:ignore|delete|remove)\b|\b(?:users?|secrets?|passwords?|tokens?|credentials?|api keys?|private keys?"
    r"|tools?|rules?|output|ai|agents?)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{2,}")
# CommonMark §6.6: comments, processing instructions, CDATA and declarations; and comments of MDX.
_OPENER = re.compile(r"`+|<!--|<\?|<!\[CDATA\[|<![A-Za-z]", re.IGNORECASE)
_OPENER_MDX = re.compile(rf"{_OPENER.pattern}|\{{[ \t]*/\*", re.IGNORECASE)
_CLOSING = {"<!--": "-->", "<?": "?>", "<![CDATA[": "]]>"}
_HTML_SUFFIXES = (".html", ".htm", ".xhtml", ".xml", ".svg", ".vue")
# JSON may escape the brackets.
_BEGIN_COMMENT = re.compile(r"(?:<|\\u003[cC])!--")
_END_COMMENT = re.compile(r"--(?:>|\\u003[eE])")
_LINE_END = re.compile(r"[\n\"]")
_TICKS = re.compile(r"`+")
_NOTE = re.compile(
    r"^ {0,3}\[(?:[^\]\n]{1,80}\]:[ \t]*+\n?[ \t]*+(?:#|<>)|[^\]\w\n^]{1,20}\]:[ \t]*+\n?[ \t]*+[^\s\"'(]++)"
    r"[ \t]*+\n?[ \t]*+[\"'(]([^\n]*)",
    re.MULTILINE,
)
_NOTE_END = re.compile(r"[\"')][ \t]*$", re.MULTILINE)
_LONGEST_NOTE = 1_000
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
# No part of an image reaches into the next one, so each character is scanned once.
_IMAGE = re.compile(
    r"!\[((?:[^\]!]|!(?!\[)){0,2000}+)\]\([ \t]*+<?((?:https?:)?//(?:[^\s)>!]++|!(?!\[))++)>?"
    r"(?:[ \t]++[\"'(]((?:[^\n!]|!(?!\[)){0,1000}?)[\"')])?[ \t]*\)",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\{[^}]{1,80}\}|%7B|\$\(|<[a-z_ ]{1,40}", re.IGNORECASE)


class Span(NamedTuple):
    """The offsets of something hidden, and the finding about it."""

    start: int
    end: int
    finding: Finding


_Comment = tuple[int, int, str]
"""Start and end offset of a comment, or of a link definition that renders as nothing; and what it says."""


def check_injection(text: str, path: str = "", file_type: str = "markdown") -> list[Finding]:
    """Return what in a file is hidden from its reader and may speak to an agent."""
    return [span.finding for span in spans(text, path, file_type)[:MAX_FINDINGS]]


def spans(text: str, path: str = "", file_type: str = "markdown") -> list[Span]:
    """Return everything in a text that is hidden from its reader.

    A comment in Markdown that reads like a note to other writers is a warning, everything else an error. In other
    formats only HTML comments that may instruct an agent are hidden, and in source code nothing is.
    """
    if file_type in MARKDOWN:
        visible, comments = _reader_view(text, path)
        scanners = [_element_spans(visible), _target_spans(visible), _image_spans(visible)]
        return _listed(text, path, _comment_spans(comments), _comment_spans(_notes(visible)), *scanners)
    if file_type in CODE_TYPES or PurePosixPath(path).suffix.lower() in _CODE:
        return []
    return _listed(text, path, _comment_spans(_all_comments(text, path)))


def _all_comments(text: str, path: str) -> Iterator[_Comment]:
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
        yield match.start(), last, text[match.end() : end.start() if end else last]


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


def _comment_spans(comments: Iterable[_Comment]) -> Iterator[Span]:
    for start, end, text in comments:
        words = " ".join(text.split())
        count = len(_WORD.findall(words))
        # A comment that controls a tool and contains no other instruction is none.
        is_tool_mark = _TOOL_MARK.match(words) and not _INSTRUCTION.search(_TOOL_WORDS.sub(" ", words))
        if not count or is_tool_mark:
            continue
        hint = "write it as visible text, or remove it"
        if _INSTRUCTION.search(words):
            message = f"an HTML comment that may instruct an agent: {words[:60]!r}"
            yield Span(start, end, Finding("hidden.comment-instruction", message, hint=hint))
        elif count >= 4:
            message = f"an HTML comment that a reader does not see: {words[:60]!r}"
            yield Span(start, end, Finding("hidden.comment", message, hint=hint, severity="warning"))


def _notes(visible: str) -> Iterator[_Comment]:
    """Yield the link definitions that render as nothing; a title may continue on further lines, up to a blank one."""
    last = 0
    for match in _NOTE.finditer(visible):
        if match.start() < last:
            continue
        last = match.end()
        if not _NOTE_END.search(match[1]):
            blank = visible.find("\n\n", last, last + _LONGEST_NOTE)
            found = _NOTE_END.search(visible, last, blank if blank >= 0 else last + _LONGEST_NOTE)
            last = found.end() if found else last
        yield match.start(), last, visible[match.start(1) : last].rstrip("\"') \t")


def _element_spans(visible: str) -> Iterator[Span]:
    for element in elements.unseen(visible, MAX_SPANS + 1):
        body = visible[element.start : element.end]
        if element.is_styled or _INSTRUCTION.search(body):
            what = "is styled away" if element.is_styled else "a reader does not see, and that may instruct an agent"
            message, hint = f"an element that {what}: {body[:60]!r}", "make it visible, or remove it"
            yield Span(element.start, element.end, Finding("hidden.element", message, hint=hint))


def _target_spans(visible: str) -> Iterator[Span]:
    last = 0
    for match in _TARGET.finditer(visible):
        if match.start() < last or not _SCHEME_START.match(visible, match.end()):
            continue
        # Renderers decode entities and drop white space before they read the scheme.
        target = re.sub(r"[\s\x00-\x20]+", "", html.unescape(visible[match.end() : match.end() + 120]))
        if scheme := _SCHEME.match(target):
            severity: Severity = "warning" if _RASTER.match(target) else "error"
            message = f"a link or image whose target is {scheme[1].lower()}:"
            end = _TARGET_END.search(visible, match.end())
            last = end.start() if end else len(visible)
            hint = "link to a file or an https address"
            yield Span(match.start(), last, Finding("hidden.link", message, hint=hint, severity=severity))


def _image_spans(visible: str) -> Iterator[Span]:
    for match in _IMAGE.finditer(visible):
        words = f"{match[1]} {match[3] or ''}"
        count = len(_WORD.findall(words))
        if count > _LONG_ALT or (count > 6 and _INSTRUCTION.search(words)):
            what, hint = "alternative text may instruct an agent", "shorten it to what the image shows"
        elif _PLACEHOLDER.search(match[2]):
            what, hint = "address has a placeholder, which sends text away", "use a fixed address"
        else:
            continue
        yield Span(match.start(), match.end(), Finding("hidden.image", f"a remote image whose {what}", hint=hint))


def _reader_view(text: str, path: str) -> tuple[str, list[_Comment]]:
    """Return `text` with fences, code spans, comments and signature lines blanked (offsets stay), and the comments.

    A text that is too large to be read as Markdown has no fences and no code spans here, so nothing in it is exempt.
    """
    offsets = [*line_starts(text), len(text)]
    position = offsets[markdown.signature_lines(markdown.split_lines(text))]
    pieces = [_blank(text[:position])]
    opener = _OPENER_MDX if path.lower().endswith(".mdx") else _OPENER
    comments: list[_Comment] = []
    is_large = markdown.is_large(text)
    for block in (*(() if is_large else markdown.outline(text).blocks), None):
        start, end = (offsets[block.start_line - 1], offsets[block.end_line]) if block else (len(text), len(text))
        prose = text[position:start]
        pieces.append(_inline_view(prose, position, comments, opener, {} if is_large else _closing_runs(prose)))
        if block and block.kind == "html":
            pieces.append(_inline_view(text[start:end], start, comments, opener, {}))
        else:
            pieces.append(_blank(text[start:end]))
        position = end
    return "".join(pieces), comments


def _inline_view(
    text: str, start: int, comments: list[_Comment], opener: re.Pattern[str], closers: dict[int, int]
) -> str:
    """Blank code spans, comments and other raw HTML that is not shown, whichever opens first.

    `closers` maps the start of each code span to its end. Raw HTML has no code spans, even if it has backticks.
    """
    pieces: list[str] = []
    position = 0
    unclosed: set[str] = set()
    for match in opener.finditer(text):
        if match.start() < position:
            continue
        is_code = match[0].startswith("`")
        end = closers.get(match.start(), 0) if is_code else _comment_end(text, match, start, comments, unclosed)
        if end:
            pieces += [text[position : match.start()], _blank(text[match.start() : end])]
            position = end
    return "".join([*pieces, text[position:]])


def _comment_end(text: str, match: re.Match[str], start: int, comments: list[_Comment], unclosed: set[str]) -> int:
    """Add a comment to `comments` and return its end; 0 if it is never closed, and therefore shown."""
    opening = match[0].upper()
    closing = "*/" if opening.startswith("{") else _CLOSING.get(opening, ">")
    found = -1 if closing in unclosed else text.find(closing, match.end())
    if found < 0:
        unclosed.add(closing)
        # Unclosed: a comment, and what begins a line (CommonMark §4.6, kinds 2 to 5), reach to the end of the file.
        if opening != "<!--" and text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip(" "):
            return 0
    end = found + len(closing) if found >= 0 else len(text)
    body = text[match.end() : found if found >= 0 else len(text)]
    if opening == "<!--" or _INSTRUCTION.search(body):
        comments.append((start + match.start(), start + end, body))
    return end


def _closing_runs(text: str) -> dict[int, int]:
    """Return the end of each code span by its start. A span is closed by an equal run of backticks in its paragraph."""
    closers: dict[int, int] = {}
    base = 0
    for paragraph in re.split(r"(\n[ \t]*\n)", text) if "`" in text else ():
        after: dict[int, re.Match[str]] = {}
        for run in reversed(list(_TICKS.finditer(paragraph))):
            closer = after.get(len(run[0]))
            if closer:
                closers[base + run.start()] = base + closer.end()
            after[len(run[0])] = run
        base += len(paragraph)
    return closers


def _blank(text: str) -> str:
    return re.sub(r"[^\n]+", lambda match: " " * len(match[0]), text)
