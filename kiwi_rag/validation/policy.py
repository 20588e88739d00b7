"""What each tier asks of a candidate: data in a table, not flags in code. No policy, no entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from kiwi_rag.errors import UsageError
from kiwi_rag.formats import MAX_BYTES
from kiwi_rag.model import Severity


@dataclass(frozen=True, slots=True)
class Policy:
    """One tier's rules.

    ``hidden`` is how heavily hidden instructions weigh; ``max_age`` how old a signature may be when it arrives;
    ``received_now`` whether a retired key is judged by the time of arrival instead of what the statement claims;
    ``max_bytes`` how long a document may be (an item's length is what its format allows).
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
        raise UsageError(f"there is no admission policy for tier {tier!r}: nothing can enter it") from error
