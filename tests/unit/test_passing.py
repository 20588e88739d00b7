"""Which of a registry's errors may have passed in a moment, on both ways to it, and that only these are tried again."""

from __future__ import annotations

import httpx
import pytest

from kiwi_rag.errors import RegistryError, RegistryOutdated, RegistryRefused, RegistryUnreachable
from kiwi_rag.registry import supabase
from kiwi_rag.registry.calls import DIRECT, from_state
from kiwi_rag.retry import attempts

PASSING = ("08006", "57P01", "57P03", "53300", "25P03", "40001", "40P01", "55P03", "PGRST003")
LASTING = ("28P01", "28000", "3D000", "57014", "42501", "42883", "KW004", "XX000", "")


@pytest.mark.parametrize("state", [*PASSING, *LASTING])
async def test_only_what_may_pass_is_tried_again(state: str) -> None:
    tries = 0

    async def fail() -> None:
        nonlocal tries
        tries += 1
        raise from_state(state, "it said no", "", DIRECT)

    with pytest.raises(RegistryError):
        for attempt in attempts((0.0, 0.0)):
            async with attempt:
                await fail()
    assert tries == (3 if state in PASSING else 1)


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_conflict_passes_over_supabases_api_too(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = httpx.Response(409, json={"code": state, "message": "could not serialize access"})
    http = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: answer))
    monkeypatch.setattr(supabase, "_http_client", lambda _: http)
    with pytest.raises(RegistryError) as error:
        await supabase.SupabaseApi("http://localhost", "key").value("registry_status", {})
    assert error.value.transient
    await http.aclose()


def test_a_statement_that_was_cut_off_is_told_without_a_deadline_that_nobody_can_raise() -> None:
    error = from_state("57014", "canceling statement due to statement timeout", "", DIRECT)
    assert isinstance(error, RegistryUnreachable)
    assert "deadline" not in error.hint
    assert error.hint


@pytest.mark.parametrize("kind", [RegistryError, RegistryUnreachable, RegistryOutdated, RegistryRefused])
def test_an_error_lasts_unless_it_is_said_to_pass(kind: type[RegistryError]) -> None:
    assert not kind("it said no").transient
