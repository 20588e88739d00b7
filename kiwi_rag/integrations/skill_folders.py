"""Where agents look for skills, and ``kiwi.lock``, which says what is installed there.

A skill is copied as a folder, with its signature. The lock file comes with a repository, so nothing in it is trusted:
it is parsed strictly, names of folders are made of checked ids, and what it names is verified before it is written.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import semver

from kiwi_rag.errors import ConfigError, KiwiError, NotFound, SignatureRefused, SourceUnreadable, UsageError
from kiwi_rag.formats import source
from kiwi_rag.formats.source import CACHE, ItemCandidate, SourceFile, display_path, read_item, signature_path
from kiwi_rag.model import Envelope, Finding, ItemRef, ItemType, check_item_id, fold_item_id
from kiwi_rag.search.state import edited_files
from kiwi_rag.signing import statement
from kiwi_rag.signing.trust import check_principal
from kiwi_rag.storage.atomic import disk_errors, replace_folder, write_user_files
from kiwi_rag.storage.safe_open import read_below, read_regular, unreadable
from kiwi_rag.validation.signature import envelope_of

LOCK_NAME = "kiwi.lock"
FOLDERS = {"agents": ".agents/skills", "claude": ".claude/skills"}
"""Client → the folder of skills that it reads, below a project's root and below the home folder."""
MAX_LOCK_BYTES = 1 << 20
_HEAD = b"# Which skills are installed here; written by kiwi install, kiwi update and kiwi uninstall.\n"
_DIGEST = re.compile("[0-9a-f]{64}")


class LockInvalid(ConfigError, code="lock"):
    """The lock file is malformed."""


class SkillFolderTaken(UsageError, code="folder-taken"):
    """The folder of a skill holds something else."""


class InstalledSkillEdited(UsageError, code="skill-edited"):
    """An installed skill was edited."""


@dataclass(frozen=True, slots=True)
class LockedSkill:
    """An entry of the lock file: one installed skill, its statement's digest, its signer, and where it is installed."""

    id: str
    version: str
    statement: str
    key_id: str
    principal: str
    registry: str
    clients: tuple[str, ...]

    @property
    def ref(self) -> ItemRef:
        """The reference of the installed version."""
        return ItemRef(ItemType.SKILL, self.id, self.version)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.id.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class SkillLock:
    """The content of a lock file; ``namespace`` completes names of skills, and may be empty."""

    namespace: str = ""
    skills: tuple[LockedSkill, ...] = ()

    def get(self, name: str) -> LockedSkill | None:
        """Return the entry of a skill by its id or its name, None where there is none."""
        return next((one for one in self.skills if name in (one.id, one.name)), None)

    def require(self, name: str) -> LockedSkill:
        """Return the entry of a skill by its id or its name; raise `NotFound` where there is none."""
        if (found := self.get(name)) is None:
            installed = ", ".join(one.name for one in self.skills)
            hint = f"installed: {installed}" if installed else "no skill is installed here"
            raise NotFound(f"{LOCK_NAME} has no skill {name!r}", hint=hint)
        return found

    def complete(self, name: str) -> str:
        """Return the id of a skill by its id or name: of an installed one, else the namespace is put before a name."""
        if found := self.get(name):
            return found.id
        return f"{self.namespace}/{name}" if self.namespace and "/" not in name else name

    def without(self, skill: LockedSkill) -> SkillLock:
        """Return the lock file without the entry of a skill of this name."""
        return replace(self, skills=tuple(one for one in self.skills if one.name != skill.name))

    def with_skill(self, skill: LockedSkill) -> SkillLock:
        """Return the lock file with an entry in the place of one of the same name, sorted by id."""
        skills = (*self.without(skill).skills, skill)
        return replace(self, skills=tuple(sorted(skills, key=lambda one: one.id)))


