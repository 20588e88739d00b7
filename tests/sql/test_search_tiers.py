"""Searching a project, a user's items and a real registry together: filters, limits, and one ranking."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from kiwi_rag.model import Filters, SearchReply
from kiwi_rag.model.refs import ItemType
from kiwi_rag.stores.local.search import EXACT_LIMIT
from tests.registry_shelf import registry, registry_tier
from tests.search_tiers import ADA, BOB, EVE, NOW, THREE, Shelf, note

QUERY = "deploy staging cluster"
TIERS = ("project", "user", "registry")


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    """A shelf whose registry is one."""
    with registry() as url:
        made = Shelf(tmp_path)
        made.tiers["registry"] = registry_tier(url, tmp_path / "registry-audit")
        made.url = url  # type: ignore[attr-defined]
        yield made
        await made.close()


def ids(reply: SearchReply) -> set[str]:
    return {hit.ref.item_id for hit in reply.hits}


def labelled(tier: str, number: int, category: str, author: str, *tags: str) -> str:
    text = note(f"Deploy staging {number}", f"Deploy the staging cluster, number {number} of {tier}.")
    return text.replace("category: acme", f"category: {category}\ntags: [{', '.join(tags)}]").replace(
        "author: ada", f"author: {author}"
    )


async def labels(shelf: Shelf, tier: str) -> None:
    """Items that differ in one thing each, and many that have none of it."""
    old = NOW - timedelta(days=90)
    await shelf.put(tier, f"acme/category-{tier}", labelled(tier, 1, "rare", "ada", "x"))
    await shelf.put(tier, f"acme/author-{tier}", labelled(tier, 2, "ops", "grace", "x"))
    await shelf.put(tier, f"acme/tags-{tier}", labelled(tier, 3, "ops", "ada", "x", "blue", "green"))
    await shelf.put(tier, f"other/namespace-{tier}", labelled(tier, 4, "ops", "ada", "x"))
    await shelf.put(tier, f"acme/signer-{tier}", labelled(tier, 5, "ops", "ada", "x"), key=BOB)
    for number in range(8):
        one = labelled(tier, 10 + number, "ops", "ada", "blue")
        await shelf.put(tier, f"acme/n{number}-{tier}", one, at=old)


FILTERS: dict[str, tuple[Filters, set[str]]] = {
    "item_type": (Filters(item_type=ItemType.DIRECTIVE), set()),
    "category": (Filters(category="rare"), {"category"}),
    "author": (Filters(author="grace"), {"author"}),
    "tags": (Filters(tags=("green", "blue")), {"tags"}),
    "namespace": (Filters(namespace="other"), {"namespace"}),
    "signer": (Filters(signer="bob@acme"), {"signer"}),
    "key": (Filters(signer=BOB.key_id), {"signer"}),
    "since": (Filters(since=NOW - timedelta(days=1)), {"category", "author", "tags", "namespace", "signer"}),
    "two": (Filters(category="ops", since=NOW - timedelta(days=1), tags=("x",), signer="ada@acme"),
            {"author", "tags", "namespace"}),
    "none": (Filters(category="rare", author="grace"), set()),
}  # fmt: skip


@pytest.mark.parametrize("exact_limit", [EXACT_LIMIT, 0], ids=["exact", "chroma"])
async def test_every_filter_narrows_every_tier_in_every_plan(shelf: Shelf, exact_limit: int) -> None:
    shelf.exact_limit = exact_limit
    for tier in TIERS:
        await labels(shelf, tier)
        if tier != "registry":
            async with shelf.tier(tier).writing():  # updates Chroma at its end
                pass
    whole = await shelf.search(QUERY, limit=100)
    assert len(whole.hits) == 3 * 13
    assert {t.plan for t in whole.tiers[1:]} == {"exact" if exact_limit else "chroma"}
    for what, (filters, names) in FILTERS.items():
        wanted = {f"{'other' if n == 'namespace' else 'acme'}/{n}-{t}" for n in names for t in TIERS}
        reply = await shelf.search(QUERY, filters=filters, limit=100)
        assert reply.complete, what
        assert ids(reply) == wanted, what
        for limit in {1, max(len(wanted), 1)}:
            assert len((await shelf.search(QUERY, filters=filters, limit=limit)).hits) == min(limit, len(wanted)), what


def long_note(tier: str, steps: int) -> str:
    words = "Deploy the staging cluster, part {n}, and look at the staging cluster again. " * 12
    return note(
        f"Deploy staging cluster {tier}", "\n\n".join(f"## Step {n}\n\n" + words.format(n=n) for n in range(steps))
    )


@pytest.mark.parametrize("exact_limit", [EXACT_LIMIT, 0], ids=["exact", "chroma"])
async def test_as_many_hits_as_match_whatever_stands_in_their_way(shelf: Shelf, exact_limit: int) -> None:
    """An item of hundreds of passages in each tier, shadows, duplicates, refused items, and a cap on signers."""
    shelf.exact_limit = exact_limit
    twin = note("Deploy staging", "Deploy the cluster of staging.")
    for place, tier in enumerate(TIERS):
        await shelf.put(tier, f"long/{tier}", long_note(tier, 110))
        await shelf.put(tier, "all/shadowed", note("Deploy staging", f"The cluster of {tier}."))
        await shelf.put(tier, f"twin/{tier}", twin)
        for number in range(4):
            key = (ADA, BOB, EVE)[(number + place) % 3]
            about = note(f"Lunch {number} {tier}", f"A cluster of grapes {number}, from {tier}.")
            await shelf.put(tier, f"some/{tier}-{number}", about, key=key)
    for name in ("project", "user"):
        async with shelf.tier(name).writing():  # updates Chroma at its end
            pass
    await shelf.put("user", "bad/refused", note("Deploy staging cluster", "Deploy the staging cluster now."))
    shelf.edit("user", "UPDATE items SET digest = 'x' WHERE item_id = 'bad/refused'")
    matching = 3 + 1 + 1 + 12
    for limit in (1, 10, matching, matching + 5):
        for cap in (None, 0, 1):
            reply = await shelf.search(QUERY, limit=limit, trust=THREE, per_signer=cap)
            assert len(reply.hits) == min(limit, matching), (limit, cap)
            assert "bad/refused" not in ids(reply)
    assert reply.explanation
    assert reply.explanation.rounds > 1
    assert len({hit.ref for hit in reply.hits}) == matching
    (shadowing,) = (hit for hit in reply.hits if hit.ref.item_id == "all/shadowed")
    assert (shadowing.tier, shadowing.shadows) == ("project", ("user", "registry"))
    assert sum(len(hit.duplicates) for hit in reply.hits) == 2
    grapes = await shelf.search(QUERY, limit=10, trust=THREE, filters=Filters(namespace="some", signer="eve@acme"))
    assert len(grapes.hits) == 4
