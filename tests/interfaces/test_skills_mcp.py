"""Skills over MCP (SEP-2640): listed, fetched and verified by two clients, over stdio and HTTP."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from tests.interfaces import node
from tests.interfaces.conftest import Kiwi
from tests.interfaces.mcp_server import post, read_answer, serving
from tests.interfaces.test_skill import FILES, write_skill


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Kiwi:
    folder = tmp_path_factory.mktemp("skills")
    folder.chmod(0o755)
    for name in ("home", "project"):
        (folder / name).mkdir()
    user = Kiwi(folder / "home", folder / "project")
    user.run("init")
    user.run("keys", "new", "--principal", "ada@acme.example")
    write_skill(user)
    user.run("add", ".ai/skills")
    return user


@pytest.fixture(scope="module")
def url(team: Kiwi):
    with serving(team) as url:
        yield url


def rpc(url, method, params, version="2026-07-28"):
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {"MCP_Protocol_Version": version, "Mcp_Method": method}
    if "uri" in params:
        headers["Mcp_Name"] = params["uri"]
    return post(url, body, **headers)


def test_x(url):
    print(rpc(url, "server/discover", {}))
    print(rpc(url, "skills/list", {}))
    print(rpc(url, "skills/get", {"uri": "skill://project/acme/canary-release/SKILL.md"}))
    print(rpc(url, "resources/read", {"uri": "skill://project/acme/canary-release/assets/logo.png"}))
    print(rpc(url, "resources/directory/read", {"uri": "skill://project/acme/canary-release"}))
    print(rpc(url, "resources/list", {}))
    print(rpc(url, "skills/get", {"uri": "skill://x/SKILL.md"}))


@pytest.mark.parametrize("s", ["directory", "enumeration", "manifest"])
def test_conf(url, s, tmp_path):
    run = node.run(
        node.CONFORMANCE,
        "server",
        "--url",
        url,
        "--scenario",
        f"sep-2640-skills-{s}",
        "-o",
        str(tmp_path),
        home=tmp_path,
    )

    for f in tmp_path.glob("**/checks.json"):
        for c in json.loads(f.read_text()):
            print(c["id"], c["status"], c.get("errorMessage"))
