"""Judged queries, read from files, and the metrics of a ranking under such judgements.

A file has one object a line: ``{"query": "…", "relevant": {"type:id": grade}, "kind": "…", "id": "…"}``; the last two
are optional. An id without a type names a knowledge entry. Each metric is in [0, 1] and equals that of trec_eval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints, ValidationError

from kiwi_rag.errors import InvalidItemId, SourceUnreadable, UsageError
from kiwi_rag.model import ITEM_TYPES, ItemRef, ItemType, fold_item_id, sha256_hex

_FORM = '{"query": "…", "relevant": {"directive:acme/x": 2}}'
_MAX_GRADE = 1000  # no collection grades as finely, and a sum of such gains stays far from overflow


@dataclass(frozen=True, slots=True)
class RankedAnswer:
    """What one method gave for one query: items with scores, metrics by name, milliseconds taken.

    ``complete`` is false when a tier failed or a hit was refused.
    """

    ranked: list[tuple[str, float]]
    metrics: dict[str, float]
    ms: float
    complete: bool


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A query, the grades (0, 1, 2, …) of the items that were judged for it, by `item_key`, and each method's answer.

    Of a dataset there are no answers yet.
    """

    id: str
    query: str
    kind: str
    relevant: dict[str, int]
    answers: dict[str, RankedAnswer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Judged queries, where they came from, and the hex SHA-256 of the files' bytes.

    ``unanswerable`` counts queries that were left out because nothing was judged relevant for them.
    """

    name: str
    sha256: str
    queries: tuple[JudgedQuery, ...]
    unanswerable: int = 0


def item_key(ref: ItemRef) -> str:
    """Return ``type:id`` with the id folded: one text for all spellings of the same item."""
    return f"{ref.item_type}:{fold_item_id(ref.item_id)}"


def ref_of(text: str) -> ItemRef:
    """Return the item that ``type:id``, or a bare id of a knowledge entry, names.

    The id need not be a legal one: a collection may judge a file that the gate does not admit.

    Raises
    ------
    InvalidItemId
        When the type is unknown, or there is no id.
    """
    before, colon, after = text.partition(":")
    item_type, item_id = (before, after) if colon else (ItemType.KNOWLEDGE.value, text)
    if item_type not in {t.value for t in ITEM_TYPES} or not item_id.strip():
        raise InvalidItemId(f"{text!r} names no item", hint="directive:…, script:…, knowledge:… or skill:…")
    return ItemRef(ItemType(item_type), item_id)


def load(path: Path) -> Dataset:
    """Read a dataset from a file of JSON lines.

    Raises
    ------
    SourceUnreadable
        When the file cannot be read.
    UsageError
        When a line is not what it should be; the message has ``file:line``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnreadable(f"cannot read {path}: {error}") from error
    places: dict[str, str] = {}
    queries = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            query = _parse(line, where := f"{path}:{number}")
            if (first := places.setdefault(query.id, where)) != where:
                raise UsageError(f"{where} repeats the query of {first}", hint=f"keep one of them in {path}")
            queries.append(query)
    judged = tuple(query for query in queries if any(grade > 0 for grade in query.relevant.values()))
    if not judged:
        raise UsageError(f"{path} holds no judged queries", hint=_FORM)
    return Dataset(str(path), sha256_hex(text.encode()), judged, len(queries) - len(judged))


_Text = Annotated[str, StringConstraints(pattern=r"\S")]
_Label = Annotated[str | None, BeforeValidator(lambda given: str(given) if type(given) is int else given)]
_Key = Annotated[str, AfterValidator(lambda text: item_key(ref_of(text)))]
# TREC grades junk with -1 and -2, which gains as little as 0.
_Grade = Annotated[int, Field(strict=True, le=_MAX_GRADE), AfterValidator(lambda grade: max(grade, 0))]


class _Line(BaseModel):
    query: _Text
    relevant: dict[_Key, _Grade]
    id: _Label = None
    kind: _Label = None


def _parse(line: str, where: str) -> JudgedQuery:
    try:
        found = _Line.model_validate_json(line)
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False)
        what = ": ".join([".".join(map(str, first["loc"])) or "line", first["msg"]])
        raise UsageError(f"{where} is not a judged query: {what}", hint=_FORM) from error
    except InvalidItemId as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from error
    name = found.id or sha256_hex(found.query.encode())[:12]
    return JudgedQuery(name, found.query, found.kind or "", found.relevant)


def score(ranked: Sequence[str], grades: Mapping[str, int], k: int) -> dict[str, float]:
    """Return nDCG@10, recall@k, hit@3 and the reciprocal rank within ten, by their names."""
    return {
        "ndcg@10": ndcg(ranked, grades),
        f"recall@{k}": recall(ranked, grades, k),
        "hit@3": hit(ranked, grades),
        "mrr@10": reciprocal_rank(ranked, grades),
    }


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """Return nDCG@k (Järvelin, Kekäläinen 2002): gain is the grade, discount ``1 / log2(rank + 1)``."""
    ideal = ideal_dcg(grades, k)
    return _dcg([grades.get(ref, 0) for ref in ranked[:k]]) / ideal if ideal else 0.0


def ideal_dcg(grades: Mapping[str, int], k: int) -> float:
    """Return the DCG@k of the best order that there is."""
    return _dcg(sorted(grades.values(), reverse=True)[:k])


def discount(rank: int) -> float:
    """Return what a gain is multiplied with at a rank, counted from 1."""
    return 1 / math.log2(rank + 1)


def recall(ranked: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """Return the share of all relevant items (grade above 0) that are among the first `k`."""
    relevant = {ref for ref, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranked[:k])) / len(relevant) if relevant else 0.0


def hit(ranked: Sequence[str], grades: Mapping[str, int], k: int = 3) -> float:
    """Return 1.0 when a relevant item is among the first `k`, else 0.0."""
    return float(any(grades.get(ref, 0) > 0 for ref in ranked[:k]))


def reciprocal_rank(ranked: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """Return 1 / rank of the first relevant item among the first `k`, else 0.0; its mean over queries is MRR@k."""
    ranks = (rank for rank, ref in enumerate(ranked[:k], start=1) if grades.get(ref, 0) > 0)
    return next((1 / rank for rank in ranks), 0.0)


def _dcg(gains: Sequence[int]) -> float:
    return sum(gain * discount(rank) for rank, gain in enumerate(gains, start=1))
