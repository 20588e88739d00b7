"""What makes an `Admission` the gate's own: a MAC over it under a key that this process made and nobody is given.

Python cannot keep a determined caller in the same process from forging one; it can keep an honest one from writing
what was never admitted by mistake. An import contract lets only ``validation`` call `issue`.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import replace

from kiwi_rag.errors import NotAdmitted
from kiwi_rag.model import Admission
from kiwi_rag.signing import statement

_KEY = secrets.token_bytes(32)


def issue(admission: Admission) -> Admission:
    """Return `admission` with the gate's seal on it."""
    return replace(admission, seal=_seal(admission))


def require_sealed(admission: Admission) -> Admission:
    """Return `admission` if the gate of this process issued it and nothing in it was changed since.

    Raises
    ------
    NotAdmitted
        When it did not.
    """
    if not hmac.compare_digest(admission.seal, _seal(admission)):
        raise NotAdmitted(f"{admission.ref} was never admitted by the gate", hint="kiwi add PATH")
    return admission


def _seal(admission: Admission) -> bytes:
    fields = (
        str(admission.ref),
        admission.item.content_sha256,
        statement.canonical(admission.item.metadata).hex(),
        statement.digest_of(admission.envelope),
        admission.digest,
        admission.key_id,
        admission.principal,
        admission.policy,
        admission.signed_at.isoformat(),
        admission.admitted_at.isoformat(),
    )
    return hmac.digest(_KEY, "\0".join(fields).encode(), "sha256")
