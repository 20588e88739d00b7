"""What a role may not do is told in Kiwi's words: who refused, why, and what to do; never as a bare SQLSTATE."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kiwi_rag.cli.session import REFUSED, exit_code
from kiwi_rag.errors import RegistryRefused
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry.client import RegistryClient
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import admission, records
from tests.sql.databases import ADA, module_url

url = module_url  # what is refused changes nothing, and what is published is the same each time
Call = Callable[[RegistryClient], Awaitable[object]]
X = ItemRef(ItemType.DIRECTIVE, "acme/x")
ADMINS: dict[str, Call] = {
    "enrol": lambda caller: caller.enrol_signer(ADA),
    "retire": lambda caller: caller.retire_signer(ADA.key_id),
    "revoke": lambda caller: caller.revoke_signer(ADA.key_id),
    "name": lambda caller: caller._value("set_audience", str, {"name_of_registry": "other"}),
    "verify the audit": lambda caller: caller._value("verify_audit", str, {}),
    "read the audit": lambda caller: caller.audit_records(0, 10),
    "store vectors": lambda caller: caller.store_passages(records(admission("acme/x"))),
}


@pytest.mark.parametrize("role", ["anon", "authenticated", "kiwi_publisher"])
@pytest.mark.parametrize("call", ADMINS.values(), ids=ADMINS)
async def test_what_is_for_admins(store: RegistryVectorStore, role: str, call: Call) -> None:
    await store.publish(admission("acme/x"))
    with pytest.raises(RegistryRefused) as refused:
        async with store.client.session(role=role) as caller:
            await call(caller)
    _says_all(refused.value)


async def test_yanking_what_is_somebody_elses(store: RegistryVectorStore) -> None:
    await store.publish(admission("acme/x"))
    for role in ("anon", "authenticated", "kiwi_publisher"):
        with pytest.raises(RegistryRefused) as refused:
            async with store.client.session(role=role) as caller:
                await caller.yank_item(X, "mine now")
        _says_all(refused.value)
    assert await store.get(X) is not None


def _says_all(error: RegistryRefused) -> None:
    assert exit_code(error) == REFUSED
    assert "42501" not in error.message + error.hint
    assert error.message
    assert error.hint
