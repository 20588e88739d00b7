"""The gateway's files: their form, that nothing in them is secret or open, and that Kiwi's requests find their way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from kiwi_rag.embedding.factory import ServerOptions, load_provider
from kiwi_rag.errors import ModelUnavailable
from kiwi_rag.usecases import weaviate
from tests.embedding_server import EmbeddingServer
from tests.shared import ROOT
from tests.unit.test_embedding_remote import digests

KONG_TEXT = (ROOT / "config/kong/kong.yml").read_text(encoding="utf-8")
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
WEAVIATE_TEXT = weaviate.FILE.read_text(encoding="utf-8")
KONG = yaml.safe_load(KONG_TEXT)
COMPOSE = yaml.safe_load(COMPOSE_TEXT)
SERVERS = {**COMPOSE["services"], **yaml.safe_load(WEAVIATE_TEXT)["services"]}
GUIDE = (ROOT / "docs/gateway.md").read_text(encoding="utf-8")

Found = dict[str, Any]


def routes() -> Iterator[tuple[Found, Found]]:
    return ((service, route) for service in KONG["services"] for route in service["routes"])


def plugins(route: Found) -> dict[str, Found]:
    return {plugin["name"]: plugin["config"] for plugin in route["plugins"]}


def target(service: Found) -> str:
    """Where a service's requests go, as Kong puts it together."""
    return service.get("url") or f"{service['protocol']}://{service['host']}:{service['port']}{service['path']}"


