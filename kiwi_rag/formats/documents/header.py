"""What source code begins with: its comments and its docstring. They give a title, and say that code is generated."""

from __future__ import annotations

import re

_TITLE_AT_MOST = 80
_DIRECTIVE = r"(?:include|define|undef|if|ifn?def|else|elif|endif|pragma|import|error|warning|region|nullable|line)\b"
# What a file may begin with before its first statement: comments and a docstring.
_HEADER = re.compile(
    rf"(?:\s+|//[^\n]*|/\*.*?\*/|#(?!!?\[|[ \t]*{_DIRECTIVE})[^\n]*|--[^\n]*|<\?php\b|([\"'])use strict\1;?"
    r"|[rRuU]?(?P<quotes>\"\"\"|'''|\"(?!\")|'(?!'))(?P<docstring>.*?)(?P=quotes))*+",
    re.DOTALL,
)
_HEADER_AT_MOST = 8_192
_DO_NOT_EDIT = r"(?:do not|don't) (?:\w+ )?(?:edit|modify|change)\b"
_UNQUOTED = r"(?<![\"'`])(?<![\"'`]code )"
_GENERATED = re.compile(
    r"^[^\w\n]*(?:@(?:partially-)?generated\b|<auto-?generated\b"
    r"|(?:this (?:file|code|class|module) (?:is|was|has been) )?auto(?:matically)?[- ]?generated\b)"
    rf"|{_UNQUOTED}\bgenerated\b.{{0,200}}?\b{_DO_NOT_EDIT}|{_UNQUOTED}\b{_DO_NOT_EDIT}.{{0,200}}?\bgenerated\b",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_DOCSTRING_HEAD = 400
_MINIFIED_FROM = 5_000
_AVERAGE_LINE = 300
_LONG_LINE = 5_000
_BLANK_LINES = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_MARKS = re.compile(r"^[ \t]*(?:/\*+!?|\*+/|\*+|//+!?|#+|--+)?[ \t]*|[ \t]*\*+/[ \t]*$", re.MULTILINE)
_LICENCE = re.compile(
    r"licen[cs]e|copyright|©|\(c\)|SPDX|rights reserved|permission|warrant|redistribut|generated", re.IGNORECASE
)
# Lines for tools, and names of files.
_TOOL = re.compile(
    r"!|<|@|.*-\*-|.*\bcoding[:=]|['\"]use strict|[\w.+-]+\.\w{1,6}$|[\w-]+:\s*\S+$"
    r"|(?:author|created|date|last (?:change|modified)|since|version|eslint|globals?|jshint|istanbul|prettier|tslint"
    r"|vim?|pylint|mypy|ruff|noqa|type|go|nolint|shellcheck|rubocop|phpcs|swiftlint|ktlint|frozen_string_literal|region"
    r"|pragma)\b(?![ ][a-z])|(?:biome|deno-lint|oxlint|stylelint|cspell|c8)[-: ](?:ignore|disable|enable)\b",
    re.IGNORECASE,
)
_FILE_TAG = re.compile(r"[@\\](?:file(?:overview)?|brief|module)\b[ \t]*")


def generated(text: str) -> str:
    """Return why source code is taken to be generated or minified, or nothing."""
    header = _HEADER.match(text[:_HEADER_AT_MOST])
    if header is None:  # it matches an empty one, too
        return ""
    start, end = header.span("docstring")
    # Far down in a docstring such a line is an example, as of what a generator writes.
    kept = header[0][start:end][:_DOCSTRING_HEAD]
    comments = header[0] if start < 0 else f"{header[0][:start]}{kept}{header[0][end:]}"
    if _GENERATED.search(comments):
        return "its first lines say that it is generated"
    lines = text.rstrip().split("\n")
    longest = max(map(len, lines)) if "sourceMappingURL=" in lines[-1] else 0
    if len(text) > _MINIFIED_FROM and (len(text) > _AVERAGE_LINE * len(lines) or longest > _LONG_LINE):
        return "its lines are as long as those of minified code"
    return ""


def leading_sentence(head: str, form: str) -> str:
    """Return the first sentence of the comments or the docstring at the head of a file where it is short, else nothing.

    What licences and tools say there is left out.
    """
    header = _HEADER.match(head[:_HEADER_AT_MOST])
    if header is None:
        return ""
    if form == "python" and header["docstring"]:
        return _first_sentence(header["docstring"])
    blocks = _BLANK_LINES.split(header[0])
    return next(filter(None, (_first_sentence(_prose(block)) for block in blocks if not _LICENCE.search(block))), "")


def _prose(comment: str) -> str:
    """Return a comment without its marks, and without the lines that are for tools."""
    lines = [_FILE_TAG.sub("", line) for line in _MARKS.sub("", comment).strip().split("\n")]
    return "\n".join(line for line in lines if not line or not _TOOL.match(line))


def _first_sentence(text: str) -> str:
    paragraph = _BLANK_LINES.split(text.strip())[0]
    words = " ".join(_SENTENCE_END.split(paragraph, maxsplit=1)[0].split())
    return words if len(words) <= _TITLE_AT_MOST and any(map(str.isalpha, words)) else ""
