"""`kiwi mcp` as a process of its own, driven by the SDK's client: over stdio, and over HTTP what is the same there.

The first test lets the SDK start it, as an AI client does; the others fork it.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from mcp import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION

from kiwi_rag.embedding.weights import ModelSource
from tests.interfaces.conftest import PATIENCE, Kiwi, note
from tests.interfaces.mcp_server import StrictClient, connected, post, read_answer, serving

TOOLS = {"kiwi_search", "kiwi_get", "kiwi_validate", "kiwi_status", "workspace_search", "workspace_index_stats"}
TOOLS |= {"search_markdown", "reindex_documents", "update_files"}  # acme is a project


@pytest.fixture(scope="module")
def url(acme: Kiwi):
    """One `kiwi mcp --http`, for what is the same over stdio and HTTP."""
    with serving(acme) as url:
        yield url


async def test_from_initialise_to_a_verified_hit(acme: Kiwi, tmp_path: Path) -> None:
    environment = {**acme.environment(), "KIWI_CACHE_DIR": str(tmp_path)}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "kiwi_rag.cli", "mcp"], env=environment, cwd=acme.cwd
    )
    # The server waits for this lock before it converts the weights, so it cannot be ready before it has said so.
    lock = ModelSource(tmp_path / "models").root / "prepare.lock"
    lock.parent.mkdir(parents=True)
    preparing = FileLock(lock, thread_local=False)
    preparing.acquire(timeout=0)
    async with StrictClient(command, read_timeout_seconds=PATIENCE) as client:
        assert client.server_info.name == "kiwi"
        assert all(name in (client.instructions or "") for name in ("kiwi_search", "workspace_search"))
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS

        told = []

        async def progress(step: float, total: float | None, message: str | None) -> None:
            told.append(message)
            if "loading the embedding model" in message:
                preparing.release()

        found = await client.call_tool("kiwi_search", {"q": "undo a bad release"}, progress_callback=progress)
        assert not found.is_error
        assert any("loading the embedding model" in message for message in told)
        hits = found.structured_content["hits"]
        first = next(hit for hit in hits if hit["item_id"] == "acme/deploy/rollback")
        assert first["ref"].startswith("directive:acme/deploy/rollback@")
        assert (first["tier"], first["signer"], first["verified"]) == ("project", "ada@acme.example", True)
        assert len(first["digest"]) == 64
        assert first["path"].endswith("directives/acme/deploy/rollback.md")
        assert first["start_line"] >= 1
        assert first["ref"] in found.content[0].text

        item = await client.call_tool("kiwi_get", {"ref": first["ref"]})
        assert item.structured_content["content"] == (acme.cwd / first["path"]).read_text()
        assert item.structured_content["inputs"]
        assert item.structured_content["permissions"]

        read = await client.read_resource("kiwi://project/directive/acme/deploy/rollback")
        assert read.contents[0].text == item.structured_content["content"]
        listed = (await client.list_resources()).resources
        with pytest.raises(MCPError, match="cursor is not from this server"):
            await client.list_resources(cursor="1;drop")
        assert "kiwi://project/directive/acme/deploy/rollback" in {str(one.uri) for one in listed}


async def test_an_answer_keeps_to_its_budget_and_goes_on(acme: Kiwi) -> None:
    async with connected(acme) as client:
        asked = {"query": "deploy", "limit": 5, "max_tokens": 120}
        first = (await client.call_tool("kiwi_search", asked)).structured_content
        assert 1 <= len(first["hits"]) < 5
        second = (
            await client.call_tool("kiwi_search", {**asked, "continuation": first["continuation"]})
        ).structured_content
        assert second["hits"][0]["rank"] == len(first["hits"]) + 1
        whole = (await client.call_tool("kiwi_search", {**asked, "max_tokens": 50_000})).structured_content["hits"]
        both = [hit["ref"] for hit in first["hits"] + second["hits"]]
        assert both[:5] == [hit["ref"] for hit in whole][: len(both)]
        with_another = {"query": "rollback", "continuation": first["continuation"]}
        refused = await client.call_tool("kiwi_search", with_another)
        assert refused.is_error
        assert "another request" in refused.content[0].text

        pages, given = [], {"ref": "directive:acme/deploy/rollback", "max_tokens": 100}
        while True:
            page = (await client.call_tool("kiwi_get", given)).structured_content
            pages.append(page["content"])
            if not page["continuation"]:
                break
            given["continuation"] = page["continuation"]
        assert len(pages) > 1
        assert "".join(pages) == (acme.cwd / ".ai/directives/acme/deploy/rollback.md").read_text()


async def test_a_search_is_weighted_explained_and_says_which_passage_it_found(url: str) -> None:
    async with StrictClient(url, read_timeout_seconds=PATIENCE) as client:
        for alpha, leg in ((0, "words"), (1, "vectors")):
            asked = {"query": "undo a bad release", "alpha": alpha, "explain": True}
            found = (await client.call_tool("kiwi_search", asked)).structured_content
            assert found["explain"]["weights"]["alpha"] == alpha
            for hit in found["hits"]:
                assert hit["score"] == pytest.approx(hit["parts"][leg], abs=1e-5)
                assert 0 <= hit["chunk_index"] < hit["total_chunks"]
                assert hit["title"]
        assert found["close"] is None  # what is close was measured with the tuned weights
        for query, close in (("undo a bad release", True), ("zzzz frobnicate wibble", False)):
            answer = await client.call_tool("kiwi_search", {"query": query})
            assert answer.structured_content["close"] is close
            assert ("nothing here is close to the query" in answer.content[0].text) is not close
            assert answer.structured_content["hits"]  # nothing is left out


async def test_retrieved_text_cannot_end_its_own_quotation(url: str) -> None:
    async with StrictClient(url, read_timeout_seconds=PATIENCE) as client:
        texts = [
            (await client.call_tool("kiwi_get", {"ref": "directive:acme/deploy/rollback"})).content[0].text
            for _ in "ab"
        ]
    marks = [text.split("<data-", 1)[1].split(">", 1)[0] for text in texts]
    assert marks[0] != marks[1]
    assert all(text.count(f"</data-{mark}>") == 1 for text, mark in zip(texts, marks, strict=True))


async def test_whatever_an_item_says_stands_between_marks(url: str) -> None:
    ref = "directive:acme/deploy/rollback"
    async with StrictClient(url, read_timeout_seconds=PATIENCE) as client:
        item = await client.call_tool("kiwi_get", {"ref": ref})
        values = {one["name"]: "given" for one in item.structured_content["inputs"] if one["required"]}
        prompt = await client.get_prompt("run_directive", {"ref": ref, "inputs": json.dumps(values)})
    said = item.structured_content
    for text in (item.content[0].text, prompt.messages[0].content.text):
        outside = re.sub(r"<data-(\w+)>.*?</data-\1>", "", text, flags=re.DOTALL)
        assert "<data-" not in outside
        for row in said["permissions"]:
            assert row["pattern"] in text
            assert row["pattern"] == "*" or row["pattern"] not in outside
        for row in said["inputs"]:
            assert row["name"] in text
            assert not row.get("description") or row["description"] not in outside


async def test_a_draft_is_checked_and_nothing_is_stored(acme: Kiwi, url: str) -> None:
    async with StrictClient(url, read_timeout_seconds=PATIENCE) as client:
        draft = {"item_type": "directive", "item_id": "acme/draft", "content": "# no block\n"}
        checked = await client.call_tool("kiwi_validate", draft)
        assert checked.structured_content["valid"] is False
        assert checked.structured_content["findings"][0]["code"] == "form.no-directive"
        assert not (await client.call_tool("kiwi_validate", {**draft, "item_id": "../x"})).structured_content.get(
            "valid"
        )
        good = (acme.cwd / ".ai/directives/acme/deploy/rollback.md").read_text()
        again = await client.call_tool("kiwi_validate", {**draft, "item_id": "acme/deploy/rollback", "content": good})
        assert again.structured_content["valid"] is True
        missing = await client.call_tool("kiwi_get", {"ref": "directive:acme/draft", "source": "local"})
        assert missing.is_error
        assert missing.structured_content["error"]["hint"] == "find it with kiwi_search"


async def test_a_directive_becomes_a_prompt_that_is_ready_to_run(url: str) -> None:
    async with StrictClient(url, read_timeout_seconds=PATIENCE) as client:
        (prompt,) = (await client.list_prompts()).prompts
        assert prompt.name == "run_directive"
        item = (await client.call_tool("kiwi_get", {"ref": "directive:acme/deploy/rollback"})).structured_content
        values = {one["name"]: f"value of {one['name']}" for one in item["inputs"]}
        given = {"ref": "directive:acme/deploy/rollback", "inputs": json.dumps(values)}
        ready = (await client.get_prompt("run_directive", given)).messages[0].content.text
        assert all(f"- {name} = {value}" in ready for name, value in values.items())
        assert item["content"].strip() in ready
        with pytest.raises(MCPError, match="has no input colour"):
            await client.get_prompt("run_directive", {**given, "inputs": '{"colour": "red"}'})
        for broken in ("{", "[" * 5_000):
            with pytest.raises(MCPError, match="not JSON"):
                await client.get_prompt("run_directive", {**given, "inputs": broken})
        with pytest.raises(MCPError, match="has no input"):
            await client.get_prompt("run_directive", {**given, "inputs": '{"\\ud800": 1}'})
        assert not (await client.call_tool("kiwi_search", {"query": "deploy", "limit": 2.0})).is_error
        late = await client.call_tool("kiwi_search", {"query": "deploy", "since": "0001-01-01T00:00:00+23:59"})
        assert late.is_error
        assert "since is not a date" in late.content[0].text


BAD = {
    "no argument": ("kiwi_search", {}, "requires query", "its arguments are query, source"),
    "unknown argument": ("kiwi_search", {"query": "x", "colour": "red"}, "no argument 'colour'", "query, source"),
    "misspelled argument": ("kiwi_search", {"query": "x", "limits": 3}, "no argument 'limits'", "did you mean limit?"),
    "wrong type": ("kiwi_search", {"query": 7}, "not of type 'string'", "query is a string, 1 to 10000 characters"),
    "limit below one": ("kiwi_search", {"query": "x", "limit": -1}, "minimum", "limit is an integer, 1 to 50"),
    "limit above fifty": ("kiwi_search", {"query": "x", "limit": 51}, "maximum", "limit is an integer, 1 to 50"),
    "a query of a megabyte": ("kiwi_search", {"query": "x" * 1_000_000}, "too long", "1 to 10000 characters"),
    "an empty query": ("kiwi_search", {"query": ""}, "too short|non-empty", "1 to 10000 characters"),
    "twice": ("kiwi_search", {"query": "x", "q": "y"}, "given twice", "name it query"),
    "no such source": (
        "kiwi_search",
        {"query": "x", "source": "moon"},
        "'moon' is not one of its values$",
        "one of project, user,",
    ),
    "no list": ("kiwi_search", {"query": "x", "tags": "cost"}, "not of type 'array'", "tags is an array, 0 to 50"),
    "two at once": ("kiwi_search", {"query": 7, "limit": 0}, "'string'.*minimum|minimum.*'string'", "limit is an"),
}


async def test_bad_arguments_are_results_that_a_model_can_correct_and_the_server_lives(acme: Kiwi) -> None:
    """SEP-1303: a model sees a result, and a client shows a protocol error to nobody."""
    async with connected(acme) as client:
        for name, (tool, given, message, hint) in BAD.items():
            result = await client.call_tool(tool, given)
            assert result.is_error, name
            told, _, mend = result.content[0].text.partition("\n→ ")
            assert re.search(message, told), (name, told)
            assert hint in mend, (name, mend)
            assert len(told) < 1_000, name
            assert result.structured_content["error"]["code"] == "usage", name
        assert not (await client.call_tool("kiwi_status", {})).is_error


async def test_an_unknown_tool_is_a_protocol_error_with_a_hint(acme: Kiwi) -> None:
    async with connected(acme) as client:
        for name, hint in (("kiwi_delete", "there are kiwi_status"), ("kiwi_serach", "did you mean kiwi_search?")):
            with pytest.raises(MCPError, match="there is no tool") as error:
                await client.call_tool(name, {})
            assert error.value.code == -32602
            assert hint in error.value.data["hint"]
        assert not (await client.call_tool("kiwi_status", {})).is_error


async def test_tools_that_write_are_offered_only_when_that_is_allowed(acme: Kiwi) -> None:
    async with connected(acme, "--allow-write") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == TOOLS | {"kiwi_publish"}
        assert tools["kiwi_publish"].annotations.read_only_hint is False
        for tool in tools.values():
            hints = tool.annotations
            assert None not in (
                hints.read_only_hint,
                hints.destructive_hint,
                hints.idempotent_hint,
                hints.open_world_hint,
            )
            assert tool.title
            assert tool.output_schema["type"] == "object"
            assert tool.input_schema["additionalProperties"] is False


async def test_descriptions_hold_nothing_of_what_items_say(acme: Kiwi) -> None:
    async with connected(acme, "--allow-write") as client:
        described = json.dumps(
            [tool.model_dump() for tool in (await client.list_tools()).tools]
            + [prompt.model_dump() for prompt in (await client.list_prompts()).prompts]
            + [client.instructions],
            default=str,
        )
    sentences = [
        line.strip(" #*-|<>`")
        for path in (acme.cwd / ".ai").rglob("*.md")
        for line in path.read_text().splitlines()
        if len(line.strip(" #*-|<>`")) > 24
    ]
    assert len(sentences) > 200
    assert [sentence for sentence in sentences if sentence in described] == []


def initialize(version: object = "2025-11-25", number: object = 1) -> str:
    """The first message of a client."""
    asked = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": asked}) + "\n"


@pytest.fixture
def talking(acme: Kiwi):
    """A `kiwi mcp` to write lines to; it must end in order when its input ends."""
    process = acme.talk("mcp")
    yield process
    process.stdin.close()
    assert process.wait(timeout=PATIENCE) == 0


def answers(process, *lines: str) -> list[dict]:
    """Send lines and return as many answers."""
    process.stdin.write("".join(lines))
    process.stdin.flush()
    return [json.loads(process.stdout.readline()) for _ in lines]


def test_initialise_is_answered_while_the_sdk_is_still_being_loaded(acme: Kiwi, tmp_path: Path) -> None:
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp/__init__.py").write_text("import time\ntime.sleep(600)\n")  # an SDK that is never there
    slow = Kiwi(acme.home, acme.cwd, {"PYTHONPATH": f"{tmp_path}:{acme.environment()['PYTHONPATH']}"})
    process = slow.start_python("mcp", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        (greeted,) = answers(process, initialize())
        assert greeted["result"]["serverInfo"]["name"] == "kiwi"
    finally:
        process.kill()
        process.wait()


def test_initialise_is_answered_once(talking) -> None:
    (greeted,) = answers(talking, initialize())
    assert greeted["id"] == 1
    talking.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
    (listed,) = answers(talking, json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}) + "\n")
    assert (listed["id"], {tool["name"] for tool in listed["result"]["tools"]}) == (2, TOOLS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_though_its_input_stays_open(acme: Kiwi, number: int) -> None:
    process = acme.talk("mcp")
    answers(process, initialize(), json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}) + "\n")
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE) in {0, 130}
    process.stdin.close()


async def test_each_type_of_item_is_given_and_only_directives_are_carried_out(url: str) -> None:
    async with StrictClient(url, read_timeout_seconds=PATIENCE) as client:
        for ref in ("script:acme/code/flaky_report", "knowledge:acme/api/guidelines", "directive:acme/deploy/rollback"):
            item = await client.call_tool("kiwi_get", {"ref": ref})
            assert not item.is_error, item.content[0].text
            assert all(set(one) == {"verb", "resource", "pattern"} for one in item.structured_content["permissions"])
        script = (await client.call_tool("kiwi_get", {"ref": "script:acme/code/flaky_report"})).structured_content
        assert script["permissions"]
        same = await client.call_tool("kiwi_get", {"ref": "kiwi://project/script/acme/code/flaky_report"})
        assert same.structured_content["digest"] == script["digest"]
        with pytest.raises(MCPError, match="is not a directive"):
            await client.get_prompt("run_directive", {"ref": "script:acme/code/flaky_report"})


async def test_pages_hold_every_hit_once_though_a_signer_may_have_only_half_of_a_page(kiwi: Kiwi) -> None:
    kiwi.run("init")
    for number, name in enumerate(("ada", "bob", "cyd")):
        kiwi.run("keys", "new", name, "--principal", f"{name}@acme.example")
        for one in range(8 if name == "ada" else 2):
            path = kiwi.write(
                f"knowledge/acme/{name}{one}.md", note(extra=f"Gate {one} of {name} wakes at {one + number}.")
            )
            kiwi.run("--quiet", "sign", str(path), "--key", name)
    kiwi.run("--quiet", "index")
    async with connected(kiwi) as client:
        asked: dict = {"query": "when does the staging cluster wake up", "limit": 4}
        pages = []
        while True:
            page = (await client.call_tool("kiwi_search", asked)).structured_content
            pages.append([hit["ref"] for hit in page["hits"]])
            if not page["continuation"]:
                break
            asked["continuation"] = page["continuation"]
        plain = (await client.call_tool("kiwi_search", {**asked, "continuation": ""})).structured_content
    assert pages[0] == [hit["ref"] for hit in plain["hits"]]
    every = [ref for page in pages for ref in page]
    assert len(every) == len(set(every)) == 12


@pytest.mark.parametrize("toolsets", [["items", "workspace"], ["documents"], ["skills"], ["items", "skills"]])
def test_the_early_answer_is_the_one_that_the_sdk_gives(acme: Kiwi, toolsets: list[str]) -> None:
    from kiwi_rag.mcp.stdio import VERSIONS, initialize_response

    assert VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS
    with serving(acme, "--toolsets", ",".join(toolsets)) as url:
        for version in (*VERSIONS, "1999-01-01", LATEST_MODERN_VERSION):
            status, _, text = post(url, json.loads(initialize(version)))
            assert status == 200, text
            assert read_answer(text) == initialize_response(initialize(version).encode(), toolsets)


def test_what_is_no_message_is_answered_and_the_server_lives(talking) -> None:
    deep = "[" * 100_000
    lines = ["no json\n", "[]\n", '{"jsonrpc": "2.0", "id": 7}\n', '{"id": 8, "method": "ping"}\n', deep + "\n"]
    lines += [f'{{"jsonrpc": "2.0", "id": {number}, "method": "ping"}}\n' for number in ("null", "1.5", "true", "{}")]
    given = answers(talking, *lines)
    assert [(one["id"], one["error"]["code"]) for one in given] == [
        (None, -32700), (None, -32600), (7, -32600), (8, -32600), (None, -32700), *[(None, -32600)] * 4,
    ]  # fmt: skip
    assert all(one["error"]["data"]["hint"] for one in given)
    (greeted,) = answers(talking, initialize("2025-06-18", "a"))
    assert (greeted["id"], greeted["result"]["protocolVersion"]) == ("a", "2025-06-18")
    (refused,) = answers(talking, '{"x": "' + "x" * 5_000_000 + '"}\n')
    assert "over 4 MB" in refused["error"]["message"]
    (pong,) = answers(talking, '{"jsonrpc": "2.0", "id": 3, "method": "ping"}\n')
    assert pong == {"jsonrpc": "2.0", "id": 3, "result": {}}


def test_a_cancelled_search_is_not_answered_and_the_next_one_is(talking) -> None:
    answers(talking, initialize())

    def call(number: int) -> str:
        called = {"name": "kiwi_search", "arguments": {"query": "undo a bad release"}}
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": called}) + "\n"

    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5, "reason": "enough"}}
    talking.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    talking.stdin.write(call(5) + json.dumps(cancelled) + "\n")  # while the model is being loaded
    (answer,) = answers(talking, call(6))
    while answer.get("id") != 6:
        assert "result" not in answer
        answer = json.loads(talking.stdout.readline())
    assert answer["result"]["structuredContent"]["hits"]


async def test_a_changed_and_a_yanked_item_say_so(ready: Kiwi) -> None:
    """In text and structured content, of a search and of one item; a prompt of a yanked one is refused."""
    path = ready.write("knowledge/acme/note.md", note())
    ready.run("add", str(path))
    ready.run("registry", "start")
    ready.run("publish", "--all")
    path.write_text(note(extra="The cluster never sleeps."))
    asked = {"query": "staging shrinks to one node", "source": "project"}
    async with connected(ready) as client:
        found = await client.call_tool("kiwi_search", asked)
        item = await client.call_tool("kiwi_get", {"ref": "knowledge:acme/note@project"})
        for result, data in ((found, found.structured_content["hits"][0]), (item, item.structured_content)):
            assert (data["verified"], data["changed"], data["yanked"]) == (False, True, False)
            assert "signed by ada@acme.example, changed ·" in result.content[0].text
            assert "this is the text that was signed" in result.content[0].text
            assert "It wakes at seven." in result.content[0].text
            assert "never sleeps" not in result.content[0].text
        path.write_text(note())
        ready.run("yank", "acme/note@1.0.0", "--yes")
        found = await client.call_tool("kiwi_search", asked)
        item = await client.call_tool("kiwi_get", {"ref": "knowledge:acme/note@project"})
        there = await client.call_tool("kiwi_get", {"ref": "knowledge:acme/note@1.0.0@registry"})
        told = found.structured_content["hits"][0]
        for result, data in ((found, told), (item, item.structured_content), (there, there.structured_content)):
            assert (data["verified"], data["changed"], data["yanked"]) == (False, False, True)
            assert "signed by ada@acme.example, yanked ·" in result.content[0].text
            assert "Yanked: this version was taken back." in result.content[0].text
