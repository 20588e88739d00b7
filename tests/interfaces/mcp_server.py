"""A `kiwi mcp` of a test's own: over stdio with the SDK's client, over HTTP with plain messages."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from tests.interfaces.conftest import PATIENCE, Kiwi
from tests.interfaces.forked import ForkedProcess
from tests.interfaces.mcp_schemas import WHOLE


@asynccontextmanager
async def connected(kiwi: Kiwi, *arguments: str) -> AsyncIterator[StrictClient]:
    """A client of a `kiwi mcp` of its own; the process must end in order."""
    process = kiwi.talk("mcp", *arguments)
    async with StrictClient(_pipes(process), read_timeout_seconds=PATIENCE) as client:
        yield client
    assert await anyio.to_thread.run_sync(process.wait, PATIENCE) == 0


@asynccontextmanager
async def _pipes(process: ForkedProcess) -> AsyncIterator[Any]:
    """The transport of a process that runs already; the SDK's own starts one."""
    received, read = anyio.create_memory_object_stream[SessionMessage](0)
    write, sent = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        async with received:
            async for line in anyio.wrap_file(process.stdout):
                with contextlib.suppress(anyio.BrokenResourceError):  # an answer to a client that has gone
                    await received.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def send() -> None:
        async with sent, anyio.wrap_file(process.stdin) as stdin:
            async for one in sent:
                await stdin.write(one.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n")
                await stdin.flush()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        tasks.start_soon(send)
        yield read, write
        write.close()
        read.close()


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
            Draft202012Validator(WHOLE[name]).validate(result.structured_content)
        return result
