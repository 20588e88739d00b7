"""The trust file of a project: writing the own key to it, pinning it, and what is missing before its signers count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kiwi_rag.errors import KiwiError, NotFound, UsageError
from kiwi_rag.formats.source import display_path, walk
from kiwi_rag.services import Services
from kiwi_rag.signing import trust_file
from kiwi_rag.signing.trust import Signer, check_new_principal
from kiwi_rag.sources.workspace.config import git_root
from kiwi_rag.usecases.trust import shareable

LINE_FROM = "which its owner gets from kiwi keys show --share"


def read_project_trust(app: Services) -> tuple[Path, str, Sequence[Signer]]:
    """Return the path of the project's trust file, its digest, and the signers in it.

    Raises
    ------
    NotFound
        When there is none.
    UsageError, SourceUnreadable
        When it is a link, is not valid, or names a signer as `check_new_principal` does not allow it.
    """
    path = app.root("project") / "trust.toml"
    if not path.is_file():
        hint = f"who signs its items writes it: kiwi trust share; without it: kiwi trust add LINE, {LINE_FROM}"
        raise NotFound(f"there is no trust file {path}", hint=hint)
    digest = trust_file.file_digest(path)  # before the signers are read, so that a change after that is not pinned
    signers = trust_file.load(path).signers
    for signer in signers:
        try:
            check_new_principal(signer.principal)
        except UsageError as error:
            raise UsageError(f"{path}: {error.message}", hint=error.hint) from error
    return path, digest, signers


def share_in_project(app: Services, name: str) -> tuple[Path, Signer]:
    """Write one of this user's keys, with its rights, to the project's trust file; return the file and the entry.

    Entries of other keys are kept. A file that this user has pinned is pinned again.

    Raises
    ------
    UsageError, NotFound
        When the key is retired or compromised, the file is a link, or this is no project.
    """
    public, path = shareable(app, name), app.root("project") / "trust.toml"
    if path.is_symlink():
        raise UsageError(f"{path} is a link, and is not written", hint="replace it with a copy of the file")
    is_pinned = path.is_file() and trust_file.is_pinned(trust_file.load(app.user_trust), path)
    content = trust_file.load(path)
    known = content.signer(public.public_key)
    signer = known.extended(public.patterns, public.types) if known else public
    trust_file.save(path, trust_file.TrustFile(content.with_signer(signer).signers))
    if is_pinned:
        pin_project(app, path, trust_file.file_digest(path))
    return path, signer


def share_hint(app: Services) -> str:
    """Return what is missing before a team can verify the project's items; empty outside of git, or if nothing is."""
    path = app.project_trust
    if path is None or path.exists() or not git_root(path.parent):
        return ""
    return f"so that others can verify these items, write your key to {display_path(path)}: kiwi trust share"


def project_trust_problem(app: Services) -> str:
    """Return why the signers of the project's trust file do not count; empty if they do, or there is no such file."""
    path = app.project_trust
    if path is None or not path.is_file():
        return ""
    user_file = trust_file.load(app.user_trust)
    if trust_file.is_pinned(user_file, path) or _adds_nothing(user_file, path):
        return ""
    known = trust_file.pin_name(path) in (user_file.pins or {})
    state = "was changed since you pinned it" if known else "is not pinned"
    return f"{display_path(path)} {state}, so its signers do not count"


def _adds_nothing(user_file: trust_file.TrustFile, path: Path) -> bool:
    """Whether this user trusts every signer of a project's file already, with at least the same rights."""
    try:
        signers = trust_file.load(path).signers
    except KiwiError:
        return False  # whoever pins it is told why it cannot be read
    own = [(one, user_file.signer(one.public_key)) for one in signers]
    return all(mine and one.status == mine.status and not one.rights_not_in(mine) for one, mine in own)


def next_step(app: Services) -> str:
    """Return what is missing before the project's items are found, with the command; empty if nothing is."""
    if problem := project_trust_problem(app):
        return f"{problem}; to see and accept them: kiwi trust project"
    root = app.project_dir
    if root and not (root / "vectors").exists() and any(walk(root)):  # whose index it is would need the owner's token
        return "the project's items are not indexed yet; next: kiwi index"
    return ""


def pin_project(app: Services, path: Path, digest: str) -> None:
    """Accept the signers of a project's trust file in this project, as long as the file is unchanged."""
    trust_file.save(app.user_trust, trust_file.load(app.user_trust).with_pin(path, digest))
