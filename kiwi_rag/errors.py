"""Every error that Kiwi raises, as one tree.

::

    KiwiError                     code            what happened
    ├── UsageError                usage           the caller asked for something that makes no sense
    │   ├── ConfigError           config          a setting is unknown, malformed or contradictory
    │   ├── InvalidItemId         item-id         not a legal item id, or a path outside its root
    │   ├── UnknownFilter         filter          a filter or a source that Kiwi does not have
    │   └── MissingExtra          extra           an optional package is not installed
    ├── Refused                   refused         the gate, or a verification, said no
    │   ├── Rejected              rejected        a candidate was refused; carries every finding
    │   ├── NotAdmitted           not-admitted    a store was handed something the gate never admitted
    │   ├── SignatureRefused      signature       the base of everything a signature can get wrong
    │   │   ├── Unsigned          unsigned        there is no signature at all
    │   │   ├── MalformedEnvelope envelope        the envelope is not strict DSSE / canonical JSON
    │   │   ├── BadSignature      bad-signature   the bytes are not what the key signed
    │   │   ├── UnknownSigner     unknown-signer  nobody trusts the key that signed
    │   │   └── WrongKey          wrong-key       a known key that may not sign this item, now
    │   ├── AuditBroken           audit           a hash chain does not hold
    │   └── RegistryContradicted  contradiction   a registry says other than what it said before
    │       ├── ChainShortened    audit-shortened its audit log ends before the head that was seen
    │       ├── ChainForked       audit-forked    its audit log is another one than the one that was seen
    │       ├── RolledBack        rolled-back     it serves an older version than was seen as the newest
    │       ├── YankUndone        yank-undone     it serves a version as alive that was yanked
    │       └── VersionChanged    version-changed it serves other bytes under a version that was seen
    ├── NotFound                  not-found       no such item, key, version or signer
    │   └── Yanked                yanked          every version of the item was taken back
    ├── KeyUnavailable            key             a private key cannot be read, unlocked or written
    ├── SourceUnreadable          unreadable      a file cannot be read, or leaves its root by a link
    ├── EmbeddingError            embedding       the base of what a model can get wrong
    │   ├── ModelUnavailable      model           no weights could be found, or they are not the pinned ones
    │   ├── FingerprintMismatch   fingerprint     vectors of two models would have met
    │   ├── RateLimited           rate-limited    a server wants fewer requests than are wanted of it
    │   ├── TextsRefused          texts-refused   a server does not take these texts, or this request
    │   └── AnswerMalformed       answer          what a server sent is no vectors for these texts
    └── StoreError                store           the base of what a store can get wrong
        ├── StoreBusy             busy            another process is writing; names the holder
        ├── StoreFull             full            the disk is full; nothing was half-written
        ├── StoreCorrupt          corrupt         the catalog or an index is damaged
        ├── PinnedStateDamaged    memory          what was remembered of a registry cannot be read
        ├── TierTimedOut          silent          a tier stopped answering while its hits were verified
        ├── StoreUnreachable      store-unreachable a shared index gives no answer; says nothing about what it holds
        ├── StoreRefused          store-refused   a shared index does not accept the key
        └── RegistryError         registry        the base of what a registry can get wrong
            ├── RegistryUnreachable unreachable   no connection; says nothing about what it holds
            ├── RegistryOutdated  outdated        its schema is not the one this Kiwi speaks
            └── RegistryRefused   registry-refused the registry itself refused the call

A class's docstring is its default message. ``hint`` says what mends it, as a command where one exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from kiwi_rag.model import Finding


class KiwiError(Exception):
    """Something went wrong in Kiwi.

    Parameters
    ----------
    message
        What happened, in one sentence; the class's docstring when left out.
    hint
        What mends it, or an empty string.
    """

    code = "error"
    quoted = ""
    """What of the message a server said that was sent a text to work on: it may repeat it."""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.hint = hint
        super().__init__(self.message)

    @property
    def own_words(self) -> str:
        """The message without what it quotes: what may be logged."""
        return self.message.replace(self.quoted, "…") if self.quoted else self.message

    def as_dict(self) -> dict[str, object]:
        """Return ``code``, ``message`` and ``hint``, as every door shows them."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class UsageError(KiwiError):
    """The request makes no sense as it stands."""

    code = "usage"


class ConfigError(UsageError):
    """A setting is unknown, malformed or contradictory."""

    code = "config"


class InvalidItemId(UsageError):
    """The item id is not legal."""

    code = "item-id"


class UnknownFilter(UsageError):
    """There is no such filter or source."""

    code = "filter"


class MissingExtra(UsageError):
    """An optional package is not installed."""

    code = "extra"


class Refused(KiwiError):
    """The gate refused this."""

    code = "refused"


class Rejected(Refused):
    """The gate rejected a candidate.

    Parameters
    ----------
    ref
        The item it was about, as text.
    findings
        Everything the gate found, errors and warnings, in the order of the procedure.
    """

    code = "rejected"

    def __init__(self, ref: str, findings: Sequence[Finding]) -> None:
        self.ref = ref
        self.findings = tuple(findings)
        errors = [f for f in self.findings if f.is_error]
        count = f"{len(errors)} finding{'s' if len(errors) != 1 else ''}"
        super().__init__(f"{ref}: refused, {count}", hint=errors[0].hint if errors else "")

    def as_dict(self) -> dict[str, object]:
        """Return the base fields and ``findings``, each as a dictionary."""
        return {**super().as_dict(), "ref": self.ref, "findings": [f.as_dict() for f in self.findings]}


