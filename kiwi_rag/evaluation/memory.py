"""How good a conversation memory is: how much of the evidence of judged questions is among what it finds first.

The data has the form of LoCoMo (Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL
2024): conversations of two speakers in sessions, and questions with the turns that answer them. Two turns that follow
each other are an exchange, the first as the user's message. The metrics are recall@5 and @k, which is the share of a
question's evidence among the first units, and the mean reciprocal rank of the first evidence; a larger unit counts for
the turns in it. Questions that the conversation does not answer (category 5) are left out, and so is evidence that
names no turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic refuses typing's before Python 3.12

from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.evaluation import runs
from kiwi_rag.model import Exchange, SearchQuery, SearchReply, SearchResult
from kiwi_rag.model.exchanges import id_of

METHODS = {name: changes for name, changes in runs.METHODS.items() if name != "grep"}
UNITS = {"turn": 3, "exchange": 2, "session": 1}
"""Each unit, and how many parts of a `Place` name it."""
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
ALL = "all"
FOUND = 50
"""Hits of each search: enough to rank sessions, too."""
FIRST = 5
"""The depth of the first recall."""
RESAMPLES = 2_000
_SEED = 2026
_DATE = "%I:%M %p on %d %B, %Y"
_SESSION = re.compile(r"session_(\d+)")
_TURN = re.compile(r"D0*(\d+):0*(\d+)")
_HINT = "the form of LoCoMo: a list of conversations, each with conversation (session_1, session_1_date_time, …) and qa"

Place = tuple[str, ...]
"""Where something was said: the session's path, the exchange's id, the speaker."""
Search = Callable[[SearchQuery], Awaitable[SearchReply]]


class _Turn(TypedDict):
    speaker: str
    dia_id: str
    text: NotRequired[str]
    blip_caption: NotRequired[str]


class _Judged(TypedDict):
    question: str
    category: Literal[1, 2, 3, 4, 5]
    evidence: NotRequired[list[str]]


class _Sample(TypedDict):
    sample_id: NotRequired[str]
    conversation: dict[str, Any]
    qa: list[_Judged]


@dataclass(frozen=True, slots=True)
class Question:
    """A judged question: its category, and the places of its evidence."""

    text: str
    category: str
    evidence: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as exchanges, and the questions about it; ``left_out`` counts those that nothing in it answers."""

    name: str
    exchanges: tuple[Exchange, ...]
    questions: tuple[Question, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class FoundEvidence:
    """What one method found for one question: the rank of each evidence by unit, from 1, or None.

    ``complete`` is false when a hit was refused or the search failed.
    """

    conversation: str
    question: Question
    method: str
    ranks: Mapping[str, Sequence[int | None]]
    complete: bool

    def metrics(self, unit: str, k: int) -> dict[str, float]:
        """Return recall at both depths, and the reciprocal rank of the first evidence."""
        ranks = [rank for rank in self.ranks[unit] if rank is not None]
        recall = {f"recall@{depth}": sum(rank <= depth for rank in ranks) for depth in (FIRST, k)}
        shares = {name: count / len(self.ranks[unit]) for name, count in recall.items()}
        return {**shares, "mrr": 1 / min(ranks) if ranks else 0.0}


def load(path: Path) -> Sequence[Conversation]:
    """Read conversations with their questions.

    Raises
    ------
    SourceUnreadable
        When the file cannot be read.
    UsageError
        When it has another form, or no question; the message names the place.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceUnreadable(f"cannot read {path}: {error.strerror}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", hint=_HINT) from error
    samples = _checked(list[_Sample], data if isinstance(data, list) else [data], str(path))
    found = [_conversation(sample, f"{path}[{n}]", f"conversation {n + 1}") for n, sample in enumerate(samples)]
    if not any(one.questions for one in found):
        raise UsageError(f"{path} has no question with evidence", hint=_HINT)
    return [one for one in found if one.questions]


async def evaluate(
    conversation: Conversation, search: Search, methods: Mapping[str, Mapping[str, Any]] = METHODS,
    progress: Callable[[int], object] = lambda _: None,
) -> list[FoundEvidence]:  # fmt: skip
    """Ask every question by every method; `search` searches the conversation, `methods` say what each changes of it."""
    found = []
    for question in conversation.questions:
        for name, changes in methods.items():
            query = SearchQuery(question.text, limit=FOUND, **changes)
            turns, exchanges = [await search(replace(query, per_file=cap)) for cap in (0, 1)]
            replies = {"turn": turns, "exchange": exchanges, "session": exchanges}
            ranks = {unit: _ranks(reply.hits, question.evidence, UNITS[unit]) for unit, reply in replies.items()}
            is_complete = turns.complete and exchanges.complete
            found.append(FoundEvidence(conversation.name, question, name, ranks, is_complete))
        progress(1)
    return found


def summarise(found: Sequence[FoundEvidence], k: int) -> list[dict[str, Any]]:
    """Return the means by unit, category and method, over all conversations, each with its 95% interval."""
    rows = []
    names = [name for name in CATEGORIES.values() if any(one.question.category == name for one in found)]
    for unit in UNITS:
        for category in (ALL, *names):
            for method in dict.fromkeys(one.method for one in found):
                own = [one for one in found if one.method == method and category in (ALL, one.question.category)]
                metrics = [one.metrics(unit, k) for one in own]
                means = {name: _mean([values[name] for values in metrics]) for name in metrics[0]}
                about = {"unit": unit, "category": category, "method": method, "questions": len(own)}
                rows.append({**about, "metrics": means})
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a header and a line for each row: its means with their intervals."""
    names = list(rows[0]["metrics"])
    yield f"{'unit':<9} {'category':<12} {'questions':>9}  {'method':<8}" + "".join(f" {name:<20}" for name in names)
    for row in rows:
        cells = (f" {m['mean']:.3f} [{m['low']:.3f} {m['high']:.3f}]" for m in row["metrics"].values())
        yield f"{row['unit']:<9} {row['category']:<12} {row['questions']:>9}  {row['method']:<8}" + "".join(cells)


def _ranks(hits: Sequence[SearchResult], evidence: Sequence[Place], parts: int) -> list[int | None]:
    """Return the rank of each evidence among the units that the hits are of."""
    order = list(dict.fromkeys(_place(hit)[:parts] for hit in hits))
    by_place = {place: rank for rank, place in enumerate(order, start=1)}
    return [by_place.get(place[:parts]) for place in evidence]


def _place(hit: SearchResult) -> Place:
    path = hit.ref.item_id
    return path.partition("/")[0], id_of(path), hit.passage.heading[-1]


def _mean(values: Sequence[float]) -> dict[str, float]:
    """Return a mean over questions, and its 95% interval over resamples of them (percentile bootstrap)."""
    import numpy as np

    drawn = np.random.default_rng(_SEED).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(np.array(values)[drawn].mean(axis=1), [0.025, 0.975])
    return {"mean": fmean(values), "low": float(low), "high": float(high)}


def _conversation(sample: _Sample, at: str, name: str) -> Conversation:
    exchanges, places = list[Exchange](), dict[str, Place]()
    for number, session, moment in _sessions(sample["conversation"], f"{at}.conversation"):
        for n in range(0, len(session), 2):
            pair = session[n : n + 2]
            exchange = _exchange(f"session-{number}", pair, moment + timedelta(minutes=n))
            exchanges.append(exchange)
            for turn in pair:
                if turn["dia_id"] in places:
                    message = f"{at}.conversation.session_{number}: dia_id {turn['dia_id']!r} is there twice"
                    raise UsageError(message, hint=_HINT)
                places[turn["dia_id"]] = (exchange.path.partition("/")[0], exchange.id, turn["speaker"])
    judged = [one for one in sample["qa"] if one["category"] in CATEGORIES]
    questions = [Question(one["question"], CATEGORIES[one["category"]], _evidence(one, places)) for one in judged]
    kept = tuple(question for question in questions if question.evidence)
    return Conversation(sample.get("sample_id", name), tuple(exchanges), kept, len(sample["qa"]) - len(kept))


def _sessions(conversation: Mapping[str, Any], at: str) -> Iterator[tuple[int, list[_Turn], datetime]]:
    """Yield number, turns and time of each session, in their order."""
    numbers = sorted(int(match[1]) for name in conversation if (match := _SESSION.fullmatch(name)))
    for number in numbers:
        turns = _checked(list[_Turn], conversation[f"session_{number}"], f"{at}.session_{number}")
        written = conversation.get(f"session_{number}_date_time")
        try:
            yield number, turns, datetime.strptime(str(written), _DATE).replace(tzinfo=UTC)
        except ValueError as error:
            message = f"{at}.session_{number}_date_time is {written!r}, and no time as 1:56 pm on 8 May, 2023"
            raise UsageError(message, hint=_HINT) from error


def _exchange(session: str, turns: Sequence[_Turn], moment: datetime) -> Exchange:
    first, *second = turns
    names, answer = {"user_name": first["speaker"]}, ""
    if second:
        names["assistant_name"], answer = second[0]["speaker"], _text(second[0])
    return Exchange(first["dia_id"], session, _text(first), answer, moment, metadata=names)


def _text(turn: _Turn) -> str:
    """Return what a turn says, and what its picture shows."""
    caption = turn.get("blip_caption", "")
    return "\n".join(filter(None, [turn.get("text", ""), caption and f"[photo: {caption}]"]))


def _evidence(judged: _Judged, places: Mapping[str, Place]) -> tuple[Place, ...]:
    """Return the places of the turns that are named, however they are written, without turns that are not there."""
    named = (f"D{match[1]}:{match[2]}" for text in judged.get("evidence", ()) for match in _TURN.finditer(text))
    return tuple(places[name] for name in dict.fromkeys(named) if name in places)


def _checked(kind: Any, value: object, at: str) -> Any:
    """Return a value if it is of this type; raise `UsageError` with the place of what is not."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        raise UsageError(f"{at}{place}: {first['msg']}", hint=_HINT) from error
