"""One signature verified inside Postgres: kiwi.ed25519_verify on the embedded server, each call timed by itself.

Run with ``python -m benchmarks.sql_signature``; it prints JSON. Messages are DSSE encodings of 4 KiB payloads, every
key is new, and each time includes the round trip over the socket. Beside it stands the same check by OpenSSL.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.timing import spread, timed
from kiwi_rag.registry import server
from kiwi_rag.registry.migrate import migrate
from kiwi_rag.signing import dsse

CALLS = 500
PAYLOAD_BYTES = 4096

Case = tuple[bytes, bytes, bytes]


def signed() -> Case:
    """Return a fresh key, a message and its signature."""
    private = Ed25519PrivateKey.generate()
    message = dsse.pae(dsse.PAYLOAD_TYPE, os.urandom(PAYLOAD_BYTES))
    return private.public_key().public_bytes_raw(), message, private.sign(message)


def milliseconds(verify: Callable[[Case], object], cases: list[Case]) -> dict[str, float]:
    """Return median, min and max of single calls."""
    return spread([1000 * timed(lambda c=case: verify(c))[0] for case in cases])


def measure(url: str) -> dict[str, object]:
    """Return what was measured, ready for JSON."""
    migrate(url)
    cases = [signed() for _ in range(CALLS)]
    with psycopg.connect(url, autocommit=True) as connection:

        def in_sql(case: Case) -> None:
            row = connection.execute("select kiwi.ed25519_verify(%b, %b, %b)", case).fetchone()
            assert row == (True,)

        in_sql(cases[0])  # reads the functions' bodies, once a session
        return {
            "n": CALLS,
            "payload_bytes": PAYLOAD_BYTES,
            "sql_ms": milliseconds(in_sql, cases),
            "openssl_ms": milliseconds(lambda case: dsse.verify_signature(*case), cases),
        }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        try:
            json.dump(measure(server.start(Path(folder))), sys.stdout, indent=1)
        finally:
            server.stop(Path(folder))
    sys.stdout.write("\n")
