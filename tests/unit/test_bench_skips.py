"""Benchmarks in a checkout that has no shared data beside it: what needs the data is skipped and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import encode, quality
from benchmarks.place import Place
from benchmarks.ratios import table
from tests.shared import NEEDS_SHARED


def test_without_the_corpus_encode_measures_the_cold_start_and_skips_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "CORPUS", tmp_path / "absent")
    monkeypatch.setattr(encode, "cold_start", lambda name, runs: 0.5)
    found = encode.measure(threads=1)
    assert found["cold_start_seconds"]["onnx"] == 0.5
    assert found["texts_per_second"] == {"skipped": NEEDS_SHARED}
    (line,) = [line for line in table({"encode": found}) if line.startswith("| encode throughput")]
    assert line.endswith(
        "| – | – | skipped: needs ../shared (real items and judged queries; KIWI_SHARED names the folder) |"
    )


def test_without_the_corpus_quality_skips_its_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "CORPUS", tmp_path / "absent")
    assert quality.COLLECTIONS["corpus"](Place.below(tmp_path)) == {"skipped": NEEDS_SHARED}
