"""``kiwi audit --tier registry``: the registry's audit log, as far as its reader may see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from kiwi_rag import present
from kiwi_rag.app import App
from kiwi_rag.cli.session import DONE, Session
from kiwi_rag.errors import AuditBroken, RegistryRefused

if TYPE_CHECKING:
    from kiwi_rag.validation.audit import AuditHead

_BATCH = 2000


async def show(session: Session, app: App, since: int, limit: int) -> int:
    """Print the registry's newest audit records."""
    from kiwi_rag.registry import functions

    async with app.calling() as caller:
        head = (await functions.registry_news(caller, 0, 0, app.settings.registry_name)).head
    rows: list[dict[str, Any]] = []
    async for batch in _batches(app, max(since, head.seq - limit), limit):
        rows += batch
    if session.as_json:
        session.data(rows)
    else:
        for r in rows:
            session.out(present.audit_line(r))
    if not rows:
        session.say("the log is empty")
    return DONE


async def verify(session: Session, app: App) -> int:
    """Verify the registry's chain: record by record where this role may read them, and against what was seen before.

    Raises
    ------
    AuditBroken, ChainShortened, ChainForked
        When it does not hold.
    """
    seen = app.witness.memory.head()
    await app.witness.look(fully=True)
    head = app.witness.memory.head()
    try:
        await _verify_records(app, seen, head)
        how = "every record verified here"
    except RegistryRefused:
        how = "its records are for the registry's admins"
    compared = f"follows the head seen before ({seen.seq})" if seen.seq else "seen for the first time"
    if session.as_json:
        session.data({"seq": head.seq, "hash": head.hash, "seen": seen.seq, "records": how.startswith("every")})
    else:
        session.out(f"{head.seq} records, head {head.hash}")
    session.say(f"{compared}; {how}")
    return DONE


async def _verify_records(app: App, seen: AuditHead, head: AuditHead) -> None:
    from kiwi_rag.validation.audit import AuditHead
    from kiwi_rag.witness.audit_chain import verify_rows

    reached = AuditHead()
    async for batch in _batches(app, 0, head.seq):
        reached = verify_rows(batch, reached)
        for known in (seen, head):
            own = [row["hash"] for row in batch if row["seq"] == known.seq]
            if own not in ([], [known.hash]):
                raise AuditBroken(f"the registry's record {known.seq} is not the one whose hash it gave before")
    if reached != head:
        raise AuditBroken(f"the registry's audit log ends at record {reached.seq}, but it named {head.seq} as its last")


async def _batches(app: App, since: int, limit: int) -> AsyncIterator[Sequence[dict[str, Any]]]:
    from kiwi_rag.registry.administration import audit_records

    while limit > 0:
        async with app.calling() as caller:
            batch = (await audit_records(caller, since, min(limit, _BATCH)))[:limit]
        if not batch:
            return
        yield batch
        since, limit = int(batch[-1]["seq"]), limit - len(batch)
