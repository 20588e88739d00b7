"""Settings: one frozen value, read once at the edge from defaults, two YAML files, the environment and flags.

A project's ``config.yaml`` arrives with its repository, so it may tune how Kiwi searches there, but not where secrets
are sent or which code and weights are used: those keys are refused in it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kiwi_rag.errors import ConfigError
from kiwi_rag.storage.safe_open import NotRegularFile, read_regular

PROJECT_FOLDER = ".ai"
WORKSPACE_STORES = ("local", "qdrant", "registry")
MAX_BYTES = 1 << 16


def _setting(default: Any, what: str, *, project: bool = False, secret: bool = False, also: str = "") -> Any:
    return field(default=default, metadata={"what": what, "project": project, "secret": secret, "also": also})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of Kiwi. The environment variable of ``name`` is ``KIWI_NAME``; a few have a usual one as well."""

    home: str = _setting("~/.ai", "the user tier: items, keys, trust, embedded registry")
    cache_dir: str = _setting("~/.cache/kiwi", "model files and embedding cache; safe to delete")
    principal: str = _setting("", "who you are, in signatures you make; default: user@host")
    key: str = _setting("", "name of the private key to sign with; default: the only one there is")
    signing_key: str = _setting("", "private key as PEM text, for CI", secret=True)
    key_passphrase: str = _setting("", "unlocks the private key", secret=True)
    registry_url: str = _setting("", "postgresql://… of a registry server; default: the embedded one", secret=True)
    supabase_url: str = _setting("", "https://… of a Supabase project that is the registry", also="SUPABASE_URL")
    supabase_key: str = _setting("", "its publishable key, or a user's token", secret=True, also="SUPABASE_KEY")
    supabase_token: str = _setting("", "a signed-in user's token, beside the publishable key", secret=True)
    registry_name: str = _setting("kiwi", "audience that signatures are made for", project=True)
    embedding_provider: str = _setting("onnx", "onnx, sentence-transformers, openai or ollama")
    embedding_model: str = _setting("", "model name; default: the provider's own")
    embedding_model_dir: str = _setting("", "folder with the model's weights and tokenizer")
    embedding_base_url: str = _setting("", "base URL of a remote provider")
    embedding_api_key: str = _setting("", "key of a remote provider", secret=True)
    embedding_dimension: int = _setting(384, "dimension of a remote provider's vectors")
    embedding_fallbacks: str = _setting(
        "", "servers of the same model that stand in: [PROVIDER] URL [MODEL], with commas"
    )
    embedding_fallback_keys: str = _setting("", "their keys, in order, with commas between", secret=True)
    embedding_identity: str = _setting("", "a name for the model that stays when its servers' addresses change")
    embedding_batch_texts: int = _setting(0, "texts a request to a remote provider; 0: the provider's own")
    embedding_batch_tokens: int = _setting(0, "tokens a request, by estimate; 0: the provider's own")
    embedding_prices: str = _setting("", "US dollars a million tokens, over the list prices: MODEL=PRICE, with commas")
    threads: int = _setting(0, "threads of the embedding model; 0: one a core")
    source: str = _setting("local", "tiers that a search asks: project, user, registry, local, all", project=True)
    limit: int = _setting(10, "hits that a search shows", project=True)
    alpha: float = _setting(-1.0, "weight of the vector leg, 0 to 1; -1: the tuned one", project=True)
    half_life_days: float = _setting(0.0, "recency: days after which a hit's score halves; 0: off", project=True)
    per_signer: int = _setting(
        -1, "hits of one signer; 0: any number; -1: half, once three signers are found", project=True
    )
    deadline: float = _setting(10.0, "seconds that a tier may take to answer", project=True)
    workspace_store: str = _setting("local", "where a workspace's documents are: local, qdrant or registry")
    qdrant_url: str = _setting("", "https://… of a Qdrant server that holds them, or a folder of this machine")
    qdrant_api_key: str = _setting("", "its key", secret=True)
    workspace_name: str = _setting("", "name of the workspace in statements; default: its settings' or its folder's")
    log_level: str = _setting("info", "what is logged from where up: debug, info, warning or error")

    @property
    def user_dir(self) -> Path:
        """The user tier's folder."""
        return Path(self.home).expanduser()

    @property
    def cache_path(self) -> Path:
        """The cache folder."""
        return Path(self.cache_dir).expanduser()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a setting's value came from: ``default``, a file, a variable or a flag."""

    name: str
    value: Any
    source: str
    secret: bool

    @property
    def shown(self) -> str:
        """The value, or a mask where it is a secret."""
        return "(set)" if self.secret and self.value else str(self.value)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings, and where each came from."""

    settings: Settings
    origins: tuple[Origin, ...]


# Keys below ``vector_store:`` in older settings files, and what they are here; None: understood, and decided by Kiwi
# itself.
_OLDER_KEYS: Mapping[str, str | None] = {
    "embedding_provider": "embedding_provider",
    "embedding_model": "embedding_model",
    "embedding_dimensions": "embedding_dimension",
    "context_results": "limit",
    **dict.fromkeys(
        (
            "enabled", "backend", "path", "collection_name", "search_context_window", "similarity_threshold",
            "dynamic_threshold", "retrieval_strategy", "chunking_strategy", "chunk_size", "chunk_overlap",
            "max_chunk_size", "preserve_sentence_boundaries",
        )
    ),
}  # fmt: skip


def resolve(
    environ: Mapping[str, str], project: Path | None = None, flags: Mapping[str, Any] | None = None
) -> Resolved:
    """Read all sources; later ones win: defaults, user file, project file, environment, flags.

    Parameters
    ----------
    environ
        The process's environment.
    project
        The project's ``.ai`` folder, if there is one.
    flags
        Values given on the command line; None values do not count.

    Raises
    ------
    ConfigError
        On an unknown key, a value of the wrong type, or a key that a project's file may not set.
    """
    variables = {name: environ[variable] for name in _names() if (variable := _variable(name, environ))}
    home = Path(variables.get("home", Settings().home)).expanduser()
    layers: list[tuple[str, Mapping[str, Any]]] = [(str(home / "config.yaml"), _from_file(home / "config.yaml"))]
    if project is not None and project.resolve() != home.resolve():
        layers.append((str(project / "config.yaml"), _from_project(project / "config.yaml")))
    layers.append(("environment", variables))
    layers.append(("flag", {k: v for k, v in (flags or {}).items() if v is not None}))
    return _merge(layers, environ)


def find_project(start: Path, home: Path) -> Path | None:
    """Return the nearest ``.ai`` folder at or above `start` that is not the user's own, or None.

    One that belongs to another user, or leads out of the folder that it is in, is passed over: whoever may write to a
    folder above (``/tmp``) would else decide about all projects below.
    """
    owners = _own_ids(start)
    for folder in (start, *start.parents):
        candidate = folder / PROJECT_FOLDER
        if candidate.is_dir() and candidate.resolve() != home.resolve() and _is_own(candidate, owners):
            return candidate
    return None


def _own_ids(start: Path) -> frozenset[int]:
    """Return whose folders may be a project: the process's, root's, and those of whoever owns the folder it stands in.

    The last is for root in a container, or by sudo, in somebody's checkout: its ``.ai`` is that checkout's.
    """
    try:
        return frozenset({0, os.geteuid(), start.stat().st_uid})
    except OSError:
        return frozenset({0, os.geteuid()})


def _is_own(candidate: Path, owners: frozenset[int]) -> bool:
    try:
        leads_out = not candidate.resolve().is_relative_to(candidate.parent.resolve())
        return not leads_out and {candidate.lstat().st_uid, candidate.stat().st_uid} <= owners
    except OSError:  # it went meanwhile
        return False


def home_of(environ: Mapping[str, str]) -> Path:
    """Return the user tier's folder, before any file is read."""
    return Path(environ.get("KIWI_HOME") or Settings().home).expanduser()


