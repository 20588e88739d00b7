"""``kiwi mcp``: run the MCP server for agents."""

from __future__ import annotations

import click

from kiwi_rag.cli.session import DONE, Session
from kiwi_rag.mcp.toolsets import DEFAULT
from kiwi_rag.services import Services

_EXAMPLES = """\b
Example: kiwi mcp                            serve one client over stdio
         kiwi mcp --http --port 8765         serve several clients on 127.0.0.1
         KIWI_MCP_TOKEN=… kiwi mcp --http --host 10.0.0.5    serve other machines, with a token
"""


@click.command(epilog=_EXAMPLES)
@click.option("--toolsets", default=DEFAULT, show_default=True, help="Toolsets to offer, separated by commas.")
@click.option("--allow-write", is_flag=True, help="Also offer tools that write.")
@click.option("--http", is_flag=True, help="Serve streamable HTTP, not stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on, with --http.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8765,
    show_default=True,
    help="Port to listen on, with --http. 0: any free port.",
)
@click.option("--token", envvar="KIWI_MCP_TOKEN", help="Token that clients must send, as Authorization: Bearer TOKEN.")
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Another host name of this server that clients may use, with --http. Repeatable.",
)
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
    """Run an MCP (Model Context Protocol) server: agents search, read and check items, and search this repository."""
    from kiwi_rag.mcp.stdio import StdioStreams
    from kiwi_rag.mcp.toolsets import load, parse_names

    chosen = parse_names(toolsets)
    streams = None if http else StdioStreams()
    if streams:
        streams.start_initialize(chosen)
    offered = load(toolsets, allow_write=allow_write)

    async def serve(app: Services) -> int:
        from kiwi_rag.mcp.context import ServerContext

        session.start_logging(app)
        context = ServerContext(app, allow_write=allow_write)
        try:
            if streams:
                from kiwi_rag.mcp.stdio import AsyncLines, run_until_signal, serve_lines

                await run_until_signal(serve_lines(context, offered, AsyncLines(streams)))
            else:
                from kiwi_rag.mcp.http import ListenAddress, serve_http

                session.exit_on_sigterm()
                await serve_http(context, offered, ListenAddress(host, port, token or "", names), session.notify)
        finally:
            await context.close()
        return DONE

    return session.run(serve)
