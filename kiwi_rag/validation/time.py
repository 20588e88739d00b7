"""Step 9: when it was signed."""

from __future__ import annotations

from datetime import datetime

from kiwi_rag.model import Finding
from kiwi_rag.signing.statement import format_time
from kiwi_rag.validation.policy import Policy


def check(signed_at: datetime, now: datetime, policy: Policy, path: str) -> list[Finding]:
    """Return what is wrong with `signed_at`: in the future beyond the allowed skew, or too old for this policy."""
    if signed_at - now > policy.max_skew:
        return [
            Finding(
                "time.future",
                f"signed at {format_time(signed_at)}, which is in the future (now {format_time(now)})",
                path=path,
                hint=f"set the clock right, then sign again: kiwi sign {path} --force",
            )
        ]
    if policy.max_age and now - signed_at > policy.max_age:
        return [
            Finding(
                "time.old",
                f"signed at {format_time(signed_at)}, over {policy.max_age.days} days ago",
                path=path,
                hint=f"review it and sign it again: kiwi sign {path} --force",
            )
        ]
    return []
