"""What registries say of keys, as far as it takes trust away: a registry can do that, and can never give any. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from kiwi_rag.signing.trust import Signer, SignerStatus, TrustPolicy


@dataclass(frozen=True, slots=True)
class KeyNotice:
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


def narrowed(policy: TrustPolicy, notices: Iterable[KeyNotice]) -> TrustPolicy:
    """Return `policy` with the trust taken away that `notices` take away; never with more than it had."""
    counting = [notice for notice in notices if not notice.overruled]
    retired = _earliest(counting, SignerStatus.RETIRED)
    compromised = _earliest(counting, SignerStatus.COMPROMISED)
    if not counting:
        return policy
    return replace(policy, signers=tuple(_narrowed(signer, retired, compromised) for signer in policy.signers))


def _earliest(notices: Iterable[KeyNotice], status: SignerStatus) -> dict[str, KeyNotice]:
    found = sorted((n for n in notices if n.status is status), key=lambda n: n.since, reverse=True)
    return {notice.key_id: notice for notice in found}


def _narrowed(signer: Signer, retired: dict[str, KeyNotice], compromised: dict[str, KeyNotice]) -> Signer:
    if signer.status is SignerStatus.COMPROMISED:
        return signer
    if notice := compromised.get(signer.key_id):
        return replace(signer, status=SignerStatus.COMPROMISED, origin=str(notice))
    notice = retired.get(signer.key_id)
    if notice is None or (signer.valid_before and signer.valid_before <= notice.since):
        return signer
    return replace(signer, status=SignerStatus.RETIRED, valid_before=notice.since, origin=str(notice))
