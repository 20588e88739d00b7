"""Step 0: what is out of bounds is named with its line; what scripts and emoji need passes."""

from __future__ import annotations

import io
import tokenize

import pytest

from kiwi_rag.formats.source import ItemCandidate
from kiwi_rag.model.refs import ItemType
from kiwi_rag.validation import checks
from kiwi_rag.validation.manager import inspect_item


def codes(text: str | bytes) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    return [f.code for f in checks.check_bounds(data, "a.md")[1]]


def test_five_megabytes_are_refused_unread() -> None:
    text, findings = checks.check_bounds(b"x" * 5_000_000)
    assert text is None
    assert [f.code for f in findings] == ["bounds.size"]


def test_the_largest_allowed_file_passes() -> None:
    assert codes(b"x" * 256 * 1024) == []
    assert codes(b"x" * (256 * 1024 + 1)) == ["bounds.size"]


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\xef\xbb\xbf\n"])
def test_empty_files_are_refused(data: bytes) -> None:
    assert codes(data) == ["bounds.empty"]


@pytest.mark.parametrize("data", [b"a\nb\xff", b"a\nb\xed\xa0\x80", b"a\nb\xc0\x80", b"a\nb\xe2\x82"])
def test_what_is_not_utf8_is_refused_at_its_line(data: bytes) -> None:
    (finding,) = checks.check_bounds(data)[1]
    assert (finding.code, finding.line) == ("bounds.encoding", 2)


@pytest.mark.parametrize(
    ("char", "code"),
    [
        ("\0", "bounds.control"),
        ("\x1b", "bounds.control"),
        ("\x85", "bounds.control"),
        ("\r", "bounds.control"),
        ("\u202e", "bounds.bidi"),
        ("\u2066", "bounds.bidi"),
        ("\U000e0041", "bounds.tag"),
        ("\u200b", "bounds.invisible"),
        ("\u2060", "bounds.invisible"),
        ("\ufeff", "bounds.invisible"),
        ("\u200d", "bounds.invisible"),
        ("\u200c", "bounds.invisible"),
        ("\u200f", "bounds.invisible"),
        ("\u3164", "bounds.invisible"),
        ("\ufe0f", "bounds.selector"),
        ("\U000e0150", "bounds.selector"),
    ],
)
def test_characters_nobody_sees_are_refused_where_they_stand(char: str, code: str) -> None:
    (finding,) = checks.check_bounds(f"first\nde{char}ploy".encode(), "a.md")[1]
    assert (finding.code, finding.line, finding.path) == (code, 2, "a.md")
    assert "column 3" in finding.message
    assert finding.hint


def test_bytes_smuggled_in_selectors_are_refused() -> None:
    assert "bounds.selector" in codes("😀" + "".join(chr(0xFE00 + n) for n in range(16)))
    assert "bounds.selector" in codes("😀\ufe0f" + chr(0xE0100 + 65))


def test_every_place_is_listed_up_to_a_cap() -> None:
    found = checks.check_bounds(("a\u200b\n" * 50).encode())[1]
    assert [f.line for f in found] == [*range(1, 21), 0]
    assert "30 more" in found[-1].message


@pytest.mark.parametrize(
    "text",
    [
        "👩‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️‍🔥 👩🏽‍💻 1️⃣ ☎️ ™️ ℹ️ 🧑🏿‍🤝‍🧑🏻",
        "مرحبا بالعالم، می‌خواهم کتاب‌ها ه‍",
        "שלום עולם (kiwi)\u200f.",
        "क्‍ष श्री न्‌न",
        "葛\U000e0100城 ≨︀",
        "tab\tand\r\nwindows lines",
        "\ufeffstarts with a byte-order mark",
        "café naïve Ω→∞ “quoted” — dash",
    ],
)
def test_text_of_all_scripts_and_emoji_passes(text: str) -> None:
    assert codes(text) == []


def test_a_soft_hyphen_is_a_warning() -> None:
    (finding,) = checks.check_bounds("Donau\u00addampf".encode())[1]
    assert (finding.code, finding.severity) == ("bounds.soft-hyphen", "warning")


DECLARED = [
    ("# coding: utf-7\n", 1),
    ("# -*- coding: latin-1 -*-\nx = 1\n", 1),
    ("#!/usr/bin/env python3\n# vim: set fileencoding=cp1252 :\n", 2),
    ("\n# coding=ascii\n", 2),
    ("\ufeff# coding: utf-16\n", 1),  # a mark that says UTF-8, and a name that does not
    ("\ufeff#!/bin/python\r\n#coding:koi8_r\r\n", 2),
    ("# encoding: utf-8-x coding: utf-7\n", 1),
    ("# coding: utf8x\n", 1),
]


@pytest.mark.parametrize(("text", "line"), DECLARED)
def test_a_script_in_another_encoding_is_refused_at_its_line(text: str, line: int) -> None:
    _, findings = inspect_item(ItemCandidate.of_file(ItemType.SCRIPT, "acme/tool", text.encode(), "tool.py"))
    found = [f for f in findings if f.code == "bounds.declared-encoding"]
    assert [(f.line, f.path, f.is_error, bool(f.hint)) for f in found] == [(line, "tool.py", True, True)]
    assert not any(
        f.code == "bounds.declared-encoding"
        for f in inspect_item(ItemCandidate.of_file(ItemType.KNOWLEDGE, "a/b", text.encode()))[1]
    )


@pytest.mark.parametrize(
    "text",
    [
        "# coding: utf-8\n",
        "#!/usr/bin/env python3\n# -*- coding: UTF_8 -*-\n",
        "\ufeff# coding: utf-8-sig\n",
        "# coding: utf8\n# coding: latin-1\n",
        "x = 1\n# coding: latin-1\n",
        '"""# coding: latin-1"""\n',
        "\n\n# coding: latin-1\n",
        "# The encoding is a matter of taste\n",
    ],
)
def test_a_script_that_python_reads_as_utf8_passes(text: str) -> None:
    assert tokenize.detect_encoding(io.BytesIO(text.encode()).readline)[0] in ("utf-8", "utf-8-sig", "utf8")
    assert checks.check_python_encoding(text) == []
