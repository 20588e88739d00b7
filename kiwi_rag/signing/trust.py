"""Who may sign what, and when: signers and the policy they make together. Pure; `trust_file` reads and writes it.

The semantics are those of OpenSSH's ``allowed_signers``: a principal, a key, and the window in which signatures of
that key count. An empty policy trusts nobody.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from kiwi_rag.errors import BadSignature, SignatureRefused, UnknownSigner, Unsigned, UsageError, WrongKey
from kiwi_rag.model import Envelope
from kiwi_rag.model.refs import ITEM_TYPES, ItemRef, ItemType
from kiwi_rag.signing import dsse, statement
from kiwi_rag.signing.keys import key_id_of
from kiwi_rag.signing.statement import Statement, format_time

_PATTERN = re.compile(r"[a-z0-9*][a-z0-9_*/-]*")


class SignerStatus(StrEnum):
    """``retired`` keeps what was received before; ``compromised`` voids everything, at once."""

    ACTIVE = "active"
    RETIRED = "retired"
    COMPROMISED = "compromised"


@dataclass(frozen=True, slots=True)
class Signer:
    """A public key (32 raw bytes), whose it is, and what it may sign.

    In ``patterns`` ``*`` stands for any run of characters, slashes too: ``acme/*`` is all below ``acme``. Signatures
    count when ``valid_after <= signed_at < valid_before``; for a retired key ``valid_before`` is the retirement.
    ``origin`` says who took trust away, where it was not the trust file itself (`kiwi_rag.signing.trust`).
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
        return key_id_of(self.public_key)

    def united(self, patterns: tuple[str, ...], types: tuple[ItemType, ...]) -> Signer:
        """Return this signer with the right to sign these as well; what it has already is not named twice."""
        more = [p for p in patterns if not any(matches(own, p) for own in self.patterns)]
        return replace(
            self, patterns=(*self.patterns, *more), types=(*self.types, *(t for t in types if t not in self.types))
        )

    def lost(self, after: Signer) -> list[str]:
        """Return what this entry says in a key's favour and the entry `after` it would not, in words."""
        patterns = [p for p in self.patterns if not any(matches(other, p) for other in after.patterns)]
        found = [f"to sign {pattern}" for pattern in patterns]
        found += [f"to sign items of type {kind}" for kind in self.types if kind not in after.types]
        if after.valid_after and (self.valid_after is None or self.valid_after < after.valid_after):
            found.append(f"signatures from before {format_time(after.valid_after)}")
        if after.valid_before and (self.valid_before is None or self.valid_before > after.valid_before):
            found.append(f"signatures from {format_time(after.valid_before)} on")
        return found

    def authorise(self, ref: ItemRef, signed_at: datetime, received_at: datetime | None = None) -> None:
        """Return if this signer's statement about `ref` counts.

        `received_at` is when the statement reached us; a retired key's counts only if that was before it retired.

        Raises
        ------
        WrongKey
            Saying which rule stands against it, and what mends it.
        """
        self._authorise_key()
        self._authorise_item(ref)
        self._authorise_time(signed_at, received_at)

    def authorise_signing(self) -> None:
        """Return if this key may sign anything new.

        What it signs now would count if this machine's clock were behind the one that dated its retirement.

        Raises
        ------
        WrongKey
            When the key was retired or is compromised.
        """
        self._authorise_key()
        if self.status is SignerStatus.RETIRED:
            raise self._ended()

    def _authorise_key(self) -> None:
        if self.status is SignerStatus.COMPROMISED:
            raise WrongKey(
                f"the key of {self.principal} is {self.origin or 'marked compromised'}: "
                "nothing it signed counts any more",
                hint=f"do not use it; if it is yours, check it and sign it with another key: {self._another_key()}",
            )

    def _authorise_item(self, ref: ItemRef) -> None:
        if ref.item_type not in self.types:
            raise WrongKey(
                f"{self.principal} may not sign a {ref.item_type} ({', '.join(self.types)} only)",
                hint=self._widened(self.patterns, (*self.types, ref.item_type)),
            )
        if not any(matches(pattern, ref.item_id) for pattern in self.patterns):
            raise WrongKey(
                f"{self.principal} may not sign {ref.item_id} ({', '.join(self.patterns)} only)",
                hint=self._widened((*self.patterns, f"{ref.namespace}/*"), self.types),
            )

    def _widened(self, patterns: tuple[str, ...], types: tuple[ItemType, ...]) -> str:
        """Return the command that lets this key sign these as well."""
        return replace(self, patterns=patterns, types=types, valid_after=None, valid_before=None).trusting()

    def trusting(self) -> str:
        """Return the command by which anybody trusts this key with what it may sign here."""
        words = ["kiwi trust add", self.public_key.hex(), "--principal", shlex.quote(self.principal)]
        words += [f"--items '{pattern}'" for pattern in self.patterns if "*" not in self.patterns]
        words += [f"--type {kind}" for kind in self.types if self.types != ITEM_TYPES]
        words += [f"--valid-after {format_time(self.valid_after)}"] if self.valid_after else []
        words += [f"--valid-before {format_time(self.valid_before)}"] if self.valid_before else []
        return " ".join(words)

    def _authorise_time(self, signed_at: datetime, received_at: datetime | None) -> None:
        if self.valid_after and signed_at < self.valid_after:
            raise WrongKey(f"{self.principal}'s key counts only from {format_time(self.valid_after)}")
        retired = self.status is SignerStatus.RETIRED
        if self.valid_before is None and retired:
            raise WrongKey(
                f"{self.principal}'s key is retired, and nothing says since when",
                hint="set valid_before of its entry in trust.toml to the time it was retired",
            )
        if self.valid_before is None:
            return
        # A signature tells whole seconds: without a time of arrival, one of the second of the retirement may be later.
        end = self.valid_before.replace(microsecond=0) if retired and not received_at else self.valid_before
        if signed_at >= end or (retired and received_at and received_at >= end):
            raise self._ended()

    def _ended(self) -> WrongKey:
        word = "was retired" if self.status is SignerStatus.RETIRED else "ran out"
        since = f" at {format_time(self.valid_before)}" if self.valid_before else ""
        return WrongKey(
            f"{self.principal}'s key {word}{since}{f', {self.origin}' if self.origin else ''}",
            hint=f"sign the item again with a current key: {self._another_key()}",
        )

    def _another_key(self) -> str:
        """Return the commands that sign with another key; PATH and NAME are the reader's."""
        return f"kiwi keys new NAME --principal {shlex.quote(self.principal)}; kiwi sign PATH --key NAME"


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """The signers that count here. ``threshold`` distinct keys must have signed."""

    signers: tuple[Signer, ...] = ()
    threshold: int = 1

    @property
    def by_key(self) -> Mapping[str, Signer]:
        """Signers by key id; of two entries for one key the first counts, unless any says compromised."""
        chosen: dict[str, Signer] = {}
        for signer in self.signers:
            if signer.key_id not in chosen or signer.status is SignerStatus.COMPROMISED:
                chosen[signer.key_id] = signer
        return chosen

    def who_signed(self, envelope: Envelope) -> tuple[Signer, ...]:
        """Return the known signers whose keys signed the envelope.

        Raises
        ------
        Unsigned
            When nobody signed.
        UnknownSigner
            When no known key signed, and the envelope does not claim that one did.
        BadSignature
            When it claims a known key, but the bytes are not what that key signed.
        """
        if not envelope.signatures:
            raise Unsigned("the envelope carries no signature", hint="kiwi sign PATH")
        known = self.by_key
        claimed = [key_id for key_id, _ in envelope.signatures]
        try:
            signed = dsse.verify(envelope, {key_id: s.public_key for key_id, s in known.items()}, self.threshold)
        except BadSignature as error:
            if not any(key_id in known for key_id in claimed):
                raise UnknownSigner(
                    f"signed by the key with id {claimed[0][:16] or '(unnamed)'}…, which nobody here trusts",
                    hint="if you know whose it is, ask its owner for the public key (kiwi keys show), then: "
                    "kiwi trust add PUBLIC_KEY --principal NAME --items 'NAMESPACE/*'",
                ) from error
            raise BadSignature(hint="if you edited it: kiwi sign PATH --bump patch") from error
        return tuple(known[key_id] for key_id in signed)


@dataclass(frozen=True, slots=True)
class VerifiedPayload:
    """A statement that verified, and the signer it counts for."""

    statement: Statement
    signer: Signer


def verify(envelope: Envelope, trust: TrustPolicy, received_at: datetime | None = None) -> VerifiedPayload:
    """Verify an envelope: canonical payload, strict signature, and a signer who may say this.

    Raises
    ------
    SignatureRefused
        One of its subclasses, which tell what is wrong.
    """
    read = statement.parse(envelope.payload)
    return VerifiedPayload(read, authorised(trust.who_signed(envelope), read, trust.threshold, received_at))


class AuthorityRequest(Protocol):
    """What somebody signed: about which item or document, and when."""

    @property
    def ref(self) -> ItemRef:
        """What it is about."""
        ...

    @property
    def signed_at(self) -> datetime:
        """When it was signed, as the signer says."""
        ...


def authorised(
    signers: tuple[Signer, ...], read: AuthorityRequest, threshold: int = 1, received_at: datetime | None = None
) -> Signer:
    """Return the first of `signers` that may have signed `read`, if at least `threshold` of them may.

    Raises
    ------
    WrongKey
        With the first reason.
    """
    allowed, refusals = [], []
    for signer in signers:
        try:
            signer.authorise(read.ref, read.signed_at, received_at)
            allowed.append(signer)
        except SignatureRefused as refusal:
            refusals.append(refusal)
    if len(allowed) < max(threshold, 1):
        raise refusals[0] if refusals else WrongKey(f"{threshold} authorised signatures are needed")
    return allowed[0]


def matches(pattern: str, item_id: str) -> bool:
    """Whether `pattern` covers `item_id`; only ``*`` is special, and it crosses slashes."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), item_id) is not None


def check_principal(principal: str) -> str:
    """Return `principal` if it can name somebody.

    Raises
    ------
    UsageError
        When it is empty, or holds what a terminal would obey or not show: it is what a person decides by.
    """
    if not principal.strip() or not principal.isprintable():
        raise UsageError(f"{principal!r} cannot name a signer", hint="for example ada@acme.example")
    return principal


def check_pattern(pattern: str) -> str:
    """Return `pattern` if it is one.

    Raises
    ------
    UsageError
        When it holds anything but id characters and ``*``, or over four stars.
    """
    if not _PATTERN.fullmatch(pattern) or pattern.count("*") > 4:
        raise UsageError(f"{pattern!r} is not an item pattern", hint="for example 'acme/*', 'acme/deploy/*' or '*'")
    return pattern


@dataclass(frozen=True, slots=True)
class RevocationNotice:
    """A registry's word that a key is retired or compromised, and since when.

    ``registry`` names who said so; ``reason`` is its admin's. ``overruled`` tells that this user decided not to
    follow it.
    """

    key_id: str
    principal: str
    status: SignerStatus
    since: datetime
    reason: str
    registry: str
    overruled: bool = False

    def __str__(self) -> str:
        word = "revoked" if self.status is SignerStatus.COMPROMISED else "retired"
        told = f"{word} by registry {self.registry} on {self.since:%Y-%m-%d}"
        return f"{told} ({self.reason})" if self.reason else told


def apply_revocations(policy: TrustPolicy, notices: Iterable[RevocationNotice]) -> TrustPolicy:
    """Return `policy` with the trust taken away that `notices` take away; never with more than it had."""
    counting = [notice for notice in notices if not notice.overruled]
    retired = _earliest(counting, SignerStatus.RETIRED)
    compromised = _earliest(counting, SignerStatus.COMPROMISED)
    if not counting:
        return policy
    return replace(policy, signers=tuple(_narrowed(signer, retired, compromised) for signer in policy.signers))


def _earliest(notices: Iterable[RevocationNotice], status: SignerStatus) -> dict[str, RevocationNotice]:
    found = sorted((n for n in notices if n.status is status), key=lambda n: n.since, reverse=True)
    return {notice.key_id: notice for notice in found}


def _narrowed(signer: Signer, retired: dict[str, RevocationNotice], compromised: dict[str, RevocationNotice]) -> Signer:
    if signer.status is SignerStatus.COMPROMISED:
        return signer
    if notice := compromised.get(signer.key_id):
        return replace(signer, status=SignerStatus.COMPROMISED, origin=str(notice))
    notice = retired.get(signer.key_id)
    if notice is None or (signer.valid_before and signer.valid_before <= notice.since):
        return signer
    return replace(signer, status=SignerStatus.RETIRED, valid_before=notice.since, origin=str(notice))
