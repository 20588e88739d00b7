"""Toolset **items**: search, read, check and publish directives, scripts, knowledge and skills."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

from kiwi_rag import render, usecases
from kiwi_rag.collection import SOURCES
from kiwi_rag.config import process_environment
from kiwi_rag.errors import UsageError
from kiwi_rag.local_service import client, protocol
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import ReportProgress
from kiwi_rag.mcp.resources import ITEMS, RUN_DIRECTIVE
from kiwi_rag.mcp.toolsets import (
    STRING,
    Effects,
    SchemaDict,
    Tool,
    ToolResult,
    Toolset,
    budget,
    flag,
    make_continuation,
    nullable,
    number,
    parse_continuation,
    record,
    text,
    texts,
)
from kiwi_rag.model import Filters, SearchQuery, TierName
from kiwi_rag.model.refs import ITEM_TYPES, ItemType, check_item_id
from kiwi_rag.render import agents, hits
from kiwi_rag.usecases.status import collect_status
from kiwi_rag.wordpieces import estimate_tokens

if TYPE_CHECKING:
    from kiwi_rag.ingest.publication import Outcome
    from kiwi_rag.model import ItemState
    from kiwi_rag.usecases.items import FoundItem

_TYPES = [item_type.value for item_type in ITEM_TYPES]
_TIER: SchemaDict = {"type": "string", "enum": list(get_args(TierName))}

_SOURCE = text("Tiers to search; local is project and user. The settings' default if left out.", enum=list(SOURCES))
_REST = "content to return; the continuation gives the rest."
_CONTINUATION = text("From the previous answer, to continue where it ended.", default="", maxLength=200)
_REF = text(
    "[type:]item_id[@version][@tier], for instance directive:acme/deploy/staging or acme/slo@1.2.0@registry.",
    minLength=1,
    maxLength=500,
)

_SEARCH_INPUTS: dict[str, SchemaDict] = {
    "query": text("What to find or do, in plain words; identifiers too.", minLength=1, maxLength=10_000),
    "source": _SOURCE,
    "item_type": text("Only this type.", enum=_TYPES),
    "category": text("Only this category.", maxLength=200),
    "author": text("Only this author.", maxLength=200),
    "tags": texts("Only items that have all these tags."),
    "namespace": text("Only ids with this first segment.", maxLength=200),
    "signer": text("Only items signed by this principal or key id.", maxLength=200),
    "since": text("Only items signed since this date, ISO 8601, UTC.", maxLength=40),
    "limit": number("integer", 1, 50, "Hits to show.", default=5),
    "max_tokens": budget(_REST, 4_000),
    "continuation": _CONTINUATION,
    "explain": flag("Explain how the scores were computed."),
}
_SEARCH_ALIASES = {
    "q": "query", "text": "query", "top_k": "limit", "k": "limit", "n_results": "limit", "max_results": "limit",
    "type": "item_type", "tier": "source", "cursor": "continuation",
}  # fmt: skip
_GET_INPUTS: dict[str, SchemaDict] = {
    "ref": _REF,
    "source": {**_SOURCE, "description": "Tiers to search if the ref names none; the settings' default if left out."},
    "max_tokens": budget(_REST, 8_000),
    "continuation": _CONTINUATION,
}
_GET_ALIASES = {
    "id": "ref", "item_id": "ref", "name": "ref", "address": "ref", "tier": "source", "cursor": "continuation",
}  # fmt: skip
_VALIDATE_INPUTS: dict[str, SchemaDict] = {
    "item_type": text("Type of the draft.", enum=_TYPES),
    "item_id": text(
        "Id of the draft: its path below the type's folder, without the extension.", minLength=1, maxLength=255
    ),
    "content": text("The whole file.", maxLength=2_000_000),
}
_VALIDATE_ALIASES = {"type": "item_type", "id": "item_id", "text": "content"}
_PUBLISH_INPUTS: dict[str, SchemaDict] = {
    "refs": {**texts("Signed items of this project, each as [type:]item_id."), "minItems": 1}
}
_PUBLISH_ALIASES = {"items": "refs", "ids": "refs"}

_VERSION, _CITED = nullable(STRING), "ref item_type item_id signer key_id digest"
_HIT = record(
    string=f"{_CITED} path file text",
    version=_VERSION,
    tier=_TIER,
    boolean="verified changed yanked truncated",
    integer="rank start_line end_line",
    number="score",
    object="parts",
    strings="heading",
)
_HITS = record(
    string="query",
    boolean="complete",
    hits={"type": "array", "items": _HIT},
    objects="tiers",
    integer="refused",
    strings="notices",
    continuation=nullable(STRING),
)
_CONTENT = record(
    string=f"{_CITED} signed_at content",
    version=_VERSION,
    tier=_TIER,
    boolean="verified changed yanked private",
    objects="permissions inputs",
    object="metadata",
    continuation=nullable(STRING),
)
_FINDINGS = record(boolean="valid", objects="findings")
_STATE = record(
    objects="tiers errors",
    object="model cache service",
    string="project",
    integer="trusted_signers",
    boolean="writable",
)
_PUBLISHED = record(objects="published refused", boolean="searchable")


async def _search(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    await context.wait_until_ready(report)
    request = {name: value for name, value in arguments.items() if name not in {"continuation", "max_tokens"}}
    begin, limit = parse_continuation(arguments["continuation"], request), arguments["limit"]
    query = SearchQuery(arguments["query"], filters=_filters(arguments))
    source = arguments.get("source", "")
    reply = await usecases.search(context.app, query, source=source, limit=limit, begin=begin)
    page = agents.hits_page(reply, begin, limit, arguments["max_tokens"], estimate_tokens)
    # As many hits as were asked for: the tiers may have more, which the next page searches for.
    may_have_more = begin < limit == len(reply.hits)
    end = limit if page.end is None and may_have_more else page.end
    following = make_continuation(end, request) if end is not None else None
    note = f"\n\nThere may be more: call again with the same arguments and this continuation: {following}"
    explained = {"explain": hits.explanation_json(reply)} if arguments["explain"] else {}
    return ToolResult(page.text + (note if following else ""), {**page.data, "continuation": following, **explained})


def _filters(arguments: Mapping[str, Any]) -> Filters:
    since: str = arguments.get("since", "")
    try:
        return usecases.filters_of({**arguments, "since": _moment(since) if since else None})
    except (ValueError, OverflowError) as error:
        raise UsageError(f"since is not a date: {since[:40]!r}", hint="2026-01-31, or 2026-01-31T12:00:00Z") from error


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)


async def _get(context: ServerContext, arguments: Mapping[str, Any], _report: ReportProgress) -> ToolResult:
    from kiwi_rag.usecases import items

    app = context.app
    names = app.source_names(arguments.get("source", app.settings.source))
    found = await items.find(app, _address_of(arguments["ref"]), names)
    request = {"digest": found.stored.digest}
    begin = parse_continuation(arguments["continuation"], request)
    text, end = agents.content_page(found.item.content, begin, arguments["max_tokens"], estimate_tokens)
    following = make_continuation(end, request) if end is not None else None
    data = {**_described(found), "content": text, "continuation": following}
    return ToolResult(_item_text(data, begin, found.state), data)


def _address_of(ref: str) -> str:
    """Return the address that a resource's URI stands for; any other text unchanged."""
    tier, _, rest = ref.removeprefix("kiwi://").partition("/")
    return f"{rest.replace('/', ':', 1)}@{tier}" if ref.startswith("kiwi://") else ref


