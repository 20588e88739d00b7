"""Libraries from the command line and through agents' tools: two libraries with the same files, two versions of one."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import StoreError
from kiwi_rag.model import ItemRef
from kiwi_rag.services import Services
from kiwi_rag.services.library import Libraries
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.usecases.library import get_docs
from tests.examples import size
from tests.interfaces.conftest import Kiwi
from tests.interfaces.mcp_server import StrictClient, connected, serving

_GUIDE = """# Routing

## Ordering a pilot

A pilot boards every ship over {metres} metres at the fairway buoy.

```python
def order(ship):
    return pilot.order(ship, metres={metres})
```

## Mooring

{mooring} lines hold the ship at the quay, and a tug stands by in strong wind.
"""
_LONG = "\n\n".join(
    f"## Signal {n}\n\nThe harbour master shows signal {n} when the wind is from {n * 7} degrees, and ships wait."
    for n in range(40)
)


def _library(folder: Path, name: str, version: str, metres: int, mooring: str) -> Path:
    (folder / "docs").mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"name": name, "version": version, "repository": f"port/{name}"}))
    (folder / "README.md").write_text(f"# {name}\n\nHow to begin with {name} {version}: install it.\n")
    (folder / "docs/routing.md").write_text(_GUIDE.format(metres=metres, mooring=mooring))
    (folder / "docs/signals.md").write_text(f"# Signals\n\n{_LONG}\n")
    return folder


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Kiwi:
    """A user with /port/quay in two versions, and /port/dock with the same files as the first one."""
    base = tmp_path_factory.mktemp("libraries")
    kiwi = Kiwi(base / "home", base / "project")
    kiwi.home.mkdir()
    kiwi.cwd.mkdir()
    for folder, name, version, metres, mooring in (
        ("one", "quay", "1.0.0", 80, "Hemp"),
        ("two", "quay", "2.0.0", 120, "Nylon"),
        ("three", "dock", "1.0.0", 80, "Hemp"),
    ):
        kiwi.run("library", "add", str(_library(base / folder, name, version, metres, mooring)))
    return kiwi


async def _called(client: StrictClient, tool: str, **arguments: object) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content[0].text
    return answer.structured_content


async def _refused(client: StrictClient, tool: str, **arguments: object) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    return answer.content[0].text


@asynccontextmanager
async def _over_http(kiwi: Kiwi, *arguments: str) -> AsyncIterator[StrictClient]:
    with serving(kiwi, *arguments) as url:
        async with StrictClient(url) as client:
            yield client


@pytest.mark.parametrize("over", [connected, _over_http])
async def test_both_families_of_names_find_and_read(port: Kiwi, over: Any) -> None:
    async with over(port, "--toolsets", "library") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {
            "list_projects", "resolve-library-id", "query-docs", "resolve_library_id", "get_library_docs",
            "project_status", "reindex_project",
        }  # fmt: skip
        assert "query-docs" in client.instructions
        for tool in ("resolve-library-id", "resolve_library_id"):
            found = await _called(client, tool, libraryName="quay", query="order a pilot")
            assert [row["id"] for row in found["libraries"]][:2] == ["/port/quay@2.0.0", "/port/quay@1.0.0"]
        newest = await _called(client, "query-docs", libraryId="/port/quay", query="which ships take a pilot")
        assert newest["version"] == "2.0.0"
        assert "over 120 metres" in newest["chunks"][0]["text"]
        source = newest["chunks"][0]["source"]
        data = (port.cwd.parent / "two" / source["file"]).read_bytes()
        assert data[slice(*source["offset"])].decode().rstrip("\n") == newest["chunks"][0]["text"]
        named = await _called(client, "get_library_docs", library_id="/port/quay@1.0.0", topic="pilot")
        assert named["library"] == "/port/quay@1.0.0"
        assert "over 80 metres" in named["chunks"][0]["text"]
        begin = await _called(client, "get_library_docs", libraryId="/port/dock")
        assert any(chunk["source"]["file"] == "README.md" for chunk in begin["chunks"])


async def test_an_agent_sees_the_state_and_updates_an_index(port: Kiwi) -> None:
    async with connected(port, "--toolsets", "library") as client:
        listed = (await _called(client, "list_projects"))["projects"]
        assert [(row["id"], row["status"]) for row in listed] == [
            ("/port/dock@1.0.0", "Completed"), ("/port/quay@1.0.0", "Completed"), ("/port/quay@2.0.0", "Completed")
        ]  # fmt: skip
        job = await _called(client, "reindex_project", project_id="dock")
        assert (job["state"], job["report"]["unchanged"]) == ("done", 3)
        state = await _called(client, "project_status", libraryId="dock")
        assert (state["stats"]["documents"], state["origin"]) == (3, "path")


async def test_each_library_is_alone(port: Kiwi) -> None:
    async with connected(port, "--toolsets", "library") as client:
        asked = [("/port/quay@1.0.0", "Hemp"), ("/port/quay@2.0.0", "Nylon"), ("/port/dock", "Hemp")] * 4
        calls = [_called(client, "query-docs", libraryId=one, query="lines that hold the ship") for one, _ in asked]
        for (library, word), found in zip(asked, await asyncio.gather(*calls), strict=True):
            texts = "".join(chunk["text"] for chunk in found["chunks"])
            assert word in texts
            assert ({"Hemp", "Nylon"} - {word}).isdisjoint(texts.split())
            assert found["library"].startswith(library)


async def test_a_collection_cannot_be_named(port: Kiwi) -> None:
    collection = "lib__port__quay_v1_p0_p0"
    names = (collection, "KiwiDocument_port", "documents", "../../home", "/port/quay/../dock", "/other/quay", "%", "*")
    async with connected(port, "--toolsets", "library") as client:
        for name in names:
            assert "no such library" in await _refused(client, "query-docs", libraryId=name, query="pilot")
            assert "no such library" in await _refused(client, "project_status", projectId=name)


async def test_another_version_is_never_taken(port: Kiwi) -> None:
    async with connected(port, "--toolsets", "library") as client:
        why = await _refused(client, "query-docs", libraryId="/port/quay@3.0.0", query="pilot")
        assert "2.0.0, 1.0.0" in why
        (port.cwd / "package-lock.json").write_text(
            json.dumps({"lockfileVersion": 3, "packages": {"node_modules/quay": {"version": "1.0.0"}}})
        )
        given = {"libraryId": "/port/quay", "topic": "pilot"}
        assert (await _called(client, "get_library_docs", **given, pathContext="src/app.js"))["version"] == "1.0.0"
        (port.cwd / "ring").symlink_to("ring")
        for path in ("../two/package.json", "ring/a.js", "a\0b", "/etc/passwd"):
            why = await _refused(client, "get_library_docs", **given, pathContext=path)
            assert "not in this server's workspace" in why


async def test_a_record_that_cannot_be_read_is_named(port: Kiwi) -> None:
    damaged = port.home / ".ai/libraries/lib__port__broken.json"
    damaged.write_text("{")
    try:
        async with connected(port, "--toolsets", "library") as client:
            for tool, given in (("list_projects", {}), ("resolve_library_id", {"libraryName": "quay"})):
                found = await _called(client, tool, **given)
                assert f"{damaged} is not a valid record of a library" in found["problems"][0]
            assert str(damaged) in await _refused(client, "query-docs", libraryId="/port/broken", query="pilot")
    finally:
        damaged.unlink()


def _pages(port: Kiwi, tokens: int, *topic: str) -> Iterator[dict[str, Any]]:
    following: list[str] = []
    while True:
        answer = port.json("library", "get", "dock", *topic, "--tokens", str(tokens), *following)
        yield answer
        if not answer["continuationToken"]:
            return
        following = ["--continuation", answer["continuationToken"]]


def test_pages_together_are_the_whole_answer(port: Kiwi) -> None:
    whole = [chunk["text"] for chunk in next(_pages(port, 100_000, "wind", "signal"))["chunks"]]
    pages = list(_pages(port, 700, "wind", "signal"))
    assert len(pages) > 2
    assert "".join(chunk["text"] for page in pages for chunk in page["chunks"]) == "".join(whole)
    assert len(set(whole)) == len(whole)


async def test_an_answer_has_no_more_tokens_than_asked_for(port: Kiwi) -> None:
    from tokenizers import Tokenizer

    from kiwi_rag.embedding.weights import ModelSource, onnx_files

    source = ModelSource(Path(port.environment()["KIWI_CACHE_DIR"]))
    tokenizer = Tokenizer.from_file(str(onnx_files(source).tokenizer))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    chosen = random.Random(18)
    async with connected(port, "--toolsets", "library") as client:
        for _ in range(size(70, 10)):  # each with up to three pages
            tokens, topic = chosen.randint(300, 3_000), chosen.choice(["pilot", "signal 7", "", "lines", "install"])
            following = ""
            for _ in range(3):
                given = {"libraryId": "quay", "topic": topic, "tokens": tokens, "continuationToken": following}
                answer = await client.call_tool("get_library_docs", given)
                assert len(tokenizer.encode(answer.content[0].text, add_special_tokens=False).ids) <= tokens
                following = answer.structured_content["continuationToken"]
                if not following:
                    break


def test_code_is_whole_and_copies_are_shown_once(tmp_path: Path) -> None:
    kiwi = Kiwi(tmp_path / "home", tmp_path / "project")
    kiwi.home.mkdir()
    kiwi.cwd.mkdir()
    folder = _library(tmp_path / "lib", "dock", "1.0.0", 80, "Hemp")
    code = "\n".join(f"crane.lift(container={n}, berth={n % 7}, weight={n * 113})" for n in range(60))
    page = (
        f"# Cranes\n\n## Unloading a ship\n\nA crane unloads one container after another:\n\n```python\n{code}\n```\n"
    )
    (folder / "docs/cranes.md").write_text(page)
    (folder / "docs/again.md").write_text(page)
    kiwi.run("library", "add", str(folder))
    chunks = kiwi.json("library", "get", "dock", "crane unloads containers", "--tokens", "20000")["chunks"]
    lifted = [chunk for chunk in chunks if "crane.lift(" in chunk["text"]]
    assert len(lifted) == 1
    assert code in lifted[0]["text"]
    assert lifted[0]["text"].count("```") == 2


def test_a_continuation_from_before_an_update_is_right_or_refused(tmp_path: Path) -> None:
    kiwi = Kiwi(tmp_path / "home", tmp_path / "project")
    kiwi.home.mkdir()
    kiwi.cwd.mkdir()
    folder = _library(tmp_path / "lib", "dock", "1.0.0", 80, "Hemp")
    kiwi.run("library", "add", str(folder))
    first = next(_pages(kiwi, 400, "signal"))
    kiwi.run("library", "reindex", "dock")  # nothing changed
    given = ["library", "get", "dock", "signal", "--tokens", "400", "--continuation", first["continuationToken"]]
    assert kiwi.json(*given)["chunks"]
    shown = first["chunks"][0]["text"].splitlines()[-1]
    page = folder / "docs/signals.md"
    page.write_text(page.read_text().replace(shown, "Something else is shown at the mast now."))
    for command in ("search", "get"):
        assert "kiwi library reindex /port/dock@1.0.0" in kiwi.run("library", command, "dock", "signal").stderr
    kiwi.run("library", "reindex", "dock")
    refused = kiwi.run("--json", *given, expect=2)
    assert "the index was updated" in json.loads(refused.stderr)["error"]["message"]


async def test_an_index_is_of_use_in_its_own_scope_alone(port: Kiwi) -> None:
    environment = {**port.environment(), "KIWI_HOME": str(port.home / ".ai")}
    async with Services.open(environment, port.cwd) as app, Libraries(app) as libraries:
        quay, dock = (libraries.resolve(name).library for name in ("quay", "dock"))
        with libraries.scope(quay) as index:
            assert index.tier.workspace == quay.name
            task = asyncio.create_task(asyncio.sleep(0, index.tier))
            with libraries.scope(dock), pytest.raises(StoreError, match="outside of its scope"):
                assert index.tier
            assert (await task).workspace == index.tier.workspace
        with pytest.raises(StoreError, match="outside of its scope"):
            assert index.tier


async def test_reading_fetches_each_document_once(port: Kiwi, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = list[ItemRef]()
    get = LocalVectorStore.get

    async def counted(store: LocalVectorStore, ref: ItemRef, *files: Any) -> Any:
        fetched.append(ref)
        return await get(store, ref, *files)

    monkeypatch.setattr(LocalVectorStore, "get", counted)
    environment = {**port.environment(), "KIWI_HOME": str(port.home / ".ai")}
    async with Services.open(environment, port.cwd) as app, Libraries(app) as libraries:
        answer = await get_docs(app, libraries, libraries.resolve("dock"), "wind signal")
    assert answer.data["chunks"][0]["source"]["offset"]
    assert len(fetched) == len(set(fetched)) > 1


def test_commands_say_what_is_there_and_what_is_not(port: Kiwi, tmp_path: Path) -> None:
    assert port.run("library", "list").stdout.splitlines()[0].startswith("/port/dock@1.0.0  Completed  3 documents")
    status = port.json("library", "status", "quay@2")
    assert (status["id"], status["stats"]["embedded"], status["status"]) == ("/port/quay@2.0.0", 1.0, "Completed")
    assert status["last_indexed"]
    lines = port.run("library", "status", "quay@2").stdout.splitlines()
    assert [line.partition("  ")[0] for line in lines if "lib__port" in line] == ["library", "size"]
    found = port.json("library", "search", "/port/quay@1.0.0", "which ships take a pilot", "--format", "json")
    assert found["hits"][0]["path"] == "docs/routing.md"
    missing = port.run("library", "get", "key", expect=1).stderr
    assert "no such library: key" in missing
    assert "/port/quay" in missing
    plain = tmp_path / "plain"
    plain.mkdir()
    assert "--version 1.0.0" in port.run("library", "add", str(plain), expect=2).stderr


def test_what_is_removed_is_gone_and_the_rest_stays(tmp_path: Path) -> None:
    kiwi = Kiwi(tmp_path / "home", tmp_path / "project")
    kiwi.home.mkdir()
    kiwi.cwd.mkdir()
    folder = _library(tmp_path / "lib", "dock", "1.0.0", 80, "Hemp")
    assert "add one: kiwi library add npm:vite" in kiwi.run("library", "list").stderr
    kiwi.run("library", "add", str(folder))
    kiwi.run("library", "add", str(folder), "--version", "1.1.0", "--docs", "docs")
    way_out = kiwi.run("library", "remove", "dock@1.0.0", expect=2).stderr.splitlines()[-1].partition("kiwi ")[2]
    assert way_out == "library remove /port/dock@1.0.0 --yes"
    kiwi.run(*way_out.split())
    assert [row["id"] for row in kiwi.json("library", "list")] == ["/port/dock@1.1.0"]
    assert kiwi.json("library", "search", "dock", "pilot", "--format", "json")["hits"]
    assert (folder / "docs/routing.md").exists()
    (folder / "docs").rename(folder / "moved")
    folder.rename(folder.with_name("gone"))
    gone = kiwi.run("library", "reindex", "dock", expect=1).stderr
    assert "kiwi library remove /port/dock@1.1.0" in gone
    folder.with_name("gone").rename(folder)
    vectors = kiwi.home / ".ai/vectors"
    assert [path.name for path in vectors.glob("*/libraries/*")] == ["lib__port__dock_v1_p1_p0"]


def test_yes_allows_downloads_and_no_remote_model(tmp_path: Path) -> None:
    server = {"KIWI_EMBEDDING_PROVIDER": "openai", "KIWI_EMBEDDING_BASE_URL": "http://models.example.invalid/v1"}
    kiwi = Kiwi(tmp_path / "home", tmp_path / "project", server)
    kiwi.home.mkdir()
    kiwi.cwd.mkdir()
    folder = _library(tmp_path / "lib", "dock", "1.0.0", 80, "Hemp")
    refused = kiwi.run("library", "add", str(folder), "--yes", expect=4)
    assert "kiwi consent allow models.example.invalid --purpose embedding" in refused.stderr
    assert not (kiwi.home / ".ai/consent.json").exists()
