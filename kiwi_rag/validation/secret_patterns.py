"""The table of credential formats for step 5, and the search for them in linear time.

The formats are those that the rules of gitleaks, trufflehog, detect-secrets and Kingfisher and the documentation of the
issuers name. Every credential of a kind contains one of its row's keywords, and a pattern is tried only where one
stands. A repeat without an upper limit is the last part of a pattern, so that no text is read again and again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

DOCUMENTED = re.compile(r"AKIA[0-9A-Z]{9}EXAMPLE|wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
"""Keys that AWS itself prints in its documentation."""

PRIVATE_KEY = "Private Key"

_UUID = r"[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}"
_PLACEHOLDER = re.compile(
    r"example|sample|(?<![^\W_])(?:your|fake)|xxxx|\*\*\*|\.\.\.|placeholder|redacted|dummy|change.?me|insert|replace"
    r"|foobar|dead.?beef|abcdefghijklmnopqrstuvwxyz",
    re.IGNORECASE,
)
# What people write where a password belongs: words with digits or signs after them, or a variable.
_WORDS = re.compile(r"(?:[A-Z]?[a-z]{3,}+|[A-Z]{3,}+|[._/-])*+[\d!@#$%.&*_-]{0,6}|[$%<\[{(].*")
_NO_PASSWORD = re.compile(r"pass|p[a@4][s$5]{2}w[o0]rd|secret|token|hunter2|\$\{|\{\{|%\(|</", re.IGNORECASE)
# Claims of web tokens that jwt.io, RFC 7519 and Supabase's documentation print.
_PRINTED_CLAIMS = ("John Doe", 1516239022, "joe", "supabase-demo")


def _is_random(secret: str) -> bool:
    """Return whether a text has many different characters, and is no word or placeholder."""
    few = len(set(secret)) < (8 if len(secret) >= 20 else 6)
    return not (few or (secret.isalpha() and secret.islower()) or _PLACEHOLDER.search(secret))


def _is_value(secret: str) -> bool:
    """Return whether the value of a name changes between digits and letters as words, paths and sequences do not."""
    ascending = sum(ord(after) - ord(before) == 1 for before, after in pairwise(secret))
    kinds = [char.isdigit() + 2 * char.isupper() for char in secret if char.isalnum()]
    changes = sum(before != after for before, after in pairwise(kinds))
    varied = 1 in kinds and changes >= len(kinds) / 5 and ascending <= len(secret) / 4
    return varied and not re.match(rf"eyJ|{_UUID}$", secret) and _is_random(secret)


def _is_password(secret: str) -> bool:
    varied = len(set(secret)) >= 6 and any(map(str.isdigit, secret)) and any(map(str.isalpha, secret))
    return varied and not (_WORDS.fullmatch(secret) or _NO_PASSWORD.search(secret)) and _is_random(secret)


def _is_basic(secret: str) -> bool:
    """Return whether a text is a name and a password in base64."""
    try:
        _, colon, password = base64.b64decode(secret, validate=True).decode("ascii").partition(":")
    except ValueError:
        return False
    return bool(colon) and password.isprintable() and len(password) >= 8 and _is_password(password)


def _is_web_token(secret: str) -> bool:
    """Return whether a text is a JSON web token, without its first ``eyJ``, that no documentation prints."""
    header, claims = (_json_part(part) for part in f"eyJ{secret}".split(".")[:2])
    return "alg" in header and not any(
        value in _PRINTED_CLAIMS for value in claims.values() if isinstance(value, str | int)
    )


def _json_part(part: str) -> dict[str, object]:
    try:
        read = json.loads(base64.urlsafe_b64decode(part.rstrip("=") + "=" * (-len(part.rstrip("=")) % 4)))
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


_ASSIGNED = r"[\"'`]?\]?[ \t]*(?:=>|:{0,3}=|[?]=|\|\||[:>]|value=|,(?=[ \t]*[\"']))[ \t]*[\"'`]?"
_VALUE = r"([\w~+/-]{20,500}+={0,2})(?![\w.(])"
# Kind; keywords; what follows the keyword, or stands before~~after it; check. [^\W_] is a letter or a digit. Where a
# pattern has a group, the keyword is a name in any case, and the group alone is the secret.
_TABLE: tuple[tuple[str, str, str, Callable[[str], bool]], ...] = (
    (
        "1Password Secret Key",
        "A3-",
        r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}",
        _is_random,
    ),
    ("1Password Service Account Token", "ops_eyJ", r"[\w+/-]{200,}+", _is_random),
    ("AWS Access Key", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}", _is_random),
    ("AWS Access Key", "A3T", r"[A-Z0-9]{17}", _is_random),
    ("AWS Bedrock Key", "ABSK", r"[\w+/]{100,}+={0,2}", _is_random),
    ("Adobe Client Secret", "p8e-", r"[^\W_]{32}", _is_random),
    ("Airtable Token", "pat", r"[^\W_]{14}\.[\da-fA-F]{64}", _is_random),
    ("Alibaba Access Key", "LTAI STS.", r"[^\W_]{12,24}", _is_random),
    ("Anthropic API Key", "sk-ant-", r"[a-z]{3,6}\d\d-[\w-]{80,}+", _is_random),
    ("Artifactory API Key", "AKCp", r"[^\W_]{69,70}", _is_random),
    ("Artifactory Token", "cmVmd", r"[^\W_]{59}", _is_random),
    ("Asana Token", "0/ 1/ 2/", r"(?:\d{12,17}/)?(?:\d{12,17}:)?[\da-fA-F]{32}", _is_random),
    ("Atlassian Token", "ATATT3 ATCTT3", r"[\w=-]{100,}+", _is_random),
    ("Azure Shared Access Signature", "sig=", r"(?:[^\W_]|[+/]|%2[BbFf]){38,60}(?:%3[Dd]|=)", _is_random),
    ("Azure Storage Key", "AccountKey=", r"[\w+/]{86}==", _is_random),
    ("Azure Shared Access Key", "SharedAccessKey=", r"[\w+/]{40,60}={0,2}", _is_random),
    ("Bitbucket App Password", "ATBB", r"[^\W_]{32}", _is_random),
    ("Brevo API Key", "xkeysib- xsmtpsib-", r"[\da-fA-F]{64}-[^\W_]{16}", _is_random),
    ("Buildkite Token", "bkua_", r"[\da-fA-F]{40}", _is_random),
    ("CircleCI Token", "CCIPAT_ CCIPRJ_", r"\w{40,}+", _is_random),
    ("ClickHouse Cloud Key", "4b1d", r"[^\W_]{38}", _is_random),
    ("Clojars Token", "CLOJARS_", r"[\da-z]{60}", _is_random),
    ("Cloudflare Origin CA Key", "v1.0-", r"[\da-fA-F]{24}-[\da-fA-F]{146}", _is_random),
    ("Contentful Token", "CFPAT-", r"[\w-]{43}", _is_random),
    ("Crates.io Token", "cio", r"[^\W_]{32}", _is_random),
    ("Databricks Token", "dapi", r"[\da-fA-F]{32}(?:-\d)?", _is_random),
    ("DigitalOcean Token", "dop_v1_ doo_v1_ dor_v1_", r"[\da-fA-F]{64}", _is_random),
    ("Docker Token", "dckr_pat_ dckr_oat_", r"[\w-]{27,36}", _is_random),
    ("Doppler Token", "dp.", r"(?:pt|ct|sa|scim|audit|st(?:\.[\w-]{2,35})?)\.[^\W_]{40,44}", _is_random),
    ("Dropbox Token", "sl.", r"(?:u\.)?[\w-]{130,}+", _is_random),
    ("Duffel Token", "duffel_live_ duffel_test_", r"[\w=-]{43}", _is_random),
    ("Dynatrace Token", "dt0c01. dt0s16.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}", _is_random),
    ("EasyPost API Key", "EZAK EZTK", r"[^\W_]{54}", _is_random),
    ("Facebook Access Token", "EAA", r"[^\W_]{90,}+", _is_random),
    ("Figma Token", "figd_ figo_", r"[\w-]{36,}+", _is_random),
    ("Flutterwave Key", "FLWSECK- FLWSECK_TEST-", r"[\da-z]{32}-X", _is_random),
    ("Fly.io Token", "fm2_ fm1a_ fm1r_ fo1_", r"[\w+/-]{43,}+={0,3}", _is_random),
    ("Frame.io Token", "fio-u-", r"[\w=-]{64}", _is_random),
    ("GitHub Token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[^\W_]{36}", _is_random),
    ("GitHub Token", "github_pat_", r"\w{60,}+", _is_random),
    (
        "GitLab Token",
        "glpat- gldt- glrt- glft- glsoat- gloas- glimt- glagent- glffct-",
        r"[\w-]{20,}+(?:\.[\w-]{2,9}){0,2}",
        _is_random,
    ),
    ("GitLab Token", "glptt- glcbt- GR1348941", r"[\w-]{20,64}", _is_random),
    ("Google API Key", "AIza", r"[\w-]{35}", _is_random),
    ("Google OAuth Secret", "GOCSPX-", r"[\w-]{28}", _is_random),
    ("Google OAuth Token", "ya29.", r"[\w-]{60,}+", _is_random),
    ("Google OAuth Token", "1//0", r"[\w-]{40,}+", _is_random),
    ("Grafana Token", "glsa_", r"[^\W_]{32}_[\da-fA-F]{8}", _is_random),
    ("Grafana Token", "glc_ eyJrIjoi eyJtaXJv", r"[\w+/]{32,}+", _is_random),
    ("Groq API Key", "gsk_", r"[^\W_]{52}", _is_random),
    ("Harness Token", "pat. sat.", r"[\w-]{22}\.[^\W_]{24}\.[^\W_]{20}", _is_random),
    ("Heroku API Key", "HRKU-", r"[\w-]{58,}+", _is_random),
    ("HubSpot Token", "pat-na1- pat-eu1- pat-na2-", _UUID, _is_random),
    ("Hugging Face Token", "hf_ api_org_", r"[^\W_]{34}", _is_random),
    ("Infracost API Key", "ico-", r"[^\W_]{32}", _is_random),
    ("Langfuse Secret Key", "sk-lf-", _UUID, _is_random),
    ("LangSmith API Key", "lsv2_pt_ lsv2_sk_", r"[\da-fA-F]{32}_[\da-fA-F]{10}", _is_random),
    ("LaunchDarkly Key", "sdk- api- mob-", _UUID, _is_random),
    ("Linear API Key", "lin_api_", r"[^\W_]{40}", _is_random),
    ("Linear OAuth Token", "lin_oauth_", r"[\da-fA-F]{64}", _is_random),
    ("Mailgun API Key", "key-", r"[\da-fA-F]{32}", _is_random),
    ("Mapbox Secret Token", "sk.eyJ", r"[\w-]{40,200}\.[\w-]{20,}+", _is_random),
    ("MongoDB Atlas Secret", "mdb_sa_sk_", r"[\w-]{40}", _is_random),
    ("Neon API Key", "napi_", r"[^\W_]{48,}+", _is_random),
    ("Netlify Token", "nfp_ nfc_ nfo_ nfu_", r"[^\W_]{36}", _is_random),
    ("New Relic Key", "NRAK-", r"[A-Z0-9]{27}", _is_random),
    ("New Relic Key", "NRII- NRIQ- NRRA-", r"[\w-]{32}", _is_random),
    ("New Relic Key", "NRJS-", r"[\da-fA-F]{19}", _is_random),
    ("Notion Token", "ntn_", r"[^\W_]{43,50}", _is_random),
    ("Notion Token", "secret_", r"[^\W_]{43}", _is_random),
    ("npm Token", "npm_", r"[^\W_]{36}", _is_random),
    ("NuGet API Key", "oy2", r"[\da-z]{43}", _is_random),
    ("NVIDIA API Key", "nvapi-", r"[\w-]{60,}+", _is_random),
    ("Octopus Deploy API Key", "API-", r"[A-Z0-9]{26,32}", _is_random),
    ("OpenAI API Key", "sk-proj- sk-svcacct- sk-admin- sk-api- sk-None-", r"[\w-]{40,}+", _is_random),
    ("OpenRouter API Key", "sk-or-v1-", r"[\da-fA-F]{64}", _is_random),
    ("OpenShift Token", "sha256~", r"[\w-]{43}", _is_random),
    ("PayPal Braintree Token", "access_token$production$", r"[\da-z]{16}\$[\da-fA-F]{32}", _is_random),
    ("Perplexity API Key", "pplx-", r"[^\W_]{48}", _is_random),
    ("Pinecone API Key", "pcsk_", r"[^\W_]{5,6}_[^\W_]{60,}+", _is_random),
    ("Plaid Token", "access-production- access-development-", _UUID, _is_random),
    ("PlanetScale Credential", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w=.-]{32,}+", _is_random),
    ("PostHog Key", "phx_ phs_", r"[\w-]{40,}+", _is_random),
    ("Postman API Key", "PMAK-", r"[\da-fA-F]{24}-[\da-fA-F]{34}", _is_random),
    ("Prefect API Key", "pnu_ pnb_", r"[^\W_]{36}", _is_random),
    ("Pulumi Token", "pul-", r"[\da-fA-F]{40}", _is_random),
    ("PyPI Token", "pypi-AgE", r"[\w-]{60,}+", _is_random),
    ("Razorpay Key", "rzp_live_ rzp_test_", r"[^\W_]{14}", _is_random),
    ("ReadMe API Key", "rdme_", r"[\da-z]{70}", _is_random),
    ("Render API Key", "rnd_", r"[^\W_]{26,}+", _is_random),
    ("Replicate Token", "r8_", r"[^\W_]{37}", _is_random),
    ("Resend API Key", "re_", r"(?=\w{0,32}\d)[^\W_]{8}_[^\W_]{24}", _is_random),
    ("RubyGems API Key", "rubygems_", r"[\da-fA-F]{48}", _is_random),
    ("Scalingo Token", "tk-us-", r"[\w-]{48}", _is_random),
    ("Segment Token", "sgp_", r"[^\W_]{64}", _is_random),
    ("SendGrid API Key", "SG.", r"[\w=.-]{66}", _is_random),
    ("Sentry Token", "sntrys_eyJ", r"[\w+/=-]{60,}+", _is_random),
    ("Sentry Token", "sntryu_ sntrya_", r"[\da-fA-F]{64}", _is_random),
    ("Shippo Token", "shippo_live_ shippo_test_", r"[\da-fA-F]{40}", _is_random),
    ("Shopify Token", "shpat_ shpca_ shppa_ shpss_ shptka_", r"[\da-fA-F]{32}", _is_random),
    (
        "Slack Token",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs-",
        r"(?:\d{1,16}-){0,4}(?:[^\W_]|[%+/]){10,}+",
        _is_random,
    ),
    ("Slack App Token", "xapp-", r"\d-[A-Z0-9]{8,14}-\d{8,16}-[\da-z]{40,}+", _is_random),
    ("Slack Webhook", "hooks.slack.com/", r"(?:services|workflows|triggers)/[\w/]{40,}+", _is_random),
    ("Discord Webhook", "/api/webhooks/", r"discord(?:app)?\.com~~\d{17,20}/[\w-]{60,}+", _is_random),
    (
        "Teams Webhook",
        ".webhook.office.com/webhookb2/",
        r"[\w-]{1,60}~~[\da-f-]{36}@[\da-f-]{36}/IncomingWebhook/[\da-fA-F]{32}/[\da-f-]{36}",
        _is_random,
    ),
    ("Sonar Token", "sqp_ squ_ sqa_", r"[\da-fA-F]{40}", _is_random),
    ("Sourcegraph Token", "sgp_", r"(?:(?:[\da-fA-F]{16}|local)_)?[\da-fA-F]{40}", _is_random),
    ("Square Credential", "sq0csp- sq0atp-", r"[\w-]{22,43}", _is_random),
    ("Square Credential", "EAAA", r"[\w-]{60}", _is_random),
    ("Stripe Secret Key", "sk_live_ rk_live_ sk_prod_ rk_prod_ sk_test_ rk_test_", r"[^\W_]{16,}+", _is_random),
    ("Stripe Webhook Secret", "whsec_", r"[\w+/]{32,}+", _is_random),
    ("Supabase Secret Key", "sb_secret_", r"[\w-]{20,}+", _is_random),
    ("Supabase Token", "sbp_", r"(?:v0_|oauth_)?[\da-fA-F]{40}", _is_random),
    ("Tailscale Key", "tskey-", r"(?:auth|api|client|scim|webhook)-[\w-]{20,}+", _is_random),
    ("Tavily API Key", "tvly-", r"(?:dev-|prod-)?[\w-]{30,}+", _is_random),
    ("Tencent Cloud Key", "AKID", r"[^\W_]{32}", _is_random),
    ("Twilio Key", "SK AC", r"[\da-fA-F]{32}", _is_random),
    ("Typeform Token", "tfp_", r"[\w-]{40,}+", _is_random),
    ("Vault Token", "hvs. hvb. hvr.", r"[\w-]{24,}+", _is_random),
    ("Vault Token", "s.", r"(?=[^\W_]{0,23}\d)[^\W_]{24}", _is_random),
    ("Yandex Key", "AQVN t1.", r"[\w-]{35,}+", _is_random),
    ("age Secret Key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{58}", _is_random),
    ("xAI API Key", "xai-", r"[\w-]{70,}+", _is_random),
    ("API Key", "sk-", r"[^\W_]{32,64}", _is_value),
    ("API Key", "sk_ csk- pa-", r"[\w-]{40,}+", _is_value),
    (
        "Service Token",
        "AIK_CI_ AIK_SECRET_ AQ.Ab8RN6 AstraCS: BBDC- BSA CCDB1_ EXO PMAT- SWMKEY-1- SWMTKN-1- aact_prod_ aiven"
        " api_live. api_live_ca. api_live_us. apify_api_ apk_ bedrock-api-key- bkaj_ bkpt_ cfat_ cfut_ cnvca cog_"
        " configcat-sdk-1/ csa_ ddo_ ddp_ dvc_mobile_ dvc_server_ essu_ ion_ lip_ llx- mercury_production_"
        " mergify_application_key_ mlsn. nyk_ os_v2_app_ packagist_ack_ packagist_acs_ packagist_ort_"
        " packagist_out_ pdl_live_apikey_ persona_production_ pina_ polar_at_ polar_oat_ polar_pat_ prf_ ramp_sec_"
        " rootly_ rpa_ samsara_api_ sk_car_"
        " sm_aat_ sm_pat_ sm_sat_ tgp_v1_ tss_ ucat_ unkey_ vca_ vci_ vck_ vcp_ vcr_ vtwn_ waka_ wandb_v1_ wrka-"
        " xnd_production_ zpka_",
        r"[\w.+/=:-]{16,}+",
        _is_value,
    ),
    ("MaxMind Licence Key", "_mmk", r"[^\W_]{6}_[^\W_]{29}~~", _is_random),
    ("Salesforce Token", "!", r"00[^\W_]{13}~~[\w.]{80,}+", _is_random),
    ("Facebook App Token", "|", r"\d{15,16}~~[\w-]{27,40}", _is_value),
    ("Azure Client Secret", "Q~", r"[\w~.-]{3}\d~~[\w~.-]{31,34}", _is_random),
    ("Azure Key", "JQQJ99", r"[\w+/-]{30,60}~~[^\W_]{20,40}", _is_random),
    ("Azure Key", "AzFu AzSe AzCa ACDb +ASt +ASb +AEh +AIo", r"[\w+/-]{30,80}~~[\w+/-]{5,10}={0,2}", _is_random),
    ("Discord Bot Token", "MD MT Mj Mz ND NT Nj Nz OD OT", r"[\w-]{22,26}\.[\w-]{6}\.[\w-]{27,38}", _is_random),
    ("Mailchimp API Key", "-us", r"[\da-fA-F]{32}~~\d{1,2}", _is_random),
    ("New Relic Key", "NRAL", r"[\da-fA-F]{36}~~", _is_random),
    ("OpenAI API Key", "T3BlbkFJ", r"sk-(?:[a-z]{2,8}-)?[\w-]{20,80}~~[\w-]{20,}+", _is_random),
    ("Telegram Bot Token", ":AA", r"\d{8,10}~~[\w-]{33}", _is_random),
    ("Terraform Token", ".atlasv1.", r"[^\W_]{14}~~[\w=-]{60,70}", _is_random),
    ("JSON Web Token", "eyJ", r"(?:(?<![\w-]eyJ)|(?<=\\[nrt]eyJ))[\w-]{8,}+(?:\.[\w=+/-]{10,}+){1,4}", _is_web_token),
    (
        "AWS Secret Key",
        "aws",
        rf"[\w .-]{{0,20}}?(?:key|token|pass)[\w .-]{{0,20}}?{_ASSIGNED}([\w+/]{{40}})",
        _is_value,
    ),
    ("npm Token", "_authtoken npm_token", rf"{_ASSIGNED}({_UUID})", _is_random),
    ("API Key", "heroku snyk sendbird squarespace", rf"[\w .-]{{0,20}}?{_ASSIGNED}({_UUID})", _is_random),
    (
        "Mailgun Signing Key",
        "mailgun",
        rf"[\w .-]{{0,20}}?{_ASSIGNED}([\da-fA-F]{{32}}-[\da-fA-F]{{8}}-[\da-fA-F]{{8}})",
        _is_random,
    ),
    (
        "Password in a URL",
        "://",
        r"[^\s/:@\"'<>`]{0,64}:([^\s/@\"'<>`]{8,200})(?=@(?!localhost|127\.|[\w.]*example)\w)",
        _is_password,
    ),
    ("Password of curl", "-u --user", r"[ =][\"']?[^\s:\"'`]{1,64}:([^\s\"'`:]{8,200})(?=[\s\"'])", _is_password),
    ("Basic Authentication", "basic", r" +([\w+/]{12,}+={0,2})", _is_basic),
    ("Basic Authentication", "auth", _ASSIGNED + r"([\w+/]{12,}+={0,2})", _is_basic),
    ("Bearer Token", "bearer", r" +([\w.~+/=-]{20,}+)", _is_value),
    (
        "Authorization Token",
        "authorization",
        _ASSIGNED + r"(?:token|apikey|api-key|key|ssws) +" + _VALUE,
        _is_value,
    ),
    ("Password", "password passwd pwd", rf"\w{{0,12}}{_ASSIGNED}([^\s\"'`<>,;(){{}}\[\]\\]{{10,200}}+)", _is_password),
    ("Password of netrc", "login", r"\s{1,9}\S{1,64}\s{1,9}password\s{1,9}(\S{8,200}+)", _is_password),
    (
        "Secret Key",
        "token secret adafruit algolia cloudflare codecov cohere confluent contentful datadog discord droneci"
        " dropbox etsy fastly finicity finnhub flickr freshbooks intercom jfrog artifactory kraken kucoin launchdarkly"
        " linkedin looker mapbox mattermost messagebird netlify newrelic new_relic nytimes okta plaid rapidapi"
        " sendbird sentry sonar sumo travis twitch twitter zendesk",
        r"[\w-]{0,12}" + _ASSIGNED + _VALUE,
        _is_value,
    ),
    (
        "Secret Key",
        "key",
        r"(?:api|access|private|auth|account|signing|encryption|master|service|secret)[ _-]?~~" + _ASSIGNED + _VALUE,
        _is_value,
    ),
    (
        PRIVATE_KEY,
        "MII",
        r"[\w+/]{3}(?:IBAAK[BC]|IBADANBgkqhkiG9w0BAQEFAASC|[\w+/]{2}BgkqhkiG9w0BBQ)[\w+/]{16,}+",
        _is_random,
    ),
    (PRIVATE_KEY, "MHcCAQEEI MIGkAgEBBD MIHcAgEBBEI MC4CAQAwBQYDK2V b3BlbnNzaC1rZXktdjE", r"[\w+/]{16,}+", _is_random),
    (PRIVATE_KEY, "MIGHAgEAMBMGByqGSM49 MIG2AgEAMBAGByqGSM49 MIHuAgEAMBAGByqGSM49", r"[\w+/]{16,}+", _is_random),
)
# Before a credential stands no letter or digit, except that of an escape sequence.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_LONGEST_START = 90


class Pattern(NamedTuple):
    """A keyword of the table: what stands before and after it, and the check of what does."""

    kind: str
    keyword: str
    before: re.Pattern[str]
    after: re.Pattern[str]
    accepts: Callable[[str], bool]

    @property
    def is_contextual(self) -> bool:
        """Whether the keyword is the name of a value, in any case, and not a part of the credential."""
        return self.after.groups > 0


@lru_cache(maxsize=1)
def patterns() -> tuple[Pattern, ...]:
    """Return the table, a pattern for each keyword."""
    return tuple(
        _pattern(kind, word, found, accepts) for kind, words, found, accepts in _TABLE for word in words.split()
    )


def present(words: Iterable[str]) -> list[Pattern]:
    """Return the patterns, without the contextual ones, whose keywords are in some of the words."""
    text = " ".join(words)
    return [pattern for pattern in _split()[0] if pattern.keyword in text]


def contextual() -> list[Pattern]:
    """Return the patterns of the values of names."""
    return _split()[1]


@lru_cache(maxsize=1)
def _split() -> tuple[list[Pattern], list[Pattern]]:
    tokens = [pattern for pattern in patterns() if not pattern.is_contextual]
    return tokens, [pattern for pattern in patterns() if pattern.is_contextual]


def _pattern(kind: str, keyword: str, pattern: str, accepts: Callable[[str], bool]) -> Pattern:
    before, _, after = pattern.rpartition("~~")
    contextual = re.compile(after).groups > 0
    flags = re.ASCII | re.IGNORECASE if contextual else re.ASCII
    ended = after if after.endswith(("+", ")")) else rf"{after}(?![A-Za-z0-9])"
    started = before if contextual else rf"{_START}(?:{before})"
    return Pattern(kind, keyword, re.compile(rf"{started}\Z", flags), re.compile(ended, flags), accepts)


def find(text: str, among: Iterable[Pattern]) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end offset of each credential of some patterns in `text`."""
    # The only character whose lower case is two would move the offsets.
    lowered = text.replace("\u0130", "i").lower()
    for pattern in among:
        searched = lowered if pattern.is_contextual else text
        if pattern.keyword in searched:
            for span in _spans(pattern, text, searched):
                yield pattern.kind, *span


def _spans(pattern: Pattern, text: str, searched: str) -> Iterator[tuple[int, int]]:
    at = searched.find(pattern.keyword)
    while at >= 0:
        following = at + 1
        if found := pattern.after.match(text, at + len(pattern.keyword)):
            following = max(following, found.end())
            if span := _accepted(pattern, text, at, found):
                yield span
        at = searched.find(pattern.keyword, following)


def _accepted(pattern: Pattern, text: str, at: int, found: re.Match[str]) -> tuple[int, int] | None:
    """Return the offsets of a secret if what must stand before its keyword does, and its check accepts it."""
    before = pattern.before.search(text, max(0, at - _LONGEST_START), at)
    if not before:
        return None
    start, end = found.span(1) if pattern.is_contextual else (before.start(), found.end())
    checked = text[start:end] if pattern.is_contextual else text[start:at] + found[0]
    return (start, end) if pattern.accepts(checked) or DOCUMENTED.search(text, start, end) else None
