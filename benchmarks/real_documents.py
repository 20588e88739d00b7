"""Real Markdown of npm and PyPI packages, fetched by their clients and kept in the cache folder.

Versions are pinned. `documents` yields each distinct document once: packages repeat their licences and notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from benchmarks.trees_fetch import Tree, _npm, _pypi, fetched

PACKAGES = (
    "npm:@mastra/mcp-docs-server@0.13.31",
    "npm:@mui/material@9.5.0",
    "npm:@trigger.dev/sdk@4.8.3",
    "npm:@typescript-eslint/eslint-plugin@7.18.0",
    "npm:ai@6.0.326",
    "npm:aws-cdk-lib@2.276.0",
    "npm:eslint-plugin-import@2.32.0",
    "npm:eslint-plugin-jest@29.17.0",
    "npm:eslint-plugin-jsx-a11y@6.10.2",
    "npm:eslint-plugin-sonarjs@4.2.2",
    "npm:next@16.4.6",
    "pypi:copier@9.19.1",
    "pypi:fastapi@0.165.0",
    "pypi:hatch@1.18.2",
    "pypi:instructor@1.17.0",
    "pypi:pdm@2.29.4",
    "pypi:prefect@3.9.1",
    "pypi:sqlmodel@0.0.50",
)


class RealDocument(NamedTuple):
    """A Markdown file of a package: ``npm:name@version``, the path in its archive, and its bytes."""

    package: str
    path: str
    data: bytes


def documents(cache: Path) -> Iterator[RealDocument]:
    """Yield the Markdown of `PACKAGES`, fetched into `cache` if it is not there yet.

    Raises
    ------
    NotFetched
        When a client is missing or fails.
    """
    cache.mkdir(parents=True, exist_ok=True)
    seen = set()
    for package in PACKAGES:
        folder = fetched(_markdown_of(package), cache)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and (digest := sha256(data := path.read_bytes()).digest()) not in seen:
                seen.add(digest)
                yield RealDocument(package, path.relative_to(folder).as_posix(), data)


def _markdown_of(package: str) -> Tree:
    registry, _, named = package.partition(":")
    kept = lambda path: path.lower().endswith((".md", ".mdx"))  # noqa: E731
    lay = _npm(named, kept) if registry == "npm" else _pypi("==".join(named.rsplit("@", 1)), kept)
    return Tree(f"markdown-{named.replace('/', '-')}", package, lay)
