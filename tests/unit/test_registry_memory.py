"""A registry's memory: durable, shared by processes, bounded, and never silently forgotten; and what it decides."""

from __future__ import annotations

import multiprocessing
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kiwi_rag.errors import (
    ChainForked,
    ChainShortened,
    PinnedStateDamaged,
    RegistryError,
    RegistryUnreachable,
    RolledBack,
    StoreError,
)
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.monitor import pinned_state as memory_file
from kiwi_rag.monitor.monitor import VersionState, check_rollback, database_address, follow, newer
from kiwi_rag.monitor.pinned_state import (
    PinnedState,
    RegistryIdentity,
    SeenVersion,
    pinned_state_path,
    pinned_states,
    read_all,
)
from kiwi_rag.registry.rows import Checkpoint, parse_head
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import RevocationNotice, Signer, SignerStatus, TrustPolicy, apply_revocations
from kiwi_rag.validation.audit import AuditHead

HERE = RegistryIdentity("acme", "db.example:5432/kiwi")
X = ItemRef(ItemType.DIRECTIVE, "acme/x_y", "1.0.0")
NOW = datetime(2026, 5, 1, tzinfo=UTC)
KEY = keys.generate("ada")


def digest(n: int) -> str:
    return f"{n:064x}"


def head(seq: int) -> AuditHead:
    return AuditHead(seq, digest(seq))


def notice(
    status: SignerStatus = SignerStatus.COMPROMISED, since: datetime = NOW, key_id: str = ""
) -> RevocationNotice:
    return RevocationNotice(key_id or KEY.key_id, "ada", status, since, "laptop stolen", "acme")


def told(notices: list[RevocationNotice], *yanked: str) -> Checkpoint:
    return Checkpoint(AuditHead(), None, tuple(notices), yanked)


@pytest.fixture
def made(tmp_path: Path) -> PinnedState:
    return PinnedState(pinned_state_path(tmp_path / "registries", HERE), HERE)


def test_nothing_is_made_by_reading(made: PinnedState) -> None:
    assert (made.read().head, dict(made.seen(X)), made.notices(), made.read().checked_at) == (AuditHead(), {}, (), None)
    assert not made.path.parent.exists()


def test_what_is_remembered_is_there_for_the_next_process(made: PinnedState) -> None:
    made.pin_checkpoint(head(3), told([notice()]), NOW)
    made.pin_versions([(X, SeenVersion("1.0.0", digest(1), KEY.key_id, found_by="model"))])
    made.close()
    (again,) = pinned_states(made.path.parent)
    assert again.identity == HERE
    assert (again.read().head, again.read().signers_seq, again.read().checked_at) == (head(3), 3, NOW)
    assert list(again.notices()) == [notice()]
    folded = ItemRef(X.item_type, "acme/X-y".lower())
    assert again.seen(folded) == {"1.0.0": SeenVersion("1.0.0", digest(1), KEY.key_id, found_by="model", number=1)}
    assert made.path.stat().st_mode & 0o777 == 0o600
    assert made.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_memory_only_grows_more_suspicious(made: PinnedState) -> None:
    made.pin_checkpoint(head(5), told([]), NOW)
    made.pin_checkpoint(head(4), told([]), NOW)
    assert made.read().head == head(5)
    with pytest.raises(ChainForked):
        made.pin_checkpoint(AuditHead(5, digest(6)), told([]), NOW)
    yanked = SeenVersion("1.0.0", digest(1), "k", yanked=True, found_by="model")
    made.pin_versions([(X, yanked), (X, SeenVersion("1.0.0", digest(1), "k"))])
    made.pin_versions([(X, SeenVersion("1.0.0", digest(2), "other"))])
    (kept,) = made.seen(X).values()
    assert (kept.digest, kept.yanked, kept.found_by) == (digest(1), True, "model")


