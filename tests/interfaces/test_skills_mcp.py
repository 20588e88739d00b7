"""Skills over MCP (SEP-2640): listed, got and verified by three clients, over stdio and HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import mcp_types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from kiwi_rag.mcp import skills
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.server import build
from kiwi_rag.mcp.toolsets import load
from kiwi_rag.services import Services
from tests.interfaces import node
from tests.interfaces.conftest import PATIENCE, Kiwi, author_in
from tests.interfaces.mcp_server import StrictClient, connected, serving
from tests.interfaces.skills_client import Mismatch, RpcError, SkillHost, over_http, over_stdio
from tests.interfaces.test_registry_clients import other_user
from tests.interfaces.test_skill import FILES

CANARY = "skill://project/acme/canary-release/SKILL.md"
NESTED = "skill://project/acme/release/tools/nested/SKILL.md"
OUTER = {
    "SKILL.md": b"---\nname: release\ndescription: Release a service by hand.\nlicense: MIT\nuser-invocable: true\n"
    b'metadata:\n  version: "1.2.0"\n---\n# Release\n\nRead tools/nested.\n',
    "tools/nested/SKILL.md": b"---\nname: nested\ndescription: Belongs to release.\n---\n# Nested\n",
    "references/a b%2Fc.md": b"# Spaces\r\n\r\nand a percent sign\r\n",
    "references/\xc3\xbcber.md".encode("latin-1").decode(): "\ufeff# Über\n".encode(),
}


def write_outer(user: Kiwi) -> Path:
    folder = user.cwd / ".ai/skills/acme/release"
    for name, data in OUTER.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Kiwi:
    """A user with two skills; tests leave them as they are."""
    user = author_in(tmp_path_factory.mktemp("team"))
    write_outer(user)
    user.run("add", ".ai/skills/acme/release")
    return user


@pytest.fixture(scope="module")
def url(team: Kiwi) -> Iterator[str]:
    with serving(team) as url:
        yield url


@pytest.fixture
def stdio(team: Kiwi) -> Iterator[SkillHost]:
    with talking(team) as host:
        yield host


@contextmanager
def talking(user: Kiwi, *arguments: str) -> Iterator[SkillHost]:
    process = user.talk("mcp", *arguments)
    yield over_stdio(process)
    process.stdin.close()
    assert process.wait(timeout=PATIENCE) == 0


@pytest.fixture(params=["http", "stdio"])
def host(request: pytest.FixtureRequest) -> SkillHost:
    return over_http(request.getfixturevalue("url")) if request.param == "http" else request.getfixturevalue("stdio")


def test_a_host_lists_gets_and_reads_skills_and_verifies_every_byte(host: SkillHost) -> None:
    assert host.settings() == {"directoryRead": True}
    listed = {entry["uri"]: entry for entry in host.entries()}
    assert listed.keys() == {CANARY, "skill://project/acme/release/SKILL.md"}
    assert [host.get(uri) for uri in listed] == list(listed.values())
    assert host.load(listed[CANARY]) == FILES
    outer = listed["skill://project/acme/release/SKILL.md"]
    assert host.load(outer) == OUTER
    assert outer["frontmatter"] == {
        "name": "release", "description": "Release a service by hand.", "license": "MIT", "user-invocable": True,
        "metadata": {"version": "1.2.0"},
    }  # fmt: skip


def test_a_directory_read_finds_every_file_of_the_entry_and_no_other(host: SkillHost) -> None:
    for entry in host.entries():
        root = entry["uri"].removesuffix("/SKILL.md")
        assert sorted(host.walk(root)) == sorted(one["uri"] for one in entry["resources"])
    children = host.ask("resources/directory/read", uri="skill://project/acme/canary-release/references")["resources"]
    assert {child["name"]: child["mimeType"] for child in children} == {
        "checklist.md": "text/markdown", "deep": "inode/directory", "faq.txt": "text/plain",
        "thresholds.md": "text/markdown",
    }  # fmt: skip


def test_an_entry_says_who_signed_what_and_that_it_verified(team: Kiwi, url: str) -> None:
    shown = team.json("show", "skill:acme/canary-release")
    statement = team.json("show", "skill:acme/canary-release", "--statement")
    assert over_http(url).get(CANARY)["_meta"] == {
        "io.kiwi-rag/provenance": {
            "ref": "skill:acme/canary-release@1.0.0", "tier": "project", "state": "verified",
            "signer": "ada@acme.example", "keyId": shown["key_id"], "statement": f"sha256:{shown['digest']}",
            "signedAt": statement["predicate"]["signed_at"],
        }
    }  # fmt: skip


HOSTILE = [
    "skill://project/acme/canary-release/../canary-release/SKILL.md",
    "skill://project/acme/canary-release/references/../SKILL.md",
    "skill://project/acme/canary-release/%2e%2e/release/SKILL.md",
    "skill://project/acme%2Fcanary-release/SKILL.md",
    "skill://project/acme/canary-release%2FSKILL.md",
    "skill://project/acme/canary_release/SKILL.md",  # the same id as canary-release, which has another URI
    "skill://project/acme/canary-release//SKILL.md",
    "skill://project/acme/canary-release/SKILL.md/",
    "skill://project/acme/canary-release/SKILL.md?x=1",
    "skill://project/acme/canary-release/SKILL.md#x",
    "skill://project/acme/canary-release/skill.md",
    "skill://project/acme/canary-release/SKILL.md.sig",
    "skill://project/acme/canary-release/references/a\u0000b",
    "skill://PROJECT/acme/canary-release/SKILL.md",
    "skill://user/acme/canary-release/SKILL.md",
    "skill://acme/canary-release/SKILL.md",
    "skill://project/SKILL.md",
    "skill://project",
    "skill:///SKILL.md",
    "skill://",
    "SKILL.md",
    "",
    "kiwi://project/skill/acme/none",
    "file:///etc/passwd",
    "skill://project/" + "a/" * 5_000 + "SKILL.md",
    "skill://project/" + "é" * 100_000,
]


@pytest.mark.parametrize("method", ["skills/get", "resources/read", "resources/directory/read"])
def test_what_is_not_served_is_an_invalid_parameter(stdio: SkillHost, method: str) -> None:
    for uri in HOSTILE:
        with pytest.raises(RpcError) as refused:
            stdio.ask(method, uri=uri)
        assert (refused.value.code, len(refused.value.message) < 1_000) == (-32602, True), uri
    assert stdio.get(CANARY)


def test_a_file_is_no_folder_a_folder_is_no_file_and_neither_is_a_skill(stdio: SkillHost) -> None:
    root = CANARY.removesuffix("/SKILL.md")
    wrong = [("resources/directory/read", CANARY), ("resources/read", root), ("resources/read", f"{root}/references")]
    wrong += [("skills/get", root), ("skills/get", f"{root}/references/faq.txt"), ("skills/get", NESTED)]
    wrong += [("resources/directory/read", f"{root}/"), ("resources/directory/read", "skill://project/acme")]
    for method, uri in wrong:
        with pytest.raises(RpcError) as refused:
            stdio.ask(method, uri=uri)
        assert refused.value.code == -32602, (method, uri)


def test_a_missing_file_names_the_method_that_lists_those_of_the_skill(stdio: SkillHost) -> None:
    root = CANARY.removesuffix("/SKILL.md")
    with pytest.raises(RpcError, match=f"resources/directory/read of {root} names") as refused:
        stdio.ask("resources/read", uri=f"{root}/references/none.md")
    assert refused.value.code == -32602
    assert stdio.ask("resources/directory/read", uri=root)["resources"]


@pytest.mark.parametrize("method", ["skills/get", "resources/read"])
def test_a_user_without_a_registry_is_told_so_and_not_to_publish(stdio: SkillHost, method: str) -> None:
    with pytest.raises(RpcError, match="has no registry; skills/list") as refused:
        stdio.ask(method, uri=CANARY.replace("project", "registry"))
    assert refused.value.code == -32602
    assert "publish" not in refused.value.message


@pytest.mark.parametrize("cursor", ["-1", "x", "1;drop", "٣", "9" * 10, "9" * 1_000_000, ""])
def test_a_cursor_of_another_server_is_an_invalid_parameter(stdio: SkillHost, cursor: str) -> None:
    for method, params in (("skills/list", {}), ("resources/directory/read", {"uri": CANARY.rpartition("/")[0]})):
        if method == "skills/list" and not cursor:
            continue  # an empty cursor begins at the first page
        with pytest.raises(RpcError) as refused:
            stdio.ask(method, cursor=cursor, **params)
        assert (refused.value.code, "cursor" in refused.value.message) == (-32602, True)


def test_parameters_of_another_shape_are_refused(stdio: SkillHost) -> None:
    for params in ({}, {"uri": 7}, {"uri": None}, {"uri": [CANARY]}):
        with pytest.raises(RpcError) as refused:
            stdio.ask("skills/get", **params)
        assert refused.value.code == -32602
    assert stdio.ask("skills/list", cursor="999999999")["skills"] == []


async def test_pages_have_every_skill_once(team: Kiwi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills, "_PAGE", 1)
    environment = {**team.environment(), "KIWI_HOME": str(team.home / ".ai")}
    async with (
        Services.open(environment, team.cwd) as app,
        Client(build(ServerContext(app), load("skills"))) as client,
    ):
        uris, cursor = [], None
        while True:
            page = await client.session.send_request(
                ListRequest(params={"cursor": cursor} if cursor else {}), ListResult
            )
            uris.append([entry["uri"] for entry in page.skills])
            if not (cursor := page.next_cursor):
                break
    assert uris == [[CANARY], ["skill://project/acme/release/SKILL.md"]]


def test_a_server_of_skills_alone_has_no_tools_and_no_other_resources(team: Kiwi) -> None:
    note = team.write("knowledge/acme/other.md", "# Other\n\nText.\n")
    team.run("add", str(note))
    with talking(team, "--toolsets", "skills") as host:
        assert host.ask("tools/list")["tools"] == []
        listed = host.ask("resources/list")["resources"]
        assert {one["uri"]: one["name"] for one in listed} == {
            entry["uri"]: entry["frontmatter"]["name"] for entry in host.entries()
        }
        for method, params in (
            ("prompts/list", {}),
            ("resources/read", {"uri": "kiwi://project/knowledge/acme/other"}),
        ):
            with pytest.raises(RpcError):
                host.ask(method, **params)
    with talking(team, "--toolsets", "items") as host:
        assert "extensions" not in host.ask("server/discover")["capabilities"]
        assert "kiwi://project/skill/acme/release" in {one["uri"] for one in host.ask("resources/list")["resources"]}
        for method, code in (("skills/list", -32601), ("skills/get", -32601), ("resources/read", -32602)):
            with pytest.raises(RpcError) as refused:
                host.ask(method, uri=CANARY)
            assert refused.value.code == code
    team.run("delete", "acme/other", "--yes")


class ListRequest(mcp_types.Request[mcp_types.PaginatedRequestParams, Literal["skills/list"]]):
    method: Literal["skills/list"] = "skills/list"
    params: mcp_types.PaginatedRequestParams = mcp_types.PaginatedRequestParams()


class ListResult(mcp_types.PaginatedResult, mcp_types.CacheableResult):
    skills: list[dict]


class GetRequest(mcp_types.Request[skills.UriParams, Literal["skills/get"]]):
    method: Literal["skills/get"] = "skills/get"
    params: skills.UriParams


class GetResult(mcp_types.CacheableResult):
    skill: dict


async def use_official_client(client: Client) -> None:
    """List, get and verify with the SDK's client."""
    listed = await client.session.send_request(ListRequest(), ListResult)
    assert (listed.ttl_ms, listed.cache_scope, listed.next_cursor) == (5_000, "private", None)
    got = await client.session.send_request(GetRequest(params=skills.UriParams(uri=CANARY)), GetResult)
    assert got.skill in listed.skills
    for one in got.skill["resources"]:
        (content,) = (await client.read_resource(one["uri"])).contents
        data = content.text.encode() if hasattr(content, "text") else base64.b64decode(content.blob)
        assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (one["digest"], one["size"])
    with pytest.raises(MCPError) as refused:
        await client.session.send_request(GetRequest(params=skills.UriParams(uri=NESTED)), GetResult)
    assert refused.value.code == -32602


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_lists_gets_and_verifies_over_http(url: str, mode: str) -> None:
    async with StrictClient(url, read_timeout_seconds=PATIENCE, mode=mode) as client:
        await use_official_client(client)


