"""Which names a passage defines, which a query holds, and how they match."""

from __future__ import annotations

import pytest

from kiwi_rag.lexical import SYMBOL, bm25_weights, terms
from kiwi_rag.model import CollectionStatistics, ItemRef, ItemType, Passage
from kiwi_rag.symbols import index_terms, match_names, passage_symbols, passage_terms, query_names, symbol_terms

STORE = """export class DocumentStore<T> extends Base {
  private readonly items = new Map();
  private count: number = 0;
  constructor(private database: Database, private close: () => void = () => {}) {
    super();
  }
  async applyMigrations(
    db: Database,
    run: (step: number) => void,
  ): Promise<void> {
    if (db.ready) {
      prepare(db);
      return finish(1);
    }
    describe('x', () => {
      setTimeout(function () { });
    });
  }
  get size(): number { return 1 }
  abstract flush(force?: boolean): void;
}
export const MAX_ITEMS = 4;
export default async function main() {}
type Handler = { name: string };
"""
PYTHON = "@cache\nasync def fuse(a, b):\n    x = fuse_all(a)\n\nclass Ranking(Base):\n    pass\n\nMAX_HITS: int = 3\n"
JAVA = """    public static <T> List<T> of(T... elements) { return null; }
    void open(int mode) throws IOException;
    public static final int MAX_SIZE = 3;
    private final Map<String, List<Lane>> lanes;
    @Override
    public Map<String, Lane> build() {
        return new Lane(1);
    }
"""
SQL = "create table if not exists public.users (id int);\nCREATE OR REPLACE FUNCTION kiwi.take(ids bigint[])"
GO = "type Server struct {\n}\n\nfunc (s *Server) Listen(port int) error {\n\treturn s.bind(port)\n}\n"
NESTED = (
    "class A:\n    def run(self):\n        def inner(): ...\n\n    SIZE = 3\n\n\nclass B:\n    def stop(self): ...\n"
)
OPENAPI = "/pets:\n  get:\n    operationId: listPets\n"


def passage(text: str, kind: str = "text", *heading: str, ordinal: int = 1) -> Passage:
    return Passage(ordinal, text, "", heading, 1, 1 + text.count("\n"), kind)


def named(path: str, found: Passage) -> list[str]:
    return [".".join(symbol.components) for symbol in passage_symbols(path, found)]


