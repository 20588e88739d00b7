"""Whether the files of a verified item or document are those that were signed, and whether its version was yanked."""

from __future__ import annotations

import shlex
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from semver import Version

from kiwi_rag.collection import Collection
from kiwi_rag.errors import SignatureRefused
from kiwi_rag.formats.source import ItemCandidate, SourceFile, path_of, read_item
from kiwi_rag.model import Finding, ItemRef, ItemState, StoredItem, VersionConflict
from kiwi_rag.search.verify import VerifiedItem
from kiwi_rag.signing.statement import ItemStatement, parse_item
from kiwi_rag.signing.trust import verify
from kiwi_rag.system import differing_executables
from kiwi_rag.validation.signature import envelope_of


def read_states(items: Sequence[tuple[VerifiedItem, Collection]]) -> list[ItemState]:
    """Return the state of each pair of an item and its tier. Reads the items' files: blocking."""
    tiers = {tier.name: tier for _, tier in items}
    yanked: set[str] = set()
    for tier in tiers.values():
        yanked |= tier.yanked([item.stored.digest for item, its_tier in items if its_tier.name == tier.name])
    return [read_state(item, tier, yanked) for item, tier in items]


def read_state(item: VerifiedItem, tier: Collection, yanked: Container[str]) -> ItemState:
    """Return the state of an item of a tier; `yanked` are digests of yanked versions."""
    stored = item.stored
    changed, newer = _difference(item, tier)
    return ItemState(changed, stored.yanked_at is not None or stored.digest in yanked, newer=newer)


def _difference(item: VerifiedItem, tier: Collection) -> tuple[str, str]:
    """Describe how an item's files differ from what was signed; empty where they do not, or where there are none.

    Return with it the newer version that they hold, signed and not indexed; empty where they hold none.
    """
    if tier.root is None:
        return "", ""
    signed = item.signed
    path = path_of(tier.root, signed.ref)
    found = read_item(SourceFile(path, signed.ref.item_type, signed.ref.item_id), tier.root)
    if isinstance(found, Finding):
        return found.message, ""
    files = edited_files(found, signed)
    if not files:
        return "", ""
    edited = path.parent / min(files) if signed.ref.item_type.is_folder else path
    return _replacement(item, found, path, tier) or (
        f"{edited} was edited since it was indexed: {_bump_command(signed.ref, tier)}",
        "",
    )


def _replacement(item: VerifiedItem, found: ItemCandidate, path: Path, tier: Collection) -> tuple[str, str] | None:
    """Describe files that have another signature than the indexed item, as after a pull, and their newer version.

    None where they have the same signature, none, or one that is not of these files: they were edited.
    """
    why = f"kiwi why {shlex.quote(str(path))}"
    try:
        envelope = envelope_of(found)
        claimed = parse_item(envelope.payload)
    except SignatureRefused:
        return None
    if claimed.ref.key != item.signed.ref.key or edited_files(found, claimed):
        return None
    try:
        by = verify(envelope, tier.trust()).signer.principal
    except SignatureRefused as error:
        return f"{path} was replaced, and is refused: {error.message}: {why}", ""
    newer = claimed.ref.version or ""
    if claimed.registry == tier.audience and Version.parse(newer) > Version.parse(item.signed.ref.version or "0.0.0"):
        command = f"kiwi index{_option(tier)}"
        return f"a newer signed version, {newer} by {by}, is on disk and not indexed: {command}", newer
    return f"{path} was replaced by version {newer}, signed by {by}: {why}", ""


def edited_files(found: ItemCandidate, signed: ItemStatement) -> set[str]:
    """Return the names of the files that are not as they were signed: other bytes, added, missing, other mode."""
    files = {name for name, _ in found.digests.items() ^ signed.digests.items()}
    return files | differing_executables(found.executables, signed.executables)


async def find_version_conflicts(
    local: Sequence[tuple[Collection, Sequence[StoredItem]]], registry: Collection | None
) -> list[VersionConflict]:
    """Return the versions that have different contents in two tiers.

    Parameters
    ----------
    local
        The local tiers, nearest first, each with the items to compare.
    registry
        The registry, which is queried for the published versions of each of these items.
    """
    contents: dict[ItemRef, list[tuple[Collection, str]]] = {}
    for tier, items in local:
        for item in items:
            if not item.problem:
                contents.setdefault(item.ref, []).append((tier, item.content_sha256))
    found = []
    for ref, of_ref in contents.items():
        if registry:
            published = (await registry.store.history(ref)).get(ref.version or "")
            of_ref.extend([(registry, published)] if published else [])
        if conflict := find_conflict(ref, of_ref):
            found.append(conflict)
    return found


def find_conflict(ref: ItemRef, contents: Sequence[tuple[Collection, str]]) -> VersionConflict | None:
    """Return the conflict between the contents (hex SHA-256) of one version, nearest tier first; None if all agree."""
    digests: Mapping[str, str] = {tier.name: content for tier, content in contents}
    if len(set(digests.values())) < 2:
        return None
    nearest = min((tier for tier, _ in contents), key=lambda tier: tier.rank)
    return VersionConflict(ref, digests, _bump_command(ref, nearest))


def _bump_command(ref: ItemRef, tier: Collection) -> str:
    """Return the command that gives an item of a tier another version."""
    path = shlex.quote(str(path_of(tier.root, ref))) if tier.root else "PATH"
    return f"kiwi add {path}{_option(tier)} --bump patch"


def _option(tier: Collection) -> str:
    """Return the option that names a local tier in a command."""
    return " --tier user" if tier.name == "user" else ""
