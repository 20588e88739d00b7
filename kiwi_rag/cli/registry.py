"""``kiwi registry`` and ``kiwi yank``: the registry's server, schema, signers and index, and withdrawal from it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, PARTLY, YES, Group, Session, command, confirm, option
from kiwi_rag.cli.trust import signer_row
from kiwi_rag.errors import UsageError
from kiwi_rag.ingest.registry_indexer import Failed, Unreachable, audit_index
from kiwi_rag.model import ItemRef
from kiwi_rag.registry.tuning import METHODS
from kiwi_rag.render import counted
from kiwi_rag.search.verify import parse_address
from kiwi_rag.services import Services
from kiwi_rag.signing.trust import SignerStatus
from kiwi_rag.usecases import registry as use_case

REASON = option("--reason", default="", help="Reason; every reader of the registry can see it.")
WHO = click.argument("who", metavar="PRINCIPAL|KEYID")


@click.group(cls=Group)
def registry() -> None:
    """Start, stop, migrate and inspect the registry."""


@registry.command(epilog="Example: kiwi registry start, or kiwi registry start --port 54329")
@option("--port", type=click.IntRange(1024, 65535), help="Also listen on this port of 127.0.0.1, with a password.")
async def start(session: Session, app: Services, port: int | None) -> None:
    """Start the embedded registry, migrate its schema, and keep it running until `kiwi registry stop`.

    Otherwise the first command that needs it starts it, and the last one stops it. The URL of the server is printed on
    stdout; with --port it names the file of the password.
    """
    url = await use_case.start(app, port)
    session.notify(f"the registry runs in {app.registry_dir}; stop it with: kiwi registry stop")
    if not session.quiet:
        session.print(url)


@registry.command(epilog="Example: kiwi registry stop")
def stop(session: Session) -> None:
    """Stop the embedded registry. Its data are kept."""
    session.notify("the registry was stopped" if use_case.stop(session.app()) else "the registry was not running")


@registry.command(epilog="Example: kiwi registry migrate (the server of KIWI_REGISTRY_URL, or the embedded one)")
async def migrate(session: Session, app: Services) -> None:
    """Migrate the registry's schema: tables, functions and roles. Needs a role that may create them."""
    changed = await app.registry_connection.migrate()
    session.notify("migrated to the newest schema" if changed else "the schema is the newest one already")


@registry.command(epilog="Example: kiwi registry status")
async def status(session: Session, app: Services) -> int:
    """Show the registry's address, whether it answers, its schema, and the number of items."""
    row = await use_case.collect_state(app)
    parts = [(name, one) for name, value in row.items() for one in (value if isinstance(value, list) else [value])]
    shown = (f"{name}: {render.value_text(one)}" for name, one in parts if one not in (None, "", {}, []))
    session.print_data(row, map(render.safe, shown))
    if app.registry_connection.is_embedded and not row["running"]:
        session.notify("kiwi registry start keeps it running; commands that need the registry start it, too")
    return PARTLY if row["problem"] else DONE


@registry.command(epilog="Example: kiwi registry enrol ada@acme.example")
@click.argument("principal")
async def enrol(session: Session, app: Services, principal: str) -> None:
    """Let a signer of your trust file publish, with the same key, patterns and types. Needs the role kiwi_admin."""
    session.print("\n".join(await use_case.enrol(app, principal)))


@registry.command(epilog="Example: kiwi registry signers")
async def signers(session: Session, app: Services) -> None:
    """List the signers that may publish to the registry."""
    rows = [signer_row(signer, "key_id") for signer in await app.registry_client.list_signers()]
    session.print_data(rows, (render.safe("  ".join(row.values())) for row in rows))


@registry.command(epilog="Example: kiwi registry tune, or kiwi registry tune --method hnsw --recall 0.99")
@option("--method", choices=METHODS, help="The index; auto: none below 10,000 passages, ivfflat above.")
@option("--recall", "wanted", type=click.FloatRange(0.5, 1), help="Share of the ten nearest passages to find.")
@option("--model", "fingerprint", default="", help="Fingerprint of the model. Default: the active model.")
@option("--memory", type=click.IntRange(min=64), default=1024, help="Memory for building, in MiB.")
@option("--dry-run", is_flag=True, help="Show what would be built, without building it.")
async def tune(session: Session, app: Services, **options: Any) -> int:
    """Build the index over the registry's vectors, and measure that searches find what they should.

    Searching, publishing and indexing continue meanwhile. Needs the role that migrates. The default of --method and
    --recall is that of the last time, at first auto and 0.98.
    """
    tuned = await use_case.tune(app, options, session.notify)
    session.print_data(tuned.as_dict(), map(render.safe, use_case.describe_tuning(tuned)))
    session.notify("" if tuned.reached else use_case.NOT_REACHED)
    return DONE if tuned.reached else PARTLY


