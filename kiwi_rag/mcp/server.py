"""Toolsets → a server of the official SDK: listing, calls, and errors as the protocol has them."""

from __future__ import annotations

import difflib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp import types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate

from kiwi_rag import __version__, render
from kiwi_rag.embedding import well_formed
from kiwi_rag.errors import KiwiError, NotFound, UsageError
from kiwi_rag.mcp.context import ServerContext, import_what_calls_use, trace_call
from kiwi_rag.mcp.toolsets import NAME, TITLE, instructions
from kiwi_rag.render import agents

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext as Context

    from kiwi_rag.mcp.toolsets import Prompt, ResourceTemplate, Tool, Toolset

_PAGE = 100
_HOUR_MS, _MOMENT_MS = 3_600_000, 5_000
_FRESH: Mapping[CacheableMethod, CacheHint] = {
    # Tools and prompts never change while the server runs; which items are listed and read depends on current trust.
    "server/discover": CacheHint(_HOUR_MS, "public"),
    "tools/list": CacheHint(_HOUR_MS, "public"),
    "prompts/list": CacheHint(_HOUR_MS, "public"),
    "resources/templates/list": CacheHint(_HOUR_MS, "public"),
    "resources/list": CacheHint(_MOMENT_MS, "private"),
    "resources/read": CacheHint(_MOMENT_MS, "private"),
}


