"""Metadata by top-level key and by record; streams of documents; and what becomes of texts that cannot be read."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time

import pytest

from kiwi_rag.formats.documents import parse
from kiwi_rag.formats.outcome import ParsedDocument
from tests.examples import size

WORDS = "what is said of it at some length " * 3


def told(document: ParsedDocument) -> list[tuple[tuple[str, ...], int, int]]:
    return [(s.heading, s.start_line, s.end_line) for s in document.sections]


def record(name: str) -> str:
    return f"  - id: {name}\n    title: Title of {name}\n    about: {WORDS}\n    tags: [a, b]\n"


def test_each_top_level_key_is_a_section_and_short_neighbours_share_one() -> None:
    text = f"""\
# Capabilities
name: check-in
owner: ops

# Why it is there
about: {WORDS}
needs:
  - one
  - {WORDS}
"""
    document = parse("capability.yaml", text)
    assert (document.file_type, document.title) == ("yaml", "check-in")
    assert told(document) == [(("name, owner",), 1, 3), (("about",), 5, 6), (("needs",), 7, 9)]


def test_a_long_list_of_records_is_a_section_each() -> None:
    text = "version: 1\ntickets:\n" + "".join(record(f"T-{n}") for n in range(12))
    sections = told(parse("tickets.yaml", text))
    assert sections[1] == (("tickets", "T-0 — Title of T-0"), 2, 6)
    assert sections[12] == (("tickets", "T-11 — Title of T-11"), 47, 50)
    assert len(sections) == 13


def test_a_short_list_of_records_stays_whole() -> None:
    text = "version: 1\ntickets:\n" + record("T-1") + record("T-2")
    assert told(parse("tickets.yaml", text)) == [(("version",), 1, 1), (("tickets",), 2, 10)]


def test_a_dash_on_a_line_of_its_own_opens_its_record() -> None:
    text = "".join(f"-\n  name: {name}\n  about: {WORDS}\n" for name in "ab")
    assert told(parse("list.yaml", text)) == [(("a",), 1, 3), (("b",), 4, 6)]


def test_a_long_mapping_of_records_is_a_section_each() -> None:
    services = {f"svc-{n}": {"image": f"image-{n}", "about": WORDS} for n in range(12)}
    document = parse("compose.json", json.dumps({"services": services}, indent=2))
    assert document.file_type == "json"
    assert [s.heading for s in document.sections] == [("services", f"svc-{n}") for n in range(12)]


def test_a_record_of_many_lines_is_divided_again() -> None:
    huge = {f"part-{n}": {"about": WORDS * 8} for n in range(8)}
    document = parse("data.json", json.dumps({"things": {"huge": huge, "small": {"about": WORDS}}}, indent=2))
    assert [s.heading for s in document.sections] == [
        *(("things", "huge", f"part-{n}") for n in range(8)),
        ("things", "small"),
    ]


def test_documents_of_a_stream_are_named_by_what_they_say() -> None:
    text = f"""\
---
kind: Deployment
metadata:
  name: svc-check-in
