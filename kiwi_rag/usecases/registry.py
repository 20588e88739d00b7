"""The registry: its state, signers, audit log and index; withdrawals, and its state accepted after a restore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kiwi_rag.collection import MEMORY
from kiwi_rag.errors import (
    AuditBroken,
    KiwiError,
    NotFound,
    PinnedStateDamaged,
    RegistryError,
    RegistryRefused,
    RegistryUnreachable,
    UsageError,
)
from kiwi_rag.ingest import cancel_all, registry_indexer
from kiwi_rag.ingest.registry_indexer import Failed, Unreachable
from kiwi_rag.model import Filters, ItemRef
from kiwi_rag.monitor.monitor import verify_rows
from kiwi_rag.monitor.pinned_state import PinnedState, pinned_states
from kiwi_rag.registry import server, tuning
from kiwi_rag.registry.calls import ANSWER_SECONDS, time_limit
from kiwi_rag.registry.rows import Progress
from kiwi_rag.registry.tuning import Tuning
from kiwi_rag.render import counted
from kiwi_rag.search.verify import only_one, parse_address
from kiwi_rag.services import Services
from kiwi_rag.services.memory import Memory
from kiwi_rag.signing.trust import Signer, SignerStatus
from kiwi_rag.usecases.trust import describe_loss
from kiwi_rag.validation.audit import AuditHead

if TYPE_CHECKING:
    from kiwi_rag.stores.local.audit import SqliteAuditLog

Report = Callable[[str], None]
_BATCH = 2000
_CHECK_SECONDS = 60.0
VERBS = {SignerStatus.RETIRED: "retire", SignerStatus.COMPROMISED: "revoke"}


def check_embedded(app: Services) -> None:
    """Raise `UsageError` if the registry is not the embedded one."""
    if not app.registry_connection.is_embedded:
        message = f"{app.registry_connection.description} is not the embedded registry, so Kiwi cannot start or stop it"
        raise UsageError(message, hint="unset KIWI_REGISTRY_URL and SUPABASE_URL to use the embedded one")


async def start(app: Services, port: int | None) -> str:
    """Start the embedded registry, migrate it, and keep it running until it is stopped; return its URL."""
    check_embedded(app)
    await asyncio.to_thread(server.start, app.registry_dir, keep=True, port=port)
    await app.prepare_registry()
    return server.server_state(app.registry_dir).tcp_uri or app.registry_connection.url()


def stop(app: Services) -> bool:
    """Stop the embedded registry; return whether it was running."""
    check_embedded(app)
    return server.stop(app.registry_dir)


async def collect_state(app: Services, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """Return the registry's address, whether it runs, its schema, its counts and its problem, JSON-ready.

    One that does not answer within `seconds` counts as one that does not run. The counts are left out then.
    """
    connection = app.registry_connection
    row: dict[str, Any] = {"where": connection.description, "running": True, "problem": ""}
    if connection.is_embedded:
        state = server.server_state(app.registry_dir)
        row |= {"running": state.running, "kept": state.kept, "pid": state.pid}
        if not state.running:
            return row
    try:
        async with time_limit(seconds):
            content = await app.registry().store.status()
            row |= {"problem": "; ".join(content.problems), "items": content.items, "passages": content.passages}
            row |= content.details
            with suppress(RegistryRefused):  # only indexers and admins may read the queue
                row |= await app.registry_client.index_status()
    except RegistryError as error:
        is_running = not isinstance(error, RegistryUnreachable)
        row |= {"running": is_running, "problem": f"{error.message} ({error.hint})"}
    return row


def active_signers(app: Services, principal: str) -> Sequence[Signer]:
    """Return the active keys of a principal in the trust files.

    Raises
    ------
    UsageError
        When there is none.
    """
    named = [signer for signer in app.trust.by_key.values() if signer.principal == principal]
    found = [signer for signer in named if signer.status is SignerStatus.ACTIVE]
    if not found:
        what = f"{principal} has no active key" if named else f"your trust file has no signer {principal!r}"
        raise UsageError(what, hint=f"kiwi trust add PUBLIC_KEY --principal {principal}")
    return found


async def enrol(app: Services, principal: str) -> Sequence[str]:
    """Let the active keys of a principal in the trust files publish; return their key ids."""
    return [await app.registry_client.enrol_signer(signer) for signer in active_signers(app, principal)]


def local_audit(app: Services, tier: str) -> SqliteAuditLog:
    """Return the audit log of a tier on this machine, or of the memory: the project's in a project, else the user's."""
    return Memory(app).tier.audit if tier == MEMORY else app.local(tier).audit


async def newest_records(
    app: Services, tier: str, limit: int, since: int = 0, before: int | None = None
) -> Sequence[dict[str, Any]]:
    """Return the newest records of a tier's audit log, up to `limit`, oldest first.

    Only those with a number above `since`, and below `before` if one is given, count.
    """
    if tier != "registry":
        records = await asyncio.to_thread(local_audit(app, tier).newest, since, limit, before)
        return [asdict(record) for record in records]
    head = (await app.registry_client.registry_checkpoint(0, 0, app.settings.registry_name)).head
    end = head.seq if before is None else min(head.seq, before - 1)
    begin = max(since, end - limit)
    return [row async for row in _records(app, begin, end - begin)]


async def list_pending(app: Services, limit: int) -> Sequence[tuple[str, dict[str, Any] | None]]:
    """Return the first items that wait for the index, oldest first, each with its last problem if an indexer had one.

    Raises
    ------
    RegistryRefused
        When this connection's role may not act as ``kiwi_indexer``.
    """
    client = app.registry_client
    problems = {row["ref"]: row for row in (await client.index_status())["queue"]["problems"]}
    model = (await client.registry_status())["active_model"] or str(app.embed.fingerprint)
    refs = [registry_indexer.name_of(envelope) for _, envelope in await client.pending_items(model, limit)]
    return [(ref, problems.get(ref)) for ref in refs]


@dataclass(frozen=True, slots=True)
class VerifiedLog:
    """A registry's audit log: the head pinned before, its present head, and whether each record was verified."""

    pinned: AuditHead
    head: AuditHead
    all_read: bool

    def __str__(self) -> str:
        seen = self.pinned.seq
        compared = f"the log continues from pinned record {seen}" if seen else "the log was read for the first time"
        unread = "the records were not verified, because only the registry's admins may read them"
        return f"{compared}; {'every record was verified' if self.all_read else unread}"