def _names() -> tuple[str, ...]:
    return tuple(f.name for f in fields(Settings))


def _variable(name: str, environ: Mapping[str, str]) -> str:
    """Return the environment variable that sets `name`, Kiwi's own first; empty where none does."""
    also = next(f.metadata["also"] for f in fields(Settings) if f.name == name)
    return next((variable for variable in (f"KIWI_{name.upper()}", also) if environ.get(variable)), "")


def _merge(layers: list[tuple[str, Mapping[str, Any]]], environ: Mapping[str, str]) -> Resolved:
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, layer in layers:
        for name, value in layer.items():
            values[name] = _typed(name, value, source)
            sources[name] = _variable(name, environ) if source == "environment" else source
    settings = Settings(**values)
    origins = tuple(
        Origin(f.name, getattr(settings, f.name), sources.get(f.name, "default"), f.metadata["secret"])
        for f in fields(Settings)
    )
    return Resolved(settings, origins)


def _typed(name: str, value: Any, source: str) -> Any:
    wanted: type = next(type(f.default) for f in fields(Settings) if f.name == name)
    try:
        if isinstance(value, (bool, list, dict)) or value is None:
            raise ValueError(f"a {wanted.__name__} is wanted")
        typed = wanted(value)
        _check_range(name, typed, source)
        return typed
    except (ValueError, OverflowError) as error:
        secret = any(f.metadata["secret"] for f in fields(Settings) if f.name == name)
        shown = "(hidden)" if secret else repr(value)
        raise ConfigError(f"{source}: {name} = {shown} is not valid: {error}") from error


