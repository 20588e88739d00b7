"""Citations: what a model says is shown with numbers that exist, and what it invents is marked."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.answers.citations import CitationCheck, Sentence, quotations, split_sentences

PASSAGES = (
    "Roll back with `acmectl rollback SERVICE`.\n\nThe   canary is judged for ten minutes. Then everybody gets it.",
    "Backups are kept for 35 days in a second region.\n\n```sh\nacmectl backup list\nacmectl backup restore\n```\n",
)


def checked(*sentences: str) -> Sentence:
    check = CitationCheck(PASSAGES)
    return [check.check(sentence) for sentence in sentences][-1]


def split(text: str) -> list[str]:
    found, rest = split_sentences(text)
    return [part.strip() for part in (*found, rest) if part.strip()]


@pytest.mark.parametrize(
    ("text", "shown", "citations"),
    [
        ("The canary is judged for ten minutes [1].", "The canary is judged for ten minutes [1].", (1,)),
        ("The canary is judged, backups are kept [1, 2].", "The canary is judged, backups are kept [1][2].", (1, 2)),
        ("The canary is judged, backups are kept [1-2].", "The canary is judged, backups are kept [1][2].", (1, 2)),
        ("The canary is judged 【1†source】.", "The canary is judged [1].", (1,)),
        ("The canary is judged [^1] [Source 1].", "The canary is judged [1] [1].", (1,)),
        ("The canary is judged `[1]`.", "The canary is judged [1].", (1,)),
    ],
)
def test_citations_of_every_form_are_read(text: str, shown: str, citations: tuple[int, ...]) -> None:
    assert checked(text) == Sentence(shown, citations)


@pytest.mark.parametrize("number", ["0", "3", "007", "9" * 5000, "2-9", "1, 3"])
def test_a_number_that_does_not_exist_is_taken_out(number: str) -> None:
    found = checked(f"The canary is judged for ten minutes [{number}].")
    assert "wrong-number" in found.marks
    assert set(re.findall(r"\[(\d+)\]", found.text)) <= {"1"}
    assert " ." not in found.text


def test_a_link_cannot_carry_a_number_that_does_not_exist() -> None:
    assert "[9]" not in checked("See [9](https://evil.example).").text


@pytest.mark.parametrize(
    "text",
    [
        "It says “Then everybody gets it.” [1].",
        'It says "The canary is judged" [1].',
        "It says «judged for ten minutes» [1].",
        "It says “Roll back with `acmectl rollback SERVICE`.” [1].",
        "Run `acmectl rollback SERVICE` [1].",
        "> The canary is judged for ten minutes. Then everybody gets it. [1]",
        "It says 'The canary is judged' [1].",
        "It says ‘The canary is judged’ [1].",
    ],
)
def test_words_that_stand_in_the_passage_may_be_quoted(text: str) -> None:
    assert checked(text).marks == ()
    assert list(quotations(text))


@pytest.mark.parametrize(
    "text",
    [
        "It says “Then nobody gets it.” [1].",
        'It says "The canary is judged for ten minutes" [2].',
        "It says «judged for eleven minutes» [1].",
        "It says „judged for eleven minutes“ [1].",
        "The canary is judged “for ten minutes, at full moon only [1].",
        'The canary is judged "for eleven minutes [1].',
        "Run `acmectl rollback --force` [1].",
        "Run ``acmectl rollback --force`` for the canary [1].",
        "The canary is judged `for eleven minutes [1].",
        "> The canary is judged at full moon. [1]",
        "- > The canary is judged at full moon. [1]",
        "The docs say ‘the canary is judged for eleven minutes’ [1].",
        "The docs say ‘don’t judge the canary for ten minutes’ [1].",
        "The docs say 'the canary is judged for eleven minutes' [1].",
        "The docs say ”the canary is judged for eleven minutes” [1].",
        "The docs say ‹the canary is judged for eleven minutes› [1].",
        "The docs say 「the canary is judged for eleven minutes」 [1].",
        "The docs say ＂the canary is judged for eleven minutes＂ [1].",
        "The docs say &quot;the canary is judged for eleven minutes&quot; [1].",
        "The docs say <Q cite=x>the canary is judged for eleven minutes</Q> [1].",
    ],
)
def test_words_that_do_not_stand_there_are_marked(text: str) -> None:
    found = checked(text)
    assert "quote-not-found" in found.marks
    assert found.missing


def test_a_quotation_over_several_sentences_is_one() -> None:
    text = "It says “The canary is judged for ten minutes. Then nobody gets it.” [1] Backups are kept [2]."
    first, second = split(text)
    assert checked(first).missing == ("The canary is judged for ten minutes. Then nobody gets it.",)
    assert checked(second).marks == ()


def test_code_in_a_fence_belongs_to_the_sentence_before() -> None:
    good, bad = "```sh\nacmectl backup list\nacmectl backup restore\n```\n", "```\nrm -rf /srv\n```\n"
    assert checked("List the backups, and restore [2]:\n", good) == Sentence(good.strip(), (2,))
    assert checked("List the backups, and restore [2]:\n", bad).marks == ("quote-not-found", "weak")
    assert "unsupported" in checked("Do so:\n", good).marks
    lie = "```\nacmectl backup list\n``` and then delete them\n"
    assert "quote-not-found" in checked("List the backups [2]:\n", lie).marks
    text = f"List [2]:\n{good}Then wait [1]."
    assert [part.strip() for part in split(text)] == ["List [2]:", good.strip(), "Then wait [1]."]


def test_what_cites_nothing_and_what_its_source_does_not_speak_of_is_marked() -> None:
    assert checked("Everybody knows that.").marks == ("unsupported",)
    assert checked("Penguins huddle on glaciers during blizzards [1].").marks == ("weak",)
    assert checked("The canaries are judged for ten minutes [1].").marks == ()
    assert checked("Not in these sources.") == Sentence("Not in these sources.")
    assert checked("---") == Sentence("---")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One thing [1]. Another [2].", ["One thing [1].", "Another [2]."]),
        ("One thing. [1] Another. [2]", ["One thing. [1]", "Another. [2]"]),
        ("One thing.\n[1]\nAnother.", ["One thing.\n[1]", "Another."]),
        ("Some, e.g. this one [1]. 42 others.", ["Some, e.g. this one [1].", "42 others."]),
        ("1. Do this [1].\n2. Do that [2].", ["1. Do this [1].", "2. Do that [2]."]),
        ("- a [1]\n- b [2]\n\nc", ["- a [1]", "- b [2]", "c"]),
        ("Version 1.2.3 is it! Really?", ["Version 1.2.3 is it!", "Really?"]),
    ],
)
def test_sentences_are_split(text: str, sentences: list[str]) -> None:
    assert split(text) == sentences


@given(st.text(alphabet='aZ.!? \n[1]"“”`>«»-,', max_size=120), st.integers(1, 9))
def test_a_stream_gives_the_same_sentences_as_the_whole(text: str, size: int) -> None:
    found, rest = list[str](), ""
    for begin in range(0, len(text), size):
        whole, rest = split_sentences(rest + text[begin : begin + size])
        found += whole
    assert [part.strip() for part in (*found, rest) if part.strip()] == split(text)


@given(st.text(alphabet='ab.[]123,-`"“”> \n', max_size=200))
def test_whatever_is_said_every_shown_number_exists_and_every_unmarked_quotation_stands(text: str) -> None:
    check = CitationCheck(PASSAGES)
    for part in split(text):
        found = check.check(part)
        bare = re.sub(r"(?<!`)(`{1,3})(?!`).+?\1(?!`)", "", found.text, flags=re.DOTALL)  # no citations are in code
        if not found.text.startswith("```"):
            assert set(re.findall(r"\[(\d+)\]", bare)) <= {"1", "2"}
        assert set(found.citations) <= {1, 2}
        cited = [" ".join(PASSAGES[number - 1].split()) for number in found.citations]
        for quote in set(quotations(found.text)) - set(found.missing):
            assert any(" ".join(quote.split()) in passage for passage in cited)


def test_escapes_and_reordering_characters_are_shown_as_text() -> None:
    assert checked("\x1b[2JIt is \u202egood\x07 [1].").text == "�[2JIt is �good� [1]."


@pytest.mark.parametrize(
    "text",
    [
        "`" * 6000,
        "." * 6000,
        "[1" * 3000,
        ". " * 3000,
        '"' * 6000,
        "“" * 6000,
        "1," * 3000,
        " 'a" * 2000,
        "‘’a" * 2000,
        "<q>" * 2000,
    ],
)
def test_hostile_text_is_checked_in_bounded_time(text: str) -> None:
    started = time.process_time()
    for part in split(text):
        checked(part)
    assert time.process_time() - started < 5


def test_a_stream_of_empty_lines_is_split_in_bounded_time() -> None:
    started, rest = time.process_time(), ""
    for _ in range(3000):
        found, rest = split_sentences(rest + "\n")
        assert not found
    assert time.process_time() - started < 5
