"""Kinds of credentials, for `benchmarks.secrets`: how each is made, and which half was kept apart.

Formats are those that the rules of gitleaks, trufflehog and Kingfisher and the documentation of the issuers name. In a
template ``{A20}`` stands for 20 random characters of the class ``A``. No whole credential stands in this file.
"""

from __future__ import annotations

import base64
import html
import json
import re
import string
from collections.abc import Callable, Mapping
from hashlib import sha256
from random import Random
from urllib.parse import quote

_CLASSES: Mapping[str, str] = {
    "A": string.ascii_letters + string.digits,
    "L": string.ascii_letters,
    "a": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "S": string.ascii_uppercase + "234567",
    "d": string.digits,
    "h": "0123456789abcdef",
    "w": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
}
FORMATS: Mapping[str, str] = {
    "1password account key": "A3-{U6}-{U11}-{U5}-{U5}-{U5}",
    "1password service account": "ops_eyJ{A300}",
    "age identity": "AGE-SECRET-KEY-1{S58}",
    "airtable token": "pat{A14}.{h64}",
    "alibaba key": "LTAI{A20}",
    "anthropic admin key": "sk-ant-admin01-{w93}AA",
    "anthropic key": "sk-ant-api03-{w93}AA",
    "anthropic oauth": "sk-ant-oat01-{w93}AA",
    "artifactory key": "AKCp{A69}",
    "artifactory reference": "cmVmd{A59}",
    "asana token": "2/{d16}/{d16}:{h32}",
    "atlassian token": "ATATT3{w186}",
    "aws bedrock key": "ABSK{b128}",
    "aws key id": "AKIA{S16}",
    "aws temporary key id": "ASIA{S16}",
    "aws secret": "aws_secret_access_key = {b40}",
    "azure client secret": "{A3}8Q~{A34}",
    "azure event hub": "Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey={b43}=",
    "azure openai key": "{A52}JQQJ99{A10}ACYeBjF{A9}",
    "azure sas": "https://a.blob.core.windows.net/c?sv=2024-11-04&sp=r&sig={A43}%3D",
    "azure storage": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={b86}==;EndpointSuffix=core.windows.net",
    "azure function key": "https://a.azurewebsites.net/api/f?code={w44}AzFu{A6}==",
    "bitbucket app password": "ATBB{A32}",
    "buildkite token": "bkua_{h40}",
    "circleci token": "CCIPAT_{A22}_{h40}",
    "clickhouse key": "4b1d{A38}",
    "clojars token": "CLOJARS_{h60}",
    "cloudflare origin key": "v1.0-{h24}-{h146}",
    "cloudflare token named": "CLOUDFLARE_API_TOKEN={w40}",
    "contentful token": "CFPAT-{w43}",
    "crates.io token": "cio{A32}",
    "databricks token": "dapi{h32}",
    "databricks token of a second kind": "dapi{h32}-2",
    "datadog key named": "DD_API_KEY={h32}",
    "deepseek key": "DEEPSEEK_API_KEY=sk-{h32}",
    "digitalocean oauth": "doo_v1_{h64}",
    "digitalocean refresh": "dor_v1_{h64}",
    "digitalocean token": "dop_v1_{h64}",
    "discord bot": "MT{A22}.G{A5}.{w38}",
    "discord webhook": "https://discord.com/api/webhooks/{d18}/{w68}",
    "docker organisation token": "dckr_oat_{w32}",
    "docker token": "dckr_pat_{w27}",
    "doppler personal": "dp.pt.{A43}",
    "doppler service": "dp.st.prd.{A43}",
    "dropbox short": "sl.{w135}",
    "duffel token": "duffel_live_{w43}",
    "dynatrace token": "dt0c01.{U24}.{U64}",
    "easypost key": "EZAK{A54}",
    "facebook page token": "EAAC{A120}",
    "figma token": "figd_{w40}",
    "flutterwave key": "FLWSECK-{h32}-X",
    "fly.io token": "fm2_{b120}",
    "frame.io token": "fio-u-{w64}",
    "github app": "ghs_{A36}",
    "github fine-grained": "github_pat_{A22}_{A59}",
    "github oauth": "gho_{A36}",
    "github refresh": "ghr_{A36}",
    "github token": "ghp_{A36}",
    "github user to server": "ghu_{A36}",
    "gitlab deploy": "gldt-{w20}",
    "gitlab pipeline trigger": "glptt-{h40}",
    "gitlab routable": "glpat-{w27}.{a2}.{a7}",
    "gitlab runner": "glrt-{w20}",
    "gitlab job": "glcbt-{A2}_{w20}",
    "gitlab runner registration": "GR1348941{w20}",
    "gitlab token": "glpat-{w20}",
    "google key": "AIza{w35}",
    "google oauth access": "ya29.{w120}",
    "google oauth refresh": "1//0{w60}",
    "google oauth secret": "GOCSPX-{w28}",
    "grafana cloud": "glc_eyJ{A100}",
    "grafana legacy": "eyJrIjoi{A80}",
    "grafana service account": "glsa_{A32}_{h8}",
    "groq key": "gsk_{A52}",
    "harness token": "pat.{w22}.{h24}.{A20}",
    "heroku key": "HRKU-AA{w58}",
    "heroku key named": "HEROKU_API_KEY={h8}-{h4}-{h4}-{h4}-{h12}",
    "hubspot private app": "pat-na1-{h8}-{h4}-{h4}-{h4}-{h12}",
    "hugging face organisation": "api_org_{L34}",
    "hugging face token": "hf_{L34}",
    "infracost key": "ico-{A32}",
    "jfrog token named": "JFROG_ACCESS_TOKEN={A64}",
    "langfuse secret": "sk-lf-{h8}-{h4}-{h4}-{h4}-{h12}",
    "langsmith key": "lsv2_pt_{h32}_{h10}",
    "launchdarkly key": "sdk-{h8}-{h4}-{h4}-{h4}-{h12}",
    "linear key": "lin_api_{A40}",
    "linear oauth": "lin_oauth_{h64}",
    "mailchimp key": "{h32}-us12",
    "mailgun key": "key-{h32}",
    "mailgun signing key": "mailgun signing key: {h32}-{h8}-{h8}",
    "mapbox secret": "sk.eyJ{A80}.{w22}",
    "mongodb atlas": "mdb_sa_sk_{w40}",
    "netlify token": "nfp_{A36}",
    "neon key": "napi_{a64}",
    "new relic browser": "NRJS-{h19}",
    "new relic insert": "NRII-{w32}",
    "new relic licence": "{h36}NRAL",
    "new relic user": "NRAK-{U27}",
    "notion old": "secret_{A43}",
    "notion token": "ntn_{d11}{A35}",
    "npm token": "npm_{A36}",
    "npmrc uuid": "//registry.example.com/:_authToken={h8}-{h4}-{h4}-{h4}-{h12}",
    "nuget key": "oy2{a43}",
    "nvidia key": "nvapi-{w64}",
    "octopus key": "API-{U26}",
    "okta token named": "OKTA_API_TOKEN=00{w40}",
    "openai admin": "sk-admin-{w58}T3BlbkFJ{w58}",
    "openai legacy": "sk-{A20}T3BlbkFJ{A20}",
    "openai project": "sk-proj-{w74}T3BlbkFJ{w74}",
    "openai service account": "sk-svcacct-{w74}T3BlbkFJ{w74}",
    "openrouter key": "sk-or-v1-{h64}",
    "openshift token": "sha256~{w43}",
    "paypal braintree": "access_token$production${a16}${h32}",
    "perplexity key": "pplx-{A48}",
    "pinecone key": "pcsk_{A6}_{A63}",
    "plaid token": "access-production-{h8}-{h4}-{h4}-{h4}-{h12}",
    "planetscale password": "pscale_pw_{w43}",
    "planetscale token": "pscale_tkn_{w43}",
    "posthog key": "phx_{A43}",
    "postman key": "PMAK-{h24}-{h34}",
    "prefect key": "pnu_{A36}",
    "pulumi token": "pul-{h40}",
    "pypi token": "pypi-AgEIcHlwaS5vcmc{w100}",
    "razorpay secret named": "RAZORPAY_KEY_SECRET={A24}",
    "readme key": "rdme_{a70}",
    "render key": "rnd_{A32}",
    "replicate token": "r8_{A37}",
    "resend key": "re_{A8}_{A24}",
    "rubygems key": "rubygems_{h48}",
    "segment key": "sgp_{A64}",
    "sendgrid key": "SG.{w22}.{w43}",
    "sendinblue key": "xkeysib-{h64}-{A16}",
    "sentry organisation": "sntrys_eyJpYXQiO{A90}LCJyZWdpb25fdXJs{A40}_{b43}",
    "sentry user": "sntryu_{h64}",
    "shippo token": "shippo_live_{h40}",
    "shopify custom app": "shpca_{h32}",
    "shopify private app": "shppa_{h32}",
    "shopify secret": "shpss_{h32}",
    "shopify token": "shpat_{h32}",
    "slack app": "xapp-1-{U11}-{d13}-{h64}",
    "slack bot": "xoxb-{d12}-{d13}-{A24}",
    "slack configuration": "xoxe.xoxp-1-{A163}",
    "slack refresh": "xoxe-1-{A146}",
    "slack user": "xoxp-{d12}-{d12}-{d13}-{h32}",
    "slack webhook": "https://hooks.slack.com/services/T{U8}/B{U10}/{A24}",
    "sonar token": "squ_{h40}",
    "sourcegraph token": "sgp_{h16}_{h40}",
    "square access": "sq0atp-{w22}",
    "square secret": "sq0csp-{w43}",
    "stripe live": "sk_live_{A24}",
    "stripe long": "sk_live_{A99}",
    "stripe restricted": "rk_live_{A24}",
    "stripe webhook": "whsec_{A32}",
    "supabase secret": "sb_secret_{w22}_{w8}",
    "supabase token": "sbp_{h40}",
    "tailscale key": "tskey-auth-k{A11}CNTRL-{A32}",
    "tavily key": "tvly-dev-{A32}",
    "teams webhook": "https://a.webhook.office.com/webhookb2/{h8}-{h4}-{h4}-{h4}-{h12}@{h8}-{h4}-{h4}-{h4}-{h12}"
    "/IncomingWebhook/{h32}/{h8}-{h4}-{h4}-{h4}-{h12}",
    "telegram bot": "{d10}:AA{w33}",
    "tencent key": "AKID{A32}",
    "terraform token": "{A14}.atlasv1.{w64}",
    "twilio key": "SK{h32}",
    "twitter bearer named": "TWITTER_BEARER_TOKEN=AAAAAAAAAAAAAAAAAAAAA{A80}",
    "typeform token": "tfp_{w44}_{w14}",
    "vault batch": "hvb.{w150}",
    "vault service": "hvs.{w95}",
    "xai key": "xai-{A80}",
    "yandex key": "AQVN{w36}",
    "api key named": 'api_key: "{A40}"',
    "client secret named": 'CLIENT_SECRET = "{w40}"',
    "password named": "DB_PASSWORD=v{A6}!K{A8}9",
    "token named": "ACCESS_TOKEN={h40}",
    "url postgres": "postgres://app:k{A14}7@db.internal.net:5432/main",
    "url redis": "redis://:{A24}9@cache.internal.net:6379/0",
    "url https": "https://deploy:{A18}4@git.internal.net/a.git",
    "url amqp": "amqps://svc:x9{A12}@mq.internal.net/vh",
    "url mongodb": "mongodb+srv://root:Z4{A12}@c0.a1b2c.mongodb.net/db",
    "bearer header": "Authorization: Bearer {A48}",
    "token header": "Authorization: token {h40}",
    "api key header": "X-Api-Key: {A40}",
    "private token header": "PRIVATE-TOKEN: {w20}8aQ",
    "curl user": "curl -u deploy:{A18}4x https://git.internal.net/",
}
"""Name of a kind, and its template."""

