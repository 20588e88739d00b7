"""Item files: check, sign, add and index them, copy them to the user tier, and publish them."""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from kiwi_rag import ingest
from kiwi_rag.errors import KiwiError, NotFound, Rejected, UsageError
from kiwi_rag.formats.source import ItemCandidate, SourceFile, display_path, read_item, signature_path, strays, walk
from kiwi_rag.ingest.publication import PublishRun
from kiwi_rag.ingest.sync import Callbacks, sync
from kiwi_rag.model import ITEM_TYPES, Admission, Finding, ItemType, Visibility
from kiwi_rag.registry.calls import time_limit
from kiwi_rag.render import counted
from kiwi_rag.retry import attempts
from kiwi_rag.search.verify import parse_address
from kiwi_rag.services import Services
from kiwi_rag.signing.keys import SigningKey
from kiwi_rag.sources.source import ItemSource, SyncReport
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.sources.workspace.watch import Retrying, RootMissing, Synced, watch
from kiwi_rag.usecases import item_files, sign
from kiwi_rag.usecases.project_trust import LINE_FROM
from kiwi_rag.usecases.sign import Draft
from kiwi_rag.validation.signature import EDITED, envelope_of

ErrorT = TypeVar("ErrorT", bound=KiwiError)
_EDITED = frozenset(("signature.metadata", "signature.version", "version.immutable", *EDITED))


def check_files(
    app: Services, paths: Sequence[Path], tier: str
) -> Iterator[tuple[SourceFile, Sequence[Finding], bool]]:
    """Yield each item file that `paths` name, with the findings of steps 0-6, and whether a trusted key signed it.

    Nothing is recorded.
    """
    root = app.root(tier)
    for source in item_files.sources_of(paths, root):
        candidate = read_item(source, root)
        if isinstance(candidate, Finding):
            yield source, (candidate,), False
            continue
        item, findings = app.gate.inspect(candidate)
        yield source, findings, sign.signed_statement(app.gate, app.local(tier), candidate, item) is not None


def find_strays(app: Services, paths: Sequence[Path], tier: str) -> Iterator[tuple[Path, Finding]]:
    """Yield each file at or below one of `paths` that belongs to no item, with a warning."""
    named = {path.absolute() for path in paths}
    for path in strays(app.root(tier).absolute()):
        if not named.isdisjoint((path, *path.parents)):
            shown = display_path(path)
            command = f"kiwi import {shlex.quote(shown)}{' --tier user' if tier == 'user' else ''}"
            hint = f"{command} makes an item of a text; then remove it, or move it out of .ai"
            message = "the file belongs to no item: it is not signed, and no search finds it"
            yield path, Finding("source.no-item", message, path=shown, hint=hint, severity="warning")


async def make_drafts(  # noqa: PLR0913  # the options of a signature
    app: Services, paths: Sequence[Path], tier: str, *, key: str, ask_passphrase: Callable[[], str],
    report: Callable[[str], None], **options: Any,
) -> tuple[Sequence[Draft], Sequence[Rejected]]:  # fmt: skip
    """Check and sign in memory the items that `paths` name; nothing is written. See `sign.Author.drafts`.

    `report` is called with the reason why the versions in the registry were not compared.
    """
    sources, histories = item_files.sources_of(paths, app.root(tier)), sign.VersionHistories(app)
    author = sign.Author(app.local(tier), app.gate, app.signing_key(key, ask_passphrase), histories, app.principal)
    made = await author.drafts(sources, **options)
    if problem := histories.registry_problem:
        report(problem)
    return made


def error_codes(error: KiwiError) -> set[str]:
    """Return the codes of the errors for which the gate rejected an item; none for another error."""
    return {finding.code for finding in error.findings if finding.is_error} if isinstance(error, Rejected) else set()


def edited_paths(errors: Iterable[KiwiError]) -> list[Path]:
    """Return the files that were rejected only because their content is not the one that was signed or admitted."""
    edited = (one for one in errors if isinstance(one, Rejected) and error_codes(one) <= _EDITED)
    return [Path(one.findings[0].path) for one in edited]


