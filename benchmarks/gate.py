"""What the gate's check for hidden instructions finds, what it takes from real documents, and how long it takes.

Run: ``python -m benchmarks.gate [kinds ...]``. Prints one JSON object. ``detection`` is the share of generated attacks
(`benchmarks.gate_attacks`) whose words are not in the text that is indexed, for both halves of their kinds, with the
kinds of which some were missed. ``false_alarms`` is the share of real documents, the Markdown of `PACKAGES`, that lose
something; each is listed with the first finding, so that it can be judged. ``seconds_per_mb`` are those of the check
over a quarter, a half and one MB of such Markdown, and over 8 MB, which have too many lines to be read as Markdown: the
same where the time is linear.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gate_attacks import BUILT, BUILT_WORDS, KEPT_APART, KEPT_WORDS, Kind, attacks
from benchmarks.place import MODELS_OF
from benchmarks.trees_fetch import fetched, markdown
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.document_gate import DocumentFile, inspect_document
from kiwi_rag.validation.injection import spans

SEED = 20
EACH = 24
"""Attacks of a kind."""
PACKAGES = (
    "npm:next@16.4.6",
    "npm:aws-cdk-lib@2.276.0",
    "npm:@mastra/mcp-docs-server@1.2.27",
    "npm:@mastra/core@1.71.0",
    "npm:@pnp/cli-microsoft365@11.11.0",
    "npm:claude-flow@3.43.0",
    "npm:ai@7.0.173",
    "npm:bmad-method@6.12.0",
    "npm:npm@12.2.0",
    "npm:fastify@5.12.8",
    "pypi:hatch@1.18.2",
    "pypi:pymdown-extensions@13.1",
    "pypi:pdm@2.29.4",
)
_POLICY = policy_of("documents")


def detection(kinds: dict[str, Kind], words: tuple[str, ...]) -> dict[str, Any]:
    """Return the share of attacks that are found, and of which kinds how many were missed."""
    made = list(attacks(kinds, words, SEED, EACH))
    missed = Counter(attack.kind for attack in made if attack.words in _indexed("attack.md", attack.text.encode()))
    return {
        "kinds": len(kinds),
        "attacks": len(made),
        "found": round(1 - missed.total() / len(made), 4),
        "missed": missed,
    }


def _indexed(path: str, data: bytes) -> str:
    document, _ = inspect_document(DocumentFile(path, data), _POLICY)
    return document.content if document else ""


def false_alarms(files: list[Path]) -> dict[str, Any]:
    """Return the share of real documents that lose something, and what the gate says of each."""
    alarms = {}
    for file in files:
        _, findings = inspect_document(DocumentFile(file.name, file.read_bytes()), _POLICY)
        found = [each for each in findings if each.code.startswith("hidden.") and each.message.startswith("redacted:")]
        if found:
            alarms["/".join(file.parts[-4:])] = f"line {found[0].line}: {found[0].message}"
    return {"documents": len(files), "rate": round(len(alarms) / len(files), 5), "alarms": alarms}


def documents() -> Iterator[Path]:
    """Yield the Markdown files of all packages, which are fetched at the first run."""
    cache = MODELS_OF / "trees"
    cache.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        folder = fetched(markdown(package), cache)
        yield from sorted(path for path in folder.rglob("*") if path.is_file())


def seconds_per_mb(files: list[Path]) -> dict[str, float]:
    """Return the processor seconds of the check by the size of a text, all made of the same documents."""
    text = "\n\n".join(file.read_text(errors="replace") for file in files)
    spans(text[:10_000], "a.md")  # what is made at first use
    taken = {}
    for size in (0.25, 0.5, 1, 8):
        part = text[: int(size * (1 << 20))]
        begun = time.process_time()
        spans(part, "a.md")
        taken[f"{size:g} MB"] = round((time.process_time() - begun) / size, 2)
    return taken


def main() -> None:
    """Measure all, or of the attacks only those of the named kinds."""
    chosen = sys.argv[1:]
    if chosen:
        kinds = {name: kind for name, kind in BUILT.items() if name in chosen}
        print(json.dumps(detection(kinds, BUILT_WORDS), indent=1))
        return
    files = list(documents())
    found = {"built": detection(BUILT, BUILT_WORDS), "kept_apart": detection(KEPT_APART, KEPT_WORDS)}
    alarms = {"packages": PACKAGES, **false_alarms(files)}
    print(json.dumps({"detection": found, "false_alarms": alarms, "seconds_per_mb": seconds_per_mb(files)}, indent=1))


if __name__ == "__main__":
    main()
