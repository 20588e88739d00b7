"""The tools ``kiwi_search``, ``kiwi_get``, ``kiwi_validate``, ``kiwi_status`` and ``kiwi_publish``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kiwi_rag import render
from kiwi_rag.config import process_environment
from kiwi_rag.errors import UsageError
from kiwi_rag.local_service import address, client
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.items import schemas
from kiwi_rag.mcp.jobs import ReportProgress
from kiwi_rag.mcp.tool import Effects, Tool, ToolResult, make_continuation, parse_continuation
from kiwi_rag.model import Filters, SearchQuery
from kiwi_rag.model.refs import ItemType, check_item_id
from kiwi_rag.render import agents, hits
from kiwi_rag.usecases import search
from kiwi_rag.usecases.status import collect_status
from kiwi_rag.wordpieces import estimate_tokens

if TYPE_CHECKING:
    from kiwi_rag.ingest.publication import Outcome
    from kiwi_rag.model import ItemState
    from kiwi_rag.usecases.items import FoundItem


async def _search(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    await context.wait_until_ready(report)
    request = {name: value for name, value in arguments.items() if name not in {"continuation", "max_tokens"}}
    begin, limit = parse_continuation(arguments["continuation"], request), arguments["limit"]
    query = SearchQuery(arguments["query"], filters=_filters(arguments))
    source = arguments.get("source", "")
    reply = await search.search(context.app, query, source=source, limit=limit, begin=begin)
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
        moment = _moment(since) if since else None
    except (ValueError, OverflowError) as error:
        raise UsageError(f"since is not a date: {since[:40]!r}", hint="2026-01-31, or 2026-01-31T12:00:00Z") from error
    return Filters(
        ItemType(arguments["item_type"]) if "item_type" in arguments else None,
        arguments.get("category", ""),
        arguments.get("author", ""),
        tuple(arguments.get("tags", ())),
        arguments.get("namespace", ""),
        arguments.get("signer", ""),
        moment,
    )


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
    from kiwi_rag.usecases.add import check
    from kiwi_rag.validation.signature import ItemCandidate

    item_type, item_id = ItemType(arguments["item_type"]), check_item_id(arguments["item_id"])
    candidate = ItemCandidate.of_file(item_type, item_id, arguments["content"].encode(), arguments["item_id"])
    inspected = await asyncio.to_thread(check, context.app, candidate, "project")
    findings = render.findings_text(inspected.findings)
    verdict = "would be admitted once a trusted key signed it" if inspected.valid else "would be rejected"
    data = {"valid": inspected.valid, "findings": [finding.as_dict() for finding in inspected.findings]}
    return ToolResult(f"{item_type}:{item_id} {verdict}.\n{findings}".rstrip(), data)


async def _status(context: ServerContext, _arguments: Mapping[str, Any], _report: ReportProgress) -> ToolResult:
    service = await asyncio.to_thread(client.state, address.run_folder(process_environment()))
    data = {**await collect_status(context.app, service), "writable": context.allow_write}
    # Problems and errors quote what a registry said.
    return ToolResult(agents.delimited("\n".join([*render.status_lines(data), render.status_notice(data)])), data)


async def _publish(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    from kiwi_rag.usecases import publish

    await context.wait_until_ready(report)
    async with context.lock_for_writing() as app:
        sources = publish.files_of(app, arguments["refs"])
        await report("preparing the registry")
        run = await publish.prepare(app)
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
    schemas.SEARCH,
    schemas.HITS,
    _search,
    ("query",),
    schemas.SEARCH_ALIASES,
)
GET = Tool(
    "kiwi_get",
    "Read one item",
    "Return one whole verified item: its content, and the inputs and permissions that a directive declares. "
    "Use the ref of a hit of kiwi_search.",
    schemas.GET,
    schemas.CONTENT,
    _get,
    ("ref",),
    schemas.GET_ALIASES,
)
VALIDATE = Tool(
    "kiwi_validate",
    "Check a draft",
    "Check the text of a directive, script or knowledge entry before it is signed, as publishing it would. "
    "Nothing is stored; each finding says how to fix it.",
    schemas.VALIDATE,
    schemas.FINDINGS,
    _validate,
    ("item_type", "item_id", "content"),
    schemas.VALIDATE_ALIASES,
)
STATUS = Tool(
    "kiwi_status",
    "State of Kiwi",
    "Return what each tier contains, which model is used, current problems and the last errors.",
    {},
    schemas.STATUS,
    _status,
)
PUBLISH = Tool(
    "kiwi_publish",
    "Publish to the registry",
    "Publish signed items of this project to the global registry, for everyone who trusts their signer. "
    "A published version cannot be changed or deleted, only yanked.",
    schemas.PUBLISH,
    schemas.PUBLISHED,
    _publish,
    ("refs",),
    schemas.PUBLISH_ALIASES,
    Effects(read_only=False, destructive=False, idempotent=True, open_world=True),
)
