"""Settings: which source wins, what a project may not decide, and that secrets stay out of sight."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag import config, local_service
from kiwi_rag.config import Settings, resolve
from kiwi_rag.errors import ConfigError

STRANGER = 65534


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home/.ai"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project/.ai"


def write(folder: Path, text: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def origin(resolved: config.Resolved, name: str) -> config.Origin:
    return next(o for o in resolved.origins if o.name == name)


def test_later_sources_win_and_are_named(home: Path, project: Path) -> None:
    environ, flags = {"KIWI_HOME": str(home)}, {}

    def limit() -> tuple[Any, str]:
        resolved = resolve(environ, project, flags)
        found = origin(resolved, "limit")
        assert found.value == resolved.settings.limit
        return found.value, found.source

    assert limit() == (10, "default")
    user_file = write(home, "limit: 11\n")
    assert limit() == (11, str(user_file))
    project_file = write(project, "limit: 12\n")
    assert limit() == (12, str(project_file))
    environ["KIWI_LIMIT"] = "13"
    assert limit() == (13, "KIWI_LIMIT")
    flags["limit"] = 14
    assert limit() == (14, "flag")


def test_a_flag_that_was_not_given_does_not_count(home: Path) -> None:
    assert resolve({"KIWI_HOME": str(home)}, None, {"limit": None}).settings.limit == 10


def test_every_setting_has_an_origin_and_says_what_it_is(home: Path) -> None:
    resolved = resolve({"KIWI_HOME": str(home)})
    assert [o.name for o in resolved.origins] == [f.name for f in fields(Settings)]
    assert all(f.metadata["what"] for f in fields(Settings))
    assert resolved.settings == Settings(home=str(home))


@pytest.mark.parametrize("text", ["limits: 5\n", "1: 2\n"])
def test_an_unknown_key_is_an_error(home: Path, text: str) -> None:
    write(home, text)
    with pytest.raises(ConfigError, match="unknown key"):
        resolve({"KIWI_HOME": str(home)})


@pytest.mark.parametrize(
    "text",
    [
        "limit: many\n",
        "limit: [1]\n",
        "limit: {a: 1}\n",
        "limit: true\n",
        "limit:\n",
        "deadline: soon\n",
        "- limit\n",
        "just text\n",
        "limit: [\n",
        b"\xff\xfe\xfa",
        "vector_store: 5\n",
        "vector_store: [embedding_model]\n",
        "limit: &a 5\nthreads: *a\n",
        "limit: !!python/object/apply:os.getcwd []\n",
        "# " + "x" * (1 << 16),
    ],
    ids=range(15),
)
def test_a_malformed_file_is_an_error(home: Path, text: str | bytes) -> None:
    write(home, text)
    with pytest.raises(ConfigError):
        resolve({"KIWI_HOME": str(home)})


@pytest.mark.parametrize("value", ["x", "1.5", ""])
def test_a_variable_is_typed_and_an_empty_one_does_not_count(home: Path, value: str) -> None:
    environ = {"KIWI_HOME": str(home), "KIWI_THREADS": value}
    if value:
        with pytest.raises(ConfigError, match="threads"):
            resolve(environ)
    else:
        assert resolve(environ).settings.threads == 0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("deadline", ["nan", "-1", "0", "inf"]),
        ("half_life_days", ["nan", "-1", "inf"]),
        ("alpha", ["nan", "-0.5", "-2", "1.5", "inf"]),
    ],
)
def test_a_number_that_makes_no_sense_is_an_error(home: Path, name: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=name):
            resolve({"KIWI_HOME": str(home), f"KIWI_{name.upper()}": value})


def test_minus_one_stands_for_the_tuned_alpha_in_a_setting_and_for_nothing_as_a_flag(home: Path) -> None:
    assert resolve({"KIWI_HOME": str(home), "KIWI_ALPHA": "-1"}).settings.alpha == -1
    assert resolve({"KIWI_HOME": str(home)}, None, {"alpha": 0.0}).settings.alpha == 0
    with pytest.raises(ConfigError, match="alpha -1 is not between 0 and 1"):
        resolve({"KIWI_HOME": str(home)}, None, {"alpha": -1.0})


def test_supabases_usual_variables_are_understood_and_kiwis_own_go_first(home: Path) -> None:
    environ = {"KIWI_HOME": str(home), "SUPABASE_URL": "https://a.example", "SUPABASE_KEY": "usual"}
    resolved = resolve(environ)
    assert (resolved.settings.supabase_url, resolved.settings.supabase_key) == ("https://a.example", "usual")
    assert origin(resolved, "supabase_url").source == "SUPABASE_URL"
    resolved = resolve({**environ, "KIWI_SUPABASE_URL": "https://b.example", "SUPABASE_KEY": ""})
    assert (resolved.settings.supabase_url, resolved.settings.supabase_key) == ("https://b.example", "")
    assert origin(resolved, "supabase_url").source == "KIWI_SUPABASE_URL"


def test_variables_of_other_programs_are_understood(home: Path) -> None:
    environ = {
        "KIWI_HOME": str(home), "KIWI_EMBEDDING_PROVIDER": "openai", "KONG_AI_URL": "http://127.0.0.1:8000/",
        "QDRANT_URL": "http://127.0.0.1:6333", "VECTOR_BACKEND": "qdrant",
    }  # fmt: skip
    resolved = resolve(environ)
    assert resolved.settings.embedding_base_url == "http://127.0.0.1:8000/ai"
    assert (resolved.settings.qdrant_url, resolved.settings.workspace_store) == ("http://127.0.0.1:6333", "qdrant")
    assert origin(resolved, "workspace_store").source == "VECTOR_BACKEND"
    assert resolved.notices == ()
    assert resolve({**environ, "VECTOR_BACKEND": "chromadb"}).settings.workspace_store == "local"


@pytest.mark.parametrize("variable", config.ALIASES)
def test_a_setting_under_kiwis_own_name_goes_before_another_programs_variable(home: Path, variable: str) -> None:
    name, _ = config.ALIASES[variable]
    own = "local" if name == "workspace_store" else "http://own.example"
    environ = {"KIWI_HOME": str(home), "KIWI_EMBEDDING_PROVIDER": "openai", variable: "qdrant"}
    assert origin(resolve(environ), name).source == variable
    resolved = resolve({**environ, f"KIWI_{name.upper()}": own})
    assert (origin(resolved, name).value, origin(resolved, name).source) == (own, f"KIWI_{name.upper()}")
    assert resolved.notices == (f"{variable} is not used: KIWI_{name.upper()} sets {name}",)
    path = write(home, f"{name}: {own}\n")
    assert resolve(environ).notices == (f"{variable} is not used: {path} sets {name}",)


def test_openais_key_is_sent_to_no_other_server(home: Path) -> None:
    environ = {"KIWI_HOME": str(home), "OPENAI_API_KEY": "sk-1", "KIWI_EMBEDDING_PROVIDER": "openai"}
    assert resolve(environ).settings.embedding_api_key == "sk-1"
    for other in (
        {"KIWI_EMBEDDING_BASE_URL": "http://vllm.example/v1"}, {"KONG_AI_URL": "http://127.0.0.1:8000"},
        {"KIWI_EMBEDDING_PROVIDER": "ollama"}, {"KIWI_EMBEDDING_PROVIDER": ""},
    ):  # fmt: skip
        resolved = resolve({**environ, **other})
        assert resolved.settings.embedding_api_key == ""
        assert any(notice.startswith("OPENAI_API_KEY is not used: ") for notice in resolved.notices)
        assert "sk-1" not in str(resolved.notices)


def test_a_gateway_receives_nothing_until_the_provider_is_chosen(home: Path) -> None:
    resolved = resolve({"KIWI_HOME": str(home), "KONG_AI_URL": "http://127.0.0.1:8000", "VECTOR_BACKEND": "pinecone"})
    assert (resolved.settings.embedding_provider, resolved.settings.embedding_base_url) == ("onnx", "")
    assert resolved.settings.workspace_store == "local"
    assert resolved.notices == (
        "KONG_AI_URL is not used: it takes KIWI_EMBEDDING_PROVIDER=openai, and that is onnx",
        "VECTOR_BACKEND is not used: Kiwi knows the values chromadb and qdrant of it",
    )


def test_the_local_service_gets_every_variable_of_another_program() -> None:
    environ = dict.fromkeys(config.ALIASES, "x")
    assert local_service.sent_environment(environ | {"PATH": "/bin"}) == environ


SECRETS = [f.name for f in fields(Settings) if f.metadata["secret"]]


def test_what_is_secret_is_marked_so() -> None:
    assert set(SECRETS) == {
        "signing_key", "key_passphrase", "registry_url", "embedding_api_key", "supabase_key", "supabase_token",
        "embedding_fallback_keys", "qdrant_api_key", "weaviate_api_key", "chat_api_key",
    }  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_never_shown(home: Path, name: str) -> None:
    found = origin(resolve({"KIWI_HOME": str(home), f"KIWI_{name.upper()}": "hunter2"}), name)
    assert found.value == "hunter2"
    assert found.shown == "(set)"
    assert origin(resolve({"KIWI_HOME": str(home)}), name).shown == ""


PROJECTS = {"namespace", "registry_name", "source", "limit", "alpha", "half_life_days", "per_signer", "deadline"}


@pytest.mark.parametrize("name", [f.name for f in fields(Settings)])
def test_a_project_tunes_searching_and_nothing_else(home: Path, project: Path, name: str) -> None:
    write(project, f"{name}: 1\n")
    if name in PROJECTS:
        assert str(getattr(resolve({"KIWI_HOME": str(home)}, project).settings, name)) in ("1", "1.0")
    else:
        with pytest.raises(ConfigError, match=f"a project may not set '{name}'"):
            resolve({"KIWI_HOME": str(home)}, project)


@pytest.mark.parametrize("key", ["embedding_provider", "embedding_model", "embedding_dimensions"])
def test_a_project_cannot_reach_the_model_by_another_name(home: Path, project: Path, key: str) -> None:
    write(project, f"vector_store:\n  {key}: 5\n")
    with pytest.raises(ConfigError, match="a project may not set"):
        resolve({"KIWI_HOME": str(home)}, project)


def test_the_users_own_folder_is_not_a_project(home: Path) -> None:
    write(home, "embedding_provider: ollama\n")
    assert resolve({"KIWI_HOME": str(home)}, home).settings.embedding_provider == "ollama"


def test_the_vector_store_section_is_understood(home: Path) -> None:
    write(
        home,
        "vector_store:\n  embedding_provider: ollama\n  embedding_model: nomic-embed-text\n"
        "  embedding_dimensions: 768\n  context_results: 7\n  search_context_window: 3\n"
        "  similarity_threshold: 0.7\n  dynamic_threshold: false\n  retrieval_strategy: rrf\n",
    )
    settings = resolve({"KIWI_HOME": str(home)}).settings
    assert settings.embedding_provider == "ollama"
    assert settings.embedding_model == "nomic-embed-text"
    assert (settings.embedding_dimension, settings.memory_results, settings.memory_neighbours) == (768, 7, 3)
    assert (settings.memory_floor, settings.memory_dynamic_floor, settings.memory_strategy) == (0.7, False, "rrf")


@pytest.mark.parametrize("value", ["2", "yes please", "[true]"])
def test_a_switch_is_true_or_false(home: Path, value: str) -> None:
    write(home, f"memory_dynamic_floor: {value}\n")
    with pytest.raises(ConfigError, match=r"memory_dynamic_floor = .* is not valid: it must be"):
        resolve({"KIWI_HOME": str(home)})


@pytest.mark.parametrize(("written", "meant"), [("false", False), ("OFF", False), ("1", True), ("true", True)])
def test_a_switch_is_read_from_the_environment(home: Path, written: str, meant: bool) -> None:
    environ = {"KIWI_HOME": str(home), "KIWI_MEMORY_DYNAMIC_FLOOR": written}
    assert resolve(environ).settings.memory_dynamic_floor is meant


IDLE = [
    "enabled", "backend", "path", "collection_name", "chunking_strategy", "chunk_size", "chunk_overlap",
    "max_chunk_size", "preserve_sentence_boundaries", "colour",
]  # fmt: skip


@pytest.mark.parametrize("key", IDLE)
def test_a_key_of_the_section_that_does_nothing_is_refused_by_name(home: Path, key: str) -> None:
    path = write(home, f"vector_store:\n  context_results: 7\n  {key}: 1\n")
    with pytest.raises(ConfigError, match=f"{path}: vector_store.{key} has no effect") as error:
        resolve({"KIWI_HOME": str(home)})
    assert "context_results" in (error.value.hint or "")


def test_every_key_that_does_nothing_is_named_at_once(home: Path) -> None:
    write(home, "vector_store:\n" + "".join(f"  {key}: 1\n" for key in IDLE))
    with pytest.raises(ConfigError) as error:
        resolve({"KIWI_HOME": str(home)})
    assert all(f"vector_store.{key}" in error.value.message for key in IDLE)


@pytest.mark.parametrize(
    ("provider", "key"),
    [("onnx", "embedding_dimension: 1536"), ("onnx", "embedding_base_url: x"), ("ollama", "threads: 2"),
     ("openai", "embedding_model_dir: x")],
)  # fmt: skip
def test_a_key_that_does_nothing_with_the_files_own_provider_is_refused(home: Path, provider: str, key: str) -> None:
    write(home, f"embedding_provider: {provider}\n{key}\n")
    with pytest.raises(ConfigError, match=f"{key.partition(':')[0]} has no effect with embedding_provider {provider}"):
        resolve({"KIWI_HOME": str(home)})


def test_a_key_for_another_provider_stays_where_the_environment_chooses_the_provider(home: Path) -> None:
    write(home, "embedding_dimension: 768\nthreads: 2\n")
    settings = resolve({"KIWI_HOME": str(home), "KIWI_EMBEDDING_PROVIDER": "ollama"}).settings
    assert (settings.embedding_provider, settings.embedding_dimension, settings.threads) == ("ollama", 768, 2)


@pytest.mark.parametrize(
    "text", ["limit: 3\nlimit: 5\n", "vector_store:\n  context_results: 3\n  context_results: 5\n"]
)
def test_a_key_that_is_given_twice_is_refused(home: Path, text: str) -> None:
    write(home, text)
    with pytest.raises(ConfigError, match="is given twice"):
        resolve({"KIWI_HOME": str(home)})


def test_a_mistyped_key_gets_a_suggestion(home: Path) -> None:
    write(home, "limits: 5\n")
    with pytest.raises(ConfigError, match="unknown key 'limits'") as error:
        resolve({"KIWI_HOME": str(home)})
    assert "did you mean 'limit'?" in (error.value.hint or "")


def test_a_top_level_key_wins_over_the_section(home: Path) -> None:
    write(home, "limit: 3\nvector_store:\n  context_results: 7\n")
    assert resolve({"KIWI_HOME": str(home)}).settings.limit == 3


def test_a_project_is_found_upwards_and_is_not_the_home(home: Path, project: Path) -> None:
    project.mkdir(parents=True)
    home.mkdir(parents=True)
    deep = project.parent / "src/deep"
    deep.mkdir(parents=True)
    assert config.find_project(deep, home) == project
    assert config.find_project(home.parent, home) is None


def give_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a folder be somebody else's: really, where the tests may; else by being somebody else."""
    if os.geteuid() == 0:
        os.chown(folder, STRANGER, STRANGER, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: folder.lstat().st_uid + 1)


