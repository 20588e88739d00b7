"""REST at ``/api/v1``: the tools that agents have, by path, with the same arguments, answers and errors.

A tool that changes nothing is called by GET, with its arguments in the query, or by POST with a JSON object; others by
POST alone. A library is a resource, with GET, PUT and DELETE. ``/api/v1/openapi.json`` describes all of it, from the
tools' own schemas.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kiwi_rag import __version__, errors
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.http import libraries, memory
from kiwi_rag.http.access import Role
from kiwi_rag.http.limits import RawRoute, read_body
from kiwi_rag.http.sessions import AgentSessions
from kiwi_rag.mcp.answers import begin_answer
from kiwi_rag.mcp.context import ServerContext, trace_call
from kiwi_rag.mcp.server import build
from kiwi_rag.mcp.toolsets import DEFAULT, IN_PROJECT, TITLE, TOOLSETS, Tool, Toolset, load
from kiwi_rag.services import Services
from kiwi_rag.validation.audit import AuditEvent

ROOT = "/api/v1"
MAX_BODY = 4 << 20
MAX_RECORDED = 200
"""Characters of an argument in an audit record."""
EVENTS = "text/event-stream"
SECRETS = frozenset({"question", "passphrase", "passphrase_again", "token", "confirmed"})
SAID = frozenset({"user_message", "assistant_message", "metadata", "matching"})
"""Arguments that quote a conversation: an audit record would keep what is forgotten later."""
PATHS = {
    "status": "kiwi_status", "search": "kiwi_search", "item": "kiwi_get", "validate": "kiwi_validate",
    "publish": "kiwi_publish", "workspace/search": "workspace_search", "workspace/stats": "workspace_index_stats",
    "workspace/update": "update_files", "workspace/reindex": "reindex_documents", "ask": "ask",
}  # fmt: skip
"""Path → tool; `libraries.TOOLS` has those of libraries, `memory.TOOLS` those of the memory."""
Operation = tuple[str, Sequence[str], Tool]
"""A path, the methods that it has, and the tool that they call."""
_WITHOUT_BODY = ("GET", "HEAD", "DELETE")
_STATUS: Mapping[type[KiwiError], int] = {
    UsageError: 400, errors.NotFound: 404, errors.Rejected: 422, errors.Refused: 403, errors.ConsentRequired: 403,
    errors.StoreBusy: 409, errors.KeyUnavailable: 409, errors.RegistryUnreachable: 503,
}  # fmt: skip


class Api:
    """The routes of programs and agents; all calls share one context.

    Parameters
    ----------
    context
        The services that the calls use.
    """

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        # `AccessControl` has checked Host and Origin.
        checked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        # Only where there is a library, so that the usual list of tools stays short; a server's tools never change.
        usual = IN_PROJECT if context.app.project_dir else DEFAULT
        offered = load(f"{usual},library" if context.libraries.all() else usual)
        reading = Toolset(offered.names, [tool for tool in offered.tools if tool.changes == "nothing"])
        recorded = partial(record, context.app)
        servers = {Role.READER: build(context, reading, recorded), Role.ADMIN: build(context, offered, recorded)}
        self._agents = {role: AgentSessions(one, checked) for role, one in servers.items()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve agents' sessions inside the block."""
        async with AsyncExitStack() as stack:
            for agents in self._agents.values():
                await stack.enter_async_context(agents.app.router.lifespan_context(agents.app))
            yield

    def why_not_ready(self) -> str:
        """Return why a call would wait or fail, or an empty string."""
        loading = self._context.warm()
        return "; ".join(loading.result()) if loading.done() else "it is loading the model and opening the tiers"

    @property
    def is_working(self) -> bool:
        """Whether a job is running, which no request may be waiting for."""
        return self._context.jobs.running is not None

    @property
    def operations(self) -> Sequence[Operation]:
        """What can be called."""
        found = {tool.name: tool for tool in load(",".join(TOOLSETS), allow_write=True).tools}
        every = {path: found[name] for path, name in PATHS.items()} | libraries.TOOLS | memory.TOOLS
        return [_operation_of(path, tool) for path, tool in every.items()]

    @property
    def reader_posts(self) -> Sequence[str]:
        """The paths that a reader may POST to."""
        called = (path for path, methods, tool in self.operations if "POST" in methods and tool.changes == "nothing")
        return ["/mcp", *called]

    def routes(self) -> list[Route]:
        """Return the routes."""

        async def agents(scope: Scope, receive: Receive, send: Send) -> None:
            await self._agents[scope["state"]["role"]](scope, receive, send)

        return [
            Route("/mcp", RawRoute(agents)),
            Route(f"{ROOT}/openapi.json", lambda _: JSONResponse(openapi(self.operations))),
            Route(f"{ROOT}/{memory.EXPORT}", partial(memory.export, self._context)),
            *(Route(path, self._endpoint(tool), methods=[*methods]) for path, methods, tool in self.operations),
        ]

    def _endpoint(self, tool: Tool) -> Any:
        async def call(request: Request) -> Response:
            arguments: Mapping[str, Any] = {}
            outcome = "failed"
            try:
                with trace_call(tool.name) as traced:
                    arguments = tool.parse_arguments(await _arguments(request, tool))
                    if tool.name == "ask" and EVENTS in request.headers.get("accept", ""):
                        return StreamingResponse(_events(self._context, arguments), media_type=EVENTS)
                    answer = await tool.run(self._context, arguments, _no_report)
                    traced.record_answer(answer.data)
                outcome = "ok"
                return JSONResponse(answer.data)
            except KiwiError as error:
                outcome = error.code
                return error_response(error)
            finally:
                if tool.changes != "nothing":
                    await record(self._context.app, request, arguments, outcome)

        return call


