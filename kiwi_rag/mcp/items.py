"""Toolset **items**: search, read, check and publish directives, scripts, knowledge and skills."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kiwi_rag import render, usecases
from kiwi_rag.collection import SOURCES
from kiwi_rag.errors import NotFound
from kiwi_rag.formats.source import ItemCandidate
from kiwi_rag.ingest.publication import Outcome, Published
from kiwi_rag.mcp import pagination
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import ReportProgress
from kiwi_rag.mcp.toolsets import Schema, budget, text, texts, tool
from kiwi_rag.model import ITEM_TYPES, ItemState, ItemType, SearchQuery, check_item_id
from kiwi_rag.render import agents
from kiwi_rag.render.agents import Answer
from kiwi_rag.usecases import add, items
from kiwi_rag.usecases.items import FoundItem
from kiwi_rag.usecases.status import collect_status

_TYPES = [item_type.value for item_type in ITEM_TYPES]

_REF = text("[type:]item_id[@version][@tier], as directive:acme/deploy@1.2.0@registry.", minLength=1, maxLength=500)

_SEARCH_INPUTS: dict[str, Schema] = {
    "query": text("The task in plain words; identifiers too.", minLength=1, maxLength=10_000),
    "source": text("Tiers; local: project and user.", enum=list(SOURCES)), "item_type": text("", enum=_TYPES),
    "category": text("", maxLength=200), "author": text("", maxLength=200), "tags": texts("Items with all of them."),
    "namespace": text("First segment of ids.", maxLength=200), "signer": text("Principal or key id.", maxLength=200),
    "since": text("Signed since, ISO 8601, UTC.", maxLength=40), **pagination.SEARCH_INPUTS,
}  # fmt: skip
_GET_INPUTS: dict[str, Schema] = {
    "ref": _REF, "source": text("Of a ref without tier.", maxLength=20),
    "file": text("Of a skill: a file.", default="", maxLength=500),
    "max_tokens": budget(8_000), "continuation": pagination.CONTINUATION,
}  # fmt: skip
_VALIDATE_INPUTS: dict[str, Schema] = {
    "item_type": text("", enum=_TYPES),
    "item_id": text("Path below the type's folder, without extension.", minLength=1, maxLength=255),
    "content": text("The whole file.", maxLength=2_000_000),
}
_PUBLISH_INPUTS = {"refs": {**texts("Signed items of this project, each as [type:]item_id."), "minItems": 1}}

_HITS = "query complete hits tiers notices refused corrections close continuation"
_CONTENT = (
    "ref item_type item_id version tier signer key_id digest verified changed yanked private signed_at permissions "
    "inputs metadata files file content continuation"
)


@tool("Search playbooks, scripts and notes", _SEARCH_INPUTS, _HITS, "query")
async def kiwi_search(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Find the team's directives (playbooks), scripts and knowledge by meaning, before you write your own. Every hit
    was verified; cite its ref. kiwi_get returns the whole item.
    """
    await context.wait_until_ready(report)
    query = SearchQuery(arguments["query"], filters=pagination.filters_of(arguments), alpha=arguments.get("alpha"))
    where = {"source": arguments.get("source", ""), "limit": arguments["limit"]}
    search = partial(usecases.search, context.app, query, **where)
    return await pagination.answer_search(lambda begin: search(begin=begin), agents.hits_page, arguments)


