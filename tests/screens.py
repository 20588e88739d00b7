"""What a search shows on terminals of several widths: replies made by hand, and the screens stored of them.

Write the screens anew with ``python -m tests.screens``, and read what changed with ``git diff tests/data/screens``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kiwi_rag.model import (
    CollectionStatistics,
    FusionWeights,
    ItemState,
    Passage,
    RefusedHit,
    SearchExplanation,
    SearchQuery,
    SearchReply,
    SearchResult,
    TierOutcome,
)
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.render import hits
from kiwi_rag.render.layout import fold_notice

SCREENS = Path(__file__).parent / "data/screens"
WIDTHS = (60, 80, 120, 200)

PARTS = {
    "cosine": 0.514, "bm25": 3.5, "best_cosine": 0.514, "first_cosine": 0.25, "centroid_cosine": 0.375,
    "best_bm25": 3.5, "item_bm25": 4.25, "vectors": 0.757, "words": 0.5, "vector_rank": 1, "lexical_rank": 2,
    "alpha": 0.69, "fusion": "convex", "prior": 1.0, "plan": "exact",
}  # fmt: skip
DOCUMENT_PARTS = {"cosine": 0.514, "bm25": 3.5, "vectors": 0.757, "words": 0.5, "alpha": 0.69, "plan": "exact"}
SIGNED = datetime(2026, 3, 1, tzinfo=UTC)
RELEASE = """# Roll a release back