def test_only_what_was_seen_is_remembered_as_yanked(made: PinnedState) -> None:
    made.pin_versions([(X, SeenVersion("1.0.0", digest(1), "k"))])
    made.pin_checkpoint(head(1), told([], *map(digest, range(1000))), NOW)
    (ref,) = made.items()
    (kept,) = made.seen(ref).values()
    assert (ref.key, kept.version, kept.yanked) == (X.key, "1.0.0", True)


def test_every_yank_is_remembered_apart_from_the_versions_that_were_seen(made: PinnedState) -> None:
    assert read_all(made.path.parent, lambda pinned: pinned.yanked([digest(1)])) == []
    assert not made.read().has_all_yanks
    made.pin_checkpoint(head(1), told([], digest(1), digest(2)), NOW)
    made.pin_versions([(X, SeenVersion("1.0.0", digest(3), "k", yanked=True))])
    asked = [digest(number) for number in range(5)]
    assert set(read_all(made.path.parent, lambda pinned: pinned.yanked(asked))) == {digest(1), digest(2), digest(3)}
    assert made.read().has_all_yanks
    assert [ref.key for ref in made.items()] == [X.key]
    assert made.key_ids() == ("k",)


@pytest.mark.parametrize("forget", [lambda made: made.accept(head(2)), lambda made: made.forget(X)])
def test_what_was_yanked_is_asked_for_again_after_something_was_accepted(made: PinnedState, forget: object) -> None:
    made.pin_checkpoint(head(1), told([], digest(1)), NOW)
    forget(made)  # type: ignore[operator]
    assert not made.read().has_all_yanks
    assert made.yanked([digest(1)]) == frozenset()


def test_a_memory_made_before_yanks_were_kept_still_serves(made: PinnedState) -> None:
    made.pin_checkpoint(head(3), told([notice()]), NOW)
    made.close()
    with sqlite3.connect(made.path) as connection:
        connection.execute("DROP TABLE yanks")
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    assert (made.read().head, list(made.notices()), made.read().has_all_yanks) == (head(3), [notice()], False)
    made.pin_checkpoint(head(3), told([], digest(1)), NOW)
    assert made.yanked([digest(1)]) == {digest(1)}


def test_accepting_forgets_versions_and_keeps_revocations(made: PinnedState) -> None:
    made.pin_checkpoint(head(5), told([notice()]), NOW)
    made.pin_versions([(X, SeenVersion("1.0.0", digest(1), "k"))])
    made.accept(head(2))
    assert (made.read().head, dict(made.seen(X)), made.read().signers_seq) == (head(2), {}, 0)
    assert list(made.notices()) == [notice()]


def test_an_overruled_notice_stays_overruled(made: PinnedState) -> None:
    made.pin_checkpoint(head(1), told([notice()]), NOW)
    assert made.overrule(KEY.key_id, overruled=True) == 1
    made.pin_checkpoint(head(2), told([notice(since=NOW + timedelta(days=1))]), NOW)
    (kept,) = made.notices()
    policy = TrustPolicy((Signer("ada", KEY.public_key),))
    assert kept.overruled
    assert apply_revocations(policy, [kept]) == policy
    made.overrule(KEY.key_id, overruled=False)
    assert apply_revocations(policy, made.notices()).signers[0].status is SignerStatus.COMPROMISED