async def verify_log(app: Services) -> VerifiedLog:
    """Verify the registry's hash chain: each record if this role may read them, and the head against the pinned one.

    Raises
    ------
    AuditBroken, ChainShortened, ChainForked
        When the chain is broken, or does not contain the pinned head.
    """
    pinned = app.monitor.pinned.read().head
    await app.monitor.check(fully=True)
    head, reached = app.monitor.pinned.read().head, AuditHead()
    try:
        async for row in _records(app, 0, head.seq):
            reached = verify_rows([row], reached)
            if any(row["seq"] == known.seq and row["hash"] != known.hash for known in (pinned, head)):
                raise AuditBroken(f"the registry's audit record {row['seq']} has another hash than before")
    except RegistryRefused:
        return VerifiedLog(pinned, head, all_read=False)
    if reached != head:
        raise AuditBroken(f"the registry's audit log ends at record {reached.seq}, but its head is record {head.seq}")
    return VerifiedLog(pinned, head, all_read=True)


async def _records(app: Services, since: int, limit: int) -> AsyncIterator[dict[str, Any]]:
    while limit > 0 and (batch := await app.registry_client.audit_records(since, min(limit, _BATCH))):
        for row in batch[:limit]:
            yield row
        since, limit = int(batch[-1]["seq"]), limit - len(batch)


