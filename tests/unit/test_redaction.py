"""The one redactor: what it hides, what it leaves readable, and that it is linear (C3, O2)."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from holdfast.config.sections import ModelConfig
from holdfast.errors import ConfigError, HoldfastError, StorageError
from holdfast.models.factory import entry_of
from holdfast.redaction import HIDDEN, redact_text, shown_address

_GITLAB = "glpat-" + "x7Qm2Lk9Zr4Tn8Vb1Wc3"
_STRIPE = "sk_live_" + "51Hq8Jk2Lm9Np4Rs7Tv0Wx3Z"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgresql://ada:s3c/r@t@localhost/db", "s3c/r@t"),
        ("https://ghost@example.org/x", "ghost"),
        ("password=sunflower&x=1", "sunflower"),
        ("password: correct-horse-battery", "correct-horse-battery"),
        ("the password: sunflower", "sunflower"),
        ("db_password = 'two words'", "two words"),
        ('{"api_key": "abc"}', "abc"),
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
        (f"could not clone with {_GITLAB}", _GITLAB),
        (f"the charge failed for {_STRIPE}.", _STRIPE),
        ("npm said npm_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8", "A1b2C3d4E5f6"),
        ("OPENAI_API_KEY=sk-short-but-real", "sk-short-but-real"),
        ("password=`sun`flower`", "flower"),
        ("Das Kennwort lautet blau7kraut", "blau7kraut"),
        ("La contraseña es verde7hoja", "verde7hoja"),
        ("Le mot de passe est vert7feuille", "vert7feuille"),
        ("A senha é azul7folha", "azul7folha"),
        ("пароль: sinij7list", "sinij7list"),
        ("密码是lan7yezi", "lan7yezi"),
        ("パスワードはao7happa", "ao7happa"),
        ("sent Cookie: sid=a1b2c3; theme=dark", "a1b2c3"),
        ("{'Set-Cookie': 'sid=a1b2c3; Path=/'}", "a1b2c3"),
    ],
)
def test_a_secret_is_hidden_in_every_wording(text: str, secret: str) -> None:
    """C3: one table of forms for logs, errors and sessions."""
    assert secret not in redact_text(text)
    assert HIDDEN in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "models[0].api_key: the environment variable OPENAI_API_KEY is not set.",
        "summarization.token_counter: no such function",
        "max_tokens: 4096, tokens = 12",
        "[SummarizationMiddleware] Token count: 6144 / 8192 (75%)",
        "a basic understanding of bearer bonds",
        "see https://example.org/docs?page=2#top",
        "key: value pairs are read in order",
        "a cookie: small, sweet and round",
        "La contraseña es obligatoria",
        "Set `api_key: $BRAVE_API_KEY`, or password=${DB_PASSWORD}.",
        "Type `export OPENAI_API_KEY=***` once.",
    ],
)
def test_a_sentence_about_a_secret_stays_readable(text: str) -> None:
    """C3: an error that names a setting says all of its words."""
    assert redact_text(text) == text


def test_every_error_hides_secrets_when_it_is_shown() -> None:
    """C3: whoever raised it, and whatever he put into it."""
    for error in (
        HoldfastError(f"the server said {_GITLAB}"),
        StorageError("no", hint="Try postgresql://ada:s3cret@host/db"),
        ConfigError("bad", file="c.yaml", key="models[0].api_key", hint=_STRIPE),
    ):
        assert not {_GITLAB, "s3cret", _STRIPE} & set(str(error).replace("@", " ").replace(":", " ").split())
        assert HIDDEN in str(error)


def test_a_log_record_of_any_logger_of_ours_hides_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """C3, O2: also of a message that no event made."""
    from holdfast.events import JsonLines, PlainLines

    record = logging.LogRecord("holdfast.X", logging.INFO, __file__, 1, "called with %s", (_GITLAB,), None)
    for formatter in (PlainLines(), JsonLines()):
        assert _GITLAB not in formatter.format(record)


def _steps(call: Any) -> int:
    """How many lines of Python ran: a measure of work that no busy machine changes."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("piece", ["密", "sk-", "a://", "x://y:", "password", "token=", "'", "eyJ", "key: a ", "key=`", "-----BEGIN "])
def test_the_work_grows_with_the_text_and_not_faster(piece: str) -> None:
    """O2: 200,000 characters of anything end: a quadratic pattern would need an hour, and the suite's time limit holds it."""
    text = piece * (200_000 // len(piece))
    assert len(redact_text(text)) <= len(text) + 3
    small, large = (_steps(lambda n=n: redact_text(piece * n)) for n in (200, 2000))
    assert large <= small * 12 + 100


ADDRESSES = [
    "http://ada:Zq9hunterSecret77@127.0.0.1:9/v1?api_key=Zq9hunterSecret77",
    "https://Zq9hunterSecret77@models.example/v1",
    "https://models.example/v1?api-version=3&sig=Zq9hunterSecret77",
    "https://models.example/v1?subscription-key=Zq9hunterSecret77#access_token=Zq9hunterSecret77",
    "https://ada:p/Zq9hunterSecret77@models.example/v1",
    "https://models.example/v1?X-Amz-Signature=Zq9hunterSecret77&code=Zq9hunterSecret77",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_shown_without_who_asks_and_what_his_key_is(address: str) -> None:
    """C3: whatever the key is called, in the address of a model and in any text."""
    assert "Zq9" not in shown_address(address)
    assert "Zq9" not in redact_text(f"the server at {address} does not answer")
    model = ModelConfig.model_validate({"name": "m", "use": "langchain_openai:ChatOpenAI", "model": "gpt", "base_url": address})
    assert "Zq9" not in str(entry_of(model))


def test_an_address_without_secrets_is_shown_as_it_is() -> None:
    for address in ("http://127.0.0.1:11434/v1", "https://models.example/v1?api-version=2024-05-01&tenant=a", "https://h/@cf/x?q=1"):
        assert shown_address(address) == address == redact_text(address)
