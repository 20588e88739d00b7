"""`tune`: the procedure, step by step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import NotFound, RegistryRefused, UsageError
from kiwi_rag.registry.calls import checked_url, translated
from kiwi_rag.registry.tuning import indexes, recall
from kiwi_rag.registry.tuning.choice import Choice, Method, choose

if TYPE_CHECKING:
    import psycopg

LEAST_RECALL = 0.5
"""Nobody wants searches that find less, and the least effort finds as much."""
_CONNECT_SECONDS = 10
_LOOK_SECONDS = 1.0
_PLAN = """
select p.collection_id, p.fingerprint, p.passages, p.asked, p.wanted_recall
from kiwi.vector_plans() as p
where p.fingerprint = coalesce(nullif(%s, ''), (kiwi.active_collection()).fingerprint)
"""
_RECORD = """
insert into kiwi.vector_indexes as t (
    collection_id, asked, method, index_name, lists, effort, wide_effort, passages, wanted_recall, recall
)
values (
    %(collection_id)s, %(asked)s, %(method)s, %(index_name)s, nullif(%(lists)s, 0), %(effort)s, %(wide_effort)s,
    %(passages)s, %(wanted_recall)s, %(recall)s
)
on conflict (collection_id) do update set
    asked = excluded.asked, method = excluded.method, index_name = excluded.index_name, lists = excluded.lists,
    effort = excluded.effort, wide_effort = excluded.wide_effort, passages = excluded.passages,
    wanted_recall = excluded.wanted_recall, recall = excluded.recall, tuned_at = now()
