"""Private keys: encrypted, for their owner alone, never overwritten, never shown."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from kiwi_rag.errors import KeyUnavailable, MalformedEnvelope, NotFound, UsageError
from kiwi_rag.signing import dsse, keys
from tests.conformance.items import admission
from tests.unit.test_ed25519 import SMALL_ORDER

PASSPHRASE = "correct horse"


@pytest.fixture(scope="module")
def key() -> keys.SigningKey:
    return keys.generate("ada")


def pem_of(private: ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey, passphrase: str = "") -> bytes:
    encryption = (
        serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()
    )
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def save(key: keys.SigningKey, folder: Path, passphrase: str) -> Path:
    return keys.save(key, folder, passphrase, lambda: None)[0]


def test_a_kept_key_signs_as_before(tmp_path: Path, key: keys.SigningKey) -> None:
    save(key, tmp_path / "keys", PASSPHRASE)
    loaded = keys.load("ada", tmp_path / "keys", PASSPHRASE)
    assert loaded.key_id == key.key_id
    envelope = loaded.sign(admission("acme/one").item, "kiwi")
    assert dsse.verify(envelope, {key.key_id: key.public_key}) == (key.key_id,)
    assert keys.public_key("ada", tmp_path / "keys") == key.public_key
    assert keys.names(tmp_path / "keys") == ("ada",)


def test_a_kept_key_is_encrypted_and_for_its_owner_only(tmp_path: Path, key: keys.SigningKey) -> None:
    path = save(key, tmp_path / "keys", PASSPHRASE)
    assert path.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert key._private.private_bytes_raw() not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_no_key_is_written_without_a_passphrase(tmp_path: Path, key: keys.SigningKey) -> None:
    with pytest.raises(UsageError, match="passphrase"):
        save(key, tmp_path / "keys", "")
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("passphrase", ["wrong", "", None])
def test_a_wrong_passphrase_unlocks_nothing(tmp_path: Path, key: keys.SigningKey, passphrase: str | None) -> None:
    save(key, tmp_path, PASSPHRASE)
    with pytest.raises(KeyUnavailable) as caught:
        keys.load("ada", tmp_path, passphrase)
    assert "passphrase" in caught.value.hint.lower()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, key: keys.SigningKey, mode: int) -> None:
    save(key, tmp_path, PASSPHRASE).chmod(mode)
    with pytest.raises(KeyUnavailable, match="other users can read") as caught:
        keys.load("ada", tmp_path, PASSPHRASE)
    assert caught.value.hint.startswith("chmod 600 ")


def test_a_key_is_never_overwritten(tmp_path: Path, key: keys.SigningKey) -> None:
    path = save(key, tmp_path, PASSPHRASE)
    before = path.read_bytes(), path.with_suffix(".pub").read_bytes()
    with pytest.raises(KeyUnavailable, match="exists already"):
        save(keys.generate("ada"), tmp_path, PASSPHRASE)
    assert (path.read_bytes(), path.with_suffix(".pub").read_bytes()) == before


def test_a_key_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        keys.load("ada", tmp_path, PASSPHRASE)
    with pytest.raises(NotFound):
        keys.public_key("ada", tmp_path)


@pytest.mark.parametrize("name", ["", "../ada", "a/b", ".hidden", "ada\n", "a" * 65, "ädä"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        keys.load(name, tmp_path, PASSPHRASE)
    with pytest.raises(UsageError):
        keys.generate(name)


def test_an_rsa_key_is_refused() -> None:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(KeyUnavailable, match="not an Ed25519 key"):
        keys.from_pem("ci", pem_of(private, PASSPHRASE), PASSPHRASE)


@pytest.mark.parametrize("pem", [b"", b"text", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_private_key_is_refused(pem: bytes) -> None:
    with pytest.raises(KeyUnavailable):
        keys.from_pem("ci", pem, PASSPHRASE)


def test_a_key_for_ci_may_come_unencrypted() -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    assert keys.from_pem("ci", pem_of(private), None).public_key == private.public_key().public_bytes_raw()


@pytest.mark.parametrize("weak", SMALL_ORDER, ids=lambda key: key.hex()[:8])
def test_weak_public_keys_are_refused(weak: bytes) -> None:
    with pytest.raises(MalformedEnvelope):
        keys.parse_public(weak.hex())


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 31, "ssh-ed25519 AAAA", "0x" + "11" * 32])
def test_what_is_no_hex_key_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        keys.parse_public(text)


def test_a_public_key_may_stand_in_upper_case_and_on_its_own_line(key: keys.SigningKey) -> None:
    assert keys.parse_public(f" {key.public_key.hex().upper()}\n") == key.public_key


def test_no_secret_is_in_the_repr(key: keys.SigningKey) -> None:
    shown = repr(key)
    assert key._private.private_bytes_raw().hex() not in shown
    assert "Private" not in shown
    assert "_private" not in shown
