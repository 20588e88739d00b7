"""securesystemslib, by other authors, verifies what Kiwi signs, and Kiwi verifies what it signs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from kiwi_rag.errors import SignatureRefused
from kiwi_rag.model import Document, Passage
from kiwi_rag.model.refs import ITEM_TYPES, ItemRef, ItemType
from kiwi_rag.signing import dsse, keys, statement
from kiwi_rag.signing.trust import Signer, TrustPolicy, verify, verify_index
from tests import skills
from tests.conformance.items import admission

ADA = keys.generate("ada")
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DOCUMENT = Document(ItemRef(ItemType.DOCUMENT, "docs/a.md"), {"docs/a.md": b"text"}, "docs/a.md", {"title": "A"}, ())
PASSAGES = [Passage(0, "text", "A", ("A",), 1, 1, "section")]
PAYLOADS = {
    "item": statement.item_payload(admission("acme/deploy/staging", "restart the sérvice").item, "kiwi", AT),
    "skill": statement.item_payload(skills.item(), "kiwi", AT),
    "document": statement.index_payload(DOCUMENT, PASSAGES, "kiwi", "harbour", AT),
}


def their_key(key: keys.SigningKey) -> SSlibKey:
    return SSlibKey(key.key_id, "ed25519", "ed25519", {"public": key.public_key.hex()})


def read(signed: bytes) -> TheirEnvelope:
    return TheirEnvelope.from_dict(json.loads(signed))


@pytest.mark.parametrize("kind", PAYLOADS)
def test_it_verifies_what_kiwi_signs(kind: str) -> None:
    theirs = read(statement.signature_file(ADA.sign_payload(PAYLOADS[kind])))
    assert list(theirs.verify([their_key(ADA)], 1)) == [ADA.key_id]
    assert theirs.payload_type == "application/vnd.in-toto+json"
    assert json.loads(theirs.payload)["_type"] == "https://in-toto.io/Statement/v1"


@pytest.mark.parametrize("kind", PAYLOADS)
def test_it_refuses_what_was_altered(kind: str) -> None:
    document = dsse.encode(ADA.sign_payload(PAYLOADS[kind]))
    theirs = read(json.dumps({**document, "payloadType": "application/json"}).encode())
    with pytest.raises(VerificationError):
        theirs.verify([their_key(ADA)], 1)


def signed_by_them(payload: bytes, payload_type: str = dsse.PAYLOAD_TYPE) -> tuple[bytes, bytes]:
    """The bytes of an envelope that securesystemslib signed, and the public key."""
    signer = CryptoSigner.generate_ed25519()
    envelope = TheirEnvelope(payload, payload_type, {})
    envelope.sign(signer)
    return json.dumps(envelope.to_dict()).encode(), bytes.fromhex(signer.public_key.keyval["public"])


@pytest.mark.parametrize("kind", PAYLOADS)
def test_kiwi_verifies_what_it_signs(kind: str) -> None:
    data, public_key = signed_by_them(PAYLOADS[kind])
    trust = TrustPolicy((Signer("bob", public_key, types=(*ITEM_TYPES, ItemType.DOCUMENT)),))
    check: Any = verify_index if kind == "document" else verify
    assert check(statement.read_signature_file(data), trust).signer.principal == "bob"


@pytest.mark.parametrize(
    ("payload", "payload_type"),
    [
        (PAYLOADS["item"] + b" ", dsse.PAYLOAD_TYPE),
        (json.dumps(json.loads(PAYLOADS["item"]), indent=1).encode(), dsse.PAYLOAD_TYPE),
        (PAYLOADS["item"], "application/json"),
    ],
    ids=range(3),
)
def test_kiwi_refuses_what_it_signs_in_another_form(payload: bytes, payload_type: str) -> None:
    data, public_key = signed_by_them(payload, payload_type)
    with pytest.raises(SignatureRefused):
        verify(statement.read_signature_file(data), TrustPolicy((Signer("bob", public_key),)))


def test_both_make_the_same_signature() -> None:
    private = Ed25519PrivateKey.generate()
    signer = CryptoSigner(private, SSlibKey.from_crypto(private.public_key()))
    theirs = TheirEnvelope(PAYLOADS["skill"], dsse.PAYLOAD_TYPE, {})
    ours = keys.SigningKey("bob", private).sign_payload(PAYLOADS["skill"])
    assert bytes.fromhex(theirs.sign(signer).signature) == ours.signatures[0][1]
    assert theirs.pae() == dsse.pae(ours.payload_type, ours.payload)
