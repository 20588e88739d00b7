"""Settings: one frozen object, read once from defaults, two YAML files, the environment and flags.

A project's ``config.yaml`` comes with its repository. So it may change how Kiwi searches there, but not where secrets
are sent or which model weights are loaded: those keys are refused in it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from kiwi_rag.errors import ConfigError
from kiwi_rag.storage.safe_open import NotRegularFile, parse_settings, read_regular
from kiwi_rag.system import user_id

PROJECT_FOLDER = ".ai"
WORKSPACE_STORES = ("local", "qdrant", "registry", "weaviate")
MAX_BYTES = 1 << 16


def _setting(default: Any, what: str, *, project: bool = False, secret: bool = False, also: str = "") -> Any:
    return field(default=default, metadata={"what": what, "project": project, "secret": secret, "also": also})


_secret = partial(_setting, "", secret=True)
_project_setting = partial(_setting, project=True)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of Kiwi. The environment variable of ``name`` is ``KIWI_NAME``; two have another one (``also``)."""

    home: str = _setting("~/.ai", "the user tier: items, keys, trust, embedded registry")
    cache_dir: str = _setting("~/.cache/kiwi", "model files and embedding cache; safe to delete")
    principal: str = _setting("", "who you are, in signatures you make; default: user@host")
    key: str = _setting("", "name of the private key to sign with; default: the only one there is")
    signing_key: str = _secret("private key as PEM text, for CI")
    key_passphrase: str = _secret("unlocks the private key")
    registry_url: str = _secret("postgresql://… of a registry server; default: the embedded one")
    supabase_url: str = _setting("", "https://… of a Supabase project that is the registry", also="SUPABASE_URL")
    supabase_key: str = _secret("publishable key of the Supabase project, or a user's token", also="SUPABASE_KEY")
    supabase_token: str = _secret("token of a signed-in user, in addition to the publishable key")
    namespace: str = _project_setting("", "first part of the ids of imported items, such as acme")
    registry_name: str = _project_setting("kiwi", "name of the registry that signatures are made for")
    embedding_provider: str = _setting("onnx", "onnx, sentence-transformers, openai or ollama")
    embedding_model: str = _setting("", "model name; of onnx: all-MiniLM-L6-v2-int8 (default) or all-MiniLM-L6-v2")
    embedding_model_dir: str = _setting("", "folder with the model's weights and tokenizer")
    embedding_base_url: str = _setting("", "base URL of a remote provider")
    embedding_api_key: str = _secret("key of a remote provider")
    embedding_dimension: int = _setting(384, "dimension of a remote provider's vectors")
    embedding_fallbacks: str = _setting("", "servers of the same model, tried next: [PROVIDER] URL [MODEL], by commas")
    embedding_fallback_keys: str = _secret("keys of the fallback servers, in the same order, separated by commas")
    embedding_identity: str = _setting("", "name of the model in fingerprints, to keep vectors when the URL changes")
    embedding_batch_texts: int = _setting(0, "texts per request to a remote provider; 0: its default")
    embedding_batch_tokens: int = _setting(0, "estimated tokens per request to a remote provider; 0: its default")
    embedding_prices: str = _setting("", "US dollars per million tokens, not list prices: MODEL=PRICE, by commas")
    chat_provider: str = _setting("", "chat model that answers questions: openai or ollama; default: none")
    chat_model: str = _setting("", "its name on the server")
    chat_base_url: str = _setting("", "base URL of its server; default: OpenAI's, or Ollama on this machine")
    chat_api_key: str = _secret("key of its server")
    chat_prices: str = _setting("", "US dollars per million tokens: MODEL=READ/WRITTEN, by commas")
    consent: str = _setting("", "hosts that data may be sent to without a question: HOST or HOST:PURPOSE, by commas")
    threads: int = _setting(0, "threads of the embedding model; 0: one per core")
    source: str = _project_setting("local", "tiers to search: project, user, registry, local (project and user) or all")
    limit: int = _project_setting(10, "number of hits that a search shows")
    alpha: float = _project_setting(-1.0, "weight of the vector leg, 0 to 1; -1: the tuned weight")
    half_life_days: float = _project_setting(0.0, "number of days in which a hit's score halves with its age; 0: off")
    per_signer: int = _project_setting(-1, "most hits of one signer; 0: no limit; -1: half, from three signers on")
    deadline: float = _project_setting(10.0, "seconds that a tier may take to answer a search")
    workspace_store: str = _setting("local", "store of a workspace's documents: local, qdrant, registry or weaviate")
    qdrant_url: str = _setting("", "https://… of a Qdrant server")
    qdrant_api_key: str = _secret("API key of the Qdrant server")
    qdrant_collection: str = _setting("", "the one collection for all workspaces, for a key that may not create others")
    weaviate_url: str = _setting("", "https://… of a Weaviate server")
    weaviate_grpc_url: str = _setting("", "https://… of its gRPC interface; default: the same host, by its usual port")
    weaviate_api_key: str = _secret("API key of the Weaviate server")
    memory_store: str = _setting("local", "store of conversation memories: local, qdrant, registry or weaviate")
    memory_results: int = _setting(5, "number of exchanges that a search of a memory shows")
    memory_neighbours: int = _setting(1, "exchanges that are added on each side of one that was found")
    memory_floor: float = _setting(0.0, "least similarity of an exchange that is recalled, 0 to 1; 0: any")
    memory_dynamic_floor: bool = _setting(True, "leave out exchanges that score far below the best")
    memory_strategy: str = _setting("default", "how a memory is searched: default, vectors, words or rrf")
    memory_half_life_days: float = _setting(0.0, "days in which the bonus for recent exchanges halves; 0: off")
    memory_retention_days: float = _setting(0.0, "days after which an exchange is forgotten; 0: never")
    workspace_name: str = _setting("", "name of the workspace; default: from .ai/workspace.yaml, else the folder's")
    log_level: str = _setting("info", "lowest level that is logged: debug, info, warning or error")

    @property
    def user_dir(self) -> Path:
        """The user tier's folder."""
        return Path(self.home).expanduser()

    @property
    def cache_path(self) -> Path:
        """The cache folder."""
        return Path(self.cache_dir).expanduser()


