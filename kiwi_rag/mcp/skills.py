"""Toolset **skills**: the Skills extension (SEP-2640), which serves verified skills and their files as resources.

A skill is ``skill://{tier}/{item_id}``, and a file of it its path below. Only what verifies at the request is served,
and always the bytes that were signed. An entry's ``_meta`` has under `PROVENANCE` who signed them.
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from mcp import types

from kiwi_rag.collection import RANKS
from kiwi_rag.errors import InvalidItemId, KiwiError, NotFound, Refused, UsageError, Yanked
from kiwi_rag.formats.skill import front_matter_json
from kiwi_rag.mcp.pagination import parse_cursor
from kiwi_rag.model import Filters, ItemType
from kiwi_rag.model.refs import MAX_ID_SEGMENTS, check_item_id
from kiwi_rag.services import Services
from kiwi_rag.signing.statement import format_time
from kiwi_rag.usecases import items
from kiwi_rag.usecases.items import FoundItem

EXTENSION = "io.modelcontextprotocol/skills"
SETTINGS = {"directoryRead": True}
"""What a server declares of the extension."""
PROVENANCE = "io.kiwi-rag/provenance"
"""The key in an entry's ``_meta`` of who signed the skill, and whether it is as it was signed."""
SCHEME = "skill://"
TOOLSETS: Mapping[str, tuple[()]] = {"skills": ()}
_PAGE = 50
_MAIN = "SKILL.md"
_FOLDER = "inode/directory"
_CACHEABLE = {"resultType": "complete", "ttlMs": 5_000, "cacheScope": "private"}


class UriParams(types.PaginatedRequestParams):
    """What a method takes that is about one URI; only a read of a directory may have a cursor."""

    uri: str


class SkillMethods:
    """The methods of the extension, over the services of a server."""

    def __init__(self, app: Services) -> None:
        self._app = app
        self.by_name: Mapping[str, tuple[type[types.RequestParams], Any]] = {
            "skills/list": (types.PaginatedRequestParams, self._list),
            "skills/get": (UriParams, self._get),
            "resources/directory/read": (UriParams, self._read_directory),
        }

    async def _list(self, _context: Any, params: types.PaginatedRequestParams) -> dict[str, Any]:
        """List the skills of the local tiers that verify; those of a registry are found by search, and got by URI."""
        begin = parse_cursor(params)
        listed, more = await items.list_verified(self._app, Filters(ItemType.SKILL), begin, _PAGE)
        entries = []
        for tier, one in listed:
            with suppress(KiwiError):  # another of its files does not verify
                entries.append(_entry(await items.find(self._app, f"skill:{one.signed.ref.item_id}@{tier}", ())))
        return {**_CACHEABLE, "skills": entries, **({"nextCursor": str(begin + _PAGE)} if more else {})}

    async def _get(self, _context: Any, params: UriParams) -> dict[str, Any]:
        found = await _find_holder(self._app, params.uri, lambda one: params.uri == _uri(one, _MAIN))
        return {**_CACHEABLE, "skill": _entry(found)}

    async def _read_directory(self, _context: Any, params: UriParams) -> dict[str, Any]:
        """List what is in a folder of a skill, or in the skill itself; a skill has few enough files for one page."""
        if params.cursor is not None:
            raise UsageError("the cursor is not from this server", hint="read the folder again without cursor")
        inside = f"{params.uri}/"
        found = await _find_holder(self._app, params.uri, lambda one: any(u.startswith(inside) for u in _files(one)))
        names: dict[str, str] = {}
        for uri in _files(found):
            if uri.startswith(inside):
                child, is_folder, _ = uri.removeprefix(inside).partition("/")
                names[child] = _FOLDER if is_folder else _mime_type(child)
        rows = [{"uri": f"{inside}{one}", "name": unquote(one), "mimeType": kind} for one, kind in names.items()]
        return {"resultType": "complete", "resources": rows}


async def read_file(app: Services, uri: str) -> types.TextResourceContents | types.BlobResourceContents:
    """Return a file of a skill as it was signed; raise `NotFound` where none is served."""
    found = await _find_holder(app, uri, lambda one: uri in _files(one))
    name = _files(found)[uri]
    data, mime_type = found.stored.files[name], _mime_type(name)
    try:
        return types.TextResourceContents(uri=uri, text=data.decode(), mime_type=mime_type)
    except UnicodeDecodeError:
        return types.BlobResourceContents(uri=uri, blob=base64.b64encode(data).decode(), mime_type=mime_type)


async def _find_holder(app: Services, uri: str, holds: Callable[[FoundItem], bool]) -> FoundItem:
    """Return the outermost skill on the path of a URI for which `holds` is true."""
    tier, _, path = uri.removeprefix(SCHEME).partition("/")
    hint = "skills/list names the skills of the project and the user"
    steps = path.split("/") if uri.startswith(SCHEME) and tier in RANKS else []
    if tier == "registry" and not app.registry_connection.exists:
        steps, hint = [], f"this user has no registry; {hint}"
    for depth in range(1, min(len(steps), MAX_ID_SEGMENTS) + 1):
        try:
            found = await items.find(app, f"skill:{check_item_id('/'.join(steps[:depth]))}@{tier}", ())
            if holds(found):
                return found
            folder = f"{SCHEME}{tier}/{found.signed.ref.item_id}"
            hint = f"resources/directory/read of {folder} names the files of this skill"
        except InvalidItemId:
            break
        except (Refused, Yanked) as error:
            hint = f"{error.code}: {error.message}"
        except NotFound:
            continue
    raise NotFound(f"nothing is served at {uri[:200]!r}", hint=hint)


def _entry(found: FoundItem) -> dict[str, Any]:
    """Return the entry of a skill, JSON-ready; raise `NotFound` if its front matter cannot be that of an entry."""
    signed, signer, stored = found.signed, found.signer, found.stored
    front_matter = front_matter_json(found.content) or {}
    if front_matter.get("name") != signed.ref.item_id.rpartition("/")[2]:
        raise NotFound(f"{signed.ref} is not served", hint="the front matter of its SKILL.md cannot be read")
    resources = [
        {"uri": uri, "digest": f"sha256:{signed.digests[name]}", "size": len(stored.files[name])}
        for uri, name in _files(found).items()
    ]
    meta = {PROVENANCE: {
        "ref": str(signed.ref), "tier": found.tier.name, "state": next(iter(found.state.labels), "verified"),
        "signer": signer.principal, "keyId": signer.key_id, "signedAt": format_time(signed.signed_at),
        "statement": f"sha256:{stored.digest}",
    }}  # fmt: skip
    return {"uri": _uri(found, _MAIN), "frontmatter": front_matter, "resources": resources, "_meta": meta}


def _files(found: FoundItem) -> dict[str, str]:
    """Return URI → name of each file of a skill."""
    return {_uri(found, name): name for name in sorted(found.signed.digests)}


def _uri(found: FoundItem, name: str) -> str:
    return f"{SCHEME}{found.tier.name}/{found.signed.ref.item_id}/{quote(name)}"


def _mime_type(name: str) -> str:
    return "text/markdown" if name.endswith(".md") else mimetypes.guess_type(name)[0] or "text/plain"
