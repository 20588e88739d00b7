"""AsyncAPI 2 and 3: one section a channel with its messages, an operation, a message, a schema."""

from __future__ import annotations

import json

import yaml

from kiwi_rag.formats.documents import parse
from kiwi_rag.formats.outcome import ParsedDocument

VERSION_2 = """\
asyncapi: 2.6.0
info:
  title: Check-in events
  x-service: svc-check-in
channels:
  check-in/completed:
    description: Told once a guest has arrived. Never told twice.
    publish:
      summary: A guest has checked in
      message:
        name: CheckInCompleted
        payload: {type: object}
  check-in/cancelled:
    subscribe:
      message: {$ref: '#/components/messages/Cancelled'}
components:
  messages:
    Cancelled:
      payload: {$ref: '#/components/schemas/Reason'}
  schemas:
    Reason: {type: string}
"""
VERSION_3 = """\
asyncapi: 3.0.0
info: {title: Events, version: 1.0.0}
channels:
  completed:
    address: check-in.completed
    messages:
      done: {$ref: '#/components/messages/Done'}
  answer:
    address: null
    description: Where the answer goes. Decided at run time.
  same: {address: same}
operations:
  # Told to everyone
  tellCompleted:
    action: send
    channel: {$ref: '#/channels/completed'}
    summary: Tell that a guest has arrived
components:
  messages:
    Done:
      payload: {type: object}
  securitySchemes:
    scram: {type: scramSha256}
"""


def told(document: ParsedDocument) -> list[tuple[str, tuple[str, ...], int, int]]:
    return [(s.kind, s.heading, s.start_line, s.end_line) for s in document.sections]


def test_a_channel_of_version_2_has_its_operation_and_messages() -> None:
    document = parse("events.yaml", VERSION_2)
    assert (document.file_type, document.title, document.service) == ("asyncapi", "Check-in events", "svc-check-in")
    assert told(document) == [
        ("info", ("info",), 1, 4),
        ("channel", ("publish check-in/completed — A guest has checked in",), 5, 12),
        ("channel", ("subscribe check-in/cancelled",), 13, 15),
        ("message", ("messages", "Cancelled"), 16, 19),
        ("schema", ("schemas", "Reason"), 20, 21),
    ]


def test_version_3_has_channels_operations_and_messages() -> None:
    assert told(parse("events.yaml", VERSION_3)) == [
        ("info", ("info",), 1, 2),
        ("channel", ("check-in.completed (completed)",), 3, 7),
        ("channel", ("answer — Where the answer goes",), 8, 10),
        ("channel", ("same",), 11, 11),
        ("channel", ("send tellCompleted — Tell that a guest has arrived",), 12, 17),
        ("message", ("messages", "Done"), 18, 21),
        ("definition", ("securitySchemes", "scram"), 22, 23),
    ]


def test_an_address_that_is_the_word_null_is_kept() -> None:
    text = "asyncapi: 3.0.0\nchannels:\n  a:\n    address: 'null'\n"
    assert told(parse("events.yaml", text))[1][1] == ("null (a)",)


def test_json_has_the_same_sections() -> None:
    for text in (VERSION_2, VERSION_3):
        document = parse("events.json", json.dumps(yaml.safe_load(text), indent=2))
        assert document.file_type == "asyncapi"
        assert [s.heading for s in document.sections] == [s.heading for s in parse("events.yaml", text).sections]


def test_channels_that_are_no_mapping_are_kept() -> None:
    text = "asyncapi: 2.0.0\nchannels: none\noperations:\ncomponents: []\n"
    assert "\n".join(s.text for s in parse("events.yaml", text).sections) == text.rstrip("\n")
