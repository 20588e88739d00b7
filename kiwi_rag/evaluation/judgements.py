"""Judged queries, read from files, and the metrics of a ranking under such judgements.

Kiwi's own form has one object a line: ``{"query": "…", "relevant": {"type:id": grade}, "kind": "…", "id": "…"}``; the
last two are optional. BEIR (Thakur et al. 2021) has ``queries.jsonl`` with ``_id`` and ``text``, and judgements as
tab-separated ``query-id corpus-id score`` under a header; TREC has ``query-id 0 document-id grade`` without one. An id
without a type names a knowledge entry. Each metric is in [0, 1] and equals that of trec_eval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints, ValidationError

from kiwi_rag.errors import InvalidItemId, SourceUnreadable, UsageError
from kiwi_rag.model import ITEM_TYPES, ItemRef, ItemType, fold_item_id, sha256_hex

_OWN = '{"query": "…", "relevant": {"directive:acme/x": 2}}'
_BEIR = '{"_id": "q1", "text": "…"}'
_QRELS = "query-id, corpus-id and score, with a tab between; or TREC's query-id 0 document-id grade"
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


def load(paths: Sequence[Path]) -> Dataset:
    """Read a dataset: one JSON-lines file, a folder in BEIR's form, or queries and judgements as two files.

    Raises
    ------
    SourceUnreadable
        When a file cannot be read.
    UsageError
        When the files are none of these, or a line is not what it should be; the message has ``file:line``.
    """
    files = files_of(paths)
    texts = [_read(path) for path in files]
    queries = list(_own_queries(files[0], texts[0]) if len(files) == 1 else _beir_queries(files, texts))
    _check_unique(queries, files[0])
    judged = tuple(query for _, query in queries if any(grade > 0 for grade in query.relevant.values()))
    if not judged:
        raise UsageError(f"{files[0]} holds no judged queries", hint=_OWN)
    digest = sha256_hex("\0".join(texts).encode())
    return Dataset(" ".join(map(str, paths)), digest, judged, len(queries) - len(judged))


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files that a dataset is read from: one of JSON lines, or queries and judgements.

    Raises
    ------
    UsageError
        When there are too many, or a folder holds several files of judgements and none is named ``test``.
    """
    if len(paths) > 2:
        raise UsageError(f"{len(paths)} files are too many", hint="give one of JSON lines, or queries and judgements")
    if len(paths) == 2 or not paths[0].is_dir():
        return list(paths)
    folder = paths[0]
    judgements = sorted([*folder.glob("qrels/*.tsv"), *folder.glob("*.tsv"), *folder.glob("*.qrels")])
    chosen = [path for path in judgements if path.stem == "test"] or judgements
    if len(chosen) > 1:
        names = ", ".join(str(path.relative_to(folder)) for path in chosen)
        raise UsageError(f"{folder} holds several files of judgements: {names}", hint="name the two files")
    return [folder / "queries.jsonl", *chosen]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnreadable(f"cannot read {path}: {error}") from error


def _lines(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Yield each line that is not blank, after its ``file:line``."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", line


_Text = Annotated[str, StringConstraints(pattern=r"\S")]
_Label = Annotated[
    str, BeforeValidator(lambda given: str(given or "") if given is None or type(given) is int else given)
]
_Key = Annotated[str, AfterValidator(lambda text: item_key(ref_of(text)))]
# TREC grades junk with -1 and -2, which gains as little as 0.
_Grade = Annotated[int, Field(strict=True, le=_MAX_GRADE), AfterValidator(lambda grade: max(grade, 0))]


class _OwnLine(BaseModel):
    query: _Text
    relevant: dict[_Key, _Grade]
    id: _Label = ""
    kind: _Label = ""


class _BeirLine(BaseModel):
    id: _Text = Field(alias="_id")
    text: _Text
    kind: _Label = ""


class _Judgement(BaseModel):
    query: str
    item: _Key
    grade: _Grade


@contextmanager
def _reading(where: str, hint: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False)
        what = ": ".join([".".join(map(str, first["loc"])) or "line", first["msg"]])
        raise UsageError(f"{where} is not a judged query: {what}", hint=hint) from error
    except InvalidItemId as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from error


def _own_queries(path: Path, text: str) -> Iterator[tuple[str, JudgedQuery]]:
    for where, line in _lines(path, text):
        with _reading(where, _OWN):
            found = _OwnLine.model_validate_json(line)
        name = found.id or sha256_hex(found.query.encode())[:12]
        yield where, JudgedQuery(name, found.query, found.kind, found.relevant)


def _beir_queries(files: Sequence[Path], texts: Sequence[str]) -> Iterator[tuple[str, JudgedQuery]]:
    grades: dict[str, dict[str, int]] = {}
    unmatched: dict[str, str] = {}
    for where, one in _judgements(files[1], texts[1]):
        grades.setdefault(one.query, {})[one.item] = one.grade
        unmatched.setdefault(one.query, where)
    for where, line in _lines(files[0], texts[0]):
        with _reading(where, _BEIR):
            found = _BeirLine.model_validate_json(line)
        yield where, JudgedQuery(found.id, found.text, found.kind, grades.get(found.id, {}))
        unmatched.pop(found.id, None)
    for name, where in unmatched.items():
        raise UsageError(f"{where} judges query {name!r}, which {files[0]} does not hold")


def _judgements(path: Path, text: str) -> Iterator[tuple[str, _Judgement]]:
    for number, (where, line) in enumerate(_lines(path, text)):
        fields = [field.strip() for field in (line.split("\t") if "\t" in line else line.split())]
        if number == 0 and fields[0].lower().replace("_", "-") in ("query-id", "qid", "query"):
            continue
        if len(fields) not in (3, 4):
            raise UsageError(f"{where} is not a judged query: {len(fields)} fields", hint=_QRELS)
        with _reading(where, _QRELS):
            named = {"query": fields[0], "item": fields[-2], "grade": fields[-1]}
            yield where, _Judgement.model_validate_strings(named)


def _check_unique(queries: Iterable[tuple[str, JudgedQuery]], path: Path) -> None:
    first: dict[str, str] = {}
    for where, query in queries:
        if query.id in first:
            raise UsageError(f"{where} repeats the query of {first[query.id]}", hint=f"keep one of them in {path}")
        first[query.id] = where


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