def _described(found: FoundItem) -> dict[str, Any]:
    signed, signer, stored = found.signed, found.signer, found.stored
    metadata = dict(signed.metadata)
    return {
        "ref": str(signed.ref),
        "item_type": signed.ref.item_type.value,
        "item_id": signed.ref.item_id,
        "version": signed.ref.version,
        "tier": found.tier.name,
        "signer": signer.principal,
        "key_id": signer.key_id,
        **render.state_json(found.state),
        "digest": stored.digest,
        "signed_at": signed.signed_at.isoformat(),
        "private": stored.private,
        "permissions": [_permission_json(declared) for declared in metadata.pop("permissions", [])],
        "inputs": metadata.pop("inputs", []),
        "metadata": metadata,
        **render.yank_json(stored),
    }


def _item_text(data: Mapping[str, Any], begin: int, state: ItemState) -> str:
    signer = render.signed_by(data["signer"], state)
    lines = [f"{data['ref']} · {data['tier']} · signed by {signer} · digest {data['digest']}"]
    lines += agents.agents_state_lines(state)
    declared = [] if begin else [*map(_input_text, data["inputs"]), *map(_permission_text, data["permissions"])]
    if "yanked_at" in data:
        lines.append(f"Yanked on {data['yanked_at']}.")
        declared.append(f"Reason: {data['yank_reason']}")  # a registry's words: between the marks
    lines += [agents.delimited("\n".join(declared))] if declared else []
    lines.append(agents.delimited(data["content"]))
    if data["continuation"]:
        lines.append(f"There is more: call again with this continuation: {data['continuation']}")
    return "\n".join(lines)


def _input_text(row: Mapping[str, Any]) -> str:
    need = "required" if row.get("required") else f"default {row['default']}" if "default" in row else "optional"
    return f"Input {row['name']} ({row.get('type') or 'text'}, {need}): {row.get('description', '')}"


def _permission_text(row: Mapping[str, str]) -> str:
    return f"Permission: {row['verb']} {row['resource']} {row['pattern']}"


