"""What every door shows: nothing that a terminal would obey, and everything a person must be told."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kiwi_rag import render
from kiwi_rag.errors import RegistryUnreachable, Rejected
from kiwi_rag.model import (
    CollectionStatistics,
    Filters,
    Finding,
    FusionWeights,
    ItemState,
    Passage,
    RefusedHit,
    SearchExplanation,
    SearchQuery,
    SearchReply,
    SearchResult,
    TierOutcome,
)
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.render import agents, hits

REF = ItemRef(ItemType.DIRECTIVE, "acme/deploy", "1.2.0")
HIT = SearchResult(
    ref=REF,
    tier="project",
    tiers=("project", "user"),
    shadows=("registry!eve",),
    passage=Passage(2, "Build it.\n\n> Then push it.", "", ("Deploy",), 12, 14),
    metadata={"title": "Deploy"},
    score=0.87654321,
    parts={
        "cosine": 0.123456789, "bm25": 3.5, "best_cosine": 0.25, "first_cosine": 0.125, "centroid_cosine": 0.0625,
        "best_bm25": 3.5, "item_bm25": 4.25, "vectors": 0.75, "words": 0.5, "vector_rank": 1, "lexical_rank": None,
        "alpha": 0.84, "fusion": "convex", "prior": 1.0, "plan": "exact",
    },
    digest="ab" * 32,
    key_id="cd" * 32,
    principal="ada@acme",
    signed_at=datetime(2026, 3, 1, tzinfo=UTC),
    path=".ai/directives/acme/deploy.md",
)  # fmt: skip
OK = TierOutcome("project", "ok", 0.01, 3, "exact")
CHANGED, YANKED = ItemState(changed="x.md was edited since"), ItemState(yanked=True)
DEAD = TierOutcome("registry", "error", 1.25, 0, "", RegistryUnreachable("no route", hint="start it").as_dict())
HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\u202c\x9b31m\rgone\x00"


def reply(
    *found: SearchResult, tiers: tuple[TierOutcome, ...] = (OK,), refused: tuple[RefusedHit, ...] = ()
) -> SearchReply:
    return SearchReply(SearchQuery("deploy"), found, tiers, refused)


def obeyed(text: str) -> bool:
    return any(c in text for c in "\x1b\x07\x9b\r\x00\u202e\u202c")


def test_safe_keeps_text_and_takes_commands_out() -> None:
    assert render.safe("tab\tline\nümlaut 日本 🥝") == "tab\tline\nümlaut 日本 🥝"
    assert not obeyed(render.safe(HOSTILE))
    assert "owned" in render.safe(HOSTILE)


def test_no_door_passes_a_command_on() -> None:
    hostile = replace(
        HIT, principal=HOSTILE, path=HOSTILE, shadows=(f"registry!{HOSTILE}",),
        passage=replace(HIT.passage, text=HOSTILE),
    )  # fmt: skip
    refused = RefusedHit(REF, "project", "changed", HOSTILE)
    dead = replace(DEAD, error={"message": HOSTILE, "hint": HOSTILE})
    answer = reply(hostile, tiers=(OK, dead), refused=(refused,))
    assert not obeyed(hits.hits_text(answer, explain=True))
    assert not obeyed(hits.explanation_text(replace(answer, explanation=replace(TOLD, terms=(HOSTILE,)))))
    assert not obeyed(hits.hits_markdown(answer))
    assert not obeyed(hits.hits_paths(answer))
    assert not any(obeyed(line) for line in hits.notices(answer))
    line = render.json_text(hits.reply_json(answer), indent=None)
    assert not obeyed(line)
    assert json.loads(line)["hits"][0]["text"] == HOSTILE  # escaped, not lost
    finding = Finding("a.b", HOSTILE, 3, HOSTILE, HOSTILE)
    assert not obeyed(render.rejection_text(Rejected(HOSTILE, [finding])))


def test_text_says_rank_id_tier_signer_score_title_snippet_and_place() -> None:
    first, title, shadows, snippet, place = hits.hits_text(reply(HIT)).splitlines()
    assert first == " 1. acme/deploy@1.2.0  directive  project+user  ✓ ada@acme  0.877"
    assert title == "    Deploy"
    assert shadows == "    shadows registry!eve"
    assert snippet == "    Build it. > Then push it."
    assert place == "    .ai/directives/acme/deploy.md:12"


@pytest.mark.parametrize(
    ("metadata", "title"),
    [
        ({"title": "Deploy it", "name": "x"}, "Deploy it"),
        ({"name": "x\ny"}, "x y"),
        ({}, "deploy"),
        ({"title": ""}, "deploy"),
    ],
)
def test_every_hit_has_a_title(metadata: dict[str, str], title: str) -> None:
    shown = reply(replace(HIT, metadata=metadata, passage=replace(HIT.passage, heading=("Above", title))))
    assert hits.reply_json(shown)["hits"][0]["title"] == title
    assert hits.hits_text(shown).splitlines()[1] == f"    {title} > Above"
    assert f"> **{title}**" in hits.hits_markdown(shown)


DOCUMENT = replace(
    HIT, ref=ItemRef(ItemType.DOCUMENT, "docs/pilot.md"), path="docs/pilot.md", shadows=(), tier="workspace",
    metadata={"file_type": "markdown", "title": "Pilotage"}, state=ItemState(), passages=7,
    passage=Passage(2, "Ships over 80 m\ntakes a pilot, deployed at the buoy.", "", ("Ships",), 12, 14, "section"),
    parts={"cosine": 0.5, "plan": "exact"}, duplicates=("a.md:1-2", "b.md:1-2", "c.md:1-2", "d.md:1-2"),
    more_duplicates=2,
)  # fmt: skip


def test_a_document_says_place_title_type_score_snippet_and_copies() -> None:
    first, snippet, copies, parts = hits.hits_text(reply(DOCUMENT), explain=True).splitlines()
    assert first == " 1. docs/pilot.md:12-14  Pilotage > Ships  markdown/section  0.877"
    assert snippet == "    takes a pilot, deployed at the buoy."
    assert copies == "    also in a.md:1-2, b.md:1-2, c.md:1-2 and 3 more"
    assert parts == "    cosine 0.5, plan exact"


def test_a_document_without_a_vector_yet_has_no_cosine() -> None:
    words_only = replace(DOCUMENT, parts={"cosine": None, "bm25": 1.25})
    assert hits.hits_text(reply(words_only), explain=True).splitlines()[-1] == "    cosine none, bm25 1.25"


def test_a_hit_says_which_of_how_many_passages_it_is_and_lists_its_copies() -> None:
    row = hits.documents_json(reply(DOCUMENT))["hits"][0]
    assert (row["chunk_index"], row["total_chunks"], row["title"]) == (2, 7, "Pilotage")
    assert (row["duplicates"], row["more_duplicates"]) == (list(DOCUMENT.duplicates), 2)
    assert hits.reply_json(reply(HIT))["hits"][0]["total_chunks"] is None  # a store that does not say


def test_the_words_of_the_query_are_marked_with_their_corrections() -> None:
    def style(text: str, role: str) -> str:
        return f"[{text}]" if role == "match" else text

    assert "takes a pilot, [deployed] at the buoy." in hits.hits_text(reply(DOCUMENT), style)
    corrected = replace(explained(DOCUMENT), explanation=replace(TOLD, terms=("pilot",), statistics=COUNTED))
    assert "takes a [pilot], deployed at the buoy." in hits.hits_text(corrected, style)


COUNTED = CollectionStatistics(200, 24_000, {"pilot": 12}, 20)
STATISTICS = CollectionStatistics(200, 24_000, {"deploy": 12}, 20)
TOLD = SearchExplanation(
    terms=("deploy", "deplyo"),
    statistics=STATISTICS,
    fusion="convex",
    weights=FusionWeights(0.86, 0.2, 0.3, 0.5),
    seconds={"embedding": 0.0125, "fusion": 0.001, "whole": 0.06},
    rounds=2,
    depth=500,
    signers=3,
    cap=5,
    suppressed=1,
)
TIMINGS = {"statistics": 0.002, "candidates": 0.005, "verification": 0.003}


def explained(*found: SearchResult) -> SearchReply:
    tier = TierOutcome("project", "ok", 0.01, 3, "exact", None, TIMINGS, STATISTICS)
    return replace(reply(*found, tiers=(tier, DEAD)), explanation=TOLD)


def columns(text: str, heading: str) -> list[list[str]]:
    """The cells of the table whose heading starts so."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(heading))
    return [line.split() for line in lines[start : lines.index("", start)]]


