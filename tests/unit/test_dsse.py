"""DSSE envelopes: the specification's own example, both base64 alphabets, and everything that is not strict."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kiwi_rag.errors import BadSignature, MalformedEnvelope, Unsigned
from kiwi_rag.model import Envelope
from kiwi_rag.signing import dsse, keys
from tests.conformance.items import admission

ADA, BOB = keys.generate("ada"), keys.generate("bob")
PAYLOAD = b'{"a":1}'


def signature(key: keys.SigningKey, payload: bytes = PAYLOAD) -> bytes:
    return key._private.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))


def envelope(*signatures: tuple[str, bytes]) -> Envelope:
    return Envelope(dsse.PAYLOAD_TYPE, PAYLOAD, signatures)


def document(**changes: Any) -> dict[str, Any]:
    return {**dsse.encode(envelope((ADA.key_id, signature(ADA)))), **changes}


def test_pae_is_that_of_the_specification() -> None:
    wanted = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == wanted


def test_pae_counts_bytes_not_characters() -> None:
    assert dsse.pae("é", "ü".encode()) == b"DSSEv1 2 \xc3\xa9 2 \xc3\xbc"


def test_an_envelope_comes_back_as_it_was() -> None:
    sealed = admission("acme/one").envelope
    assert dsse.decode(json.loads(json.dumps(dsse.encode(sealed)))) == sealed


@pytest.mark.parametrize("alphabet", [base64.b64encode, base64.urlsafe_b64encode])
def test_both_base64_alphabets_decode(alphabet: Any) -> None:
    data = bytes(range(256)) + b"\xfb\xff\xfe"
    assert any(c in alphabet(data).decode() for c in "+/-_")
    assert dsse.from_base64(alphabet(data).decode(), "payload") == data


@pytest.mark.parametrize("text", ["a", "ab=c", "ab c", "ab==\n", "é===", "====", "YQ", None, 7, b"YQ=="])
def test_what_is_not_base64_is_refused(text: object) -> None:
    with pytest.raises(MalformedEnvelope):
        dsse.from_base64(text, "payload")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 1}}',
        "[NaN]",
        "[Infinity]",
        "[-Infinity]",
        "[1e400]",
        "[-1e400]",
        "{",
        "",
        "[1,]",
        "[" * 100_000,
        "[" + "9" * 5_000 + "]",
        b"\xff",
    ],
    ids=lambda text: repr(text)[:20],
)
def test_what_is_not_strict_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(MalformedEnvelope, match="the thing is not strict JSON"):
        dsse.strict_json(text, "the thing")


def test_strict_json_reads_ordinary_json() -> None:
    assert dsse.strict_json('{"a": [1, 2.5, null, true, "x"]}', "it") == {"a": [1, 2.5, None, True, "x"]}


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        "text",
        document(extra=1),
        {k: v for k, v in document().items() if k != "payload"},
        document(payloadType="application/json"),
        document(payloadType=None),
        document(payload=5),
        document(payload="!"),
        document(signatures={}),
        document(signatures="x"),
        document(signatures=None),
        document(signatures=["x"]),
        document(signatures=[{"sig": "YQ=="}]),
        document(signatures=[{"keyid": "k", "sig": "YQ==", "cert": "c"}]),
        document(signatures=[{"keyid": None, "sig": "YQ=="}]),
        document(signatures=[{"keyid": "k", "sig": None}]),
        document(signatures=[{"keyid": "k", "sig": "YQ=="}] * (dsse.MAX_SIGNATURES + 1)),
    ],
    ids=range(18),
)
def test_a_malformed_envelope_is_refused(broken: object) -> None:
    with pytest.raises(MalformedEnvelope):
        dsse.decode(broken)


def test_as_many_signatures_as_allowed_are_read() -> None:
    entry = {"keyid": "k", "sig": "YQ=="}
    assert len(dsse.decode(document(signatures=[entry] * dsse.MAX_SIGNATURES)).signatures) == dsse.MAX_SIGNATURES


def test_an_envelope_without_signatures_is_unsigned() -> None:
    with pytest.raises(Unsigned):
        dsse.decode(document(signatures=[]))


def test_the_keyid_is_only_a_hint() -> None:
    known = {ADA.key_id: ADA.public_key, BOB.key_id: BOB.public_key}
    for claimed in (ADA.key_id, BOB.key_id, "", "nobody's"):
        assert dsse.verify(envelope((claimed, signature(ADA))), known) == (ADA.key_id,)


def test_a_right_keyid_does_not_make_a_wrong_signature_right() -> None:
    with pytest.raises(BadSignature):
        dsse.verify(envelope((ADA.key_id, signature(BOB))), {ADA.key_id: ADA.public_key})


def test_the_threshold_counts_distinct_keys() -> None:
    known = {ADA.key_id: ADA.public_key, BOB.key_id: BOB.public_key}
    twice = envelope((ADA.key_id, signature(ADA)), (BOB.key_id, signature(ADA)))
    with pytest.raises(BadSignature):
        dsse.verify(twice, known, threshold=2)
    both = envelope((ADA.key_id, signature(ADA)), (BOB.key_id, signature(BOB)))
    assert dsse.verify(both, known, threshold=2) == tuple(sorted(known))


@pytest.mark.parametrize("threshold", [0, -1])
def test_no_threshold_lets_an_unsigned_envelope_through(threshold: int) -> None:
    with pytest.raises(BadSignature):
        dsse.verify(envelope(("", signature(BOB))), {ADA.key_id: ADA.public_key}, threshold)


def test_the_signature_covers_the_payload_type() -> None:
    other = Envelope("application/json", PAYLOAD, ((ADA.key_id, signature(ADA)),))
    with pytest.raises(BadSignature):
        dsse.verify(other, {ADA.key_id: ADA.public_key})
