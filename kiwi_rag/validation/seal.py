"""The seal that makes an `Admission` the gate's own, and the check for it.

It is a MAC under a key that this process made and nobody is given. Python cannot keep a determined caller in the same
process from forging one; it can keep an honest one from writing, by mistake, what was never admitted. Sealing stands in
`issuing`, which an import contract keeps to this room.
"""

from __future__ import annotations

import hmac
import secrets

from kiwi_rag.errors import MalformedEnvelope, NotAdmitted
from kiwi_rag.model import Admission
from kiwi_rag.signing import statement

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
