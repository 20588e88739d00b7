"""Runs and comparisons as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from kiwi_rag.evaluation.bootstrap import Difference, difference
from kiwi_rag.evaluation.compare import SAME, Comparison
from kiwi_rag.evaluation.methods import LEGS
from kiwi_rag.evaluation.runs import MAIN, Row
from kiwi_rag.evaluation.tuning import Tuned


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a header and one line a method: each metric, the main one with its interval, and the latency."""
    others = [name for name in rows[0].metrics if name != MAIN]
    titles = "".join(f"  {name:>9}" for name in others)
    yield f"{'method':<8}  {'nDCG@10':>7}  {'95% interval':<14}{titles}  {'p50 ms':>7}  {'p95 ms':>7}"
    for row in rows:
        main = row.metrics[MAIN]
        figures = "".join(f"  {row.metrics[name].mean:9.3f}" for name in others)
        interval = f"{main.low:.3f} to {main.high:.3f}"
        yield f"{row.method:<8}  {main.mean:7.3f}  {interval:<14}{figures}  {row.p50_ms:7.2f}  {row.p95_ms:7.2f}"


def gain(method: str, leg: str, change: Difference) -> str:
    """Say how a method does beside the better leg."""
    return f"{method} − {leg}: {change.mean:+.3f} nDCG@10, {change.low:+.3f} to {change.high:+.3f}, p {_p(change.p)}"


def comparison(found: Comparison, limit: int) -> Iterator[str]:
    """Yield the means, the counts, and the queries that changed most."""
    before, after = found.methods
    change = found.change
    yield f"{found.metric}: {before} {found.before:.3f} → {after} {found.after:.3f}"
    yield f"difference {change.mean:+.3f}, 95% interval {change.low:+.3f} to {change.high:+.3f}, p {_p(change.p)}"
    yield f"{found.wins} better, {found.losses} worse, {found.ties} the same, of {len(found.changes)} queries"
    for query in found.changes[:limit]:
        if abs(query.by) <= SAME:
            break
        kind = f"  [{query.kind}]" if query.kind else ""
        yield f"{query.by:+.3f}  {query.before:.3f} → {query.after:.3f}  {query.text}{kind}"
        if query.first_before != query.first_after:
            yield f"        before  {', '.join(query.first_before) or 'nothing'}"
            yield f"        after   {', '.join(query.first_after) or 'nothing'}"


def tuned(found: Tuned) -> Iterator[str]:
    """Yield what the weights reach on the half that they were chosen on, and, with intervals, on the other."""
    yield f"chosen on the even half: nDCG@10 {found.chosen_before:.3f} → {found.chosen_on:.3f}"
    yield f"reported on the odd half, {len(found.columns['tuned'])} queries:"
    figures = found.figures()
    for name, figure in figures.items():
        yield f"  {name:<8}  {figure.mean:.3f}  {figure.low:.3f} to {figure.high:.3f}"
    best = max(LEGS, key=lambda leg: figures[leg].mean)
    for other in ("before", best):
        yield gain("tuned", other, difference(found.columns["tuned"], found.columns[other]))
    yield "weights: " + ",".join(f"{name}={value:g}" for name, value in asdict(found.weights).items())


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
