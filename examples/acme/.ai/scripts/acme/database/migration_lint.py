"""Lint Postgres migration files for statements that block writers, rewrite tables or mix expand with contract.

The rules follow the lock table in the knowledge entry acme/data/postgres-locks. The linter splits SQL at semicolons
outside quotes, comments and dollar-quoted bodies; it does not parse expressions, so it errs on the side of a warning.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__version__ = "2.0.1"
__category__ = "acme/database"
__author__ = "platform-data"
__tags__ = ["postgres", "migrations", "locks", "lint"]

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)"""
    r"""|(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"""
    r"""|(?P<end>;)""",
    re.DOTALL,
)


@dataclass(frozen=True)
class Rule:
    """One thing to look for in a single statement."""

    code: str
    severity: str
    pattern: re.Pattern[str]
    advice: str


@dataclass(frozen=True)
class Statement:
    """A statement without comments, literals emptied, and the 1-based line where it starts."""

    text: str
    line: int


@dataclass(frozen=True, order=True)
class Remark:
    """One finding of the linter."""

    line: int
    code: str
    severity: str
    advice: str


def _rule(code: str, severity: str, pattern: str, advice: str) -> Rule:
    return Rule(code, severity, re.compile(pattern, re.IGNORECASE | re.DOTALL), advice)


RULES = (
    _rule(
        "index-blocks-writes",
        "error",
        r"^create\s+(unique\s+)?index\b(?!\s+concurrently)",
        "CREATE INDEX takes SHARE and stops writers; use CONCURRENTLY",
    ),
    _rule(
        "drop-index-blocks",
        "error",
        r"^drop\s+index\b(?!\s+concurrently)",
        "DROP INDEX takes ACCESS EXCLUSIVE on the table; use CONCURRENTLY",
    ),
    _rule(
        "constraint-scans-table",
        "error",
        r"^alter\s+table\b.*\badd\s+constraint\b.*\b(check|foreign\s+key)\b(?!.*\bnot\s+valid\b)",
        "add it NOT VALID, then VALIDATE CONSTRAINT in a later transaction",
    ),
    _rule(
        "set-not-null-scans-table",
        "warning",
        r"^alter\s+table\b.*\bset\s+not\s+null\b",
        "add CHECK (column IS NOT NULL) NOT VALID and validate it first; then SET NOT NULL is instant",
    ),
    _rule(
        "type-change-rewrites",
        "error",
        r"^alter\s+table\b.*\balter\s+(column\s+)?\S+\s+(set\s+data\s+)?type\b",
        "most type changes rewrite the table; add a new column and backfill",
    ),
    _rule(
        "volatile-default-rewrites",
        "error",
        r"^alter\s+table\b.*\badd\s+column\b.*\bdefault\s+(gen_random_uuid|random|clock_timestamp)\s*\(",
        "a volatile default rewrites the table; add the column without it, set the default, backfill",
    ),
    _rule(
        "rename-breaks-old-code",
        "error",
        r"^alter\s+table\b.*\brename\b",
        "running code still uses the old name; add the new one beside it (expand), drop the old one later",
    ),
    _rule(
        "unbatched-update",
        "warning",
        r"^(update|delete)\b(?!.*\bwhere\b)",
        "touches every row in one transaction; make it a backfill job in batches of 5,000",
    ),
    _rule(
        "vacuum-full",
        "error",
        r"^(vacuum\s+(\(.*\bfull\b.*\)|full)|cluster)\b",
        "holds ACCESS EXCLUSIVE for the whole rewrite; use pg_repack in a maintenance window",
    ),
    _rule("raises-lock-timeout", "error", r"^set\b.*\block_timeout\b", "the session sets lock_timeout to 2s; leave it"),
)

_EXPAND = re.compile(r"^(create\s+table|alter\s+table\b.*\badd\b(?!\s+constraint))", re.IGNORECASE | re.DOTALL)
_CONTRACT = re.compile(r"^(drop\s+table|alter\s+table\b.*\bdrop\s+(column\b|constraint\b))", re.IGNORECASE | re.DOTALL)
_CONCURRENT = re.compile(r"\bconcurrently\b", re.IGNORECASE)


def split_statements(sql: str) -> list[Statement]:
    """Split `sql` at top-level semicolons; comments vanish and literals become ``''``, line numbers stay true."""
    return [Statement(text, line) for text, line in _pieces(sql) if text]


def lint(sql: str) -> list[Remark]:
    """Return the remarks on one migration file, by line."""
    statements = split_statements(sql)
    remarks = [_remark(s, rule) for s in statements for rule in RULES if rule.pattern.search(s.text)]
    return sorted([*remarks, *_about_the_file(statements)])


def has_errors(remarks: Iterable[Remark]) -> bool:
    """Whether any remark forbids the merge."""
    return any(remark.severity == "error" for remark in remarks)


def _remark(statement: Statement, rule: Rule) -> Remark:
    return Remark(statement.line, rule.code, rule.severity, rule.advice)


def _about_the_file(statements: list[Statement]) -> Iterator[Remark]:
    contract = [s for s in statements if _CONTRACT.search(s.text)]
    if contract and any(_EXPAND.search(s.text) for s in statements):
        advice = "expand and contract in one file; the old version could not run against the result"
        yield Remark(contract[0].line, "mixes-expand-and-contract", "error", advice)
    concurrent = [s for s in statements if _CONCURRENT.search(s.text)]
    if concurrent and len(statements) > 1:
        advice = "CONCURRENTLY cannot run in a transaction; give it a file of its own"
        yield Remark(concurrent[0].line, "concurrently-not-alone", "error", advice)


def _pieces(sql: str) -> Iterator[tuple[str, int]]:
    cleaned = _TOKEN.sub(_blank, sql)
    start = 0
    for piece in cleaned.split("\0"):
        lead = len(piece) - len(piece.lstrip())
        yield piece.strip(), cleaned.count("\n", 0, start + lead) + 1
        start += len(piece) + 1


def _blank(match: re.Match[str]) -> str:
    # Line breaks inside comments and literals are kept, so that line numbers stay those of the file.
    newlines = "\n" * match[0].count("\n")
    if match["end"]:
        return "\0"
    return newlines if match["comment"] else f"''{newlines}"


def main(argv: list[str] | None = None) -> int:
    """Lint the files named on the command line; return 1 if any has an error."""
    parser = argparse.ArgumentParser(description="Lint Postgres migrations for locks and compatibility.")
    parser.add_argument("files", type=Path, nargs="+", help="migration files")
    failed = False
    for path in parser.parse_args(argv).files:
        remarks = lint(path.read_text("utf-8"))
        failed |= has_errors(remarks)
        sys.stdout.writelines(f"{path}:{r.line}: {r.severity}: {r.code}: {r.advice}\n" for r in remarks)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