async def test_the_official_client_lists_gets_and_verifies_over_stdio(team: Kiwi) -> None:
    async with connected(team) as client:
        await use_official_client(client)


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_the_client_of_fastmcp_lists_gets_and_verifies(team: Kiwi, url: str, transport: str) -> None:
    pytest.importorskip("fastmcp.skills", reason="requirements/parity.txt is not installed")
    from fastmcp import Client as FastClient
    from fastmcp.client.transports import StdioTransport
    from fastmcp.skills.client import SkillsClientExtension

    command = StdioTransport(sys.executable, ["-m", "kiwi_rag.cli", "mcp"], env=team.environment(), cwd=str(team.cwd))
    place = url if transport == "http" else command
    async with FastClient(place, extensions=[SkillsClientExtension()]) as client:
        listed = {entry.uri: entry for entry in await client.list_skills()}  # its models check the entries
        assert await client.get_skill(CANARY) == listed[CANARY]
        for entry in listed.values():
            for one in entry.resources:
                (content,) = await client.read_resource(one.uri)
                data = content.text.encode() if hasattr(content, "text") else base64.b64decode(content.blob)
                assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (one.digest, one.size)


def test_an_edited_file_is_served_as_it_was_signed_and_the_entry_says_changed(author: Kiwi) -> None:
    folder = author.cwd / ".ai/skills/acme/canary-release"
    with talking(author) as host:
        held = host.get(CANARY)
        (folder / "references/faq.txt").write_text("How long? As you like.\n")
        (folder / "more.md").write_text("# Not signed\n")
        assert host.load(held) == FILES
        now = host.get(CANARY)
        assert now["_meta"].popitem()[1]["state"] == "changed"
        assert now["resources"] == held["resources"]
        with pytest.raises(RpcError):
            host.ask("resources/read", uri=CANARY.replace("SKILL.md", "more.md"))
        with pytest.raises(Mismatch):
            host.read(held, CANARY.replace("SKILL.md", "more.md"))


