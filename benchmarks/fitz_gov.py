"""fitz-gov 4.1.0 (PyPI, MIT), 5,043 short documents with judged queries, as items of a project.

Where an id stands twice, the first is kept; of the same content, the first, with the judgements of its copies.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOTE = "---\n{metadata}\n---\n\n{content}\n"


def documents_and_queries() -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Return the documents that are kept by id, and the judged queries over them in Kiwi's own form."""
    found = importlib.util.find_spec("fitz_gov")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("fitz-gov is not installed: pip install --no-deps -r requirements/bench.txt")
    data = Path(found.submodule_search_locations[0]) / "data"
    by_id: dict[str, dict[str, Any]] = {}
    for line in (data / "corpus/documents.jsonl").read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        by_id.setdefault(document["id"], document)
    first: dict[str, str] = {}
    kept = {name: first.setdefault(document["content"], name) for name, document in by_id.items()}
    mappings = json.loads((data / "queries/query_mappings.json").read_text(encoding="utf-8"))["mappings"]
    queries = [
        {
            "id": name,
            "query": query["query"],
            "kind": kind,
            "relevant": {f"knowledge:fitz/{kept[ref]}": 1 for ref in query["relevant_docs"]},
        }
        for kind, named in mappings.items()
        for name, query in named.items()
        if query["relevant_docs"]
    ]
    return {name: by_id[name] for name in first.values()}, queries


def write_documents(project: Path, documents: Mapping[str, Mapping[str, Any]], *, titled: bool) -> None:
    """Write each document as a knowledge entry."""
    folder = project / ".ai/knowledge/fitz"
    folder.mkdir(parents=True)
    for name, document in documents.items():
        metadata = {"version": "1.0.0", "category": "fitz", "author": "fitz"}
        if titled and document.get("title"):
            metadata["title"] = document["title"]
        lines = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items())
        (folder / f"{name}.md").write_text(NOTE.format(metadata=lines, content=document["content"]), encoding="utf-8")


def text_of(document: Mapping[str, Any], *, titled: bool) -> str:
    """Return what a search without items would index."""
    return f"{document.get('title') or ''}\n{document['content']}" if titled else str(document["content"])
