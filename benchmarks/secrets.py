"""How many kinds of credentials the gate finds, how often it is wrong over real documents, and how long it takes.

Run: ``python -m benchmarks.secrets``. Prints one JSON object. ``detection`` is over `secret_kinds`, `SAMPLES` texts a
kind from a seed, for the half of the kinds that the patterns were tried on and for the half kept apart. Both halves
were written before the patterns, by the same author from the same lists. A kind is found if all of its texts are.
``false_alarms`` is over the Markdown of packages of npm and PyPI: the documents in which the gate redacts something,
each of which is listed, with the seconds of this process for a MB. ``hostile_s_per_mb`` has texts of two sizes: linear
time has the same seconds for both.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from benchmarks.place import MODELS_OF
from benchmarks.real_documents import RealDocument, documents
from benchmarks.secret_kinds import is_kept_apart, kinds
from benchmarks.trees_fetch import NotFetched
from kiwi_rag.validation import secrets
from kiwi_rag.validation.document_gate import decode

SAMPLES = 10
SEED = 20
HOSTILE = {
    "names": "secret_key=",
    "beginnings": "sk-proj-",
    "web tokens": "eyJhbGciOiJIUzI1NiJ9.",
    "keys begun": "-----BEGIN " + "PRIVATE KEY-----\n",
    "lines": "a\\\n",
    "escapes": "%41",
    "base64": "QUJDREVGRw==\n",
}
HOSTILE_CHARACTERS = (200_000, 800_000)


def detection(kept_apart: bool) -> dict[str, Any]:
    """Return the share of the kinds and of the texts of one half that are found, and the kinds that are not."""
    found = {}
    for kind, make in kinds().items():
        if is_kept_apart(kind) == kept_apart:
            texts = (make(Random(f"{SEED} {kind} {n}")) for n in range(SAMPLES))
            found[kind] = sum(
                bool(secrets.check_secrets(f"# Notes\n\nOf the harbour.\n\n{text}\n\nEnd.\n")) for text in texts
            )
    whole = sum(count == SAMPLES for count in found.values())
    return {
        "kinds": len(found),
        "found": round(whole / len(found), 3),
        "texts_found": round(sum(found.values()) / SAMPLES / len(found), 3),
        "missed": {kind: f"{count} of {SAMPLES}" for kind, count in found.items() if count < SAMPLES},
    }


def false_alarms(real: Iterable[RealDocument]) -> dict[str, Any]:
    """Return the documents in which the gate redacts something, and the seconds that a MB of all of them takes."""
    texts = [(document, decode(document.data, document.path)[0]) for document in real]
    started = time.process_time()
    found = [(document, secrets.spans(text)) for document, text in texts]
    seconds = time.process_time() - started
    alarms = [
        {"package": document.package, "path": document.path, "kinds": sorted({kind for *_, kind in spans})}
        for document, spans in found
        if spans
    ]
    size = sum(len(document.data) for document, _ in texts)
    return {
        "packages": Counter(document.package for document, _ in texts),
        "documents": len(texts),
        "mb": round(size / 1e6, 1),
        "rate": round(len(alarms) / len(texts), 5),
        "alarms": alarms,
        "s_per_mb": round(seconds / size * 1e6, 3),
    }


def hostile() -> dict[str, dict[str, float]]:
    """Return the seconds for a MB of each hostile text, of two sizes."""
    return {
        name: {f"{size:,}": _seconds_per_mb(unit * (size // len(unit))) for size in HOSTILE_CHARACTERS}
        for name, unit in HOSTILE.items()
    }


def _seconds_per_mb(text: str) -> float:
    started = time.process_time()
    secrets.spans(text)
    return round((time.process_time() - started) / len(text) * 1e6, 3)


def main() -> None:
    """Print the figures."""
    figures: dict[str, Any] = {
        "detection": {"tried on": detection(False), "kept apart": detection(True)},
        "hostile_s_per_mb": hostile(),
    }
    try:
        figures["false_alarms"] = false_alarms(documents(MODELS_OF / "trees"))
    except NotFetched as error:
        figures["false_alarms"] = {"skipped": str(error)}
    json.dump(figures, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
