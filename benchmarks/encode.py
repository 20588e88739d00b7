"""Encode throughput and cold start: the ``onnx`` provider against sentence-transformers, same texts, same threads.

Run with ``python -m benchmarks.encode``; it prints JSON. Without sentence-transformers only Kiwi's own numbers are
there; without the corpus (``KIWI_SHARED``) only those of a cold start. Rounds alternate between the two, so that a busy
machine slows both. Each side runs as suits it best on a CPU: Kiwi with batches of at most 256 tokens, one a thread,
sentence-transformers with batches of 8 (of 1, 2, 8 and 32).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.timing import spread, timed
from kiwi_rag.embedding import EmbeddingProvider
from kiwi_rag.embedding.factory import load_provider
from kiwi_rag.embedding.weights import ModelSource, onnx_files
from tests.shared import CORPUS, NEEDS_SHARED, ROOT

CACHE = ROOT / ".pytest_cache" / "kiwi"
TOKENS = 175
TEXTS = 96
ROUNDS = 5

COLD = """
import sys, time
started = time.perf_counter()
from pathlib import Path
from kiwi_rag.embedding.factory import load_provider
provider = load_provider(sys.argv[1], cache_dir=Path(sys.argv[2])).uncached
provider.encode(["how do I roll back a release"])
print(time.perf_counter() - started)
"""


def texts_of(tokens: int, count: int) -> list[str]:
    """Return `count` stretches of the corpus of exactly `tokens` tokens, special ones included."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(onnx_files(ModelSource(CACHE / "models", hub="")).tokenizer))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    stretches = [
        text[offsets[start][0] : offsets[start + tokens - 3][1]]
        for text in (file.read_text("utf-8") for file in sorted(CORPUS.rglob("*.md")))
        for offsets in [tokenizer.encode(text, add_special_tokens=False).offsets]
        for start in range(0, len(offsets) - tokens, tokens)
    ]
    return stretches[:: max(1, len(stretches) // count)][:count]


def alternating(providers: dict[str, EmbeddingProvider], texts: Sequence[str]) -> dict[str, list[float]]:
    """Return texts a second of each round by provider; rounds alternate, after one to warm up."""
    times: dict[str, list[float]] = {name: [] for name in providers}
    for _ in range(ROUNDS + 1):
        for name, provider in providers.items():
            times[name].append(timed(lambda provider=provider: provider.encode(texts))[0])
    return {name: [len(texts) / taken for taken in rounds[1:]] for name, rounds in times.items()}


def cold_start(name: str, runs: int) -> float:
    """Return seconds from a fresh interpreter's first import to the first vector, the best of `runs`."""
    command = [sys.executable, "-c", COLD, name, str(CACHE)]
    return min(float(subprocess.check_output(command, cwd=ROOT, text=True)) for _ in range(runs))


def throughput(names: Sequence[str], threads: int) -> dict[str, Any]:
    """Return texts a second by provider and, with two, their ratio; without the corpus, that this was skipped."""
    if not CORPUS.is_dir():
        return {figure: {"skipped": NEEDS_SHARED} for figure in ("texts_per_second", "ratio")}
    providers = {n: load_provider(n, cache_dir=CACHE, threads=threads).uncached for n in names}
    rates = alternating(providers, texts_of(TOKENS, TEXTS))
    result = {"texts_per_second": {name: spread(rounds, 1) for name, rounds in rates.items()}}
    if len(names) == 2:
        pairs = zip(rates["onnx"], rates["sentence-transformers"], strict=True)
        result["ratio"] = spread([ours / theirs for ours, theirs in pairs], 2)
    return result


def measure(threads: int = 0) -> dict[str, Any]:
    """Return everything measured, ready for JSON."""
    names = ["onnx"]
    if importlib.util.find_spec("sentence_transformers"):
        names.append("sentence-transformers")
    threads = threads or os.cpu_count() or 1
    return {
        "tokens": TOKENS,
        "threads": threads,
        **throughput(names, threads),
        "cold_start_seconds": {name: round(cold_start(name, 3 if name == "onnx" else 1), 2) for name in names},
    }


if __name__ == "__main__":
    json.dump(measure(*(int(argument) for argument in sys.argv[1:2])), sys.stdout, indent=2)
    sys.stdout.write("\n")