_FIELDS = {setting.name: setting for setting in fields(Settings)}


@dataclass(frozen=True, slots=True)
class Origin:
    """A setting's value and its ``source``: ``default``, a file, an environment variable or ``flag``."""

    name: str
    value: Any
    source: str

    @property
    def what(self) -> str:
        """What the setting is, in a line."""
        return str(_FIELDS[self.name].metadata["what"])

    @property
    def shown(self) -> str:
        """The value, or a mask where it is a secret."""
        return "(set)" if self.value and _FIELDS[self.name].metadata["secret"] else str(self.value)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings, the source of each, and ``notices`` about variables of other programs that have no effect."""

    settings: Settings
    origins: tuple[Origin, ...]
    notices: tuple[str, ...] = ()


# Keys below ``vector_store:`` in a file that another program shares, and the settings that they set.
VECTOR_STORE_KEYS: Mapping[str, str] = {
    "embedding_provider": "embedding_provider",
    "embedding_model": "embedding_model",
    "embedding_dimensions": "embedding_dimension",
    "context_results": "memory_results",
    "search_context_window": "memory_neighbours",
    "similarity_threshold": "memory_floor",
    "dynamic_threshold": "memory_dynamic_floor",
    "retrieval_strategy": "memory_strategy",
}

# Variables of other programs → the setting that they stand for, and how their value is read; None: it is not used.
ALIASES: Mapping[str, tuple[str, Callable[[str], str | None]]] = {
    "KONG_AI_URL": ("embedding_base_url", lambda url: f"{url.rstrip('/')}/ai"),  # its routes: docs/gateway.md
    "OPENAI_API_KEY": ("embedding_api_key", str),
    "QDRANT_URL": ("qdrant_url", str),
    "VECTOR_BACKEND": ("workspace_store", {"chromadb": "local", "qdrant": "qdrant"}.get),
}

# Settings that have an effect with some embedding providers only.
LOCAL_PROVIDERS, _REMOTE = ("onnx", "sentence-transformers"), ("openai", "ollama")
_OF_LOCAL = {"embedding_model_dir", "threads"}
_OF_REMOTE = {name for name in _FIELDS if name.startswith("embedding_")} - {
    "embedding_provider", "embedding_model", "embedding_model_dir"
}  # fmt: skip


def resolve(
    environ: Mapping[str, str], project: Path | None = None, flags: Mapping[str, Any] | None = None
) -> Resolved:
    """Read all sources. Later ones replace earlier ones: defaults, user file, project file, environment, flags.

    Parameters
    ----------
    environ
        The process's environment.
    project
        The project's ``.ai`` folder, if there is one.
    flags
        Values from the command line; those that are None are ignored.

    Raises
    ------
    ConfigError
        On a key that is unknown, is given twice or has no effect, a value of the wrong type, or a key that a project's
        file may not set.
    """
    home = home_of(environ)
    given = [(name, value, str(home / "config.yaml")) for name, value in _from_file(home / "config.yaml").items()]
    if project is not None and project.resolve() != home.resolve():
        path = project / "config.yaml"
        given += [(name, value, str(path)) for name, value in _from_project(path).items()]
    given += [(name, environ[variable], variable) for name in _FIELDS if (variable := _variable(name, environ))]
    given += [(name, value, "flag") for name, value in (flags or {}).items() if value is not None]
    others, notices = _read_aliases(environ, {name: (value, source) for name, value, source in given})
    origins = {name: Origin(name, setting.default, "default") for name, setting in _FIELDS.items()}
    origins |= {name: Origin(name, _convert(name, value, source), source) for name, value, source in others + given}
    values = {name: one.value for name, one in origins.items()}
    return Resolved(Settings(**values), tuple(origins.values()), tuple(notices))


def _read_aliases(
    environ: Mapping[str, str], given: Mapping[str, tuple[Any, str]]
) -> tuple[list[tuple[str, Any, str]], list[str]]:
    """Return the settings that variables of other programs give, and a notice for each that is not used.

    A setting that is given under Kiwi's own name goes first. OpenAI's key is used for OpenAI's server alone: another
    server must not receive it.
    """
    found: list[tuple[str, Any, str]] = []
    notices = []
    provider, _ = given.get("embedding_provider", (Settings().embedding_provider, ""))
    has_own_server = "embedding_base_url" in given or bool(environ.get("KONG_AI_URL"))
    for variable in filter(environ.get, ALIASES):
        name, read = ALIASES[variable]
        value = read(environ[variable])
        if name in given:
            notices.append(f"{variable} is not used: {given[name][1]} sets {name}")
        elif value is None:
            notices.append(f"{variable} is not used: Kiwi knows the values chromadb and qdrant of it")
        elif name.startswith("embedding_") and provider != "openai":
            notices.append(f"{variable} is not used: it takes KIWI_EMBEDDING_PROVIDER=openai, and that is {provider}")
        elif variable == "OPENAI_API_KEY" and has_own_server:
            notices.append(f"{variable} is not used: the server is not OpenAI's; its key is KIWI_EMBEDDING_API_KEY")
        else:
            found.append((name, value, variable))
    return found, notices


def find_project(start: Path, home: Path) -> Path | None:
    """Return the nearest ``.ai`` folder at or above `start` that is not the user tier's, or None.

    A folder that belongs to another user, or is a link out of its parent, is skipped. Otherwise any user with write
    access to a folder above (``/tmp``) could set the configuration of all projects below it.
    """
    owners = {0, user_id()}
    with suppress(OSError):
        owners.add(start.stat().st_uid)  # for root in a container, or with sudo, in another user's checkout
    for folder in (start, *start.parents):
        candidate = folder / PROJECT_FOLDER
        if candidate.is_dir() and candidate.resolve() != home.resolve() and _is_owned(candidate, owners):
            return candidate
    return None


def named_project(folder: Path) -> Path:
    """Return the ``.ai`` folder of a project that the user names; `ConfigError` where it is a link to another one."""
    named = (folder / PROJECT_FOLDER).absolute()
    if named.is_symlink() and _leads_out(named):
        raise ConfigError(
            f"{named} is a link out of {folder}", hint=f"name the project itself: {named.resolve().parent}"
        )
    return named


def _leads_out(folder: Path) -> bool:
    """Whether a folder is a link out of its parent."""
    return not folder.resolve().is_relative_to(folder.parent.resolve())


def _is_owned(candidate: Path, owners: set[int]) -> bool:
    try:
        return not _leads_out(candidate) and {candidate.lstat().st_uid, candidate.stat().st_uid} <= owners
    except OSError:  # removed meanwhile
        return False


def home_of(environ: Mapping[str, str]) -> Path:
    """Return the user tier's folder, before any file is read."""
    return Path(environ.get("KIWI_HOME") or Settings().home).expanduser()


