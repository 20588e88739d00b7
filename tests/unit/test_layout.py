"""Text for terminals: what a width allows, that no word is cut, and which lines of a passage are shown."""

from __future__ import annotations

import io
import os
import struct
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from kiwi_rag.local_service import terminal_columns
from kiwi_rag.render.layout import columns, excerpt, fold, fold_notice, mark

WORDS = st.text(st.sampled_from("abcdefghijß日本語한🥝é./_-"), min_size=1, max_size=30)
FIELDS = st.lists(st.lists(WORDS, min_size=1, max_size=8).map(" ".join), min_size=1, max_size=6)


def marked(text: str, role: str) -> str:
    return f"[{text}]" if role == "match" else text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("abc", 3), ("日本", 4), ("한글", 4), ("e\u0301", 1), ("🥝", 2), ("❤\ufe0f", 2), ("ﬁ", 1), ("", 0)],
)
def test_wide_characters_take_two_columns_and_accents_none(text: str, expected: int) -> None:
    assert columns(text) == expected


# Hexagrams and tetragrams, which Unicode 16 made wide and Python 3.11 does not know to be.
NEWLY_WIDE = {*range(0x2630, 0x2638), *range(0x268A, 0x2690), *range(0x4DC0, 0x4E00), *range(0x1D300, 0x1D380)}


def test_no_character_takes_more_columns_than_are_counted() -> None:
    assigned = (chr(n) for n in range(0x20, 0x110000) if n not in NEWLY_WIDE)
    shown = [c for c in assigned if unicodedata.category(c) not in ("Cc", "Cn", "Co", "Cs")]
    assert len(shown) > 100_000
    assert [c for c in shown if columns(c) < cell_len(c)] == []


@given(FIELDS, st.integers(20, 200))
@example(["a/very/long/path/that/is/longer/than/the/line.md:12", "b"], 20)
def test_no_line_is_over_the_width_but_a_word_that_is_and_none_is_cut(fields: list[str], width: int) -> None:
    lines = fold([(field, "") for field in fields], width, first=" 1. ")
    for line in lines:
        assert columns(line) <= width or len(line.split()) == 1
    assert " ".join(lines).split() == ["1.", *" ".join(fields).split()]


@given(FIELDS)
def test_without_a_width_there_is_one_line(fields: list[str]) -> None:
    assert fold([(field, "") for field in fields], 0) == ["    " + "  ".join(fields)]


def test_a_command_at_the_end_of_a_notice_is_not_broken() -> None:
    notice = "  2 files changed since the last index run: kiwi workspace index /srv/somewhere/deep"
    assert fold_notice(notice, 60) == [
        "  2 files changed since the last index run:",
        "  kiwi workspace index /srv/somewhere/deep",
    ]
    assert fold_notice(notice, 0) == fold_notice(notice, 100) == [notice]


TEXT = """# Release

The first lines say nothing of it.
They go on for a while.
To undo a release, run deploy_staging with --rollback and wait.
Nobody needs this line.
"""


def test_a_snippet_is_the_lines_that_match_with_the_words_marked() -> None:
    weights = {"undo": 2.0, "deploy": 1.0}
    assert excerpt(TEXT, weights, 80, marked, ["Release"]) == [
        "To [undo] a release, run [deploy]_staging with --rollback and wait.",
        "Nobody needs this line.",
    ]


def test_a_snippet_of_a_passage_without_the_words_is_its_beginning_without_the_title() -> None:
    assert excerpt(TEXT, {"zebra": 1.0}, 80, marked, ["Release"])[0] == "The first lines say nothing of it."
    assert excerpt("# Release\n", {}, 80, marked, ["Release"]) == ["# Release"]
    assert excerpt("", {"zebra": 1.0}, 80) == excerpt("", {}, 0) == []


def test_a_long_line_is_shown_around_the_words_that_match() -> None:
    line = f"{'before ' * 60}the mooring line is doubled {'after ' * 60}"
    for width in (60, 80, 120, 200):
        rows = excerpt(line, {"moor": 1.0}, width, marked)
        assert "[mooring]" in " ".join(rows)
        assert (rows[0][:2], rows[-1][-2:]) == ("… ", " …")
        assert all(columns(row.replace("[", "").replace("]", "")) <= width - 4 for row in rows)
    (only,) = excerpt(line, {"moor": 1.0}, 0, marked)
    assert "[mooring] line is doubled" in only


def test_a_piece_that_is_wider_than_the_line_is_left_out_and_never_cut() -> None:
    digest = "0123456789abcdef" * 8
    assert excerpt(f"sum {digest} ends", {"end": 1.0}, 60, marked) == ["sum … [ends]"]
    rows = excerpt("https://example.org/" + "/".join(f"part{n}" for n in range(20)), {"part15": 1.0}, 40, marked)
    assert "[part15]/" in " ".join(rows)


def test_marks_for_what_is_left_out_never_stand_side_by_side() -> None:
    text = f"short mooring\n\nx\ny\nmooring {'0' * 300} {'1' * 300} ends\nz\na mooring {'2' * 300} and {'after ' * 60}"
    (only,) = excerpt(text, {"moor": 1.0}, 0, marked)
    assert only.count("[mooring]") >= 2
    assert " … " in only
    assert "……" not in only.replace(" ", "")


def test_text_without_spaces_is_broken_between_its_characters() -> None:
    text = "日本語の文章には空白がありませんから、どの文字の間でも行を終えることができます。" * 4
    rows = excerpt(text, {}, 60)
    assert all(50 <= columns(row) <= 56 for row in rows)
    assert "".join(rows).rstrip(" …") in text


@pytest.mark.parametrize(
    ("text", "terms", "expected"),
    [
        ("Deploying deployments", {"deploy"}, "[Deploying] [deployments]"),
        ("getUserById(user)", {"user"}, "get[User]ById([user])"),
        ("svc-check-in", {"check"}, "svc-[check]-in"),
        ("deploy_staging", {"deploy_stag"}, "[deploy_staging]"),
        ("nothing", {"deploy"}, "nothing"),
        ("nothing", set(), "nothing"),
    ],
)
def test_words_are_marked_by_their_stems_and_identifiers_by_their_parts(
    text: str, terms: set[str], expected: str
) -> None:
    assert mark(text, terms, marked) == expected


PASSAGES = st.lists(st.lists(WORDS, max_size=40).map(" ".join), max_size=8).map("\n".join)


@given(PASSAGES, st.integers(20, 200), st.sets(WORDS, max_size=3))
def test_every_snippet_fits_and_its_words_are_the_words_of_the_passage(text: str, width: int, terms: set[str]) -> None:
    weights = dict.fromkeys((word.lower() for word in terms), 1.0)
    rows = excerpt(text, weights, width)
    assert all(columns(row) <= width - 4 for row in rows)
    assert len(rows) <= -(-160 // (width - 4))
    joined = "".join(text.split())
    for row in rows:
        for part in row.split("…"):
            assert "".join(part.split()) in joined


def test_the_width_is_that_of_columns_or_of_the_terminal_and_none_for_a_pipe() -> None:
    pty = pytest.importorskip("pty")  # not on Windows
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    with os.fdopen(leader), os.fdopen(follower, "w") as terminal, io.StringIO() as no_file:
        assert terminal_columns({}, terminal) == 72
        assert terminal_columns({"COLUMNS": "60"}, terminal) == 60
        for wrong in ("", "0x50", "-3", "x", "9" * 50):
            assert terminal_columns({"COLUMNS": wrong}, terminal) == 72
        assert terminal_columns({}, no_file) == 0
        assert terminal_columns({"COLUMNS": "120"}, no_file) == 120