@dataclass(frozen=True, slots=True)
class SkillPlace:
    """A project or a home folder into which skills are installed, and its lock file; ``tier`` is project or user.

    ``own_folders`` are those of clients whose folder for the user's own files an environment variable names;
    ``sources`` is the folder of the tier's own skills.
    """

    tier: str
    base: Path
    lock_path: Path
    own_folders: Mapping[str, Path] = field(default_factory=dict)
    sources: Path | None = None

    @property
    def option(self) -> str:
        """The option that names this place in a command."""
        return " --to user" if self.tier == "user" else ""

    def read_lock(self) -> SkillLock:
        """Read the lock file; a missing one is empty.

        Raises
        ------
        LockInvalid
            When it is too large, not TOML, of an unknown version, or has an entry that is not valid.
        SourceUnreadable
            When it cannot be read, or is a link.
        """
        try:
            data = read_regular(self.lock_path, MAX_LOCK_BYTES)[0]
        except FileNotFoundError:
            return SkillLock()
        except OSError as error:
            raise unreadable(str(self.lock_path), error) from error
        try:
            if len(data) > MAX_LOCK_BYTES:
                raise ValueError(f"it is larger than {MAX_LOCK_BYTES} bytes")
            return _parse(tomllib.loads(data.decode()))
        except (ValueError, TypeError, RecursionError, KiwiError) as error:
            hint = "restore it, for example from version control, or delete it and install its skills again"
            raise LockInvalid(f"{self.lock_path} is not a valid lock file: {error}", hint=hint) from error

    def write_lock(self, lock: SkillLock) -> None:
        """Write the lock file in one step; raise `StoreError` when that fails."""
        import tomlkit

        namespace = {"namespace": lock.namespace} if lock.namespace else {}
        skills = [{**asdict(one), "clients": list(one.clients)} for one in lock.skills]
        document: dict[str, Any] = {"version": 1, **namespace, "skill": skills}
        write_user_files({self.lock_path: _HEAD + tomlkit.dumps(document).encode()})

    def folder(self, client: str, name: str) -> Path:
        """Return the folder of a skill.

        Raises
        ------
        SourceUnreadable
            When it is a link, or a folder above it is a link out of the project, into its repository's data, or to
            items, among which may be the skill's own source.
        """
        folder = self._skills_of(client) / name
        try:
            real, base = folder.parent.resolve(), self.own_folders.get(client, self.base).resolve()
        except RuntimeError as error:  # before Python 3.13, a loop of links
            raise SourceUnreadable(f"{folder.parent} is a loop of symbolic links", hint="remove the link") from error
        steps = {step.casefold() for step in real.relative_to(base).parts} if real.is_relative_to(base) else {".."}
        is_source = self.sources is not None and real.is_relative_to(self.sources.resolve())
        if steps & {"..", ".git", ".ai"} or is_source or folder.is_symlink():
            raise SourceUnreadable(f"{folder} leads elsewhere through a symbolic link", hint="remove the link")
        return real / name

    def shown(self, client: str) -> str:
        """Return the folder of a client's skills as messages name it."""
        return f"{'~/' * (self.tier == 'user')}{FOLDERS[client]}"

    def _skills_of(self, client: str) -> Path:
        own = self.own_folders.get(client)
        return own / "skills" if own else self.base / FOLDERS[client]

    def unlisted(self, lock: SkillLock) -> Mapping[str, tuple[str, str]]:
        """Return the skills that clients find and the lock file does not list: real path → client and folder's name.

        Links are followed, as clients follow them.
        """
        listed = [self._skills_of(client) / one.name for one in lock.skills for client in one.clients]
        mains = [(client, main) for client in FOLDERS for main in sorted(self._skills_of(client).glob("*/SKILL.md"))]
        found = {os.path.realpath(main.parent): (client, main.parent.name) for client, main in reversed(mains)}
        return {real: found[real] for real in sorted(found.keys() - set(map(os.path.realpath, listed)))}

    def read(self, folder: Path, item_id: str, *, without: Container[str] = ()) -> ItemCandidate | Finding:
        """Read an installed skill and its signature, or return why it cannot be read; nothing is verified."""
        return read_item(SourceFile(folder / "SKILL.md", ItemType.SKILL, item_id), folder.parent, without=without)

    def envelopes(self, name: str) -> Sequence[Envelope]:
        """Return the envelopes in the clients' folders of a skill, unverified, even where its files were edited."""
        found = []
        for client in FOLDERS:
            with suppress(OSError, SourceUnreadable, SignatureRefused):  # whoever writes there meets the reason
                path = f"{name}/{signature_path(Path('SKILL.md'))}"
                data, _ = read_below(self.folder(client, name).parent, path, source.MAX_SIGNATURE_BYTES)
                found.append(statement.read_signature_file(data))
        return found

    def check(self, folder: Path, item_id: str) -> Envelope | None:
        """Return the envelope in the folder of a skill if exactly its files are there.

        None where there is no folder, and where Python wrote caches beside the files. Whether the signature is trusted
        does not matter: the folder can be replaced without a loss.

        Raises
        ------
        SkillFolderTaken
            When the folder holds something else than this skill as it was signed once.
        InstalledSkillEdited
            When a file of the skill was edited, added or removed.
        """
        if not folder.exists():
            return None
        if not signature_path(folder / "SKILL.md").is_file():
            message = f"{display_path(folder)} exists, and was not installed by Kiwi"
            raise SkillFolderTaken(message, hint="move it away, or use --force")
        found = self.read(folder, item_id, without={CACHE})
        source = self.base / ".ai" / ItemType.SKILL.folder / item_id
        old, new = (shlex.quote(display_path(one)) for one in (source, folder))
        comparison = f"diff -r {old} {new}" if source.is_dir() else f"kiwi show skill:{item_id}"
        envelope = _unedited(found, display_path(folder), comparison)
        return None if isinstance(self.read(folder, item_id), Finding) else envelope


