"""Report how many days TLS certificates of given hosts are still valid, and fail before it is too late.

Connects to each ``host[:port]`` with normal verification on, reads the peer certificate's notAfter, and grades it: 30
days or less is a notice, 14 a warning, 7 critical. A host that cannot be reached or verified is critical as well.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

__version__ = "1.3.0"
__category__ = "acme/security"
__author__ = "security-engineering"
__tags__ = ["tls", "certificates", "expiry", "monitoring"]
__permissions__ = ["network"]

THRESHOLDS = ((7, "critical"), (14, "warning"), (30, "notice"))
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class ExpiryReport:
    """What is known of one endpoint; ``days_left`` is None when no certificate could be read."""

    endpoint: str
    days_left: int | None
    grade: str
    detail: str


def parse_endpoint(text: str, default_port: int = 443) -> tuple[str, int]:
    """Split ``host[:port]``; an IPv6 address with a port stands in brackets.

    Raises
    ------
    ValueError
        If the port is not a number from 1 to 65535.
    """
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    number = int(port) if port else default_port
    if not 0 < number < 65_536:
        raise ValueError(f"port {number} of {text!r} is not in 1-65535")
    return host, number


def days_left(not_after: str, now: datetime) -> int:
    """Return whole days, rounded down, until a notAfter such as ``Jun  1 12:00:00 2026 GMT``; negative when past."""
    return int((ssl.cert_time_to_seconds(not_after) - now.timestamp()) // SECONDS_PER_DAY)


def grade(days: int) -> str:
    """Return ``critical``, ``warning``, ``notice`` or ``ok`` for the days left."""
    return next((name for limit, name in THRESHOLDS if days <= limit), "ok")


def check(endpoint: str, now: datetime, timeout: float) -> ExpiryReport:
    """Connect to one endpoint and grade its certificate; network trouble becomes a critical report."""
    try:
        not_after = read_not_after(*parse_endpoint(endpoint), timeout)
    except (OSError, ValueError) as error:
        return ExpiryReport(endpoint, None, "critical", f"{type(error).__name__}: {error}")
    left = days_left(not_after, now)
    return ExpiryReport(endpoint, left, grade(left), not_after)


def read_not_after(host: str, port: int, timeout: float) -> str:
    """Return notAfter of the verified peer certificate.

    Raises
    ------
    OSError
        If the connection or the verification fails (``ssl.SSLError`` is one).
    """
    context = ssl.create_default_context()
    with (
        socket.create_connection((host, port), timeout) as raw,
        context.wrap_socket(raw, server_hostname=host) as tls,
    ):
        return str((tls.getpeercert() or {}).get("notAfter", ""))


def main(argv: list[str] | None = None) -> int:
    """Check every endpoint; return 2 if one is critical, 1 if one is a warning, else 0."""
    parser = argparse.ArgumentParser(description="Report the days left on TLS certificates.")
    parser.add_argument("endpoints", nargs="+", metavar="host[:port]")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds for each endpoint")
    options = parser.parse_args(argv)
    reports = [check(endpoint, datetime.now(UTC), options.timeout) for endpoint in options.endpoints]
    for report in reports:
        left = "?" if report.days_left is None else report.days_left
        sys.stdout.write(f"{report.grade:<8} {left:>5}  {report.endpoint}  {report.detail}\n")
    grades = {report.grade for report in reports}
    return 2 if "critical" in grades else int("warning" in grades)


if __name__ == "__main__":
    raise SystemExit(main())