@tool("Read one item", _GET_INPUTS, _CONTENT, "ref")
async def kiwi_get(context: ServerContext, arguments: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Return one whole verified item, with the inputs and permissions of a directive. Use the ref of a hit of
    kiwi_search.
    """
    app = context.app
    names = app.source_names(arguments.get("source", app.settings.source))
    found = await items.find(app, _address_of(arguments["ref"]), names, hint="find it with kiwi_search")
    file = arguments["file"] or found.signed.main
    content = _text_of(found, file)
    request = {"digest": found.stored.digest, "file": file}
    begin = agents.parse_continuation(arguments["continuation"], request)
    text, end = agents.content_page(content, begin, arguments["max_tokens"])
    following = agents.make_continuation(end, request)
    data = {**_described(found), "file": file, "content": text, "continuation": following}
    return Answer(_item_text(data, begin, found.state), data)


def _text_of(found: FoundItem, file: str) -> str:
    """Return the text of one of an item's files, as it was signed."""
    try:
        return found.stored.files[file].decode()
    except (KeyError, UnicodeDecodeError) as error:
        hint = "kiwi_get without file lists its files"
        raise NotFound(f"{found.signed.ref} has no file {file[:200]!r} that is text", hint=hint) from error


def _address_of(ref: str) -> str:
    """Return the address that a resource's URI stands for; any other text unchanged."""
    tier, _, rest = ref.removeprefix("kiwi://").partition("/")
    return f"{rest.replace('/', ':', 1)}@{tier}" if ref.startswith("kiwi://") else ref


def _described(found: FoundItem) -> dict[str, Any]:
    signed, signer, stored = found.signed, found.signer, found.stored
    metadata = dict(signed.metadata)
    about = {"ref": str(signed.ref), "item_type": signed.ref.item_type.value, "tier": found.tier.name}
    about |= render.attributes(signed.ref, "item_id", "version") | render.attributes(stored, "digest", "private")
    about |= {"signer": signer.principal, "key_id": signer.key_id, "signed_at": signed.signed_at.isoformat()}
    permissions = [_permission_json(declared) for declared in metadata.pop("permissions", [])]
    declared = {"permissions": permissions, "inputs": metadata.pop("inputs", []), "metadata": metadata}
    declared |= {"files": sorted(signed.digests)}
    return {**about, **render.state_json(found.state), **declared, **render.yank_json(stored)}


def _item_text(data: Mapping[str, Any], begin: int, state: ItemState) -> str:
    signer = render.signed_by(data["signer"], state)
    lines = [f"{data['ref']} · {data['tier']} · signed by {signer} · digest {data['digest']}"]
    lines += agents.agents_state_lines(state)
    permissions = [f"Permission: {row['verb']} {row['resource']} {row['pattern']}" for row in data["permissions"]]
    files = [f"Files: {', '.join(data['files'])}"] if len(data["files"]) > 1 else []
    declared = [] if begin else [*map(_input_text, data["inputs"]), *permissions, *files]
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


def _permission_json(declared: Mapping[str, str] | str) -> dict[str, str]:
    """Return a permission by verb, resource and pattern; a script declares only a verb."""
    return {"verb": declared, "resource": "*", "pattern": "*"} if isinstance(declared, str) else dict(declared)


@tool("Check a draft", _VALIDATE_INPUTS, "valid findings", "item_type", "item_id", "content")
async def kiwi_validate(context: ServerContext, arguments: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Check an item's text as publishing would; each finding says how to fix it."""
    item_type, item_id = ItemType(arguments["item_type"]), check_item_id(arguments["item_id"])
    candidate = ItemCandidate.of_file(item_type, item_id, arguments["content"].encode(), arguments["item_id"])
    inspected = await asyncio.to_thread(context.app.gate.inspect, candidate)
    findings = render.findings_text(inspected.findings)
    verdict = "would be admitted once a trusted key signed it" if inspected.valid else "would be rejected"
    data = {"valid": inspected.valid, "findings": [finding.as_dict() for finding in inspected.findings]}
    return Answer(f"{item_type}:{item_id} {verdict}.\n{findings}".rstrip(), data)


@tool("State of Kiwi", {}, "tiers errors model cache service project trusted_signers writable")
async def kiwi_status(context: ServerContext, _arguments: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Return what each tier contains, the model, problems and last errors."""
    data = {**await collect_status(context.app), "writable": context.allow_write}
    # Problems and errors quote what a registry said.
    return Answer(agents.delimited("\n".join([*render.status_lines(data), render.status_notice(data)])), data)


@tool("Publish to the registry", _PUBLISH_INPUTS, "published refused searchable", "refs", changes="registry")
async def kiwi_publish(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Publish signed items of this project to the global registry, for everyone who trusts their signer.
    A published version cannot be changed or deleted, only yanked.
    """
    await context.wait_until_ready(report)
    async with context.writing:
        sources = add.files_of(context.app, arguments["refs"])
        await report("preparing the registry")
        run = await add.prepare_publication(context.app)
        outcomes = list[Outcome]()
        async for outcome in run.publish(sources):
            outcomes.append(outcome)
            await report(f"{len(outcomes)} of {len(sources)}")
    return _publish_result(outcomes, searchable=run.not_indexed is None)


def _publish_result(outcomes: Sequence[Outcome], *, searchable: bool) -> Answer:
    published = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    errors = [outcome.error for outcome in outcomes if not isinstance(outcome, Published)]
    rows = [{"ref": str(one.ref), **render.attributes(one.receipt, "digest", "already_published")} for one in published]
    lines = [f"published {row['ref']}" + (" (already published)" if row["already_published"] else "") for row in rows]
    lines += [f"refused: {agents.error_text(error)}" for error in errors]
    data = {"published": rows, "refused": [error.as_dict() for error in errors], "searchable": searchable}
    return Answer("\n".join(lines), data)


# The tool without arguments is first, as clients call it to try a server.
TOOLSETS = {"items": (kiwi_status, kiwi_search, kiwi_get, kiwi_validate, kiwi_publish)}
