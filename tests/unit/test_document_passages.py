"""Documents become passages of the wanted size that say truly where they stand; and plain text becomes chunks."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from time import process_time

import pytest

from kiwi_rag.chunking import DOCUMENTS, TextChunker, split_document
from kiwi_rag.errors import UsageError
from kiwi_rag.formats.documents import parse
from kiwi_rag.formats.outcome import ParsedDocument
from kiwi_rag.model import Document, Passage, Section
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.wordpieces import code, embedded_text, estimate_tokens, prose
from tests.document_lines import as_document, assert_passages_are_the_lines
from tests.shared import ROOT

SENTENCE = "A guest checks in at the desk of the lodge. "


def split_markdown(content: str, path: str = "docs/a.md") -> tuple[Passage, ...]:
    found = split_document(as_document(content, parse(path, content), path))
    assert_passages_are_the_lines(content, found)
    return found


def split_text(content: str) -> tuple[Passage, ...]:
    found = split_document(as_document(content, parse("a.txt", content), "a.txt"))
    assert_passages_are_the_lines(content, found)
    return found


def test_a_section_that_fits_stays_whole() -> None:
    content = "# T\n\n" + "\n".join("word " * 10 for _ in range(20)) + "\n\n## Two\n\n" + SENTENCE * 5
    assert [(p.start_line, p.end_line, p.heading, p.kind) for p in split_markdown(content)] == [
        (1, 22, ("T",), "section"), (24, 26, ("T", "Two"), "section")
    ]  # fmt: skip


def test_a_long_section_is_cut_at_blank_lines_and_repeats_a_fifth() -> None:
    paragraph = "\n".join([SENTENCE.strip()] * 4)
    passages = split_text("\n\n".join([paragraph] * 20))
    assert all(500 <= len(p.text) <= 1_000 for p in passages[:-1])
    assert all(0 < first.end_line - second.start_line + 1 <= 5 for first, second in pairwise(passages))
    assert all((p.end_line + 1) % 5 == 0 for p in passages)  # each ends with a paragraph


def test_a_cut_falls_after_a_sentence_rather_than_within_one() -> None:
    lines = ["and so it goes on and on for a while", "until it ends."] * 60
    assert all(p.text.endswith("ends.") for p in split_text("\n".join(lines)))


def test_a_line_that_is_too_long_alone_is_cut_at_sentence_ends() -> None:
    passages = split_markdown(f"# T\n\nShort line before.\n\n{SENTENCE * 60}\n\nShort line after.\n")
    parts = [p for p in passages if (p.start_line, p.end_line) == (5, 5)]
    assert len(parts) > 2
    assert all(p.text.startswith("A guest") and p.text.endswith("lodge.") for p in parts)
    assert {p.start_line for p in passages} == {1, 5, 7}


def test_tiny_sections_share_a_passage_under_a_common_heading() -> None:
    passages = split_markdown("# T\n\n## A\n\none\n\n## B\n\ntwo\n\n# U\n\n" + SENTENCE * 3)
    assert [(p.start_line, p.end_line, p.heading) for p in passages] == [(1, 9, ("T",)), (11, 13, ("U",))]


def test_a_heading_alone_goes_with_what_stands_below_it() -> None:
    passages = split_markdown(f"# T\n\n## A\n\n{SENTENCE * 9}\n\n## B\n\n### C\n\n{SENTENCE * 9}\n")
    assert [(p.start_line, p.heading) for p in passages] == [(1, ("T", "A")), (7, ("T", "B", "C"))]


def test_tiny_sections_of_other_kinds_take_the_kind_of_the_larger() -> None:
    content = "class A {\n    int field = 1;\n    int f() { return 1; }\n}"
    sections = (
        Section("class", "class A {\n    int field = 1;", 1, 2, ("A",)),
        Section("method", "    int f() { return 1; }\n}", 3, 4, ("A", "int f()")),
    )
    (passage,) = split_document(as_document(content, ParsedDocument("java", "A", sections)))
    assert (passage.kind, passage.heading) == ("class", ("A",))


def test_sections_of_one_long_line_are_parts_of_it() -> None:
    content = '{"a": 1, "b": ' + "2" * 3_000 + "}"
    sections = (Section("definition", '"a": 1,', 1, 1, ("a",)), Section("definition", content[9:-1], 1, 1, ("b",)))
    passages = split_document(as_document(content, ParsedDocument("json", "", sections)))
    assert_passages_are_the_lines(content, passages)
    assert passages[0].text == '"a": 1,'
    assert all(len(p.text) <= 1_000 and p.heading == ("b",) for p in passages[1:])


def test_sections_that_share_their_outer_lines_are_cut_there() -> None:
    content = '{"a": {"x": 1,\n"y": 2,\n"z": 3}, "b": {"x": 4,\n"y": 5}}'
    sections = (
        Section("schema", '"a": {"x": 1,\n"y": 2,\n"z": 3}', 1, 3, ("a",)),
        Section("schema", '"b": {"x": 4,\n"y": 5}', 3, 4, ("b",)),
    )
    assert_passages_are_the_lines(content, split_document(as_document(content, ParsedDocument("json", "", sections))))


@pytest.mark.parametrize("sign", ["漢", "~", "a1", "Ab"])
def test_no_passage_has_more_than_the_model_reads(sign: str) -> None:
    for content in (sign * 5_000, f"{sign * 40}\n" * 200, f"{SENTENCE * 9}\n{sign * 3_000}\n{SENTENCE}\n" * 3):
        for passage in split_text(content):
            assert code.count(passage.text) <= DOCUMENTS.tokens


def test_the_estimates_count_what_the_model_sees() -> None:
    assert prose.count("| a | b |\n|---|---|\n**bold** `x`") == 4
    assert code.count("getCheckInStatus(guest_id)") == 8
    assert code.reach("one two three four", 0, 18, 2) == 8
    assert code.reach(" " * 5_000, 0, 1_000, 2) == 1_000


def test_context_is_the_service_the_title_and_the_headings_each_once() -> None:
    content = f"---\ntitle: Check-in API\nservice: svc-check-in\n---\n# Guests\n\n## Arrival\n\n{SENTENCE * 40}"
    assert split_markdown(content)[-1].context == "svc-check-in > Check-in API > Guests > Arrival"
    assert split_markdown(f"# Guests\n\n## Arrival\n\n{SENTENCE * 40}")[-1].context == "Guests > Arrival"


def test_context_is_short_and_keeps_the_innermost_heading() -> None:
    heads = "\n".join("#" * level + " " + f"h{level} " * 25 for level in range(1, 7))
    passage = split_markdown(f"{heads}\n\n{SENTENCE * 40}")[-1]
    assert len(passage.context) <= 200
    assert "h6" in passage.context
    dense = split_markdown("# " + "漢" * 300 + "\n\n" + SENTENCE * 40)
    assert all(estimate_tokens(p.context) <= 80 and len(p.heading[0]) <= 200 for p in dense)


def test_a_file_under_another_name_has_the_same_passages() -> None:
    content = "Some words\nthat have no title.\n"
    named = [split_markdown(content, path) for path in ("docs/old.md", "other/new.md")]
    assert named[0] == named[1]
    assert named[0][0].context == ""


def test_the_model_sees_code_with_its_words_apart_and_prose_without_markup() -> None:
    written = "/**\n * Gets it.\n */\nList<CheckIn> getCheckInStatus(String guest_id) { return HTTPClient.x; }"
    method = Passage(0, written, "com.acme.CheckIns", (), 1, 4, "method")
    assert [line.strip() for line in embedded_text(method).split("\n") if line.strip()] == [
        "com.acme.CheckIns", "Gets it.", "List<Check In> get Check In Status(String guest id) { return HTTP Client.x; }"
    ]  # fmt: skip
    assert embedded_text(Passage(0, "**Ask** `it`", "", (), 1, 1, "section")) == "Ask it"
    assert method.indexed_text == f"com.acme.CheckIns\n{written}"


@pytest.mark.parametrize(
    "content",
    ["x" * 2_000_000, "word " * 400_000, " " * 2_000_000 + "x", "\n" * 2_000_000 + "x", "a b\n" * 500_000],
    ids=["letters", "words", "spaces", "blank-lines", "short-lines"],
)
def test_large_files_take_time_in_proportion(content: str) -> None:
    document = as_document(content, parse("a.txt", content), "a.txt")
    started = process_time()
    passages = split_document(document)
    assert process_time() - started < 15
    assert passages[-1].text.strip()


def test_an_empty_document_has_no_passages() -> None:
    assert split_text("") == ()
    assert split_document(Document(ItemRef(ItemType.DOCUMENT, "a.txt"), {"a.txt": b" \n"}, "a.txt", {}, ())) == ()


def test_chunks_end_at_the_coarsest_separator() -> None:
    chunker = TextChunker(20, 0)
    assert chunker.split("") == []
    assert chunker.split("short") == ["short"]
    assert chunker.split("first paragraph\n\nsecond one") == ["first paragraph\n\n", "second one"]
    assert chunker.split("one line here\nanother line") == ["one line here\n", "another line"]
    assert chunker.split("It ends here. It goes on and on.") == ["It ends here. ", "It goes on and on."]
    assert chunker.split("words and words and words") == ["words and words and ", "words"]
    assert chunker.split("x" * 45) == ["x" * 20, "x" * 20, "x" * 5]


def test_chunks_repeat_from_the_start_of_a_sentence_or_a_word() -> None:
    assert TextChunker(30, 10).split("alpha beta gamma. Delta epsilon zeta eta") == [
        "alpha beta gamma. ", "gamma. Delta epsilon zeta eta"
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (10, 10), (10, -1)])
def test_sizes_that_cannot_be_kept_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(UsageError):
        TextChunker(size, overlap)


def test_a_heading_with_nothing_below_it_is_no_passage_of_its_own() -> None:
    content = "# Guide\n\n## Breaking changes\n\n### First\n\n" + "It was renamed. " * 80 + "\n\n## Next\n\nMore.\n"
    found = split_markdown(content)
    assert not [p for p in found if p.text.strip() in ("# Guide", "## Breaking changes")]
    assert found[0].text.startswith("# Guide\n\n## Breaking changes\n\n### First")
    assert found[0].heading[-1] == "First"


RULES = (
    "-" * 300,
    "=" * 900,
    "-=|:" * 300,
    f"| a | b |\n| {'-' * 40} | {'-' * 60} |\n" * 9,
    "* " * 500,
    "_" * 900,
)


def split_rules() -> None:
    for path in ("a.md", "a.txt"):
        for rule in RULES:
            content = "# Title\n\n" + f"Words and more.\n\n{rule}\n\n" * 9
            print(path, len(split_document(as_document(content, parse(path, content), path))))


def test_rules_and_tables_of_any_length_are_split_in_seconds() -> None:
    """One pattern for many word pieces took minutes for 200 dashes. Nothing but the end of its process ends a match."""
    program = "from tests.unit.test_document_passages import split_rules; split_rules()"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert len(done.stdout.splitlines()) == 2 * len(RULES)