def test_what_does_not_verify_is_neither_listed_nor_served(author: Kiwi) -> None:
    author.run("trust", "remove", "ada@acme.example")
    with talking(author) as host:
        assert host.entries() == []
        assert host.ask("resources/list")["resources"] == []
        for method in ("skills/get", "resources/read"):
            with pytest.raises(RpcError, match="trust") as refused:
                host.ask(method, uri=CANARY)
            assert refused.value.code == -32602


def test_a_skill_of_the_registry_is_got_by_its_uri_and_a_yanked_one_says_so(author: Kiwi) -> None:
    author.extra["OWNER_URL"] = author.run("registry", "start").stdout.strip()
    author.run("publish", ".ai/skills")
    there = CANARY.replace("project", "registry")
    with talking(other_user(author)) as host:
        assert host.entries() == []
        entry = host.get(there)
        assert host.load(entry) == FILES
        assert entry["_meta"]["io.kiwi-rag/provenance"]["tier"] == "registry"
        author.run("yank", "acme/canary-release@1.0.0", "--yes")
        with pytest.raises(RpcError, match="yanked") as refused:
            host.get(there)
        assert refused.value.code == -32602
    with talking(author) as host:
        (entry,) = host.entries()
        assert entry["_meta"]["io.kiwi-rag/provenance"]["state"] == "yanked"
    assert "was yanked" in author.run("export", "--well-known", "public", expect=4).stderr
    assert not (author.cwd / "public").exists()


