"""Any server with OpenAI's embeddings API: OpenAI, Kong, LiteLLM, vLLM and others.

Format: ``POST {base}/embeddings``, https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kiwi_rag.embedding.endpoint import Endpoint, post_json
from kiwi_rag.embedding.remote import Limits, RemoteEmbeddingProvider, Reply, max_reply_bytes, token_count
from kiwi_rag.embedding.usage import UsageLog
from kiwi_rag.errors import AnswerMalformed

_NATIVE_DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}


class OpenAIEmbeddingProvider(RemoteEmbeddingProvider):
    """Embeds through an OpenAI-compatible server; parameters as in the base class.

    Models named ``text-embedding-3-*`` can shorten their vectors to `dimension`. Other models must have that dimension.
    """

    provider = "openai"
    default_model = "text-embedding-3-small"
    max_tokens = 8191
    request_tokens = 250_000
    """The API's limit is 300,000, and these are estimated."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        dimension: int = 0,
        usage: UsageLog | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        native = _NATIVE_DIMENSIONS.get(model, 0)
        super().__init__(endpoint, model, dimension or native, usage, limits)
        shortened = model.startswith("text-embedding-3-") and dimension not in {0, native}
        self._parameters = {"dimensions": dimension} if shortened else {}

    def ask(self, texts: Sequence[str], endpoint: Endpoint) -> Reply:
        """Send one request. A blank text is sent as a full stop, because the API refuses empty input."""
        body = {
            "model": self.model,
            "input": [text if text.strip() else "." for text in texts],
            "encoding_format": "float",
            **self._parameters,
        }
        answer = post_json(endpoint, "/embeddings", body, max_reply_bytes(texts))
        try:
            rows = {int(entry["index"]): entry["embedding"] for entry in answer["data"]}
            count = len(answer["data"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise AnswerMalformed(f"{endpoint.base_url} returned no reply in OpenAI's format") from error
        if sorted(rows) != list(range(count)):
            raise AnswerMalformed(f"{endpoint.base_url} returned vectors without a unique index for each text")
        return Reply([rows[index] for index in range(count)], _tokens(answer))


def _tokens(answer: Mapping[str, Any]) -> int | None:
    usage = answer.get("usage")
    return token_count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