@registry.command(epilog="Example: kiwi registry index, or kiwi registry index --watch")
@option("--watch", is_flag=True, help="Run until stopped, and index what is published meanwhile.")
@option("--every", type=click.FloatRange(min=0.1), default=30.0, help="Seconds between checks, with --watch.")
@option("--switch", is_flag=True, help="Make this model the active one although items were refused.")
@option("--drop-old", "old", is_flag=True, help="Only remove the vectors of superseded models.")
@option("--drop", "model", default="", help="Only remove the vectors of this model, which must not be the active one.")
async def index(session: Session, app: Services, watch: bool, every: float, switch: bool, old: bool, model: str) -> int:
    """Make published items searchable: run the whole gate again, then compute their vectors.

    With another model than the registry's active one, a second set of vectors is built, and searches use it when it is
    complete. Several indexers can run at the same time, and each can be stopped and started again.
    """
    if sum((watch, switch, old, bool(model))) > 1:
        raise UsageError("--watch, --switch, --drop-old and --drop exclude each other", hint="give one of them")
    if old or model:
        return await _drop(session, app, model)
    return await (_watch(session, app, every) if watch else _index(session, app, switch))


async def _index(session: Session, app: Services, switch: bool) -> int:
    done: list[str] = []

    def report_indexed(ref: object) -> None:
        done.append(str(ref))
        session.print_receipt(f"indexed  {ref}")

    failed, progress = await use_case.index_pending(app, report_indexed, session.notify, switch=switch)
    refused = [{"ref": one.ref, **one.error.as_dict()} for one in failed]
    data = {"indexed": done, "refused": refused, "model": str(app.embed.fingerprint), "state": progress.state}
    session.print_data(data)
    session.notify(f"{len(done)} indexed, {len(failed)} refused", use_case.describe_progress(progress))
    return session.report_refusals(one.error for one in failed)


async def _watch(session: Session, app: Services, every: float) -> int:
    indexed: list[ItemRef] = []

    def report(outcome: ItemRef | Failed | Unreachable) -> None:
        if isinstance(outcome, Unreachable):
            session.notify(f"{outcome.error.message}; trying again in {outcome.pause:g} s")
        elif isinstance(outcome, Failed):
            session.report_error(outcome.error)
        else:
            indexed.append(outcome)
            session.print_receipt(f"indexed  {outcome}")

    what = f"waiting for published items, with model {app.embed.fingerprint}"
    await session.report_until_stopped(what, use_case.watch_pending(app, every, session.notify), report)
    session.notify(f"stopped; {len(indexed)} indexed")
    return DONE


async def _drop(session: Session, app: Services, model: str) -> int:
    dropped = 0
    async for name, passages in use_case.drop_models(app, model):
        dropped += 1
        session.print(render.safe(f"dropped  {name}  {counted(passages, 'passages')}"))
    session.notify("" if dropped else "there is no superseded model")
    return DONE


@registry.command(epilog="Example: kiwi registry verify --sample 200")
@option("--sample", type=click.IntRange(min=1), default=50, help="Number of items, chosen at random.")
@option("--all", "everything", is_flag=True, help="Check every item.")
async def verify(session: Session, app: Services, sample: int, everything: bool) -> int:
    """Compare stored passages and vectors with those computed from the signed items; report each difference.

    Runs the whole gate on each item and embeds it again. Needs the role kiwi_indexer.
    """
    mismatches, checked = list[dict[str, str]](), 0
    async for ref, found in audit_index(app.registry(), app.writer, None if everything else sample):
        checked += 1
        mismatches += [{"ref": ref, **asdict(one)} for one in found]
        for one in found:
            session.print_receipt(render.safe(f"differs  {ref}  {one.passage}  {one.what}"))
    session.print_data({"checked": checked, "mismatches": mismatches})
    session.notify(f"{counted(checked, 'items')} checked, {len({one['ref'] for one in mismatches})} with differences")
    return PARTLY if mismatches else DONE