def name_command(error: ErrorT, command: str) -> ErrorT | Rejected:
    """Return a rejection whose hints raise versions by `command`, not by ``kiwi sign``; another error as it is."""
    if not isinstance(error, Rejected):
        return error
    hints = (re.sub("kiwi sign (.*--bump)", rf"kiwi {command} \1", finding.hint) for finding in error.findings)
    return Rejected(error.ref, [replace(f, hint=hint) for f, hint in zip(error.findings, hints, strict=True)])


def without_signer_hints(refused: Sequence[Rejected]) -> tuple[list[Rejected], list[str]]:
    """Return rejections without a remedy for unknown signers, and a line for each of these with the remedy."""
    items, kept = Counter[str](), []
    for error in refused:
        unknown = [f.code == "signature.unknown-signer" for f in error.findings]
        items.update({f.message for f, is_unknown in zip(error.findings, unknown, strict=True) if is_unknown})
        found = [replace(f, hint="") if one else f for f, one in zip(error.findings, unknown, strict=True)]
        kept.append(Rejected(error.ref, found))
    remedy = (
        f"if you know its owner: kiwi trust add LINE, {LINE_FROM}; for the whole team the owner runs kiwi trust share"
    )
    return kept, [f"{counted(count, 'items')}: {message}; {remedy}" for message, count in items.items()]


async def store(
    app: Services, drafts: Sequence[Draft], tier: str
) -> AsyncGenerator[Draft | Rejected | tuple[Admission, bool]]:
    """Write and index drafts; yield each one that was written, and its rejection, or admission.

    With an admission comes whether the index had the same already.
    """
    target = app.local(tier)
    async with target.writing():
        for one in drafts:
            try:
                admission = await ingest.admit(one.candidate, target, app.gate)
                one.write()
                yield one
                known = await target.store.get(admission.ref, ())
                await ingest.store(one.candidate, admission, target, app.writer)
                yield admission, known is not None and known.digest == admission.digest
            except Rejected as rejection:
                yield rejection


async def update_index(app: Services, tier: str, callbacks: Callbacks, jobs: int, *, rebuild: bool) -> SyncReport:
    """Update a local tier's index from its files, after emptying it if `rebuild` is set. See `ingest.sync`.

    Raises
    ------
    KiwiError
        When a file failed for another reason than a rejection, such as a failing model; the others are stored.
    """
    to, writer = app.local(tier), app.writer
    if rebuild:
        await to.clear()
    report = await sync(ItemSource(to, writer.gate), to, writer, callbacks, jobs=jobs)
    report.raise_unless_rejected()
    return report


def watch_items(
    app: Services, tier: str, key: SigningKey | None, signed: Callable[[Draft], None]
) -> AsyncGenerator[Synced | Retrying | RootMissing]:
    """Index a local tier, then what is changed of it, until it is closed; with a key, sign what is saved before that.

    What was there when it began is not signed. `signed` is called with each item that was. An item that lacks nothing
    but a signature counts as skipped; a file that belongs to no item is a warning.
    """
    to, root, began = app.local(tier), app.root(tier), time.time()
    running = False

    async def update(paths: Sequence[str] | None) -> SyncReport:
        nonlocal running
        names = None if paths is None else [name for path in paths for name in _item_names(root, root / path)]
        refused = await sign_saved(key, names) if key and running else {}
        running = True
        report = await sync(ItemSource(to, app.gate), to, app.writer, paths=names)
        report.failed |= refused
        for path, error in [*report.failed.items()]:
            if isinstance(error, Rejected) and error_codes(error) == {"signature.unsigned"}:
                report.skipped[path] = f"would be admitted; kiwi sign {shlex.quote(display_path(Path(path)))}"
                report.warnings += [finding for finding in error.findings if not finding.is_error]
                del report.failed[path]
        changed = [root] if paths is None else [root / path for path in paths]
        report.warnings += [finding for _, finding in find_strays(app, changed, tier)]
        return report

    async def sign_saved(key: SigningKey, names: Sequence[str] | None) -> dict[str, KiwiError]:
        author = sign.Author(to, app.gate, key, sign.VersionHistories(app), app.principal, restores_old=False)
        refused: dict[str, KiwiError] = {}
        for source in walk(root):
            is_new = _written_since(source.path, began) if names is None else str(source.path) in names
            bump = "patch" if signature_path(source.path).exists() or _lacks_version(app, source, root) else None
            drafts, rejections = await author.drafts([source] if is_new else [], bump=bump)
            refused |= {str(source.path): error for error in rejections}
            for draft in drafts:
                draft.write()
                signed(draft)
        return refused

    config = WorkspaceConfig(root, "items")
    return watch(config, update, only=[item_type.folder for item_type in ITEM_TYPES])


