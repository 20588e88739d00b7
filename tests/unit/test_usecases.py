"""What the interfaces call: it returns records, and leaves printing, prompting and exit codes to them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kiwi_rag import usecases
from kiwi_rag.config import Settings
from kiwi_rag.model import SearchQuery, SearchReply, VersionConflict
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.usecases.items import Verdict, _with_conflict

REF = ItemRef(ItemType.KNOWLEDGE, "acme/note", "1.0.0")


def test_use_cases_neither_print_nor_prompt_nor_exit() -> None:
    modules = list(Path(usecases.__file__).parent.glob("*.py"))
    assert len(modules) >= 5
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.func.id] if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else []
            names += [node.id] if isinstance(node, ast.Name) else []
            forbidden = {"click", "tqdm", "sys", "print", "input", "exit", "SystemExit", "kiwi_rag.cli", "kiwi_rag.mcp"}
            assert forbidden.isdisjoint(names), (module.name, names)


class Searcher:
    """Answers with as many hits as the limit allows, of which one signer's are held back unless there is no cap."""

    def __init__(self) -> None:
        self.queries: list[SearchQuery] = []

    async def search(self, query: SearchQuery, vector: None) -> SearchReply:
        assert vector is None
        self.queries.append(query)
        numbers = range(10) if query.per_signer == 0 else range(0, 10, 2)
        hits: Any = [SimpleNamespace(ref=replace(REF, item_id=f"acme/{n}")) for n in numbers]
        return SearchReply(query, tuple(hits[: query.limit]), ())


def application(searcher: Callable[[str], Searcher]) -> Any:
    """What a search needs of the services; the query's embedding is not begun."""
    return SimpleNamespace(
        settings=Settings(source="local", limit=3), searcher=searcher, begin_embedding=lambda _query: nullcontext()
    )


async def test_the_pages_of_a_search_repeat_no_hit_and_miss_none() -> None:
    searcher = Searcher()
    app = application(lambda _source: searcher)
    first = await usecases.search(app, SearchQuery("night"), begin=0)
    assert [hit.ref.item_id for hit in first.hits] == ["acme/0", "acme/2", "acme/4"]
    later = await usecases.search(app, SearchQuery("night"), begin=3)
    assert [hit.ref.item_id for hit in later.hits[:3]] == ["acme/0", "acme/2", "acme/4"]
    assert sorted(hit.ref.item_id for hit in later.hits) == [f"acme/{n}" for n in range(10)]
    assert [query.limit for query in searcher.queries] == [3, 3, usecases.MAX_HITS]


async def test_source_and_limit_of_a_call_replace_those_of_the_settings() -> None:
    asked: list[str] = []
    searcher = Searcher()
    app = application(lambda source: asked.append(source) or searcher)
    await usecases.search(app, SearchQuery("night"), source="registry", limit=5)
    await usecases.search(app, SearchQuery("night"))
    assert asked == ["registry", "local"]
    assert [query.limit for query in searcher.queries] == [5, 3]


def test_a_version_with_two_contents_is_a_conflict_unless_it_is_refused() -> None:
    conflict = VersionConflict(REF, {"project": "a" * 64, "user": "b" * 64}, "kiwi add PATH --bump patch")
    found = _with_conflict(Verdict("project", REF, signer="ada"), [conflict])
    assert (found.state, found.signer, found.conflict) == ("conflict", "ada", conflict)
    assert found.as_dict()["conflict"] == conflict.as_dict()
    refused = Verdict("project", REF, "refused", reason="untrusted")
    assert _with_conflict(refused, [conflict]) == refused
    elsewhere = Verdict("registry", REF)
    assert _with_conflict(elsewhere, [conflict]) == elsewhere
