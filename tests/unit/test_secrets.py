"""Every kind of credential is found, whatever encodes or splits it, and what only looks like one is none."""

from __future__ import annotations

import base64
import json
import time
from random import Random

import pytest

from benchmarks.secret_kinds import FORMATS, filled, kinds
from kiwi_rag.validation import secrets
from kiwi_rag.validation.document_gate import REDACTED, without_secrets
from kiwi_rag.validation.secret_patterns import patterns
from tests.examples import size

KINDS = kinds()


def part(data: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


@pytest.mark.parametrize("kind", KINDS)
def test_a_credential_of_every_kind_is_found(kind):
    text = f"# Notes\n\nThe harbour opens.\n\n{KINDS[kind](Random(f'20 {kind}'))}\n\nThe harbour closes.\n"
    assert [finding.code for finding in secrets.check_secrets(text)] == ["secrets.found"]
    clean, _ = without_secrets(text, "a.md")
    assert REDACTED in clean and clean.count("\n") == text.count("\n")
    assert clean.startswith("# Notes\n\nThe harbour opens.\n") and clean.endswith("\nThe harbour closes.\n")
    assert secrets.spans(clean) == []


DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
NONE = {
    "placeholder of x": "key: " + "sk-" + "x" * 48,
    "placeholder of a token": "ghp_" + "x" * 36,
    "placeholder in brackets": 'api_key = "<your-api-key-goes-here>"',
    "placeholder of words": "Authorization: Bearer YOUR_ACCESS_TOKEN_GOES_HERE_123",
    "example": "token: sk-proj-" + "EXAMPLE-abc123-EXAMPLE-abc123-EXAMPLE-abc123",
    "alphabet": "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789",
    "sequence": "api_key=" + "1234567890abcdef1234567890abcdef",
    "variable": "postgres://${DB_USER}:${DB_PASSWORD}@db/main, password: process.env.DB_PASSWORD1",
    "template": "https://deploy:{{ vault_pass_1 }}@git.internal.net/",
    "password of words": "postgres://app:mypassword123@db:5432/main and redis://:changeme99@cache/0",
    "address of this machine": "postgres://app:kZ3n" + "bQ9xT7@localhost:5432/main",
    "code": "const secret = secretsmanager2.Secret.fromSecretNameV2(this, 'a')",
    "digest": f"sha256:{DIGEST}",
    "digest named": f"etag: {DIGEST}, cache_key: {DIGEST}, checksum = {DIGEST}",
    "git": f"commit {DIGEST[:40]}\nfixed by {DIGEST[:40]}",
    "uuid": "token: 123e4567-e89b-42d3-a456-426614174000",
    "lock file": '"integrity": "sha512-' + base64.b64encode(bytes(range(64))).decode() + '"',
    "image": "![a](data:image/png;base64," + base64.b64encode(bytes(range(256)) * 4).decode() + ")",
    "text in base64": base64.b64encode(b"The harbour opens at dawn, and the boats go out.").decode(),
    "jwt.io": ".".join([part({"alg": "HS256", "typ": "JWT"}), part({"sub": "1234567890", "name": "John Doe"}), DIGEST]),
    "Supabase on a machine": ".".join([part({"alg": "HS256"}), part({"iss": "supabase-demo", "role": "anon"}), DIGEST]),
    "user and password": "Authorization: Basic " + base64.b64encode(b"user:password123").decode(),
    "prose": "A token is secret: nobody gets it. Basic authentication is no bearer authentication.",
    "path": "api_key: /etc/kubernetes/pki/service2/account1/keys",
    "certificate": "MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJRTESMBAGA1UEChMJQmFsdGltb3Jl",
    "public key": "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun",
}


@pytest.mark.parametrize("text", NONE.values(), ids=NONE)
def test_what_only_looks_like_a_credential_is_none(text):
    assert secrets.spans(f"# Notes\n\n{text}\n\nThe end.\n") == []


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgres://app:{}@db.internal.net/main", "postgres://app:(redacted)@db.internal.net/main"),
        ('{{"password": "{}", "next": 1}}', '{"password": "(redacted)", "next": 1}'),
        ("curl -u deploy:{} https://git.internal.net/", "curl -u deploy:(redacted) https://git.internal.net/"),
        ("Server=a;User Id=sa;Password={};Encrypt=yes", "Server=a;User Id=sa;Password=(redacted);Encrypt=yes"),
        ("machine a.net login bob password {}", "machine a.net login bob password (redacted)"),
        ("define('DB_PASSWORD', '{}');", "define('DB_PASSWORD', '(redacted)');"),
        ("<password>{}</password>", "<password>(redacted)</password>"),
    ],
)
def test_of_a_named_password_the_name_stays(text, clean):
    assert without_secrets(text.format(filled("k{A12}7Zq", Random(3))), "a.txt")[0] == clean


def test_a_key_in_base64_is_found_in_the_lines_of_its_encoding():
    key = (
        "-----BEGIN "
        + "PRIVATE KEY-----\n"
        + "MC4CAQAwBQYDK2VwBCIEIHRlc3QtdGVzdC10ZXN0" * 2
        + "\n-----END "
        + "PRIVATE KEY-----\n"
    )
    encoded = base64.encodebytes(b"a: b\n" + key.encode()).decode()
    clean, found = without_secrets(f"before\n{encoded}after\n", "a.txt")
    assert clean.split() == ["before", REDACTED, "after"] and len(found) == 1


def test_a_name_gets_no_value_from_the_next_line():
    assert secrets.spans(f"password:\n{DIGEST[:40]}\n\ntoken\n= {DIGEST}\n") == []


def test_offsets_are_right_after_a_letter_whose_lower_case_is_two():
    secret = filled(FORMATS["bearer header"], Random(1))
    assert without_secrets(f"{'İ' * 50}\n{secret}\n", "a.txt")[0].endswith("\nAuthorization: Bearer (redacted)\n")


@pytest.mark.parametrize("after", ["", "=", "-", "\n", "=Qm3xZp9LkT7wVb2NfRc\n", "Qm3xZp9LkT7wVb2NfRcYd5HsJ-"])
def test_no_keyword_makes_the_search_slow(after):
    text = "".join(f"{pattern.keyword}{after}" * (size(12_000, 12) // 12) for pattern in patterns()[::12])
    started = time.process_time()
    secrets.spans(text)
    # Quadratic time would be minutes.
    assert time.process_time() - started < len(text) / 20_000 + 0.5
