"""Step 10: (item_id, version) is immutable, and versions only grow."""

from __future__ import annotations

from collections.abc import Mapping

import semver

from kiwi_rag.model import Finding, Item


def check(item: Item, history: Mapping[str, str], path: str) -> list[Finding]:
    """Return what is wrong with the item's version against what was admitted before (version → content sha256)."""
    version = item.ref.version or ""
    known = history.get(version)
    if known not in (None, item.content_sha256):
        return [
            Finding(
                "version.immutable",
                f"version {version} of {item.ref.item_id} was admitted with other content",
                path=path,
                hint=f"raise the version: kiwi sign {path or item.ref.item_id} --bump patch",
            )
        ]
    highest = max(history, key=semver.Version.parse, default=None)
    if highest and semver.Version.parse(version) < semver.Version.parse(highest):
        return [
            Finding(
                "version.rollback",
                f"version {version} is below {highest}, the highest seen of {item.ref.item_id}",
                path=path,
                hint=f"choose a version above {highest}",
            )
        ]
    return []
