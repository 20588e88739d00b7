"""Every error that Kiwi raises, as one tree.

::

    KiwiError                     code            what happened
    ├── UsageError                usage           a command or call was given arguments that do not fit together
    │   ├── ConfigError           config          a setting is unknown, malformed or contradictory
    │   ├── InvalidItemId         item-id         not a legal item id, or a path outside its root
    │   ├── UnknownFilter         filter          a filter or a source that Kiwi does not have
    │   └── MissingExtra          extra           an optional package is not installed
    ├── Refused                   refused         the base of what the gate or a verification refuses
    │   ├── Rejected              rejected        the gate refused a candidate; carries every finding
    │   ├── NotAdmitted           not-admitted    a store was given a record without an admission of the gate
    │   ├── SignatureRefused      signature       the base of all that can be wrong with a signature
    │   │   ├── Unsigned          unsigned        there is no signature
    │   │   ├── MalformedEnvelope envelope        the envelope is not strict DSSE or not canonical JSON
    │   │   ├── OldSignature      old-format      the signature file has the format of a pre-release Kiwi
    │   │   ├── BadSignature      bad-signature   the bytes are not those that the key signed
    │   │   ├── UnknownSigner     unknown-signer  the key that signed is not trusted
    │   │   └── WrongKey          wrong-key       a trusted key that may not sign this item at this time
    │   ├── AuditBroken           audit           the hash chain of an audit log is broken
    │   └── RegistryContradicted  contradiction   a registry contradicts its pinned state
    │       ├── ChainShortened    audit-shortened its audit log ends before the pinned head
    │       ├── ChainForked       audit-forked    its audit log does not contain the pinned head
    │       ├── RolledBack        rolled-back     it serves an older version than the newest one pinned
    │       ├── YankUndone        yank-undone     it serves a yanked version without the yank
    │       ├── VersionChanged    version-changed it serves other bytes under a pinned version
    │       └── Withheld          withheld        it does not serve an item that it names, or that was pinned
    ├── ConsentRequired           consent         data would leave this machine for a host that is not allowed
    ├── NotFound                  not-found       no such item, key, version or signer
    │   ├── Yanked                yanked          every version of the item was yanked
    │   ├── NoSuchLibrary         no-library      no library of this id or name is indexed
    │   └── VersionNotIndexed     no-version      the library is indexed, but not this version
    ├── DownloadFailed            download        a package's archive cannot be had from its index
    │   └── ArchiveRefused        archive         an archive differs from its digest, is hostile or too large
    ├── KeyUnavailable            key             a private key cannot be read, unlocked or written
    ├── SourceUnreadable          unreadable      a file cannot be read, or is outside its root
    ├── EmbeddingError            embedding       the base of all that can go wrong with an embedding model
    │   ├── ModelUnavailable      model           the weights are missing, or differ from the pinned ones
    │   ├── FingerprintMismatch   fingerprint     vectors of two models would be compared
    │   ├── RateLimited           rate-limited    an embedding server limits the rate of requests
    │   ├── TextsRefused          texts-refused   an embedding server refuses these texts, or this request
    │   └── AnswerMalformed       answer          an embedding server's response holds no vectors for these texts
    ├── ChatError                 chat            a chat model cannot be reached, or returned no answer
    └── StoreError                store           the base of all that can go wrong with a store
        ├── StoreBusy             busy            another process is writing; the message names it
        ├── StoreFull             full            the disk is full; nothing was written in part
        ├── StoreCorrupt          corrupt         the catalog or an index is damaged
        ├── PinnedStateDamaged    memory          the pinned state of a registry cannot be read
        ├── TierTimedOut          silent          a tier stopped answering while its hits were verified
        ├── StoreUnreachable      store-unreachable a shared index does not answer, so its content is unknown
        ├── StoreRefused          store-refused   a shared index does not accept the key
        └── RegistryError         registry        the base of all that can go wrong with a registry
            ├── RegistryUnreachable unreachable   no connection, so the registry's content is unknown
            │   └── RegistryBusy  registry-busy   all connections are in use
            ├── RegistryOutdated  outdated        its schema is not the one that this Kiwi works with
            └── RegistryRefused   registry-refused the registry itself refused the call
                └── RefusedTooOften refused-too-often too many calls of this login were refused within the minute

Errors that one module alone raises are defined there: `HitChanged` (``changed``), `LockDiffers` (``lock-differs``),
`LockInvalid` (``lock``), `SkillFolderTaken` (``folder-taken``), `InstalledSkillEdited` (``skill-edited``),
`NotRegularFile` (``not-a-file``), `HooksRefused` (``git-hooks``), `ClientFileError` (``client-file``) with two more.

A class's docstring is its default message. ``hint`` says what to do next, as a command where one exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from kiwi_rag.model import Finding


class KiwiError(Exception):
    """Something went wrong in Kiwi.

    Parameters
    ----------
    message
        What happened, in one sentence; the class's docstring when left out.
    hint
        What to do next, or an empty string.
    """

    code: ClassVar[str] = "error"
    """What programs know the class by; each subclass has its own."""
    quoted = ""
    """The part of the message that quotes a server's response; it may repeat a document's text, so it is not logged."""

    def __init_subclass__(cls, *, code: str) -> None:
        cls.code = code

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.hint = hint
        super().__init__(self.message)

    @property
    def loggable_message(self) -> str:
        """The message with ``…`` in place of what it quotes."""
        return self.message.replace(self.quoted, "…") if self.quoted else self.message

    def as_dict(self) -> dict[str, object]:
        """Return ``code``, ``message`` and ``hint``, as every interface shows them."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class UsageError(KiwiError, code="usage"):
    """The arguments do not fit together."""


