"""``kiwi mcp``: the agents' door."""

from __future__ import annotations

import click

from kiwi_rag.cli.session import DONE, Session
from kiwi_rag.mcp.toolsets import DEFAULT
from kiwi_rag.services import Services

_EXAMPLES = """\b
Example: kiwi mcp                            serve the client that starts it, over stdio
         kiwi mcp --http --port 8765         serve many, on 127.0.0.1
         KIWI_MCP_TOKEN=… kiwi mcp --http --host 10.0.0.5    beyond this machine, for those who have the token
"""


@click.command(epilog=_EXAMPLES)
@click.option("--toolsets", default=DEFAULT, show_default=True, help="What to offer, separated by commas.")
@click.option("--allow-write", is_flag=True, help="Offer tools that change something, too.")
@click.option("--http", is_flag=True, help="Serve streamable HTTP in place of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen, with --http.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8765, show_default=True, help="0: any free one.")
@click.option("--token", envvar="KIWI_MCP_TOKEN", help="What clients must send: Authorization: Bearer TOKEN.")
@click.option("--name", "names", multiple=True, help="Another name that clients call it by, with --http; repeatable.")
@click.pass_obj
def mcp(
    session: Session,
    toolsets: str,
    allow_write: bool,
    http: bool,
    host: str,
    port: int,
    token: str | None,
    names: tuple[str, ...],
) -> int:
    """Serve the Model Context Protocol: search, read and check items, search this repository, for agents."""
    from kiwi_rag.mcp.stdio import StdioStreams
    from kiwi_rag.mcp.toolsets import load, parse_names

    chosen = parse_names(toolsets)
    streams = None if http else StdioStreams()
    if streams:
        streams.start_initialize(chosen)
    offered = load(toolsets, allow_write=allow_write)

    async def serve(app: Services) -> int:
        from kiwi_rag.mcp.context import ServerContext

        session.log(app)
        context = ServerContext(app, allow_write=allow_write)
        try:
            if streams:
                from kiwi_rag.mcp.stdio import AsyncLines, run_until_signal, serve_lines

                await run_until_signal(serve_lines(context, offered, AsyncLines(streams)))
            else:
                from kiwi_rag.mcp.http import ListenAddress, serve_http

                session.end_in_order()
                await serve_http(context, offered, ListenAddress(host, port, token or "", names), session.say)
        finally:
            await context.close()
        return DONE

    return session.run(serve)