@pytest.mark.parametrize(
    ("path", "found", "names"),
    [
        (
            "src/store/DocumentStore.ts",
            passage(STORE),
            "DocumentStore DocumentStore.items DocumentStore.count "
            "DocumentStore.applyMigrations DocumentStore.size DocumentStore.flush "
            "DocumentStore.MAX_ITEMS DocumentStore.main DocumentStore.Handler",
        ),
        ("pkg/ranking.py", passage(PYTHON, "function", "fuse(a, b)"), "ranking.fuse ranking.Ranking ranking.MAX_HITS"),
        (
            "src/org/line/Lane.java",
            passage(JAVA, "class", "org.line.Lane"),
            "org.line.Lane org.line.Lane.of org.line.Lane.open org.line.Lane.MAX_SIZE "
            "org.line.Lane.lanes org.line.Lane.build",
        ),
        ("src/Lane.java", passage("Lane(int x) {}", "method", "org.Lane", "Lane(int x)"), "org.Lane"),
        ("src/Lane.java", passage("  void go(int x) {}", "method", "org.Lane", "void go(int x)"), "org.Lane.go"),
        ("sql/users.sql", passage(SQL), "sql.users.public.users sql.users.kiwi.take"),
        ("net/server.go", passage(GO), "server.Server server.Listen"),
        ("a.py", passage(NESTED, "module"), "a.A a.A.run a.A.run.inner a.B a.B.stop"),
        ("a.rb", passage("go\n  run", "method", "A", "go()"), "a.A.go"),
        (
            "doc/api.rst",
            passage("Engine.Pool(size)\n\nOf it.", "section", "Classes", "Engine.Pool(size)"),
            "Engine.Pool",
        ),
        ("a.js", passage("const char *x\nstatic int y\n#(x) {\n  case FOO:\n  f => 1\n  g: async (x) => {\n"), ""),
        ("a.ts", passage("import {\n  type Lane,\n  type Berth as Quay\n} from './b'\nexport {\n  type Ship }\n"), ""),
        ("doc/a.md", passage("# ...\n", "section", "..."), ""),
        ("doc/api.rst", passage("How", "section", "How to use walk (and run)"), ""),
        ("doc/a.md", passage("## `Store.open()`\n\nOpens it.", "section", "A guide", "`Store.open()`"), "a.Store.open"),
        ("doc/a.md", passage("The class Foo opens it.\nclass Foo", "section", "A guide"), ""),
        ("api.yaml", passage(OPENAPI, "endpoint", "GET /pets — List"), "api.listPets"),
        ("api.yaml", passage("Pet:\n  type: object", "schema", "schemas", "Pet"), "api.schemas.Pet"),
        ("conf/a.json", passage('{"name": 1, "main": 2}', "definition", "name, main"), "a.name a.main"),
        ("notes.txt", passage("type of ship\nclass action = 4"), ""),
        ("pkg/__init__.py", passage("def load():\n    pass", "function", "load()"), "pkg.load"),
    ],
)
def test_a_passage_defines_what_it_declares(path: str, found: Passage, names: str) -> None:
    assert set(names.split()) <= {name[-len(one) :] for name in named(path, found) for one in names.split()}
    calls = {"prepare", "finish", "setTimeout", "describe", "if", "fuse_all", "new", "bind", "return", "Lane.Lane", "x"}
    assert not calls.intersection(name.rpartition(".")[2] for name in named(path, found))
    if not names:
        assert named(path, found) == []


def test_a_files_first_passage_has_the_names_of_the_file() -> None:
    first = passage_terms(ItemRef(ItemType.DOCUMENT, "src/store/Document.store.ts"), passage("a", ordinal=0))[0]
    path = {"·document·store·ts", "·store·document·store·ts", "·document·store", "·store·document·store"}
    assert {*path, "·document", "·store·document", "·src·store·document"} <= first.keys()
    assert not {"·ts", "·store·ts", "·store"} & first.keys()
    assert symbol_terms("src/store/Document.store.ts") == ("·store·document·store·ts",)
    assert named("src/search/index.ts", passage("a", ordinal=0))[-1] == "src.search"


def test_symbols_count_neither_in_the_length_nor_among_the_words() -> None:
    found = passage(STORE)
    frequencies, length = passage_terms(ItemRef(ItemType.DOCUMENT, "src/DocumentStore.ts"), found)
    assert length == len(terms(STORE))
    assert {term for term in frequencies if not term.startswith(SYMBOL)} == set(terms(STORE))
    assert all(frequencies[term] == 1 for term in index_terms(passage_symbols("src/DocumentStore.ts", found)))
    items, length = passage_terms(ItemRef(ItemType.SCRIPT, "a"), found)
    assert (items.total(), set(items)) == (length, set(terms(STORE)))


