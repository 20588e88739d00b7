"""Whether anything is close to a query is judged only where the score that decides it was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kiwi_rag.embedding.onnx import FINGERPRINTS
from kiwi_rag.model import FusionWeights, SearchQuery
from kiwi_rag.render import hits
from kiwi_rag.search.diversify import ItemChoice
from kiwi_rag.search.hits import Choice
from kiwi_rag.search.passages import PassageChoice
from tests.unit.test_present import HIT, reply

QUERY = SearchQuery("deploy")
OURS = str(next(iter(FINGERPRINTS.values())))


def is_close(kind: type[Choice], *scores: float, model: str = OURS, **asked: Any) -> bool | None:
    choice = kind(replace(QUERY, **asked), (), None)  # type: ignore[arg-type]
    choice.hits = [replace(HIT, score=score) for score in scores]
    return choice.is_close(model)


@pytest.mark.parametrize("kind", [ItemChoice, PassageChoice])
def test_the_best_hit_decides(kind: type[Choice]) -> None:
    for fingerprint in FINGERPRINTS.values():
        assert is_close(kind, 0.1, kind.floor, model=str(fingerprint)) is True
        assert is_close(kind, kind.floor - 0.001, 0.1, model=str(fingerprint)) is False
    assert is_close(kind) is None


@pytest.mark.parametrize(
    "asked",
    [{"model": "some-model/0/8/mean/0"}, {"alpha": 0.5}, {"weights": FusionWeights(0.5)}, {"half_life_days": 30.0},
     {"fusion": "rrf"}],
    ids=lambda asked: next(iter(asked)),
)  # fmt: skip
def test_other_scores_are_not_judged(asked: dict[str, Any]) -> None:
    assert is_close(ItemChoice, 0.1, **asked) is None


@pytest.mark.parametrize(("close", "said"), [(True, False), (None, False), (False, True)])
def test_a_reply_says_so_and_drops_nothing(close: bool | None, said: bool) -> None:
    shown = replace(reply(HIT), close=close)
    assert any(line.startswith("nothing here is close") for line in hits.notices(shown)) is said
    assert (hits.reply_json(shown)["close"], len(hits.reply_json(shown)["hits"])) == (close, 1)
    assert hits.documents_json(shown)["close"] is close
