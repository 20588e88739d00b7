"""Edits of configuration text: JSON with comments, TOML and marked blocks. Every byte that is not Kiwi's stays.

An edit of JSON or TOML is accepted only if the standard library's parser reads the wanted data from its result.
CONTRIBUTING says why JSON with comments is edited by own code.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any, NamedTuple

from kiwi_rag.errors import KiwiError

NAME = "kiwi"
MODULE = "kiwi_rag.cli"


class ClientFileError(KiwiError, code="client-file"):
    """A client's file cannot be read or written."""


class NameTaken(ClientFileError, code="client-taken"):
    """The file already has another entry of this name."""


class Malformed(Exception):
    """What is wrong with a text, and in which line; the caller knows the file."""

    def __init__(self, what: str, line: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


@dataclass(frozen=True, slots=True)
class Format:
    """A syntax of configuration files.

    Parameters
    ----------
    load
        Reads a text; raises `ValueError`.
    edits
        Yields versions of a text with a value at a path, or without what is there (None); the first that says what is
        wanted is used. The last key of the path may be new, and so may the mapping or array that it is in.
    blank
        What an empty file is taken for.
    """

    load: Callable[[str], Any]
    edits: Callable[[str, Sequence[str | int], Any], Iterator[str]]
    blank: str

    def parse(self, text: str) -> dict[str, Any]:
        """Return what a text says; raise `Malformed` when it is malformed."""
        try:
            root = self.load(text)
        except (ValueError, RecursionError) as error:
            line = re.search(r"\bline (\d+)", str(error))
            what = re.split(r": line \d| \(at ", str(error))[0][:100]
            raise Malformed(what, int(line[1]) if line else text.count("\n") + 1) from error
        if not isinstance(root, dict):
            raise Malformed("it is not an object")
        return root

    def edit(self, text: str, path: Sequence[str | int], value: Any, wanted: Mapping[str, Any]) -> str:
        """Return `text` with `value` at `path`, or without what is there; `wanted` is what the result has to say."""
        no_entries: dict[Any, Any] = {path[0]: {}}  # means the same as no mapping of entries at all
        for edited in self.edits(text, path, value):
            with suppress(Malformed):
                if {**no_entries, **self.parse(edited)} == {**no_entries, **wanted}:
                    return edited
        raise Malformed("its layout cannot be edited without damage")


class Entry(NamedTuple):
    """One of Kiwi's entries.

    Parameters
    ----------
    name
        Its key, or its label in an array.
    verb
        The argument by which an entry is recognised as Kiwi's.
    renewed
        Returns what the entry is to say, given what it says now (nothing: it is new).
    """

    name: str
    verb: str
    renewed: Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ConfigEntries:
    """Kiwi's entries in the mapping named `key`; with `labelled` in the array of that name, found by their labels."""

    format: Format
    key: str
    entries: Sequence[Entry]
    labelled: bool = False

    def put(self, text: str) -> str:
        """Return `text` with the entries in it, new or renewed.

        Raises
        ------
        Malformed
            When the client could not read the text.
        NameTaken
            When an entry of the same name starts something else.
        """
        text = text if text.strip() else self.format.blank
        for entry in self.entries:
            root, holder, at, there = self._find(text, entry.name)
            if there is None:
                new = entry.renewed({})
                holder.insert(0, new) if self.labelled else holder.update({at: new})
                text = self.format.edit(text, (self.key, at), new, root)
            elif not starts_kiwi(there, entry.verb):
                raise NameTaken(f"{self.key} already has an entry {entry.name!r}, and it does not start Kiwi")
            for name, value in entry.renewed(there).items() if there else ():
                if there.get(name) != value:
                    there[name] = value
                    text = self.format.edit(text, (self.key, at, name), value, root)
        return text

    def take(self, text: str) -> str:
        """Return `text` without the entries; `text` itself where there are none."""
        for entry in self.entries:
            root, holder, at, there = self._find(text, entry.name)
            if starts_kiwi(there, entry.verb):
                del holder[at]
                text = self.format.edit(text, (self.key, at), None, root)
        return text

    def _find(self, text: str, name: str) -> tuple[dict[str, Any], Any, Any, Any]:
        """Return a text's data, the part that holds the entries, an entry's key or number in it, and the entry."""
        root = self.format.parse(text if text.strip() else self.format.blank)
        kind: Any = list if self.labelled else dict
        holder: Any = root.setdefault(self.key, kind())
        if not isinstance(holder, kind):
            raise Malformed(f"{self.key} is not {'an array' if self.labelled else 'an object or a table'}")
        if not self.labelled:
            return root, holder, name, holder.get(name)
        labels = [entry.get("label") if isinstance(entry, dict) else None for entry in holder]
        at = labels.index(name) if name in labels else len(holder)
        return root, holder, at, holder[at] if name in labels else None


def starts_kiwi(entry: Any, verb: str) -> bool:
    """Return whether an entry starts ``kiwi … VERB``, by whichever path."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("args"), list):
        return False
    program = PureWindowsPath(str(entry.get("command", ""))).stem.lower()  # reads both kinds of slashes
    return verb in entry["args"] and (program == NAME or MODULE in entry["args"])


@dataclass(frozen=True, slots=True)
class ManagedBlock:
    """Lines between two marks, in a text that may hold anything else; `head` begins a new file.

    Parameters
    ----------
    lines
        The block, from ``<!-- kiwi: begin`` or ``# kiwi: begin`` to the mark of the end, without the last line break.
    """

    lines: str
    head: str = ""

    def put(self, text: str) -> str:
        """Return `text` with the block in it, in the place where it is, or new."""
        if span := self._span(text):
            return text[: span[0]] + self.lines + text[span[1] :]
        return self.inserted(text)

    def inserted(self, text: str) -> str:
        """Return a text that has no block yet with the block at its end, after an empty line."""
        if not text.strip():
            return f"{self.head}{self.lines}\n"
        return text + ("" if text.endswith("\n") else "\n") + f"\n{self.lines}\n"

    def take(self, text: str) -> str:
        """Return `text` without the block and the empty line before it; `text` itself where there is none."""
        if not (span := self._span(text)):
            return text
        above, below = text[: span[0]], text[span[1] :]
        if above.endswith("\n\n") or not below:
            above = above.removesuffix("\n")
        return above + below.removeprefix("\n")

    def _span(self, text: str) -> tuple[int, int] | None:
        sign = re.escape(self.lines.partition(" ")[0])
        marks = list(re.finditer(rf"^{sign} kiwi: (begin|end)\b[^\n]*", text, re.MULTILINE))
        if marks and [mark[1] for mark in marks] != ["begin", "end"]:
            line = text.count("\n", 0, marks[-1].start()) + 1
            raise Malformed("its lines marked by kiwi are not one pair of begin and end", line)
        return (marks[0].start(), marks[1].end()) if marks else None


_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_COMMA = re.compile(r"\s*,")
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    """One member of an object or array: its key or number, where it begins, and where its value begins and ends."""

    key: str | int
    at: int
    value: int
    end: int


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _json_edits(text: str, path: Sequence[str | int], value: Any) -> Iterator[str]:
    strict = _strict(text)
    yield _json_edited(text, strict, strict.index("{"), path, value)


def _json_edited(text: str, strict: str, at: int, path: Sequence[str | int], value: Any) -> str:
    """Return `text` with a value set or removed; the path begins in the object or array at a position."""
    key, *rest = path
    members = _members(strict, at)
    own = next((member for member in reversed(members) if member.key == key), None)  # of two, the last one counts
    if own is None:
        for name in reversed(rest):
            value = [value] if isinstance(name, int) else {name: value}
        return _json_inserted(text, strict, at, key, value)
    if rest:
        return _json_edited(text, strict, own.value, rest, value)
    if value is None:
        return _json_removed(text, members, own)
    return text[: own.value] + _dumped(text, value, _indent_at(text, own.at)) + text[own.end :]


def _json_inserted(text: str, strict: str, at: int, key: str | int, value: Any) -> str:
    """Return `text` with a new first member of the object or array that begins at a position: no other line changes."""
    name = "" if isinstance(key, int) else f"{json.dumps(key)}: "
    first = _skip(strict, at + 1)
    comma, is_one_line = "" if strict[first] in "]}" else ",", "\n" not in text[at:first]
    if comma and is_one_line:
        return f"{text[: at + 1]}{name}{json.dumps(value, ensure_ascii=False)}, {text[at + 1 :]}"
    outer = _indent_at(text, at)
    indent = _indent_at(text, first) if comma else outer + _unit(text)
    end = f"\n{outer}" if is_one_line else ""
    return f"{text[: at + 1]}\n{indent}{name}{_dumped(text, value, indent)}{comma}{end}{text[at + 1 :]}"


def _json_removed(text: str, members: Sequence[_Member], own: _Member) -> str:
    """Return `text` without one of the members, its comma, and its line where nothing else is on it."""
    plain = _without_comments(text)
    after = _COMMA.match(plain, own.end)
    end = after.end() if after else own.end
    ends_line = not text[end:].partition("\n")[0].strip()  # else a comment before it would include what follows
    start = len(text[: own.at].rstrip()) if ends_line else own.at
    if after or own == members[0]:
        return text[:start] + text[end:]
    comma = plain.rindex(",", 0, own.at)  # the comma before the last member goes with it
    return text[:comma] + text[comma + 1 : max(start, comma + 1)] + text[end:]


def _members(strict: str, at: int) -> list[_Member]:
    """Return the members of the object or array that begins at `at`."""
    members: list[_Member] = []
    is_array = strict[at] == "["
    at = _skip(strict, at + 1)
    while strict[at] not in "]}":
        key: str | int = len(members)
        value = at
        if not is_array:
            key, colon = _DECODER.raw_decode(strict, at)
            value = _skip(strict, _skip(strict, colon) + 1)
        _, end = _DECODER.raw_decode(strict, value)
        members.append(_Member(key, at, value, end))
        at = _skip(strict, end)
        at = _skip(strict, at + 1) if strict[at] == "," else at
    return members


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


def _strict(text: str) -> str:
    """Return `text` as strict JSON of the same length, so that positions are the same in both."""
    return _LAST_COMMA.sub(lambda m: m[0] if m[0][0] == '"' else " ", _without_comments(text))


def _without_comments(text: str) -> str:
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


def _toml_edits(text: str, path: Sequence[str | int], value: Any) -> Iterator[str]:
    """Yield first what keeps each comment with the table that it is about, then what tomlkit makes of the text.

    A new table goes to the file's end, and is removed line by line: tomlkit counts the comment above a table to the
    table before it. Values in place, and servers that are not tables of their own, are left to tomlkit.
    """
    import tomlkit

    *outer, key = path
    if value is None:
        yield _toml_tables(*map(str, path)).sub("", text)
    elif isinstance(value, dict):
        apart = text and ("\n" if text.endswith("\n") else "\n\n")
        yield f"{text}{apart}[{'.'.join(map(str, path))}]\n{tomlkit.dumps(value)}"
    try:
        inner: Any = (document := tomlkit.parse(text))
    except (ValueError, RecursionError):  # tomlkit refuses some texts that the standard library takes
        return
    for name in outer:
        inner = inner[name]
    if value is None:
        inner.pop(key)
    elif isinstance(value, dict):
        inner.setdefault(key, tomlkit.inline_table()).update(value)
    else:
        inner[key] = value
    yield document.as_string()


def _toml_tables(holder: str, name: str) -> re.Pattern[str]:
    """Return what finds a table and those in it: each with the empty line before, without what is about the next."""
    keys = r"\.".join(rf"\s*(?:\"{key}\"|'{key}'|{key})\s*" for key in (holder, name))
    header = rf"[ \t]*\[{keys}(?:\.[^\]\n]*)?\][^\n]*(?:\n|\Z)"
    lines = r"(?:(?:[ \t\r]*(?:#[^\n]*)?\n)*[ \t]*[^\s#\[][^\n]*(?:\n|\Z))*"
    return re.compile(rf"(?:^\n)?^{header}{lines}", re.MULTILINE)


JSON = Format(lambda text: json.loads(_strict(text), parse_constant=_refuse_constant), _json_edits, "{}\n")
TOML = Format(tomllib.loads, _toml_edits, "")
