"""Step 6: text that an agent reads and a person does not see.

In Markdown that is comments, elements styled away, the alternative text of remote images, and link targets that
are programs or data. Whatever stands in a code block or a code span is shown to the reader, so it passes; so does
visible prose, whatever it quotes.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from kiwi_rag.formats import markdown
from kiwi_rag.formats.lines import line_starts
from kiwi_rag.model import Finding, Severity
from kiwi_rag.model.refs import ItemType
from kiwi_rag.validation import elements

MAX_PLACES = 20
MAX_SPANS = 2_000
"""Hidden places a text; from there on all of what is left of it counts as one."""
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
# Marks for tools, which say nothing to a reader: linters, tables of contents, licences, generated regions.
_TOOL_MARK = re.compile(
    r"(?:/?(?:toc|tocstop|more|truncate|markdownlint|prettier|textlint|vale|cspell|spell-?checker|lint|eslint|remark"
    r"|doctoc|omit in toc|no-toc|dprint|mdformat|mdx|embedme|vim:|-\*-|SPDX-|Copyright|SECTION|REGION|endregion"
    r"|BEGIN|END|START|all-contributors|AUTO-GENERATED|readme|badges?))\b[^\n]{0,80}$",
    re.IGNORECASE,
)
# What such marks say beside their name: what the tool is to do, and what the region holds.
_OF_MARKS = re.compile(
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
# In JSON, the brackets may be escaped.
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
# How a target may start that is one of these: with its letters, an entity, or what renderers drop.
_SCHEME_START = re.compile(r"[\s\x00-\x20&]|[jvd][\s\x00-\x20&ab]", re.IGNORECASE)
_RASTER = re.compile(r"data:image/(?:png|jpe?g|gif|webp|avif)[;,]", re.IGNORECASE)
# No part of an image reaches into the next one: each is looked at once.
_IMAGE = re.compile(
    r"!\[((?:[^\]!]|!(?!\[)){0,2000}+)\]\([ \t]*+<?((?:https?:)?//(?:[^\s)>!]++|!(?!\[))++)>?"
    r"(?:[ \t]++[\"'(]((?:[^\n!]|!(?!\[)){0,1000}?)[\"')])?[ \t]*\)",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\{[^}]{1,80}\}|%7B|\$\(|<[a-z_ ]{1,40}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Comment:
    """A comment, or a note that renders as nothing; ``end`` is where it ends in the file, its mark included."""

    start: int
    text: str
    end: int


@dataclass(frozen=True, slots=True)
class Span:
    """Where something hidden stands, as offsets into the text, and what is to be said of it."""

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
    return [span.finding for span in spans(text, path, severity)[:MAX_PLACES]]


def spans(text: str, path: str = "", severity: Severity = "error") -> list[Span]:
    """Return everything in a Markdown text that is hidden from its reader, with where it stands."""
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
    """Return the HTML comments in a text of any kind that may instruct, with where they stand.

    One without an end reaches, in HTML, to the end of the text; elsewhere, where it would show, to the end of its line.
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
    """Return the spans of every kind with their lines: of errors `MAX_SPANS` at most, of warnings `MAX_PLACES` a kind.

    Beyond that many errors, the rest of the text is one more.
    """
    found: list[Span] = []
    cut = len(text)
    for kind in kinds:
        errors = warnings = 0
        for span in kind:
            errors, warnings = errors + (span.finding.severity == severity), warnings + 1
            if errors > MAX_SPANS:
                cut = min(cut, span.start)
                break
            if span.finding.severity == severity or warnings <= MAX_PLACES:
                found.append(span)
    found = [span for span in found if span.start < cut]
    if cut < len(text):
        message = f"more than {MAX_SPANS:,} hidden places; the rest of the file counts as one"
        found.append(Span(cut, len(text), Finding("hidden.rest", message, 0, "", "show what is hidden", severity)))
    starts = line_starts(text) if found else []
    return [_placed(span, bisect_right(starts, span.start), path) for span in found]


