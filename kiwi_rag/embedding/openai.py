"""Any server that speaks OpenAI's embeddings API: OpenAI, Kong, LiteLLM, vLLM and others.

Format: ``POST {base}/embeddings``, https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_rag.embedding.remote import Endpoint, RemoteEmbeddingProvider, Reply, post_json
from kiwi_rag.embedding.usage import UsageLog
from kiwi_rag.errors import EmbeddingError

_NATIVE_DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}


class OpenAIEmbeddingProvider(RemoteEmbeddingProvider):
    """Embeds through an OpenAI-compatible server; parameters as in the base class.

    Models named ``text-embedding-3-*`` can shorten their vectors: they are asked for `dimension` where it is not
    their own. Other models are expected to answer in `dimension` as it is.
    """

    provider = "openai"
    default_model = "text-embedding-3-small"
    max_tokens = 8191

    def __init__(self, endpoint: Endpoint, model: str, dimension: int = 0, usage: UsageLog | None = None) -> None:
        native = _NATIVE_DIMENSIONS.get(model, 0)
        super().__init__(endpoint, model, dimension or native, usage)
        shortened = model.startswith("text-embedding-3-") and dimension not in {0, native}
        self._parameters = {"dimensions": dimension} if shortened else {}

    def ask(self, texts: Sequence[str]) -> Reply:
        """Send one batch. A blank text goes out as one full stop, as the API refuses empty input."""
        body = {
            "model": self.model,
            "input": [text if text.strip() else "." for text in texts],
            "encoding_format": "float",
            **self._parameters,
        }
        answer = post_json(self.endpoint, "/embeddings", body)
        try:
            data = sorted(answer["data"], key=lambda entry: int(entry["index"]))
            return Reply([entry["embedding"] for entry in data], answer.get("usage", {}).get("prompt_tokens"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EmbeddingError(f"{self.endpoint.base_url} did not answer in OpenAI's format") from error