def test_a_project_of_another_user_is_passed_over(
    tmp_path: Path, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may make ``/tmp/.ai``; it decides nothing about what others have below ``/tmp``."""
    project.mkdir(parents=True)
    mine = project.parent / "mine"
    mine.mkdir()
    assert config.find_project(mine, home) == project
    give_away(project, monkeypatch)
    assert config.find_project(mine, home) is None
    assert config.find_project(project.parent, home) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_one_goes_on_above_a_strangers_folder_unless_one_stands_in_theirs(home: Path, project: Path) -> None:
    inner = project.parent / "inner/.ai"
    for folder in (project, inner):
        folder.mkdir(parents=True)
    os.chown(inner, STRANGER, STRANGER)
    assert config.find_project(inner.parent, home) == project
    os.chown(inner.parent, STRANGER, STRANGER)
    assert config.find_project(inner.parent, home) == inner


def test_a_link_is_a_project_only_where_it_stays_inside(tmp_path: Path, home: Path, project: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    project.parent.mkdir()
    project.symlink_to(elsewhere)
    assert config.find_project(project.parent, home) is None
    project.unlink()
    (project.parent / "kept").mkdir()
    project.symlink_to("kept")
    assert config.find_project(project.parent, home) == project


def test_home_comes_from_the_environment(home: Path) -> None:
    assert config.home_of({"KIWI_HOME": str(home)}) == home
    assert config.home_of({"KIWI_HOME": ""}) == config.home_of({}) == Path("~/.ai").expanduser()
