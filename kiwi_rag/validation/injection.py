"""Step 6: hidden instructions, which are text that an agent reads and a person does not see.

In Markdown these are comments, elements that are styled away, alternative texts of remote images, and link targets that
are programs or data. Code blocks, code spans and prose are visible, so they pass, even if they quote an attack.

Every scan here is linear in the length of the text, because the text may be hostile.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from kiwi_rag.formats import markdown
from kiwi_rag.formats.documents import detect, is_markdown
from kiwi_rag.formats.lines import line_starts
from kiwi_rag.model import Finding, Severity
from kiwi_rag.model.refs import ItemType
from kiwi_rag.validation import elements

# What a reader of Markdown does not see depends on its markup. A reader of source code sees all of it.
MARKDOWN = ("markdown", "adr")
SOURCE_CODE = ("java", "python")
# Source code: "<!--" in it is part of a string, which its reader sees.
_CODE = frozenset({
    *(".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".kt"),
    *(".kts", ".scala", ".rb", ".php", ".pl", ".sh", ".bash", ".zsh", ".ps1", ".sql", ".swift", ".lua", ".r", ".dart"),
    *(".groovy", ".gradle", ".css", ".scss", ".less", ".proto", ".tf", ".ex", ".exs", ".clj", ".hs", ".ml", ".m"),
    *(".java", ".py", ".pyi", ".pyw"),
})  # fmt: skip
MAX_FINDINGS = 20
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


@dataclass(frozen=True, slots=True)
class _Comment:
    """A comment, or a link definition that renders as nothing; ``end`` is the offset after its closing mark."""

    start: int
    text: str
    end: int


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets of something hidden, and the finding about it."""

    start: int
    end: int
    finding: Finding


def check_injection(item_type: ItemType, text: str, path: str = "", severity: Severity = "error") -> list[Finding]:
    """Return what in a Markdown file is hidden from its reader and may speak to an agent.

    `severity` is the policy's word on it; a comment that reads like a note to other writers is a warning always. A
    script is all code, and shown as it is: nothing in it is hidden.
    """
    if item_type is ItemType.SCRIPT:
        return []
    return [span.finding for span in spans(text, path, severity)[:MAX_FINDINGS]]


def check_file(path: str, text: str, severity: Severity = "error") -> list[Finding]:
    """Return what in a text file of a skill is hidden from its reader, by the format of the file."""
    form = "markdown" if is_markdown(path) else detect(path, text)
    if form in SOURCE_CODE or is_source_code(path):
        return []
    find = spans if form in MARKDOWN else comment_spans
    return [span.finding for span in find(text, path, severity)[:MAX_FINDINGS]]


def is_source_code(path: str) -> bool:
    """Return whether a file is source code by its name."""
    return PurePosixPath(path).suffix.lower() in _CODE


def spans(text: str, path: str = "", severity: Severity = "error") -> list[Span]:
    """Return everything in a Markdown text that is hidden from its reader."""
    visible, comments = _reader_view(text, path)
    return _listed(
        text,
        path,
        severity,
        _comment_spans(comments, severity),
        _note_spans(visible, severity),
        _element_spans(visible, severity),
        _target_spans(visible, severity),
        _image_spans(visible, severity),
    )


def comment_spans(text: str, path: str = "", severity: Severity = "error") -> list[Span]:
    """Return the HTML comments in a text of any format that may instruct an agent.

    An unclosed comment reaches to the end of the text in HTML. In other formats it is visible, so it is taken to reach
    to the end of its line.
    """
    comments: list[_Comment] = []
    closed, last = True, 0
    for match in _BEGIN_COMMENT.finditer(text):
        if match.start() < last:
            continue
        end = _END_COMMENT.search(text, match.end()) if closed else None
        closed = end is not None
        last = end.end() if end else _end_of_open(text, match.end(), path)
        comments.append(_Comment(match.start(), text[match.end() : end.start() if end else last], last))
    return _listed(text, path, severity, _comment_spans(comments, severity))


def _end_of_open(text: str, position: int, path: str) -> int:
    if path.lower().endswith(_HTML_SUFFIXES):
        return len(text)
    end = _LINE_END.search(text, position)
    return end.start() if end else len(text)


def _listed(text: str, path: str, severity: Severity, *kinds: Iterator[Span]) -> list[Span]:
    """Return the spans of every kind with their lines: at most `MAX_SPANS` errors and `MAX_FINDINGS` warnings a kind.

    If there are more errors, one more span covers all text after them.
    """
    found: list[Span] = []
    end = len(text)
    for kind in kinds:
        errors = warnings = 0
        for span in kind:
            errors, warnings = errors + (span.finding.severity == severity), warnings + 1
            if errors > MAX_SPANS:
                end = min(end, span.start)
                break
            if span.finding.severity == severity or warnings <= MAX_FINDINGS:
                found.append(span)
    found = [span for span in found if span.start < end]
    if end < len(text):
        message = f"the file has more than {MAX_SPANS:,} hidden places; all text after them counts as one"
        found.append(Span(end, len(text), Finding("hidden.rest", message, 0, "", "make the text visible", severity)))
    starts = line_starts(text) if found else []
    return [_with_line(span, bisect_right(starts, span.start), path) for span in found]