def _variable(name: str, environ: Mapping[str, str]) -> str:
    """Return the environment variable that sets `name`, ``KIWI_NAME`` first, or an empty string."""
    names = (f"KIWI_{name.upper()}", _FIELDS[name].metadata["also"])
    return next((variable for variable in names if environ.get(variable)), "")


def _convert(name: str, value: Any, source: str) -> Any:
    """Return `value` as the setting's type, checked against its range."""
    setting_type: type = type(_FIELDS[name].default)
    is_within, allowed = _RANGES.get(name, (lambda _: True, ""))
    try:
        if isinstance(value, (list, dict)) or value is None or isinstance(value, bool) > (setting_type is bool):
            raise ValueError(f"it must be a {setting_type.__name__}")
        converted = _SWITCHES[str(value).lower()] if setting_type is bool else setting_type(value)
        without_flag = name == "alpha" and source == "flag" and converted < 0  # -1 is for files; omit the flag instead
        if without_flag or not is_within(converted):
            shown = f"{converted:g}" if isinstance(converted, float) else converted
            raise ValueError(f"{name} {shown} is not {allowed}")
        return converted
    except (ValueError, OverflowError, KeyError) as error:
        error = ValueError("it must be true or false") if isinstance(error, KeyError) else error
        shown = "(hidden)" if _FIELDS[name].metadata["secret"] else repr(value)
        raise ConfigError(f"{source}: {name} = {shown} is not valid: {error}", hint="correct or remove it") from error


