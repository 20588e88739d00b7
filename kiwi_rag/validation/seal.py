"""The seal that makes an `Admission` the gate's own, and the check for it.

It is a MAC under a key that this process made and nobody is given. Python cannot keep a determined caller in the same
process from forging one; it can keep an honest one from writing, by mistake, what was never admitted. Sealing stands in
`issuing`, which an import contract keeps to this room.
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
from kiwi_rag.signing.document_statement import passage_digest

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
    except (MalformedEnvelope, UnicodeEncodeError):  # holds what the gate lets nobody sign
        genuine = False
    if not genuine:
        raise NotAdmitted(f"{admission.ref} was never admitted by the gate", hint="kiwi add PATH")
    return admission


def require_passages(admission: Admission, passages: Sequence[Passage]) -> None:
    """Return if these are a sealed document's passages as its statement names them, all of them and in order.

    An item's content is signed itself, so its passages can be made again from it; of a document only they are kept.
    The gate read the statement strictly before it sealed the admission, so that need not be done again.

    Raises
    ------
    NotAdmitted
        When they are not.
    """
    if admission.ref.item_type is not ItemType.DOCUMENT:
        return
    in_order = sorted(passages, key=lambda passage: passage.ordinal)
    if list(map(passage_digest, in_order)) != json.loads(admission.envelope.payload)["passages"]:
        raise NotAdmitted(f"{admission.ref}: these are not the passages that were signed", hint="kiwi workspace index")


def seal_of(admission: Admission) -> bytes:
    """Return the seal that `admission` would carry if the gate of this process had issued it."""
    fields = (
        str(admission.ref),
        admission.item.content_sha256,
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
