"""Publication: which files, and a run that sends them to the registry and makes them searchable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.errors import NotFound, UsageError
from kiwi_rag.formats import SourceFile
from kiwi_rag.ingest.publication import PublishRun
from kiwi_rag.registry.calls import time_limit
from kiwi_rag.retry import attempts
from kiwi_rag.search.verify import parse_address
from kiwi_rag.usecases import sign

if TYPE_CHECKING:
    from kiwi_rag.model import Visibility
    from kiwi_rag.services import Services

_PREPARING_SECONDS = 300.0  # long enough for the migration of a large registry


def files_at(app: Services, paths: Sequence[Path], tier: str) -> Sequence[SourceFile]:
    """Return a tier's item files that `paths` name, or all.

    Raises
    ------
    UsageError
        When there is none.
    """
    root = app.root(tier)
    sources = sign.sources_of(paths or (root,), root)
    if not sources:
        raise UsageError(
            f"there are no items in {root}",
            hint="add a file to its directives, scripts, knowledge or skills folder, then kiwi sign",
        )
    return sources


def files_of(app: Services, refs: Sequence[str]) -> Sequence[SourceFile]:
    """Return the project's item files that `refs` name, each as ``[type:]item_id``.

    Raises
    ------
    NotFound
        When the project has no such item.
    UsageError
        When a reference has a version or a tier, or matches several items.
    """
    root = app.root("project")
    by_key = {(s.item_type, s.item_id.casefold()): s for s in sign.sources_of((root,), root) if s.item_id}
    sources = {}
    for ref in refs:
        meant = parse_address(ref)
        if meant.version or meant.tier:
            raise UsageError(f"{ref}: only the project's current version can be published", hint="leave out the @")
        matches = [by_key[candidate.key] for candidate in meant.refs() if candidate.key in by_key]
        if not matches:
            raise NotFound(f"{ref} is not an item of this project", hint="find items with kiwi_search, source project")
        if len(matches) > 1:
            raise UsageError(
                f"{ref} matches several items", hint="name the type: directive:, script:, knowledge: or skill:"
            )
        sources[matches[0].path] = matches[0]
    return list(sources.values())


async def prepare(app: Services, tier: str = "project", visibility: Visibility | None = None) -> PublishRun:
    """Prepare the registry, and return a run that publishes files of a local tier.

    Raises
    ------
    RegistryError
        When the registry cannot be reached or prepared.
    """
    for attempt in attempts():
        async with attempt, time_limit(_PREPARING_SECONDS):
            await app.prepare_registry()
    return PublishRun(app.local(tier), app.registry(), app.writer, visibility)
