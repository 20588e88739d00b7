"""Checks of a whole installation: keys, trust, model, indexes, audit chains, and versions with two contents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kiwi_rag.errors import EmbeddingError, KiwiError, RegistryError, StoreCorrupt
from kiwi_rag.model import Filters
from kiwi_rag.search.state import find_version_conflicts
from kiwi_rag.services.workspace import TIER, Workspace
from kiwi_rag.signing import keys, trust_file
from kiwi_rag.usecases.trust import WAIT_SECONDS

if TYPE_CHECKING:
    from kiwi_rag.collection import Tier
    from kiwi_rag.services import Services
    from kiwi_rag.stores.base import FileStore


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Problems, each with what to do, what was repaired, and notices about what could not be checked."""

    problems: Sequence[str]
    repaired: Sequence[str]
    notices: Sequence[str]


async def diagnose(app: Services, *, repair: bool) -> Diagnosis:
    """Check everything that this user has; with `repair`, repair the indexes without embedding again."""
    problems = [*_check_setup(app), *_check_model(app)]
    repaired: list[str] = []
    async with Workspace(app) as workspace:
        for name in [*app.source_names("local"), *([TIER] if workspace.is_indexed else [])]:
            try:
                target = workspace.tier if name == TIER else app.local(name)
                found, done = await _check_tier(target, repair)
            except KiwiError as error:
                found, done = [f"{name}: {error.message} ({error.hint})"], []
            problems += found
            repaired += done
    conflicts, notices = await _check_versions(app)
    return Diagnosis([*problems, *conflicts], repaired, notices)


async def _check_tier(tier: Tier[FileStore], repair: bool) -> tuple[list[str], list[str]]:
    name = tier.name
    done = [f"{name}: {line}" for line in await tier.store.repair()] if repair else []
    problems = [f"{name}: {line}" for line in await tier.store.check()]
    try:
        tier.audit.verify_chain()
    except (StoreCorrupt, KiwiError) as error:
        problems.append(f"{name}: {error.message}")
    return problems, done


async def _check_versions(app: Services) -> tuple[list[str], list[str]]:
    """Return versions that have different content in two tiers, and a notice if the registry does not answer."""
    indexed = []
    for name in app.source_names("local"):
        with suppress(KiwiError):  # the check of the tier itself reports it
            if app.is_indexed(name):
                indexed.append((app.local(name), await app.local(name).store.list(Filters())))
    notices = []
    try:
        async with asyncio.timeout(min(WAIT_SECONDS, app.settings.deadline)):
            found = await find_version_conflicts(indexed, app.registry() if app.registry_connection.exists else None)
    except (TimeoutError, RegistryError, EmbeddingError) as error:
        notices = [f"the registry's versions were not compared: {error or 'the registry did not answer in time'}"]
        found = await find_version_conflicts(indexed, None)
    return [f"versions: {conflict} ({conflict.hint})" for conflict in found], notices


def _check_setup(app: Services) -> list[str]:
    user_trust = trust_file.load(app.user_trust)
    problems = [
        f"keys: other users can read {path} (chmod 600 {path})"
        for path in app.keys_dir.glob("*.pem")
        if path.stat().st_mode & 0o077
    ]
    if not keys.names(app.keys_dir) and not app.settings.signing_key:
        problems.append("keys: there is no key to sign with (kiwi keys new)")
    if not app.trust.signers:
        problems.append("trust: no signer is trusted, so nothing can be admitted (kiwi keys new, or kiwi trust add)")
    if app.project_trust and app.project_trust.is_file() and not trust_file.is_pinned(user_trust, app.project_trust):
        problems.append(
            f"trust: {app.project_trust} is not pinned, so its signers are not trusted (kiwi trust project)"
        )
    return problems


def _check_model(app: Services) -> list[str]:
    try:
        app.embed.encode(["ready"])
    except KiwiError as error:
        return [f"model: {error.message} ({error.hint})"]
    return [f"model: {line}" for line in app.embed.verify()]