def _placed(span: Span, line: int, path: str) -> Span:
    found = span.finding
    return Span(span.start, span.end, Finding(found.code, found.message, line, path, found.hint, found.severity))


def _comment_spans(comments: list[_Comment], severity: Severity) -> Iterator[Span]:
    for comment in comments:
        if found := _judged(comment, severity):
            yield Span(comment.start, comment.end, found)


def _judged(comment: _Comment, severity: Severity) -> Finding | None:
    text = " ".join(comment.text.split())
    words = _WORD.findall(text)
    if not words or _is_tool_mark(text):
        return None
    if _INSTRUCTION.search(text):
        message = f"an HTML comment that may instruct an agent: {text[:60]!r}"
        hint = "say it in visible text, or remove it"
        return Finding("hidden.comment-instruction", message, 0, "", hint, severity)
    if len(words) < 4:
        return None
    message = f"an HTML comment that a reader does not see: {text[:60]!r}"
    return Finding("hidden.comment", message, 0, "", "say it in visible text, or remove it", "warning")


def _is_tool_mark(text: str) -> bool:
    """Say whether a comment is a mark for a tool, and nothing that follows the mark is an instruction."""
    return bool(_TOOL_MARK.match(text)) and not _INSTRUCTION.search(_OF_MARKS.sub(" ", text))


def _note_spans(visible: str, severity: Severity) -> Iterator[Span]:
    last = 0
    for match in _NOTE.finditer(visible):
        if match.start() < last:
            continue
        last = _end_of_note(visible, match)
        if found := _judged(_Comment(match.start(), visible[match.start(1) : last].rstrip("\"') \t"), last), severity):
            yield Span(match.start(), last, found)


def _end_of_note(visible: str, match: re.Match[str]) -> int:
    """Return where a note ends: its title may go on over lines, up to a blank one."""
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
            found = Finding("hidden.element", message, 0, "", "show it, or remove it", severity)
            yield Span(element.start, element.end, found)


def _target_spans(visible: str, severity: Severity) -> Iterator[Span]:
    last = 0
    for match in _TARGET.finditer(visible):
        if match.start() < last or not _SCHEME_START.match(visible, match.end()):
            continue
        # Renderers decode entities and drop white space before they look at a scheme.
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
            message, hint = "a remote image whose alternative text may instruct an agent", "shorten it to what is shown"
        elif _PLACEHOLDER.search(match[2]):
            message, hint = "a remote image whose address takes in text, and sends it away", "use a fixed address"
        else:
            continue
        yield Span(match.start(), match.end(), Finding("hidden.image", message, 0, "", hint, severity))


def _reader_view(text: str, path: str) -> tuple[str, list[_Comment]]:
    """Return `text` with fences, code spans, comments and signature lines blanked (offsets stay), and the comments.

    A text that is too large to be read as Markdown has no fences and no code spans here: all of it can hide something.
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
    """Blank code spans, comments and other raw HTML that shows nothing, whichever opens first.

    `closers` is where each code span ends, by where it opens: raw HTML has none, whatever backticks are in it.
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
    """Return where raw HTML ends that shows nothing, and note it down; 0 if it has no end, so that it shows."""
    opening = match[0].upper()
    closing = "*/" if opening.startswith("{") else _CLOSING.get(opening, ">")
    found = -1 if closing in unclosed else text.find(closing, match.end())
    if found < 0:
        unclosed.add(closing)
        # Up to the end of the file: an open comment; and what opens a line (CommonMark §4.6, kinds 2 to 5).
        if opening != "<!--" and text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip(" "):
            return 0
    end = found + len(closing) if found >= 0 else len(text)
    body = text[match.end() : found if found >= 0 else len(text)]
    if opening == "<!--" or _INSTRUCTION.search(body):
        comments.append(_Comment(start + match.start(), body, start + end))
    return end


def _closing_runs(text: str) -> dict[int, int]:
    """Return, for each run of backticks that opens a code span, where the span ends; spans end with the paragraph."""
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
