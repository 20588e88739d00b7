"""A model served by Ollama.

Format: ``POST {base}/api/embed``, https://github.com/ollama/ollama/blob/main/docs/api.md, "Generate Embeddings".
"""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_rag.embedding.endpoint import Endpoint, post_json
from kiwi_rag.embedding.remote import RemoteEmbeddingProvider, Reply, max_reply_bytes, token_count
from kiwi_rag.errors import AnswerMalformed, ModelUnavailable


class OllamaEmbeddingProvider(RemoteEmbeddingProvider):
    """Embeds through Ollama; parameters as in the base class.

    The server truncates long texts. Name a model with its tag and do not change it: after a ``pull``, Ollama may serve
    other weights under the same name, and its reply does not show that.
    """

    provider = "ollama"
    default_model = "all-minilm"
    batch_size = 16

    def ask(self, texts: Sequence[str], endpoint: Endpoint) -> Reply:
        """Send one request. A blank text is sent as a full stop, because an empty one gets no vector."""
        inputs = [text if text.strip() else "." for text in texts]
        body = {"model": self.model, "input": inputs, "truncate": True}
        try:
            answer = post_json(endpoint, "/api/embed", body, max_reply_bytes(texts))
        except ModelUnavailable as error:
            error.hint = f"start it with: ollama serve; get the model with: ollama pull {self.model}"
            raise
        try:
            return Reply(list(answer["embeddings"]), token_count(answer.get("prompt_eval_count")))
        except (KeyError, TypeError, AttributeError) as error:
            raise AnswerMalformed(f"{endpoint.base_url} returned no reply in Ollama's format") from error
