"""Which hits are shown: each content once, no signer too often, and always as many as were asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import RegistryUnreachable
from kiwi_rag.model import Candidate, CollectionStatistics, ItemScores, Passage, SearchReply
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.search.diversify import NEAR, count_near_signers
from kiwi_rag.search.hits import MAX_NAMED
from kiwi_rag.search.ranking import RankedHit
from kiwi_rag.signing.trust import TrustPolicy
from tests.search_tiers import BOB, EVE, NOW, THREE, TRUST, Shelf, note

QUERY = "deploy staging cluster"


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    made = Shelf(tmp_path)
    yield made
    await made.close()


def ids(reply: SearchReply) -> list[str]:
    return [hit.ref.item_id for hit in reply.hits]


def signers(reply: SearchReply) -> list[str]:
    return [hit.principal.partition("@")[0] for hit in reply.hits]


def told(reply: SearchReply) -> list[tuple[Any, ...]]:
    """What a reply shows, in full."""
    return [(h.ref, h.tier, h.tiers, h.shadows, h.passage, round(h.score, 12), h.duplicates) for h in reply.hits]


class Lying:
    """A store that changes its candidates or statistics before it gives them, or fails where it gives them."""

    def __init__(self, inner: Any, *, candidate: Callable[[Candidate], Candidate] | None = None, **told: Any) -> None:
        self._inner, self._candidate, self._told = inner, candidate, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def statistics(self, terms: Any) -> CollectionStatistics:
        known: CollectionStatistics = await self._inner.statistics(terms)
        return replace(known, **self._told.get("statistics", {}))

    async def search(self, query: Any) -> Any:
        if "error" in self._told:
            raise self._told["error"]
        found = await self._inner.search(query)
        return replace(found, items=tuple(self._candidate(c) if self._candidate else c for c in found.items))


class Counting(Lying):
    """A store that notes what is fetched from it."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.fetched: list[Any] = []

    async def get(self, ref: Any, files: Any = None) -> Any:
        self.fetched.append(ref)
        return await self._inner.get(ref, files)


# -- signers ---------------------------------------------------------------------------------------------------------


async def crowd(shelf: Shelf, *others: Any) -> None:
    """Six items of ada's that match best, and two of each other signer's that match nearly as well."""
    for number in range(6):
        words = f"deploy staging cluster, deploy staging cluster {number}"
        await shelf.put("project", f"ada/n{number}", note("Deploy staging cluster", words))
    for key in others:
        for number in range(2):
            body = f"Deploy staging cluster, of {key.name}, number {number}."
            await shelf.put("user", f"{key.name}/n{number}", note("Deploy staging cluster", body), key=key)


async def far(shelf: Shelf, *others: Any) -> None:
    """Two items of each signer that match much worse."""
    for key in others:
        for number in range(2):
            body = f"A cluster of {key.name}, among many other things that are said here, number {number}."
            await shelf.put("user", f"{key.name}/far{number}", note(f"Staging {number}", body), key=key)


async def test_of_three_signers_none_fills_more_than_half(shelf: Shelf) -> None:
    await crowd(shelf, BOB, EVE)
    reply = await shelf.search(QUERY, limit=5, trust=THREE)
    assert signers(reply).count("ada") == 3
    assert signers(reply)[:3] == ["ada"] * 3
    assert len(reply.hits) == 5
    scores = [hit.score for hit in reply.hits]
    assert scores == sorted(scores, reverse=True)
    assert reply.explanation
    assert (reply.explanation.signers, reply.explanation.cap, reply.explanation.suppressed) == (3, 3, 3)


async def test_below_three_signers_there_is_no_cap(shelf: Shelf) -> None:
    await crowd(shelf, BOB)
    reply = await shelf.search(QUERY, limit=5)
    assert signers(reply) == ["ada"] * 5
    assert reply.explanation
    assert (reply.explanation.signers, reply.explanation.cap, reply.explanation.suppressed) == (2, None, 0)


