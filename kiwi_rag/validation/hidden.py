"""Step 6: text that an agent reads and a person does not see.

In Markdown that is comments, elements styled away, the alternative text of remote images, and link targets that
are programs or data. Whatever stands in a code block or a code span is shown to the reader, so it passes; so does
visible prose, whatever it quotes.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kiwi_rag.formats import markdown
from kiwi_rag.model import Finding, Severity
from kiwi_rag.refs import ItemType

MAX_PLACES = 20
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
# CommonMark §4.6, kinds 1 and 6: up to the next blank line all is raw HTML, and backticks make no code in it.
_HTML_BLOCK = re.compile(
    r"^ {0,3}</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog"
    r"|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link"
    r"|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|pre|script|search|section|style|summary|table|tbody"
    r"|td|textarea|tfoot|th|thead|title|tr|track|ul)(?=[\s/>]|$)",
    re.MULTILINE | re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{2,}")
_TICKS = re.compile(r"`+")
_NOTE = re.compile(r"^ {0,3}\[[^\]\n]{1,80}\]:[ \t]*(?:#|<>)[ \t]*[\"'(]([^\n]*)", re.MULTILINE)
_STYLED_AWAY = re.compile(
    r"<[A-Za-z][^<>]{0,400}?(?:\shidden(?=[\s=/>])|display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0(?![.\d]))",
    re.IGNORECASE,
)
_TARGET = re.compile(
    r"\]\([ \t]*<?|^ {0,3}\[[^\]\n]{1,200}\]:[ \t]*<?|<(?=[A-Za-z&])|\b(?:href|src|action)[ \t]*=[ \t]*[\"']?",
    re.MULTILINE | re.IGNORECASE,
)
_TARGET_END = re.compile(r"[\s)>\"']")
_ELEMENT_NAME = re.compile(r"<([A-Za-z][\w:-]*)")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_SCHEME = re.compile(r"(javascript|vbscript|data):", re.IGNORECASE)
_RASTER = re.compile(r"data:image/(?:png|jpe?g|gif|webp|avif)[;,]", re.IGNORECASE)
_IMAGE = re.compile(
    r"!\[([^\]]{0,2000})\]\([ \t]*<?((?:https?:)?//[^\s)>]{1,2000})>?(?:[ \t]+[\"'(]([^\n]{0,1000}?)[\"')])?[ \t]*\)",
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


def check(item_type: ItemType, text: str, path: str = "", severity: Severity = "error") -> list[Finding]:
    """Return what in a Markdown file is hidden from its reader and may speak to an agent.

    `severity` is the policy's word on it; a comment that reads like a note to other writers is a warning always. A
    script is all code, and shown as it is: nothing in it is hidden.
    """
    if item_type is ItemType.SCRIPT:
        return []
    return [span.finding for span in spans(text, path, severity)[:MAX_PLACES]]


def spans(text: str, path: str = "", severity: Severity = "error") -> list[Span]:
    """Return everything in a Markdown text that is hidden from its reader, with where it stands."""
    visible, comments = _reader_view(text)
    found = [
        *_comment_spans(comments, severity),
        *_note_spans(visible, severity),
        *_styled_spans(visible, severity),
        *_target_spans(visible, severity),
        *_image_spans(visible, severity),
    ]
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
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
    if not words or _TOOL_MARK.match(text):
        return None
    if _INSTRUCTION.search(text):
        message = f"an HTML comment that may instruct an agent: {text[:60]!r}"
        hint = "say it in visible text, or remove it"
        return Finding("hidden.comment-instruction", message, 0, "", hint, severity)
    if len(words) < 4:
        return None
    message = f"an HTML comment that a reader does not see: {text[:60]!r}"
    return Finding("hidden.comment", message, 0, "", "say it in visible text, or remove it", "warning")


def _note_spans(visible: str, severity: Severity) -> Iterator[Span]:
    for match in _NOTE.finditer(visible):
        if found := _judged(_Comment(match.start(), match[1].rstrip("\"')"), match.end()), severity):
            yield Span(match.start(), match.end(), found)


def _styled_spans(visible: str, severity: Severity) -> Iterator[Span]:
    for match in _STYLED_AWAY.finditer(visible):
        message = f"an element that is styled away: {match[0][:60]!r}"
        found = Finding("hidden.element", message, 0, "", "show it, or remove it", severity)
        yield Span(match.start(), _end_of_element(visible, match), found)


def _end_of_element(visible: str, match: re.Match[str]) -> int:
    """Return where an element ends: after its closing tag, or with its paragraph where it has none."""
    name = _ELEMENT_NAME.match(match[0])
    closed = re.compile(rf"</{re.escape(name[1])}\s*>", re.IGNORECASE) if name else _PARAGRAPH_END
    found = closed.search(visible, match.end()) or _PARAGRAPH_END.search(visible, match.end())
    return found.end() if found else len(visible)


def _target_spans(visible: str, severity: Severity) -> Iterator[Span]:
    for match in _TARGET.finditer(visible):
        # Renderers decode entities and drop white space before they look at a scheme.
        target = re.sub(r"[\s\x00-\x20]+", "", html.unescape(visible[match.end() : match.end() + 120]))
        scheme = _SCHEME.match(target)
        if scheme:
            raster = bool(_RASTER.match(target))
            message = f"a link or image whose target is {scheme[1].lower()}:"
            hint = "link to a file or an https address"
            found = Finding("hidden.link", message, 0, "", hint, "warning" if raster else severity)
            end = _TARGET_END.search(visible, match.end())
            yield Span(match.start(), end.start() if end else len(visible), found)


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


def _reader_view(text: str) -> tuple[str, list[_Comment]]:
    """Return `text` with fences, code spans, comments and signature lines blanked (offsets stay), and the comments."""
    lines = text.split("\n")
    blocks = markdown.blocks(markdown.split_lines(text))
    raw = _raw_fences(lines, blocks)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    signed = offsets[markdown.signature_lines(markdown.split_lines(text))]
    pieces = [_blank(text[:signed])]
    comments: list[_Comment] = []
    position = signed
    for block in (b for b in blocks if b.start_line not in raw):
        start, end = offsets[block.start_line - 1], min(offsets[block.end_line], len(text))
        pieces.append(_inline_view(text[position:start], position, comments))
        if block.kind == "comment":
            pieces.append(_comment_block_view(text[start:end], start, comments))
        else:
            pieces.append(_blank(text[start:end]))
        position = end
    pieces.append(_inline_view(text[position:], position, comments))
    return "".join(pieces), comments


def _raw_fences(lines: Sequence[str], blocks: Sequence[markdown.Block]) -> set[int]:
    """Return the first lines of fences that stand in an HTML block, where they are no code."""
    raw: set[int] = set()
    last, in_html = 0, False
    for block in blocks:
        for line in lines[last : block.start_line - 1]:
            in_html = bool(line.strip()) and (in_html or bool(_HTML_BLOCK.match(line)))
        if in_html and block.kind == "fence":
            raw.add(block.start_line)
            in_html = all(line.strip() for line in lines[block.start_line - 1 : block.end_line])
        else:
            in_html = False
        last = block.end_line
    return raw


def _comment_block_view(block: str, start: int, comments: list[_Comment]) -> str:
    begin = block.find("<!--")
    end = block.find("-->", begin + 4)
    end = len(block) if end < 0 else end
    rest = min(len(block), end + 3)
    comments.append(_Comment(start + begin, block[begin + 4 : end], start + rest))
    return _blank(block[:rest]) + _inline_view(block[rest:], start + rest, comments)


def _inline_view(text: str, start: int, comments: list[_Comment]) -> str:
    """Blank code spans and comments inside prose, whichever opens first."""
    pieces: list[str] = []
    position = 0
    closers = _closing_runs(text)
    for match in re.finditer(r"`+|<!--", text):
        if match.start() < position:
            continue
        end = _comment_end(text, match, start, comments) if match[0] == "<!--" else closers.get(match.start(), 0)
        if end:
            pieces += [text[position : match.start()], _blank(text[match.start() : end])]
            position = end
    return "".join([*pieces, text[position:]])


def _comment_end(text: str, match: re.Match[str], start: int, comments: list[_Comment]) -> int:
    found = text.find("-->", match.end())
    end = found + 3 if found >= 0 else len(text)
    body = text[match.end() : found if found >= 0 else len(text)]
    comments.append(_Comment(start + match.start(), body, start + end))
    return end


def _closing_runs(text: str) -> dict[int, int]:
    """Return, for each run of backticks that opens a code span, where the span ends; spans end with the paragraph."""
    closers: dict[int, int] = {}
    base = 0
    for paragraph in re.split(r"(\n[ \t]*\n)", text):
        after: dict[int, re.Match[str]] = {}
        runs = [] if _HTML_BLOCK.search(paragraph) else list(_TICKS.finditer(paragraph))
        for run in reversed(runs):
            closer = after.get(len(run[0]))
            if closer:
                closers[base + run.start()] = base + closer.end()
            after[len(run[0])] = run
        base += len(paragraph)
    return closers


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