def test_an_explanation_shows_every_hits_digest_and_key() -> None:
    text = hits.hits_text(explained(HIT), explain=True)
    assert f"    digest {HIT.digest}" in text.splitlines()
    assert f"    key    {HIT.key_id}" in text.splitlines()


def test_an_explanation_shows_legs_tiers_terms_and_settings() -> None:
    text = hits.explanation_text(explained(HIT))
    heading, row, *_ = columns(text, "#")
    assert heading == ["#", "item", "score", "|", "vectors", "best", "first", "mean", "|", "words", "best", "item"]
    assert row[:6] == ["1", "acme/deploy@1.2.0", "0.877", "|", "0.750", "#1"]
    assert row[6:] == ["0.250", "0.125", "0.062", "|", "0.500", "-", "3.50", "4.25"]
    _, project, registry = columns(text, "tier")
    assert project == ["project", "ok", "exact", "20", "200", "3", "2.0", "5.0", "3.0", "10.0"]
    assert registry[:3] == ["registry", "error", "-"]
    _, deploy, typo, *_ = columns(text, "term")
    assert deploy == ["deploy", "12", "2.778"]
    assert typo == ["deplyo", "0", "0.000"]
    for told in (
        "200 passages of 20 items, 120.0 terms each on average",
        "convex: alpha 0.86, first 0.2, centroid 0.3, whole 0.5",
        "3 among what was found, up to 5 hits each, 1 suppressed",
        "rounds   2, the last with 500 passages a leg",
        "embedding 12.5, fusion 1.0, whole 60.0",
    ):
        assert told in text


