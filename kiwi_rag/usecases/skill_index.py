"""Indexes of skills in the format of Agent Skills Discovery 0.2.0: written for a web site, and read from a folder.

An index is ``.well-known/agent-skills/index.json``; beside it is an archive a skill, which has the author's signature.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from kiwi_rag.errors import NotFound, Refused, Rejected, SourceUnreadable, StoreError, UsageError
from kiwi_rag.formats.source import display_path
from kiwi_rag.model import Filters, Finding, ItemType, sha256_hex
from kiwi_rag.services import Services
from kiwi_rag.signing.statement import is_nameable, signature_file
from kiwi_rag.sources import skill_archive
from kiwi_rag.sources.skill_archive import refuse
from kiwi_rag.storage.atomic import replace_folder
from kiwi_rag.storage.safe_open import read_below
from kiwi_rag.usecases import items
from kiwi_rag.usecases.items import FoundItem

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
FOLDER = ".well-known/agent-skills"
INDEX = "index.json"
_MAX_INDEX = 2 << 20
_MAX_SKILLS = 1_000
_MAX_TOTAL = 200 << 20
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")


class PackedSkill(NamedTuple):
    """A verified skill, its archive, and its entry in an index, whose URL is the archive's name beside the index."""

    found: FoundItem
    archive: bytes
    entry: Mapping[str, str]


async def pack_skills(app: Services, refs: Sequence[str]) -> list[PackedSkill]:
    """Return the skills at these addresses, or all of the local tiers, verified and packed, in the order of names.

    Raises
    ------
    NotFound
        When there is none at an address, or none at all.
    UsageError
        When an address is of another item, or two skills have the same name.
    Rejected
        When one does not verify, or was yanked.
    """
    packed, problems = dict[str, PackedSkill](), list[Finding]()
    for address in refs or await _local_skills(app):
        try:
            found = await items.find(app, address, app.source_names("all"))
        except Refused as error:
            problems.append(Finding(error.code, f"{address}: {error.message}", hint=error.hint))
            continue
        one, ref = _pack(found), found.signed.ref
        other = packed.setdefault(one.entry["name"], one).found.signed.ref
        if other.key != ref.key:
            raise UsageError(f"{other} and {ref} have the same name in an index", hint="name the skills to export")
        if found.state.yanked:
            problems.append(Finding("yanked", f"{ref} was yanked", hint="name the skills to export, without it"))
    if problems:
        raise Rejected("the export", problems)
    if not packed:
        raise NotFound("there is no indexed skill to export", hint="kiwi add .ai/skills")
    return [packed[name] for name in sorted(packed)]


async def _local_skills(app: Services) -> Sequence[str]:
    """Return the address of each skill in the local tiers, of several with one id that of the nearest tier."""
    nearest: dict[object, str] = {}
    for name in app.source_names("local"):
        for stored in await app.local(name).store.list(Filters(ItemType.SKILL)):
            nearest.setdefault(stored.ref.key, f"skill:{stored.ref.item_id}@{name}")
    return list(nearest.values())


def _pack(found: FoundItem) -> PackedSkill:
    signed = found.signed
    name = signed.ref.item_id.rpartition("/")[2]
    if signed.ref.item_type is not ItemType.SKILL or not _NAME.fullmatch(name):
        raise UsageError(f"{signed.ref} is not a skill that an index can name", hint="kiwi list --type skill")
    files = {**found.stored.files, skill_archive.SIGNATURE: signature_file(found.stored.envelope)}
    archive = skill_archive.pack(files, signed.executables)
    about = {"name": name, "type": "archive", "description": str(signed.metadata.get("description", ""))}
    return PackedSkill(found, archive, {**about, "url": f"{name}.tar.gz", "digest": f"sha256:{sha256_hex(archive)}"})


def write_index(site: Path, packed: Sequence[PackedSkill]) -> Path:
    """Replace the index of a web site's folder and its archives, as a whole; return the path of the index.

    Raises
    ------
    UsageError
        When the index's folder has other files in it, or a link stands on the way to it.
    StoreError
        When it cannot be written.
    """
    folder = site / FOLDER
    for step in (folder.parent, folder):
        if step.is_symlink():
            raise UsageError(f"{step} is a link, and Kiwi writes through no link", hint="export to another folder")
    files = {one.entry["url"]: one.archive for one in packed}
    index = {"$schema": SCHEMA, "skills": [one.entry for one in packed]}
    files[INDEX] = json.dumps(index, ensure_ascii=False, indent=1).encode() + b"\n"
    try:
        for path in folder.iterdir() if os.path.lexists(folder) else ():
            if path.name != INDEX and path.suffixes[-2:] != [".tar", ".gz"]:
                hint = "the folder is replaced as a whole: remove the file, or export to another folder"
                raise UsageError(f"{path} is no file of an index of skills", hint=hint)
        replace_folder(folder, {name: (data, 0o644) for name, data in files.items()})
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror}", hint="check the folder and the disk") from error
    return folder / INDEX


