"""``kiwi eval``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from kiwi_rag.app import App
from kiwi_rag.cli.search import SOURCE
from kiwi_rag.cli.session import DONE, Session


@click.command("eval", epilog="Example: kiwi eval queries.jsonl --source project")
@click.argument("queries", type=click.Path(path_type=Path, dir_okay=False))
@SOURCE
@click.option("--alpha", type=float, help="Weight of the vector leg in the hybrid row; default: the tuned one.")
@click.pass_obj
def evaluate(session: Session, queries: Path, source: str | None, alpha: float | None) -> int:
    """Measure nDCG@10, hit@3 and MRR of grep, BM25, vectors and hybrid on judged queries.

    QUERIES holds one JSON object a line: {"query": "...", "relevant": {"directive:acme/x": 2}}.
    """
    return session.run(lambda app: _evaluate(session, app, queries, source or "local", alpha))


async def _evaluate(session: Session, app: App, path: Path, source: str, alpha: float | None) -> int:
    from kiwi_rag.search.evaluate import evaluate, load

    queries = load(path)
    tiers = [app.tier(name) for name in app.source_names(source)]
    with session.bar("eval", "queries") as planned:
        rows = await evaluate(queries, app.searcher(source), tiers, alpha, planned(4 * len(queries)))
    if session.as_json:
        session.data({"queries": len(queries), "rows": [asdict(row) for row in rows]})
        return DONE
    session.out(f"{'method':<8}  nDCG@10  hit@3    MRR")
    for row in rows:
        session.out(f"{row.method:<8}  {row.ndcg10:7.3f}  {row.hit3:5.3f}  {row.mrr:5.3f}")
    session.say(f"{len(queries)} queries over {source}")
    return DONE
