"""Toolset **answers**: a chat model answers from what a search finds, with citations that were checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kiwi_rag.collection import SOURCES
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import ReportProgress
from kiwi_rag.mcp.toolsets import Schema, flag, number, text, tool
from kiwi_rag.render.agents import Answer, delimited
from kiwi_rag.usecases.ask import LIMIT, TOKENS, CitedAnswer, begin, marked_line, search_of

_ASK_INPUTS: dict[str, Schema] = {
    "question": text("In plain words.", minLength=1, maxLength=10_000),
    "source": text("Tiers; local: project and user.", enum=list(SOURCES)),
    "workspace": flag("Search this repository's documents, not items."),
    "library": text("Search the documentation of this library: its id.", default="", maxLength=200),
    "limit": number("integer", 1, 50, "", default=LIMIT),
    "max_tokens": number("integer", 100, 100_000, "Of the passages that the model reads.", default=TOKENS),
}


async def begin_answer(context: ServerContext, arguments: Mapping[str, Any]) -> CitedAnswer:
    """Return the answer to the arguments of `ask`, which the caller streams."""
    search = search_of(context.app, context.libraries, context.workspace, arguments)
    limits = {"limit": arguments["limit"], "tokens": arguments["max_tokens"]}
    return await begin(context.app, arguments["question"], [search], **limits)


_ANSWER = "question answer found sentences sources model cut tokens complete notices"


@tool("Answer with citations", _ASK_INPUTS, _ANSWER, "question")
async def ask(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Answer a question strictly from verified passages. Each sentence was checked: its source exists, and quoted words
    stand there; marked sentences are not supported. Without a chat model the passages are returned.
    """
    await context.wait_until_ready(report)
    answer = await (await begin_answer(context, arguments)).complete()
    lines = [*map(marked_line, answer.sentences), *answer.sources(), *answer.notices]
    head = "A model's answer from the sources below." if answer.reply.text else "Passages, as no model answered."
    head = head if answer.passages else "Nothing was found that is close to the question."
    return Answer(f"{head}\n{delimited(chr(10).join(lines))}", answer.as_dict())


TOOLSETS = {"answers": (ask,)}