async def tune(app: Services, options: dict[str, Any], report: Report) -> Tuning:
    """Tune the vectors of this registry. See `tuning.tune`."""
    return await tuning.tune(await asyncio.to_thread(app.registry_connection.url), **options, report=report)


NOT_REACHED = "the required recall was not reached; try --method ivfflat or --method exact"


def describe_tuning(tuned: Tuning) -> Sequence[str]:
    """Return the index over a model's vectors in words, and the recall that was measured."""
    lines = [f"{counted(tuned.passages, 'passages')} of {tuned.model}: {tuned.choice}"]
    if tuned.recall is not None:
        lines.append(f"recall@10 {tuned.recall:.3f}, required {tuned.wanted_recall:g}; effort {tuned.effort}")
    return lines


async def tune_if_due(app: Services, model: str, report: Report) -> None:
    """Tune a model's vectors if that is due; report why not, for example because this connection's role may not."""
    plans = (await app.registry().store.status()).details.get("vectors") or []
    if not any(plan["model"] == model and plan["due"] for plan in plans):
        return
    report("tuning the index over the vectors; searches continue meanwhile")
    try:
        tuned = await tune(app, {"fingerprint": model}, report)
        report(f"tuned: {tuned.choice}")
    except KiwiError as error:  # searches find what was indexed without it, too
        report(f"the vector index was not tuned: {error.message} ({error.hint}); to try again: kiwi registry tune")


async def _keep_tuned(app: Services, report: Report) -> None:
    """Check every minute whether tuning is due, until this task is cancelled."""
    while True:
        with suppress(KiwiError):  # the indexer reports what fails, and when it tries again
            await tune_if_due(app, str(app.embed.fingerprint), report)
        await asyncio.sleep(_CHECK_SECONDS)


async def index_pending(
    app: Services, indexed: Callable[[ItemRef], None], report: Report, *, switch: bool
) -> tuple[Sequence[Failed], Progress]:
    """Index what waits, then make this model the active one if its vectors are complete, or if `switch` is set.

    `indexed` is called with each item as soon as it is searchable. Returns the failures, and the model's progress.
    """
    registry, model = app.registry(), str(app.embed.fingerprint)
    if await registry.store.client.begin_collection(model) == "building":
        report(f"building vectors of {model}; searches use the active model until they are complete")
    failed: list[Failed] = []
    async for outcome in registry_indexer.index_pending(registry, app.writer):
        if isinstance(outcome, Failed):
            failed.append(outcome)
        else:
            indexed(outcome)
    await tune_if_due(app, model, report)  # before searches use it
    return failed, await registry.store.client.finish_collection(model, insist=switch)


def describe_progress(progress: Progress) -> str:
    """Return the state of a model's collection in words, with the command that continues it."""
    total = progress.items + progress.waiting
    text = f"{progress.state}: {progress.fingerprint}, {progress.items} of {counted(total, 'items')}"
    if progress.state == "active":
        return text
    if progress.waiting == progress.refused:
        return f"{text}; to make it the active one without the refused items: kiwi registry index --switch"
    return f"{text}; to continue: kiwi registry index"


async def watch_pending(app: Services, every: float, report: Report) -> AsyncGenerator[ItemRef | Failed | Unreachable]:
    """Index what waits and what is published until it is closed, and keep the index tuned; yield each outcome."""
    watched = registry_indexer.watch(app.registry(), lambda: app.writer, every=every)
    tuning_task = asyncio.create_task(_keep_tuned(app, report))
    try:
        async with aclosing(watched) as outcomes:
            async for outcome in outcomes:
                yield outcome
    finally:
        await cancel_all([tuning_task])