"""
_PROGRESS = """
select p.phase, p.tuples_done, p.tuples_total, p.blocks_done, p.blocks_total
from pg_catalog.pg_stat_progress_create_index as p where p.pid = %s
"""
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was done for a model's vectors, or would be. `effort`, `wide_effort` and `recall` are None without an index.

    ``reached`` tells whether the wanted recall was.
    """

    fingerprint: str
    passages: int
    choice: Choice
    wanted: float
    effort: int | None = None
    wide_effort: int | None = None
    recall: float | None = None
    removed: tuple[str, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether the recall is what was wanted; that of an exact search is 1."""
        return self.recall is None or self.recall >= self.wanted

    def as_dict(self) -> dict[str, object]:
        """Return the tuning as JSON-ready data."""
        return {
            "model": self.fingerprint,
            "passages": self.passages,
            "method": self.choice.method,
            "lists": self.choice.lists or None,
            "effort": self.effort,
            "wide_effort": self.wide_effort,
            "wanted_recall": self.wanted,
            "recall": self.recall,
            "removed": list(self.removed),
        }


def tune(  # noqa: PLR0913
    url: str,
    fingerprint: str = "",
    *,
    method: Method | None = None,
    wanted: float | None = None,
    memory: int = 1024,
    dry_run: bool = False,
    tell: Tell = lambda _: None,
    stop: threading.Event | None = None,
) -> Tuning:
    """Build the index that a model's vectors want, measure what it finds, and record with what effort it finds enough.

    Reading, publishing and indexing go on meanwhile. Broken off anywhere, searches go on as before or exactly, and the
    next run removes what was left.

    Parameters
    ----------
    fingerprint
        The model; empty for the active one.
    method, wanted
        The index, and the recall@10 it is to reach; None for those that were asked for last (auto, 0.98).
    memory
        MiB that building may take of the server's memory.
    dry_run
        Change nothing.
    tell
        Called with each step, in words; often.
    stop
        When it is set, what is under way is given up.

    Raises
    ------
    UsageError
        When `wanted` is none that an index can be asked for.
    NotFound
        When there is no such model's collection.
    RegistryRefused
        When the connection's role may not act as the tables' owner.
    RegistryError
        When somebody else is tuning, the connection is lost, or the server has not that much memory.
    """
    if wanted is not None and not LEAST_RECALL <= wanted <= 1:
        raise UsageError(f"recall {wanted:g} is not between {LEAST_RECALL} and 1")
    with translated(), _owner(url) as connection, _alone(connection, url, tell, stop or threading.Event()):
        plan = _planned(connection, fingerprint, method, wanted, memory)
        if dry_run:
            return plan.tuning()
        removed = indexes.drop_unused(connection)  # what an earlier run left behind
        if plan.choice.method == "exact":
            _record(connection, plan)
            return plan.tuning(removed=(*removed, *indexes.drop_unused(connection)))
        # Beside the old one; until it is measured, searches do with a guess that errs on the side of recall.
        name, guess = indexes.create(connection, plan.collection, plan.choice), max(40, plan.choice.lists // 10)
        _record(connection, plan, name, effort=guess, wide_effort=2 * guess)
        removed += indexes.drop_unused(connection)
        found = _measured(connection, plan, guess, tell)
        _record(connection, plan, name, effort=found.effort, wide_effort=found.wide, recall=found.recall)
        return plan.tuning(found, (*removed,))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What there is of a model, what was asked for, and what that calls for."""

    collection: int
    fingerprint: str
    passages: int
    asked: Method
    wanted: float
    choice: Choice

    def tuning(self, found: recall.Effort | None = None, removed: tuple[str, ...] = ()) -> Tuning:
        """Return what was done, `found` where there is an index."""
        plain = Tuning(self.fingerprint, self.passages, self.choice, self.wanted, removed=removed)
        if found is None:
            return plain
        return replace(plain, effort=found.effort, wide_effort=found.wide, recall=found.recall)


def _planned(
    connection: psycopg.Connection[Any], fingerprint: str, method: Method | None, wanted: float | None, memory: int
) -> _Plan:
    row = connection.execute(_PLAN, [fingerprint]).fetchone()
    if row is None:
        raise NotFound(f"the registry has no vectors of {fingerprint or 'any model'}", hint="kiwi registry index")
    collection, model, passages, asked_before, wanted_before = row
    asked = method or asked_before
    return _Plan(collection, model, passages, asked, wanted or wanted_before or 0.98, choose(passages, asked, memory))


def _record(  # noqa: PLR0913
    connection: psycopg.Connection[Any],
    plan: _Plan,
    index_name: str = "",
    *,
    effort: int | None = None,
    wide_effort: int | None = None,
    recall: float | None = None,
) -> None:
    """Have searches use an index, or none; one that is recorded no more may be dropped."""
    values: dict[str, object] = {"collection_id": plan.collection, "asked": plan.asked, "passages": plan.passages}
    values |= {"method": plan.choice.method, "lists": plan.choice.lists, "index_name": index_name}
    values |= {"effort": effort, "wide_effort": wide_effort, "recall": recall, "wanted_recall": plan.wanted}
    connection.execute(_RECORD, values)


def _measured(connection: psycopg.Connection[Any], plan: _Plan, guess: int, tell: Tell) -> recall.Effort:
    drawn = recall.probes(connection, plan.collection, plan.passages, guess, tell)
    return recall.least_effort(connection, plan.collection, drawn, plan.choice, plan.wanted, tell)


def may_tune(url: str) -> bool:
    """Whether the connection's role may act as the tables' owner."""
    query = "select pg_catalog.pg_has_role(session_user, 'kiwi_owner', 'SET')"
    with translated(), _connected(url) as connection:
        row = connection.execute(query).fetchone()
    return bool(row and row[0])


@contextmanager
def _owner(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection that acts as the tables' owner, each statement a transaction of its own."""
    import psycopg

    with _connected(url) as connection:
        try:
            connection.execute("set role kiwi_owner")
        except psycopg.errors.InsufficientPrivilege as error:
            raise RegistryRefused(
                "tuning needs the role that owns the registry's tables, and this connection's may not act as it",
                hint="use the connection that migrates, or GRANT kiwi_owner TO it",
            ) from error
        connection.execute("set statement_timeout = 0")
        connection.prepare_threshold = None
        yield connection


def _connected(url: str) -> psycopg.Connection[Any]:
    import psycopg

    options: dict[str, Any] = {"connect_timeout": _CONNECT_SECONDS, "application_name": "kiwi", "autocommit": True}
    return psycopg.connect(checked_url(url), **options)


@contextmanager
def _alone(connection: psycopg.Connection[Any], url: str, tell: Tell, stop: threading.Event) -> Iterator[None]:
    """Hold the one place for tuning, on a second connection, and watch over the first from a third."""
    done = threading.Event()
    with _owner(url) as second, second.transaction():
        second.execute("set local idle_in_transaction_session_timeout = 0")
        second.execute("select from kiwi.locks where name = 'tuning' for update nowait")
        watcher = threading.Thread(target=_watch, args=(connection, url, tell, stop, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(
    connection: psycopg.Connection[Any], url: str, tell: Tell, stop: threading.Event, done: threading.Event
) -> None:
    """Tell how far a build is; cancel what runs once `stop` is set.

    A build waits for every transaction that had begun to read before it: this connection's are one statement long. It
    acts as whoever logged in, since the owner may not look into another role's session.
    """
    import psycopg

    pid = connection.info.backend_pid
    with suppress(psycopg.Error), _connected(url) as third:  # the first will say what is wrong
        while not done.wait(_LOOK_SECONDS):
            if stop.is_set():
                connection.cancel()
            elif row := third.execute(_PROGRESS, [pid]).fetchone():
                tell(_progress(*row))


def _progress(phase: str, tuples: int, all_tuples: int, blocks: int, all_blocks: int) -> str:
    done, total = (tuples, all_tuples) if all_tuples else (blocks, all_blocks)
    return f"{phase}: {100 * done // total}%" if total else phase
