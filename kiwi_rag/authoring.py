"""From a file to a signed file: vet it as the gate would, sign it, write ``<file>.sig``; and copies between tiers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import semver

from kiwi_rag.errors import Rejected, SignatureRefused, SourceUnreadable, UsageError
from kiwi_rag.formats import SourceFile, path_of, read_source, walk
from kiwi_rag.formats.bump import with_version
from kiwi_rag.ingest import read, side_path
from kiwi_rag.model import Envelope, Item
from kiwi_rag.refs import ItemRef
from kiwi_rag.signing import statement
from kiwi_rag.signing.keys import SigningKey
from kiwi_rag.signing.trust import TrustPolicy, verify
from kiwi_rag.storage.atomic import write_user_file
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.tiers import Tier
from kiwi_rag.validation.manager import ValidationManager
from kiwi_rag.validation.signature import Candidate, envelope_of, finding_of

BUMPS = ("patch", "minor", "major")


@dataclass(frozen=True, slots=True)
class SignedFile:
    """A file with a valid signature; ``fresh`` when it was signed just now."""

    ref: ItemRef
    path: Path
    fresh: bool


def sources_of(paths: Sequence[Path], ai_dir: Path) -> list[SourceFile]:
    """Return the item files that `paths` name: files, or folders at or below the ``.ai`` folder `ai_dir`.

    Raises
    ------
    UsageError
        When a path is not there, or names no item file of this tier.
    """
    found = list(walk(ai_dir))
    chosen: dict[Path, SourceFile] = {}
    for path in paths:
        below = list(_below(path.absolute(), ai_dir.absolute(), found))
        if not below and not _holds(path.absolute(), ai_dir.absolute()):
            raise UsageError(
                f"{path} is not an item file or folder of {ai_dir}",
                hint="items are directives/*.md, scripts/*.py and knowledge/*.md below .ai",
            )
        chosen.update({source.path: source for source in below})
    return list(chosen.values())


def sign(
    source: SourceFile, tier: Tier[VectorStore], gate: ValidationManager, key: SigningKey, *, force: bool = False
) -> SignedFile:
    """Vet a file by steps 0–6 and sign it, unless a trusted signature over exactly this content is there already.

    A key that is known to be retired or compromised signs nothing.

    Raises
    ------
    Rejected
        With every finding; nothing is signed then.
    """
    candidate = read(source, tier, gate)
    item = gate.vet(candidate, tier.policy, tier.audit)
    if not force and _is_signed(candidate, item, gate):
        return SignedFile(item.ref, source.path, fresh=False)
    _check_key(key, candidate, tier, gate)
    write_signature(source.path, key.sign(item, gate.audience))
    return SignedFile(item.ref, source.path, fresh=True)


def raise_versions(
    sources: Sequence[SourceFile], paths: Sequence[Path], tier: Tier[VectorStore], gate: ValidationManager, part: str
) -> tuple[list[SourceFile], list[Rejected]]:
    """Raise the declared version of every file that `paths` name; below a folder, only of what is not signed as it is.

    All of them are changed, or none.

    Returns
    -------
    The files that may be signed now, and the rejections of the others, which are left as they were.

    Raises
    ------
    UsageError
        When a file declares no version.
    """
    named = {path.absolute() for path in paths}
    ready, planned, refused = [], [], []
    for source in sources:
        try:
            candidate = read(source, tier, gate)
            item = gate.vet(candidate, tier.policy, tier.audit)
        except Rejected as rejection:
            refused.append(rejection)
            continue
        ready.append(source)
        if source.path.absolute() in named or not _is_signed(candidate, item, gate):
            planned.append((source.path, _raised(item, candidate.path, part)))
    for path, data in planned:
        write_user_file(path, data, keep_rights=True)
    return ready, refused


def _raised(item: Item, path: str, part: str) -> bytes:
    version = str(semver.Version.parse(item.ref.version or "").next_version(part))
    try:
        return with_version(item.ref.item_type, item.content, version).encode()
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}; nothing was changed", hint=error.hint) from error


def write_signature(path: Path, envelope: Envelope) -> None:
    """Write ``<file>.sig``, wholly or not at all."""
    write_user_file(side_path(path), statement.side_file(envelope))


def place_item(ai_dir: Path, envelope: Envelope, *, overwrite: bool = False) -> SourceFile:
    """Write a verified item and its signature where they belong below `ai_dir`, and return the file.

    Raises
    ------
    UsageError
        When other content stands there and `overwrite` is not set.
    SourceUnreadable
        When a link would lead the write out of `ai_dir`, or the folder cannot be written.
    """
    signed = statement.parse(envelope.payload)
    ref = signed.ref
    path = path_of(ai_dir, ref)
    if not path.parent.resolve().is_relative_to(ai_dir.resolve()) or path.is_symlink():
        raise SourceUnreadable(f"{path} leaves {ai_dir} by a link", hint="remove the link")
    if path.exists() and not overwrite and read_source(path, ai_dir) != signed.content.encode():
        raise UsageError(f"{path} holds other content", hint="look at the difference, then use --force")
    write_user_file(path, signed.content.encode())
    write_signature(path, envelope)
    return SourceFile(path, ref.item_type, ref.item_id)


def remove_files(source: SourceFile) -> None:
    """Remove a file and its signature; one that is gone already is no error.

    Raises
    ------
    SourceUnreadable
        When it cannot be removed.
    """
    try:
        if source.path.parent.is_symlink():
            raise SourceUnreadable(f"{source.path.parent} is a link", hint="remove the link")
        source.path.unlink(missing_ok=True)
        side_path(source.path).unlink(missing_ok=True)
    except OSError as error:
        raise SourceUnreadable(f"cannot remove {source.path}: {error.strerror}") from error


def signed_envelope(source: SourceFile, tier: Tier[VectorStore], gate: ValidationManager) -> Envelope:
    """Return a file's envelope after verifying it.

    Raises
    ------
    SignatureRefused
        When it does not verify.
    """
    envelope = envelope_of(read(source, tier, gate))
    verify(envelope, gate.trust)
    return envelope


def _check_key(key: SigningKey, candidate: Candidate, tier: Tier[VectorStore], gate: ValidationManager) -> None:
    signer = gate.trust.by_key.get(key.key_id)
    try:
        if signer:
            signer.authorise_signing()
    except SignatureRefused as error:
        raise gate.reject(candidate.name, [finding_of(error, candidate.path)], tier.policy, tier.audit) from error


def _is_signed(candidate: Candidate, item: Item, gate: ValidationManager) -> bool:
    trust: TrustPolicy = gate.trust
    try:
        signed = verify(envelope_of(candidate), trust).statement
    except SignatureRefused:
        return False
    same = signed.ref == item.ref and signed.content == item.content and signed.registry == gate.audience
    return same and statement.canonical(signed.metadata) == statement.canonical(item.metadata)


def _holds(path: Path, ai_dir: Path) -> bool:
    """Whether `path` is the whole tier, which may well be empty."""
    return path in (ai_dir, ai_dir.parent)


def _below(path: Path, ai_dir: Path, sources: Sequence[SourceFile]) -> Iterator[SourceFile]:
    for source in sources:
        here = source.path.absolute()
        if here == path or path in here.parents:
            yield source