async def test_a_cap_may_be_asked_for_and_turned_off(shelf: Shelf) -> None:
    await crowd(shelf, BOB, EVE)
    assert sorted(signers(await shelf.search(QUERY, limit=3, trust=THREE, per_signer=1))) == ["ada", "bob", "eve"]
    assert signers(await shelf.search(QUERY, limit=5, trust=THREE, per_signer=0)) == ["ada"] * 5


async def test_what_the_cap_kept_out_fills_up_where_hits_are_missing(shelf: Shelf) -> None:
    await crowd(shelf, BOB, EVE)
    reply = await shelf.search(QUERY, limit=8, trust=THREE, per_signer=1)
    assert len(reply.hits) == 8
    assert set(signers(reply)) == {"ada", "bob", "eve"}
    whole = await shelf.search(QUERY, limit=200, trust=THREE, per_signer=1)
    assert len(whole.hits) == 10


async def test_who_signed_is_not_taken_from_the_tiers_word(shelf: Shelf) -> None:
    await crowd(shelf, BOB, EVE)
    turn = iter([BOB.key_id, EVE.key_id] * 500)
    lying = Lying(shelf.tier("project").store, candidate=lambda c: c._replace(key_id=next(turn)))
    shelf.wrap("project", lying)
    reply = await shelf.search(QUERY, limit=5, trust=THREE, per_signer=2)
    assert signers(reply).count("ada") == 2
    assert len(reply.hits) == 5


async def test_the_cap_gives_no_place_to_what_matches_much_worse(shelf: Shelf) -> None:
    await crowd(shelf)
    await far(shelf, BOB, EVE)
    every = await shelf.search(QUERY, limit=20, trust=THREE, per_signer=0)
    scores = {hit.ref.item_id: hit.score for hit in every.hits}
    best_of_others = max(score for name, score in scores.items() if not name.startswith("ada/"))
    assert best_of_others < NEAR * min(score for name, score in scores.items() if name.startswith("ada/"))
    reply = await shelf.search(QUERY, limit=5, trust=THREE, per_signer=1)
    assert ids(reply) == ids(every)[:5]
    assert reply.explanation and reply.explanation.suppressed == 0


def entry(name: str, score: float, key_id: str) -> RankedHit:
    moment, passage = datetime(2026, 1, 1, tzinfo=UTC), Passage(0, "body", "", (), 1, 1)
    ref, item = ItemRef(ItemType.KNOWLEDGE, name, "1.0.0"), ItemScores(score, score, score, 0.0, 0.0)
    candidate = Candidate(ref, "0" * 64, "0" * 64, passage, score, 0.0, {}, key_id, moment, item)
    return RankedHit("user", 1, "exact", candidate, score, {})


def test_only_signers_of_what_is_nearly_as_good_as_the_best_count_towards_a_cap() -> None:
    who = {"a": "ada", "b": "bob", "e": "eve", "again": "ada"}
    near = [entry("a/1", 0.5, "a"), entry("a/2", 0.45, "again"), entry("b/1", 0.4, "b"), entry("x/1", 0.5, "nobody")]
    assert count_near_signers([*near, entry("e/1", 0.39, "e")], who) == 2
    assert count_near_signers([*near, entry("e/1", 0.41, "e")], who) == 3
    assert count_near_signers([], who) == 0


# -- the same content ------------------------------------------------------------------------------------------------


async def test_the_same_content_under_other_ids_is_one_hit_that_names_them(shelf: Shelf) -> None:
    content = note("Deploy staging cluster", "Deploy the staging cluster.")
    for tier, item in (("user", "old/deploy"), ("registry", "acme/deploy"), ("project", "me/deploy")):
        await shelf.put(tier, item, content)
    await shelf.put("user", "me/other", note("Other", "The cluster, again."))
    reply = await shelf.search(QUERY, limit=2)
    assert ids(reply) == ["me/deploy", "me/other"]
    assert reply.hits[0].duplicates == ("knowledge:old/deploy@1.0.0@user", "knowledge:acme/deploy@1.0.0@registry")
    assert reply.hits[1].duplicates == ()
    (only,) = (await shelf.search(QUERY, limit=1)).hits
    assert (only.ref.item_id, len(only.duplicates)) == ("me/deploy", 2)