async def _events(context: ServerContext, arguments: Mapping[str, Any]) -> AsyncIterator[str]:
    """Yield each sentence as an event, then the whole answer, or the error that it ended in."""
    try:
        with trace_call("ask") as traced:
            answer = await begin_answer(context, arguments)
            async with aclosing(answer.stream()) as sentences:
                async for sentence in sentences:
                    yield _event("sentence", asdict(sentence))
            traced.record_answer(answer.as_dict())
            yield _event("answer", answer.as_dict())
    except KiwiError as error:
        yield _event("error", error.as_dict())


def _event(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def _no_report(_message: str) -> None:
    """Drop a progress report: a REST call has one answer."""


async def record(app: Services, request: Request, given: Mapping[str, Any], outcome: str) -> None:
    """Append an audit record of what an admin did or tried: the path, who, the arguments, and the outcome."""
    shown = {name: str(value)[:MAX_RECORDED] for name, value in given.items() if name not in SECRETS | SAID}
    details = {**shown, "caller": request.state.caller, "outcome": outcome}  # a field of this name changes neither
    await asyncio.to_thread(app.audit.append, AuditEvent("admin", request.url.path, "", "", details))


def error_response(error: KiwiError) -> JSONResponse:
    """Return an error as every interface shows it, with the status that fits."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    return JSONResponse({"error": error.as_dict()}, status)


def _operation_of(key: str, tool: Tool) -> Operation:
    method, _, path = key.rpartition(" ")
    usual = ("GET", "POST") if tool.changes == "nothing" else ("POST",)
    return f"{ROOT}/{path}", [method] if method else usual, tool


async def _arguments(request: Request, tool: Tool) -> Mapping[str, Any]:
    """Return the arguments of a call: of the path, and of the query, converted as the schema says, or of the body."""
    named = dict(request.path_params)
    if "projectId" in named:  # clients that encode its slashes send the first one, too
        named["projectId"] = "/" + named["projectId"].lstrip("/")
    if request.method in _WITHOUT_BODY:
        return {name: _converted(request, name, tool) for name in request.query_params} | named
    body = await read_body(request, MAX_BODY)
    try:
        arguments = json.loads(body or b"{}")
        json.dumps(arguments, ensure_ascii=False).encode()  # half a character could not be answered or recorded
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise UsageError("the body is not a JSON object", hint='{"query": "undo a bad release"}')
    return arguments | named


def _converted(request: Request, name: str, tool: Tool) -> Any:
    """Return an argument of the query as the JSON value that its schema names; what is none stays text."""
    kind, value = tool.inputs.get(name, {}).get("type"), request.query_params[name]
    if kind == "array":
        return request.query_params.getlist(name)
    with suppress(ValueError):
        return json.loads(value) if kind in ("integer", "number", "boolean") else value
    return value


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of these operations."""
    paths: dict[str, dict[str, Any]] = {}
    for path, methods, tool in operations:
        described = paths.setdefault(path.replace(":path}", "}"), {})
        described |= {method.lower(): _operation(method, path, tool) for method in methods}
    paths[f"{ROOT}/{memory.EXPORT}"] = memory.EXPORT_OPERATION
    about = {"openapi": "3.1.0", "info": {"title": TITLE, "version": __version__}, "security": [{"token": []}]}
    schemes = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    return {**about, "components": schemes, "paths": paths}


def _operation(method: str, path: str, tool: Tool) -> dict[str, Any]:
    error = {"type": "object", "properties": {"error": {"type": "object", "required": ["code", "message", "hint"]}}}
    answers = {
        "200": {"description": tool.title, "content": _json(tool.output_schema)},
        "default": {"description": "What happened, and what to do next", "content": _json(error)},
    }
    named = {"operationId": f"{method.lower()}_{tool.name}", "summary": tool.title, "description": tool.description}
    without_body, inside = method in _WITHOUT_BODY, {name for name in tool.inputs if f"{{{name}" in path}
    parameters = [
        {"name": n, "in": "path" if n in inside else "query", "required": n in {*tool.required, *inside}, "schema": one}
        for n, one in tool.inputs.items()
        if without_body or n in inside
    ]
    body = {} if without_body else {"requestBody": {"content": _json(tool.input_schema)}}
    return {**named, "parameters": parameters, **body, "responses": answers}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": dict(schema)}}