def test_an_explanation_fits_a_hundred_columns_and_its_columns_stand_below_each_other() -> None:
    long = replace(HIT, ref=ItemRef(ItemType.DIRECTIVE, "acme/" + "very-long-name/" * 8 + "x", "10.20.30"))
    aged = replace(
        HIT, parts={**HIT.parts, "prior": 0.25, "lexical_rank": 812, "vector_rank": 1045, "item_bm25": 123.4}
    )
    answer = explained(*[HIT] * 9, long, aged)
    lines = hits.explanation_text(answer).splitlines()
    assert max(map(len, lines)) <= 100
    assert "prior" in lines[0]
    assert len({line.rindex("|") for line in lines[:12]}) == 1


def test_the_json_of_a_reply_carries_the_explanation_where_it_is_wanted() -> None:
    assert "explain" not in hits.reply_json(explained(HIT))
    document = json.loads(render.json_text(hits.reply_json(explained(HIT), explain=True)))
    told = document["explain"]
    assert told["weights"] == {"alpha": 0.86, "first": 0.2, "centroid": 0.3, "whole": 0.5}
    assert told["terms"][0] == {"term": "deploy", "df": 12, "idf": pytest.approx(2.7776, abs=1e-4)}
    assert told["statistics"]["passages"] == 200
    assert told["seconds"]["embedding"] == 0.0125
    assert told["per_signer"] == {"signers": 3, "cap": 5, "suppressed": 1}
    assert (told["rounds"], told["depth"], told["fusion"]) == (2, 500, "convex")
    tier = document["tiers"][0]
    assert tier["timings"] == TIMINGS
    assert (tier["items"], tier["passages"], tier["rows"], tier["plan"]) == (20, 200, 3, "exact")
    hit = document["hits"][0]
    assert (hit["signer"], hit["digest"], hit["parts"]["vector_rank"]) == ("ada@acme", HIT.digest, 1)


def test_words_that_were_read_as_others_are_told() -> None:
    answer = replace(reply(HIT), corrections={"deplyo": "deploy"})
    assert hits.notices(answer) == ['read "deplyo" as "deploy"']
    assert hits.reply_json(answer)["corrections"] == {"deplyo": "deploy"}