def _lacks_version(app: Services, source: SourceFile, root: Path) -> bool:
    candidate = read_item(source, root)
    return not isinstance(candidate, Finding) and sign.is_version_missing(app.gate.inspect(candidate).findings)


def _written_since(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime >= moment
    except OSError:  # deleted meanwhile, or not readable, which the index run reports
        return False


def _item_names(root: Path, path: Path) -> Iterator[str]:
    """Yield the paths of the items that a changed file may belong to."""
    yield str(path).removesuffix(".sig")
    if path.is_relative_to(root / ItemType.SKILL.folder):
        yield from (str(folder / "SKILL.md") for folder in path.parents[: len(path.relative_to(root).parts) - 1])


async def copy_to_tier(
    app: Services, paths: Sequence[Path], target: str, copied: Callable[[Admission], None], *, overwrite: bool
) -> tuple[int, Sequence[KiwiError]]:
    """Copy signed project items to another local tier and index them: all that `paths` name, or none.

    `copied` is called with each item as soon as it is durable. Returns the number of items, and the refusals.
    """
    to, root, histories = app.local(target), app.root("project"), sign.VersionHistories(app)
    copies, refused = list[ItemCandidate](), list[KiwiError]()
    async with to.writing():
        for source in item_files.sources_of(paths or (root,), root):
            try:
                copy = await sign.check_copy(source, app.local("project"), to, app.gate, histories)
                item_files.check_place(app.root(target), envelope_of(copy), copy.files, overwrite=overwrite)
                copies.append(copy)
            except KiwiError as error:
                refused.append(error)
        for copy in [] if refused else copies:
            copied((await item_files.add_item(app, to, copy, overwrite=overwrite))[0])
    return len(copies) + len(refused), refused


_PREPARING_SECONDS = 300.0  # long enough for the migration of a large registry


def files_at(app: Services, paths: Sequence[Path], tier: str) -> Sequence[SourceFile]:
    """Return a tier's item files that `paths` name, or all.

    Raises
    ------
    UsageError
        When there is none.
    """
    root = app.root(tier)
    sources = item_files.sources_of(paths or (root,), root)
    if not sources:
        hint = "add a file to its directives, scripts, knowledge or skills folder, then kiwi sign"
        raise UsageError(f"there are no items in {root}", hint=hint)
    return sources


def files_of(app: Services, refs: Sequence[str]) -> Sequence[SourceFile]:
    """Return the project's item files that `refs` name, each as ``[type:]item_id``.

    Raises
    ------
    NotFound
        When the project has no such item.
    UsageError
        When a reference has a version or a tier, or matches several items.
    """
    sources = {}
    for ref in refs:
        meant = parse_address(ref)
        if meant.version or meant.tier:
            raise UsageError(f"{ref}: only the project's current version can be published", hint="leave out the @")
        if (found := item_files.find_file(app, replace(meant, tier="project"))) is None:
            raise NotFound(f"{ref} is not an item of this project", hint="find items with kiwi_search, source project")
        sources[found[1].path] = found[1]
    return list(sources.values())


async def prepare_publication(app: Services, tier: str = "project", visibility: Visibility | None = None) -> PublishRun:
    """Prepare the registry, and return a run that publishes files of a local tier.

    Raises
    ------
    RegistryError
        When the registry cannot be reached or prepared.
    """
    for attempt in attempts():
        async with attempt, time_limit(_PREPARING_SECONDS):
            await app.prepare_registry()
    return PublishRun(app.local(tier), app.registry(), app.writer, visibility)