class ConfigError(UsageError, code="config"):
    """A setting is unknown, malformed or contradictory."""


class InvalidItemId(UsageError, code="item-id"):
    """The item id is not legal: it must be a path such as acme/deploy/staging."""


class UnknownFilter(UsageError, code="filter"):
    """Kiwi has no such filter or source."""


class MissingExtra(UsageError, code="extra"):
    """An optional package is not installed."""


class Refused(KiwiError, code="refused"):
    """The gate refused this."""


class Rejected(Refused, code="rejected"):
    """The gate rejected a candidate.

    Parameters
    ----------
    ref
        The item, as text.
    findings
        Every finding of the gate, errors and warnings, in the order of its steps.
    """

    def __init__(self, ref: str, findings: Sequence[Finding]) -> None:
        self.ref = ref
        self.findings = tuple(findings)
        errors = [f for f in self.findings if f.is_error]
        count = f"{len(errors)} finding{'s' if len(errors) != 1 else ''}"
        super().__init__(f"{ref}: refused, {count}", hint=errors[0].hint if errors else "")

    def as_dict(self) -> dict[str, object]:
        """Return the base fields and ``findings``, each as a dictionary."""
        return {**super().as_dict(), "ref": self.ref, "findings": [f.as_dict() for f in self.findings]}


class NotAdmitted(Refused, code="not-admitted"):
    """The record has no admission of the gate, so it was not stored."""


class SignatureRefused(Refused, code="signature"):
    """The signature is not accepted."""


class Unsigned(SignatureRefused, code="unsigned"):
    """There is no signature."""


class MalformedEnvelope(SignatureRefused, code="envelope"):
    """The envelope is malformed."""


class OldSignature(SignatureRefused, code="old-format"):
    """The signature file has the format of a pre-release Kiwi."""


class BadSignature(SignatureRefused, code="bad-signature"):
    """The signature does not match: the content was changed after signing, or the signature is damaged."""


class UnknownSigner(SignatureRefused, code="unknown-signer"):
    """The key that signed this is not trusted here."""


class WrongKey(SignatureRefused, code="wrong-key"):
    """The key is trusted, but may not sign this item."""


class AuditBroken(Refused, code="audit"):
    """The hash chain of the audit log is broken."""


class RegistryContradicted(Refused, code="contradiction"):
    """The registry contradicts what it answered before."""


class ChainShortened(RegistryContradicted, code="audit-shortened"):
    """The registry's audit log ends before the record that was its last one before."""


class ChainForked(RegistryContradicted, code="audit-forked"):
    """The registry's audit log has another history than before."""


class RolledBack(RegistryContradicted, code="rolled-back"):
    """The registry serves an older version as the newest one than before."""


class YankUndone(RegistryContradicted, code="yank-undone"):
    """The registry serves a version without its yank."""


class VersionChanged(RegistryContradicted, code="version-changed"):
    """The registry serves other bytes under the same version than before."""


class Withheld(RegistryContradicted, code="withheld"):
    """The registry does not serve an item that it names."""


class ConsentRequired(KiwiError, code="consent"):
    """Data would leave this machine for a host that the user has not allowed.

    Parameters
    ----------
    host, purpose
        What the user would have to allow.
    """

    def __init__(self, message: str = "", *, hint: str = "", host: str = "", purpose: str = "") -> None:
        super().__init__(message, hint=hint)
        self.host, self.purpose = host, purpose