# What a value may be, beside one of its type, and how that is said. A NaN is in no range.
_RANGES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "deadline": (lambda seconds: 0 < seconds < math.inf, "a number above 0"),
    "half_life_days": (lambda days: 0 <= days < math.inf, "a number from 0 up"),
    "alpha": (lambda share: 0 <= share <= 1 or share == Settings().alpha, "between 0 and 1"),
    "embedding_batch_texts": (lambda texts: 0 <= texts <= 2048, "between 0 and 2048"),
    "embedding_batch_tokens": (lambda tokens: tokens >= 0, "a number from 0 up"),
    "workspace_store": (lambda store: store in WORKSPACE_STORES, ", ".join(WORKSPACE_STORES)),
    "log_level": (lambda level: level in ("debug", "info", "warning", "error"), "debug, info, warning or error"),
}


def _check_range(name: str, value: Any, source: str) -> None:
    is_within, wanted = _RANGES.get(name, (lambda _: True, ""))
    left_out = name == "alpha" and source == "flag" and value < 0  # a flag is left out where none is wanted
    if left_out or not is_within(value):
        shown = f"{value:g}" if isinstance(value, float) else value
        raise ValueError(f"{name} {shown} is not {wanted}")


def _from_project(path: Path) -> dict[str, Any]:
    values = _from_file(path)
    allowed = {f.name for f in fields(Settings) if f.metadata["project"]}
    for name in values:
        if name not in allowed:
            raise ConfigError(
                f"{path}: a project may not set {name!r}",
                hint=f"set it in ~/.ai/config.yaml, or as KIWI_{name.upper()}",
            )
    return values


def _from_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        text = read_regular(path, MAX_BYTES, follow_links=True)[0].decode()
        if len(text) > MAX_BYTES or any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ConfigError(f"{path}: over 64 KiB, or holds YAML aliases")
        document = yaml.safe_load(text) or {}
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        return {}
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {_reason(error)}") from None  # the cause quotes the file
    if not isinstance(document, dict):
        raise ConfigError(f"{path} does not hold keys and values")
    return _known(document, path)


def _reason(error: Exception) -> str:
    """Say what is wrong without quoting the file: it may hold secrets, or be a clone's link to one that does."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"{error.problem} in line {error.problem_mark.line + 1}"
    return (error.strerror or "") if isinstance(error, OSError) else type(error).__name__


def _known(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    values = {**document}
    older = values.pop("vector_store", None) or {}
    if not isinstance(older, dict):
        raise ConfigError(f"{path}: 'vector_store' does not hold keys and values")
    for name in (*values, *older):
        if name not in (_names() if name in values else _OLDER_KEYS):
            raise ConfigError(f"{path}: unknown key {name!r}", hint="kiwi config --resolved lists the keys")
    renamed = {new: older[old] for old, new in _OLDER_KEYS.items() if new and old in older}
    return {**renamed, **values}


def process_environment() -> Mapping[str, str]:
    """Return this process's environment; the one place that reads it."""
    return os.environ
