"""Step 10: (item_id, version) is immutable, and versions only grow."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import semver

from kiwi_rag.model import Finding, Item


def check(item: Item, history: Mapping[str, str], path: str, tier: str = "") -> list[Finding]:
    """Return what is wrong with the item's version against what was admitted before (version → content sha256).

    `path` and `tier` say where its file is, for the command that raises the version.
    """
    version = item.ref.version or ""
    if conflicts(item, history):
        message = f"version {version} of {item.ref.item_id} was admitted with other content"
        return [Finding("version.immutable", message, path=path, hint=_way_out(path, tier))]
    highest = max(history, key=semver.Version.parse, default=None)
    if highest and semver.Version.parse(version) < semver.Version.parse(highest):
        message = f"version {version} is below {highest}, the highest seen of {item.ref.item_id}"
        hint = f"choose a version above {highest}; {_way_out(path, tier)}"
        return [Finding("version.rollback", message, path=path, hint=hint)]
    return []


def check_others(item: Item, histories: Mapping[str, Mapping[str, str]], path: str, tier: str) -> list[Finding]:
    """Return a finding for each other tier (by name) that has the item's version with other content."""
    return [
        Finding("version.immutable", _elsewhere(item, other), path=path, hint=_way_out(path, tier))
        for other, history in histories.items()
        if conflicts(item, history)
    ]


def _way_out(path: str, tier: str) -> str:
    """Return the command that raises the version of the file at `path` in `tier`, or who else has to."""
    if not tier:
        return "whoever signs it has to raise its version"
    where = " --tier user" if tier == "user" else ""
    return f"raise the version: kiwi sign {shlex.quote(path)}{where} --bump patch"


def conflicts(item: Item, history: Mapping[str, str]) -> bool:
    """Say whether other content was admitted under the item's version."""
    return history.get(item.ref.version or "") not in (None, item.content_sha256)


def _elsewhere(item: Item, tier: str) -> str:
    done = "published to the registry" if tier == "registry" else f"admitted to the {tier} tier"
    return f"version {item.ref.version} of {item.ref.item_id} was {done} with other content"
