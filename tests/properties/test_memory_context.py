"""What is put together from a memory: within its budget with any counter, and no exchange in it twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.model import Exchange
from kiwi_rag.services.memory import Recollection
from kiwi_rag.usecases.memory import _Context
from tests.examples import examples
from tests.memories import exchange

WORDS = st.text("abcd ", min_size=1, max_size=40).filter(str.strip)
COUNTERS = st.one_of(
    st.just(len),
    st.just(lambda text: len(text) // 4),
    st.just(lambda text: len(text.split())),
    st.just(lambda text: -len(text)),
    st.just(lambda text: hash(text) % 97),
    st.integers(-3, 50).map(lambda number: lambda _: number),
)
SESSIONS = st.lists(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6), min_size=1, max_size=3)


def made(sessions: list[list[tuple[str, str]]]) -> list[list[Exchange]]:
    return [
        [exchange(n, *texts, session=f"s{s}", id=f"{s}-{n}") for n, texts in enumerate(one)]
        for s, one in enumerate(sessions)
    ]


@examples(200)
@given(SESSIONS, COUNTERS, st.integers(1, 600), st.integers(0, 3), st.data())
def test_a_context_keeps_its_budget_and_repeats_nothing(
    sessions: list[list[tuple[str, str]]], counter: Any, budget: int, window: int, data: st.DataObject
) -> None:
    stored = made(sessions)
    found = data.draw(st.permutations([one for session in stored for one in session]))
    context = _Context(budget, counter)
    for one in found[: data.draw(st.integers(0, 5))]:
        hit: Any = SimpleNamespace(passage=SimpleNamespace(text=one.user_message))
        context.add(Recollection(one, hit))
    for excerpt in context.excerpts:
        session = next(session for session in stored if excerpt.found.exchange in session)
        at = session.index(excerpt.found.exchange)
        context.join(excerpt, session[max(at - window, 0) : at], session[at + 1 : at + 1 + window])
    assert sum(counter(excerpt.text) for excerpt in context.excerpts) <= budget
    assert all(counter(excerpt.text) == excerpt.tokens for excerpt in context.excerpts)
    shown = [one.id for excerpt in context.excerpts for one in excerpt.exchanges]
    assert len(shown) == len(set(shown))
    texts = [" ".join(one.text.casefold().split()) for excerpt in context.excerpts for one in excerpt.exchanges]
    assert len(texts) == len(set(texts))
    for excerpt in context.excerpts:
        numbers = [one.timestamp for one in excerpt.exchanges]
        assert numbers == sorted(numbers) and excerpt.found.exchange in excerpt.exchanges
        assert len({one.session_id for one in excerpt.exchanges}) == 1
