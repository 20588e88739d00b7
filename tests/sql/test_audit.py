"""The audit log: every change, in one chain that shows any tampering."""

from __future__ import annotations

import psycopg
import pytest

from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import admission, records
from tests.registry_calls import store_passages

BROKEN = "select public.verify_audit()"


async def test_every_change_is_one_record_in_a_whole_chain(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    one = admission("acme/x")
    receipt = await store.publish(one)
    await store.publish(one)
    await store_passages(store, records(one))
    await store.delete(one.ref)
    events = connection.execute("select event, ref from kiwi.audit order by seq").fetchall()
    assert events == [
        ("audience", "test"),
        ("enrol", "ada@acme"),
        ("publish", "directive:acme/x@1.0.0"),
        ("yank", "directive:acme/x@1.0.0"),
    ]
    assert connection.execute("select seq || ':' || hash from kiwi.audit where event = 'publish'").fetchone() == (
        receipt.audit_head,
    )
    assert connection.execute(BROKEN).fetchone() == (None,)


@pytest.mark.parametrize(
    ("tamper", "first"),
    [
        ("update kiwi.audit set ref = 'x' where seq = 2", 2),
        ("update kiwi.audit set details = '{}' where seq = 1", 1),
        ("update kiwi.audit set at = at + interval '1 us' where seq = 3", 3),
        ("delete from kiwi.audit where seq = 2", 3),
        ("delete from kiwi.audit where seq = 1", 2),
    ],
)
async def test_tampering_shows(
    store: RegistryVectorStore, connection: psycopg.Connection, tamper: str, first: int
) -> None:
    await store.publish(admission("acme/x"))
    for denied in (tamper, "truncate kiwi.audit"):
        with pytest.raises(psycopg.Error) as error:
            connection.execute(denied)
        assert error.value.sqlstate == "KW014"
    connection.execute("alter table kiwi.audit disable trigger all")
    connection.execute(tamper)
    assert connection.execute(BROKEN).fetchone() == (first,)
