"""Whatever byte is altered, of a signature or of a signed file, nothing verifies any more."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.errors import BadSignature, Rejected, SignatureRefused
from kiwi_rag.model import Envelope
from kiwi_rag.signing import dsse, statement
from kiwi_rag.signing.trust import Signer, TrustPolicy, verify
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.manager import ValidationManager
from tests import skills
from tests.conformance.documents import ListedLog
from tests.conformance.items import KEY, SIGNED, admission
from tests.examples import examples

ITEM = admission("acme/deploy/staging", '# Deploy\n\nBuild it, push it: ünïcode, "quotes", tabs\t.\n')
ENVELOPE = ITEM.envelope
SIGNATURE_FILE = statement.signature_file(ENVELOPE)
STATEMENT = json.loads(ENVELOPE.payload)
TRUST = TrustPolicy((Signer("ada", KEY.public_key),))
FLIPS = st.integers(1, 255)


def flipped(data: bytes, place: int, bits: int) -> bytes:
    place %= len(data)
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]


def refused(envelope: Envelope) -> None:
    with pytest.raises(SignatureRefused):
        verify(envelope, TRUST)


def test_untouched_it_verifies() -> None:
    assert verify(ENVELOPE, TRUST).statement.digests == ITEM.item.digests
    assert verify(statement.read_signature_file(SIGNATURE_FILE), TRUST).statement.ref == ITEM.ref


@given(st.integers(0, len(ENVELOPE.payload) - 1), FLIPS)
def test_any_altered_byte_of_the_payload_is_refused(place: int, bits: int) -> None:
    altered = replace(ENVELOPE, payload=flipped(ENVELOPE.payload, place, bits))
    refused(altered)
    with pytest.raises(BadSignature):
        dsse.verify(altered, {KEY.key_id: KEY.public_key})


@given(st.integers(0, len(ENVELOPE.payload)), st.binary(min_size=1, max_size=4))
def test_any_inserted_bytes_are_refused(place: int, extra: bytes) -> None:
    payload = ENVELOPE.payload
    refused(replace(ENVELOPE, payload=payload[:place] + extra + payload[place:]))


@given(st.integers(0, len(ENVELOPE.payload) - 1))
def test_any_cut_is_refused(length: int) -> None:
    refused(replace(ENVELOPE, payload=ENVELOPE.payload[:length]))


@given(st.integers(0, 63), FLIPS)
def test_any_altered_byte_of_the_signature_is_refused(place: int, bits: int) -> None:
    (key_id, signature), = ENVELOPE.signatures  # fmt: skip
    refused(replace(ENVELOPE, signatures=((key_id, flipped(signature, place, bits)),)))


@given(st.binary(max_size=70))
def test_no_made_up_signature_verifies(signature: bytes) -> None:
    refused(replace(ENVELOPE, signatures=((KEY.key_id, signature),)))


@given(st.text(max_size=80))
def test_the_keyid_decides_nothing(key_id: str) -> None:
    signature = ENVELOPE.signatures[0][1]
    assert verify(replace(ENVELOPE, signatures=((key_id, signature),)), TRUST).signer.principal == "ada"


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), st.text(max_size=8))
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.text(max_size=4), SCALARS, max_size=2))


@given(st.sampled_from(sorted([*STATEMENT, *STATEMENT["predicate"]])), VALUES)
def test_any_other_value_in_a_statement_is_refused(name: str, value: object) -> None:
    changed = json.loads(ENVELOPE.payload)
    inner = changed if name in changed else changed["predicate"]
    if inner[name] == value and type(inner[name]) is type(value):
        return
    inner[name] = value
    refused(replace(ENVELOPE, payload=statement.canonical(changed)))


@given(st.integers(0, len(SIGNATURE_FILE) - 1), FLIPS)
def test_a_signature_file_with_an_altered_byte_is_refused_or_says_the_very_same(place: int, bits: int) -> None:
    """White space between members, the key id and unused bits of base64 are not signed; they change nothing else."""
    try:
        envelope = statement.read_signature_file(flipped(SIGNATURE_FILE, place, bits))
        verify(envelope, TRUST)
    except SignatureRefused:
        return
    assert envelope.payload == ENVELOPE.payload
    assert [signature for _, signature in envelope.signatures] == [signature for _, signature in ENVELOPE.signatures]


@given(st.binary(max_size=300))
def test_both_base64_alphabets_give_the_bytes_back(data: bytes) -> None:
    for encoded in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        assert dsse.from_base64(encoded.decode(), "payload") == data


@given(st.one_of(VALUES, st.text(max_size=30)))
def test_reading_an_envelope_raises_refusals_only(thing: object) -> None:
    with pytest.raises(SignatureRefused):
        dsse.decode({"payloadType": dsse.PAYLOAD_TYPE, "payload": "YQ==", "signatures": thing} if thing else thing)


@given(st.binary(max_size=200))
def test_reading_a_payload_raises_refusals_only(data: bytes) -> None:
    for parse in (statement.parse_item, statement.parse_index):
        with pytest.raises(SignatureRefused):
            parse(data)


SKILL = skills.candidate()
SKILL_ENVELOPE = KEY.sign(skills.item(), "kiwi", SIGNED)
GATE = ValidationManager(TRUST, "kiwi", lambda: SIGNED)


def not_admitted(**changes: Any) -> set[str]:
    """The codes of the errors for which the gate refuses the signed skill with other files."""
    with pytest.raises(Rejected) as caught:
        GATE.check(replace(SKILL, envelope=SKILL_ENVELOPE, **changes), policy_of("project"), {}, ListedLog())
    return {finding.code for finding in caught.value.findings if finding.is_error}


def test_untouched_a_skill_is_admitted() -> None:
    signed = replace(SKILL, envelope=SKILL_ENVELOPE)
    assert GATE.check(signed, policy_of("project"), {}, ListedLog()).files == skills.FILES


@examples(40)
@given(st.sampled_from([name for name, data in skills.FILES.items() if data]), st.integers(0), FLIPS)
def test_any_altered_byte_of_a_file_is_refused(name: str, place: int, bits: int) -> None:
    not_admitted(files={**skills.FILES, name: flipped(skills.FILES[name], place, bits)})


@examples(40)
@given(st.text(max_size=30), st.binary(max_size=20))
def test_any_file_more_is_refused(name: str, data: bytes) -> None:
    if name not in skills.FILES:
        codes = not_admitted(files={**skills.FILES, name: data})
        assert codes & {"signature.unlisted-file", "structure.file-name"}


@examples(40)
@given(st.sets(st.sampled_from(sorted(skills.FILES)), min_size=1))
def test_any_files_less_are_refused(names: set[str]) -> None:
    codes = not_admitted(files={name: data for name, data in skills.FILES.items() if name not in names})
    assert codes & {"signature.missing-file", "structure.files"}


@examples(40)
@given(st.sets(st.sampled_from(sorted(skills.FILES))))
def test_any_other_executables_are_refused(names: set[str]) -> None:
    if names != set(skills.EXECUTABLES):
        assert not_admitted(executables=tuple(sorted(names))) & {"signature.executables", "structure.executable"}


@examples(40)
@given(st.sampled_from(sorted(skills.FILES)), st.integers(0))
def test_any_name_that_differs_by_case_is_refused(name: str, place: int) -> None:
    """Beside the file, where file systems may make one file of both, and in its place."""
    letters = [n for n, character in enumerate(name) if character.isalpha()]
    at = letters[place % len(letters)]
    other = name[:at] + name[at].swapcase() + name[at + 1 :]
    assert "structure.file-name" in not_admitted(files={**skills.FILES, other: b"x"})
    renamed = {other if known == name else known: data for known, data in skills.FILES.items()}
    assert not_admitted(files=renamed) & {"signature.missing-file", "structure.files"}


@examples(40)
@given(st.permutations(sorted(skills.FILES)))
def test_contents_that_change_places_are_refused(names: list[str]) -> None:
    moved = dict(zip(names, (skills.FILES[name] for name in sorted(skills.FILES)), strict=True))
    if moved != skills.FILES:
        not_admitted(files=moved)
