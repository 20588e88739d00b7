"""The tool that writes: ``kiwi_publish``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kiwi_rag import present
from kiwi_rag.errors import NotFound, UsageError
from kiwi_rag.mcp.house import House
from kiwi_rag.mcp.items import schemas
from kiwi_rag.mcp.tool import Answer, Effects, Tell, Tool

if TYPE_CHECKING:
    from kiwi_rag.app import App
    from kiwi_rag.formats import SourceFile
    from kiwi_rag.ingest.publishing import Outcome


async def _publish(house: House, given: Mapping[str, Any], tell: Tell) -> Answer:
    from kiwi_rag.ingest.publishing import Publishing
    from kiwi_rag.registry.retry import persistently

    await house.ready(tell)
    async with house.writing() as app:
        sources = _sources(app, given["refs"])
        await tell("preparing the registry")
        await persistently(app.prepare_registry)
        run = Publishing(app.local("project"), app.registry(), app.writer)
        outcomes = []
        async for outcome in run.publish(sources):
            outcomes.append(outcome)
            await tell(f"{len(outcomes)} of {len(sources)}")
    return _answer(outcomes, searchable=run.not_indexed is None)


def _sources(app: App, refs: Sequence[str]) -> Sequence[SourceFile]:
    """Return the project's files that are meant, one for each ref."""
    from kiwi_rag import authoring
    from kiwi_rag.search.lookup import parse_address

    root = app.root("project")
    there = {(s.item_type, s.item_id.casefold()): s for s in authoring.sources_of((root,), root) if s.item_id}
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


def _answer(outcomes: Sequence[Outcome], *, searchable: bool) -> Answer:
    from kiwi_rag.ingest.publishing import Published

    done = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    errors = [outcome.error for outcome in outcomes if not isinstance(outcome, Published)]
    rows = [{"ref": str(one.ref), "digest": one.receipt.digest, "known": one.receipt.known} for one in done]
    lines = [f"published {row['ref']}" + (" (was there already)" if row["known"] else "") for row in rows]
    lines += [f"refused: {error.message} ({error.hint})" for error in errors]
    refused = [error.as_dict() for error in errors]
    data = {"published": rows, "refused": refused, "searchable": searchable}
    return Answer(present.safe("\n".join(lines)), data)


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
