"""Write what the databases hold about one person as CSV files, one a table, with psql and read-only transactions.

The tables are those of references/tables.md. Nothing is changed: each query runs in a read-only transaction.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__permissions__ = ["subprocess", "write"]

TABLES = Path(__file__).parent.parent / "references/tables.md"
_PERSON = re.compile(r"per_[0-9A-Z]{4,32}")
_ROW = re.compile(r"\| (pg-[a-z]+) \| ([a-z_]+) \| ([a-z_]+) \|")


class Table(NamedTuple):
    """A table with personal data."""

    service: str
    name: str
    key: str


def tables(text: str) -> Iterator[Table]:
    """Yield the tables that the reference lists."""
    yield from (Table(*match.groups()) for match in _ROW.finditer(text))


def statements(table: Table) -> str:
    """Return what psql runs; it puts the person in place of the variable, quoted."""
    rows = f"SELECT * FROM {table.name} WHERE {table.key} = :'person'"  # noqa: S608  # names of the reference alone
    return f"BEGIN READ ONLY;\nCOPY ({rows}) TO STDOUT (FORMAT csv, HEADER);\nCOMMIT;\n"


def read(table: Table, person: str) -> str:
    """Return the rows of one person as CSV.

    Raises
    ------
    ValueError
        If the id is not one of a person.
    """
    if not _PERSON.fullmatch(person):
        raise ValueError(f"{person!r} is not the id of a person, such as per_8F2K")
    psql = ["psql", "--quiet", "--no-psqlrc", f"--set=person={person}", f"--dbname=service={table.service}"]
    return subprocess.run(psql, input=statements(table), capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Write one CSV a table and print how many lines it has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--person", required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(mode=0o700, parents=True, exist_ok=True)
    for table in tables(TABLES.read_text()):
        rows = read(table, given.person)
        (given.out / f"{table.name}.csv").write_text(rows)
        sys.stdout.write(f"{table.service}.{table.name}: {max(0, len(rows.splitlines()) - 1)} lines\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
