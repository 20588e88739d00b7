"""The admission policy of each tier, as a table. A tier without a policy admits nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from kiwi_rag.errors import UsageError
from kiwi_rag.formats.source import MAX_BYTES
from kiwi_rag.model import Severity


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one tier.

    ``hidden`` is the severity of hidden instructions. ``max_age`` is how old a signature may be on arrival.
    ``received_now`` says whether a retired key is judged by the time of arrival instead of the time that the statement
    claims. ``max_bytes`` is the limit for documents; the limit for items is the same in every tier.
    """

    name: str
    hidden: Severity
    max_age: timedelta | None
    received_now: bool
    max_skew: timedelta = timedelta(minutes=5)
    max_bytes: int = MAX_BYTES


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "project": Policy("project", hidden="error", max_age=None, received_now=False),
        "user": Policy("user", hidden="error", max_age=None, received_now=False),
        "registry": Policy("registry", hidden="error", max_age=timedelta(days=365), received_now=True),
        "documents": Policy("documents", hidden="error", max_age=None, received_now=False, max_bytes=8 << 20),
        "shared": Policy("shared", hidden="error", max_age=None, received_now=True, max_bytes=8 << 20),
    }
)


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
