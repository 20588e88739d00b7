"""What the gate says about real skills of npm and PyPI packages, and whether the format's reference library agrees.

Run: ``python -m benchmarks.skills`` (`make real-skills`). Each skill of `skills_fetch` stands in
``skills/<package>/<name>/`` below a folder of items and takes steps 0 to 6, as in ``kiwi validate``; ``skills-ref``
reads the same folder. Writes ``SKILLS.md``. With ``--sheet``, prints the places to judge instead: `JUDGED` drawn
from a seed, at most `EACH` of a code, with the lines around each and without what Kiwi said. A place is a line of a
file; the first line of ``SKILL.md`` also stands for what its front matter does not say.
``skills_judged.json`` has two judgements of each, by two judges, the second without a look at the first or at what Kiwi
said, and of every refusal for hidden instructions, credentials or the reading of them.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import skills_ref

from benchmarks.skills_fetch import CACHE, skills
from kiwi_rag.formats.source import SourceFile, read_item, walk
from kiwi_rag.model import Finding, has_errors
from kiwi_rag.validation.manager import inspect_item
from tests.shared import ROOT

SEED = 21
JUDGED = 60
EACH = 8
AROUND = 6
REPORT = ROOT / "benchmarks/SKILLS.md"
JUDGEMENTS = ROOT / "benchmarks/skills_judged.json"
_AI = CACHE / "ai"
_LOOKED_AT = ("hidden.", "secrets.", "permissions.credentials")
_RIGHT = {True: "right", False: "wrong", None: "-"}


@dataclass(frozen=True)
class Outcome:
    """A skill, its package, what the gate found and what the reference library says against it."""

    item_id: str
    package: str
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """What the gate does with the skill."""
        return "refuse" if has_errors(self.findings) else "warn" if self.findings else "admit"

    def first(self) -> dict[str, Finding]:
        """Return the first finding of each code."""
        return {finding.code: finding for finding in reversed(self.findings)}

    def file_of(self, finding: Finding) -> str:
        """Return the file of a finding, relative to the skill's folder."""
        folder = _AI / "skills" / self.item_id
        path = Path(finding.path)
        return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def outcomes() -> list[Outcome]:
    """Return what the gate and the reference library say about every skill."""
    real = skills()
    sources = {source.path.parent: source for source in walk(_AI)}
    return [
        Outcome(
            skill.folder.relative_to(_AI / "skills").as_posix(),
            skill.package,
            _inspected(sources[skill.folder]),
            tuple(_reference(skill.folder)),
        )
        for skill in real
    ]


def _inspected(source: SourceFile) -> tuple[Finding, ...]:
    candidate = read_item(source, _AI)
    return (candidate,) if isinstance(candidate, Finding) else inspect_item(candidate).findings


def _reference(folder: Path) -> list[str]:
    try:
        return list(skills_ref.validate(folder))
    except UnicodeDecodeError:
        return ["SKILL.md is not UTF-8"]


class Place(NamedTuple):
    """A line of a file of a skill of which the gate found something; the first of its errors, or of its warnings."""

    outcome: Outcome
    file: str
    line: int
    finding: Finding


def drawn(of: Iterable[Outcome]) -> list[Place]:
    """Return `JUDGED` places, the first of each code of a skill, at most `EACH` of a code.

    The order is that of digests of the seed and the place, so that another finding elsewhere moves no other place.
    """
    pool = sorted((place for outcome in of for place in _places(outcome)), key=_drawn_by)
    taken: Counter[str] = Counter()
    kept = []
    for place in pool:
        taken[place.finding.code] += 1
        if taken[place.finding.code] <= EACH:
            kept.append(place)
    return kept[:JUDGED]


def _drawn_by(place: Place) -> bytes:
    return sha256(f"{SEED} {place.outcome.item_id} {place.file} {place.line}".encode()).digest()


def _places(outcome: Outcome) -> list[Place]:
    found: dict[tuple[str, int], Place] = {}
    first = outcome.first()
    for finding in sorted(first.values(), key=lambda each: (not each.is_error, each.code)):
        file, line = outcome.file_of(finding), max(1, finding.line)
        found.setdefault((file, line), Place(outcome, file, line, finding))
    return list(found.values())


def sheet(of: Iterable[Outcome]) -> Iterator[str]:
    """Yield the places to judge, with the lines around them and without what Kiwi said."""
    for number, (outcome, file, line, _) in enumerate(drawn(of), start=1):
        yield f"## {number}. {outcome.item_id}: {file}, line {line}\n"
        path = _AI / "skills" / outcome.item_id / file
        lines = (
            path.read_bytes().decode(errors="replace").split("\n") if path.is_file() else [*map(str, path.iterdir())]
        )
        begin = max(0, line - AROUND)
        yield from (f"{n:5} {text[:200]}" for n, text in enumerate(lines[begin : line + AROUND], begin + 1))
        yield ""