spec: {{about: {WORDS}}}
---
kind: Service
metadata: {{name: svc-check-in}}
spec: {{about: {WORDS}}}
---
"""
    document = parse("k8s.yaml", text)
    assert told(document) == [(("Deployment svc-check-in",), 1, 5), (("Service svc-check-in",), 6, 10)]


def test_json_lines_are_a_section_a_record() -> None:
    text = "".join(json.dumps({"id": f"T-{n}", "about": WORDS}) + "\n" for n in range(3))
    assert told(parse("tickets.jsonl", text)) == [(("T-0",), 1, 1), (("T-1",), 2, 2), (("T-2",), 3, 3)]


def test_comments_and_last_commas_in_json_are_passed_over() -> None:
    text = '// settings\n{\n  "a": "// no, /* text */ ,]", /* why */\n  "b": [1, 2,],\n}\n'
    document = parse("settings.json", text)
    assert not document.findings
    assert told(document) == [(("a, b",), 1, 5)]


def test_numbers_of_any_length_are_text() -> None:
    document = parse("x.json", '{"a": ' + "1" * 6_000 + ', "b": NaN}')
    assert (document.file_type, document.findings) == ("json", ())


def test_json_in_a_yaml_file_may_say_what_libyaml_refuses() -> None:
    text = json.dumps({"a": "\U0001f600", "k" * 2_000: 1})
    assert parse("x.yaml", text).file_type == "json"


def test_a_long_run_of_short_keys_is_several_sections() -> None:
    sections = told(parse("x.yaml", "".join(f"key-{n}: value\n" for n in range(200))))
    assert len(sections) == 4
    assert sections[0][0][0].startswith("key-0, key-1, key-2, ")


def test_a_long_mapping_of_mere_values_stays_whole() -> None:
    text = "settings:\n" + "".join(f"  key-{n}: {WORDS}\n" for n in range(20)) + "  more: {a: 1}\n"
    assert told(parse("x.yaml", text)) == [(("settings",), 1, 22)]


def test_service_and_domain_are_keys_of_their_own() -> None:
    document = parse("svc-other/meta.yaml", "service: svc-check-in\ndomain: Operations\ntitle: Check-ins\n")
    assert (document.service, document.domain, document.title) == ("svc-check-in", "Operations", "Check-ins")
    assert parse("svc-other/meta.yaml", "service: {port: 80}\n").service == "svc-other"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Who owns what\na: 1\n", "Who owns what"),
        ("a: 1\n", "meta.yaml"),
        ('{"info": {"title": "In info"}}', "In info"),
    ],
)
def test_a_title_is_said_by_the_content_or_the_name(text: str, title: str) -> None:
    assert parse("x/meta.yaml", text).title == title


@pytest.mark.parametrize(
    "text", ["# only\n# comments\n", "word\n", "--- |\n  literal\n", "[]\n", "{}\n", "- a\n- b\n", "null\n"]
)
def test_what_has_no_keys_is_one_section(text: str) -> None:
    document = parse("x.yaml", text)
    assert not document.findings
    assert "\n".join(s.text for s in document.sections) == text.rstrip("\n")


@pytest.mark.parametrize("path", ["x.yaml", "x.json"])
@pytest.mark.parametrize("text", ["", "\n", " \n\t\n"])
def test_an_empty_file_has_no_sections(path: str, text: str) -> None:
    assert not parse(path, text).sections


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("x.yaml", "a: b\n\0: c\n", 2),
        ("x.yaml", "é" * 20 + ": b\n\x01" + "\n" * 20, 2),
        ("x.yaml", 'a: 1\nb: "never closed\nc: 2\n', 2),
        ("x.yaml", "a:\n\tb: c\n", 2),
        ("x.yaml", "a: 1\n{{- if x }}\nb: c\n", 2),
        ("x.yaml", "a: 1\nb: '\ud800'\n", 2),
        ("x.yaml", "%TAG !a! x\n" * 200_000, 2),
        ("x.json", '{"a": 1,\n "b": }\n', 2),
        ("x.json", '{"a": 1,\n "b": 2', 2),
        ("x.json", '{"a": {\n "b" 1}}', 2),
        ("x.json", '{"a": 1}\nand more', 2),
        ("x.json", "{\n1}", 2),
    ],
)
def test_what_cannot_be_read_is_text_with_one_warning(path: str, text: str, line: int) -> None:
    document = parse(path, text)
    assert document.file_type == "text"
    (finding,) = document.findings
    assert (finding.code, finding.severity, finding.line, finding.path) == ("document.malformed", "warning", line, path)
    assert "\n".join(s.text for s in document.sections).split() == text.split()


def test_anchors_aliases_tags_and_repeated_keys_are_text() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
    itself = "me: &me\n  again: *me\nalso: [*unknown]\nme: !!python/object:os.system {x: y}\n"
    for text in (bomb, itself):
        document = parse("x.yaml", text)
        assert document.file_type == "yaml"
        assert not document.findings
        assert "\n".join(s.text for s in document.sections) == text.rstrip("\n")


DEEP = """
import sys
from kiwi_rag.formats.documents import parse
count = 200_000
for path, text in {
    "list.yaml": "[" * count + "]" * count, "map.yaml": "{a: " * count,
    "dash.yaml": "- " * count, "key.yaml": "? " * count,
    "list.json": "[" * count + "]" * count, "map.json": '{"a":' * count + "1" + "}" * count,
    "below.json": '{"a":[{"b":' + "[" * count + "]" * count + "}]}",
}.items():
    document = parse(path, text)
    assert document.file_type == "text", path
    assert [f.code for f in document.findings] == ["document.malformed"], path
print("alive")
"""


def test_nesting_of_any_depth_leaves_the_process_alive() -> None:
    # In a process of its own: what is feared is a crash of the interpreter.
    run = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "alive"), run.stderr[-500:]


def seconds(path: str, text: str) -> float:
    """The least of three: what else the machine does makes a call slower, and never quicker.

    Without collecting garbage, which takes as long as the tests before have left objects.
    """
    taken = []
    gc.disable()
    try:
        for _ in range(3):
            started = time.process_time()
            parse(path, text)
            taken.append(time.process_time() - started)
    finally:
        gc.enable()
    return min(taken)


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("x.yaml", "key{n}: value\n"),
        ("x.yaml", "---\na: {n}\n"),
        ("x.yaml", "# comment {n}\n"),
        ("x.yaml", "a{n}: &a{n} [*a{n}]\n"),
        ("x.yaml", "-\n"),
        ("x.jsonl", '{{"id": {n}}} '),
        ("x.json", '"\\'),
        ("x.json", "/* "),
        ("x.yaml", "%TAG !a{n}! x\n"),
        ("x.json", ", "),
    ],
)
def test_four_times_the_text_takes_about_four_times_as_long(path: str, unit: str) -> None:
    count = size(5_000)
    small, large = ("".join(unit.format(n=n) for n in range(length)) for length in (count, 4 * count))
    parse(path, unit.format(n=0))  # imports what the format needs
    # Quadratic would be 16 times; the rest is for what else the machine does.
    assert seconds(path, large) < 8 * seconds(path, small) + size(100) / 1000


def test_a_minified_file_of_many_megabytes_is_cut_within_seconds() -> None:
    paths = {f"/p{n}": {"get": {"summary": f"s{n}", "description": WORDS * 8}} for n in range(size(10_000))}
    text = json.dumps({"openapi": "3.0.0", "paths": paths}, separators=(",", ":"))
    started = time.process_time()
    document = parse("big.json", text)
    assert time.process_time() - started < 20 * len(text) / 10_000_000
    assert len(document.sections) == size(10_000) + 1
    assert "".join(s.text for s in document.sections) == text