async def test_a_tool_reads_any_text_of_a_skill_for_hosts_without_the_extension(url: str) -> None:
    async with StrictClient(url, read_timeout_seconds=PATIENCE) as client:
        asked = {"ref": "skill:acme/canary-release"}
        whole = await client.call_tool("kiwi_get", asked)
        assert whole.structured_content["files"] == sorted(FILES)
        assert (whole.structured_content["file"], whole.structured_content["content"]) == (
            "SKILL.md",
            FILES["SKILL.md"].decode(),
        )
        assert "references/deep/roles.md" in whole.content[0].text
        one = await client.call_tool("kiwi_get", {**asked, "file": "references/deep/roles.md"})
        assert one.structured_content["content"].encode() == FILES["references/deep/roles.md"]
        for file in ("../roles.md", "SKILL.md.sig", "assets/logo.png"):
            refused = await client.call_tool("kiwi_get", {**asked, "file": file})
            assert refused.is_error
            assert "has no file" in refused.content[0].text


@node.needs_node_modules
@pytest.mark.parametrize("scenario", ["enumeration", "manifest", "directory"])
def test_the_protocol_s_own_suite_finds_nothing_wrong(url: str, scenario: str, tmp_path: Path) -> None:
    name = f"sep-2640-skills-{scenario}"
    run = node.run(node.CONFORMANCE, "server", "--url", url, "--scenario", name, "-o", str(tmp_path), home=tmp_path)
    checks = [check for path in tmp_path.glob("**/checks.json") for check in json.loads(path.read_text())]
    assert {check["id"]: check["status"] for check in checks if check["status"] != "SUCCESS"} == {}, run.stdout[-4000:]
    assert len(checks) > 5
