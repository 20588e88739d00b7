"""OpenAPI: one section an operation, a schema, the description and each definition, at true lines, in each form."""

from __future__ import annotations

import json

import pytest
import yaml

from kiwi_rag.formats.documents import parse
from kiwi_rag.formats.outcome import ParsedDocument
from kiwi_rag.model import Section

SPEC = """\
# Check-ins, as the gate sees them
openapi: 3.0.3
info:
  title: Check-in API
  version: 1.4.0
  x-service: svc-check-in
  x-domain: Operations
servers:
  - url: https://api.example.test
tags:
  - name: check-ins

paths:
  # Guests arrive here
  /check-ins:
    parameters:
      - $ref: '#/components/parameters/Tenant'
    get:
      operationId: listCheckIns
      responses: {'200': {description: ok}}

    # Creates one
    post:
      summary: Create a check-in
      requestBody:
        content:
          application/json:
            schema: {$ref: '#/components/schemas/CheckIn'}
      responses: {'201': {description: created}}
    parameters:
      - {name: late, in: query, schema: {type: boolean}}
    description: said late
  /check-ins/{id}:
    delete:
      summary: |
        Remove
        a check-in
      responses: {'204': {description: gone}}
  /shared:
    $ref: './shared.yaml#/paths/~1shared'

components:
  schemas:
    CheckIn:
      type: object
      properties:
        next: {$ref: '#/components/schemas/CheckIn'}
    Guest: {type: string}
  parameters:
    Tenant: {name: tenant, in: header, schema: {type: string}}
  securitySchemes: {}
security: []
"""
EXPECTED = [
    ("info", ("info",), 1, 11),
    ("endpoint", ("GET /check-ins — listCheckIns",), 13, 20),
    ("endpoint", ("POST /check-ins — Create a check-in",), 22, 29),
    ("definition", ("/check-ins", "parameters"), 30, 32),
    ("endpoint", ("DELETE /check-ins/{id} — Remove a check-in",), 33, 38),
    ("definition", ("/shared",), 39, 40),
    ("schema", ("schemas", "CheckIn"), 42, 47),
    ("schema", ("schemas", "Guest"), 48, 48),
    ("definition", ("parameters", "Tenant"), 49, 50),
    ("definition", ("securitySchemes",), 51, 51),
    ("info", ("info",), 52, 52),
]


def told(document: ParsedDocument) -> list[tuple[str, tuple[str, ...], int, int]]:
    return [(s.kind, s.heading, s.start_line, s.end_line) for s in document.sections]


def named(document: ParsedDocument) -> list[tuple[str, tuple[str, ...]]]:
    return [(s.kind, s.heading) for s in document.sections]


def only(document: ParsedDocument, heading: str) -> Section:
    (section,) = (s for s in document.sections if s.heading[-1].startswith(heading))
    return section


def test_every_part_has_a_section_at_its_lines() -> None:
    assert told(parse("specs/api.yaml", SPEC)) == EXPECTED


def test_sections_are_the_lines_they_name_and_leave_none_out() -> None:
    lines = SPEC.split("\n")
    sections = parse("api.yaml", SPEC).sections
    assert all(s.text == "\n".join(lines[s.start_line - 1 : s.end_line]) for s in sections)
    covered = [n for s in sections for n in range(s.start_line, s.end_line + 1)]
    assert len(covered) == len(set(covered))
    assert set(covered) >= {n for n, line in enumerate(lines, 1) if line.strip()}


def test_a_comment_goes_with_what_it_is_about() -> None:
    document = parse("api.yaml", SPEC)
    assert "# Guests arrive here" in only(document, "GET /check-ins").text
    assert only(document, "POST /check-ins").text.startswith("    # Creates one\n")


def test_title_service_and_domain_are_what_info_says() -> None:
    document = parse("svc-other/api.yaml", SPEC)
    assert (document.file_type, document.title) == ("openapi", "Check-in API")
    assert (document.service, document.domain) == ("svc-check-in", "Operations")


def test_a_service_that_info_does_not_name_is_that_of_the_path() -> None:
    document = parse("specs/svc-check-in.v2.yaml", "openapi: 3.1.0\ninfo: {title: A}\npaths: {}\n")
    assert (document.service, document.domain) == ("svc-check-in", "")


@pytest.mark.parametrize("indent", [1, 2, 4, "\t"])
def test_json_has_the_sections_that_yaml_has(indent: int | str) -> None:
    text = json.dumps(yaml.safe_load(SPEC), indent=indent)
    document = parse("api.json", text)
    # In JSON the keys of one name are one, and it has no comments.
    assert [pair for pair in named(document) if pair[0] == "endpoint"] == [
        e[:2] for e in EXPECTED if e[0] == "endpoint"
    ]
    lines = text.split("\n")
    assert all(s.text == "\n".join(lines[s.start_line - 1 : s.end_line]) for s in document.sections)
    assert "".join("".join(s.text.split()) for s in document.sections) == "".join(text.split())


