"""The tools that read: ``kiwi_search``, ``kiwi_get``, ``kiwi_validate``, ``kiwi_status``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kiwi_rag import render
from kiwi_rag.config import process_environment
from kiwi_rag.errors import NotFound, UsageError
from kiwi_rag.local_service import address as place
from kiwi_rag.local_service import client
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.items import schemas
from kiwi_rag.mcp.tool import Effects, Tell, Tool, ToolResult, continuation, position
from kiwi_rag.model import Filters, SearchQuery
from kiwi_rag.model.refs import ItemType, check_item_id
from kiwi_rag.usecases.status import as_set, find_item, item_state, standing
from kiwi_rag.wordpieces import estimate_tokens

if TYPE_CHECKING:
    from kiwi_rag.formats import SourceFile
    from kiwi_rag.ingest.publication import Outcome
    from kiwi_rag.model import ItemState, SearchReply
    from kiwi_rag.search.verify import VerifiedItem
    from kiwi_rag.services import Services

MAX_HITS = 200


async def _search(context: ServerContext, given: Mapping[str, Any], tell: Tell) -> ToolResult:
    await context.ready(tell)
    app = context.app
    asked = {name: value for name, value in given.items() if name not in {"continuation", "max_tokens"}}
    begin, limit = position(given["continuation"], asked), given["limit"]
    query = as_set(SearchQuery(given["query"], filters=_filters(given), limit=limit), app.settings)
    query = replace(query, source=given.get("source", query.source), limit=limit)
    reply = await _ranked(app, query, begin)
    page = render.hits_page(reply, begin, limit, given["max_tokens"], estimate_tokens)
    may_go_on = begin < limit == len(reply.hits)
    end = limit if page.end is None and may_go_on else page.end
    on = continuation(end, asked) if end is not None else None
    more = "\n\nThere may be more: call again with the same arguments and this continuation: " + on if on else ""
    explained = {"explain": render.explanation_json(reply)} if given["explain"] else {}
    return ToolResult(page.text + more, {**page.data, "continuation": on, **explained})


async def _ranked(app: Services, query: SearchQuery, begin: int) -> SearchReply:
    """Return the hits that a search shows, and where a page begins behind them, all others after those.

    What is shown depends on how many hits are asked for, as a signer may have half of them. So the first hits are
    asked for alike by every page, and what follows has no cap: no hit comes twice or never.
    """
    searcher = app.searcher(query.source)
    first = await searcher.search(query)
    if begin < query.limit:
        return first
    deep = await searcher.search(replace(query, limit=MAX_HITS, per_signer=0))
    shown = {hit.ref.key for hit in first.hits}
    return replace(deep, hits=(*first.hits, *(hit for hit in deep.hits if hit.ref.key not in shown)))


def _filters(given: Mapping[str, Any]) -> Filters:
    since: str = given.get("since", "")
    try:
        moment = _moment(since) if since else None
    except (ValueError, OverflowError) as error:
        raise UsageError(f"since is not a date: {since[:40]!r}", hint="2026-01-31, or 2026-01-31T12:00:00Z") from error
    return Filters(
        ItemType(given["item_type"]) if "item_type" in given else None,
        given.get("category", ""),
        given.get("author", ""),
        tuple(given.get("tags", ())),
        given.get("namespace", ""),
        given.get("signer", ""),
        moment,
    )


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)


async def _get(context: ServerContext, given: Mapping[str, Any], _tell: Tell) -> ToolResult:
    from kiwi_rag.search.verify import parse_address

    app, address = context.app, parse_address(_address_of(given["ref"]))
    names = [address.tier] if address.tier else app.source_names(given.get("source", app.settings.source))
    tier, item = await find_item(app, address, names)
    digest = {"digest": item.stored.digest}
    content = item.verified.statement.content
    begin = position(given["continuation"], digest)
    text, end = render.content_page(content, begin, given["max_tokens"], estimate_tokens)
    on = continuation(end, digest) if end is not None else None
    state = await item_state(tier, item)
    data = {**_described(tier.name, item, state), "content": text, "continuation": on}
    return ToolResult(_item_text(data, begin, state), data)


def _address_of(ref: str) -> str:
    """Return what a resource's URI means as an address; any other text is one already."""
    tier, _, rest = ref.removeprefix("kiwi://").partition("/")
    return f"{rest.replace('/', ':', 1)}@{tier}" if ref.startswith("kiwi://") else ref


