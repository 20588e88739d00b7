"""The ranking of a conversation memory: exchanges with their neighbours, speakers and times."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.collection import MEMORY, Collection
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import (
    Candidate,
    Filters,
    ItemScores,
    Passage,
    SearchQuery,
    SearchReply,
    SearchResult,
)
from kiwi_rag.model.exchanges import Exchange, id_of
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.search.exchanges import (
    NEIGHBOUR_SHARE,
    RECENCY_BONUS,
    SPEAKER_BONUS,
    above_floor,
    is_said_by,
    moment_of,
    neighbour_gains,
)
from kiwi_rag.search.ranking import RankedHit
from kiwi_rag.sources.workspace.source import WorkspaceSource
from tests.workspaces import Yard

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


@dataclass
class Memory(Yard):
    """Exchanges as the files of a folder, in a tier of the name that a memory has."""

    @property
    def tier(self) -> Collection[Any]:
        return replace(super().tier, name=MEMORY)

    async def hold(self, exchanges: Iterable[Exchange]) -> None:
        for one in exchanges:
            self.write(one.path, one.canonical)
        await self.index()

    async def ask(self, text: str, **options: Any) -> SearchReply:
        return await self.searcher.search(SearchQuery(text, **({"per_file": 1} | options)))


def exchange(n: int, user: str, assistant: str = "I see.", session: str = "s1") -> Exchange:
    names = {"user_name": "Ada", "assistant_name": "Ben"}
    return Exchange(f"e{n}", session, user, assistant, START + timedelta(minutes=n), metadata=names)


def ids(reply: SearchReply) -> list[str]:
    return [id_of(hit.ref.item_id) for hit in reply.hits]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    read = WorkspaceSource.read

    def dated(self: WorkspaceSource, path: str) -> Any:
        """Label an exchange with its own time, as the source of a memory does."""
        content = read(self, path)
        n = int(id_of(path)[1:])
        labels = {**content.candidate.labels, "last_modified": (START + timedelta(minutes=n)).isoformat()}  # type: ignore[union-attr]
        return replace(content, candidate=replace(content.candidate, labels=labels))

    monkeypatch.setattr(WorkspaceSource, "read", dated)
    return Memory(tmp_path / "memory")


TALK = (
    exchange(0, "The harbour opens at six.", "Then the ferry leaves at seven."),
    exchange(1, "Which berth is free?", "Berth four is free until noon."),
    exchange(2, "The anchor chain is rusty.", "I ordered a new anchor chain."),
    exchange(3, "Tides turn at nine.", "Spring tides are higher.", "s2"),
    exchange(4, "Lunch is fish.", "With lemon, please.", "s2"),
)


async def test_each_exchange_is_found_once_by_its_best_message(memory: Memory) -> None:
    await memory.hold(TALK)
    reply = await memory.ask("anchor chain ordered")
    assert ids(reply)[0] == "e2"
    assert len(set(ids(reply))) == len(ids(reply))
    assert reply.hits[0].passage.text == "Ben: I ordered a new anchor chain."
    assert reply.hits[0].metadata["title"] == "2 March 2026, Ada and Ben"
    assert reply.close is None
    assert not reply.gone
    await memory.store.close()


async def test_with_no_cap_both_messages_of_an_exchange_are_hits(memory: Memory) -> None:
    await memory.hold(TALK)
    assert ids(await memory.ask("anchor chain", per_file=0))[:2] == ["e2", "e2"]
    await memory.store.close()


async def test_the_neighbours_of_an_exchange_are_part_of_its_score(memory: Memory) -> None:
    await memory.hold(TALK)
    for fusion, alpha, expected in (("convex", None, True), ("convex", 0.0, False), ("rrf", None, False)):
        reply = await memory.ask("anchor chain rusty", fusion=fusion, alpha=alpha)
        parts = {id_of(hit.ref.item_id): hit.parts for hit in reply.hits}
        gains = {name: part["neighbours"] for name, part in parts.items()}
        assert (gains.get("e1", 0) > 0) is expected  # by words alone it is not found
        assert gains.get("e3", 0) <= gains.get("e1", 0)
        assert {part["fusion"] for part in parts.values()} == {fusion}
    await memory.store.close()


async def test_the_score_is_the_sum_of_its_parts(memory: Memory) -> None:
    await memory.hold(TALK)
    for hit in (await memory.ask("Which berth did Ben name?", half_life_days=7, per_file=0)).hits:
        p = hit.parts
        legs = p["alpha"] * p["vectors"] + (1 - p["alpha"]) * p["words"]
        assert hit.score == pytest.approx(legs + p["speaker"] + p["neighbours"] + p["recency"])
    await memory.store.close()


async def test_a_message_of_the_named_speaker_comes_first(memory: Memory) -> None:
    await memory.hold([exchange(n, "A blue sail.", "A blue boat.") for n in range(2)])
    for name in ("Ada", "Ben"):
        best = (await memory.ask(f"What is blue, {name}?", per_file=0)).hits[0]
        assert best.passage.heading == (name,)
        assert best.parts["speaker"] == SPEAKER_BONUS
        assert {hit.parts["speaker"] for hit in (await memory.ask(f"What is blue, {name}?")).hits} == {0.0}
    await memory.store.close()


async def test_age_counts_with_a_half_life_alone(memory: Memory) -> None:
    await memory.hold([exchange(0, "The berth is red."), exchange(800_000, "The berth is green.", session="s2")])
    plain = await memory.ask("berth")
    assert {hit.parts["recency"] for hit in plain.hits} == {0.0}
    assert {hit.parts["recency"] for hit in (await memory.ask("berth", half_life_days=0.0)).hits} == {0.0}
    aged = {id_of(hit.ref.item_id): hit.parts["recency"] for hit in (await memory.ask("berth", half_life_days=30)).hits}
    assert 0 <= aged["e0"] < aged["e800000"] <= RECENCY_BONUS
    await memory.store.close()


async def test_since_is_the_time_of_the_exchange(memory: Memory) -> None:
    await memory.hold([exchange(n, f"Berth {n} is free.") for n in range(6)])
    recent = await memory.ask("berth free", filters=Filters(since=START + timedelta(minutes=4)))
    assert sorted(ids(recent)) == ["e4", "e5"]
    await memory.store.close()


async def test_one_text_is_one_hit(memory: Memory) -> None:
    await memory.hold([exchange(n, "The pilot boards at the outer buoy.", "") for n in range(4)])
    (hit,) = (await memory.ask("where does the pilot board")).hits
    assert len(hit.duplicates) == 3
    await memory.store.close()


# -- pure parts ------------------------------------------------------------------------------------------------------


def hit(path: str, score: float, minute: int | None = 0) -> RankedHit:
    modified = {} if minute is None else {"last_modified": (START + timedelta(minutes=minute)).isoformat()}
    candidate = Candidate(
        ItemRef(ItemType.DOCUMENT, path), "", "", Passage(0, "x", "", ("Ada",), 1, 1), 0.0, 0.0, modified, "", START,
        ItemScores(0.0, 0.0, 0.0, 0.0, 0.0),
    )  # fmt: skip
    return RankedHit(MEMORY, 0, "exact", candidate, score)


def gained(hits: Sequence[RankedHit]) -> Mapping[str, float]:
    return neighbour_gains(hits, [hit.score for hit in hits])


def test_an_exchange_gains_by_the_better_neighbour_of_its_session() -> None:
    hits = [hit("s/-/a", 0.9, 1), hit("s/-/b", 0.2, 2), hit("s/-/b", 0.3, 2), hit("s/-/c", 0.6, 3), hit("t/-/d", 1, 4)]
    gains = gained(hits)
    expected = {"s/-/a": 0.1, "s/-/b": 0.7, "s/-/c": 0.1, "t/-/d": 0}
    assert gains == pytest.approx({path: NEIGHBOUR_SHARE * gain for path, gain in expected.items()})
    assert gained([]) == {}
    assert gained(hits[:1]) == {"s/-/a": 0}


def test_the_order_of_candidates_does_not_change_what_an_exchange_gains() -> None:
    hits = [hit(f"s{n % 3}/-/{n}", (n * 7 % 11) / 11, n // 2) for n in range(40)]
    shuffled = random.Random(4).sample(hits, len(hits))
    assert gained(hits) == gained(shuffled)


@pytest.mark.parametrize(("modified", "expected"), [
    ("2026-03-02T10:00:00+01:00", START), ("2026-03-02T09:00:00", START), ("", START), ("yesterday", START), (7, START),
    ("2026-03-02T09:30:00+00:00", START + timedelta(minutes=30)),
])  # fmt: skip
def test_the_time_of_an_exchange_is_that_of_its_metadata(modified: Any, expected: datetime) -> None:
    candidate = hit("s/-/a", 0, None).candidate
    assert moment_of(candidate._replace(metadata={"last_modified": modified})) == expected
    assert moment_of(candidate) == START


@pytest.mark.parametrize(("query", "speaker", "expected"), [
    ("What did Ada buy?", ("Ada",), True), ("What did ADA's son buy?", ("Ada",), True), ("the adage", ("Ada",), False),
    ("What did Ada Byron buy?", ("Ada Byron",), True), ("What did Ada buy?", ("Ada Byron",), False),
    ("What did I say?", ("I",), False), ("What did Ada buy?", (), False),
])  # fmt: skip
def test_a_speaker_is_named_by_all_words_of_the_name(query: str, speaker: tuple[str, ...], expected: bool) -> None:
    assert is_said_by(Passage(0, "x", "", speaker, 1, 1), set(query_terms(query))) is expected


def results(*scored: tuple[float, float]) -> Sequence[SearchResult]:
    ref, passage = ItemRef(ItemType.DOCUMENT, "s/-/e.exchange"), Passage(0, "x", "", (), 1, 1)
    return [
        SearchResult(ref, MEMORY, (MEMORY,), (), passage, {}, score, {"best_cosine": cosine}, "", "", "", START)
        for score, cosine in scored
    ]


@pytest.mark.parametrize(("scored", "threshold", "dynamic", "kept"), [
    ([], 0.7, True, []),
    ([(0.9, 0.8), (0.8, 0.4), (0.7, 0.39)], 0.7, False, [0, 1]),
    ([(0.9, 0.1), (0.8, 0.8)], 0.7, True, [1]),
    ([(0.9, -1.0)], 0.0, False, [0]),
    ([(0.9, 0.1)], 0.7, True, []),
    ([(0.5, 0.0), (0.4, 0.0), (0.39, 0.0)], 0.0, True, [0, 1]),
    ([(0.39, 0.0), (0.5, 0.0)], 0.0, True, [1]),
    ([(0.5, 0.0), (0.1, 0.0)], 0.0, False, [0, 1]),
])  # fmt: skip
def test_a_floor_leaves_out_what_is_not_similar_or_scores_far_below_the_best(
    scored: list[tuple[float, float]], threshold: float, dynamic: bool, kept: list[int]
) -> None:
    hits = results(*scored)
    assert above_floor(hits, threshold, dynamic=dynamic) == [hits[n] for n in kept]
