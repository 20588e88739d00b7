"""A model served by Ollama.

Format: ``POST {base}/api/embed``, https://github.com/ollama/ollama/blob/main/docs/api.md, "Generate Embeddings".
"""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_rag.embedding.endpoint import Endpoint, post_json
from kiwi_rag.embedding.remote import RemoteEmbeddingProvider, Reply, counted, room_for
from kiwi_rag.errors import AnswerMalformed, ModelUnavailable


class OllamaEmbeddingProvider(RemoteEmbeddingProvider):
    """Embeds through Ollama; parameters as in the base class.

    Long texts are cut by the server. Name a model with its tag and keep it: Ollama may serve other weights under the
    same name after a ``pull``, and nothing in its answer tells them apart.
    """

    provider = "ollama"
    default_model = "all-minilm"
    batch_size = 16

    def ask(self, texts: Sequence[str], endpoint: Endpoint) -> Reply:
        """Send one request. A blank text goes out as one full stop, as an empty one gets no vector."""
        inputs = [text if text.strip() else "." for text in texts]
        body = {"model": self.model, "input": inputs, "truncate": True}
        try:
            answer = post_json(endpoint, "/api/embed", body, room_for(texts))
        except ModelUnavailable as error:
            error.hint = f"ollama serve, and: ollama pull {self.model}"
            raise
        try:
            return Reply(list(answer["embeddings"]), counted(answer.get("prompt_eval_count")))
        except (KeyError, TypeError, AttributeError) as error:
            raise AnswerMalformed(f"{endpoint.base_url} did not answer in Ollama's format") from error