class NotAdmitted(Refused):
    """A store takes admitted records only, and this one the gate never admitted."""

    code = "not-admitted"


class SignatureRefused(Refused):
    """The signature was refused."""

    code = "signature"


class Unsigned(SignatureRefused):
    """There is no signature."""

    code = "unsigned"


class MalformedEnvelope(SignatureRefused):
    """The envelope is malformed."""

    code = "envelope"


class BadSignature(SignatureRefused):
    """The signature does not match: the content was changed after signing, or the signature is damaged."""

    code = "bad-signature"


class UnknownSigner(SignatureRefused):
    """Nobody here trusts the key that signed this."""

    code = "unknown-signer"


class WrongKey(SignatureRefused):
    """The key is known, but may not sign this item."""

    code = "wrong-key"


class AuditBroken(Refused):
    """The audit log's hash chain does not hold."""

    code = "audit"


class RegistryContradicted(Refused):
    """The registry contradicts what it said before."""

    code = "contradiction"


class ChainShortened(RegistryContradicted):
    """The registry's audit log ends before the head that was seen."""

    code = "audit-shortened"


class ChainForked(RegistryContradicted):
    """The registry's audit log is not the one that was seen before."""

    code = "audit-forked"


class RolledBack(RegistryContradicted):
    """The registry serves an older version than was seen as the newest."""

    code = "rolled-back"


class YankUndone(RegistryContradicted):
    """The registry serves a version as alive that was yanked."""

    code = "yank-undone"


class VersionChanged(RegistryContradicted):
    """The registry serves other bytes under a version that was seen."""

    code = "version-changed"


class NotFound(KiwiError):
    """There is no such thing here."""

    code = "not-found"


class Yanked(NotFound):
    """Every version of the item was taken back."""

    code = "yanked"


class KeyUnavailable(KiwiError):
    """The private key cannot be used."""

    code = "key"


class SourceUnreadable(KiwiError):
    """The file cannot be read."""

    code = "unreadable"


class EmbeddingError(KiwiError):
    """The embedding model failed."""

    code = "embedding"
    status = 0
    """The HTTP status that a server answered; 0 where it did not, or where no server was asked."""

    def reworded(self, message: str) -> Self:
        """Return the same failure in other words, which hold the old ones."""
        told = type(self)(message, hint=self.hint)
        told.quoted, told.status = self.quoted, self.status
        return told


class ModelUnavailable(EmbeddingError):
    """The embedding model's weights are not available."""

    code = "model"


class FingerprintMismatch(EmbeddingError):
    """Vectors of two embedding models never mix."""

    code = "fingerprint"


class RateLimited(EmbeddingError):
    """The embedding server wants fewer requests."""

    code = "rate-limited"


class TextsRefused(EmbeddingError):
    """The embedding server does not take this request."""

    code = "texts-refused"


class AnswerMalformed(EmbeddingError):
    """What the embedding server sent is no answer."""

    code = "answer"


class StoreError(KiwiError):
    """A store failed.

    Parameters
    ----------
    passing
        Whether the same call may succeed in a moment: no connection, no free one, no answer, or a conflict.
    """

    code = "store"

    def __init__(self, message: str = "", *, hint: str = "", passing: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.passing = passing


class StoreBusy(StoreError):
    """Another process is writing to this tier."""

    code = "busy"


class StoreFull(StoreError):
    """The disk is full; nothing was half-written."""

    code = "full"


class StoreCorrupt(StoreError):
    """The catalog is damaged."""

    code = "corrupt"


class PinnedStateDamaged(StoreError):
    """What was remembered of a registry cannot be read."""

    code = "memory"


class TierTimedOut(StoreError):
    """The tier stopped answering while its hits were verified; its outcome says so."""

    code = "silent"


class StoreUnreachable(StoreError):
    """The shared index cannot be reached; this says nothing about what it holds."""

    code = "store-unreachable"


class StoreRefused(StoreError):
    """The shared index does not accept the key."""

    code = "store-refused"


class RegistryError(StoreError):
    """The registry failed."""

    code = "registry"


class RegistryUnreachable(RegistryError):
    """The registry cannot be reached; this says nothing about what it holds."""

    code = "unreachable"


class RegistryOutdated(RegistryError):
    """The registry's schema is not the one this Kiwi speaks."""

    code = "outdated"


class RegistryRefused(RegistryError):
    """The registry refused the call.

    Parameters
    ----------
    state
        The registry's own code, an SQLSTATE of class KW (docs/registry.md lists them), or an empty string.
    """

    code = "registry-refused"

    def __init__(self, message: str = "", *, hint: str = "", state: str = "") -> None:
        super().__init__(message, hint=hint)
        self.state = state

    def as_dict(self) -> dict[str, object]:
        """Return the error, with ``state`` where the registry gave one."""
        return super().as_dict() | ({"state": self.state} if self.state else {})
