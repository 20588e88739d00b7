"""The sample items of examples/acme: well-formed, consistent with each other, and scripts that give right answers."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import semver
import skills_ref
import yaml

from kiwi_rag.formats import parse_item
from kiwi_rag.formats.source import ItemCandidate, SourceFile, read_item
from kiwi_rag.model.refs import ITEM_TYPES, ItemType, check_item_id, fold_item_id
from kiwi_rag.validation.manager import inspect_item

ACME = Path(__file__).parents[2] / "examples" / "acme"
ITEMS = ACME / ".ai"
FENCE = re.compile(r"^```xml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP_NAME = re.compile(r'<step name="([^"]+)">')
REFERENCE = re.compile(r"`(acme/[a-z0-9/_-]+)`")
NAMED_IN_XML = re.compile(r"<(?:tool|directive|knowledge|before|after)>(acme/[^<]+)</")
BARE_ID = re.compile(r"\bacme(?:/[a-z0-9][a-z0-9_-]*){2,}")
CAPABILITIES = {"subprocess", "network", "eval", "write", "env"}


def files(item_type: ItemType) -> list[Path]:
    """The main files of the items of a type."""
    return sorted((ITEMS / item_type.folder).rglob("SKILL.md" if item_type.is_folder else f"*{item_type.suffix}"))


def id_of(path: Path) -> str:
    """The id of the item of a main file; of another file of a skill, an id as a script would have there."""
    named = path.parent if path.name == "SKILL.md" else path.with_suffix("")
    return named.relative_to(ITEMS).as_posix().partition("/")[2]


def refs() -> set[str]:
    return {f"{t}:{id_of(p)}" for t in ITEM_TYPES for p in files(t)}


DIRECTIVES, SCRIPTS, KNOWLEDGE = (files(t) for t in (ItemType.DIRECTIVE, ItemType.SCRIPT, ItemType.KNOWLEDGE))
SKILLS = files(ItemType.SKILL)
OF_SKILLS = sorted(path for path in (ITEMS / "skills").rglob("*") if path.suffix in {".md", ".py"})
SKILL_SCRIPTS = [path for path in OF_SKILLS if path.suffix == ".py"]
EVERYTHING = [*DIRECTIVES, *SCRIPTS, *KNOWLEDGE, *OF_SKILLS]


def load(item_id: str, folder: str = "scripts") -> ModuleType:
    path = ITEMS / folder / f"{item_id}.py"
    spec = importlib.util.spec_from_file_location(f"acme_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode  # a skill with a __pycache__ is refused
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def directive_xml(path: Path) -> ElementTree.Element:
    blocks = FENCE.findall(path.read_text("utf-8"))
    assert len(blocks) == 1
    assert blocks[0].rstrip().endswith("</directive>")
    return ElementTree.fromstring(blocks[0])


def front_matter(path: Path) -> dict[str, object]:
    match = re.match(r"(?:---\n(.*?)^---|```yaml\n(.*?)^```)$", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert match
    return yaml.safe_load(match[1] or match[2])


def test_there_are_enough_of_each_type() -> None:
    assert len(DIRECTIVES) >= 12
    assert len(SCRIPTS) >= 6
    assert len(KNOWLEDGE) >= 12
    assert len(SKILLS) == 4


def test_readme_states_the_true_counts() -> None:
    text = " ".join((ACME / "README.md").read_text("utf-8").split())
    assert f"{len(DIRECTIVES)} directives" in text
    assert f"{len(SCRIPTS)} scripts, {len(KNOWLEDGE)} knowledge entries and {len(SKILLS)} skills" in text


def test_ids_are_legal_and_distinct_after_folding() -> None:
    folded = Counter((t, fold_item_id(check_item_id(id_of(p)))) for t in ITEM_TYPES for p in files(t))
    assert max(folded.values()) == 1


@pytest.mark.parametrize("path", EVERYTHING, ids=id_of)
def test_bytes_are_plain_text_of_modest_size(path: Path) -> None:
    data = path.read_bytes()
    assert len(data) < 32_768
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]", data.decode())
    assert b"<!--" not in data


@pytest.mark.parametrize("path", DIRECTIVES, ids=id_of)
def test_directive_metadata(path: Path) -> None:
    root = directive_xml(path)
    metadata = root.find("metadata")
    assert root.tag == "directive"
    assert root.get("name") == path.stem
    assert semver.Version.is_valid(root.get("version") or "")
    assert metadata is not None
    assert metadata.findtext("category") == id_of(path).rpartition("/")[0]
    assert metadata.findtext("description")
    assert metadata.findtext("author")
    assert metadata.find("model").get("tier") in {"fast", "general", "reasoning"}
    assert int(metadata.find("limits").get("turns")) > 0
    assert {verb.tag for verb in metadata.find("permissions")} <= {"execute", "read", "write", "fetch", "search"}


@pytest.mark.parametrize("path", DIRECTIVES, ids=id_of)
def test_directive_steps_are_named_once(path: Path) -> None:
    root = directive_xml(path)
    names = [step.get("name") for step in root.iter("step")] or STEP_NAME.findall(path.read_text("utf-8"))
    assert len(names) >= 4
    assert len(set(names)) == len(names)
    assert all(step.findtext("description") and step.findtext("action") for step in root.iter("step"))


def test_steps_stand_inside_the_block_in_most_and_after_it_in_some() -> None:
    inside = [p for p in DIRECTIVES if directive_xml(p).find("process") is not None]
    assert 0 < len(DIRECTIVES) - len(inside) < len(inside)


@pytest.mark.parametrize("path", DIRECTIVES, ids=id_of)
def test_inputs_used_in_steps_are_declared(path: Path) -> None:
    root = directive_xml(path)
    declared = {i.get("name") for i in root.iter("input")}
    used = re.findall(r"\{([a-z_]+)\}", path.read_text("utf-8"))
    assert set(used) <= declared


@pytest.mark.parametrize("path", KNOWLEDGE, ids=id_of)
def test_knowledge_metadata(path: Path) -> None:
    metadata = front_matter(path)
    assert semver.Version.is_valid(str(metadata["version"]))
    assert metadata["category"] == id_of(path).rpartition("/")[0]
    assert all(metadata[key] for key in ("title", "description", "author"))
    assert isinstance(metadata["tags"], list) and len(metadata["tags"]) >= 3


@pytest.mark.parametrize("path", SCRIPTS, ids=id_of)
def test_script_metadata_and_declared_capabilities(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assigned = {
        n.targets[0].id: ast.literal_eval(n.value)
        for n in tree.body
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name) and n.targets[0].id.startswith("__")
    }
    imports = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    declared = set(assigned.get("__permissions__", []))
    assert (ast.get_docstring(tree) or "").splitlines()[0].endswith(".")
    assert semver.Version.is_valid(assigned["__version__"])
    assert assigned["__category__"] == id_of(path).rpartition("/")[0]
    assert assigned["__author__"] and len(assigned["__tags__"]) >= 3
    assert declared <= CAPABILITIES
    assert ("subprocess" in imports) == ("subprocess" in declared)
    assert ("socket" in imports) == ("network" in declared)
    assert (".write_text(" in path.read_text("utf-8")) == ("write" in declared)


@pytest.mark.parametrize("path", [*SCRIPTS, *SKILL_SCRIPTS], ids=id_of)
def test_scripts_use_the_standard_library_alone_and_import_silently(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert {n.partition(".")[0] for n in names} <= sys.stdlib_module_names
    load(id_of(path), path.relative_to(ITEMS).parts[0])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("path", [*EVERYTHING, ACME / "README.md"], ids=lambda p: p.stem)
def test_every_item_that_is_referred_to_exists(path: Path) -> None:
    text = path.read_text("utf-8")
    known = {ref.partition(":")[2] for ref in refs()}
    folders = {i.rpartition("/")[0] for i in known}
    named = {*REFERENCE.findall(text), *(i for i in NAMED_IN_XML.findall(text) if "*" not in i)}
    if path.name != "README.md" and path.suffix == ".md":
        # A path such as .ai/knowledge/acme/platform/service-catalogue.md and a wildcard's folder are no reference.
        named |= {i for i in BARE_ID.findall(text) if i not in folders}
    assert named <= known


def test_knowledge_that_asks_for_a_companion_is_reachable() -> None:
    text = "\n".join(p.read_text("utf-8") for p in [*DIRECTIVES, *KNOWLEDGE])
    lonely = {id_of(p) for p in [*SCRIPTS, *KNOWLEDGE] if not re.search(rf"{id_of(p)}\b", text)}
    assert lonely <= {"acme/platform/glossary", "acme/runbooks/checkout-latency"}


def test_queries_are_of_five_kinds_and_name_existing_items() -> None:
    queries = [json.loads(line) for line in (ACME / "queries.jsonl").read_text("utf-8").splitlines()]
    kinds = Counter(q["kind"] for q in queries)
    assert kinds == dict.fromkeys(("paraphrase", "keyword", "question", "task", "broad"), 7)
    assert len({q["query"] for q in queries}) == 35
    assert {ref for q in queries for ref in q["relevant"]} <= refs()
    assert all(set(q["relevant"].values()) <= {1, 2} and 2 in q["relevant"].values() for q in queries)


@pytest.mark.parametrize("item_type", ITEM_TYPES)
def test_the_gate_has_no_objection_to_any_item(item_type: ItemType) -> None:
    objections = {}
    for path in files(item_type):
        candidate = read_item(SourceFile(path, item_type, id_of(path)), ITEMS)
        assert isinstance(candidate, ItemCandidate)
        item, findings = inspect_item(candidate)
        assert item is not None, findings
        is_told = item_type is ItemType.SKILL  # of a skill, warnings too
        objections[id_of(path)] = [f"{f.code}:{f.line} {f.message}" for f in findings if is_told or f.is_error]
    assert not {item_id: found for item_id, found in objections.items() if found}


@pytest.mark.parametrize("item_type", ITEM_TYPES)
def test_every_item_parses_without_a_finding(item_type: ItemType) -> None:
    outcomes = {id_of(p): parse_item(item_type, id_of(p), p.read_text("utf-8"), str(p)) for p in files(item_type)}
    assert {i: o.findings for i, o in outcomes.items() if o.item is None or o.findings} == {}


@pytest.mark.parametrize("path", SKILLS, ids=id_of)
def test_a_skill_has_a_script_that_declares_and_a_reference_that_is_named(path: Path) -> None:
    text = path.read_text("utf-8")
    beside = [file for file in OF_SKILLS if path.parent in file.parents and file != path]
    assert {file.parent.name for file in beside} == {"scripts", "references"}
    assert all(f"{file.parent.name}/{file.name}" in text for file in beside)
    assert not skills_ref.validate(path.parent)
    metadata = yaml.safe_load(text.split("---")[1])
    assert metadata["license"] == "Apache-2.0" and "Use it" in metadata["description"]
    for script in (file for file in beside if file.suffix == ".py"):
        declared = re.search(r"^__permissions__ = (\[.*\])$", script.read_text("utf-8"), re.MULTILINE)
        assert declared
        told = set(metadata["metadata"].get("permissions", "read").split(", "))
        assert set(ast.literal_eval(declared[1])) == told


def test_percentiles_says_whether_a_load_test_held() -> None:
    script = load("acme/load-test/scripts/percentiles", "skills")
    rows = [
        {"metric_name": "http_req_duration", "timestamp": str(n // 10), "metric_value": str(n), "status": "200"}
        for n in range(1, 101)
    ]
    requests = script.read([*rows, {"metric_name": "vus", "timestamp": "0", "metric_value": "9", "status": ""}])
    result = script.summarise(requests)
    assert (result.p50, result.p95, result.p99, result.error_ratio) == (50, 95, 99, 0)
    assert result.rate == pytest.approx(100 / 11)
    assert script.holds(result, 99, 9)
    assert not script.holds(result, 98, 9) and not script.holds(result, 99, 10)
    assert not script.holds(script.summarise(script.read([*rows, {**rows[0], "status": "503"}])), 99, 9)
    with pytest.raises(ValueError, match="http_req_duration"):
        script.summarise([])


def test_stale_access_gives_the_most_urgent_reason_first() -> None:
    script = load("acme/access-review/scripts/stale_access", "skills")
    people = [
        {"person": "ada", "team": "orders", "left_on": ""},
        {"person": "bob", "team": "orders", "left_on": "2026-10-31"},
    ]
    accounts = [
        {"account": account, "person": person, "role": role, "last_login": last}
        for account, person, role, last in [
            ("reader", "ada", "read", "2026-11-01"),
            ("old", "ada", "read", "2026-08-01"),
            ("new", "ada", "read", ""),
            ("root", "ada", "db-owner", "2026-11-22"),
            ("dusty", "ada", "Admin", "2026-10-01"),
            ("bob", "bob", "read", "2026-11-01"),
            ("bot", "nobody", "read", "2026-11-22"),
        ]
    ]
    found = [(row[0], row[2]) for row in script.review(accounts, people, date(2026, 11, 23))]
    assert found == [
        ("left", "bob"), ("unknown", "bot"), ("admin", "root"), ("unused", "dusty"), ("unused", "old"), ("never", "new")
    ]  # fmt: skip


def test_collect_reads_the_tables_of_its_reference_and_takes_the_id_of_a_person_alone() -> None:
    script = load("acme/personal-data-request/scripts/collect", "skills")
    tables = list(script.tables(script.TABLES.read_text("utf-8")))
    assert ("pg-ledger", "invoices", "contact_person_id") in tables and len(tables) == 6
    assert "FROM invoices WHERE contact_person_id = :'person'" in script.statements(tables[3])
    with pytest.raises(ValueError, match="per_8F2K"):
        script.read(tables[0], "per_8F2K' OR true --")


def test_days_until_full_follows_the_line_and_tells_how_well_it_fits() -> None:
    script = load("acme/volume-forecast/scripts/days_until_full", "skills")
    day = script.DAY
    falling = script.forecast([(n * day, 100 - 10 * n) for n in range(5)])
    assert falling.days == pytest.approx(6) and falling.fit == pytest.approx(1)
    assert script.forecast([(n * day, 100 + n) for n in range(5)]).days is None
    assert script.forecast([(0, 10), (day, 90), (2 * day, 20), (3 * day, 80)]).fit < 0.8
    with pytest.raises(ValueError, match="three points"):
        script.forecast([(0, 1)])
    assert "query_range?query=node_filesystem_avail_bytes" in script.query_url("http://m:9090/", "a-b", 28, 1e9)
    for server, volume in (("file:///etc", "a"), ("http://m", 'a"} or vector(1)')):
        with pytest.raises(ValueError, match="is not the"):
            script.query_url(server, volume, 28, 1e9)


def test_env_diff_names_keys_and_never_values() -> None:
    script = load("acme/deploy/env_diff")
    wanted = "# needed\nexport DB_HOST=\nPORT=80\nTRACE= # optional\nMODE='x'\n"
    found = script.compare(wanted, 'DB_HOST=db.internal\nMODE=""\nOLD=hidden-value\n')
    assert (found.missing, found.empty, found.extra) == (("PORT",), ("MODE",), ("OLD",))
    assert found.blocks_deploy
    assert "hidden-value" not in script.render(found)
    assert not script.compare("A=1\n", "A=2\nB=3\n").blocks_deploy


@pytest.mark.parametrize(
    ("sql", "codes"),
    [
        ("CREATE INDEX ix ON t (a);", ["index-blocks-writes"]),
        ("CREATE INDEX  CONCURRENTLY ix ON t (a);", []),
        ("CREATE UNIQUE INDEX\nCONCURRENTLY ix ON t (a); SELECT 1;", ["concurrently-not-alone"]),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0);", ["constraint-scans-table"]),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0) NOT VALID;", []),
        ("ALTER TABLE t ALTER COLUMN a TYPE bigint;", ["type-change-rewrites"]),
        ("ALTER TABLE t ADD COLUMN id2 uuid DEFAULT gen_random_uuid();", ["volatile-default-rewrites"]),
        ("ALTER TABLE t ADD COLUMN n int DEFAULT 0;", []),
        ("UPDATE t SET a = 1;", ["unbatched-update"]),
        ("UPDATE t SET a = 1 WHERE id < 5000;", []),
        ("ALTER TABLE t ADD COLUMN b int; ALTER TABLE t DROP COLUMN a;", ["mixes-expand-and-contract"]),
        ("-- CREATE INDEX ix ON t (a);\nSELECT 'DROP INDEX x; ok';", []),
        ("CREATE FUNCTION f() RETURNS void AS $x$ BEGIN UPDATE t SET a = 1; END $x$ LANGUAGE plpgsql;", []),
    ],
)
def test_migration_lint_finds_what_blocks_and_nothing_else(sql: str, codes: list[str]) -> None:
    assert [remark.code for remark in load("acme/database/migration_lint").lint(sql)] == codes


def test_migration_lint_counts_lines_and_weighs_severity() -> None:
    script = load("acme/database/migration_lint")
    remarks = script.lint("-- one\n/* two\nthree */\nSELECT 'a\nb';\n\nVACUUM FULL t;\n")
    assert [(r.line, r.code) for r in remarks] == [(7, "vacuum-full")]
    assert script.has_errors(remarks)
    assert not script.has_errors(script.lint("DELETE FROM t;"))


def test_tls_expiry_grades_by_days() -> None:
    script = load("acme/security/tls_expiry")
    now = datetime(2026, 6, 1, 12, tzinfo=UTC)
    assert script.days_left("Jul  1 11:00:00 2026 GMT", now) == 29
    assert script.days_left("May 31 12:00:00 2026 GMT", now) == -1
    assert [script.grade(d) for d in (-1, 7, 8, 14, 15, 30, 31)] == [
        "critical",
        "critical",
        "warning",
        "warning",
        "notice",
        "notice",
        "ok",
    ]


def test_tls_expiry_reads_endpoints() -> None:
    parse_item = load("acme/security/tls_expiry").parse_endpoint
    assert parse_item("a.example") == ("a.example", 443)
    assert parse_item("a.example:8443") == ("a.example", 8443)
    assert parse_item("[::1]:99") == ("::1", 99)
    assert parse_item("2001:db8::1") == ("2001:db8::1", 443)
    with pytest.raises(ValueError, match="65535"):
        parse_item("a.example:70000")


LAG = """
GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
orders-worker.fulfilment orders.placed.v1 0 100 110 10 c-1 /10.0.0.1 c
orders-worker.fulfilment orders.placed.v1 1 100 1090 990 c-2 /10.0.0.2 c
orders-worker.fulfilment orders.placed.v1 2 - 50 - - - -
"""


def test_lag_report_tells_a_stuck_partition_from_slowness() -> None:
    script = load("acme/streaming/lag_report")
    summary = script.summarise(script.parse(LAG))
    assert (summary.total, summary.partitions, summary.unassigned) == (1000, 3, 1)
    assert (summary.worst, summary.skew, summary.looks_stuck) == ("orders.placed.v1[1]", 0.99, True)
    with pytest.raises(ValueError, match="header"):
        script.parse("Error: group does not exist")


def test_lag_report_estimates_when_the_backlog_is_gone() -> None:
    trend = load("acme/streaming/lag_report").trend
    assert trend(9000, 6000, 300).drain_seconds == pytest.approx(600)
    assert trend(10, 40, 30).per_second == pytest.approx(1)
    assert trend(10, 40, 30).drain_seconds is None
    with pytest.raises(ValueError, match="later"):
        trend(1, 1, 0)


def test_changelog_groups_and_puts_breaking_changes_first() -> None:
    text = load("acme/release/changelog").build(
        [
            "feat(orders): split an order",
            "fix: round cents",
            "chore: tidy",
            "Merge by hand",
            "refactor(api)!: drop v1",
            "fix: keys\n\nbody\n\nBREAKING CHANGE: new keys",
            "fix: round cents",
        ],
        "2026.23",
    )
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == ["# 2026.23", "## Breaking changes", "## Features", "## Fixes", "## Other"]
    assert "- **orders**: split an order" in text
    assert "tidy" not in text
    assert text.count("round cents") == 1
    assert text.index("drop v1") < text.index("keys") < text.index("split an order")


def test_flag_age_counts_days_by_kind() -> None:
    script = load("acme/release/flag_age")
    today = date(2026, 11, 21)

    def flag(name: str, kind: str, age: int, tried: int | None = None) -> dict[str, str]:
        last = (today - timedelta(days=tried)).isoformat() if tried is not None else ""
        created = (today - timedelta(days=age)).isoformat()
        return {"name": name, "kind": kind, "team": "orders", "created": created, "last_tried": last}

    flags = [
        flag("young", "release", 60),
        flag("old", "experiment", 70),
        flag("tried", "ops", 900, 100),
        flag("untried", "ops", 200),
    ]
    late = script.overdue(flags, today)
    assert [(o.name, o.days) for o in late] == [("untried", 17), ("old", 10)]
    assert script.teams_over_limit(late, limit=1) == ["orders"]
    assert script.teams_over_limit(late) == []


def test_burn_rate_pages_only_when_both_windows_burn() -> None:
    script = load("acme/slo/burn_rate")
    good, bad = script.Minute(1000, 0), script.Minute(1000, 100)
    assert script.burn_rate([script.Minute(1000, 1)], 0.999) == pytest.approx(1)
    assert script.decide([good] * 60 + [bad] * 60, 0.999) == "page"
    assert script.decide([bad] * 60 + [good] * 60, 0.999) != "page"
    assert script.decide([good] * 4320, 0.999) == "none"
    assert script.decide([script.Minute(1000, 2)] * 4320, 0.999) == "ticket"


def test_burn_rate_budgets() -> None:
    script = load("acme/slo/burn_rate")
    assert script.budget_minutes(0.999) == pytest.approx(43.2)
    assert script.budget_left([script.Minute(2000, 1)] * 10, 0.999) == pytest.approx(0.5)
    assert script.error_ratio([]) == 0
    with pytest.raises(ValueError, match=r"0\.999"):
        script.error_budget(99.9)


def test_objectives_in_the_knowledge_agree_with_the_arithmetic() -> None:
    script = load("acme/slo/burn_rate")
    text = (ITEMS / "knowledge/acme/reliability/slos.md").read_text("utf-8")
    rows = re.findall(r"\| (99\.\d+)% \| \d+ ms[^|]*\| ([\d.]+) min \|", text)
    assert len(rows) == 6
    for percent, minutes in rows:
        assert script.budget_minutes(float(percent) / 100) == pytest.approx(float(minutes), abs=0.05)


def test_flaky_report_wants_both_outcomes_on_three_commits() -> None:
    script = load("acme/code/flaky_report")
    lines = [
        json.dumps({"test": t, "commit": c, "outcome": o, "at": "2026-11-20T10:00:00Z"})
        for t, c, o in [
            *[("flaky", c, o) for c in "abc" for o in ("passed", "failed")],
            *[("broken", c, "failed") for c in "abcd"],
            *[("twice", c, o) for c in "ab" for o in ("passed", "failed")],
            ("flaky", "d", "skipped"),
        ]
    ]
    flakes = script.find_flakes(script.read_results([*lines, ""]))
    assert [(f.test, f.mixed_commits, f.failures, f.runs) for f in flakes] == [("flaky", 3, 3, 6)]
    assert "| flaky | 3 | 3/6 | 50.0% |" in script.render(flakes)
