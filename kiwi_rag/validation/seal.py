"""The seal of an `Admission`, by which stores check that the gate of this process issued it.

It is a MAC under a random key of this process. Python code in the same process can read the key, so a seal does not
stop an attacker there. It prevents that a caller stores, by mistake, what was never admitted. Only `issuing` makes
seals, and an import contract lets only this package import that module.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Sequence

from kiwi_rag.errors import MalformedEnvelope, NotAdmitted
from kiwi_rag.model import Admission, Passage
from kiwi_rag.model.refs import ItemType
from kiwi_rag.signing import statement
from kiwi_rag.signing.statement import passage_digest

_KEY = secrets.token_bytes(32)


def require_sealed(admission: Admission) -> Admission:
    """Return `admission` if the gate of this process issued it and nothing in it was changed since.

    Raises
    ------
    NotAdmitted
        When it did not.
    """
    try:
        genuine = hmac.compare_digest(admission.seal, seal_of(admission))
    except (MalformedEnvelope, UnicodeEncodeError):  # it holds what no statement can: U+0000, or half a surrogate pair
        genuine = False
    if not genuine:
        raise NotAdmitted(f"{admission.ref} was never admitted by the gate", hint="add it first: kiwi add PATH")
    return admission


def require_passages(admission: Admission, passages: Sequence[Passage]) -> None:
    """Return if `passages` are exactly those that a sealed document's statement names.

    The files of an item are stored, so its passages can be derived from them. Of a document only passages are stored.
    The gate parsed the statement strictly before it sealed the admission, so a plain JSON parser is enough here.

    Raises
    ------
    NotAdmitted
        When a passage is missing, added or changed.
    """
    if admission.ref.item_type is not ItemType.DOCUMENT:
        return
    in_order = sorted(passages, key=lambda passage: passage.ordinal)
    if list(map(passage_digest, in_order)) != json.loads(admission.envelope.payload)["predicate"]["passages"]:
        hint = "index it again: kiwi workspace index"
        raise NotAdmitted(f"{admission.ref}: the passages are not those that were signed", hint=hint)


def seal_of(admission: Admission) -> bytes:
    """Return the seal of `admission` under the key of this process."""
    fields = (
        str(admission.ref),
        admission.item.content_sha256,
        repr((admission.item.main, admission.item.executables)),
        statement.canonical(admission.item.metadata).hex(),
        repr((admission.item.sections, admission.item.findings, admission.findings)),
        repr((admission.envelope.payload_type, admission.envelope.signatures)),
        statement.digest_of(admission.envelope),
        admission.digest,
        admission.key_id,
        admission.principal,
        admission.policy,
        admission.signed_at.isoformat(),
        admission.admitted_at.isoformat(),
    )
    return hmac.digest(_KEY, "\0".join(fields).encode(), "sha256")