_SWITCHES = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
MEMORY_STRATEGIES = ("default", "vectors", "words", "rrf")
# The range of a setting, as a condition and in words. The conditions are written so that NaN fulfils none of them.
_RANGES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "deadline": (lambda seconds: 0 < seconds < math.inf, "a number above 0"),
    "half_life_days": (lambda days: 0 <= days < math.inf, "a number from 0 up"),
    "alpha": (lambda share: 0 <= share <= 1 or share == Settings().alpha, "between 0 and 1"),
    "embedding_batch_texts": (lambda texts: 0 <= texts <= 2048, "between 0 and 2048"),
    "embedding_batch_tokens": (lambda tokens: tokens >= 0, "a number from 0 up"),
    "chat_provider": (lambda provider: provider in ("", *_REMOTE), "openai or ollama"),
    **dict.fromkeys(("workspace_store", "memory_store"), (WORKSPACE_STORES.__contains__, ", ".join(WORKSPACE_STORES))),
    "memory_strategy": (MEMORY_STRATEGIES.__contains__, ", ".join(MEMORY_STRATEGIES)),
    "memory_results": (lambda count: 1 <= count <= 50, "between 1 and 50"),
    "memory_neighbours": (lambda count: 0 <= count <= 10, "between 0 and 10"),
    "memory_floor": (lambda score: 0 <= score <= 1, "between 0 and 1"),
    **dict.fromkeys(
        ("memory_half_life_days", "memory_retention_days"),
        (lambda days: 0 <= days <= 36_500, "a number of days from 0 to 36500"),
    ),
    "log_level": (lambda level: level in ("debug", "info", "warning", "error"), "debug, info, warning or error"),
}


def _from_project(path: Path) -> dict[str, Any]:
    values = _from_file(path)
    for name in values:
        if not _FIELDS[name].metadata["project"]:
            hint = f"set it in ~/.ai/config.yaml, or as the environment variable KIWI_{name.upper()}"
            raise ConfigError(f"{path}: a project may not set {name!r}", hint=hint)
    return values


def _from_file(path: Path) -> dict[str, Any]:
    try:
        data, _ = read_regular(path, MAX_BYTES, follow_links=True)
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    return _read_keys(parse_settings(data, path, MAX_BYTES), path)


def _read_keys(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a file's settings under Kiwi's names.

    Raises
    ------
    ConfigError
        When a key is unknown, or would have no effect.
    """
    values = {**document}
    foreign = values.pop("vector_store", None) or {}
    if not isinstance(foreign, dict):
        raise ConfigError(f"{path}: 'vector_store' does not hold keys and values")
    for name in values:
        if name not in _FIELDS:
            import difflib

            similar = difflib.get_close_matches(str(name), _FIELDS, n=1)
            suggestion = f"did you mean {similar[0]!r}? " if similar else ""
            hint = f"{suggestion}kiwi config --resolved lists the keys"
            raise ConfigError(f"{path}: unknown key {name!r}", hint=hint)
    idle = [f"vector_store.{name}" for name in foreign if name not in VECTOR_STORE_KEYS]
    _refuse_idle(path, idle, "in Kiwi", f"Kiwi reads of vector_store: {', '.join(VECTOR_STORE_KEYS)}")
    renamed = {new: foreign[key] for key, new in VECTOR_STORE_KEYS.items() if key in foreign}
    _check_provider({**renamed, **values}, path)
    return {**renamed, **values}


def _check_provider(values: Mapping[str, Any], path: Path) -> None:
    """Raise `ConfigError` for keys without effect with the embedding provider that the same file names."""
    provider = values.get("embedding_provider")
    if provider not in (*LOCAL_PROVIDERS, *_REMOTE):
        return
    others, of_others = (_REMOTE, _OF_REMOTE) if provider in LOCAL_PROVIDERS else (LOCAL_PROVIDERS, _OF_LOCAL)
    idle = [name for name in values if name in of_others]
    _refuse_idle(path, idle, f"with embedding_provider {provider}", f"they have an effect with {' and '.join(others)}")


def _refuse_idle(path: Path, names: list[str], where: str, advice: str) -> None:
    if names:
        have, them = ("has", "it") if len(names) == 1 else ("have", "them")
        raise ConfigError(f"{path}: {', '.join(names)} {have} no effect {where}", hint=f"remove {them}; {advice}")


def process_environment() -> Mapping[str, str]:
    """Return this process's environment; the one place that reads it."""
    return os.environ