def _described(tier: str, item: VerifiedItem, state: ItemState) -> dict[str, Any]:
    signed, signer = item.verified.statement, item.verified.signer
    metadata = dict(signed.metadata)
    return {
        "ref": str(signed.ref),
        "item_type": signed.ref.item_type.value,
        "item_id": signed.ref.item_id,
        "version": signed.ref.version,
        "tier": tier,
        "signer": signer.principal,
        "key_id": signer.key_id,
        **render.state_json(state),
        "digest": item.stored.digest,
        "signed_at": signed.signed_at.isoformat(),
        "private": item.stored.private,
        "permissions": [permission(one) for one in metadata.pop("permissions", [])],
        "inputs": metadata.pop("inputs", []),
        "metadata": metadata,
        **render.yank_json(item.stored),
    }


def _item_text(data: Mapping[str, Any], begin: int, state: ItemState) -> str:
    signer = render.signed_by(data["signer"], state)
    lines = [f"{data['ref']} · {data['tier']} · signed by {signer} · digest {data['digest']}"]
    lines += render.agents_state_lines(state)
    told = [] if begin else [*map(_input_text, data["inputs"]), *map(_permission_text, data["permissions"])]
    if "yanked_at" in data:
        lines.append(f"Yanked on {data['yanked_at']}.")
        told.append(f"Reason: {data['yank_reason']}")
    lines += [render.delimited("\n".join(told))] if told else []
    lines.append(render.delimited(data["content"]))
    if data["continuation"]:
        lines.append(f"There is more: call again with this continuation: {data['continuation']}")
    return "\n".join(lines)


def _input_text(row: Mapping[str, Any]) -> str:
    need = "required" if row.get("required") else f"default {row['default']}" if "default" in row else "optional"
    return f"Input {row['name']} ({row.get('type') or 'text'}, {need}): {row.get('description', '')}"


def _permission_text(row: Mapping[str, str]) -> str:
    return f"Permission: {row['verb']} {row['resource']} {row['pattern']}"


def permission(declared: Mapping[str, str] | str) -> dict[str, str]:
    """Return a permission by verb, resource and pattern; a script declares a verb alone."""
    return {"verb": declared, "resource": "*", "pattern": "*"} if isinstance(declared, str) else dict(declared)


async def _validate(context: ServerContext, given: Mapping[str, Any], _tell: Tell) -> ToolResult:
    from kiwi_rag.validation.policy import policy_of
    from kiwi_rag.validation.signature import ItemCandidate

    item_type, item_id = ItemType(given["item_type"]), check_item_id(given["item_id"])
    candidate = ItemCandidate(item_type, item_id, given["content"].encode(), path=given["item_id"])
    found = await asyncio.to_thread(context.app.gate.inspect, candidate, policy_of("project"))
    told = render.findings_text(found.findings)
    verdict = "would be admitted, once signed by a trusted key" if found.valid else "would be refused"
    data = {"valid": found.valid, "findings": [finding.as_dict() for finding in found.findings]}
    return ToolResult(f"{item_type}:{item_id} {verdict}.\n{told}".rstrip(), data)


async def _status(context: ServerContext, _given: Mapping[str, Any], _tell: Tell) -> ToolResult:
    service = await asyncio.to_thread(client.state, place.run_folder(process_environment()))
    data = {**await standing(context.app, service), "writable": context.allow_write}
    return ToolResult("\n".join([*render.standing_lines(data), render.standing_notice(data)]), data)