@command(epilog='Example: kiwi yank acme/deploy/staging@1.2.0 --reason "deploys to the wrong cluster"')
@click.argument("ref")
@REASON
@YES
async def yank(session: Session, app: Services, ref: str, reason: str, yes: bool) -> None:
    """Withdraw a published version, or all versions if REF names none: searches no longer find it.

    It is kept, and `kiwi get` still returns it by its version. Needs the role kiwi_admin, or to be the item's owner. A
    yank cannot be undone; publish a new version instead.
    """
    found = await use_case.find_published(app, ref)
    confirm(use_case.yank_question(found), f"kiwi yank {ref}", yes=yes)
    count = await use_case.yank(app, found, reason)
    several = f"  ({count} versions)" if count > 1 else ""
    session.print_data({"ref": str(found), "yanked": count}, [f"yanked  {found}{several}"] if count else [])
    session.notify("" if count else f"{found} was yanked already; nothing changed")


@registry.command(epilog="Example: kiwi registry retire ada@acme.example")
@WHO
@REASON
@YES
async def retire(session: Session, app: Services, **given: Any) -> None:
    """Accept no more items signed by a key; earlier ones stay valid. Needs the role kiwi_admin."""
    await _withdraw(session, app, SignerStatus.RETIRED, **given)


@registry.command(epilog='Example: kiwi registry revoke ada@acme.example --reason "laptop stolen"')
@WHO
@REASON
@YES
async def revoke(session: Session, app: Services, **given: Any) -> None:
    """Declare a key compromised: nobody finds the items that it signed any more. Needs the role kiwi_admin.

    This cannot be undone. Sign its items with another key and publish them again.
    """
    await _withdraw(session, app, SignerStatus.COMPROMISED, **given)


async def _withdraw(session: Session, app: Services, status: SignerStatus, who: str, reason: str, yes: bool) -> None:
    signer, lost, question = await use_case.plan_withdrawal(app, who, status)
    verb = use_case.VERBS[status]
    confirm(question, f"kiwi registry {verb} {who}", yes=yes)
    changed = await use_case.withdraw_key(app, signer, status, reason)
    row = {**render.attributes(signer, "key_id", "principal"), "changed": changed, "items_lost": lost}
    done = f"{verb}d" if changed else f"{verb}d already"
    session.print_data(row, [f"{done}  {render.safe(signer.principal)}  {signer.key_id}"])
    gone = f"{counted(lost, 'items')} signed by it can no longer be found; older versions by other keys can"
    session.notify(gone if lost else "")


@registry.command(epilog="Example: kiwi registry accept, or kiwi registry accept acme/deploy/staging")
@click.argument("ref", required=False)
@YES
async def accept(session: Session, app: Services, ref: str | None, yes: bool) -> None:
    """Accept the registry's present state although it contradicts the pinned one, as after a restored backup.

    With REF this forgets the pinned versions of one item. Without it, it pins the registry's present audit head and
    forgets all pinned versions. Keys that the registry revoked stay revoked.
    """
    if ref:
        confirm(f"Forget the pinned versions of {ref}?", f"kiwi registry accept {ref}", yes=yes)
        count = sum(map(app.monitor.pinned.forget, parse_address(ref).refs()))
        session.notify(f"forgot {counted(count, 'pinned versions')} of {ref}")
        return
    for state, error in use_case.damaged_states(app):
        session.notify(error.message)
        confirm("Rename the damaged file and begin with an empty one?", "kiwi registry accept", yes=yes)
        session.notify(f"renamed to {state.move_aside()}")
    pinned, current = await use_case.read_heads(app)
    if pinned == current:
        session.notify(f"nothing to accept: the registry's head is the pinned one, {use_case.describe_head(current)}")
        return
    session.notify(f"pinned     {use_case.describe_head(pinned)}", f"registry   {use_case.describe_head(current)}")
    confirm("Accept the registry's head, and forget the pinned versions?", "kiwi registry accept", yes=yes)
    await use_case.accept_head(app, current)
    session.notify("accepted the registry's head")
