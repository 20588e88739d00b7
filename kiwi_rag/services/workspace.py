"""The index of one workspace's documents."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from kiwi_rag.config import PROJECT_FOLDER
from kiwi_rag.errors import ConfigError, UsageError
from kiwi_rag.services import Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.sources.workspace.config import WorkspaceConfig, git_root
from kiwi_rag.sources.workspace.source import WorkspaceSource

TIER = "workspace"
_BELOW = "documents"


class Workspace(DocumentIndex):
    """The index of one workspace's documents.

    Parameters
    ----------
    app
        Settings, model and trust. The workspace is its project; without a project, the git repository around its
        working directory; without a repository, the working directory.
    """

    kind = TIER
    index_command = "kiwi workspace index"

    def __init__(self, app: Services) -> None:
        cwd = app.cwd.absolute()
        super().__init__(app, app.project_dir or (git_root(cwd) or cwd) / PROJECT_FOLDER, _BELOW)

    @cached_property
    def config(self) -> WorkspaceConfig:
        """The workspace's root, name and settings."""
        return WorkspaceConfig.at(self._folder.parent, self._app.settings.workspace_name)

    @property
    def source(self) -> WorkspaceSource:
        """The files of the workspace, for one run: it reads the commit that is checked out once."""
        return WorkspaceSource(self.config, self.tier.policy.max_bytes)

    @property
    def old_catalog(self) -> Path | None:
        """The index that a pre-release Kiwi made of these files, as long as there is no other."""
        return self._app.old_catalog(self._folder, _BELOW)

    @property
    def outer(self) -> Path | None:
        """The folder of the indexed workspace around this one, if there is one."""
        own, root = self._app.user_dir.resolve(), self.config.root.resolve()  # the user tier is no workspace
        folders = (folder for folder in root.parents if folder / PROJECT_FOLDER != own)
        return next((folder for folder in folders if (folder / PROJECT_FOLDER / "vectors").is_dir()), None)

    def _check(self) -> None:
        """Raise an error when this workspace cannot be indexed into this store.

        A shared index is written to only under a name that this user has set. A cloned repository could otherwise
        choose another workspace's name, and its files would replace that one's under this user's key.
        """
        if self._folder.resolve() == self._app.user_dir.resolve():
            hint = "index one repository at a time: kiwi workspace index ROOT"
            raise UsageError(f"{self._folder.parent} holds the user tier and cannot be a workspace", hint=hint)
        if self.is_shared and not self._app.settings.workspace_name:
            message = "a shared index is written to only under a workspace name that you set yourself"
            raise ConfigError(message, hint=f"use --workspace {self.name}, or set KIWI_WORKSPACE_NAME")