SEARCH = Tool(
    "kiwi_search",
    "Search playbooks, scripts and notes",
    "Find the team's directives (playbooks), scripts and knowledge by meaning, before you write your own or read "
    "files. Ask in plain words what you are about to do. Every hit was verified; cite it by its ref. "
    "kiwi_get gives the whole item.",
    schemas.SEARCH,
    schemas.HITS,
    _search,
    ("query",),
    schemas.SEARCH_ALIASES,
)
GET = Tool(
    "kiwi_get",
    "Read one item",
    "Get one verified item whole: its content, and of a directive the inputs and permissions that it declares. "
    "Take ref from a hit of kiwi_search.",
    schemas.GET,
    schemas.CONTENT,
    _get,
    ("ref",),
    schemas.GET_ALIASES,
)
VALIDATE = Tool(
    "kiwi_validate",
    "Check a draft",
    "Check the text of a directive, script or knowledge entry as the gate would, before it is signed. "
    "Nothing is stored; each finding says what mends it.",
    schemas.VALIDATE,
    schemas.FINDINGS,
    _validate,
    ("item_type", "item_id", "content"),
    schemas.VALIDATE_ALIASES,
)
STATUS = Tool(
    "kiwi_status",
    "How things stand",
    "Say what each tier holds, which model is used, what is wrong where something is, and what failed lately.",
    {},
    schemas.STATUS,
    _status,
)


async def _publish(context: ServerContext, given: Mapping[str, Any], tell: Tell) -> ToolResult:
    from kiwi_rag.ingest.publication import Publishing
    from kiwi_rag.registry.calls import with_retries

    await context.ready(tell)
    async with context.writing() as app:
        sources = _sources(app, given["refs"])
        await tell("preparing the registry")
        await with_retries(app.prepare_registry)
        run = Publishing(app.local("project"), app.registry(), app.writer)
        outcomes = []
        async for outcome in run.publish(sources):
            outcomes.append(outcome)
            await tell(f"{len(outcomes)} of {len(sources)}")
    return _answer(outcomes, searchable=run.not_indexed is None)


def _sources(app: Services, refs: Sequence[str]) -> Sequence[SourceFile]:
    """Return the project's files that are meant, one for each ref."""
    from kiwi_rag.search.verify import parse_address
    from kiwi_rag.usecases import sign

    root = app.root("project")
    there = {(s.item_type, s.item_id.casefold()): s for s in sign.sources_of((root,), root) if s.item_id}
    found = {}
    for given in refs:
        address = parse_address(given)
        if address.version or address.tier:
            raise UsageError(f"{given}: what is published is what lies in the project now", hint="leave out the @")
        meant = [there[ref.key] for ref in address.refs() if ref.key in there]
        if not meant:
            raise NotFound(f"{given} is no item of this project", hint="kiwi_search with source project finds them")
        if len(meant) > 1:
            raise UsageError(f"{given} is several items", hint="name the type: directive:, script: or knowledge:")
        found[meant[0].path] = meant[0]
    return list(found.values())


def _answer(outcomes: Sequence[Outcome], *, searchable: bool) -> ToolResult:
    from kiwi_rag.ingest.publication import Published

    done = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    errors = [outcome.error for outcome in outcomes if not isinstance(outcome, Published)]
    rows = [{"ref": str(one.ref), "digest": one.receipt.digest, "already_published": one.receipt.known} for one in done]
    lines = [f"published {row['ref']}" + (" (published already)" if row["already_published"] else "") for row in rows]
    lines += [f"refused: {error.message} ({error.hint})" for error in errors]
    refused = [error.as_dict() for error in errors]
    data = {"published": rows, "refused": refused, "searchable": searchable}
    return ToolResult(render.safe("\n".join(lines)), data)


PUBLISH = Tool(
    "kiwi_publish",
    "Publish to the registry",
    "Publish items of this project that are signed already to the global registry, for all who trust their signer. "
    "A published version cannot be changed or unpublished, only taken back.",
    schemas.PUBLISH,
    schemas.PUBLISHED,
    _publish,
    ("refs",),
    schemas.PUBLISH_ALIASES,
    Effects(read_only=False, destructive=False, idempotent=True, open_world=True),
)
