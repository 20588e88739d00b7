"""What decides about an admission: the policy of each tier, and the seal by which stores check who issued it.

The seal is a MAC under a random key of this process. Python code in the same process can read the key, so a seal does
not stop an attacker there. It prevents that a caller stores, by mistake, what was never admitted. Only the gate calls
`issue`: the linter refuses its name in any other module of the package.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType

from kiwi_rag.errors import NotAdmitted, UsageError
from kiwi_rag.formats.source import MAX_BYTES
from kiwi_rag.model import Admission, ItemType, Passage
from kiwi_rag.signing.statement import digest_of, passage_digest

_KEY = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one tier.

    ``max_age`` is how old a signature may be on arrival. ``received_now`` says whether a retired key is judged by the
    time of arrival instead of the time that the statement claims. ``max_bytes`` is the limit for documents; the limit
    for items is the same in every tier.
    """

    name: str
    max_age: timedelta | None = None
    received_now: bool = False
    max_bytes: int = MAX_BYTES


_POLICIES = (
    Policy("project"),
    Policy("user"),
    Policy("registry", max_age=timedelta(days=365), received_now=True),
    Policy("documents", max_bytes=8 << 20),
    Policy("shared", received_now=True, max_bytes=8 << 20),
    Policy("memory", max_bytes=4 << 20),
)
POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _POLICIES})
"""The policies by tier. A tier without one admits nothing."""


def policy_of(tier: str) -> Policy:
    """Return a tier's policy.

    Raises
    ------
    UsageError
        When the tier has none: an empty policy fails closed.
    """
    try:
        return POLICIES[tier]
    except KeyError as error:
        hint = f"tiers with a policy: {', '.join(POLICIES)}"
        raise UsageError(f"tier {tier!r} has no admission policy, so nothing can be added to it", hint=hint) from error


def issue(admission: Admission) -> Admission:
    """Return `admission` with the gate's seal on it."""
    return replace(admission, seal=_seal_of(admission))


def require_sealed(admission: Admission) -> Admission:
    """Return `admission` if the gate of this process issued it and nothing in it was changed since.

    Raises
    ------
    NotAdmitted
        When it did not.
    """
    if not hmac.compare_digest(admission.seal, _seal_of(admission)):
        raise NotAdmitted(f"{admission.ref} was never admitted by the gate", hint="add it first: kiwi add PATH")
    return admission


def require_passages(admission: Admission, passages: Sequence[Passage]) -> None:
    """Return if `passages` are exactly those that a sealed document's statement names.

    The files of an item are stored, so its passages can be derived from them. Of a document only passages are stored.
    The gate parsed the statement strictly before it sealed the admission, so a plain JSON parser is enough here.

    Raises
    ------
    NotAdmitted
        When a passage is missing, added or changed.
    """
    if admission.ref.item_type is not ItemType.DOCUMENT:
        return
    in_order = sorted(passages, key=lambda passage: passage.ordinal)
    if list(map(passage_digest, in_order)) != json.loads(admission.envelope.payload)["predicate"]["passages"]:
        hint = "index it again: kiwi workspace index"
        raise NotAdmitted(f"{admission.ref}: the passages are not those that were signed", hint=hint)


def _seal_of(admission: Admission) -> bytes:
    """Return the seal: over the digests of the files and of the payload, and over everything else in the admission."""
    digests = admission.item.content_sha256, digest_of(admission.envelope)
    item, envelope = replace(admission.item, files={}), replace(admission.envelope, payload=b"")
    rest = replace(admission, item=item, envelope=envelope, seal=b"")
    return hmac.digest(_KEY, repr((digests, rest)).encode(), "sha256")