def test_minified_json_is_cut_within_its_line() -> None:
    text = json.dumps(yaml.safe_load(SPEC), separators=(",", ":"))
    document = parse("api.json", text)
    assert {(s.start_line, s.end_line) for s in document.sections} == {(1, 1)}
    assert "".join(s.text for s in document.sections) == text
    assert only(document, "POST /check-ins").text.startswith('"post":{"summary":"Create a check-in"')
    assert only(document, "GET /check-ins").text.startswith('"paths":{"/check-ins":{')


def test_json_in_a_yaml_file_and_yaml_in_a_json_file_are_read_as_what_they_are() -> None:
    assert parse("api.yaml", json.dumps(yaml.safe_load(SPEC), indent=2)).file_type == "openapi"
    assert told(parse("api.json", SPEC)) == EXPECTED


def test_operations_on_one_short_line_stay_together() -> None:
    text = "openapi: 3.1.0\npaths:\n  /a: {get: {summary: x}, post: {summary: y}}\n"
    assert told(parse("api.yaml", text))[1:] == [("endpoint", ("GET /a — x",), 2, 3)]


def test_swagger_2() -> None:
    text = """\
swagger: '2.0'
info: {title: Old, version: '1'}
basePath: /v1
paths:
  /pets:
    get: {responses: {}}
definitions:
  Pet:
    type: object
  Tag:
    type: object
securityDefinitions:
  key: {type: apiKey}
"""
    assert told(parse("old.yaml", text)) == [
        ("info", ("info",), 1, 3),
        ("endpoint", ("GET /pets",), 4, 6),
        ("schema", ("definitions", "Pet"), 7, 9),
        ("schema", ("definitions", "Tag"), 10, 11),
        ("definition", ("securityDefinitions", "key"), 12, 13),
    ]


def test_webhooks_of_3_1_are_definitions_and_the_rest_around_them_is_kept() -> None:
    text = "openapi: 3.1.0\nwebhooks:\n  arrived:\n    post: {summary: A guest arrived}\ninfo:\n  title: Hooks\n"
    assert told(parse("hooks.yaml", text)) == [
        ("info", ("info",), 1, 1),
        ("definition", ("webhooks", "POST arrived — A guest arrived"), 2, 4),
        ("info", ("info",), 5, 6),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "openapi: 3.0.0\npaths:\n",
        "openapi: 3.0.0\npaths: [a, b]\n",
        "openapi: 3.0.0\npaths:\n  /a:\n  /b: text\n  /c: [x]\n",
        "openapi: 3.0.0\ncomponents: nothing\n",
        "openapi: 3.0.0\ncomponents:\n  schemas: [a]\n  parameters:\n",
        "openapi: 3.0.0\npaths:\n  /a:\n    get:\n    post: *unknown\n",
        "openapi: 3.0.0\npaths:\n  ? [a, b]\n  : c\n",
    ],
)
def test_a_malformed_description_still_has_all_its_lines(text: str) -> None:
    document = parse("api.yaml", text)
    assert document.file_type == "openapi"
    assert "\n".join(s.text for s in document.sections) == text.rstrip("\n")


def test_a_reference_to_itself_is_text() -> None:
    text = "openapi: 3.0.0\ncomponents:\n  schemas:\n    A: {$ref: '#/components/schemas/A'}\n    B: &b {c: *b}\n"
    assert named(parse("api.yaml", text))[1:] == [("schema", ("schemas", "A")), ("schema", ("schemas", "B"))]


def test_a_repeated_path_is_two_sections() -> None:
    text = "openapi: 3.0.0\npaths:\n  /a:\n    get: {}\n  /a:\n    get: {}\n"
    assert [s.start_line for s in parse("api.yaml", text).sections] == [1, 2, 5]


def test_a_configuration_with_a_key_named_openapi_is_no_description() -> None:
    assert parse("config.yaml", "openapi:\n  enabled: true\n").file_type == "yaml"
    assert parse("config.yaml", "openapi: enabled\n").file_type == "yaml"


def test_other_signs_that_end_a_line_in_yaml_1_1_do_not_move_the_lines() -> None:
    text = "openapi: 3.0.0\ninfo:\n  title: 'a\u2028b\u0085c'\npaths:\n  /a:\n    get: {}\n"
    assert told(parse("api.yaml", text))[-1] == ("endpoint", ("GET /a",), 4, 6)