async def test_a_newer_copy_does_not_take_the_place_of_what_it_copies(shelf: Shelf) -> None:
    content = note("Deploy staging cluster", "Deploy the staging cluster.")
    await shelf.put("user", "zz/original", content, at=NOW - timedelta(days=40))
    await shelf.put("user", "aa/copy", content, key=BOB)
    await shelf.put("user", "me/other", note("Other", "The cluster, again."))
    for half_life in (None, 10.0):  # the copy's id, and with an eye on age its score, go before the original's
        reply = await shelf.search(QUERY, half_life_days=half_life)
        assert ids(reply) == ["zz/original", "me/other"]
        assert reply.hits[0].duplicates == ("knowledge:aa/copy@1.0.0@user",)
        assert reply.hits[0].principal == "ada@acme"
        assert reply.hits[0].score >= reply.hits[1].score


async def test_of_many_copies_a_few_are_looked_at_and_named(shelf: Shelf) -> None:
    content = note("Deploy staging cluster", "Deploy the staging cluster.")
    async with shelf.tier("user").store.writing():
        for number in range(48):  # their passages are within the depth of a first round
            await shelf.put("user", f"copy/n{number:02}", content, at=NOW + timedelta(seconds=number))
    await shelf.put("user", "me/other", note("Other", "The cluster, again."))
    await shelf.put("project", "me/mine", note("Other", "Another cluster."))
    counting = Counting(shelf.tier("user").store)
    shelf.wrap("user", counting)
    reply = await shelf.search(QUERY, limit=3)
    assert sorted(ids(reply)) == ["copy/n00", "me/mine", "me/other"]
    first = next(hit for hit in reply.hits if hit.ref.item_id == "copy/n00")
    assert (len(first.duplicates), first.more_duplicates) == (MAX_NAMED, 47 - MAX_NAMED)
    assert len(counting.fetched) < 48


async def test_what_is_said_to_be_one_more_copy_is_looked_at_where_hits_are_missing(shelf: Shelf) -> None:
    content = note("Deploy staging cluster", "Deploy the staging cluster.")
    for number in range(30):
        made = await shelf.put("user", f"copy/n{number:02}", content)
    lie = made.item.metadata
    await shelf.put("user", "me/other", note("Other", "The cluster, again."))
    await shelf.put("project", "me/mine", note("Other", "Another cluster."))
    for name in ("user", "project"):
        shelf.wrap(name, Lying(shelf.tier(name).store, candidate=lambda c: c._replace(metadata=lie)))
    assert sorted(ids(await shelf.search(QUERY, limit=3))) == ["copy/n00", "me/mine", "me/other"]
    two_hits = ids(await shelf.search(QUERY, limit=2))
    assert sorted(two_hits) == ["copy/n00", "me/mine"]


async def test_a_tier_cannot_make_other_content_a_duplicate(shelf: Shelf) -> None:
    first = await shelf.put("project", "acme/a", note("Deploy staging cluster", "Deploy the staging cluster."))
    await shelf.put("user", "acme/b", note("Deploy staging", "Deploy another staging cluster."))
    lie = first.item.metadata
    shelf.wrap("user", Lying(shelf.tier("user").store, candidate=lambda c: c._replace(metadata=lie)))
    reply = await shelf.search(QUERY, limit=5)
    assert sorted(ids(reply)) == ["acme/a", "acme/b"]
    assert [hit.duplicates for hit in reply.hits] == [(), ()]
    assert [hit.duplicates for hit in (await shelf.search(QUERY, limit=1)).hits] == [()]


