"""Judged queries of BEIR or TREC as the JSON lines that ``kiwi eval`` reads.

Run: ``python -m benchmarks.beir QUERIES JUDGEMENTS > queries.jsonl``. QUERIES is BEIR's ``queries.jsonl``, with ``_id``
and ``text`` (Thakur et al. 2021). JUDGEMENTS is tab-separated ``query-id corpus-id score`` under a header, or TREC's
``query-id 0 document-id grade`` without one. Queries that nothing is judged for are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

_HEADERS = ("query-id", "qid", "query")


def converted(queries: Path, judgements: Path) -> Iterator[str]:
    """Yield a line for each judged query."""
    grades: dict[str, dict[str, int]] = {}
    for number, line in enumerate(judgements.read_text(encoding="utf-8").splitlines()):
        fields = [field.strip() for field in (line.split("\t") if "\t" in line else line.split())]
        if fields and not (number == 0 and fields[0].lower().replace("_", "-") in _HEADERS):
            grades.setdefault(fields[0], {})[fields[-2]] = int(fields[-1])
    for line in filter(str.strip, queries.read_text(encoding="utf-8").splitlines()):
        query = json.loads(line)
        if relevant := grades.get(query["_id"]):
            found = {"id": query["_id"], "query": query["text"], "relevant": relevant}
            yield json.dumps(found, ensure_ascii=False)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in converted(*map(Path, sys.argv[1:])))