Stop the deployment first, so that nobody releases while you work.
Then put the previous image back: `deployctl rollback --service billing --to previous`.
Wait until `https://status.example.com/services/billing/deployments/current/replicas/ready` says that all are ready.
Write down what happened, in the words of those who saw it, before anybody goes home.
"""
WIDE = """一つ前のリリースに戻すには、まずデプロイを止めてください。次に\
前のイメージを戻し、すべてのレプリカの準備ができるまで待ちます。
戻した後は rollback の記録を残してください 🥝 その記録は次のリリースの前に読まれます。
"""
PROSE = (
    "The ferry's check-in closes forty minutes before departure for vehicles and twenty minutes before departure for "
    "foot passengers, and a booking that is not checked in by then is released to the standby list, from which the "
    "duty manager may take it back only while the ramp is down. A rollback of that release is recorded as an event on "
    "the channel of the sailing, with the name of whoever asked for it and the time at which the ramp was raised."
)
CODE = """public final class ReleaseRollbackController {
    private final BookingRepository bookingRepository;

    @PostMapping("/sailings/{sailingId}/bookings/{bookingId}/rollback-release")
    public ResponseEntity<Booking> rollbackRelease(@PathVariable UUID sailingId, @PathVariable UUID bookingId) {
        return ResponseEntity.ok(bookingRepository.takeBack(sailingId, bookingId, Clock.systemUTC().instant()));
    }
}
"""
LONG_PATH = "services/svc-check-in/src/main/java/line/norrsund/checkin/release/rollback/ReleaseRollbackController.java"


def hit(ref: ItemRef, text: str, heading: tuple[str, ...], lines: tuple[int, int], **more: Any) -> SearchResult:
    """Return a hit with what all of them have in common."""
    common: dict[str, Any] = {
        "tier": "project", "tiers": ("project",), "shadows": (), "metadata": {}, "score": 0.8125, "parts": PARTS,
        "digest": "ab" * 32, "key_id": "cd" * 32, "principal": "ada@acme.example", "signed_at": SIGNED, "passages": 4,
    }  # fmt: skip
    return SearchResult(ref=ref, passage=Passage(1, text, "", heading, *lines), **(common | more))


def items() -> SearchReply:
    """Return a reply of a search in items, with one of each thing that can be said of a hit."""
    directive, knowledge = ItemType.DIRECTIVE, ItemType.KNOWLEDGE
    found = (
        hit(
            ItemRef(directive, "acme/deploy/rollback", "1.2.0"), RELEASE, ("Roll a release back",), (12, 18),
            metadata={"title": "Roll a release back"}, tiers=("project", "user"), shadows=("registry!eve@example",),
            path=".ai/directives/acme/deploy/rollback.md",
        ),
        hit(
            ItemRef(directive, "acme/deploy/modoru", "1.0.0"), WIDE, ("手順", "戻す"), (3, 4), score=0.75,
            metadata={"title": "リリースを一つ前に戻す手順"}, path=".ai/directives/acme/deploy/modoru.md",
            duplicates=tuple(f"directive:acme/copies/modoru-{n}@1.0.0@user" for n in range(5)), more_duplicates=2,
        ),
        hit(
            ItemRef(knowledge, "acme/operations/services/billing/releases/history", "10.20.30"), PROSE, (), (1, 1),
            tier="registry", tiers=("registry",), private=True, score=0.5, metadata={"name": "history"},
            state=ItemState("it was edited since: kiwi sign .ai/knowledge/acme/operations/history.md", yanked=True),
        ),
    )  # fmt: skip
    statistics = CollectionStatistics(200, 24_000, {"rollback": 12, "releas": 40}, 20)
    timings = {"statistics": 0.002, "candidates": 0.005, "verification": 0.003}
    tiers = (
        TierOutcome("project", "ok", 0.01, 30, "exact", None, timings, statistics),
        TierOutcome("registry", "timeout", 10.0, 0, "", {"message": "no answer in 10 s", "hint": "KIWI_DEADLINE=9"}),
    )  # fmt: skip
    explanation = SearchExplanation(
        ("rollback", "releas"), statistics, "convex", FusionWeights(0.69, 0.15, 0.3, 0.4),
        {"embedding": 0.0125, "fusion": 0.001, "whole": 0.06}, 1, 100, 3, 5, 1,
    )  # fmt: skip
    refused = (RefusedHit(found[0].ref, "user", "unknown-signer", "signed by a key that nobody here trusts"),)
    query = SearchQuery("rollbck a release")
    return SearchReply(query, found, tiers, refused, explanation, {"rollbck": "rollback"})


def documents() -> SearchReply:
    """Return a reply of a search in documents."""

    def document(path: str, text: str, heading: tuple[str, ...], lines: tuple[int, int], **more: Any) -> SearchResult:
        about = {"file_type": more.pop("file_type", "markdown"), "title": more.pop("title", "")}
        parts = more.pop("parts", DOCUMENT_PARTS)
        ref = ItemRef(ItemType.DOCUMENT, path)
        found = hit(ref, text, heading, lines, path=path, metadata=about, tier="workspace", parts=parts, **more)
        return replace(found, passage=replace(found.passage, kind="section"))

    found = (
        document("docs/check-in.md", PROSE, ("Check-in", "Deadlines"), (10, 10), title="Check-in"),
        document(LONG_PATH, CODE, ("ReleaseRollbackController",), (20, 27), file_type="java", score=0.75),
        document(
            "docs/v1/rollback.md", RELEASE, ("Roll a release back",), (1, 6), title="Roll a release back", score=0.625,
            duplicates=tuple(f"docs/v{n}/rollback.md:1-6" for n in range(2, 7)), state=ItemState("edited"),
        ),
        document("docs/ja/modoru.md", WIDE, (), (3, 4), score=0.5),
    )  # fmt: skip
    outcome = TierOutcome("workspace", "ok", 0.01, 40, "exact")
    return SearchReply(SearchQuery("rollback of a release"), found, (outcome,), gone=("docs/old.md",), unfinished=True)


def screens() -> Iterator[tuple[str, int, str]]:
    """Yield the name, the width and the text of each screen: hits, and the notices below them."""
    for name, reply, explain in (
        ("items", items(), False),
        ("items-explained", items(), True),
        ("documents", documents(), False),
        ("documents-explained", documents(), True),
    ):
        for width in WIDTHS:
            blocks = [hits.hits_text(reply, explain=explain, width=width)]
            blocks += [hits.explanation_text(reply, width=width)] if explain and reply.explanation else []
            blocks += ["\n".join(line for notice in hits.notices(reply) for line in fold_notice(notice, width))]
            yield name, width, "\n\n".join(blocks) + "\n"


def path_of(name: str, width: int) -> Path:
    """Return the file of a screen."""
    return SCREENS / f"{name}-{width}.txt"


if __name__ == "__main__":
    SCREENS.mkdir(exist_ok=True)
    for old in SCREENS.glob("*.txt"):
        old.unlink()
    for screen, columns, shown in screens():
        path_of(screen, columns).write_text(shown, encoding="utf-8")
