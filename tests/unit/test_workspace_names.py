"""A query that is or holds a name finds that file or definition first; other queries rank as they would without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiwi_rag.search.passages import SYMBOL_BONUS
from tests.workspaces import Yard

STORE = """import { Database } from './database';

/** Keeps documents. */
export class DocumentStore {
  constructor(private database: Database) {}

  async applyMigrations(target: number): Promise<void> {
    for (const step of this.database.steps(target)) {
      await step.run();
    }
  }
}
"""
SERVER = """import { DocumentStore } from './store/DocumentStore';

export async function startServer(store: DocumentStore): Promise<void> {
  // applyMigrations brings the schema to the newest version before the server listens.
  await store.applyMigrations(7);
}
"""
PIPELINES = '''"""The pipelines."""


class PipelineManager:
    """Runs pipelines one after the other."""

    def run_all(self):
        return [one.run() for one in self.pipelines]


def configuration(path):
    return PipelineManager(path)
'''
GUIDE = """# Guide

## Configuration

Every pipeline has a configuration: how the configuration of a pipeline is read, and what the configuration may hold.

## `DocumentStore.applyMigrations`

DocumentStore.ts applies the migrations: applyMigrations, applyMigrations and once more applyMigrations.

## Schema

The PipelineManager class is defined for pipelines; the class PipelineManager manages every pipeline of the manager.
"""
API = """openapi: 3.0.3
info: {title: Pipelines, version: '1'}
paths:
  /pipelines:
    get:
      operationId: listPipelines
      summary: All pipelines
components:
  schemas:
    PipelineState:
      type: string
      enum: [idle, running]
"""
SQL = "-- Who may run pipelines.\nCREATE TABLE pipeline_owners (\n    owner text PRIMARY KEY\n);\n"


@pytest.fixture
async def yard(tmp_path: Path) -> Yard:
    yard = Yard(tmp_path / "yard")
    yard.write("src/store/DocumentStore.ts", STORE)
    yard.write("src/server.ts", SERVER)
    yard.write("src/store/index.ts", "export * from './DocumentStore';\n")
    yard.write("lib/kiwi/pipelines.py", PIPELINES)
    yard.write("docs/guide.md", GUIDE)
    yard.write("api/openapi.yaml", API)
    yard.write("db/owners.sql", SQL)
    for number in range(6):
        yard.write(f"docs/note{number}.md", f"# Note {number}\n\nDocumentStore, PipelineManager and applyMigrations.\n")
    await yard.index()
    return yard


@pytest.mark.parametrize(
    ("query", "path", "holds"),
    [
        ("DocumentStore.ts", "src/store/DocumentStore.ts", "import"),
        ("src/store/DocumentStore.ts", "src/store/DocumentStore.ts", "import"),
        ("what does server.ts do", "src/server.ts", ""),
        ("store/index", "src/store/index.ts", ""),
        ("applyMigrations", "src/store/DocumentStore.ts", "async applyMigrations"),
        ("DocumentStore.applyMigrations", "src/store/DocumentStore.ts", "async applyMigrations"),
        ("DocumentStore", "src/store/DocumentStore.ts", "class DocumentStore"),
        ("PipelineManager", "lib/kiwi/pipelines.py", "class PipelineManager"),
        ("where is class PipelineManager defined", "lib/kiwi/pipelines.py", "class PipelineManager"),
        ("how does PipelineManager.run_all report errors", "lib/kiwi/pipelines.py", "def run_all"),
        ("kiwi.pipelines", "lib/kiwi/pipelines.py", ""),
        ("who calls applyMigrations", "src/server.ts", "applyMigrations(7)"),
        ("configuration", "lib/kiwi/pipelines.py", "def configuration"),
        ("where is the function configuration defined", "lib/kiwi/pipelines.py", "def configuration"),
        ("listPipelines", "api/openapi.yaml", "operationId"),
        ("PipelineState", "api/openapi.yaml", "enum"),
        ("pipeline_owners", "db/owners.sql", "CREATE TABLE"),
        ("the table pipeline_owners", "db/owners.sql", "CREATE TABLE"),
    ],
)
async def test_what_is_named_comes_first(yard: Yard, query: str, path: str, holds: str) -> None:
    first, *_ = (await yard.search(query)).hits
    assert (first.path, holds in first.passage.text) == (path, True)
    assert first.parts["symbol"] > 0


@pytest.mark.parametrize(
    "query",
    [
        "how is the configuration of a pipeline read",
        "which class of pipelines is idle",
        "what does the guide say of a note",
    ],
)
async def test_a_question_without_a_name_is_ranked_by_vectors_and_words(yard: Yard, query: str) -> None:
    reply = await yard.search(query)
    assert {hit.parts["symbol"] for hit in reply.hits} == {0.0}
    assert all(hit.score < SYMBOL_BONUS for hit in reply.hits)


async def test_a_name_that_nothing_defines_changes_nothing(yard: Yard) -> None:
    reply = await yard.search("PipelineManagerFactory")
    assert {hit.parts["symbol"] for hit in reply.hits} == {0.0}


async def test_names_survive_a_repair(yard: Yard) -> None:
    terms = ("·pipelinemanager", "·documentstore·ts", "·pipeline_owners")
    before = await yard.store.statistics(terms)
    assert await yard.store.check() == ()
    with yard.store._session.borrow("write") as connection:
        connection.execute("DELETE FROM postings")
    assert await yard.store.check() != ()
    await yard.store.repair()
    assert await yard.store.check() == ()
    assert await yard.store.statistics(terms) == before
