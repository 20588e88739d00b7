"""Slips of the finger: what counts as one, and how the choice falls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.lexical import find_similar, max_edits, query_terms, split_halves, swap_middle
from kiwi_rag.model import CollectionStatistics
from kiwi_rag.search import corrections as typos

WORDS = "deployment staging rollback database restore canary certificate replication configuration permission release"
VOCABULARY = query_terms(WORDS)


def statistics(*frequencies: str, count: int = 3) -> CollectionStatistics:
    return CollectionStatistics(100, 5000, dict.fromkeys(frequencies, count))


def corrections(text: str, vocabulary: tuple[str, ...] = VOCABULARY) -> dict[str, str]:
    """What becomes of a query where `vocabulary` is all there is."""
    known = [term for term in query_terms(text) if term in vocabulary]
    unknown = typos.find_unknown_terms(text, statistics(*known))
    return typos.choose_corrections(
        typos.collect_options(unknown, [dict.fromkeys(unknown, vocabulary)]), statistics(*vocabulary)
    )


@pytest.mark.parametrize(
    ("slip", "word"),
    [
        ("deploymnet", "deployment"),  # the slip hides the stem
        ("replicaton", "replication"),
        ("configuraiton", "configuration"),
        ("permision", "permission"),
        ("certifcate", "certificate"),
        ("databse", "database"),
        ("Relase", "release"),
        ("catabase", "database"),  # the first letter
        ("cannary", "canary"),
    ],
)
def test_a_slip_is_read_as_the_word(slip: str, word: str) -> None:
    assert corrections(f"how is the {slip} done?") == {query_terms(slip)[0]: query_terms(word)[0]}


def test_known_words_are_left_alone() -> None:
    assert corrections(WORDS) == {}


@pytest.mark.parametrize("text", ["abc", "KW012", "v1.2.4", "release2", "web-01", "", "the of and"])
def test_what_is_short_or_numbered_is_no_slip(text: str) -> None:
    assert corrections(text, (*VOCABULARY, "abd", "kw011", "release1", "web")) == {}


def test_an_unknown_identifier_of_known_parts_is_no_slip() -> None:
    parts = query_terms("rollback staging database")
    assert typos.find_unknown_terms("rollback_staging", statistics(*parts)) == {}
    assert typos.find_unknown_terms("rollback_stagign", statistics(*parts)) == {
        "rollback_stagign": "rollback_stagign",
        "stagign": "stagign",
    }


def test_few_words_of_a_query_are_read_as_others() -> None:
    text = " ".join(f"{letter}eployment" for letter in "abcfgh")
    assert len(typos.find_unknown_terms(text, statistics())) == typos.MAX_UNKNOWN


def test_fewer_edits_come_before_frequency_and_frequency_before_letters() -> None:
    options = {"quotx": {"quota": 1, "quote": 1, "quo": 2}}
    told = CollectionStatistics(100, 500, {"quota": 1, "quote": 1, "quo": 90})
    assert typos.choose_corrections(options, told) == {"quotx": "quota"}
    told = CollectionStatistics(100, 500, {"quota": 1, "quote": 2, "quo": 90})
    assert typos.choose_corrections(options, told) == {"quotx": "quote"}
    assert typos.choose_corrections(options, statistics("quo")) == {"quotx": "quo"}
    assert typos.choose_corrections(options, statistics()) == {}


def test_a_tier_cannot_make_any_word_the_answer() -> None:
    unknown = {"databs": "databse"}
    options = typos.collect_options(
        unknown, [{"databs": ["databas", "password", "x" * 10_000, ""], "other": ["databas"]}]
    )
    assert "databas" in options["databs"]
    assert not {"password", "", "x" * 10_000} & options["databs"].keys()


def test_the_choice_needs_no_more_than_so_many_frequencies() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    near_it = [f"depl{a}{b}{c}" for a in letters for b in letters for c in ("q", "qq", "qx")]
    options = typos.collect_options({"deploqq": "deploqq"}, [{"deploqq": near_it}])
    assert len(options["deploqq"]) == typos.MAX_OPTIONS


def test_terms_are_reread_in_place() -> None:
    assert typos.replace_terms(("a", "depoli", "b", "deploy"), {"depoli": "deploy"}) == ("a", "deploy", "b")


@given(st.text("abcde", min_size=4, max_size=12), st.data())
def test_one_slip_behind_the_first_letter_is_always_near(term: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(1, len(term) - 1))
    letter = data.draw(st.sampled_from("abcde"))
    changed = data.draw(
        st.sampled_from(
            [
                term[:place] + term[place + 1 :],
                term[:place] + letter + term[place:],
                term[:place] + letter + term[place + 1 :],
                term[:place] + term[place + 1 : place + 2] + term[place] + term[place + 2 :],
            ]
        )
    )
    expected = {} if changed == term else {changed: 1}
    assert find_similar(term, [changed]) == expected


@given(st.text(min_size=4, max_size=20))
def test_halves_are_the_whole(term: str) -> None:
    assert "".join(split_halves(term)) == term
    assert sorted(swap_middle(term)) == sorted(term)
    assert max_edits(term) in (0, 1, 2)


@pytest.mark.parametrize("text", ["payment", "sailings", "gently", "Though", "companies"])
def test_an_english_word_that_does_not_occur_is_no_slip(text: str) -> None:
    assert corrections(text, (*VOCABULARY, "parent", "fail", "agent", "through", "compat")) == {}


def test_what_is_two_edits_away_must_occur_twice() -> None:
    options = {"quotx": {"quo": 2}}
    assert typos.choose_corrections(options, statistics("quo", count=1)) == {}
    assert typos.choose_corrections(options, statistics("quo", count=2)) == {"quotx": "quo"}


def test_corrections_are_spelt_as_the_words_that_were_found_and_never_as_stems() -> None:
    texts = ["Environments and the environment.", "the environment_name", "an ENVIRONMENT"]
    assert typos.spell_out({"enviroment": "environ"}, texts) == {"enviroment": "environment"}
    assert typos.spell_out({"enviroments": "environ"}, texts) == {"enviroments": "environments"}
    assert typos.spell_out({"enviroment": "environ"}, ["nothing"]) == {"enviroment": "environ…"}
    assert typos.spell_out({}, texts) == {}
