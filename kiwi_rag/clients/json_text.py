"""The text of JSON, with or without comments, edited in place: every byte that is not Kiwi's stays.

The standard library parses. Comments and commas that end a list are made spaces for it, so that all positions stay
true. Each edit replaces text between two positions, and the result is parsed again before anybody gets to see it.
(The Python libraries that keep comments write the whole file anew, or want Node.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from kiwi_rag.clients.refusals import UNEDITABLE, Malformed

_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_COMMA = re.compile(r"\s*,")
_TAIL = re.compile(r"(\s*,)?([ \t]*(?://[^\n]*|/\*[^\n]*?\*/))?")
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class Member(NamedTuple):
    """One member of an object or array: its key or number, where it begins, and where its value begins and ends."""

    key: str | int
    at: int
    value: int
    end: int


def parsed(text: str) -> Any:
    """Return what a text says.

    Raises
    ------
    Malformed
        When it is no JSON, comments and commas that end a list aside.
    """
    try:
        return json.loads(_strict(text), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Malformed(error.msg, error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)[:100]) from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def checked(text: str, wanted: Any) -> str:
    """Return an edited text, once it was seen to say what is wanted.

    Raises
    ------
    Malformed
        When it does not.
    """
    try:
        is_right = parsed(text) == wanted
    except Malformed:
        is_right = False
    if not is_right:
        raise Malformed(UNEDITABLE)
    return text


def with_value(text: str, path: Sequence[str | int], value: Any) -> str:
    """Return an object's text with `value` at `path`, of keys and of arrays' numbers; what is on the way is made."""
    strict = _strict(text)
    at = strict.index("{")
    for depth, key in enumerate(path):
        members, close = _members(strict, at)
        member = _last(members, key)
        if member is None:
            for name in reversed(path[depth + 1 :]):
                value = [value] if isinstance(name, int) else {name: value}
            return _inserted(text, (at, close), members, key, value)
        at, end, indent = member.value, member.end, _indent_at(text, member.at)
    return text[:at] + _dumped(text, value, indent) + text[end:]


def _inserted(text: str, braces: tuple[int, int], members: Sequence[Member], key: str | int, value: Any) -> str:
    """Return `text` with a new last member in the object or array between two braces."""
    at, close = braces
    name = "" if isinstance(key, int) else f"{json.dumps(key)}: "
    if members and "\n" not in text[at:close]:
        last = members[-1].end
        return f"{text[:last]}, {name}{json.dumps(value, ensure_ascii=False)}{text[last:]}"
    outer = _indent_at(text, at)
    indent = _indent_at(text, members[-1].at) if members else outer + _unit(text)
    line = f"\n{indent}{name}{_dumped(text, value, indent)}"
    if not members:
        inner = text[at + 1 : close]
        return text[: at + 1] + line + (inner if "\n" in inner else f"{inner.rstrip()}\n{outer}") + text[close:]
    comma, comment = _TAIL.match(text, members[-1].end).groups("")  # type: ignore[union-attr]  # it matches nothing, too
    rest = members[-1].end + len(comma + comment)  # a comment on the last member's line stays there
    return f"{text[: members[-1].end]}{comma or ','}{comment}{line}{comma.strip()}{text[rest:]}"


def without(text: str, holder: str, key: str | int) -> str:
    """Return `text` without a member of `holder`, its comma, and its line where nothing else is on it."""
    strict, plain = _strict(text), _blanked(text)
    around = _last(_members(strict, strict.index("{"))[0], holder)
    members = _members(strict, around.value)[0] if around else []
    own = _last(members, key)
    if own is None:
        return text
    after = _COMMA.match(plain, own.end)
    end = after.end() if after else own.end
    ends_line = not text[end:].partition("\n")[0].strip()  # else a comment before it would swallow what follows
    start = len(text[: own.at].rstrip()) if ends_line else own.at
    if after or own == members[0]:
        return text[:start] + text[end:]
    comma = plain.rindex(",", 0, own.at)  # the last member takes the comma before it along
    return text[:comma] + text[comma + 1 : max(start, comma + 1)] + text[end:]


def _members(strict: str, at: int) -> tuple[list[Member], int]:
    """Return the members of the object or array that begins at `at`, and where its closing brace is."""
    members: list[Member] = []
    is_array = strict[at] == "["
    at = _skip(strict, at + 1)
    while strict[at] not in "]}":
        key, value = (len(members), at) if is_array else _key(strict, at)
        _, end = _DECODER.raw_decode(strict, value)
        members.append(Member(key, at, value, end))
        at = _skip(strict, end)
        at = _skip(strict, at + 1) if strict[at] == "," else at
    return members, at


def _key(strict: str, at: int) -> tuple[str, int]:
    """Return the key that begins at `at`, and where its value begins."""
    key, end = _DECODER.raw_decode(strict, at)
    return key, _skip(strict, _skip(strict, end) + 1)


def _last(members: Sequence[Member], key: str | int) -> Member | None:
    return next((member for member in reversed(members) if member.key == key), None)  # of two, the last one counts


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


def _strict(text: str) -> str:
    """Return `text` as strict JSON of the same length."""
    return _LAST_COMMA.sub(lambda m: m[0] if m[0][0] == '"' else " ", _blanked(text))


def _blanked(text: str) -> str:
    return _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)


def _dumped(text: str, value: Any, indent: str) -> str:
    return json.dumps(value, indent=_unit(text), ensure_ascii=False).replace("\n", f"\n{indent}")


def _unit(text: str) -> str:
    """Return what the file indents by: the space before its first member that begins a line, or two spaces."""
    found = re.search(r"^([ \t]+)\"", text, re.MULTILINE)
    return found[1] if found else "  "


def _indent_at(text: str, at: int) -> str:
    line = text[:at].rpartition("\n")[2]
    return line[: len(line) - len(line.lstrip(" \t"))]
