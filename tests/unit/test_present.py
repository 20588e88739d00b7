"""What every door shows: nothing that a terminal would obey, and everything a person must be told."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kiwi_rag import present
from kiwi_rag.errors import RegistryUnreachable, Rejected
from kiwi_rag.model import Finding, Passage, RefusedHit, SearchQuery, SearchReply, SearchResult, TierOutcome
from kiwi_rag.refs import ItemRef, ItemType

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
        "cosine": 0.123456789, "bm25": 3.5, "vector_rank": 1, "lexical_rank": None, "alpha": 0.84, "prior": 1.0,
        "plan": "exact",
    },
    digest="ab" * 32,
    key_id="cd" * 32,
    principal="ada@acme",
    signed_at=datetime(2026, 3, 1, tzinfo=UTC),
    path=".ai/directives/acme/deploy.md",
)  # fmt: skip
OK = TierOutcome("project", "ok", 0.01, 3, "exact")
DEAD = TierOutcome("registry", "error", 1.25, 0, "", RegistryUnreachable("no route", hint="start it").as_dict())
HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\u202c\x9b31m\rgone\x00"


def reply(
    *hits: SearchResult, tiers: tuple[TierOutcome, ...] = (OK,), refused: tuple[RefusedHit, ...] = ()
) -> SearchReply:
    return SearchReply(SearchQuery("deploy"), hits, tiers, refused)


def obeyed(text: str) -> bool:
    return any(c in text for c in "\x1b\x07\x9b\r\x00\u202e\u202c")


def test_safe_keeps_text_and_takes_commands_out() -> None:
    assert present.safe("tab\tline\nümlaut 日本 🥝") == "tab\tline\nümlaut 日本 🥝"
    assert not obeyed(present.safe(HOSTILE))
    assert "owned" in present.safe(HOSTILE)


def test_no_door_passes_a_command_on() -> None:
    hostile = replace(
        HIT, principal=HOSTILE, path=HOSTILE, shadows=(f"registry!{HOSTILE}",),
        passage=replace(HIT.passage, text=HOSTILE),
    )  # fmt: skip
    refused = RefusedHit(REF, "project", "changed", HOSTILE)
    dead = replace(DEAD, error={"message": HOSTILE, "hint": HOSTILE})
    answer = reply(hostile, tiers=(OK, dead), refused=(refused,))
    assert not obeyed(present.hits_text(answer, explain=True))
    assert not obeyed(present.hits_markdown(answer))
    assert not obeyed(present.hits_paths(answer))
    assert not any(obeyed(line) for line in present.notices(answer))
    line = present.json_text(present.reply_json(answer), indent=None)
    assert not obeyed(line)
    assert json.loads(line)["hits"][0]["text"] == HOSTILE  # escaped, not lost
    finding = Finding("a.b", HOSTILE, 3, HOSTILE, HOSTILE)
    assert not obeyed(present.rejection_text(Rejected(HOSTILE, [finding])))


def test_text_says_rank_id_tier_signer_score_snippet_and_place() -> None:
    first, shadows, snippet, place = present.hits_text(reply(HIT)).splitlines()
    assert first == " 1. acme/deploy@1.2.0  directive  project+user  ✓ ada@acme  0.877"
    assert shadows.strip() == "shadows registry!eve"
    assert snippet.strip() == "Build it. > Then push it."
    assert place.strip() == ".ai/directives/acme/deploy.md:12"


def test_an_explanation_shows_both_legs_digest_and_key() -> None:
    text = present.hits_text(reply(HIT), explain=True)
    assert "vectors 0.1235 (rank 1)  words 3.500 (rank -)  alpha 0.84  prior 1.000  plan exact" in text
    assert f"digest {HIT.digest}  key {HIT.key_id}" in text


def test_a_long_passage_is_cut_with_a_mark() -> None:
    cut = present.snippet(replace(HIT, passage=replace(HIT.passage, text="word " * 200)))
    assert len(cut) <= present.SNIPPET_CHARACTERS
    assert cut.endswith("word…")


def test_a_hit_without_a_file_is_named_by_its_address() -> None:
    assert present.place(replace(HIT, path="", tier="registry")) == "directive:acme/deploy@1.2.0@registry:12"


def test_markdown_quotes_every_line_of_a_passage_as_data() -> None:
    evil = replace(HIT, passage=replace(HIT.passage, text="fine\n# Obey\n```\nfence\u2028# Hidden"))
    text = present.hits_markdown(reply(evil))
    body = text.split("\n\n", 2)[2]
    assert all(line.startswith(">") for line in body.splitlines() if line)
    assert "signed by ada@acme" in text
    assert HIT.digest in text


def test_json_holds_everything_and_survives_a_round_trip() -> None:
    document = json.loads(present.json_text(present.reply_json(reply(HIT, tiers=(OK, DEAD)))))
    (hit,) = document["hits"]
    assert (hit["rank"], hit["item_id"], hit["version"], hit["tier"]) == (1, "acme/deploy", "1.2.0", "project")
    assert (hit["score"], hit["parts"]["cosine"], hit["parts"]["lexical_rank"]) == (0.876543, 0.123457, None)
    assert (hit["start_line"], hit["end_line"], hit["shadows"]) == (12, 14, ["registry!eve"])
    assert document["complete"] is False
    assert [t["state"] for t in document["tiers"]] == ["ok", "error"]
    assert document["tiers"][1]["error"]["code"] == "unreachable"
    assert "\n" not in present.json_text(document, indent=None)


def test_notices_tell_of_dead_tiers_and_what_mends_them() -> None:
    assert present.notices(reply(HIT)) == []
    assert present.notices(reply(HIT, tiers=(OK, DEAD))) == ["registry: error: no route (1.2 s)", "start it"]


def test_notices_count_refused_hits_with_their_reasons() -> None:
    refused = (RefusedHit(REF, "project", "bad-signature", "it was changed"),)
    lines = present.notices(reply(HIT, tiers=(replace(OK, state="refused"),), refused=refused))
    assert lines == ["refused: 1", "  directive:acme/deploy@1.2.0 in project: bad-signature: it was changed"]


@pytest.mark.parametrize(
    ("tiers", "said"),
    [((OK,), "nothing found in project"), ((DEAD,), "no tier answered"), ((), "no tier answered")],
)
def test_nothing_found_is_told_apart_from_nobody_answered(tiers: tuple[TierOutcome, ...], said: str) -> None:
    assert present.notices(reply(tiers=tiers))[-1] == said


def test_a_rejection_shows_every_finding_with_what_mends_it() -> None:
    findings = [
        Finding("form.xml", "no block", 3, "a.md", "add one"),
        Finding("metadata.author-missing", "no author", severity="warning"),
    ]
    assert present.rejection_text(Rejected("directive:acme/a", findings)).splitlines() == [
        "directive:acme/a: refused, 1 finding",
        "  a.md:3: error form.xml: no block",
        "    → add one",
        "  warning metadata.author-missing: no author",
    ]


def test_styles_are_told_what_a_text_is() -> None:
    styled = present.hits_text(reply(HIT), lambda text, role: f"<{role}>{text}</{role}>")
    assert "<id>acme/deploy@1.2.0</id>" in styled
    assert "<ok>✓ ada@acme</ok>" in styled
    assert "<bad>shadows registry!eve</bad>" in styled
