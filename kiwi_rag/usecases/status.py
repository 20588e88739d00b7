"""The state of all parts of Kiwi, which starts and loads nothing; the checks of a whole installation.

And the history of index runs over this user's workspaces and libraries: one record a run, in ``~/.ai/runs.jsonl``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kiwi_rag import render
from kiwi_rag.collection import Collection
from kiwi_rag.config import process_environment
from kiwi_rag.errors import EmbeddingError, KiwiError, MalformedEnvelope, RegistryError
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.local_service import client, run_folder
from kiwi_rag.model import Filters, StoredItem, sha256_hex
from kiwi_rag.registry.calls import ANSWER_SECONDS, time_limit
from kiwi_rag.search.state import find_version_conflicts
from kiwi_rag.services import Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.services.workspace import TIER, Workspace
from kiwi_rag.signing import keys
from kiwi_rag.signing.statement import format_time, parse_index
from kiwi_rag.signing.trust import SignerStatus
from kiwi_rag.sources.file_states import RunState
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.storage.json_lines import RotatingLines
from kiwi_rag.stores.base import StoreStatus
from kiwi_rag.telemetry import read_last_errors
from kiwi_rag.usecases.project_trust import project_trust_problem
from kiwi_rag.usecases.trust import WAIT_SECONDS

PROBE_SECONDS = 2.0
"""How long to wait for a server's answer."""
MAX_ERRORS = 10
HISTORY_BYTES = 1 << 18
"""Size of the history from which it is moved aside: about 800 runs."""


async def collect_status(app: Services) -> dict[str, Any]:
    """Return the state of tiers, model, cache, last errors and local service, JSON-ready. Starts and loads nothing."""
    *local, registry = await item_rows(app)
    errors = await asyncio.to_thread(read_last_errors, app.user_dir, MAX_ERRORS)
    return {
        "tiers": [*local, *await _workspace_rows(app), registry],
        "model": model_state(app),
        "cache": await asyncio.to_thread(cache_state, app),
        "errors": [_error_row(record) for record in errors],
        "service": await asyncio.to_thread(client.state, run_folder(process_environment())),
        "project": str(app.project_dir or ""),
        "trusted_signers": len(app.trust.signers),
    }


async def item_rows(app: Services) -> list[dict[str, Any]]:
    """Return the state of the items of each tier, JSON-ready; the registry's is last."""
    local = [await index_row(name, "items", partial(app.local, name)) for name in app.source_names("local")]
    return [*local, await _registry_row(app)]


def model_state(app: Services) -> dict[str, Any]:
    """Return which model is used and where it is, JSON-ready; loads nothing and contacts no server."""
    name = app.settings.embedding_provider
    state = {"provider": name, "name": app.settings.embedding_model, "fingerprint": "", "place": "", "problem": ""}
    try:
        embed = app.embed
    except KiwiError as error:
        return {**state, "problem": error.message}
    if app.settings.embedding_dimension:  # if 0, a remote provider would contact its server
        state |= {"name": embed.fingerprint.model, "fingerprint": str(embed.fingerprint)}
    return {**state, "place": embed.place, "problem": "" if embed.place else "its files are not on this machine"}


def cache_state(app: Services) -> dict[str, Any]:
    """Return the path and size of the cache, JSON-ready; only Kiwi's own files in that folder are counted."""
    folder = app.settings.cache_path
    patterns = ("models/**/*", "embeddings.sqlite*", "usage.jsonl*", "probes/*")
    return {"path": str(folder), "bytes": size_of(path for pattern in patterns for path in folder.glob(pattern))}


def _error_row(record: dict[str, Any]) -> dict[str, Any]:
    what = record.get("command") or record.get("tool") or record.get("logger", "")
    code = record.get("code") or record.get("exception", "")
    return {"at": record["at"], "what": what, "code": code, "message": record.get("message", "")}


async def _workspace_rows(app: Services) -> list[dict[str, Any]]:
    async with Workspace(app) as workspace:
        return [await index_row(TIER, "documents", lambda: workspace.tier)] if workspace.is_indexed else []