def _write(folder: str, who: int) -> None:
    mine = PinnedState(pinned_state_path(Path(folder), HERE), HERE)
    for n in range(1, 41):
        mine.pin_checkpoint(head(n * 4 + who), told([notice(key_id=digest(who))]), NOW)
        mine.pin_versions([(ItemRef(X.item_type, f"acme/p{who}-{n}"), SeenVersion("1.0.0", digest(n), "k"))])
    mine.close()


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Also at the very start, when each finds that there is no file yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # once for all of them
    processes = [context.Process(target=_write, args=(str(tmp_path), who)) for who in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    after = PinnedState(pinned_state_path(tmp_path, HERE), HERE)
    assert after.read().head == head(163)
    assert len(after.items()) == 160
    assert {n.key_id for n in after.notices()} == {digest(who) for who in range(4)}
    assert [p.name for p in tmp_path.iterdir()] == [after.path.name]


def test_its_size_is_bounded(made: PinnedState, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [(X, SeenVersion(f"1.0.{n}", digest(n), "k")) for n in range(100)]
    made.pin_versions(many)
    kept = made.seen(X)
    assert len(kept) == memory_file.MAX_VERSIONS_OF_AN_ITEM
    assert "1.0.99" in kept
    monkeypatch.setattr(memory_file, "MAX_VERSIONS", 10)
    monkeypatch.setattr(memory_file, "MAX_NOTICES", 5)
    made.pin_versions([(ItemRef(X.item_type, "acme/z"), SeenVersion("1.0.0", digest(1), "k"))])
    assert sum(len(made.seen(ref)) for ref in made.items()) == 10
    moments = [NOW + timedelta(days=n) for n in range(20)]
    made.pin_checkpoint(head(1), told([notice(since=at, key_id=digest(n)) for n, at in enumerate(moments)]), NOW)
    assert [n.since for n in made.notices()] == moments[-5:]


DAMAGES = {
    "no database": lambda path: path.write_bytes(b"hello"),
    "empty": lambda path: path.write_bytes(b""),
    "flipped header": lambda path: path.write_bytes(b"X" + path.read_bytes()[1:]),
    "no table": lambda path: _edit(path, "DROP TABLE versions"),
    "no column": lambda path: _edit(path, "ALTER TABLE notices DROP COLUMN reason"),
    "no row": lambda path: _edit(path, "DELETE FROM registry"),
    "a hash that is none": lambda path: _edit(path, "UPDATE registry SET head_hash = 'x'"),
    "another registry": lambda path: _edit(path, "UPDATE registry SET name = 'other'"),
    "a head without number": lambda path: _edit(path, "UPDATE registry SET head_seq = 0"),
}


def _edit(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told_and_set_aside(made: PinnedState, damage) -> None:
    made.pin_checkpoint(head(3), told([notice()]), NOW)
    made.close()
    damage(made.path)
    broken = PinnedState(made.path, HERE)
    for ask in (broken.read, lambda: broken.pin_checkpoint(head(9), told([]), NOW)):
        with pytest.raises(PinnedStateDamaged) as error:
            ask()
        assert "kiwi registry accept" in error.value.hint
    aside = broken.move_aside()
    assert aside.exists()
    assert broken.read().head == AuditHead()
    assert pinned_states(made.path.parent) == []


def test_a_log_must_hold_the_head_that_was_seen() -> None:
    assert follow(AuditHead(), Checkpoint(head(2), None, ())) == head(2)
    assert follow(head(2), Checkpoint(head(2), digest(2), ())) == head(2)
    assert follow(head(2), Checkpoint(head(9), digest(2), ())) == head(9)
    for checkpoint in (
        Checkpoint(head(9), digest(3), ()),
        Checkpoint(head(9), None, ()),
        Checkpoint(AuditHead(2, digest(7)), digest(2), ()),
    ):
        with pytest.raises(ChainForked):
            follow(head(2), checkpoint)
    for now in (AuditHead(), head(1)):
        with pytest.raises(ChainShortened):
            follow(head(2), Checkpoint(now, None, ()))


def test_only_a_live_higher_version_by_a_good_key_speaks_against_an_older_one() -> None:
    seen = [
        SeenVersion("1.10.0", digest(1), "good"),
        SeenVersion("2.0.0", digest(2), "bad"),
        SeenVersion("3.0.0", digest(3), "good", yanked=True),
        SeenVersion("1.9.0", digest(4), "good"),
        SeenVersion("1.11.0-rc.1", digest(5), "good"),
    ]
    assert [s.version for s in newer("1.9.0", seen, {"bad"})] == ["1.11.0-rc.1", "1.10.0"]
    assert newer("3.0.0", seen, ()) == []


@pytest.mark.parametrize(
    ("told", "found_before", "was_yanked"),
    [
        (VersionState(digest(2), yanked=True, revoked=False, passages=3), "", True),
        (VersionState(digest(2), yanked=False, revoked=False, passages=0), "", False),
        (VersionState(digest(2), yanked=False, revoked=False, passages=0), "model", None),
        (VersionState(digest(2), yanked=False, revoked=False, passages=3), "", None),
        (VersionState(digest(2), yanked=False, revoked=True, passages=3), "", None),
        (VersionState(digest(9), yanked=True, revoked=False, passages=0), "", None),
        (None, "", None),
    ],
)
def test_what_excuses_an_older_version(told: VersionState | None, found_before: str, was_yanked: bool | None) -> None:
    above = SeenVersion("2.0.0", digest(2), "k", found_by=found_before)
    if was_yanked is not None:
        assert check_rollback(X, above, told, "model") is was_yanked
    else:
        with pytest.raises(RolledBack):
            check_rollback(X, above, told, "model")


@pytest.mark.parametrize("text", ["", "0", "0:x", "1:", f"0:{digest(1)}", f"-1:{digest(1)}", f"x:{digest(1)}", None, 7])
def test_a_head_that_is_none(text: object) -> None:
    with pytest.raises(RegistryError):
        parse_head(text)


def test_a_place_names_no_user_and_no_password() -> None:
    assert database_address("postgresql://ada:secret@DB.example:6543/kiwi?sslmode=require") == "db.example:6543/kiwi"
    assert database_address("postgresql://bob@db.example:6543/kiwi") == "db.example:6543/kiwi"
    with pytest.raises(RegistryUnreachable):
        database_address("postgresql://ada:sec/ret@db.example/kiwi")


def test_a_registry_takes_trust_and_gives_none() -> None:
    bob = keys.generate("bob")
    early, late = NOW - timedelta(days=9), NOW + timedelta(days=9)
    ada = Signer("ada", KEY.public_key)
    retired = notice(SignerStatus.RETIRED)
    (after,) = apply_revocations(TrustPolicy((ada,)), [retired]).signers
    assert (after.status, after.valid_before) == (SignerStatus.RETIRED, NOW)
    assert after.origin == "retired by registry acme on 2026-05-01 (laptop stolen)"
    for own in (
        Signer("ada", KEY.public_key, valid_before=early),
        Signer("ada", KEY.public_key, status=SignerStatus.COMPROMISED),
        Signer("bob", bob.public_key),
    ):
        assert apply_revocations(TrustPolicy((own,)), [retired]).signers == (own,)
    (both,) = apply_revocations(TrustPolicy((ada,)), [notice(since=late), retired]).signers
    assert both.status is SignerStatus.COMPROMISED
    assert apply_revocations(TrustPolicy(), [retired]) == TrustPolicy()


def test_threads_that_share_a_memory_do_not_come_between_each_other(made: PinnedState) -> None:
    def write(who: int) -> None:
        for n in range(1, 101):
            made.pin_checkpoint(head(n * 4 + who), told([notice(key_id=digest(who))]), NOW)
            made.pin_versions([(ItemRef(X.item_type, f"acme/p{who}-{n}"), SeenVersion("1.0.0", digest(n), "k"))])
            assert made.read().head.seq >= n * 4 + who

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert made.read().head == head(403)
    assert len(made.items()) == 400
    assert {n.key_id for n in made.notices()} == {digest(who) for who in range(4)}


def test_a_wrong_call_is_not_taken_for_damage(made: PinnedState) -> None:
    made.pin_checkpoint(head(3), told([notice()]), NOW)
    with pytest.raises(StoreError) as error, made._writing() as connection:
        connection.execute("BEGIN")
    assert not isinstance(error.value, PinnedStateDamaged)
    assert "accept" not in error.value.hint
    assert made.read().head == head(3)