class IndexedSkill(NamedTuple):
    """A skill that an index has, as it would stand in its folder: with ``SKILL.md.sig``, if it is signed."""

    name: str
    files: Mapping[str, bytes]
    executables: tuple[str, ...]


def has_index(folder: Path) -> bool:
    """Return whether there is an index in a folder, which may be that of a web site or the index's own."""
    return any(os.path.lexists(folder / below / INDEX) for below in (FOLDER, ""))


def read_index(folder: Path) -> list[IndexedSkill]:
    """Return the skills of the index in a folder; nothing is written, and no signature is verified.

    Raises
    ------
    Rejected
        With a finding for each skill that cannot be accepted; then none is returned.
    SourceUnreadable
        When the index is missing or cannot be read.
    """
    below = f"{FOLDER}/" if os.path.lexists(folder / FOLDER / INDEX) else ""
    place = display_path(folder / below / INDEX)
    found, findings, total = dict[str, IndexedSkill](), list[Finding](), 0
    for entry in _entries(_read(folder, f"{below}{INDEX}", _MAX_INDEX), place):
        try:
            one = _read_entry(folder, below, entry, place)
            if one.name in found:
                refuse(place, "index.name", f"two skills are named {one.name}", "remove one")
        except Rejected as error:
            findings += error.findings
            continue
        found[one.name] = one
        total += sum(map(len, one.files.values()))
        if total > _MAX_TOTAL:
            refuse(place, "index.size", f"the skills have over {_MAX_TOTAL >> 20} MiB in total", "split the index")
    if findings:
        raise Rejected(place, findings)
    return list(found.values())


def _entries(data: bytes, place: str) -> Sequence[Any]:
    try:
        index = json.loads(data)
    except (ValueError, RecursionError):
        index = None
    schema = index.get("$schema") if isinstance(index, dict) else None
    if schema != SCHEMA:
        refuse(
            place,
            "index.schema",
            f"it is no index with the $schema {SCHEMA}",
            "ask its author for this version of the format",
        )
    entries = index.get("skills")
    if not isinstance(entries, list) or len(entries) > _MAX_SKILLS:
        refuse(
            place,
            "index.malformed",
            f"'skills' is no list of up to {_MAX_SKILLS} skills",
            "ask its author to correct it",
        )
    return entries


def _read_entry(folder: Path, below: str, entry: Any, place: str) -> IndexedSkill:
    """Return the skill of an entry; raise `Rejected` if it cannot be accepted."""
    members = ("name", "type", "description", "url", "digest")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in members):
        refuse(
            place, "index.malformed", f"a skill lacks one of the texts {', '.join(members)}", "ask its author to add it"
        )
    name, kind, _, url, digest = (entry[name] for name in members)
    if not _NAME.fullmatch(name):
        message = f"{name[:80]!r} is not made of words of lower-case letters and digits joined by '-'"
        refuse(place, "index.name", message, "rename the skill")
    if kind not in ("skill-md", "archive"):
        refuse(place, "index.type", f"{name} is of the type {kind[:40]!r}", "skill-md and archive are read")
    path = below + _path_of(url, name, place)
    try:
        data = _read(folder, path, skill_archive.MAX_BYTES)
    except SourceUnreadable as error:
        refuse(place, "source.unreadable", f"{name}: {error.message}", error.hint)
    if digest != f"sha256:{sha256_hex(data)}":
        message = f"{path} does not have the digest that the index names for {name}"
        refuse(place, "index.digest", message, "download it again; somebody may have changed it")
    if kind == "skill-md":
        return IndexedSkill(name, {"SKILL.md": data}, ())
    return IndexedSkill(name, *skill_archive.unpack(data, display_path(folder / path)))


def _path_of(url: str, name: str, place: str) -> str:
    """Return the path of a URL below the folder of the index."""
    try:
        parts = urlsplit(url)
        path = unquote(parts.path).removeprefix(f"/{FOLDER}/").removeprefix("./")
        is_path_alone = url == parts.path
    except ValueError:
        path, is_path_alone = "", False
    if not is_path_alone or not is_nameable(path) or any(step.startswith(".") for step in path.split("/")):
        message = f"the URL of {name} is not that of a file below the folder of the index: {url[:80]!r}"
        refuse(place, "index.url", message, "download the file to that folder, and name it there")
    return path


def _read(folder: Path, path: str, max_bytes: int) -> bytes:
    try:
        data, _ = read_below(folder, path, max_bytes)
    except FileNotFoundError as error:
        raise SourceUnreadable(f"{folder / path} is missing", hint="download it, too") from error
    if len(data) > max_bytes:
        raise SourceUnreadable(f"{folder / path} has over {max_bytes >> 20} MiB", hint="split it")
    return data