def _unedited(found: ItemCandidate | Finding, shown: str, comparison: str) -> Envelope:
    """Return the envelope of an installed skill whose files are those of it; raise as `SkillPlace.check` does.

    `comparison` is the command that shows what the files should be, for the hint.
    """
    hint = f"compare them: {comparison}; --force discards the changes"
    if isinstance(found, Finding):
        raise InstalledSkillEdited(f"{shown} was edited: {found.message}", hint=hint)
    try:
        envelope = envelope_of(found)
        signed = statement.parse_item(envelope.payload)
    except SignatureRefused as error:
        raise InstalledSkillEdited(f"the signature in {shown} was edited: {error.message}", hint=hint) from error
    if signed.ref.key != found.ref.key:
        raise SkillFolderTaken(f"{shown} holds {signed.ref}", hint="move it away, or use --force")
    if edited := edited_files(found, signed):
        raise InstalledSkillEdited(f"{shown}/{min(edited)} was edited since it was installed", hint=hint)
    return envelope


def write_skill(folder: Path, envelope: Envelope, files: Mapping[str, bytes]) -> None:
    """Replace the folder of a skill as a whole by its files and its signature.

    Raises
    ------
    StoreError
        When it cannot be written; the old folder remains.
    """
    executables = statement.parse_item(envelope.payload).executables
    written = {**files, signature_path(Path("SKILL.md")).name: statement.signature_file(envelope)}
    with disk_errors(folder, "write"):
        replace_folder(folder, {name: (one, 0o755 if name in executables else 0o644) for name, one in written.items()})


def _parse(document: Mapping[str, Any]) -> SkillLock:
    if document.get("version") != 1:
        raise ValueError(f"its version is {document.get('version')!r}; this Kiwi reads version 1")
    namespace = document.get("namespace", "")
    if unknown := document.keys() - {"version", "namespace", "skill"}:
        raise ValueError(f"unknown key {min(unknown)!r}")
    skills = tuple(_skill(table) for table in _list(document.get("skill", [])))
    names = [fold_item_id(one.name) for one in skills]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two skills have the name {min(twice)!r}")
    return SkillLock(check_item_id(namespace) if namespace else "", skills)


def _skill(table: Mapping[str, Any]) -> LockedSkill:
    if set(table) != set(LockedSkill.__slots__):
        raise ValueError(f"a skill must have exactly the keys {', '.join(LockedSkill.__slots__)}")
    clients = tuple(_list(table["clients"]))
    texts = {key: value for key, value in table.items() if key != "clients"}
    if not all(isinstance(value, str) for value in texts.values()):
        raise ValueError("a value of a skill is not a text")
    found = LockedSkill(**texts, clients=clients)
    check_item_id(found.id)
    check_principal(found.principal)
    semver.Version.parse(found.version)
    if not (_DIGEST.fullmatch(found.statement) and _DIGEST.fullmatch(found.key_id)):
        raise ValueError(f"statement and key_id of {found.id} are not SHA-256 digests")
    if not clients or len(set(clients)) < len(clients) or not set(clients) <= FOLDERS.keys():
        raise ValueError(f"clients of {found.id} are not some of {', '.join(FOLDERS)}")
    return found


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("expected a list")
    return value