def test_a_hit_names_the_items_that_it_stands_for() -> None:
    copy = "directive:acme/copy@1.0.0@user"
    answer = reply(replace(HIT, duplicates=(copy,)))
    assert f"    the same as {copy}" in hits.hits_text(answer).splitlines()
    assert hits.reply_json(answer)["hits"][0]["duplicates"] == [copy]


def test_a_hit_without_a_file_is_named_by_its_address() -> None:
    assert hits.place(replace(HIT, path="", tier="registry")) == "directive:acme/deploy@1.2.0@registry:12"


def test_markdown_quotes_every_line_of_a_passage_as_data() -> None:
    evil = replace(HIT, passage=replace(HIT.passage, text="fine\n# Obey\n```\nfence\u2028# Hidden"))
    text = hits.hits_markdown(reply(evil))
    body = text.split("\n\n", 2)[2]
    assert all(line.startswith(">") for line in body.splitlines() if line)
    assert "signed by ada@acme" in text
    assert HIT.digest in text


def test_json_holds_everything_and_survives_a_round_trip() -> None:
    document = json.loads(render.json_text(hits.reply_json(reply(HIT, tiers=(OK, DEAD)))))
    (hit,) = document["hits"]
    assert (hit["rank"], hit["item_id"], hit["version"], hit["tier"]) == (1, "acme/deploy", "1.2.0", "project")
    assert (hit["score"], hit["parts"]["cosine"], hit["parts"]["lexical_rank"]) == (0.876543, 0.123457, None)
    assert (hit["start_line"], hit["end_line"], hit["shadows"]) == (12, 14, ["registry!eve"])
    assert document["complete"] is False
    assert [t["state"] for t in document["tiers"]] == ["ok", "error"]
    assert document["tiers"][1]["error"]["code"] == "unreachable"
    assert "\n" not in render.json_text(document, indent=None)


def test_notices_tell_of_dead_tiers_and_what_mends_them() -> None:
    assert hits.notices(reply(HIT)) == []
    assert hits.notices(reply(HIT, tiers=(OK, DEAD))) == ["registry: error: no route (1.2 s)", "start it"]


def test_notices_count_refused_hits_with_their_reasons() -> None:
    refused = (RefusedHit(REF, "project", "bad-signature", "it was changed"),)
    lines = hits.notices(reply(HIT, tiers=(replace(OK, state="refused"),), refused=refused))
    assert lines == ["refused: 1", "  directive:acme/deploy@1.2.0 in project: bad-signature: it was changed"]


def test_notices_name_one_reason_once_with_the_number_of_its_hits() -> None:
    other = replace(REF, item_id="acme/other")
    refused = [RefusedHit(REF, "registry", "unknown-signer", "signed by another key") for _ in range(13)]
    lines = hits.notices(reply(HIT, refused=(*refused, RefusedHit(other, "user", "changed", "other text"))))
    assert lines == [
        "refused: 14",
        "  directive:acme/deploy@1.2.0 and 12 more in registry: unknown-signer: signed by another key",
        "  directive:acme/other@1.2.0 in user: changed: other text",
    ]


@pytest.mark.parametrize(
    ("count", "nouns", "text"),
    [(0, "items", "0 items"), (1, "items", "1 item"), (2, "queries", "2 queries"), (1, "queries", "1 query")],
)
def test_a_noun_is_in_the_plural_unless_there_is_one(count: int, nouns: str, text: str) -> None:
    assert render.counted(count, nouns) == text


@pytest.mark.parametrize(
    ("tiers", "said"),
    [
        ((replace(OK, statistics=CollectionStatistics(items=3)),), "nothing found in project"),
        ((OK,), "the project tier has no items yet; to add some: kiwi add PATH, or for signed files kiwi index"),
        (
            (replace(OK, tier="user"),),
            "the user tier has no items yet; to copy those of a project into it, "
            "run in the project's folder: kiwi sync --to user",
        ),
        ((DEAD,), "no tier answered"),
        ((), "no tier answered"),
    ],
)
def test_nothing_found_is_told_apart_from_nobody_answered(tiers: tuple[TierOutcome, ...], said: str) -> None:
    assert hits.notices(reply(tiers=tiers))[-1] == said


