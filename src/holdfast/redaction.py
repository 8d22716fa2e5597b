"""Secrets are never shown: keys, tokens and passwords by the name of their setting, and passwords inside addresses by their form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = frozenset(
    {"password", "passwords", "passwd", "passphrase", "pwd", "secret", "secrets", "credential", "credentials"}
    | {"authorization", "auth", "apikey", "cookie", "bearer", "privatekey"}
)
_SECRET_ENDS = frozenset({"token", "key", "keys", "signature"})

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # scheme://user:password@host: up to the last @ of the word, because a password may hold @, / and :
    (re.compile(r"(\w[\w+.-]*://[^\s:/?#@]*):[^\s]*@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"(https?://)[^\s:/?#@]+@"), rf"\1{HIDDEN}@"),
    # password=... in a connection string or a query, api_key: ... in prose
    (
        re.compile(
            r"(?i)\b((?:[\w-]*(?:password|passwd|passphrase|secret|apikey|credential)|(?:[\w-]+[_-])?(?:token|key))s?\s*[=:]\s*)('[^']*'|\"[^\"]*\"|[^\s&;,]+)"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    # what the big services give out
    (
        re.compile(
            r"\b(?:sk|pk|rk|tp)-[\w-]{8,}|\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}|\bxox[abprs]-[\w-]{8,}|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\bhf_\w{16,}"
        ),
        HIDDEN,
    ),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
)


def is_secret_key(name: object) -> bool:
    """Whether a setting of this name holds a secret. `max_tokens` and `token_counter` do not.

    >>> [is_secret_key(name) for name in ("api_key", "OPENAI_API_KEY", "clientSecret", "max_tokens", "token_counter")]
    [True, True, True, False, False]
    """
    words = [word.lower() for word in _WORDS.findall(str(name))]
    return bool(words) and (words[-1] in _SECRET_ENDS or not _SECRET_WORDS.isdisjoint(words))


def redact_text(text: str) -> str:
    """The text with passwords, tokens and keys in it replaced.

    >>> redact_text("postgresql://ada:s3cret@localhost/db")
    'postgresql://ada:***@localhost/db'
    """
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def redact(value: Any, key: object = "") -> Any:
    """The value as it may be shown: everything under a secret key is hidden, and every text is cleaned."""
    if value is not None and not isinstance(value, bool) and is_secret_key(key):
        return HIDDEN
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {name: redact(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value
