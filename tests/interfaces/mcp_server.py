"""A `kiwi mcp --http` of a test's own, and plain messages to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator
from mcp import Client

from kiwi_rag.mcp import toolsets
from tests.interfaces.conftest import PATIENCE, Kiwi


@contextlib.contextmanager
def serving(kiwi: Kiwi, *arguments: str) -> Iterator[str]:
    """Yield the URL; the process must end in order."""
    process = kiwi.start("mcp", "--http", "--port", "0", *arguments)
    try:
        line = process.stderr.readline()
        found = re.search(r"http://\S+/mcp", line)
        assert found, line + process.stderr.read()
        yield found[0]
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def post(url: str, body: object, **headers: str) -> tuple[int, dict[str, str], str]:
    """Send one message; return status, headers and body."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection.request("POST", place.path, data, {**given, **{k.replace("_", "-"): v for k, v in headers.items()}})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def read_answer(text: str) -> dict:
    """Return the message in a body, plain or as one event of a stream."""
    found = re.search(r"^data: (\{.*)$", text, re.MULTILINE)
    return json.loads(found[1] if found else text)


class StrictClient(Client):
    """A client that compares each answer with its tool's whole schema; the listed one has only the members' types."""

    async def call_tool(self, name: str, *arguments: Any, **options: Any) -> Any:
        result = await super().call_tool(name, *arguments, **options)
        if not result.is_error:
            tools = {tool.name: tool for tool in toolsets.load(",".join(toolsets.TOOLSETS), allow_write=True).tools}
            Draft202012Validator(dict(tools[name].output)).validate(result.structured_content)
        return result
