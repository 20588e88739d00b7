"""The files of a workspace as a source of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from kiwi_rag.errors import NotFound
from kiwi_rag.model import sha256_hex
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.sources.source import Entry, Skipped, SourceContent
from kiwi_rag.sources.workspace.config import WorkspaceConfig, head_commit
from kiwi_rag.sources.workspace.walk import find_file, is_path_ignored, walk
from kiwi_rag.validation.document_gate import DocumentFile


@dataclass(frozen=True)
class WorkspaceSource:
    """The files of a workspace. ``max_bytes`` is how large one may be; more is not read."""

    workspace: WorkspaceConfig
    max_bytes: int

    @property
    def rules(self) -> Sequence[object]:
        """Return the settings that the labels of documents are from."""
        return sorted(self.workspace.domains.items()), sorted(self.workspace.services.items())

    @cached_property
    def commit(self) -> str:
        """The commit that is checked out when the first file is read; empty outside of a git repository."""
        return head_commit(self.workspace.root)

    def check(self) -> None:
        """Raise `NotFound` when the root does not exist."""
        root = self.workspace.root
        if not root.is_dir():
            raise NotFound(f"{root} is no folder", hint="name the workspace's root: kiwi workspace index ROOT")

    def find(self, paths: Sequence[str] | None, indexed: Sequence[str]) -> Iterator[Entry]:
        """Yield the files that are no binaries and that no pattern ignores; report why a path gives none."""
        root = self.workspace.root
        if paths is None:
            yield from walk(root)
            return
        for path in dict.fromkeys(paths):
            if is_path_ignored(root, path):
                yield Skipped(path, "left out, by .kiwiignore, .gitignore or its name")
            elif (root / path).is_dir():
                yield from walk(root, path)
            elif entry := find_file(root, path):
                yield entry
            elif not self.named([path], indexed):
                yield Skipped(path, "there is no such file that is text")

    def named(self, paths: Sequence[str], indexed: Sequence[str]) -> Sequence[str]:
        """Return the indexed files at some paths, and below those that are folders or may have been."""
        folders = tuple(f"{path}/" for path in paths if not (self.workspace.root / path).is_file())
        names = set(paths)
        return [path for path in indexed if path in names or path.startswith(folders)]

    def path_of(self, ref: ItemRef) -> str:
        """Return the path of a document, which is its id."""
        return ref.item_id

    def may_exist(self, path: str) -> bool:
        """Return False: a file that is ignored now is removed like one that was deleted."""
        return False

    def read(self, path: str) -> SourceContent:
        """Return a file's bytes, and the labels that are not from them."""
        data, entry = self.workspace.read(path, self.max_bytes)
        modified = datetime.fromtimestamp(int(entry.st_mtime), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        service = self.workspace.service_of(path)
        labels = {"last_modified": modified, "git_commit": self.commit, "service": service}
        changed_ns = max(entry.st_mtime_ns, entry.st_ctime_ns)
        file = DocumentFile(path, data, labels)
        return SourceContent(file, sha256_hex(data), "", entry.st_size, changed_ns)