async def index_row(name: str, counted: str, open_tier: Callable[[], Collection]) -> dict[str, Any]:
    """Return the counts and problems of a local tier, or why it cannot be read, JSON-ready."""
    row: dict[str, Any] = {"tier": name, counted: "", "passages": "", "model": "", "indexed_at": "", "problems": ""}
    try:
        # The first index that is opened may have to load its libraries.
        async with time_limit(PROBE_SECONDS if name == TIER else ANSWER_SECONDS, "the index"):
            tier = open_tier()
            state, run = await tier.store.status(), _last_run(tier)
            row["indexed_at"] = tier.states.written_at() if tier.states else ""
    except KiwiError as error:
        return row | {"problems": render.safe(error.message)}
    unfinished = ["the last index run did not finish"] if name == TIER and run == RunState.BEGUN else []
    unfinished += [render.vectors_for(_embedded(state))] if state.unembedded else []
    problems = (*state.problems, *(f"{one}: continue it with kiwi workspace index" for one in unfinished))
    counts = {counted: state.items, "passages": state.passages, "model": state.fingerprint}
    return row | counts | {"problems": "; ".join(problems)}


async def _registry_row(app: Services) -> dict[str, Any]:
    """Return whether the registry runs; one that is not embedded is queried, for at most `PROBE_SECONDS`."""
    from kiwi_rag.registry import server

    row = {"tier": "registry", "where": render.safe(app.registry_connection.description)}
    if app.registry_connection.is_embedded:
        running = server.server_state(app.registry_dir).running
        return {**row, "state": "running" if running else "not running", "problems": ""}
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            status = await app.registry().store.status()
    except TimeoutError:
        return {**row, "state": "silent", "problems": f"the registry gave no answer within {PROBE_SECONDS:g} s"}
    except KiwiError as error:
        return {**row, "state": "failed", "problems": render.safe(error.message)}
    return {**row, "state": "answers", "items": status.items, "problems": "; ".join(status.problems)}


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
    return Diagnosis([*problems, *conflicts], repaired, [*app.resolved.notices, *notices])


async def _check_tier(tier: Collection, repair: bool) -> tuple[list[str], list[str]]:
    index = tier.local_index
    done = await index.repair() if repair and index else ()
    problems = [*(await index.check() if index else (await tier.store.status()).problems)]
    try:
        tier.audit.verify_chain()
    except KiwiError as error:
        problems.append(error.message)
    return [f"{tier.name}: {line}" for line in problems], [f"{tier.name}: {line}" for line in done]


async def _check_versions(app: Services) -> tuple[list[str], list[str]]:
    """Return versions that have different content in two tiers, and a notice if the registry does not answer."""
    indexed = []
    for name in app.source_names("local"):
        with suppress(KiwiError):  # the check of the tier itself reports it
            if app.has_index(app.root(name)):
                indexed.append((app.local(name), await app.local(name).store.list(Filters())))
    notices = []
    try:
        async with time_limit(min(WAIT_SECONDS, app.settings.deadline)):
            found = await find_version_conflicts(indexed, app.registry() if app.registry_connection.exists else None)
    except (RegistryError, EmbeddingError) as error:
        notices = [f"the registry's versions were not compared: {error}"]
        found = await find_version_conflicts(indexed, None)
    return [f"versions: {conflict} ({conflict.hint})" for conflict in found], notices


def _check_setup(app: Services) -> list[str]:
    unusable = filter(None, (keys.problem(name, app.keys_dir) for name in keys.names(app.keys_dir)))
    problems = [f"keys: {found.message} ({found.hint})" for found in unusable]
    for name, public_key in keys.public_keys(app.keys_dir).items():
        signer = app.trust.by_key.get(sha256_hex(public_key))
        if signer and signer.status is SignerStatus.COMPROMISED:
            way_out = f"kiwi keys new NAME, kiwi sign .ai --key NAME --force, then remove {app.keys_dir / name}.*"
            problems.append(f"keys: {name} is {signer.origin or 'marked compromised'} ({way_out})")
    if not keys.names(app.keys_dir) and not app.settings.signing_key:
        problems.append("keys: there is no key to sign with (kiwi keys new)")
    if not app.trust.signers:
        problems.append("trust: no signer is trusted, so nothing can be admitted (kiwi keys new, or kiwi trust add)")
    if problem := project_trust_problem(app):
        problems.append(f"trust: {problem} (kiwi trust project)")
    return problems


