"""The row proves itself: the signer's key beside the signature, and CHECKs that hold for the owner and a superuser.

Revision ID: 0002
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# A CHECK must not read another table (a restore would fail), so the key stands in the row. The triggers, which would
# refuse what follows, come back with `sql/triggers`, in the same transaction.
_KEYS = (
    "alter table kiwi.item_versions disable trigger user",
    "alter table kiwi.item_versions add column public_key bytea",
    "update kiwi.item_versions as v set public_key = s.public_key from kiwi.signers as s where s.key_id = v.signer",
    "alter table kiwi.item_versions alter column public_key set not null",
)

# Revision 0001 took what was handed in on the client's word. What does not verify goes, with its passages, and the
# audit keeps a record of it. A new database has no such rows, and not yet the functions that are called here.
_EXPEL = """
do $$
declare
    forged record;
begin
    for forged in
        select digest, item_type, item_id, version, folded_id, signer from kiwi.item_versions
        where not kiwi.is_canonical(payload)
            or not kiwi.ed25519_verify(public_key, kiwi.dsse_pae(payload_type, payload), signature)
        order by sequence
    loop
        perform kiwi.lock_index();
        perform kiwi.withdraw_passages(array(select passage_id from kiwi.item_embeddings where digest = forged.digest));
        delete from kiwi.item_embeddings where digest = forged.digest;
        delete from kiwi.item_versions where digest = forged.digest;
        perform kiwi.refresh_item(forged.item_type, forged.folded_id);
        perform kiwi.append_audit(
            'expel', format('%s:%s@%s', forged.item_type, forged.item_id, forged.version), forged.digest, forged.signer
        );
    end loop;
end
$$
"""

_CHECKS = {
    "item_versions_public_key": "signer = encode(sha256(public_key), 'hex')",
    "item_versions_canonical": "kiwi.is_canonical(payload)",
    "item_versions_signature": "kiwi.ed25519_verify(public_key, kiwi.dsse_pae(payload_type, payload), signature)",
}


def upgrade() -> None:
    """Put each row's key into it, remove rows that do not verify, and check every row from now on."""
    for statement in (*_KEYS, _EXPEL):
        op.execute(statement)
    for name, rule in _CHECKS.items():
        op.execute(f"alter table kiwi.item_versions add constraint {name} check ({rule})")


def downgrade() -> None:
    """Go back to taking what was handed in."""
    for name in _CHECKS:
        op.execute(f"alter table kiwi.item_versions drop constraint {name}")
    op.execute("alter table kiwi.item_versions drop column public_key")
