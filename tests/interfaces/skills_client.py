"""A host of skills, written from the text of SEP-2640 alone: over plain JSON-RPC, without an SDK."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from urllib.parse import unquote

import yaml

from tests.interfaces.mcp_server import post

VERSION = "2026-07-28"
EXTENSION = "io.modelcontextprotocol/skills"
Message = dict[str, Any]


class RpcError(Exception):
    """The server answered with an error."""

    def __init__(self, error: Message) -> None:
        self.code, self.message = error["code"], error["message"]
        super().__init__(f"{self.code}: {self.message}")


class Mismatch(Exception):
    """What was read is not what the entry says."""


class SkillHost:
    """Lists skills, gets one, and reads files that it verifies; `send` delivers a request and returns its answer."""

    def __init__(self, send: Callable[[Message], Message]) -> None:
        self._send, self._ids = send, count(1)

    def ask(self, method: str, **params: Any) -> Message:
        """Return the result of a request."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
        }
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        answer = self._send(request)
        assert answer["id"] == request["id"]
        if "error" in answer:
            raise RpcError(answer["error"])
        assert answer["result"]["resultType"] == "complete"
        return answer["result"]

    def settings(self) -> Message:
        """Return what the server declares of the extension."""
        capabilities = self.ask("server/discover")["capabilities"]
        assert "resources" in capabilities
        return capabilities["extensions"][EXTENSION]

    def pages(self) -> Iterator[list[Message]]:
        """Yield the entries of each page of ``skills/list``."""
        cursor: dict[str, str] = {}
        while True:
            result = self.ask("skills/list", **cursor)
            assert result["ttlMs"] >= 0
            assert result["cacheScope"] in ("private", "public")
            for entry in result["skills"]:
                check_entry(entry)
            yield result["skills"]
            if not result.get("nextCursor"):
                return
            cursor = {"cursor": result["nextCursor"]}

    def entries(self) -> list[Message]:
        """Return all entries that are listed."""
        return [entry for page in self.pages() for entry in page]

    def get(self, uri: str) -> Message:
        """Return the entry of one skill."""
        result = self.ask("skills/get", uri=uri)
        assert "nextCursor" not in result
        assert {"ttlMs", "cacheScope"} <= result.keys()
        check_entry(result["skill"])
        return result["skill"]

    def read(self, entry: Message, uri: str) -> bytes:
        """Return a file of the skill whose entry is held, verified by it."""
        listed = {one["uri"]: one for one in entry["resources"]}
        if uri not in listed:
            raise Mismatch(f"{uri} is not listed")
        (content,) = self.ask("resources/read", uri=uri)["contents"]
        data = content["text"].encode() if "text" in content else base64.b64decode(content["blob"], validate=True)
        if len(data) != listed[uri]["size"] or f"sha256:{hashlib.sha256(data).hexdigest()}" != listed[uri]["digest"]:
            raise Mismatch(f"{uri} differs")
        return data

    def load(self, entry: Message) -> dict[str, bytes]:
        """Return all files of a skill by their names, verified, after a comparison of its front matter."""
        main = self.read(entry, entry["uri"]).decode("utf-8-sig")
        _, block, _ = main.split("---\n", 2)
        if yaml.safe_load(block) != entry["frontmatter"]:
            raise Mismatch("the front matter differs")
        root = entry["uri"].removesuffix("SKILL.md")
        return {unquote(one["uri"].removeprefix(root)): self.read(entry, one["uri"]) for one in entry["resources"]}

    def walk(self, uri: str) -> Iterator[str]:
        """Yield the URI of every file below a folder, as ``resources/directory/read`` lists them."""
        for child in self.ask("resources/directory/read", uri=uri)["resources"]:
            assert child["name"] == unquote(child["uri"].rpartition("/")[2])
            if child["mimeType"] == "inode/directory":
                yield from self.walk(child["uri"])
            else:
                yield child["uri"]


def check_entry(entry: Message) -> None:
    """Check that an entry has the shape that the SEP requires."""
    scheme, _, path = entry["uri"].partition("://")
    *_, name, main = path.split("/")
    assert (bool(scheme), main, name) == (True, "SKILL.md", entry["frontmatter"]["name"])
    assert isinstance(entry["frontmatter"]["description"], str)
    uris = [one["uri"] for one in entry["resources"]]
    assert len(uris) == len(set(uris)) <= 512
    assert entry["uri"] in uris
    assert all(uri.startswith(entry["uri"].removesuffix("SKILL.md")) for uri in uris)
    assert sum(one["size"] for one in entry["resources"]) <= 16 << 20
    for one in entry["resources"]:
        algorithm, _, digest = one["digest"].partition(":")
        assert (algorithm, len(digest), digest) == ("sha256", 64, digest.lower())


def over_http(url: str) -> SkillHost:
    """A host that posts to a server."""

    def send(request: Message) -> Message:
        named = {"Mcp_Name": request["params"]["uri"]} if request["method"] == "resources/read" else {}
        return json.loads(post(url, request, MCP_Protocol_Version=VERSION, Mcp_Method=request["method"], **named)[2])

    return SkillHost(send)


def over_stdio(process: Any) -> SkillHost:
    """A host that writes to a process and reads from it, a message a line."""

    def send(request: Message) -> Message:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    return SkillHost(send)
