"""`trust.toml`: read strictly, written wholly or not at all, and a project's counts only as it was pinned."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kiwi_rag.errors import ConfigError, SourceUnreadable, StoreFull, UsageError
from kiwi_rag.model import sha256_hex
from kiwi_rag.model.refs import ITEM_TYPES, ItemType
from kiwi_rag.signing import keys, trust_file
from kiwi_rag.signing.statement import canonical
from kiwi_rag.signing.trust import Signer, SignerStatus
from kiwi_rag.signing.trust_file import TrustFile

ADA, BOB = keys.generate("ada"), keys.generate("bob")
FULL = Signer(
    "ada@acme",
    ADA.public_key,
    ("acme/*", "shared"),
    (ItemType.DIRECTIVE,),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2027, 1, 1, tzinfo=UTC),
    SignerStatus.RETIRED,
)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "trust.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def entry(**changes: str) -> str:
    fields = {"principal": '"ada"', "public_key": f'"{ADA.public_key.hex()}"', **changes}
    return "[[signer]]\n" + "".join(f"{k} = {v}\n" for k, v in fields.items())


def test_what_was_saved_is_read_again(tmp_path: Path) -> None:
    content = TrustFile((FULL, Signer("bob", BOB.public_key))).with_pin(Path("/p/.ai/trust.toml"), "aa")
    trust_file.save(tmp_path / "deep/trust.toml", content)
    assert trust_file.load(tmp_path / "deep/trust.toml") == content


def test_a_missing_file_trusts_nobody(tmp_path: Path) -> None:
    assert trust_file.load(tmp_path / "trust.toml") == TrustFile()
    assert trust_file.policy(tmp_path / "trust.toml", None).signers == ()


def test_defaults_are_all_items_all_types_active(tmp_path: Path) -> None:
    (signer,) = trust_file.load(written(tmp_path, entry())).signers
    assert (signer.patterns, signer.types, signer.status) == (("*",), ITEM_TYPES, SignerStatus.ACTIVE)


def test_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    text = entry(valid_after="2026-01-01T00:00:00", valid_before="2026-06-01T02:00:00+02:00")
    (signer,) = trust_file.load(written(tmp_path, text)).signers
    assert signer.valid_after == datetime(2026, 1, 1, tzinfo=UTC)
    assert signer.valid_before == datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "[[signer",
        b"\xff",
        "[signers]\n",
        'policy = "open"',
        "signer = 5",
        "signer = [5]",
        'project = "x"',
        entry(valid_until="2026-01-01T00:00:00Z"),
        entry(trusted="true"),
        entry(public_key='"00"'),
        entry(public_key=f'"{"00" * 32}"'),
        entry(items='"acme/*"'),
        entry(items='["Acme/*"]'),
        entry(items="[1]"),
        entry(types='["recipe"]'),
        entry(status='"revoked"'),
        entry(valid_after='"2026-01-01"'),
        entry(valid_after="2026-01-01"),
        '[[signer]]\nprincipal = "ada"\n',
        f'[[signer]]\npublic_key = "{ADA.public_key.hex()}"\n',
        '[[project]]\npath = "/p"\n',
        '[[project]]\npath = "/p"\nsha256 = "aa"\nsince = "now"\n',
    ],
    ids=range(22),
)
def test_what_kiwi_does_not_know_is_refused(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"trust\.toml"):
        trust_file.load(written(tmp_path, text))


def test_a_file_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "trust.toml").mkdir()
    with pytest.raises(SourceUnreadable):
        trust_file.load(tmp_path / "trust.toml")


def test_a_signer_takes_the_place_of_its_key(tmp_path: Path) -> None:
    before = TrustFile((FULL, Signer("bob", BOB.public_key)))
    after = before.with_signer(Signer("ada2", ADA.public_key))
    assert sorted(s.principal for s in after.signers) == ["ada2", "bob"]
    assert [s.principal for s in after.without_key(ADA.key_id).signers] == ["bob"]


def test_a_failed_save_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trust.toml"
    trust_file.save(path, TrustFile((FULL,)))
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreFull, match="no space left"):
        trust_file.save(path, TrustFile())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def project(folder: Path) -> Path:
    path = folder / "project/.ai/trust.toml"
    trust_file.save(path, TrustFile((Signer("bob", BOB.public_key),)))
    return path


def principals(user: Path, project_file: Path) -> list[str]:
    return [s.principal for s in trust_file.policy(user, project_file).signers]


def test_a_projects_file_counts_only_as_it_was_pinned(tmp_path: Path) -> None:
    user, theirs = tmp_path / "home/trust.toml", project(tmp_path)
    own = TrustFile((FULL,))
    trust_file.save(user, own)
    assert principals(user, theirs) == ["ada@acme"]
    trust_file.save(user, own.with_pin(theirs.resolve(), trust_file.file_digest(theirs)))
    assert principals(user, theirs) == ["ada@acme", "bob"]
    theirs.write_bytes(theirs.read_bytes() + b"\n")
    assert principals(user, theirs) == ["ada@acme"]


def test_a_pin_is_for_one_place_only(tmp_path: Path) -> None:
    user, theirs = tmp_path / "home/trust.toml", project(tmp_path)
    trust_file.save(user, TrustFile().with_pin(theirs.resolve(), trust_file.file_digest(theirs)))
    elsewhere = tmp_path / "other/.ai/trust.toml"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(theirs.read_bytes())
    assert principals(user, theirs) == ["bob"]
    assert principals(user, elsewhere) == []
    assert not trust_file.is_pinned(trust_file.load(user), tmp_path / "missing/trust.toml")


def test_a_broken_project_file_does_no_harm_until_it_is_pinned(tmp_path: Path) -> None:
    user = tmp_path / "home/trust.toml"
    theirs = written(tmp_path, "[[signer")
    assert trust_file.policy(user, theirs).signers == ()


def test_the_users_own_entry_for_a_key_counts_before_the_projects(tmp_path: Path) -> None:
    user, theirs = tmp_path / "home/trust.toml", project(tmp_path)
    mine = TrustFile((Signer("only mine", BOB.public_key, ("mine/*",)),))
    trust_file.save(user, mine.with_pin(theirs.resolve(), trust_file.file_digest(theirs)))
    assert trust_file.policy(user, theirs).by_key[BOB.key_id].principal == "only mine"


def line_of(left_out: str = "", **changes: object) -> str:
    """Return a line as `shared_line` makes it, of a table with these changes."""
    table = {"principal": "ada", "public_key": ADA.public_key.hex(), "items": ["acme/*"], "types": ["knowledge"]}
    data = canonical({name: value for name, value in {**table, **changes}.items() if name != left_out})
    return with_checksum(data)


def with_checksum(data: bytes) -> str:
    return f"kiwi:trust:1:{base64.urlsafe_b64encode(data).decode().rstrip('=')}.{sha256_hex(data)[:8]}"


def test_a_shared_line_says_all_but_the_status() -> None:
    assert trust_file.parse_shared(trust_file.shared_line(FULL)) == replace(FULL, status=SignerStatus.ACTIVE)
    assert trust_file.parse_shared(line_of()).patterns == ("acme/*",)


@pytest.mark.parametrize(
    "line",
    {
        "another version": line_of().replace(":1:", ":2:"),
        "cut off": line_of()[:-1],
        "more behind it": f"{line_of()} ",
        "a second line": f"{line_of()}\n{line_of()}",
        "another checksum": f"{line_of()[:-8]}{'0' * 8}",
        "padded": line_of().replace(".", "=."),
        "huge": f"kiwi:trust:1:{'A' * 100_000}.00000000",
        "no object": with_checksum(b"[]"),
        "no JSON": with_checksum(b"{"),
        "deep": with_checksum(b"[" * 2_900),
        "a field twice": with_checksum(b'{"principal":"a","principal":"b"}'),
        "not canonical": with_checksum(b'{ "principal":"a"}'),
        "another field": line_of(role="admin"),
        "a status": line_of(status="active"),
        "no key": line_of("public_key"),
        "no items": line_of("items"),
        "no types": line_of("types"),
        "a weak key": line_of(public_key="00" * 32),
        "capital digits": line_of(public_key=ADA.public_key.hex().upper()),
        "control characters": line_of(principal="ada\x1b[2J"),
        "reversed text": line_of(principal="ada\u202e"),
        "an empty name": line_of(principal=" "),
        "no pattern": line_of(items=["ACME;*"]),
        "a text for a list": line_of(items="*"),
        "an unknown type": line_of(types=["key"]),
        "no time": line_of(valid_after="tomorrow"),
        "a number": line_of(principal=1),
    }.items(),
    ids=lambda case: case[0],
)
def test_another_line_is_refused(line: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        trust_file.parse_shared(line[1])
    assert len(caught.value.message) < 300
    assert caught.value.hint