async def drop_models(app: Services, model: str) -> AsyncIterator[tuple[str, int]]:
    """Remove the vectors of a model, or of all superseded ones; yield each model and the number of its passages."""
    store = app.registry().store
    models = (await store.client.index_status())["models"]
    for name in [model] if model else [row["fingerprint"] for row in models if row["state"] == "superseded"]:
        yield name, await store.drop_model(name)


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
        hint = "kiwi delete removes an item from a local tier"
        raise UsageError(f"{text!r} names a local tier, but only the registry can yank", hint=hint)
    found = []
    for one in address.refs():
        versions = {row["version"] for row in await app.registry_client.item_status(one)}
        found += [one] if versions and one.version in (None, *versions) else []
    if ref := only_one(found, text):
        return ref
    raise NotFound(f"the registry has no item {text}", hint="kiwi list --source registry")


def yank_question(ref: ItemRef) -> str:
    """Return the question to ask before a yank, which names the loss."""
    what = ref if ref.version else f"every version of {ref}"
    return f"Yank {what}? Searches no longer find it. This cannot be undone."


async def yank(app: Services, ref: ItemRef, reason: str) -> int:
    """Yank the version that `ref` names, or all, and apply that to the local tiers; return how many were yanked."""
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
    enrolled = await app.registry_client.list_signers()
    named = [signer for signer in enrolled if who in (signer.principal, signer.public_key.hex())]
    found = named or [signer for signer in enrolled if len(who) >= 8 and signer.key_id.startswith(who)]
    if not found:
        raise NotFound(f"the registry has no signer {who!r}", hint="kiwi registry signers")
    left = [signer for signer in found if signer.status not in (status, SignerStatus.COMPROMISED)] or found
    if len(left) > 1:
        keys = ", ".join(f"{signer.key_id[:16]} ({signer.status})" for signer in left)
        raise UsageError(f"{who} has several keys: {keys}", hint="name one by the start of its key id")
    return left[0]


async def plan_withdrawal(app: Services, who: str, status: SignerStatus) -> tuple[Signer, int, str]:
    """Return the key to retire or revoke, how many items that hides, and the question to ask before it.

    `find_enrolled` says how `who` names the key. Nothing is changed.
    """
    signer, hidden, hides = await find_enrolled(app, who, status), 0, ""
    if status is SignerStatus.COMPROMISED:
        hidden = len(await app.registry_client.list_items(Filters(signer=signer.key_id)))
        hides = f" It hides {counted(hidden, 'items')} of the registry, and {await describe_loss(app, signer)}."
    key = f"key {signer.key_id[:16]}… of {signer.principal}"
    return signer, hidden, f"{VERBS[status].capitalize()} {key}? This cannot be undone.{hides}"


async def withdraw_key(app: Services, signer: Signer, status: SignerStatus, reason: str) -> bool:
    """Retire or revoke a key in the registry, and apply that to the local tiers; return whether anything changed."""
    client = app.registry_client
    withdraw = client.retire_signer if status is SignerStatus.RETIRED else client.revoke_signer
    changed = await withdraw(signer.key_id, reason)
    await app.monitor.check(fully=True)
    return changed


def damaged_states(app: Services) -> Iterator[tuple[PinnedState, PinnedStateDamaged]]:
    """Yield each pinned state that cannot be read, with the error; its file can be renamed until the next one."""
    for state in pinned_states(app.monitor_dir):
        try:
            state.notices()
        except PinnedStateDamaged as error:
            yield state, error
        finally:
            state.close()


def describe_head(head: AuditHead) -> str:
    """Return the number of an audit log's records, and the hash of the last one."""
    return f"{counted(head.seq, 'records')}, head {head.hash}"


async def read_heads(app: Services) -> tuple[AuditHead, AuditHead]:
    """Return the pinned audit head, and the registry's present one, which is not compared with it."""
    pinned = app.monitor.pinned
    return pinned.read().head, (await app.registry_client.registry_checkpoint(0, 0, pinned.identity.name)).head


async def accept_head(app: Services, head: AuditHead) -> None:
    """Pin an audit head of the registry although it contradicts the pinned state, and forget all pinned versions."""
    app.monitor.pinned.accept(head)
    await app.monitor.check(fully=True)
