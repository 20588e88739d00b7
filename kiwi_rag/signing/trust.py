"""Who may sign what, and when: signers, the trust policy, and revocations. No I/O; `trust_file` has that.

The semantics are those of OpenSSH's ``allowed_signers``: a principal, a key, and the time window in which signatures of
that key count. An empty policy trusts no key.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from kiwi_rag.errors import BadSignature, SignatureRefused, UnknownSigner, Unsigned, UsageError, WrongKey
from kiwi_rag.model import ITEM_TYPES, Envelope, ItemRef, ItemType, sha256_hex
from kiwi_rag.signing import dsse, statement
from kiwi_rag.signing.statement import IndexStatement, ItemStatement, Statement, format_time

_PATTERN = re.compile(r"[a-z0-9*][a-z0-9_*/-]*")
MAX_PRINCIPAL = 128
"""Characters of a principal that is new; more would leave the part of a line that a person reads."""
_PRINCIPAL_HINT = "write a name such as ada@acme.example: up to 128 letters, digits and signs, single spaces, no quotes"
_SIMILAR = {  # Latin letters, and those of other alphabets and the digits that look like them
    "a": "αаɑ", "b": "вβ", "c": "сϲ", "d": "ԁ", "e": "еε", "g": "ɡ", "h": "һн", "i": "ιіıӏl1|", "j": "ј", "k": "κк",
    "m": "м", "n": "ηп", "o": "οоօ0", "p": "ρр", "q": "ԛ", "r": "г", "s": "ѕ", "t": "τт", "u": "υս", "v": "νѵ",
    "w": "ωѡԝ", "x": "χх", "y": "уγ",
}  # fmt: skip
_LOOKALIKES = str.maketrans({other: letter for letter, others in _SIMILAR.items() for other in others})


class SignerStatus(StrEnum):
    """Of a ``retired`` key, what was received before stays valid; of a ``compromised`` one, nothing does."""

    ACTIVE = "active"
    RETIRED = "retired"
    COMPROMISED = "compromised"


@dataclass(frozen=True, slots=True)
class Signer:
    """A public key (32 raw bytes), its principal, and what it may sign.

    In ``patterns``, ``*`` matches any characters, slashes too: ``acme/*`` is everything below ``acme``. A signature
    counts if ``valid_after <= signed_at < valid_before``. For a retired key, ``valid_before`` is the retirement.
    ``origin`` says which registry retired or revoked the key, empty if the trust file says so itself.
    """

    principal: str
    public_key: bytes
    patterns: tuple[str, ...] = ("*",)
    types: tuple[ItemType, ...] = ITEM_TYPES
    valid_after: datetime | None = None
    valid_before: datetime | None = None
    status: SignerStatus = SignerStatus.ACTIVE
    origin: str = ""

    @property
    def key_id(self) -> str:
        """Hex SHA-256 of the public key."""
        return sha256_hex(self.public_key)

    @property
    def rights(self) -> str:
        """In words, the status of this key, what it may sign, and when; the right to sign everything stands out."""
        what = "EVERY item" if "*" in self.patterns else ", ".join(self.patterns)
        after = f" from {format_time(self.valid_after)} on" if self.valid_after else ""
        before = f" until {format_time(self.valid_before)}" if self.valid_before else ""
        return f"{self.status}, may sign {what} ({', '.join(self.types)}){after}{before}"

    def extended(self, patterns: tuple[str, ...], types: tuple[ItemType, ...]) -> Signer:
        """Return this signer with the right to sign these patterns and types as well, without duplicates."""
        more = tuple(p for p in patterns if not any(matches(granted, p) for granted in self.patterns))
        return replace(self, patterns=self.patterns + more, types=tuple(dict.fromkeys(self.types + types)))

    def rights_not_in(self, after: Signer) -> list[str]:
        """Return, in words, the rights of this entry that the entry `after` does not give."""
        found = [f"to sign {p}" for p in self.patterns if not any(matches(other, p) for other in after.patterns)]
        found += [f"to sign items of type {kind}" for kind in self.types if kind not in after.types]
        if after.valid_after and (self.valid_after is None or self.valid_after < after.valid_after):
            found.append(f"signatures from before {format_time(after.valid_after)}")
        if after.valid_before and (self.valid_before is None or self.valid_before > after.valid_before):
            found.append(f"signatures from {format_time(after.valid_before)} on")
        return found

    def authorise(self, ref: ItemRef, signed_at: datetime, received_at: datetime | None = None) -> None:
        """Return if this signer's statement about `ref` counts.

        `received_at` is when the statement was received. That of a retired key must have been before its retirement.

        Raises
        ------
        WrongKey
            With the rule that forbids it, and what to do.
        """
        self._authorise_key()
        self._authorise_item(ref)
        self._authorise_time(signed_at, received_at)

    def authorise_signing(self) -> None:
        """Return if this key may sign anything new.

        A retired key is refused by its status, not by its dates, because this machine's clock may be slow.

        Raises
        ------
        WrongKey
            When the key is retired or compromised.
        """
        self._authorise_key()
        if self.status is SignerStatus.RETIRED:
            raise self._expired()

    def _authorise_key(self) -> None:
        if self.status is SignerStatus.COMPROMISED:
            why = self.origin or "marked compromised"
            message = f"the key of {self.principal} is {why}: nothing that it signed is valid any more"
            hint = f"do not use it; if it is yours, check it and sign it with another key: {self._another_key()}"
            raise WrongKey(message, hint=hint)

    def _authorise_item(self, ref: ItemRef) -> None:
        if ref.item_type not in self.types:
            message = f"{self.principal} may not sign a {ref.item_type} ({', '.join(self.types)} only)"
            raise WrongKey(message, hint=self._command_with(self.patterns, (*self.types, ref.item_type)))
        if not any(matches(pattern, ref.item_id) for pattern in self.patterns):
            message = f"{self.principal} may not sign {ref.item_id} ({', '.join(self.patterns)} only)"
            command = self._command_with((*self.patterns, f"{ref.namespace}/*"), self.types)
            hint = f"rename it, or use another key (--key NAME); or let this key sign it: {command}"
            raise WrongKey(message, hint=hint)

    def _command_with(self, patterns: tuple[str, ...], types: tuple[ItemType, ...]) -> str:
        """Return the command that gives this key these rights."""
        return replace(self, patterns=patterns, types=types, valid_after=None, valid_before=None).trust_command()

    def trust_command(self) -> str:
        """Return the command that trusts this key with the rights of this entry."""
        words = ["kiwi trust add", self.public_key.hex(), "--principal", shlex.quote(self.principal)]
        words += [f"--items '{pattern}'" for pattern in self.patterns if "*" not in self.patterns]
        words += [f"--type {kind}" for kind in self.types if self.types != ITEM_TYPES]
        words += [f"--valid-after {format_time(self.valid_after)}"] if self.valid_after else []
        words += [f"--valid-before {format_time(self.valid_before)}"] if self.valid_before else []
        return " ".join(words)

    def _authorise_time(self, signed_at: datetime, received_at: datetime | None) -> None:
        if self.valid_after and signed_at < self.valid_after:
            raise WrongKey(f"the key of {self.principal} is valid from {format_time(self.valid_after)} on")
        retired = self.status is SignerStatus.RETIRED
        if self.valid_before is None and retired:
            message = f"the key of {self.principal} is retired, without the time of its retirement"
            raise WrongKey(message, hint="set valid_before of its entry in trust.toml to that time")
        if self.valid_before is None:
            return
        # signed_at has whole seconds. Without a time of receipt, one of the second of the retirement may be later.
        end = self.valid_before.replace(microsecond=0) if retired and not received_at else self.valid_before
        if signed_at >= end or (retired and received_at and received_at >= end):
            raise self._expired()

    def _expired(self) -> WrongKey:
        verb = "was retired" if self.status is SignerStatus.RETIRED else "expired"
        since = f" at {format_time(self.valid_before)}" if self.valid_before else ""
        message = f"the key of {self.principal} {verb}{since}{f', {self.origin}' if self.origin else ''}"
        return WrongKey(message, hint=f"sign the item again with a current key: {self._another_key()}")

    def _another_key(self) -> str:
        """Return the commands that sign with another key; the user fills in PATH and NAME."""
        return f"kiwi keys new NAME --principal {shlex.quote(self.principal)}; kiwi sign PATH --key NAME"


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """The trusted signers. ``threshold`` distinct keys must have signed."""

    signers: tuple[Signer, ...] = ()
    threshold: int = 1

    @property
    def by_key(self) -> Mapping[str, Signer]:
        """Signers by key id. Of several entries for a key the first counts, unless one of them says compromised."""
        compromised = [signer for signer in self.signers if signer.status is SignerStatus.COMPROMISED]
        return {signer.key_id: signer for signer in (*reversed(self.signers), *compromised)}

    def signers_of(self, envelope: Envelope) -> tuple[Signer, ...]:
        """Return the trusted signers whose keys signed the envelope.

        Raises
        ------
        Unsigned
            When the envelope has no signature.
        UnknownSigner
            When no trusted key signed, and the envelope does not claim that one did.
        BadSignature
            When it claims a trusted key, but the bytes are not what that key signed.
        """
        if not envelope.signatures:
            raise Unsigned("the envelope has no signature", hint="kiwi sign PATH")
        trusted = self.by_key
        claimed = [key_id for key_id, _ in envelope.signatures]
        try:
            signed = dsse.verify(envelope, {key_id: s.public_key for key_id, s in trusted.items()}, self.threshold)
        except BadSignature as error:
            if any(key_id in trusted for key_id in claimed):
                raise BadSignature(hint="if you edited it: kiwi sign PATH --bump patch") from error
            message = f"signed by the key with id {claimed[0][:16] or '(unnamed)'}…, which is not trusted here"
            hint = "if you know its owner: kiwi trust add LINE, which the owner gets from kiwi keys show --share"
            raise UnknownSigner(message, hint=hint) from error
        return tuple(trusted[key_id] for key_id in signed)


StatementT = TypeVar("StatementT", bound=Statement)


@dataclass(frozen=True, slots=True)
class VerifiedPayload(Generic[StatementT]):
    """A verified envelope: its statement and its signer."""

    envelope: Envelope
    statement: StatementT
    signer: Signer


def verify(
    envelope: Envelope, trust: TrustPolicy, received_at: datetime | None = None
) -> VerifiedPayload[ItemStatement]:
    """Verify an item's envelope: canonical payload, strict signature, and the authority of the signer.

    Raises
    ------
    SignatureRefused
        One of its subclasses, which say what is wrong.
    """
    return _verify(envelope, statement.parse_item(envelope.payload), trust, received_at)


def verify_index(
    envelope: Envelope, trust: TrustPolicy, received_at: datetime | None = None
) -> VerifiedPayload[IndexStatement]:
    """Verify a document's envelope, as `verify` does an item's."""
    return _verify(envelope, statement.parse_index(envelope.payload), trust, received_at)


def _verify(
    envelope: Envelope, signed: StatementT, trust: TrustPolicy, received_at: datetime | None
) -> VerifiedPayload[StatementT]:
    """Return the statement with the first of its signers that may have made it, if as many may as the policy asks."""
    allowed, refusals = [], []
    for signer in trust.signers_of(envelope):
        try:
            signer.authorise(signed.ref, signed.signed_at, received_at)
            allowed.append(signer)
        except SignatureRefused as refusal:
            refusals.append(refusal)
    if len(allowed) < max(trust.threshold, 1):
        raise refusals[0] if refusals else WrongKey(f"{trust.threshold} authorised signatures are needed")
    return VerifiedPayload(envelope, signed, allowed[0])


def matches(pattern: str, item_id: str) -> bool:
    """Return whether `pattern` matches `item_id`; only ``*`` is special, and it matches slashes too."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), item_id) is not None


def check_principal(principal: str) -> str:
    """Return `principal` if a file that exists may have it; `check_new_principal` says which a user may accept.

    Raises
    ------
    UsageError
        When it is empty, or has a control or invisible character: people decide by what they see of it.
    """
    if not principal.strip() or not principal.isprintable():
        raise UsageError(f"{principal[:MAX_PRINCIPAL]!r} is no valid principal", hint=_PRINCIPAL_HINT)
    return principal


def check_new_principal(principal: str) -> str:
    """Return `principal` if it shows what it is, and so may be entered into a trust file.

    Raises
    ------
    UsageError
        When it is empty or too long, has other white space than single spaces within, a quotation mark, a character
        that is neither ASCII nor a letter or digit in its normal form (NFKC), or a word that mixes two alphabets.
    """
    words = re.findall(r"[^\W\d_]+", check_principal(principal))
    plain = principal == " ".join(principal.split()) == unicodedata.normalize("NFKC", principal)
    legal = all(c.isascii() or (c.isalnum() and "FILLER" not in unicodedata.name(c, "")) for c in principal)
    if '"' in principal or len(principal) > MAX_PRINCIPAL or not (plain and legal) or any(map(_mixes_alphabets, words)):
        raise UsageError(f"{principal[: MAX_PRINCIPAL // 2]!r} is no valid principal", hint=_PRINCIPAL_HINT)
    return principal


def _mixes_alphabets(word: str) -> bool:
    """Whether a word has Latin, Greek or Cyrillic letters, and others: letters of different alphabets look the same."""
    alphabets = {unicodedata.name(letter, "?").split()[0] for letter in word}
    return len(alphabets) > 1 and not alphabets.isdisjoint({"LATIN", "GREEK", "CYRILLIC"})


def skeleton(principal: str) -> str:
    """Return a form that principals share which look alike: case, accents, spaces and similar letters are folded."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", principal).casefold())
    letters = "".join(c for c in folded if c.isprintable() and not (c.isspace() or unicodedata.combining(c)))
    return letters.translate(_LOOKALIKES).replace("rn", "m")


def check_pattern(pattern: str) -> str:
    """Return `pattern` if it is valid.

    Raises
    ------
    UsageError
        When it has other characters than those of ids and ``*``, or more than four stars.
    """
    if not _PATTERN.fullmatch(pattern) or pattern.count("*") > 4:
        raise UsageError(f"{pattern!r} is not an item pattern", hint="for example 'acme/*', 'acme/deploy/*' or '*'")
    return pattern


@dataclass(frozen=True, slots=True)
class RevocationNotice:
    """A registry's notice that a key is retired or compromised since some time.

    ``reason`` is what the registry's admin wrote. ``overruled`` says that this user decided to ignore the notice.
    """

    key_id: str
    principal: str
    status: SignerStatus
    since: datetime
    reason: str
    registry: str
    overruled: bool = False

    def __str__(self) -> str:
        verb = "revoked" if self.status is SignerStatus.COMPROMISED else "retired"
        message = f"{verb} by registry {self.registry} on {self.since:%Y-%m-%d}"
        return f"{message} ({self.reason})" if self.reason else message


def apply_revocations(policy: TrustPolicy, notices: Iterable[RevocationNotice]) -> TrustPolicy:
    """Return `policy` with the revocations in `notices` applied. The result never trusts more than `policy`."""
    effective = sorted((n for n in notices if not n.overruled), key=lambda n: n.since, reverse=True)
    if not effective:
        return policy
    earliest = {(notice.key_id, notice.status): notice for notice in effective}
    return replace(policy, signers=tuple(_apply_notices(signer, earliest) for signer in policy.signers))


def _apply_notices(signer: Signer, earliest: Mapping[tuple[str, SignerStatus], RevocationNotice]) -> Signer:
    if signer.status is SignerStatus.COMPROMISED:
        return signer
    if notice := earliest.get((signer.key_id, SignerStatus.COMPROMISED)):
        return replace(signer, status=SignerStatus.COMPROMISED, origin=str(notice))
    notice = earliest.get((signer.key_id, SignerStatus.RETIRED))
    if notice is None or (signer.valid_before and signer.valid_before <= notice.since):
        return signer
    return replace(signer, status=SignerStatus.RETIRED, valid_before=notice.since, origin=str(notice))
