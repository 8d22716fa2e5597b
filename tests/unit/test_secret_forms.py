"""Secrets are found and redacted, and harmless lines are left alone (M10)."""

from __future__ import annotations

import base64
import json
import random
import string
from pathlib import Path

import pytest

from holdfast.redaction import find_secrets, replace_secrets

BENIGN = Path(__file__).parents[1] / "fixtures" / "secrets" / "benign.txt"

_random = random.Random(20261115)
_ALNUM = string.ascii_letters + string.digits


def _some(length: int, alphabet: str = _ALNUM) -> str:
    """Random characters, with digits and letters for sure. Made here, so that no file holds anything that looks like a key."""
    digit = "7" if "7" in alphabet else alphabet[-1]
    return "".join(_random.choice(alphabet) for _ in range(length - 2)) + digit + alphabet[0]


_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + "234567"
_URL = _ALNUM + "_-"


def _jwt() -> str:
    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': '1234', 'name': 'Ann', 'iat': 1516239022})}.{_some(43, _URL)}"


def _block(kind: str) -> str:
    body = "\n".join(_some(64) for _ in range(5))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


# (what it is called, the text around it with %s for the secret, the secret)
SECRETS: list[tuple[str, str, str]] = [
    ("openai key", "my key is %s, thanks", "sk-" + _some(48)),
    ("openai key", "OPENAI_API_KEY=%s", "sk-proj-" + _some(60, _URL)),
    ("openai key", "%s", "sk-svcacct-" + _some(60, _URL)),
    ("openai key", "key=%s", "sk-admin-" + _some(50, _URL)),
    ("anthropic key", "use %s for it", "sk-ant-api03-" + _some(93, _URL)),
    ("openrouter key", "%s", "sk-or-v1-" + _some(64, _HEX)),
    ("aws key id", "aws_access_key_id = %s", "AKIA" + _some(16, _UPPER)),
    ("aws key id", "%s", "ASIA" + _some(16, _UPPER)),
    ("aws secret key", "aws_secret_access_key = %s", _some(40, _ALNUM + "/+")),
    ("aws secret key", 'AWS_SECRET_ACCESS_KEY: "%s"', _some(40, _ALNUM + "/+")),
    ("github token", "git clone with %s", "ghp_" + _some(36)),
    ("github token", "%s", "gho_" + _some(36)),
    ("github token", "%s", "ghs_" + _some(36)),
    ("github token", "token: %s", "github_pat_" + _some(22) + "_" + _some(59)),
    ("gitlab token", "%s", "glpat-" + _some(20, _URL)),
    ("gitlab token", "%s", "glrt-" + _some(20, _URL)),
    ("slack token", "SLACK=%s", "xoxb-" + _some(12, string.digits) + "-" + _some(12, string.digits) + "-" + _some(24)),
    ("slack token", "%s", "xoxp-" + _some(12, string.digits) + "-" + _some(30)),
    ("slack token", "%s", "xapp-1-" + _some(11) + "-" + _some(40, _HEX)),
    ("slack webhook", "post to %s", "https://hooks.slack.com/services/T" + _some(8) + "/B" + _some(8) + "/" + _some(24)),
    ("discord webhook", "%s", "https://discord.com/api/webhooks/" + _some(18, string.digits) + "/" + _some(68, _URL)),
    ("discord token", "bot %s", "M" + _some(25) + "." + _some(6) + "." + _some(38)),
    ("google key", "maps %s", "AIza" + _some(35, _URL)),
    ("google oauth token", "%s", "ya29." + _some(80, _URL)),
    ("google oauth secret", "%s", "GOCSPX-" + _some(28, _URL)),
    ("stripe key", "%s", "sk_live_" + _some(24)),
    ("stripe key", "%s", "rk_live_" + _some(24)),
    ("stripe key", "%s", "sk_test_" + _some(24)),
    ("stripe webhook secret", "%s", "whsec_" + _some(32)),
    ("hugging face token", "login with %s", "hf_" + _some(34)),
    ("npm token", "//registry/:_authToken=%s", "npm_" + _some(36)),
    ("pypi token", "%s", "pypi-" + _some(90, _URL)),
    ("sendgrid key", "%s", "SG." + _some(22, _URL) + "." + _some(43, _URL)),
    ("twilio key", "twilio %s", "SK" + _some(32, _HEX)),
    ("telegram token", "bot %s", _some(10, string.digits) + ":AA" + _some(33, _URL)),
    ("mailgun key", "%s", "key-" + _some(32, _HEX)),
    ("mailchimp key", "%s", _some(32, _HEX) + "-us14"),
    ("shopify token", "%s", "shpat_" + _some(32, _HEX)),
    ("square token", "%s", "sq0atp-" + _some(22, _URL)),
    ("digitalocean token", "%s", "dop_v1_" + _some(64, _HEX)),
    ("databricks token", "%s", "dapi" + _some(32, _HEX)),
    ("grafana token", "%s", "glsa_" + _some(32) + "_" + _some(8, _HEX)),
    ("linear key", "%s", "lin_api_" + _some(40)),
    ("notion token", "%s", "ntn_" + _some(46)),
    ("airtable token", "%s", "pat" + _some(14) + "." + _some(64, _HEX)),
    ("groq key", "%s", "gsk_" + _some(52)),
    ("xai key", "%s", "xai-" + _some(80)),
    ("perplexity key", "%s", "pplx-" + _some(48)),
    ("replicate token", "%s", "r8_" + _some(37)),
    ("tavily key", "%s", "tvly-" + _some(32)),
    ("langsmith key", "%s", "lsv2_pt_" + _some(32, _HEX) + "_" + _some(10, _HEX)),
    ("pinecone key", "%s", "pcsk_" + _some(60)),
    ("supabase key", "%s", "sbp_" + _some(40, _HEX)),
    ("vault token", "%s", "hvs." + _some(90, _URL)),
    ("docker token", "%s", "dckr_pat_" + _some(27, _URL)),
    ("atlassian token", "%s", "ATATT3" + _some(180, _URL)),
    ("postman key", "%s", "PMAK-" + _some(24, _HEX) + "-" + _some(34, _HEX)),
    ("new relic key", "%s", "NRAK-" + _some(27, string.ascii_uppercase + string.digits)),
    ("age key", "%s", "AGE-SECRET-KEY-1" + _some(58, string.ascii_uppercase + string.digits)),
    ("azure storage key", "DefaultEndpointsProtocol=https;AccountKey=%s;", _some(86, _ALNUM + "+/") + "=="),
    ("azure signature", "https://x.blob.core.windows.net/c/f?sv=2023&sig=%s", _some(44) + "%3D"),
    ("json web token", "cookie %s", _jwt()),
    ("private key", "%s", _block("RSA ")),
    ("private key", "the key:\n%s\n", _block("OPENSSH ")),
    ("private key", "%s", _block("")),
    ("password in an address", "postgresql://app:%s@db.internal:5432/app", "s3cr" + _some(8)),
    ("password in an address", "redis://:%s@cache:6379/0", "pw" + _some(10)),
    ("password in an address", "https://ann:%s@example.org/x", "Tr0ub4dor&3"),
    ("password", "password=%s", "hunter2" + "Zebra!"),
    ("password", "DB_PASSWORD=%s", "correct4Horse"),
    ("password", 'password: "%s"', "pA55" + "w0rd!x"),
    ("password", "my password is %s.", "Blue$ky" + "2019"),
    ("password", "The wifi password: '%s'", "gar7en" + "Gnome"),
    ("password", '"passwd": "%s"', "q1w2e3" + "R4"),
    ("password", "password = '%s'", "letmein" + "please"),
    ("api key", "api_key: %s", _some(32)),
    ("api key", 'apiKey = "%s"', _some(40, _HEX)),
    ("token", "access_token=%s", _some(40)),
    ("secret", "client_secret: %s", _some(32, _URL)),
    ("secret", "SECRET_KEY = '%s'", _some(50)),
    ("bearer token", "Authorization: Bearer %s", _some(40)),
    ("secret", "here is the secret for staging, %s as agreed", _some(40)),
    ("password", "パスワードは「%s」です", "neko" + "1234!"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "around", "secret"), SECRETS, ids=[f"{n}-{kind}" for n, (kind, _, _) in enumerate(SECRETS)])