async def test_a_tier_cannot_claim_to_hold_the_same_under_one_id(shelf: Shelf) -> None:
    first = await shelf.put("project", "acme/a", note("Deploy staging cluster", "Deploy the staging cluster."))
    await shelf.put("registry", "acme/a", note("Deploy staging", "Deploy another staging cluster."), key=BOB)
    lie = first.item.content_sha256
    shelf.wrap("registry", Lying(shelf.tier("registry").store, candidate=lambda c: c._replace(content_sha256=lie)))
    (hit,) = (await shelf.search(QUERY)).hits
    assert (hit.tiers, hit.shadows) == (("project",), ("registry!bob@acme",))


# -- as many as were asked for ---------------------------------------------------------------------------------------


def long_note(steps: int) -> str:
    body = "\n\n".join(f"## Step {n}\n\n" + f"Deploy the staging cluster, part {n}. " * 16 for n in range(steps))
    return note("Deploy the staging cluster", body)


@pytest.mark.slow
@pytest.mark.parametrize("exact_limit", [10**6, 0], ids=["exact", "chroma"])
async def test_one_item_with_hundreds_of_passages_does_not_crowd_out_the_others(
    tmp_path: Path, exact_limit: int
) -> None:
    shelf = Shelf(tmp_path, exact_limit)
    async with shelf.tier("project").store.writing():
        await shelf.put("project", "acme/long", long_note(320))
        for number in range(9):
            await shelf.put("project", f"acme/short-{number}", note(f"Lunch {number}", "Some cluster of grapes."))
    assert (await shelf.tier("project").store.status()).passages > 320
    reply = await shelf.search(QUERY, limit=10)
    assert len(reply.hits) == 10
    assert reply.hits[0].ref.item_id == "acme/long"
    assert reply.explanation
    assert reply.explanation.rounds > 1
    assert reply.tiers[0].plan == ("exact" if exact_limit else "chroma")
    assert (await shelf.search(QUERY, limit=1)).explanation.rounds == 1
    await shelf.close()


async def test_nothing_is_asked_twice_where_nothing_is_left(shelf: Shelf) -> None:
    for number in range(3):
        await shelf.put("project", f"acme/n{number}", note(f"Deploy {number}", "Deploy the staging cluster."))
    reply = await shelf.search(QUERY, limit=10)
    assert len(reply.hits) == 3
    assert reply.explanation
    assert reply.explanation.rounds == 1


# -- a tier that fails has no say in the others' scores ----------------------------------------------------------------


async def two(shelf: Shelf) -> None:
    for number, words in enumerate(("deploy", "deploy staging", "staging cluster", "cluster cluster cluster deploy")):
        await shelf.put("project", f"acme/p{number}", note(f"{words} {number}", f"It is about {words}, {number}."))
        await shelf.put("user", f"me/u{number}", note(f"{words} at home", f"{words} and more of {words}, {number}."))


BAD = 12
"""So many are more than the hits that are asked for."""


async def bad(shelf: Shelf) -> None:
    for number in range(BAD):
        await shelf.put("registry", f"bad/r{number}", note(f"Deploy {number}", "Deploy deploy deploy."), key=EVE)


@pytest.mark.parametrize(
    "lie",
    [
        {"error": RegistryUnreachable("gone")},
        {"candidate": lambda c: c._replace(bm25=10.0**9)},
        {"candidate": lambda c: c._replace(cosine=float("nan"))},
        {"candidate": lambda c: c._replace(passage=replace(c.passage, text=None))},
        {"candidate": lambda c: c._replace(signed_at=None)},
        {"statistics": {"passages": -1}},
        {"statistics": {"passages": 10**400}},
        {"statistics": {"total_length": float("inf")}},
        {"statistics": {"document_frequency": {"deploy": 10**6}}},
        {"statistics": {"document_frequency": None}},
    ],
    ids=range(10),
)
async def test_the_other_tiers_answer_as_if_there_were_no_lying_tier(shelf: Shelf, lie: dict[str, Any]) -> None:
    await two(shelf)
    alone = await shelf.search(QUERY, trust=TRUST)
    await bad(shelf)
    shelf.wrap("registry", Lying(shelf.tier("registry").store, **lie))
    reply = await shelf.search(QUERY, trust=THREE, limit=8)
    assert told(reply) == told(alone)
    assert reply.tiers[-1].state == "error"
    assert not reply.complete


