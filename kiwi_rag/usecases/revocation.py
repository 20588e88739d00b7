"""Withdrawal of what was published: yanked versions, retired and revoked keys; and a registry's state accepted anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kiwi_rag.errors import NotFound, PinnedStateDamaged, UsageError
from kiwi_rag.model import Filters
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.monitor.pinned_state_file import PinnedState, pinned_states
from kiwi_rag.search.verify import parse_address
from kiwi_rag.signing.trust import Signer, SignerStatus

if TYPE_CHECKING:
    from kiwi_rag.services import Services
    from kiwi_rag.validation.audit import AuditHead


async def find_published(app: Services, text: str) -> ItemRef:
    """Return the published item that an address names.

    Raises
    ------
    NotFound
        When the registry does not have it.
    UsageError
        When the address names a local tier, or matches several items.
    """
    address = parse_address(text)
    if address.tier not in (None, "registry"):
        raise UsageError(
            f"{text!r} names a local tier, but only the registry can yank",
            hint="kiwi delete removes an item from a local tier",
        )
    found = []
    for ref in address.refs():
        versions = {row["version"] for row in await app.registry_client.item_status(ref)}
        found += [ref] if versions and ref.version in (None, *versions) else []
    if len(found) > 1:
        raise UsageError(f"{text} is several items: {', '.join(map(str, found))}", hint="put the type in front")
    if not found:
        raise NotFound(f"the registry has no item {text}", hint="kiwi list --source registry")
    return found[0]


async def yank(app: Services, ref: ItemRef, reason: str) -> int:
    """Withdraw a published version, or all versions; return how many were not yanked before."""
    count = await app.registry_client.yank_item(ref, reason)
    await app.monitor.check()
    return count


async def find_enrolled(app: Services, who: str, status: SignerStatus) -> Signer:
    """Return the enrolled key to set to `status`: named by principal, public key, or the start of a key id.

    Raises
    ------
    NotFound
        When the registry has no such signer.
    UsageError
        When `who` names several keys that do not have the status yet.
    """
    enrolled = [row.signer for row in await app.enrolled()]
    named = [signer for signer in enrolled if who in (signer.principal, signer.public_key.hex())]
    found = named or [signer for signer in enrolled if len(who) >= 8 and signer.key_id.startswith(who)]
    if not found:
        raise NotFound(f"the registry has no signer {who!r}", hint="kiwi registry signers")
    left = [signer for signer in found if signer.status not in (status, SignerStatus.COMPROMISED)] or found
    if len(left) > 1:
        keys = ", ".join(f"{signer.key_id[:16]} ({signer.status})" for signer in left)
        raise UsageError(f"{who} has several keys: {keys}", hint="name one by the start of its key id")
    return left[0]


async def count_items_of(app: Services, signer: Signer) -> int:
    """Return how many items of the registry a key signed: its revocation hides them."""
    return len(await app.registry_client.list_items(Filters(signer=signer.key_id)))


async def withdraw_key(app: Services, signer: Signer, status: SignerStatus, reason: str) -> bool:
    """Retire or revoke a key in the registry, and apply that to the local tiers; return whether anything changed."""
    client = app.registry_client
    change = client.retire_signer if status is SignerStatus.RETIRED else client.revoke_signer
    changed = await change(signer.key_id, reason)
    await app.monitor.check(fully=True)
    return changed


def forget_versions(app: Services, refs: Sequence[ItemRef]) -> int:
    """Forget the pinned versions of items; return how many there were."""
    return sum(app.monitor.pinned.forget(ref) for ref in refs)


def damaged_states(app: Services) -> Iterator[tuple[PinnedState, PinnedStateDamaged]]:
    """Yield each pinned state that cannot be read, with the error; its file can be renamed until the next one."""
    for state in pinned_states(app.monitor_dir):
        try:
            state.notices()
        except PinnedStateDamaged as error:
            yield state, error
        finally:
            state.close()


async def read_heads(app: Services) -> tuple[AuditHead, AuditHead]:
    """Return the pinned audit head, and the registry's present one, which is not compared with it."""
    pinned = app.monitor.pinned
    return pinned.head(), (await app.registry_client.registry_checkpoint(0, 0, pinned.identity.name)).head


async def accept_head(app: Services, head: AuditHead) -> None:
    """Pin an audit head of the registry although it contradicts the pinned state, and forget all pinned versions."""
    app.monitor.pinned.accept(head)
    await app.monitor.check(fully=True)