def test_characters_that_a_tokenizer_would_split_at_are_replaced() -> None:
    (file,) = passage_symbols("src/[id]/my page-b.t", passage("x", ordinal=0))[:1]
    assert index_terms([file]) >= {"·my¬page¬b·t", "·¬id¬·my¬page¬b·t"}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("DocumentStore.ts", "DocumentStore.ts"),
        ("src/store/DocumentStore.ts", "src.store.DocumentStore.ts"),
        ("applyMigrations", "applyMigrations"),
        ("Store.applyMigrations()", "Store.applyMigrations"),
        ("std::vector::push_back", "std.vector.push_back"),
        ("`Store#open`?", "Store.open"),
        ("kiwi_rag.search.ranking", "kiwi_rag.search.ranking"),
        ("where is class PipelineManager defined", "PipelineManager"),
        ("Where is `configuration` declared?", "configuration"),
        ("where is the function merge implemented", "merge"),
        ("definition of merge", "merge"),
        ("class Observable", "Observable"),
        ("Observable class", "Observable"),
        ("configuration", "configuration"),
        ("svc-check-in", "svc-check-in"),
        ("how does loadAll() differ from load_one", "loadAll load_one"),
        ("who calls applyMigrations", "applyMigrations*"),
        ("callers of run", "run*"),
        ("where is Subject.next called", "Subject.next*"),
        ("find usages of Subject.next", "Subject.next*"),
        ("how does the configuration work", ""),
        ("which class of service applies", ""),
        ("what uses a map", ""),
        ("which function do we use to retry requests", ""),
        ("client/server architecture of the gateway", ""),
        ("raise it to v1.2.3, e.g. by hand, as https://example.org/a_b says", ""),
        ("where is the refund amount computed", ""),
        ("what is the type of a lane", ""),
        ("which file(s) and class(es) hold the setting(s)", ""),
    ],
)
def test_names_in_queries(query: str, names: str) -> None:
    found = [".".join(name.components) + "*" * name.called for name in query_names(query)]
    assert found == names.split()
    assert len(symbol_terms(query)) == sum("*" not in name for name in names.split())


@pytest.mark.parametrize(
    ("query", "share"),
    [
        ("applyMigrations", 1.0),
        ("applymigrations", 0.95),
        ("DocumentStore.applyMigrations", 1.0),
        ("store.DocumentStore.applyMigrations", 1.0),
        ("Other.applyMigrations", 0.0),
        ("how does applyMigrations end", 1.0),
        ("how does ApplyMigrations end", 0.0),  # within other words the case counts
        ("who calls prepare", 1.0),
        ("who calls applyMigrations", 0.0),
        ("Migrations", 0.0),
    ],
)
def test_how_well_a_passage_matches(query: str, share: float) -> None:
    found = match_names(query_names(query), "src/store/DocumentStore.ts", passage(STORE))
    assert found == pytest.approx(share)


def test_a_definition_that_calls_itself_comes_after_other_callers() -> None:
    text = "def walk(tree):\n    for one in tree:\n        walk(one)\n"
    names = query_names("who calls walk")
    assert match_names(names, "a.py", passage(text, "function", "walk(tree)")) == 0.5
    assert match_names(names, "b.py", passage("def main():\n    walk(1)\n", "function", "main()")) == 1.0


@pytest.mark.parametrize("mark", ["  * ", "/** ", "// ", "# ", "-- "])
def test_a_call_in_a_comment_comes_after_one_in_code(mark: str) -> None:
    names = query_names("who calls walk")
    assert match_names(names, "b.ts", passage(f"{mark}const end = walk(1)\nx()\n", "function", "main()")) == 0.75
    assert match_names(names, "b.ts", passage(f"{mark}walk(1)\nconst end = walk(2)\n", "function", "main()")) == 1.0


def test_a_symbol_weighs_more_than_all_words_together() -> None:
    statistics = CollectionStatistics(100, 5_000, {"store": 9, "document": 20, "·store": 50})
    weights = bm25_weights(statistics, ("store", "document", "·store", "·missing"))
    assert weights["·store"] > weights["store"] + weights["document"]
    assert "·missing" not in weights


@pytest.mark.parametrize(
    "text", ["(" * 5_000, "a(" * 3_000, "static " * 900, "f(\n" * 1_500, "a:b" * 1_500 + "(", "a<" * 2_000]
)
def test_hostile_text_ends(text: str) -> None:
    assert passage_symbols("a.ts", passage(text)) is not None
    assert len(query_names(text)) <= 16