def every_value(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from every_value(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from every_value(inner)
    else:
        yield str(value)


# What Kong 3.9's schemas know of each entity that the file uses; a key more and the gateway does not start.
KNOWN = {
    "": {"_format_version", "services", "upstreams", "plugins"},
    "service": {
        "name", "url", "host", "port", "protocol", "path", "connect_timeout", "read_timeout", "write_timeout",
        "retries", "tags", "routes",
    },
    "route": {"name", "paths", "methods", "strip_path", "plugins"},
    "upstream": {"name", "algorithm", "healthchecks", "targets"},
    "ai-proxy": {"route_type", "max_request_body_size", "auth", "model", "logging"},
    "ai-prompt-decorator": {"max_request_body_size", "prompts"},
    "rate-limiting": {"minute", "policy"},
    "file-log": {"path", "reopen"},
}  # fmt: skip


def test_the_file_has_the_form_of_kong_3() -> None:
    assert KONG["_format_version"] == "3.0"
    assert "&" not in re.sub(r"#.*", "", KONG_TEXT), "no anchors: not every reader of it resolves them"
    assert set(KONG) <= KNOWN[""]
    for service, route in routes():
        assert set(service) <= KNOWN["service"]
        assert set(route) <= KNOWN["route"]
        for name, settings in plugins(route).items():
            assert set(settings) <= KNOWN[name], name
        assert all(path.startswith("~/") and path.endswith("$") for path in route["paths"]), "whole paths, as regexes"
        assert route["methods"] == ["POST"]
        assert route["strip_path"] is True
    assert [plugin["name"] for plugin in KONG["plugins"]] == ["file-log"]
    assert all(set(upstream) <= KNOWN["upstream"] for upstream in KONG["upstreams"])


def test_names_are_unique_and_hosts_are_known() -> None:
    for names in ([s["name"] for s in KONG["services"]], [r["name"] for _, r in routes()]):
        assert len(set(names)) == len(names)
    paths = [path for _, route in routes() for path in route["paths"]]
    assert len(set(paths)) == len(paths)
    upstreams = {upstream["name"] for upstream in KONG["upstreams"]}
    for service in KONG["services"]:
        host = urlsplit(target(service)).hostname
        assert host in upstreams or host in {"api.openai.com", "api.anthropic.com"}
    assert upstreams == {s["host"] for s in KONG["services"] if "host" in s}


def test_servers_of_the_upstream_are_those_of_the_compose_file() -> None:
    [upstream] = KONG["upstreams"]
    hosts = [entry["target"].partition(":")[0] for entry in upstream["targets"]]
    kong = COMPOSE["services"]["kong"]
    assert hosts == ["ollama", "host.docker.internal"]
    assert kong["extra_hosts"] == ["host.docker.internal:host-gateway"]
    assert set(kong["networks"]) & set(COMPOSE["services"]["ollama"]["networks"])
    assert upstream["healthchecks"]["active"]["unhealthy"]["interval"] > 0, "one that is back is noticed"


def test_every_route_is_limited() -> None:
    for _, route in routes():
        assert plugins(route)["rate-limiting"]["policy"] == "local"
        assert 0 < plugins(route)["rate-limiting"]["minute"] <= 1000


def test_only_chat_is_decorated_and_embeddings_are_of_one_model() -> None:
    for service, route in routes():
        found = plugins(route)
        if "embeddings" in service["tags"]:
            assert "ai-prompt-decorator" not in found
            assert found.get("ai-proxy", {}).get("route_type", "preserve") == "preserve"
            assert "ai-proxy-advanced" not in found
        elif "ai-proxy" in found:
            assert found["ai-proxy"]["route_type"] == "llm/v1/chat"
            [said] = found["ai-prompt-decorator"]["prompts"]["prepend"]
            assert said["role"] == "system"
            assert len(said["content"]) <= 500, "Kong's limit"
            assert "workspace_search" in said["content"]


def test_bodies_of_a_batch_fit_and_are_not_logged() -> None:
    for _, route in routes():
        if proxy := plugins(route).get("ai-proxy"):
            assert proxy["max_request_body_size"] >= 4 << 20
            assert proxy["logging"]["log_payloads"] is False
            assert proxy["model"]["name"]
    assert COMPOSE["services"]["kong"]["environment"]["KONG_NGINX_HTTP_CLIENT_BODY_BUFFER_SIZE"] == "4m"


VAULT = re.compile(r"\{vault://env/([a-z-]+)\}")


def test_no_secret_is_in_clear() -> None:
    for _, route in routes():
        if proxy := plugins(route).get("ai-proxy"):
            assert VAULT.fullmatch(proxy["auth"]["header_value"]), "a reference counts only as a whole value"
    for value in (*every_value(KONG), *every_value(COMPOSE)):
        assert not re.search(r"sk-[A-Za-z0-9]|[A-Za-z0-9+/_-]{40,}", value), value
    assert "/.env" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_variable_is_set_for_the_container_and_documented() -> None:
    given = {name for service in SERVERS.values() for name in service.get("environment", {})}
    wanted = {name.upper().replace("-", "_") for name in VAULT.findall(KONG_TEXT)} - {"SOME_NAME"}
    assert wanted <= set(COMPOSE["services"]["kong"]["environment"])
    outside = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE_TEXT + WEAVIATE_TEXT)) | {"QDRANT__SERVICE__API_KEY"}
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", GUIDE, re.MULTILINE))
    assert documented == outside | wanted
    assert ":?" not in COMPOSE_TEXT, "a missing variable of one service would stop all of them"
    own = {"KONG_", "QDRANT__", "AUTHENTICATION_"}
    own |= {"PERSISTENCE_DATA_PATH", "CLUSTER_HOSTNAME", "DEFAULT_VECTORIZER_MODULE", "DISABLE_TELEMETRY"}  # Weaviate's
    assert all(name.startswith(tuple(own)) or name in documented for name in given)


def test_every_port_is_this_machines_alone() -> None:
    for name, service in SERVERS.items():
        assert service["ports"]
        for port in service["ports"]:
            assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), f"{name}: {port}"
        assert service["healthcheck"]["test"][0] == "CMD"
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", service["image"]), "a version, not whatever is newest"
    used = {v.partition(":")[0] for s in COMPOSE["services"].values() for v in s["volumes"] if not v.startswith("./")}
    assert used == set(COMPOSE["volumes"])
    assert "./config/kong/kong.yml:/etc/kong/kong.yml:ro" in COMPOSE["services"]["kong"]["volumes"]
    assert COMPOSE["services"]["kong"]["environment"]["KONG_DECLARATIVE_CONFIG"] == "/etc/kong/kong.yml"


