"""Toolsets → a server of the official SDK: what is listed, what is called, and what becomes of an error."""

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

from kiwi_rag import __version__
from kiwi_rag import render as present
from kiwi_rag.embedding.base import well_formed
from kiwi_rag.errors import KiwiError, NotFound, RegistryRefused, RegistryUnreachable, UsageError
from kiwi_rag.mcp.context import ServerContext, import_what_calls_use, trace_call
from kiwi_rag.mcp.toolsets import NAME, TITLE, instructions

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext as Context

    from kiwi_rag.mcp.tool import Tool
    from kiwi_rag.mcp.toolsets import Prompt, ResourceTemplate, Toolset

_PAGE = 100
_HOUR, _MOMENT = 3_600_000, 5_000
_FRESH: Mapping[CacheableMethod, CacheHint] = {
    # Fixed as long as this server runs, and the same for all; what items say depends on who is trusted here.
    "server/discover": CacheHint(_HOUR, "public"),
    "tools/list": CacheHint(_HOUR, "public"),
    "prompts/list": CacheHint(_HOUR, "public"),
    "resources/templates/list": CacheHint(_HOUR, "public"),
    "resources/list": CacheHint(_MOMENT, "private"),
    "resources/read": CacheHint(_MOMENT, "private"),
}


def build(context: ServerContext, offered: Toolset) -> Server[Any]:
    """Return a server that offers these tools, resources and prompts over this house."""
    door = _Door(context, offered)

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
        on_list_tools=door.list_tools,
        on_call_tool=door.call_tool,
        on_list_resources=door.list_resources,
        on_list_resource_templates=door.list_templates,
        on_read_resource=door.read_resource,
        on_list_prompts=door.list_prompts,
        on_get_prompt=door.get_prompt,
    )


class _Door:
    """The handlers, each a few lines: the SDK's types on one side, the toolsets on the other."""

    def __init__(self, context: ServerContext, offered: Toolset) -> None:
        self._house = context
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
                # Wrong arguments too are a result that the model reads and corrects: SEP-1303.
                answer = await tool.run(self._house, tool.read(params.arguments or {}), _told(context))
                call.answered(answer.data)
        except KiwiError as error:
            return _failed(error)
        except MCPError:
            raise
        except Exception as error:  # of whatever library; `recorded` has noted it, and its words may quote anything
            raise MCPError(
                types.INTERNAL_ERROR, "an error that Kiwi did not expect; kiwi status tells where"
            ) from error
        content: list[Any] = [types.TextContent(type="text", text=encodable(answer.text))]
        return types.CallToolResult(content=content, structured_content=encodable(dict(answer.data)))

    def _no_tool(self, name: str) -> MCPError:
        near = difflib.get_close_matches(name[:64], self._tools, n=1, cutoff=0.8)
        meant = f"did you mean {near[0]}? " if near else ""
        error = UsageError(f"there is no tool {name[:64]!r}", hint=f"{meant}there are {', '.join(self._tools)}")
        refused = _refused(error)
        refused.__cause__ = error
        return refused

    async def list_resources(
        self, _context: Context[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        templates = list(self._templates.values())
        number, begin = _cursor(params)
        if number >= len(templates):
            return types.ListResourcesResult(resources=[])
        try:
            listed, more = await templates[number].listed(self._house, begin, _PAGE)
        except KiwiError as error:
            raise _refused(error) from error
        following = (number, begin + _PAGE) if more else (number + 1, 0)
        cursor = "{}.{}".format(*following) if following[0] < len(templates) else None
        resources = [types.Resource(uri=one.uri, name=one.name, mime_type=one.mime_type) for one in listed]
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
            raise _refused(error, uri=uri) from error
        contents: list[Any] = [types.TextResourceContents(uri=uri, text=text, mime_type=mime_type)]
        return types.ReadResourceResult(contents=contents)

    async def _resource(self, uri: str) -> tuple[str, str]:
        for template in self._templates.values():
            named = UriTemplate.parse(template.uri).match(uri)
            if named is not None:
                return await template.read(self._house, {name: str(value) for name, value in named.items()})
        raise NotFound(f"there is no resource {uri[:200]!r}", hint=", ".join(self._templates))

    async def list_prompts(self, _context: Context[Any], _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[_prompt(prompt) for prompt in self._prompts.values()])

    async def get_prompt(self, _context: Context[Any], params: types.GetPromptRequestParams) -> types.GetPromptResult:
        prompt = self._prompts.get(params.name)
        if prompt is None:
            raise _refused(UsageError(f"there is no prompt {params.name[:64]!r}", hint=", ".join(self._prompts)))
        given = params.arguments or {}
        unknown = [name for name in given if name not in prompt.arguments]
        missing = [name for name in prompt.required if not given.get(name)]
        if unknown or missing:
            hint = f"its arguments are {', '.join(prompt.arguments)}; it wants {', '.join(prompt.required)}"
            raise _refused(UsageError(f"{prompt.name}: {', '.join([*unknown, *missing])[:200]}", hint=hint))
        try:
            text = await prompt.render(self._house, given)
        except KiwiError as error:
            raise _refused(error) from error
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=prompt.description, messages=[message])


def _tool(tool: Tool) -> types.Tool:
    effects = tool.effects
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=dict(tool.output),
        annotations=types.ToolAnnotations(
            title=tool.title,
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


def _told(context: Context[Any]) -> Callable[[str], Awaitable[None]]:
    """Return what reports a step to the caller, if it asked to be told; steps count up."""
    steps = 0

    async def tell(what: str) -> None:
        nonlocal steps
        steps += 1
        await context.session.report_progress(float(steps), None, what)

    return tell


def _failed(error: KiwiError) -> types.CallToolResult:
    """Return an error as the model sees it: what happened, and what to do next."""
    # A registry's own words may be anybody's: they are data, as what it holds is.
    foreign = isinstance(error, RegistryRefused | RegistryUnreachable)
    message = present.delimited(error.message) if foreign else present.safe(error.message)
    told = f"{message}\n→ {present.safe(error.hint)}" if error.hint else message
    content: list[Any] = [types.TextContent(type="text", text=encodable(told))]
    structured: dict[str, Any] = encodable({"error": error.as_dict()})
    return types.CallToolResult(content=content, structured_content=structured, is_error=True)


def encodable(value: Any) -> Any:
    """Return a value without halves of characters, which a file's name may hold and no JSON on the wire."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Mapping):
        return {encodable(name): encodable(inner) for name, inner in value.items()}
    return [encodable(inner) for inner in value] if isinstance(value, list | tuple) else value


def _refused(error: KiwiError, **more: str) -> MCPError:
    """Return an error that ends a request other than a tool's call."""
    code = types.INVALID_PARAMS if isinstance(error, NotFound | UsageError) else types.INTERNAL_ERROR
    return MCPError(code, _message(error), encodable({**error.as_dict(), **more}))


def _message(error: KiwiError) -> str:
    return str(encodable(present.safe(f"{error.message}: {error.hint}" if error.hint else error.message)))


def _cursor(params: types.PaginatedRequestParams | None) -> tuple[int, int]:
    """Return which template's resources are listed, and from which on."""
    found = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,9})", (params and params.cursor) or "0.0")
    if not found:
        raise _refused(UsageError("the cursor is not one that this server gave", hint="list again from the start"))
    return int(found[1]), int(found[2])
