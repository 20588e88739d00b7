"""What may be on other machines: the consent to it, the chat model, and the hosts of the documents' store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kiwi_rag.answers import chat
from kiwi_rag.config import Settings
from kiwi_rag.consent import Consents
from kiwi_rag.embedding.usage import UsageLog, parse_prices
from kiwi_rag.endpoint import Endpoint
from kiwi_rag.errors import ConfigError
from kiwi_rag.validation.audit import AuditEvent

if TYPE_CHECKING:
    from kiwi_rag.services import Services


def consents(app: Services) -> Consents:
    """Return which hosts the user has allowed; what is sent is recorded in the audit log of the user tier."""

    def record(about: Mapping[str, Any]) -> None:
        details = {"caller": app.principal, **about}
        app.local_store(app.user_dir).audit.append(AuditEvent("consent", about["host"], "", "", details))

    return Consents(app.user_dir / "consent.json", app.settings.consent, record)


def chat_model(settings: Settings, consent: Consents) -> chat.ChatModel | None:
    """Return the chat model; None where none is set. Nothing is contacted.

    Raises
    ------
    UsageError
        When it has no name, or the settings of its server do not fit together.
    """
    provider, model = settings.chat_provider, settings.chat_model
    if not provider:
        return None
    if not model:
        raise ConfigError("chat_provider is set, but chat_model is not", hint="set KIWI_CHAT_MODEL=<its name>")
    usage = UsageLog(settings.cache_path / "usage.jsonl", parse_prices(settings.chat_prices, "chat_prices"))
    allow = usage.priced(consent.require, provider, model, chat.MAX_TOKENS)
    url = settings.chat_base_url or chat.DEFAULT_URLS[provider]
    endpoint = Endpoint(url, settings.chat_api_key, chat.READ_SECONDS, 2, purpose="chat", allow=allow)
    return chat.ChatModel(provider, model, endpoint, usage)


def store_hosts(settings: Settings) -> Sequence[str]:
    """Return the hosts of the documents' store; none, or a socket's folder, for one on this machine."""
    if settings.workspace_store == "local":
        return []
    urls = {"qdrant": [settings.qdrant_url], "weaviate": [settings.weaviate_url, settings.weaviate_grpc_url]}
    if settings.workspace_store in urls:
        return [urlsplit(url).hostname or "" for url in urls[settings.workspace_store] if url]
    if not settings.registry_url:
        return [urlsplit(settings.supabase_url).hostname or ""]
    from kiwi_rag.monitor.monitor import database_address

    return database_address(settings.registry_url).rpartition(":")[0].split(",")