def _check_model(app: Services) -> list[str]:
    try:
        found = app.embed.verify()
        if not found:  # files that are not the pinned ones are not loaded
            app.embed.encode(["ready"])
    except KiwiError as error:
        return [f"model: {error.message} ({error.hint})"]
    return [f"model: {line}" for line in found]


async def collect_workspace_status(workspace: DocumentIndex, *, brief: bool = False) -> Mapping[str, Any]:
    """Return counts, the state of the last run, and the path and size in bytes of the index, JSON-ready.

    Without an index, counts are 0 and texts empty. A `brief` one reads no document: it has neither types nor bytes.
    """
    state, types, run, kind = StoreStatus(0, 0, ""), Counter[str](), "", "local"
    if workspace.is_indexed:
        tier = workspace.tier
        state, kind = await tier.store.status(), tier.store.capabilities.kind
        run = _last_run(tier)
        types = Counter() if brief else Counter(map(_type_of, await tier.store.list(Filters())))
    is_finished = run == RunState.COMPLETE and not state.unembedded
    folder = Path(str(state.details["path"])).parent if "path" in state.details else None
    return {
        "workspace": workspace.name,
        "root": str(workspace.root),
        "documents": state.items,
        "passages": state.passages,
        "embedded": _embedded(state),
        "file_types": dict(sorted(types.items())),
        "run": run,
        "complete": is_finished if kind == "local" else not state.problems,  # several users run a shared one
        "model": state.fingerprint,
        "store": kind,
        "path": str(folder or ""),
        "bytes": size_of(folder.rglob("*")) if folder and not brief else 0,
        "problems": list(state.problems),
    }


def _embedded(state: StoreStatus) -> float:
    """Return the share of the passages that have a vector."""
    return (state.passages - state.unembedded) / state.passages if state.passages else 1.0


def _last_run(tier: Collection) -> str:
    return tier.states.run_state() if tier.states else ""


def _type_of(stored: StoredItem) -> str:
    """Return a document's type for counting: a name in `FILE_TYPES`, as the statement is not verified here."""
    try:
        file_type = parse_index(stored.envelope.payload).metadata.get("file_type", "")
    except MalformedEnvelope:
        return "unreadable"
    return file_type if file_type in FILE_TYPES else "unreadable"


def size_of(paths: Iterable[Path]) -> int:
    """Return the size of the files among some paths in bytes."""
    size = 0
    for path in paths:
        with suppress(OSError):  # removed meanwhile, or not readable
            size += path.lstat().st_size if path.is_file() else 0
    return size


@contextmanager
def recorded_run(user_dir: Path, title: str, *, named: int, rebuild: bool) -> Iterator[SyncReport]:
    """Yield the report that a run over an index with this title fills, and append a record of it when the block ends.

    The record has the counts of the report, ``outcome`` (``done``, ``stopped`` or ``failed``), and ``named``, which is
    how many files were named, 0 for all.
    """
    about = {"at": format_time(datetime.now(UTC)), "root": title, "rebuild": rebuild, "named": named}
    report, started, outcome = SyncReport(), time.monotonic(), "failed"
    try:
        yield report
        outcome = "done"
    except (asyncio.CancelledError, KeyboardInterrupt):
        outcome = "stopped"
        raise
    finally:
        counts = {name: value if isinstance(value, int) else len(value) for name, value in report.as_dict().items()}
        record = {**about, "outcome": outcome, "seconds": time.monotonic() - started, **counts}
        with suppress(OSError):  # a full disk: what was indexed is stored all the same
            _history(user_dir).append(f"{json.dumps(record)}\n".encode())


def read_history(user_dir: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of runs, the newest first; half a line from a full disk is left out."""
    for line in (line for data in _history(user_dir).contents() for line in reversed(data.splitlines())):
        with suppress(ValueError):
            yield json.loads(line)


def _history(user_dir: Path) -> RotatingLines:
    return RotatingLines(user_dir / "runs.jsonl", HISTORY_BYTES)