def judged(of: Sequence[Outcome]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the judgements of drawn places, and of refusals for hidden text and credentials.

    Raises
    ------
    SystemExit
        When one of a place that is drawn now is missing.
    """
    known = json.loads(JUDGEMENTS.read_text())
    named = {(each["skill"], each["file"], each["line"]): each for each in known["places"]}
    places = []
    for outcome, file, line, finding in drawn(of):
        if not (judgement := named.get((outcome.item_id, file, line))):
            raise SystemExit(f"{JUDGEMENTS.name} has no judgement of {outcome.item_id} {file}:{line}: see --sheet")
        places.append({**judgement, "code": finding.code, "kiwi": "refuse" if finding.is_error else "warn"})
    looked = {(each["skill"], each["code"]): each for each in known["looked_at"]}
    refused = [(o.item_id, code) for o in of for code, f in o.first().items() if f.is_error]
    return places, [looked[key] for key in refused if key[1].startswith(_LOOKED_AT)]


def report(of: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines of the report."""
    verdicts = Counter(outcome.verdict for outcome in of)
    packages = len({outcome.package for outcome in of})
    unversioned = sum(set(outcome.first()) == {"metadata.version-missing"} for outcome in of)
    yield from (
        "# Real skills",
        "",
        "What the gate says about skills that npm and PyPI packages ship, and whether skills-ref 0.1.1, the reference",
        "library of the format, agrees. Made by `make real-skills`; `tests/data/real_skills.txt` pins the packages.",
        "",
        f"{len(of)} skills of {packages} packages: {verdicts['refuse']} refused, {verdicts['warn']} with warnings",
        f"({unversioned} with none but that no version is declared), {verdicts['admit']} without a finding.",
        "",
        *_by_code(of),
        "",
        *_agreement(of),
        "",
        *_judgements(*judged(of), len(of)),
    )


def _by_code(of: Sequence[Outcome]) -> Iterator[str]:
    having: defaultdict[tuple[bool, str], list[Outcome]] = defaultdict(list)
    for outcome in of:
        for code, finding in outcome.first().items():
            having[finding.is_error, code].append(outcome)
    yield from (
        "## By finding",
        "",
        "| finding | severity | skills | skills-ref refuses too |",
        "| --- | --- | --- | --- |",
    )
    for (is_error, code), skills_ in sorted(having.items(), key=lambda each: (not each[0][0], -len(each[1]))):
        too = sum(bool(outcome.problems) for outcome in skills_)
        yield f"| `{code}` | {'error' if is_error else 'warning'} | {len(skills_)} | {too} |"


def _agreement(of: Sequence[Outcome]) -> Iterator[str]:
    counts = Counter((outcome.verdict == "refuse", bool(outcome.problems)) for outcome in of)
    yield from (
        "## Agreement with skills-ref",
        "",
        "| | skills-ref accepts | skills-ref refuses |",
        "| --- | --- | --- |",
    )
    for refuses, name in ((False, "Kiwi admits"), (True, "Kiwi refuses")):
        yield f"| {name} | {counts[refuses, False]} | {counts[refuses, True]} |"
    yield from ("", "Each disagreement, by its reason:", "", "| skills | Kiwi | skills-ref |", "| --- | --- | --- |")
    reasons: Counter[tuple[str, str]] = Counter()
    for outcome in of:
        if (outcome.verdict == "refuse") != bool(outcome.problems):
            said = sorted(code for code, f in outcome.first().items() if f.is_error or code in _SAME_REASON)
            reasons[", ".join(f"`{code}`" for code in said) or "admits", _reasons(outcome.problems)] += 1
    for (kiwi, reference), count in reasons.most_common():
        yield f"| {count} | {kiwi} | {reference} |"


_SAME_REASON = ("metadata.unknown-key", "metadata.nested")
_REASONS = {
    r"Unexpected fields": "a key that the format does not have",
    r"ugly disallowed JSONesque": "a YAML flow mapping or list",
}


def _reasons(problems: Sequence[str]) -> str:
    named = (next((name for sign, name in _REASONS.items() if re.search(sign, each)), each[:60]) for each in problems)
    return "; ".join(sorted(set(named))) or "accepts"


def _judgements(places: Sequence[dict[str, Any]], looked_at: Sequence[dict[str, Any]], total: int) -> Iterator[str]:
    count = len(places)
    first, second = ([each[by] == each["kiwi"] for each in places if by in each] for by in ("first", "second"))
    right, made = sum(first) + sum(second), len(first) + len(second)
    wrong = [each for each in places if {each.get("first", each["kiwi"]), each["second"]} != {each["kiwi"]}]
    yield from (
        "## Judged",
        "",
        f"{count} places, drawn at random (seed {SEED}, at most {EACH} of a code) and judged from the file and the",
        "place: refuse, warn or admit. `skills_judged.json` has each judgement with its reason, `--sheet` prints the",
        "places. At each of them Kiwi found something, as the judges knew; what it overlooks is not measured here.",
        "",
        json.loads(JUDGEMENTS.read_text())["about"],
        "",
        f"Kiwi is right by {right} of {made} judgements ({right / made:.1%}): by {sum(first)} of {len(first)} of the",
        f"first pass, {sum(second)} of {len(second)} of the second. The others:",
        "",
    )
    for each in wrong:
        said = f"Kiwi {each['kiwi']}, judged {each.get('first', '-')} and {each['second']}"
        yield f"- `{each['skill']}`, `{each['code']}`: {said}: {each.get('why', '-')} / {each['second_why']}"
    refused, too = ({each["skill"] for each in looked_at if not each.get(by, True)} for by in ("right", "second_right"))
    yield from (
        "",
        f"Each refusal for hidden instructions or credentials, or for reading credentials, was looked at. Of {total}",
        f"skills, {len(refused)} are refused wrongly by the first judge, who did not look at the reading of them, and",
        f"{len(too)} ({len(too) / total:.1%}) by the second, who then knew the reason that Kiwi gave for it.",
        "",
    )
    for each in looked_at:
        said = " / ".join(_RIGHT[each.get(by)] for by in ("right", "second_right"))
        yield f"- `{each['skill']}`, `{each['code']}`, {said}: {each.get('why', '-')} / {each['second_why']}"


def main() -> None:
    """Write the report, or print the sheet."""
    found = outcomes()
    if "--sheet" in sys.argv[1:]:
        print("\n".join(sheet(found)))
    else:
        REPORT.write_text("\n".join(report(found)) + "\n")
        print(REPORT.read_text())


if __name__ == "__main__":
    main()