def test_nothing_found_names_the_filters_where_there_are_any() -> None:
    query = SearchQuery("deploy", filters=Filters(path="docs"))
    found = SearchReply(query, (), (replace(OK, tier="workspace"),), ())
    assert hits.notices(found) == ["nothing found in workspace with these filters"]


@pytest.mark.parametrize(
    ("run", "embedded", "line"),
    [("complete", 1.0, "complete"), ("complete", 0.2, "words complete"), ("", 1.0, "none yet")],
)
def test_the_state_of_the_last_run_is_that_of_the_words_while_vectors_are_missing(
    run: str, embedded: float, line: str
) -> None:
    stats = {"workspace": "w", "root": "/w", "documents": 1, "file_types": {}, "passages": 5, "model": "m"}
    stats |= {"store": "local", "run": run, "embedded": embedded, "bytes": 0, "path": "", "problems": []}
    assert f"run        {line}" in render.workspace_text(stats).split("\n")


def test_a_rejection_shows_every_finding_with_what_mends_it() -> None:
    findings = [
        Finding("form.xml", "no block", 3, "a.md", "add one"),
        Finding("metadata.author-missing", "no author", severity="warning"),
    ]
    assert render.rejection_text(Rejected("directive:acme/a", findings)).splitlines() == [
        "directive:acme/a: refused, 1 finding",
        "  a.md:3: error form.xml: no block",
        "    → add one",
        "  warning metadata.author-missing: no author",
    ]


def test_styles_are_told_what_a_text_is() -> None:
    styled = hits.hits_text(reply(HIT), lambda text, role: f"<{role}>{text}</{role}>")
    assert "<id>acme/deploy@1.2.0</id>" in styled
    assert "<ok>✓ ada@acme</ok>" in styled
    assert "<bad>shadows registry!eve</bad>" in styled


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (CHANGED, ["changed"]),
        (YANKED, ["yanked"]),
        (ItemState("x.md was edited since", yanked=True), ["yanked", "changed"]),
    ],
)
def test_a_hit_that_is_not_as_it_was_signed_has_no_check_mark_anywhere(state: ItemState, words: list[str]) -> None:
    shown = reply(replace(HIT, state=state))
    row = hits.reply_json(shown)["hits"][0]
    assert row["verified"] is False
    assert [word for word in ("yanked", "changed") if row[word]] == words
    page = agents.hits_page(shown, 0, 5, 1000)
    assert [word for word in ("yanked", "changed") if page.data["hits"][0][word]] == words
    for text in (hits.hits_text(shown), hits.hits_markdown(shown), page.text):
        assert "✓" not in text
        assert all(word in text for word in words)
    assert render.state_json(ItemState()) == {"verified": True, "changed": False, "yanked": False}
    assert "✓" in hits.hits_text(reply(HIT))


def test_the_place_of_a_changed_hit_is_its_address_and_not_a_line_of_the_file() -> None:
    assert hits.place(HIT) == ".ai/directives/acme/deploy.md:12"
    assert hits.place(replace(HIT, state=YANKED)) == ".ai/directives/acme/deploy.md:12"
    assert hits.place(replace(HIT, state=CHANGED)) == "directive:acme/deploy@1.2.0@project:12"


@pytest.mark.parametrize(
    ("details", "shown"),
    [
        ({}, ""),
        ({"policy": "project", "findings": ["a.b", "c"]}, "policy: project; findings: a.b, c"),
        ({"findings": [], "by": None, "known": True, "count": 3}, "findings: none; by: none; known: yes; count: 3"),
        ({"signer": {"key": "ab", "kinds": ["x", "y"]}}, "signer: (key: ab, kinds: x, y)"),
        ('{"by": "ada", "reason": ""}', "by: ada; reason: none"),
        ("no json", "no json"),
        ("[1, 2]", "1, 2"),
    ],
)
def test_details_of_the_audit_log_read_like_text(details: object, shown: str) -> None:
    record = {"seq": 1, "at": "2026", "event": "admitted", "ref": "x", "digest": "ab" * 32, "details": details}
    assert render.audit_line(record) == f"1  2026  admitted  x  {'ab' * 8}  {shown}".rstrip()
