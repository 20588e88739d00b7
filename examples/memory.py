"""A conversation memory in a program: store exchanges, and get what fits into a prompt.

Run: ``python examples/memory.py``. The memory is in a folder that is deleted at the end.
"""

import asyncio
import tempfile
from datetime import UTC, datetime

from kiwi_rag.memory import ChromaVectorStore, ContextRetriever, Exchange, ExchangeStore, VectorStoreConfig

SAID = [
    ("monday", "Which port does the staging database use?", "Port 5433, behind the bastion."),
    ("monday", "And who may restart it?", "Only the on-call engineer: Ines this week."),
    ("tuesday", "Write a line about herons.", "Grey on the still pond, patient as a question mark."),
]


async def main() -> None:
    """Store what was said, and ask for it."""
    with tempfile.TemporaryDirectory() as folder:
        config = VectorStoreConfig(path=folder, search_context_window=1)
        async with ChromaVectorStore(config) as store:
            exchanges = ExchangeStore(store)
            for number, (session, question, answer) in enumerate(SAID):
                await exchanges.add_exchange(Exchange(f"e{number}", session, question, answer, datetime.now(UTC)))
            for found in await exchanges.search_exchanges("staging database", n_results=1):
                print(f"{found.score:.2f}  {found.document.content}")
            retriever = ContextRetriever(exchanges, config)
            for excerpt in await retriever.get_relevant_context("How do I reach the database?", 1, max_tokens=120):
                print(excerpt)


if __name__ == "__main__":
    asyncio.run(main())
