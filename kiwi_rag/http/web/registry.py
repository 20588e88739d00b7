"""The page Registry: its state, what waits and what was refused, signers, the index over vectors, the audit logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from starlette.requests import Request

from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.http.web.page import Done, Form, Page, PageGroup, confirm
from kiwi_rag.mcp.jobs import Job, Work
from kiwi_rag.registry.tuning import METHODS
from kiwi_rag.render import counted
from kiwi_rag.signing import trust_file
from kiwi_rag.signing.trust import Signer, SignerStatus, check_new_principal
from kiwi_rag.usecases import registry as use_case
from kiwi_rag.usecases import trust
from kiwi_rag.usecases.trust import WAIT_SECONDS

PATH = "/registry"
ROWS = 50
"""Rows of a table on one page."""
_SEARCHED = 1000
"""The newest records of each log, among which refusals are looked for."""
_REFUSALS = frozenset({"refused", "rejected", "verify-refused", "hit-refused"})
_STOP = "Stop the embedded registry? Other processes that use it now get an error. Its data are kept."


async def _part(rows: Awaitable[Sequence[Any]]) -> Sequence[Any] | KiwiError:
    """Return rows of a page, or the error that reading them ended in."""
    try:
        return await rows
    except KiwiError as error:
        return error


class Registry(PageGroup):
    """The pages of the registry, and what its admin does there."""

    _jobs: Sequence[Job] = ()
    _report = ""  # of the running job: there is one at a time

    async def overview(self, _request: Request) -> Page:
        """Show the registry's state and, where it answers, its signers and what waits; refusals in any case."""
        app, state = self._app, await use_case.collect_state(self._app, WAIT_SECONDS)
        values = {"state": state, "embedded": app.registry_connection.is_embedded, "methods": METHODS}
        logs, values["trusted"] = app.source_names("local"), app.trust.by_key
        values["own_entries"] = {signer.key_id for signer in trust_file.load(app.user_trust).signers}
        if "items" in state:
            logs = ["registry", *logs]
            values["signers"] = await _part(app.registry_client.list_signers())
            values["pending"] = await _part(use_case.list_pending(app, ROWS))
        values["refused"] = {log: await _part(self._refusals(log)) for log in logs}
        return Page("registry.html", {**values, "jobs": self._jobs, "report": self._report})

    async def jobs(self, _request: Request) -> Page:
        """Show the last jobs alone, for the script that asks for them while one runs."""
        return Page("registry_jobs.html", {"jobs": self._jobs, "report": self._report})

    async def audit(self, request: Request) -> Page:
        """Show a page of an audit log, the newest records first, and whether its chain holds if that is asked."""
        given, logs = request.query_params, ["registry", *self._app.source_names("local")]
        log = given["log"] if given.get("log") in logs else logs[0]
        before = int(text[:15]) if (text := given.get("before", "")).isdecimal() else None
        values: dict[str, Any] = {"log": log, "logs": logs, "trusted": self._app.trust.by_key}
        values["records"] = await _part(self._records(log, ROWS, before))
        values["verdict"] = await _part(self._verify(log)) if given.get("verify") else None
        return Page("audit.html", values)

    async def _records(self, log: str, limit: int, before: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Return a log's newest records, the newest first."""
        if log == "registry":
            self._app.registry_connection.require_running()
        return (await use_case.newest_records(self._app, log, limit, before=before))[::-1]

    async def _refusals(self, log: str) -> Sequence[Mapping[str, Any]]:
        return [row for row in await self._records(log, _SEARCHED) if row["event"] in _REFUSALS][:ROWS]

    async def _verify(self, log: str) -> Sequence[str]:
        """Verify a log's chain; return the result in words."""
        if log != "registry":
            head = await asyncio.to_thread(self._app.local(log).audit.verify_chain)
            return [use_case.describe_head(head), "every record was verified"]
        self._app.registry_connection.require_running()
        verified = await use_case.verify_log(self._app)
        return [use_case.describe_head(verified.head), str(verified)]

    async def start(self, _form: Form) -> Done:
        """Start the embedded registry."""
        await use_case.start(self._app, None)
        return Done(PATH, "The registry runs, and keeps running until it is stopped.")

    async def stop(self, form: Form) -> Done:
        """Stop the embedded registry."""
        confirm(form, _STOP, "Stop it")
        await asyncio.to_thread(use_case.stop, self._app)
        return Done(PATH, "The registry was stopped. It starts again when a command needs it.")

    async def index(self, _form: Form) -> Done:
        """Index what waits, as a job."""

        async def work(job: Job) -> Mapping[str, Any]:
            waiting = (await self._app.registry_client.index_status())["queue"]["waiting"]
            advance, say = job.set_total(waiting, "items"), partial(setattr, self, "_report")
            failed, progress = await use_case.index_pending(self._app, lambda _: advance(1), say, switch=False)
            refused = [f"{one.ref}: {one.error.message}" for one in failed]
            counts = f"{counted(job.done, 'items')} indexed, {len(failed)} refused"
            return {"lines": [counts, *refused, use_case.describe_progress(progress)]}

        return self._start("index the registry", work)

    async def tune(self, form: Form) -> Done:
        """Build the index over the vectors as a job, or say what would be built."""
        method, recall = form.get("method", ""), form.get("recall", "")
        if method not in ("", *METHODS) or not recall.replace(".", "", 1).isdecimal():
            raise UsageError("the method or the recall is not valid", hint="write a recall such as 0.98")
        options = {"method": method or None, "wanted": float(recall), "dry_run": form.get("dry_run") == "on"}
        if options["dry_run"]:
            tuned = await use_case.tune(self._app, options, lambda _: None)
            return Done(PATH, f"Nothing was changed. It would build: {use_case.describe_tuning(tuned)[0]}")

        async def work(_job: Job) -> Mapping[str, Any]:
            tuned = await use_case.tune(self._app, options, partial(setattr, self, "_report"))
            return {"lines": [*use_case.describe_tuning(tuned), *([] if tuned.reached else [use_case.NOT_REACHED])]}

        return self._start("tune the registry", work)

    def _start(self, name: str, work: Work) -> Done:
        job, self._report = self._context.jobs.start(name, work), ""
        self._jobs = [job, *self._jobs[:2]]
        return Done(PATH, f"Job {job.id} has begun: {name}.")

    async def enrol(self, form: Form) -> Done:
        """Let the keys of a principal of the trust file publish."""
        keys = await use_case.enrol(self._app, principal := form.get("principal", ""))
        return Done(PATH, f"{principal} may publish now, with {counted(len(keys), 'keys')}.")

    async def trust(self, form: Form) -> Done:
        """Trust another person's key, after its key id was shown."""
        key = trust.parse_public_key(self._app, form.get("public_key", ""))
        named = Signer(check_new_principal(form.get("principal", "").strip()), key)
        signer = trust.plan_entry(self._app, named, (), replaces=False)[0]
        question = f"Trust what the key {signer.key_id} signs? Ask {signer.principal} whether this is the key id."
        confirm(form, question, "Trust it")
        trust.save_signers(self._app, signer)
        return Done(PATH, f"The key of {signer.principal} is trusted. Index again what was refused because of it.")

    async def untrust(self, form: Form) -> Done:
        """Remove a key from this user's trust file."""
        signer = trust.find_signer(self._app, form.get("who", ""))
        loss = f"{await trust.describe_loss(self._app, signer)}, nor what it signed elsewhere"
        confirm(form, f"Stop trusting the key {signer.key_id[:16]}… of {signer.principal}? {loss}.", "Stop trusting it")
        trust.remove_signer(self._app, signer.key_id)
        again = f"To trust it again, enter its public key below: {signer.public_key.hex()}"
        if signer.key_id in self._app.trust.by_key:
            again = "The trust file of this project, which you have pinned, still has it."
        return Done(PATH, f"The key of {signer.principal} was removed from your trust file. {again}")

    async def withdraw(self, form: Form, status: SignerStatus) -> Done:
        """Retire or revoke a key."""
        signer, _, question = await use_case.plan_withdrawal(self._app, form.get("who", ""), status)
        confirm(form, question, f"{use_case.VERBS[status].capitalize()} it")
        changed = await use_case.withdraw_key(self._app, signer, status, form.get("reason", ""))
        done = f"{use_case.VERBS[status]}d{'' if changed else ' already; nothing changed'}"
        return Done(PATH, f"The key {signer.key_id[:16]}… of {signer.principal} was {done}.")

    pages: ClassVar = {PATH: overview, f"{PATH}/jobs": jobs, f"{PATH}/audit": audit}
    actions: ClassVar = {
        **{f"{PATH}/{run.__name__}": run for run in (start, stop, index, tune, enrol, trust, untrust)},
        f"{PATH}/retire": partial(withdraw, status=SignerStatus.RETIRED),
        f"{PATH}/revoke": partial(withdraw, status=SignerStatus.COMPROMISED),
    }