def _with_line(span: Span, line: int, path: str) -> Span:
    found = span.finding
    return Span(span.start, span.end, Finding(found.code, found.message, line, path, found.hint, found.severity))


def _comment_spans(comments: list[_Comment], severity: Severity) -> Iterator[Span]:
    for comment in comments:
        if found := _comment_finding(comment, severity):
            yield Span(comment.start, comment.end, found)


def _comment_finding(comment: _Comment, severity: Severity) -> Finding | None:
    text = " ".join(comment.text.split())
    words = _WORD.findall(text)
    if not words or _is_tool_mark(text):
        return None
    if _INSTRUCTION.search(text):
        message = f"an HTML comment that may instruct an agent: {text[:60]!r}"
        hint = "write it as visible text, or remove it"
        return Finding("hidden.comment-instruction", message, 0, "", hint, severity)
    if len(words) < 4:
        return None
    message = f"an HTML comment that a reader does not see: {text[:60]!r}"
    return Finding("hidden.comment", message, 0, "", "write it as visible text, or remove it", "warning")


def _is_tool_mark(text: str) -> bool:
    """Return whether a comment controls a tool and contains no other instruction."""
    return bool(_TOOL_MARK.match(text)) and not _INSTRUCTION.search(_TOOL_WORDS.sub(" ", text))


def _note_spans(visible: str, severity: Severity) -> Iterator[Span]:
    last = 0
    for match in _NOTE.finditer(visible):
        if match.start() < last:
            continue
        last = _end_of_note(visible, match)
        if found := _comment_finding(
            _Comment(match.start(), visible[match.start(1) : last].rstrip("\"') \t"), last), severity
        ):
            yield Span(match.start(), last, found)


def _end_of_note(visible: str, match: re.Match[str]) -> int:
    """Return the end of a link definition: its title may continue on further lines, up to a blank one."""
    if _NOTE_END.search(match[1]):
        return match.end()
    blank = visible.find("\n\n", match.end(), match.end() + _LONGEST_NOTE)
    found = _NOTE_END.search(visible, match.end(), blank if blank >= 0 else match.end() + _LONGEST_NOTE)
    return found.end() if found else match.end()


def _element_spans(visible: str, severity: Severity) -> Iterator[Span]:
    for element in elements.unseen(visible, MAX_SPANS + 1):
        body = visible[element.start : element.end]
        if element.is_styled or _INSTRUCTION.search(body):
            message = f"an element that is styled away: {body[:60]!r}"
            if not element.is_styled:
                message = f"an element that a reader does not see, and that may instruct an agent: {body[:60]!r}"
            found = Finding("hidden.element", message, 0, "", "make it visible, or remove it", severity)
            yield Span(element.start, element.end, found)


def _target_spans(visible: str, severity: Severity) -> Iterator[Span]:
    last = 0
    for match in _TARGET.finditer(visible):
        if match.start() < last or not _SCHEME_START.match(visible, match.end()):
            continue
        # Renderers decode entities and drop white space before they read the scheme.
        target = re.sub(r"[\s\x00-\x20]+", "", html.unescape(visible[match.end() : match.end() + 120]))
        scheme = _SCHEME.match(target)
        if scheme:
            raster = bool(_RASTER.match(target))
            message = f"a link or image whose target is {scheme[1].lower()}:"
            hint = "link to a file or an https address"
            found = Finding("hidden.link", message, 0, "", hint, "warning" if raster else severity)
            end = _TARGET_END.search(visible, match.end())
            last = end.start() if end else len(visible)
            yield Span(match.start(), last, found)


def _image_spans(visible: str, severity: Severity) -> Iterator[Span]:
    for match in _IMAGE.finditer(visible):
        words = f"{match[1]} {match[3] or ''}"
        if len(_WORD.findall(words)) > _LONG_ALT or (_INSTRUCTION.search(words) and len(_WORD.findall(words)) > 6):
            message, hint = (
                "a remote image whose alternative text may instruct an agent",
                "shorten it to what the image shows",
            )
        elif _PLACEHOLDER.search(match[2]):
            message, hint = (
                "a remote image whose address has a placeholder, which sends text away",
                "use a fixed address",
            )
        else:
            continue
        yield Span(match.start(), match.end(), Finding("hidden.image", message, 0, "", hint, severity))


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
        comments.append(_Comment(start + match.start(), body, start + end))
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