def build(context: ServerContext, offered: Toolset) -> Server[Any]:
    """Return a server that offers these tools, resources and prompts; their calls share `context`."""
    handlers = _Handlers(context, offered)

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        import_what_calls_use()
        context.warm()
        yield {}

    return Server(
        NAME,
        version=__version__,
        title=TITLE,
        instructions=instructions(offered.names),
        cache_hints=_FRESH,
        lifespan=lifespan,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


class _Handlers:
    """The SDK's request handlers, which translate between its types and the toolsets."""

    def __init__(self, context: ServerContext, offered: Toolset) -> None:
        self._server_context = context
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in offered.tools}
        self._templates: Mapping[str, ResourceTemplate] = {template.uri: template for template in offered.resources}
        self._prompts: Mapping[str, Prompt] = {prompt.name: prompt for prompt in offered.prompts}

    async def list_tools(self, _context: Context[Any], _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(tool) for tool in self._tools.values()])

    async def call_tool(self, context: Context[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        try:
            with trace_call(tool.name if tool else "") as call:
                if tool is None:
                    raise self._no_tool(params.name)
                # Invalid arguments are a tool result too, which the model can read and correct: SEP-1303.
                arguments = tool.parse_arguments(params.arguments or {})
                answer = await tool.run(self._server_context, arguments, _progress_reporter(context))
                call.record_answer(answer.data)
        except KiwiError as error:
            return _error_result(error)
        except MCPError:
            raise
        except Exception as error:  # from any library: `trace_call` has logged it, and its message may quote anything
            message = "an error that Kiwi did not expect; kiwi status shows where"
            raise MCPError(types.INTERNAL_ERROR, message) from error
        content: list[Any] = [types.TextContent(type="text", text=encodable(answer.text))]
        return types.CallToolResult(content=content, structured_content=encodable(dict(answer.data)))

    def _no_tool(self, name: str) -> MCPError:
        similar = difflib.get_close_matches(name[:64], self._tools, n=1, cutoff=0.8)
        suggestion = f"did you mean {similar[0]}? " if similar else ""
        error = UsageError(f"there is no tool {name[:64]!r}", hint=f"{suggestion}there are {', '.join(self._tools)}")
        failure = _protocol_error(error)
        failure.__cause__ = error  # `trace_call` reads the code from it
        return failure

    async def list_resources(
        self, _context: Context[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        templates = list(self._templates.values())
        number, begin = _cursor(params)
        if number >= len(templates):
            return types.ListResourcesResult(resources=[])
        try:
            listed, more = await templates[number].listed(self._server_context, begin, _PAGE)
        except KiwiError as error:
            raise _protocol_error(error) from error
        next_number, next_begin = (number, begin + _PAGE) if more else (number + 1, 0)
        cursor = f"{next_number}.{next_begin}" if next_number < len(templates) else None
        resources = [types.Resource(uri=r.uri, name=r.name, mime_type=r.mime_type) for r in listed]
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def list_templates(self, _context: Context[Any], _params: Any) -> types.ListResourceTemplatesResult:
        templates = [
            types.ResourceTemplate(uri_template=t.uri, name=t.name, title=t.title, description=t.description)
            for t in self._templates.values()
        ]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(
        self, _context: Context[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        try:
            text, mime_type = await self._resource(uri)
        except KiwiError as error:
            raise _protocol_error(error, uri=uri) from error
        contents: list[Any] = [types.TextResourceContents(uri=uri, text=text, mime_type=mime_type)]
        return types.ReadResourceResult(contents=contents)

    async def _resource(self, uri: str) -> tuple[str, str]:
        for template in self._templates.values():
            variables = UriTemplate.parse(template.uri).match(uri)
            if variables is not None:
                return await template.read(self._server_context, {name: str(v) for name, v in variables.items()})
        raise NotFound(f"there is no resource {uri[:200]!r}", hint=", ".join(self._templates))

    async def list_prompts(self, _context: Context[Any], _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[_prompt(prompt) for prompt in self._prompts.values()])

    async def get_prompt(self, _context: Context[Any], params: types.GetPromptRequestParams) -> types.GetPromptResult:
        prompt = self._prompts.get(params.name)
        if prompt is None:
            raise _protocol_error(UsageError(f"there is no prompt {params.name[:64]!r}", hint=", ".join(self._prompts)))
        arguments = params.arguments or {}
        unknown = [name for name in arguments if name not in prompt.arguments]
        missing = [name for name in prompt.required if not arguments.get(name)]
        if unknown or missing:
            hint = f"its arguments are {', '.join(prompt.arguments)}; required: {', '.join(prompt.required)}"
            raise _protocol_error(
                UsageError(f"{prompt.name}: unknown or missing: {', '.join([*unknown, *missing])[:200]}", hint=hint)
            )
        try:
            text = await prompt.render(self._server_context, arguments)
        except KiwiError as error:
            raise _protocol_error(error) from error
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=prompt.description, messages=[message])


def _tool(tool: Tool) -> types.Tool:
    effects = tool.effects
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=effects.read_only,
            destructive_hint=effects.destructive,
            idempotent_hint=effects.idempotent,
            open_world_hint=effects.open_world,
        ),
    )


def _prompt(prompt: Prompt) -> types.Prompt:
    arguments = [
        types.PromptArgument(name=name, description=description, required=name in prompt.required)
        for name, description in prompt.arguments.items()
    ]
    return types.Prompt(name=prompt.name, title=prompt.title, description=prompt.description, arguments=arguments)


def _progress_reporter(context: Context[Any]) -> Callable[[str], Awaitable[None]]:
    """Return a function that reports progress to the caller, if it requested that; each report counts as one step."""
    steps = 0

    async def report(message: str) -> None:
        nonlocal steps
        steps += 1
        await context.session.report_progress(float(steps), None, message)

    return report


def _error_result(error: KiwiError) -> types.CallToolResult:
    """Return an error as a tool result: what happened, and what to do next."""
    text = agents.error_text(error)
    content: list[Any] = [types.TextContent(type="text", text=encodable(text))]
    structured: dict[str, Any] = encodable({"error": error.as_dict()})
    return types.CallToolResult(content=content, structured_content=structured, is_error=True)


def encodable(value: Any) -> Any:
    """Return a value without lone surrogates, which a file's name may contain and UTF-8 cannot encode."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Mapping):
        return {encodable(name): encodable(inner) for name, inner in value.items()}
    return [encodable(inner) for inner in value] if isinstance(value, list | tuple) else value


def _protocol_error(error: KiwiError, **more: str) -> MCPError:
    """Return the JSON-RPC error for a request that is not a tool call."""
    code = types.INVALID_PARAMS if isinstance(error, NotFound | UsageError) else types.INTERNAL_ERROR
    return MCPError(code, _message(error), encodable({**error.as_dict(), **more}))


def _message(error: KiwiError) -> str:
    return str(encodable(render.safe(f"{error.message}: {error.hint}" if error.hint else error.message)))


def _cursor(params: types.PaginatedRequestParams | None) -> tuple[int, int]:
    """Return the number of a template, and the position in its resources, at which to continue listing."""
    found = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,9})", (params and params.cursor) or "0.0")
    if not found:
        raise _protocol_error(UsageError("the cursor is not from this server", hint="list again without cursor"))
    return int(found[1]), int(found[2])