class Gateway(EmbeddingServer):
    """A stand-in that finds its routes in kong.yml as Kong does, and answers as the server behind them would."""

    def behind(self, path: str) -> str:
        for service, route in routes():
            if any(re.fullmatch(pattern.removeprefix("~"), path) for pattern in route["paths"]):
                proxy = plugins(route).get("ai-proxy", {})
                return urlsplit(proxy.get("model", {}).get("options", {}).get("upstream_url") or target(service)).path
        return ""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(digests) as running:
        yield running


LINE = re.compile(
    r"^export KIWI_EMBEDDING_PROVIDER=(\w+) KIWI_EMBEDDING_BASE_URL=http://127\.0\.0\.1:8000(\S+)"
    r"(?: KIWI_EMBEDDING_MODEL=(\S+))?$",
    re.MULTILINE,
)
WAYS = LINE.findall(GUIDE)


@pytest.mark.parametrize(("provider", "base", "model"), WAYS)
def test_what_the_guide_says_reaches_a_server_that_embeds(
    gateway: Gateway, tmp_path: Any, provider: str, base: str, model: str
) -> None:
    asked = load_provider(
        provider, cache_dir=tmp_path, model=model, servers=ServerOptions(gateway.url + base, dimension=8)
    ).uncached
    assert len(asked.encode(["one", "two"])) == 2
    [seen] = gateway.seen
    proxies = [
        plugins(r).get("ai-proxy") for _, r in routes() if any(re.fullmatch(p[1:], seen.path) for p in r["paths"])
    ]
    assert all(proxy is None or proxy["model"]["name"] == seen.body["model"] for proxy in proxies)
    assert seen.authorization == "", "the gateway has the keys"


def test_there_are_three_ways_and_a_wrong_one_is_no_route(gateway: Gateway, tmp_path: Any) -> None:
    assert [way[:2] for way in WAYS] == [("openai", "/ai"), ("openai", "/ai/local"), ("ollama", "/ai/ollama")]
    for wrong in ("", "/ai/chat", "/v1", "/ai/embeddings"):
        with pytest.raises(ModelUnavailable, match="404"):
            load_provider(
                "openai", cache_dir=tmp_path, servers=ServerOptions(gateway.url + wrong, dimension=8)
            ).uncached.encode(["x"])


def documented_paths() -> Sequence[str]:
    lines = [line for line in GUIDE.splitlines() if line.startswith("| `POST ")]
    return [
        re.sub(r"^(POST )?(http://[^/]+|…)", "", path)
        for line in lines
        for path in re.findall(r"`([^`]+/ai[^`]*)`", line)
    ]


def test_the_guides_table_of_addresses_is_that_of_the_file() -> None:
    patterns = [pattern.removeprefix("~") for _, route in routes() for pattern in route["paths"]]
    paths = documented_paths()
    assert len(paths) == 10
    assert all(sum(bool(re.fullmatch(pattern, path)) for pattern in patterns) == 1 for path in paths)
    assert all(any(re.fullmatch(pattern, path) for path in paths) for pattern in patterns)


def test_the_limits_in_the_guide_are_those_of_the_file() -> None:
    lines = [line for line in GUIDE.splitlines() if line.startswith("| `POST ")]
    told = [int(line.rstrip(" |").rpartition("| ")[2].replace(",", "")) for line in lines]
    assert told == [plugins(route)["rate-limiting"]["minute"] for _, route in routes()]


def test_the_example_for_a_licensed_kong_is_yaml_of_one_model() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    [plugin] = yaml.safe_load(block)["plugins"]
    assert plugin["route"] in {route["name"] for _, route in routes()}
    assert {t["model"]["name"] for t in plugin["config"]["targets"]} == {"all-minilm"}
    assert {t["route_type"] for t in plugin["config"]["targets"]} == {"llm/v1/embeddings"}


def test_make_has_the_gateways_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in ("kong-up", "kong-logs", "kong-routes", "weaviate-up", "weaviate-down"):
        assert re.search(rf"^{name}:$", makefile, re.MULTILINE)