class NotFound(KiwiError, code="not-found"):
    """Nothing of this name was found."""


class Yanked(NotFound, code="yanked"):
    """Every version of the item was yanked."""


class NoSuchLibrary(NotFound, code="no-library"):
    """No such library is indexed."""


class VersionNotIndexed(NotFound, code="no-version"):
    """The library is not indexed in this version."""


class DownloadFailed(KiwiError, code="download"):
    """The package cannot be downloaded."""


class ArchiveRefused(DownloadFailed, code="archive"):
    """The archive of the package is not accepted."""


class KeyUnavailable(KiwiError, code="key"):
    """The private key cannot be used."""


class SourceUnreadable(KiwiError, code="unreadable"):
    """The file cannot be read."""


class EmbeddingError(KiwiError, code="embedding"):
    """The embedding model failed."""

    status = 0
    """The HTTP status of the server's response; 0 without a response, or without a server."""
    retry_after: float | None = None
    """Seconds after which another attempt may succeed, 0 for any time; None where it would not."""

    def with_message(self, message: str) -> Self:
        """Return the same error with another message, which contains the one it has now."""
        error = type(self)(message, hint=self.hint)
        error.quoted, error.status = self.quoted, self.status
        return error


class ModelUnavailable(EmbeddingError, code="model"):
    """The embedding model's weights are not available."""


class FingerprintMismatch(EmbeddingError, code="fingerprint"):
    """These vectors were made by another embedding model than the collection's."""


class RateLimited(EmbeddingError, code="rate-limited"):
    """The embedding server limits the rate of requests."""


class TextsRefused(EmbeddingError, code="texts-refused"):
    """The embedding server refused this request."""


class AnswerMalformed(EmbeddingError, code="answer"):
    """The embedding server's response does not hold the vectors that were requested."""


class ChatError(KiwiError, code="chat"):
    """The chat model failed."""


class StoreError(KiwiError, code="store"):
    """A store failed.

    Parameters
    ----------
    transient
        Whether a retry may succeed: there was no connection, no response, or a conflict with another transaction.
    """

    def __init__(self, message: str = "", *, hint: str = "", transient: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.transient = transient


class StoreBusy(StoreError, code="busy"):
    """Another process is writing to this tier."""


class StoreFull(StoreError, code="full"):
    """The disk is full; nothing was written in part."""


class StoreCorrupt(StoreError, code="corrupt"):
    """The catalog is damaged."""


class PinnedStateDamaged(StoreError, code="memory"):
    """The pinned state of a registry cannot be read."""


class TierTimedOut(StoreError, code="silent"):
    """The tier stopped answering while its hits were verified."""


class StoreUnreachable(StoreError, code="store-unreachable"):
    """The shared index cannot be reached, so its content is unknown."""


class StoreRefused(StoreError, code="store-refused"):
    """The shared index does not accept the key."""


class RegistryError(StoreError, code="registry"):
    """The registry failed."""


class RegistryUnreachable(RegistryError, code="unreachable"):
    """The registry cannot be reached, so its content is unknown."""


class RegistryBusy(RegistryUnreachable, code="registry-busy"):
    """The registry is busy: all connections are in use."""


class RegistryOutdated(RegistryError, code="outdated"):
    """The registry's schema is not the one that this Kiwi works with."""


class RegistryRefused(RegistryError, code="registry-refused"):
    """The registry refused the call.

    Parameters
    ----------
    state
        The registry's own code, an SQLSTATE of class KW (docs/registry.md lists them), or an empty string.
    """

    def __init__(self, message: str = "", *, hint: str = "", state: str = "") -> None:
        super().__init__(message, hint=hint)
        self.state = state

    def as_dict(self) -> dict[str, object]:
        """Return the error, with ``state`` if there is one."""
        return super().as_dict() | ({"state": self.state} if self.state else {})


class RefusedTooOften(RegistryRefused, code="refused-too-often"):
    """The registry refused too many calls of this login within the minute, and reads none until the next one.

    Parameters
    ----------
    retry_after
        The seconds until then.
    """

    def __init__(self, message: str = "", *, hint: str = "", state: str = "", retry_after: float = 60.0) -> None:
        super().__init__(message, hint=hint, state=state)
        self.retry_after = retry_after


REFUSALS = (Refused, RegistryRefused, ConsentRequired)
"""What a command ends with exit code 4 for."""