def test_a_secret_is_found_whole_and_named(kind: str, around: str, secret: str) -> None:
    text = around.replace("%s", secret)
    found = find_secrets(text)
    assert len(found) == 1, [text[s.start : s.end] for s in found]
    assert text[found[0].start : found[0].end] == secret
    assert found[0].kind == kind


@pytest.mark.parametrize(("kind", "around", "secret"), SECRETS, ids=[str(n) for n in range(len(SECRETS))])
def test_nothing_of_a_redacted_secret_is_left(kind: str, around: str, secret: str) -> None:
    redacted = replace_secrets(around.replace("%s", secret))
    assert redacted == around.replace("%s", f"[redacted: {kind}]")
    assert secret[-8:] not in redacted
    assert replace_secrets(redacted) == redacted


def test_sixty_forms_are_tried() -> None:
    assert len(SECRETS) >= 60


def test_harmless_lines_raise_hardly_any_alarm() -> None:
    lines = BENIGN.read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 300
    alarms = [line for line in lines if find_secrets(line)]
    assert len(alarms) <= len(lines) // 100, alarms


def test_a_whole_harmless_document_raises_hardly_any_alarm() -> None:
    """Lines beside each other must not make each other suspicious."""
    text = BENIGN.read_text(encoding="utf-8")
    assert len(find_secrets(text)) <= len(text.splitlines()) // 100


def test_several_secrets_in_one_text_are_redacted_each_by_its_kind() -> None:
    first, second = "ghp_" + _some(36), "sk-ant-" + _some(40)
    assert replace_secrets(f"a {first} b {second} c") == "a [redacted: github token] b [redacted: anthropic key] c"


def test_braces_in_a_text_are_not_a_format() -> None:
    assert replace_secrets("{0} {password} %s") == "{0} {password} %s"
