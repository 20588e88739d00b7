"""A relay between a client and Postgres that misbehaves as networks do: it drops, delays, and loses answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from psycopg.conninfo import conninfo_to_dict

Cut = Callable[[int, int, bytes], bool]
"""Given the number of the connection, the bytes that its client has sent, and the latest of them: drop it now?"""


@dataclass
class Proxy:
    """What the relay does to connections, and how many it has seen."""

    url: str
    cut_before: Cut = lambda number, sent, data: False  # the server never sees these bytes
    cut_after: Cut = lambda number, sent, data: False  # the server does, and its answer is lost
    delay: float = 0.0
    answer_seconds: float = 0.2  # how long the server has for an answer that is to be lost
    silent: bool = False
    connections: int = 0
    tasks: set[asyncio.Task] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            upstream = await self._upstream()
        except OSError:
            writer.close()
            return
        back = asyncio.create_task(self._answers(upstream[0], writer))
        self.tasks.add(back)
        try:
            await self._requests(number, reader, upstream, back)
        finally:
            back.cancel()
            for side in (writer, upstream[1]):
                side.transport.abort()

    async def _requests(
        self,
        number: int,
        reader: asyncio.StreamReader,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        back: asyncio.Task,
    ) -> None:
        answers, server = upstream
        sent = 0
        while data := await reader.read(65536):
            sent += len(data)
            if self.cut_before(number, sent, data):
                return
            lost = self.cut_after(number, sent, data)
            if lost:
                back.cancel()
            await asyncio.sleep(self.delay)
            server.write(data)
            await server.drain()
            if lost:
                await asyncio.wait([back])
                with suppress(TimeoutError):  # of an unfinished message it says nothing
                    await asyncio.wait_for(answers.read(1), self.answer_seconds)
                return

    async def _answers(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await server.read(65536):
                await asyncio.sleep(self.delay)
                if not self.silent:
                    client.write(data)
                    await client.drain()
            client.close()

    async def _upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = conninfo_to_dict(self.url)
        host, port = str(parts["host"]), str(parts.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """Yield a relay to `url`, well-behaved until told otherwise, and its own URL."""
    from psycopg.conninfo import make_conninfo

    proxy = Proxy(url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield proxy, make_conninfo(url, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
    server.close()
