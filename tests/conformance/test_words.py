"""What every store's words leg promises: identifiers whole and by their parts, and what slips may have meant."""

from __future__ import annotations

from kiwi_rag.lexical import MAX_TERMS, query_terms
from kiwi_rag.stores.base import VectorStore
from tests.conformance.conftest import Place
from tests.conformance.documents import document, records_of
from tests.conformance.items import admission, query, records

IDENTIFIERS = {
    "deploy_staging": "deploy staging",
    "getUserById": "get user by id",
    "svc-check-in": "svc check in",
    "POST /check-ins": "post check ins",
    "parseHTML5Page": "parse html 5 page",
}


async def put(place: Place, name: str, text: str, seed: int = 0) -> None:
    """Store an item, or a document, of one passage that is `text`."""
    if place.kind.is_document:
        await place.store.put([records_of(document(name, [text], context=""), seed)])
    else:
        await place.store.put([records(admission(name, text), seed=seed)])


async def ranked(store: VectorStore, text: str) -> list[str]:
    """The ids that the words of `text` find, best first."""
    found = await store.search(query(text, await store.statistics(query_terms(text))))
    hits = sorted((c for c in found.items if c.bm25 > 0), key=lambda c: -c.bm25)
    return [c.ref.item_id for c in hits]


async def test_identifiers_are_found_whole_and_by_their_parts(words: Place) -> None:
    for number, identifier in enumerate(IDENTIFIERS):
        text = f"restart with {identifier} and wait a while for it"
        await put(words, f"acme/whole-{number}", text, seed=number)
    await put(words, "acme/other", "the pager rings at night, and nobody hears it", seed=90)
    for number, (identifier, parts) in enumerate(IDENTIFIERS.items()):
        for asked in (identifier, parts, f"how does `{identifier}` work?"):
            assert (await ranked(words.store, asked))[0] == f"acme/whole-{number}"


async def test_a_whole_identifier_outranks_its_scattered_parts(words: Place) -> None:
    for number, identifier in enumerate(("deploy_staging", "getUserById")):
        parts = IDENTIFIERS[identifier].split()
        scattered = f"{parts[0]} something, and later {' or '.join(parts[1:])}, {parts[0]} again"
        whole = f"call {identifier} when something is to happen again"
        names = [f"acme/whole-{number}", f"acme/scattered-{number}"]
        for name, text in zip(names, (whole, scattered), strict=True):
            await put(words, name, text)
        assert await ranked(words.store, identifier) == names
        assert set(await ranked(words.store, IDENTIFIERS[identifier])) == set(names)


SLIPS = {"depoly": "deploy", "databse": "database", "databasse": "database", "canray": "canary", "lsit": "list"}


async def test_slips_lead_to_the_vocabulary(words: Place) -> None:
    await put(words, "acme/one", "deploy the canary database by the word list")
    meant = {query_terms(slip)[0]: query_terms(word)[0] for slip, word in SLIPS.items()}
    found = await words.store.similar_terms(list(meant))
    assert found == {asked: (word,) for asked, word in meant.items()}


async def test_the_most_frequent_comes_first(words: Place) -> None:
    for number, text in enumerate(["quotas", "quotes quotas", "quotas quoted"]):
        await put(words, f"acme/item-{number}", text, seed=number)
    assert (await words.store.similar_terms(["quotx"]))["quotx"] == ("quota", "quot")


async def test_nothing_is_like_what_is_short_or_numbered(words: Place) -> None:
    await put(words, "acme/one", "abc KW011 release24 v2")
    found = await words.store.similar_terms(["abd", "kw012", "release25", "", "x" * 65])
    assert not any(found.values())


async def test_at_most_so_many_are_looked_up(words: Place) -> None:
    assert not any((await words.store.similar_terms(["deploy"])).values())
    await put(words, "acme/one", "deploy the canary")
    found = await words.store.similar_terms([f"deplo{letter}" for letter in "abcdefghijkl"])
    assert len(found) == MAX_TERMS
    assert all(tuple(similar) == ("deploy",) for similar in found.values())


async def test_passages_of_stop_words_alone_have_no_length_and_are_found_all_the_same(words: Place) -> None:
    await put(words, "acme/the", "it is of them")
    statistics = await words.store.statistics(("deploy",))
    assert (statistics.passages, statistics.total_length, statistics.average_length) == (1, 0, 1.0)
    (hit,) = (await words.store.search(query("deploy", statistics))).items
    assert (hit.ref.item_id, hit.bm25, hit.item.words) == ("acme/the", 0.0, 0.0)
