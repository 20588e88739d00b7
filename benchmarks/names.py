"""Names as queries over three real trees: how often the file or the definition that a query names comes first.

Run: ``python -m benchmarks.names [--model] [--sample FILES] [--half HALF] [--seed N] [tree]``. Prints one JSON object:
for each tree and half the share of queries whose first hit is right, and the queries whose first hit is another. One
half (``written``) are those of ``names.jsonl``, written by hand. The other (``independent``) is made from the trees by
regular expressions that share nothing with Kiwi's parsers: definitions of names that are defined once, files of a
unique name, and callers, chosen and worded at random. Without ``--model`` vectors are hashes of words, which takes a
hundredth of the time. ``--sample`` indexes so many files of each tree beside those that are expected.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.place import MODELS_OF
from benchmarks.trees_fetch import _SAFELY, Tree, _run, fetched
from benchmarks.trees_fetch import TREES as FETCHED
from tests.shared import ROOT
from tests.workspaces import Yard

JUDGED = ROOT / "tests/data/names.jsonl"
SEED = 20_261_122
A_TREE = 7
"""Independent queries a tree."""


@dataclass(frozen=True)
class Judgement:
    """A query and its answer.

    The first hit must be of the file at ``path``, where one is given, and contain every text of ``holds``, and none of
    ``lacks``.
    """

    tree: str
    query: str
    path: str = ""
    holds: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    def is_met(self, path: str, text: str) -> bool:
        """Return whether a passage of a file is an answer."""
        there = all(one in text for one in self.holds) and not any(one in text for one in self.lacks)
        return there and self.path in {"", path}


def _viem(cache: Path, folder: Path) -> str:
    """Lay out TypeScript alone: the package has each module as JavaScript and as declarations, too."""
    package = "viem@2.21.0"
    packed = cache / json.loads(_run(cache, "npm", "pack", package, "--json"))[0]["filename"]
    _extract(packed, folder, lambda path: path.suffix == ".ts" and not path.parts[0].startswith("_"))
    return package


def _sqlalchemy(cache: Path, folder: Path) -> str:
    package = "SQLAlchemy==2.0.36"
    pip = ("python", "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "SQLAlchemy")
    _run(cache, *pip, package, "-d", ".")
    _extract(cache / "sqlalchemy-2.0.36.tar.gz", folder, lambda path: path.suffix in {".py", ".rst"})
    return package


def _extract(packed: Path, folder: Path, is_wanted: Callable[[PurePosixPath], bool]) -> None:
    """Extract files of an archive without its outermost folder, and remove the archive."""
    with tarfile.open(packed) as archive:
        for member in archive:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if member.isfile() and is_wanted(path):
                archive.extract(member.replace(name=str(path), deep=False), folder, **_SAFELY)
    packed.unlink()


JDK = next(tree for tree in FETCHED if tree.name == "openjdk-17-source")
PARTS = {JDK.name: "java.base/java"}
"""Of a large tree the folder that is indexed."""
TREES = (
    Tree("viem", "npm viem@2.21.0, its TypeScript", _viem),
    JDK,
    Tree("sqlalchemy", "PyPI SQLAlchemy==2.0.36, its Python and reStructuredText", _sqlalchemy),
)


def written(tree: str, _: Path, __: int = 0) -> list[Judgement]:
    """Return the judgements of a tree that were written by hand."""
    rows = map(json.loads, JUDGED.read_text(encoding="utf-8").splitlines())
    listed = ("holds", "lacks")
    return [
        Judgement(**row | {name: tuple(row.get(name, ())) for name in listed}) for row in rows if row["tree"] == tree
    ]


_DEFINITIONS = {
    ".ts": re.compile(r"^(export (?:async )?(?:function|class|type|const|interface) (\w{6,}))\b", re.MULTILINE),
    ".java": re.compile(
        r"^((?: {4})?public (?:[\w<>\[\],?. ]+ )?(?:(?:class|interface|enum) (?=\w+\b)|(?=\w+\())(\w{6,}))",
        re.MULTILINE,
    ),
    ".py": re.compile(r"^((?: {4})?(?:def|class) (\w{6,}))\b", re.MULTILINE),
}
_CALLS = re.compile(r"\b(\w{6,})\(")
DEFINED = (
    "{0}",
    "where is {0} defined",
    "definition of {0}",
    "what does {0} do",
    "{0}()",
    "where is `{0}` implemented?",
)
"""The form "what does X do" is used for names that are written as such alone: "what does insert do" names nothing."""
PLACED = ("{0}", "open {0}", "what is in {0}")
CALLED = ("who calls {0}", "callers of {0}", "where is {0} called")


def independent(tree: str, root: Path, seed: int = SEED) -> list[Judgement]:
    """Return judgements made from the files of a tree, the same ones each time."""
    texts = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in _files(root)
    }
    chosen = random.Random(f"{seed} {tree}")
    found: dict[str, list[tuple[str, str]]] = {}
    for path, text in texts.items():
        for line, name in _DEFINITIONS.get(PurePosixPath(path).suffix, re.compile(r"(?!)()()")).findall(text):
            found.setdefault(name, []).append((path, line))
    unique = sorted((name, *where[0]) for name, where in found.items() if len(where) == 1)
    named = [one for one in unique if re.search(r"[a-z][A-Z]|\w_\w", one[0])]
    definitions = [_defined(tree, *one, chosen) for one in chosen.sample(named, A_TREE - 3)]
    names = [PurePosixPath(path).name for path in texts]
    alone = sorted(path for path in texts if names.count(PurePosixPath(path).name) == 1)
    files = [_placed(tree, path, chosen) for path in chosen.sample(alone, 2)]
    calls = Counter(name for text in texts.values() for name in _CALLS.findall(text))
    called = next(one for one in chosen.sample(named, len(named)) if calls[one[0]] > 1)
    return [*definitions, *files, _called(tree, *called, chosen)]


def _defined(tree: str, name: str, path: str, line: str, chosen: random.Random) -> Judgement:
    return Judgement(tree, chosen.choice(DEFINED).format(name), path, (line,))


def _placed(tree: str, path: str, chosen: random.Random) -> Judgement:
    given = chosen.choice((path, PurePosixPath(path).name))
    return Judgement(tree, chosen.choice(PLACED).format(given), path)


def _called(tree: str, name: str, path: str, line: str, chosen: random.Random) -> Judgement:
    return Judgement(tree, chosen.choice(CALLED).format(name), "", (f"{name}(",), (line,))


_HALVES = {"written": written, "independent": independent}


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and ".ai" not in path.parts)


def lay_sample(origin: Path, root: Path, judgements: Sequence[Judgement], count: int) -> None:
    """Link the files of a tree below a folder: all of them, or a sample of so many beside the expected ones."""
    files = [path.relative_to(origin) for path in _files(origin)]
    sample = set(random.Random(SEED).sample(files, min(count or len(files), len(files))))
    sample |= {Path(one.path) for one in judgements if one.path}
    texts = {path: (origin / path).read_text("utf-8", "replace") for path in files} if count else {}
    for one in judgements:  # a definition's own file may hold the only call
        sample |= set(islice((path for path, text in texts.items() if all(text.count(h) for h in one.holds)), 5))
    for path in sorted(sample):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin / path, root / path)


async def measure(tree: Tree, options: argparse.Namespace) -> dict[str, Any]:
    """Index a tree and search it for each name; return the share of right first hits, and the wrong ones."""
    cache = MODELS_OF / "trees"
    cache.mkdir(parents=True, exist_ok=True)
    origin = fetched(tree, cache) / PARTS.get(tree.name, "")
    halves = {half: _HALVES[half](tree.name, origin, options.seed) for half in _HALVES if options.half in {"", half}}
    judgements = [one for half in halves.values() for one in half]
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        lay_sample(origin, Path(folder), judgements, options.sample)
        yard = Yard(Path(folder), **({"embed": _model()} if options.model else {}))
        report = await yard.index()
        found = {name: await _judged(yard, half) for name, half in halves.items()}
        await yard.store.close()
    return {"files": len(report.indexed), "passages": report.passages, **found}


async def _judged(yard: Yard, judgements: Sequence[Judgement]) -> dict[str, Any]:
    firsts = [(one, await _first(yard, one.query)) for one in judgements]
    wrong = [(one, path, text) for one, (path, text) in firsts if not one.is_met(path, text)]
    return {
        "queries": len(judgements),
        "first": round(1 - len(wrong) / len(judgements), 3),
        "wrong": [{**asdict(one), "hit": path, "text": text[:200]} for one, path, text in wrong],
    }


async def _first(yard: Yard, query: str) -> tuple[str, str]:
    reply = await yard.search(query, limit=3)
    return next(((hit.path, hit.passage.text) for hit in reply.hits), ("", ""))


def _model() -> Any:
    """Return the default model, with the cache of vectors that is kept from one run to the next."""
    from kiwi_rag.services import Services

    return Services.open({"KIWI_CACHE_DIR": str(MODELS_OF)}, Path.cwd(), Path.cwd()).embed


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", nargs="?", default="")
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--half", choices=["written", "independent"], default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=SEED, help="another one makes other independent queries")
    return parser.parse_args(arguments)


def results(options: argparse.Namespace) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each tree's name and result."""
    for tree in TREES:
        if options.tree in {"", tree.name}:
            yield tree.name, asyncio.run(measure(tree, options))


def main() -> None:
    """Measure and print."""
    found = dict(results(_options()))
    halves: dict[str, list[Mapping[str, Any]]] = {}
    for tree in found.values():
        for name in tree.keys() - {"files", "passages"}:
            halves.setdefault(name, []).append(tree[name])
    whole = {name: round(1 - sum(len(h["wrong"]) for h in half) / sum(h["queries"] for h in half), 3)
             for name, half in halves.items()}  # fmt: skip
    print(json.dumps({"first": whole, "trees": found}, indent=1))


if __name__ == "__main__":
    main()
