"""A publisher cannot hold up the audit, and so every revocation, for as long as it likes."""

from __future__ import annotations

import psycopg

from tests.conformance.items import admission
from tests.sql.publication import published
from tests.sql.test_refusal_limit import limited, login, refuse  # noqa: F401


def test_a_publisher_does_not_hold_the_audit(
    limited: psycopg.Connection, login: psycopg.Connection, url: str  # noqa: F811
) -> None:
    with psycopg.connect(url, user="mallory") as held:
        refuse(held, 1)
        held.execute("set local idle_in_transaction_session_timeout = 0")
        limited.execute("set lock_timeout = '20s'")
        assert "sequence" in published(limited, admission("acme/x"))