Carrier = Callable[[Random, str], str]
"""Makes of a credential the text that holds it."""


def _thirds(between: str) -> Carrier:
    return lambda _, token: between.join(
        (token[: len(token) // 3], token[len(token) // 3 : 2 * len(token) // 3], token[2 * len(token) // 3 :])
    )


def _halves(between: str) -> Carrier:
    return lambda _, token: between.join((token[: len(token) // 2], token[len(token) // 2 :]))


CARRIERS: Mapping[str, Carrier] = {
    "base64": lambda _, token: base64.b64encode(token.encode()).decode(),
    "base64 of an assignment": lambda _, token: base64.b64encode(f"user=app\ntoken={token}\n".encode()).decode(),
    "base64 of json": lambda _, token: base64.b64encode(json.dumps({"a": 1, "token": token}).encode()).decode(),
    "base64 in lines": lambda _, token: base64.encodebytes(
        f"name: {'a service ' * 6}\ntoken: {token}".encode()
    ).decode(),
    "base64url": lambda _, token: base64.urlsafe_b64encode(f"{token}~~~???".encode()).decode().rstrip("="),
    "base64 in yaml": lambda _, token: f"kind: Secret\ndata:\n  t: {base64.b64encode(token.encode()).decode()}",
    "base64 in a data address": lambda _, token: f"data:text/plain;base64,{base64.b64encode(token.encode()).decode()}",
    "hex": lambda _, token: token.encode().hex(),
    "hex in capitals": lambda _, token: token.encode().hex().upper(),
    "hex with spaces": lambda _, token: token.encode().hex(" "),
    "hex with colons": lambda _, token: token.encode().hex(":"),
    "hex escapes": lambda _, token: '"' + "".join(f"\\x{ord(char):02x}" for char in token) + '"',
    "hex after 0x": lambda _, token: "0x" + token.encode().hex(),
    "unicode escapes": lambda _, token: '"' + "".join(f"\\u{ord(char):04x}" for char in token) + '"',
    "one unicode escape": lambda _, token: f'"{token[:2]}\\u{ord(token[2]):04x}{token[3:]}"',
    "percent": lambda _, token: "".join(f"%{ord(char):02X}" for char in token),
    "percent where needed": lambda _, token: (
        quote(f"token={token}&a=/", safe="").replace("_", "%5F").replace("-", "%2d")
    ),
    "decimal entities": lambda _, token: "".join(f"&#{ord(char)};" for char in token),
    "hexadecimal entities": lambda _, token: "".join(f"&#x{ord(char):X};" for char in token),
    "one entity": lambda _, token: f"{token[:2]}&#{ord(token[2])};{token[3:]}",
    "named entities": lambda _, token: html.escape(token).replace("_", "&lowbar;").replace("-", "&#45;"),
    "two literals": _halves('" + "'),
    "two lines": _halves("\n"),
    "two quoted lines": _halves("\n> "),
    "three lines": _thirds("\n"),
    "three lines with backslashes": _thirds("\\\n"),
    "three literals": _thirds('" + "'),
    "three literals on lines": _thirds('"\n    "'),
    "three quoted lines": _thirds("\n> "),
    "three comment lines": _thirds("\n# "),
    "three indented lines": _thirds("\n    "),
    "three list items": _thirds("\n- "),
}
_CARRIED = tuple(
    FORMATS[name] for name in ("github token", "slack bot", "stripe live", "npm token", "sendgrid key", "gitlab token")
)
_DER = {
    "rsa": "308204a40201000282010100",
    "rsa pkcs8": "308204bd020100300d06092a864886f70d0101010500048204a7308204a30201000282010100",
    "ec": "30770201010420",
    "ec pkcs8": "308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420",
    "ed25519": "302e020100300506032b657004220420",
    "encrypted": "3082050e304006092a864886f70d01050d3033301b06092a864886f70d01050c300e0408",
    "openssh": "6f70656e7373682d6b65792d7631000000000a6165733235362d637472000000066263727970740000001800000010",
}
_SIZES = {"ec": 121, "ec pkcs8": 138, "ed25519": 48}
_PLACES = ("key: {}", "export KEY={}", '{{"key": "{}"}}', "Call it with `{}` at night.", "| name | {} |", "{}", "- {}")


def filled(template: str, rng: Random) -> str:
    """Return a credential made from a template."""
    return re.sub(r"\{(\w)(\d+)\}", lambda found: "".join(rng.choices(_CLASSES[found[1]], k=int(found[2]))), template)


def _der(name: str, rng: Random) -> list[str]:
    head = bytes.fromhex(_DER[name])
    encoded = base64.b64encode(head + rng.randbytes(_SIZES.get(name, 1190) - len(head))).decode()
    return [encoded[start : start + 64] for start in range(0, len(encoded), 64)]


def _of_format(template: str) -> Callable[[Random], str]:
    def make(rng: Random) -> str:
        token = filled(template, rng)
        return (rng.choice(_PLACES) if " " not in token and "=" not in token else "{}").format(token)

    return make


def _of_carrier(carrier: Carrier) -> Callable[[Random], str]:
    def make(rng: Random) -> str:
        carried = carrier(rng, filled(rng.choice(_CARRIED), rng))
        return f'key = "{carried}"' if '"' in carried and not carried.startswith('"') else f"key: {carried}"

    return make


def _basic(rng: Random) -> str:
    encoded = base64.b64encode(f"deploy:{filled('{A16}7', rng)}".encode()).decode()
    return f"Authorization: Basic {encoded}"


def kinds() -> dict[str, Callable[[Random], str]]:
    """Return every kind, each with what makes a text with one credential of it."""
    made = {name: _of_format(template) for name, template in FORMATS.items()}
    made |= {f"cut or encoded: {name}": _of_carrier(carrier) for name, carrier in CARRIERS.items()}
    made |= {f"key without its head: {name}": lambda rng, name=name: "\n".join(_der(name, rng)) for name in _DER}
    made["basic header"] = _basic
    made["web token"] = lambda rng: "token: " + _web_token(rng)
    return made


def _web_token(rng: Random) -> str:
    parts = ({"alg": "RS256", "typ": "JWT"}, {"iss": "https://auth.internal.net", "sub": filled("{A20}", rng)})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join([*encoded, filled("{w86}", rng)])


def is_kept_apart(kind: str) -> bool:
    """Return whether a kind belongs to the half whose results were not looked at while the patterns were written."""
    return sha256(kind.encode()).digest()[0] % 2 == 1
