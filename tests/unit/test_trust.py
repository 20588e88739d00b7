"""Who may sign what, and when; and that each way to be refused is told apart from the others."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kiwi_rag.errors import BadSignature, SignatureRefused, UnknownSigner, Unsigned, UsageError, WrongKey
from kiwi_rag.formats.source import ItemCandidate
from kiwi_rag.model import Envelope, Item
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import dsse, keys
from kiwi_rag.signing.trust import (
    Signer,
    SignerStatus,
    TrustPolicy,
    check_new_principal,
    check_pattern,
    check_principal,
    matches,
    skeleton,
    verify,
)
from kiwi_rag.validation.signature import envelope_of

ADA, BOB = keys.generate("ada"), keys.generate("bob")
SIGNED = datetime(2026, 3, 1, 12, tzinfo=UTC)
REF = ItemRef(ItemType.DIRECTIVE, "acme/deploy/staging", "1.0.0")
ITEM = Item(REF, {"staging.md": b"restart it"}, "staging.md", {"name": "staging"}, ())
SECOND = timedelta(seconds=1)


def signer(key: keys.SigningKey = ADA, **changes: Any) -> Signer:
    return Signer(**{"principal": key.name, "public_key": key.public_key, **changes})


def signed(key: keys.SigningKey = ADA, at: datetime = SIGNED) -> Envelope:
    return key.sign(ITEM, "kiwi", at)


def refusal(envelope: Envelope, *signers: Signer, received_at: datetime | None = None) -> SignatureRefused:
    with pytest.raises(SignatureRefused) as caught:
        verify(envelope, TrustPolicy(signers), received_at)
    return caught.value


def test_a_trusted_signature_names_its_signer() -> None:
    verified = verify(signed(), TrustPolicy((signer(BOB), signer(ADA))))
    assert verified.signer.principal == "ada"
    assert verified.statement.ref == REF


def test_the_four_refusals_are_four_classes_with_hints() -> None:
    with pytest.raises(Unsigned) as unsigned:
        envelope_of(ItemCandidate.of_file(REF.item_type, REF.item_id, b"restart it", "staging.md"))
    altered = replace(signed(), signatures=((ADA.key_id, signed(at=SIGNED + SECOND).signatures[0][1]),))
    refusals = [
        unsigned.value,
        refusal(signed(BOB), signer(ADA)),
        refusal(signed(), signer(patterns=("other/*",))),
        refusal(altered, signer(ADA)),
    ]
    assert [type(r) for r in refusals] == [Unsigned, UnknownSigner, WrongKey, BadSignature]
    assert len({r.code for r in refusals}) == len({r.message for r in refusals}) == 4
    for each in refusals:
        assert each.hint.startswith(("kiwi ", "if you know", "if you edited", "rename it")), each.hint


def test_an_empty_policy_trusts_nobody() -> None:
    assert isinstance(refusal(signed()), UnknownSigner)


def test_an_envelope_without_signatures_is_unsigned() -> None:
    assert isinstance(refusal(replace(signed(), signatures=()), signer()), Unsigned)


def test_a_known_key_named_by_a_strangers_signature_is_a_bad_signature() -> None:
    envelope = replace(signed(BOB), signatures=((ADA.key_id, signed(BOB).signatures[0][1]),))
    assert type(refusal(envelope, signer(ADA))) is BadSignature


def test_an_unnamed_signature_of_a_known_key_counts() -> None:
    envelope = replace(signed(), signatures=(("", signed().signatures[0][1]),))
    assert verify(envelope, TrustPolicy((signer(),))).signer.principal == "ada"


@pytest.mark.parametrize(
    ("pattern", "item_id", "covered"),
    [
        ("*", "a/b/c", True),
        ("acme/*", "acme/deploy", True),
        ("acme/*", "acme/deploy/staging", True),
        ("acme/*", "acme", False),
        ("acme/*", "acme-evil/deploy", False),
        ("acme/*", "x/acme/deploy", False),
        ("acme/deploy", "acme/deploy", True),
        ("acme/deploy", "acme/deploy/staging", False),
        ("*/deploy", "acme/deploy", True),
        ("acme*", "acme-evil/deploy", True),
        ("a.me/*", "acme/deploy", False),
    ],
)
def test_only_the_star_is_special_in_a_pattern(pattern: str, item_id: str, covered: bool) -> None:
    assert matches(pattern, item_id) is covered


@pytest.mark.parametrize("pattern", ["", "Acme/*", "acme/?", "acme.*", "/acme", "a b", "*" * 5, "acme\n", "-a"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        check_pattern(pattern)


def test_a_signer_signs_only_the_types_it_may() -> None:
    assert isinstance(refusal(signed(), signer(types=(ItemType.SCRIPT,))), WrongKey)
    verify(signed(), TrustPolicy((signer(types=(ItemType.SCRIPT, ItemType.DIRECTIVE)),)))


def test_a_signer_without_patterns_or_types_may_sign_nothing() -> None:
    assert isinstance(refusal(signed(), signer(patterns=())), WrongKey)
    assert isinstance(refusal(signed(), signer(types=())), WrongKey)


def test_the_window_includes_its_start_and_excludes_its_end() -> None:
    verify(signed(), TrustPolicy((signer(valid_after=SIGNED, valid_before=SIGNED + SECOND),)))
    assert "from 2026-03-01T12:00:01Z" in refusal(signed(), signer(valid_after=SIGNED + SECOND)).message
    assert "expired at 2026-03-01T12:00:00Z" in refusal(signed(), signer(valid_before=SIGNED)).message


def test_a_retired_key_keeps_what_was_received_before() -> None:
    retired = signer(status=SignerStatus.RETIRED, valid_before=SIGNED + timedelta(days=1))
    verify(signed(), TrustPolicy((retired,)))
    verify(signed(), TrustPolicy((retired,)), received_at=SIGNED + timedelta(hours=23))
    late = refusal(signed(), retired, received_at=SIGNED + timedelta(days=1))
    assert isinstance(late, WrongKey)
    assert "retired" in late.message


def test_a_signature_of_the_second_of_the_retirement_counts_only_if_it_had_arrived() -> None:
    retired = signer(status=SignerStatus.RETIRED, valid_before=SIGNED + timedelta(milliseconds=700))
    verify(signed(), TrustPolicy((retired,)), received_at=SIGNED + timedelta(milliseconds=300))
    assert isinstance(refusal(signed(), retired), WrongKey)
    verify(signed(at=SIGNED - SECOND), TrustPolicy((retired,)))


@pytest.mark.parametrize("status", SignerStatus)
def test_a_key_that_lost_trust_signs_nothing_new(status: SignerStatus) -> None:
    one = signer(status=status, valid_before=datetime.max.replace(tzinfo=UTC))
    with nullcontext() if status is SignerStatus.ACTIVE else pytest.raises(WrongKey):
        one.authorise_signing()


def test_a_retired_key_without_a_date_signs_nothing() -> None:
    assert isinstance(refusal(signed(), signer(status=SignerStatus.RETIRED)), WrongKey)


def test_an_expired_but_active_key_is_judged_by_when_it_signed() -> None:
    expired = signer(valid_before=SIGNED + timedelta(days=1))
    verify(signed(), TrustPolicy((expired,)), received_at=SIGNED + timedelta(days=90))


def test_a_compromised_key_voids_everything_however_early() -> None:
    compromised = signer(status=SignerStatus.COMPROMISED)
    refused = refusal(signed(at=SIGNED - timedelta(days=900)), compromised, received_at=SIGNED - timedelta(days=899))
    assert isinstance(refused, WrongKey)
    assert "compromised" in refused.message


def test_the_first_entry_of_a_key_counts() -> None:
    policy = TrustPolicy((signer(principal="mine", patterns=("other/*",)), signer(principal="theirs")))
    assert policy.by_key[ADA.key_id].principal == "mine"
    with pytest.raises(WrongKey):
        verify(signed(), policy)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_compromised_wins_wherever_it_stands(place: int) -> None:
    entries = [signer(), signer()]
    entries.insert(place, signer(status=SignerStatus.COMPROMISED))
    with pytest.raises(WrongKey, match="compromised"):
        verify(signed(), TrustPolicy(tuple(entries)))


def both() -> Envelope:
    first, second = signed(ADA), signed(BOB)
    assert first.payload == second.payload
    return Envelope(dsse.PAYLOAD_TYPE, first.payload, (*first.signatures, *second.signatures))


def test_a_threshold_counts_distinct_authorised_keys() -> None:
    verify(both(), TrustPolicy((signer(ADA), signer(BOB)), threshold=2))
    with pytest.raises(WrongKey):
        verify(both(), TrustPolicy((signer(ADA), signer(BOB, patterns=("other/*",))), threshold=2))
    twice = replace(signed(), signatures=signed().signatures * 2)
    with pytest.raises(BadSignature):
        verify(twice, TrustPolicy((signer(ADA), signer(BOB)), threshold=2))


def test_one_authorised_signer_among_others_is_enough() -> None:
    found = verify(both(), TrustPolicy((signer(ADA, patterns=("other/*",)), signer(BOB))))
    assert found.signer.principal == "bob"


@pytest.mark.parametrize(
    "name",
    ["ada", "Ada Lovelace@desk", "O'Brien@acme", "m\u00fcller@x", "\u042e\u0440\u0438\u0439@acme", "\u5c71\u305f@x"],
)
def test_a_new_principal_may_be_in_any_alphabet(name: str) -> None:
    assert check_new_principal(name) == name


@pytest.mark.parametrize(
    "name",
    [
        " ada", "ada ", "ada  b", 'ada"', "a" * 129,  # what is seen of it is not all that it is
        "\uff41da", "ada\u0301", "ada\u3164", "ada\u1160", "ada\u2800", "ada\u034f",  # other forms, and nothing to see
        "\u0430da@acme", "ad\u0585", "\u03b1da",  # two alphabets in a word
    ],
)  # fmt: skip
def test_a_new_principal_is_what_it_looks_like(name: str) -> None:
    assert check_principal(name) == name  # a file that has it is still read
    with pytest.raises(UsageError, match="no valid principal"):
        check_new_principal(name)


@pytest.mark.parametrize(
    "name", ["ADA@Acme", "ada @acme", "\u0430\u0501\u0430@\u0430\u0441\u043c\u0435", "\u00e0da@acrne", "\uff41da@acme"]
)
def test_principals_that_look_alike_have_one_skeleton(name: str) -> None:
    assert skeleton(name) == skeleton("ada@acme") != skeleton("bob@acme")