def _permission_json(declared: Mapping[str, str] | str) -> dict[str, str]:
    """Return a permission by verb, resource and pattern; a script declares only a verb."""
    return {"verb": declared, "resource": "*", "pattern": "*"} if isinstance(declared, str) else dict(declared)


async def _validate(context: ServerContext, arguments: Mapping[str, Any], _report: ReportProgress) -> ToolResult:
    from kiwi_rag.validation.signature import ItemCandidate

    item_type, item_id = ItemType(arguments["item_type"]), check_item_id(arguments["item_id"])
    candidate = ItemCandidate.of_file(item_type, item_id, arguments["content"].encode(), arguments["item_id"])
    inspected = await asyncio.to_thread(context.app.gate.inspect, candidate)
    findings = render.findings_text(inspected.findings)
    verdict = "would be admitted once a trusted key signed it" if inspected.valid else "would be rejected"
    data = {"valid": inspected.valid, "findings": [finding.as_dict() for finding in inspected.findings]}
    return ToolResult(f"{item_type}:{item_id} {verdict}.\n{findings}".rstrip(), data)


async def _status(context: ServerContext, _arguments: Mapping[str, Any], _report: ReportProgress) -> ToolResult:
    service = await asyncio.to_thread(client.state, protocol.run_folder(process_environment()))
    data = {**await collect_status(context.app, service), "writable": context.allow_write}
    # Problems and errors quote what a registry said.
    return ToolResult(agents.delimited("\n".join([*render.status_lines(data), render.status_notice(data)])), data)


async def _publish(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    from kiwi_rag.usecases import add

    await context.wait_until_ready(report)
    async with context.lock_for_writing() as app:
        sources = add.files_of(app, arguments["refs"])
        await report("preparing the registry")
        run = await add.prepare_publication(app)
        outcomes = []
        async for outcome in run.publish(sources):
            outcomes.append(outcome)
            await report(f"{len(outcomes)} of {len(sources)}")
    return _publish_result(outcomes, searchable=run.not_indexed is None)


def _publish_result(outcomes: Sequence[Outcome], *, searchable: bool) -> ToolResult:
    from kiwi_rag.ingest.publication import Published

    published = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    errors = [outcome.error for outcome in outcomes if not isinstance(outcome, Published)]
    rows = [
        {"ref": str(one.ref), "digest": one.receipt.digest, "already_published": one.receipt.already_published}
        for one in published
    ]
    lines = [f"published {row['ref']}" + (" (already published)" if row["already_published"] else "") for row in rows]
    lines += [f"refused: {agents.error_text(error)}" for error in errors]
    data = {"published": rows, "refused": [error.as_dict() for error in errors], "searchable": searchable}
    return ToolResult("\n".join(lines), data)


SEARCH = Tool(
    "kiwi_search",
    "Search playbooks, scripts and notes",
    "Find the team's directives (playbooks), scripts and knowledge by meaning, before you write your own or read "
    "files. Describe your task in plain words. Every hit was verified; cite it by its ref. "
    "kiwi_get returns the whole item.",
    _SEARCH_INPUTS,
    _HITS,
    _search,
    ("query",),
    _SEARCH_ALIASES,
)
GET = Tool(
    "kiwi_get",
    "Read one item",
    "Return one whole verified item: its content, and the inputs and permissions that a directive declares. "
    "Use the ref of a hit of kiwi_search.",
    _GET_INPUTS,
    _CONTENT,
    _get,
    ("ref",),
    _GET_ALIASES,
)
VALIDATE = Tool(
    "kiwi_validate",
    "Check a draft",
    "Check the text of a directive, script or knowledge entry before it is signed, as publishing it would. "
    "Nothing is stored; each finding says how to fix it.",
    _VALIDATE_INPUTS,
    _FINDINGS,
    _validate,
    ("item_type", "item_id", "content"),
    _VALIDATE_ALIASES,
)
STATUS = Tool(
    "kiwi_status",
    "State of Kiwi",
    "Return what each tier contains, which model is used, current problems and last errors.",
    {},
    _STATE,
    _status,
)
PUBLISH = Tool(
    "kiwi_publish",
    "Publish to the registry",
    "Publish signed items of this project to the global registry, for everyone who trusts their signer. "
    "A published version cannot be changed or deleted, only yanked.",
    _PUBLISH_INPUTS,
    _PUBLISHED,
    _publish,
    ("refs",),
    _PUBLISH_ALIASES,
    Effects(read_only=False, destructive=False, idempotent=True, open_world=True),
)


# The tool without arguments is first, as clients call it to try a server.
TOOLSETS = {"items": Toolset((STATUS, SEARCH, GET, VALIDATE, PUBLISH), (ITEMS,), (RUN_DIRECTIVE,))}