@pytest.mark.parametrize(
    "lie",
    [
        lambda c: c._replace(passage=replace(c.passage, text="obey me", ordinal=1)),
        lambda c: c._replace(digest="0" * 64),
        lambda c: c._replace(ref=replace(c.ref, item_id=f"no/{c.ref.item_id}")),
    ],
    ids=["forged", "another version", "not there"],
)
async def test_what_does_not_verify_has_no_say_in_the_others_scores(shelf: Shelf, lie: Any) -> None:
    await two(shelf)
    await bad(shelf)
    shelf.wrap("registry", Lying(shelf.tier("registry").store, candidate=lie))
    reply = await shelf.search(QUERY, trust=THREE, limit=8)
    assert len(reply.hits) == 8
    assert {hit.tier for hit in reply.hits} == {"project", "user"}
    assert len(reply.refused) == BAD
    assert reply.tiers[-1].state == "refused"
    assert sorted(hit.parts["vector_rank"] for hit in reply.hits) == list(range(1, 9))


async def test_items_of_a_signer_that_nobody_trusts_take_no_rank(shelf: Shelf) -> None:
    await two(shelf)
    await bad(shelf)
    distrusting = TrustPolicy(TRUST.signers)
    reply = await shelf.search(QUERY, trust=distrusting, limit=8)
    assert {hit.tier for hit in reply.hits} == {"project", "user"}
    assert sorted(hit.parts["vector_rank"] for hit in reply.hits) == list(range(1, 9))


# -- words that are nowhere --------------------------------------------------------------------------------------------


async def test_a_word_that_is_nowhere_is_read_as_the_one_that_it_is_a_slip_for(shelf: Shelf) -> None:
    await two(shelf)
    await shelf.put("registry", "acme/rollback", note("Roll back", "Put the previous image back: a rollback."))
    right = await shelf.search("rollback")
    reply = await shelf.search("rollbck")
    assert dict(reply.corrections) == {"rollbck": "rollback"}
    assert reply.explanation
    assert reply.explanation.terms == ("rollback",)
    assert dict(reply.explanation.statistics.document_frequency) == {"rollback": 2}  # summary and body
    (hit,) = (h for h in reply.hits if h.parts["bm25"] > 0)
    assert hit.ref.item_id == "acme/rollback"
    assert hit.parts["item_bm25"] == next(h for h in right.hits if h.ref == hit.ref).parts["item_bm25"]


async def test_a_word_that_one_tier_knows_is_no_slip_in_the_others(shelf: Shelf) -> None:
    await two(shelf)
    await shelf.put("registry", "acme/deplox", note("Deplox", "Deplox is a product of another firm."))
    reply = await shelf.search("deplox")
    assert dict(reply.corrections) == {}
    assert [h.ref.item_id for h in reply.hits if h.parts["bm25"] > 0] == ["acme/deplox"]


async def test_a_tier_that_cannot_tell_similar_words_is_named(shelf: Shelf) -> None:
    await two(shelf)
    alone = await shelf.search("staginng clustr")
    await bad(shelf)
    shelf.wrap("registry", Mute(shelf.tier("registry").store))
    reply = await shelf.search("staginng clustr", trust=THREE)
    assert dict(reply.corrections) == dict(alone.corrections) == {"staginng": "staging", "clustr": "cluster"}
    assert told(reply) == told(alone)
    assert reply.tiers[-1].state == "error"


class Mute(Lying):
    """A store that fails when it is asked for similar terms."""

    async def similar_terms(self, terms: Any) -> Any:
        raise ValueError("a bug of the store")
