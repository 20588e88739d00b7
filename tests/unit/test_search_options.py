"""The options of ``kiwi search`` that say how to rank: read before anything is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag import cli, ingest
from kiwi_rag.cli import items
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.model import SearchQuery
from kiwi_rag.search.searcher import check_query

WRONG = {
    ("--alpha", "1.5"): "alpha 1.5 is not between 0 and 1",
    ("--limit", "201"): "limit 201 is not between 1 and 200",
    ("--per-signer", "0"): "neither a number",
    ("--per-signer", "many"): "neither a number",
    ("--per-signer", "-1"): "neither a number",
    ("--per-signer", "9" * 5000): "neither a number",
    ("--weights", "beta=0.5"): "there is no weight 'beta': they are alpha, first, centroid, whole",
    ("--weights", "alpha=1.5"): "alpha 1.5 is not between 0 and 1",
    ("--weights", "alpha=nan"): "alpha nan is not between 0 and 1",
    ("--weights", "first=0.7,centroid=0.7"): "first and centroid are shares of one leg: together they are over 1",
    ("--weights", "/no/such/file"): "cannot read weights from /no/such/file",
    ("--fusion", "sum"): "'sum' is not one of 'convex', 'rrf'",
}


def main(arguments: list[str]) -> object:
    """Run the command line; return its exit code."""
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    return left.value.code


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("option", WRONG, ids=[f"{name} {value[:12]}" for name, value in WRONG])
def test_what_makes_no_sense_is_refused(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "deploy", *option]) == (1 if WRONG[option].startswith("cannot read") else 2)
    told = capsys.readouterr()
    assert told.out == ""
    assert WRONG[option] in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"limit": 0}, "--limit 10"),
        ({"alpha": 2.0}, "--alpha=0.8"),
        ({"half_life_days": -1.0}, "0: age does not count"),
        ({"half_life_days": float("nan")}, "0: age does not count"),
        ({"per_signer": -1}, "--per-signer off"),
        ({"text": "deploy " * 2000}, "first paragraph"),
        ({"text": " "}, 'describe what to find, such as "roll back'),  # for items and documents
    ],
)
def test_what_is_refused_comes_with_what_mends_it(wrong: dict[str, Any], hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_query(SearchQuery(**({"text": "deploy"} | wrong)))
    assert hint in refused.value.hint


def test_the_help_of_index_names_the_default_of_the_encoder() -> None:
    assert items.JOBS == ingest.JOBS


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("[1]", "kiwi: weights.json holds no weights"),
        ("{}", "kiwi: weights.json holds no weights"),
        ('{"weights": 4}', "kiwi: weights.json holds no weights"),
        ('{"weights": {"alpha": "high"}}', "kiwi: alpha 'high' is not a number"),
        ("{", "kiwi: weights.json is not JSON"),
    ],
)
def test_a_file_that_holds_no_weights_is_refused(
    document: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weights.json").write_text(document)
    assert main(["search", "deploy", "--weights", "weights.json"]) == 2
    assert capsys.readouterr().err.startswith(said)


def test_the_help_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "--help"]) == 0
    told = capsys.readouterr().out
    for option in ("--per-signer", "--weights", "--fusion", "--explain", "--alpha"):
        assert option in told


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("alpha=0.5,alpha=0.6", "alpha is given twice"),
        ("alpha=" + "x" * 900_000, "is not a number"),
        ("x" * 900_000 + "=1", "there is no weight"),
        ("x" * 900_000, "cannot read weights"),
    ],
    ids=["twice", "long share", "long name", "long path"],
)
def test_wrong_weights_are_told_briefly(given: str, said: str) -> None:
    from kiwi_rag.search.ranking import read_weights

    with pytest.raises(KiwiError, match=said) as raised:
        read_weights(given)
    assert len(raised.value.message) < 250


@pytest.mark.parametrize("document", ["[" * 100_000, '{"weights": {"alpha": [[0.5]]}}'], ids=["deep", "a list"])
def test_weights_of_another_shape_are_refused(document: str, tmp_path: Path) -> None:
    from kiwi_rag.search.ranking import read_weights

    (tmp_path / "weights.json").write_text(document)
    with pytest.raises(UsageError):
        read_weights(str(tmp_path / "weights.json"))


def test_a_file_as_tuning_writes_it_is_read(tmp_path: Path) -> None:
    from kiwi_rag.search.ranking import read_weights

    path = tmp_path / "weights.json"
    path.write_text(json.dumps({"weights": {"alpha": 0.5, "whole": 0.25}, "obtained": {"queries": 30}}))
    weights = read_weights(str(path))
    assert (weights.alpha, weights.whole, weights.first) == (0.5, 0.25, 0.0)
