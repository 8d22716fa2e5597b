"""Secrets are never shown: the one redactor of logs, errors and settings; by the name of a setting, by the words around, by the form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_SLIPS = re.compile(r"[^\w\s.-]+")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = frozenset(
    {"password", "passwords", "passwd", "passphrase", "pwd", "secret", "secrets", "credential", "credentials"}
    | {"authorization", "auth", "apikey", "cookie", "bearer", "privatekey"}
)
_SECRET_ENDS = frozenset({"token", "key", "keys", "signature"})

# All of these are linear in the text: what repeats is bounded or is consumed, and nothing begins with a repetition.
_ADDRESS = re.compile(r"://[^\s:/?#@]{0,256}:(?P<value>\S{0,512})@")  # up to the last @: a password may hold @, / and :
_USER = re.compile(r"https?://(?P<value>[^\s:/?#@]{1,256})@")
_NAMED = re.compile(
    r"(?i)(?:(?P<word>pass(?:word|wd|phrase|wort)|pwd|secret|api[_-]?key|credential)|(?<![a-z0-9])(?:token|key)|(?<=[_-])(?:token|key))s?"
    r"[\"']?\s{0,4}(?P<sign>[=:])(?P<gap>\s{0,4})(?P<value>'[^'\n]{0,512}'|\"[^\"\n]{0,512}\"|`*[^\s&;,\"'`]+(?:`+[^\s&;,\"'`]+)*)"
)
_HEADER = re.compile(r"(?i)\b(?:bearer|basic)\s{1,4}(?P<value>(?=[\w.~+/=-]{0,256}[\d=])[\w.~+/=-]{6,})")
_SERVICE = re.compile(
    r"\b(?P<value>(?:sk|pk|rk|tp)-[\w-]{8,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|xox[abprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|hf_\w{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_FORMED = re.compile(r"[A-Za-z0-9_+/=-]{16}|-----BEGIN|(?i:pass|密码|パスワード|contraseña)")
_COUNT = re.compile(r"[\d.,]{1,7}")
_VARIABLE = re.compile(r"\$\{?[A-Z][A-Z0-9_]*\}?(?!\w)")
_PLAIN_WORD = re.compile(r"[a-z]+")
_PATH = re.compile(r"(?<![\w.:/<])(?:~|\.{1,2})?/(?!mnt/)[^\s'\"`,;:()\[\]]+")


def is_secret_key(name: object) -> bool:
    """Whether a setting of this name holds a secret. `max_tokens` and `token_counter` do not. A slip of the key within a word hides none.

    >>> [is_secret_key(name) for name in ("api_key", "OPENAI_API_KEY", "clientSecret", "client_s*ecret", "max_tokens", "token_counter")]
    [True, True, True, True, False, False]
    """
    for form in dict.fromkeys((str(name), _SLIPS.sub("", str(name)))):
        words = [word.lower() for word in _WORDS.findall(form)]
        if words and (words[-1] in _SECRET_ENDS or not _SECRET_WORDS.isdisjoint(words)):
            return True
    return False


def redact_text(text: str) -> str:
    """The text with passwords, tokens and keys in it replaced; for logs and errors, where hiding too much is better than too little.

    >>> redact_text("postgresql://ada:s3cret@localhost/db")
    'postgresql://ada:***@localhost/db'
    """
    spans = [match.span("value") for pattern in (_ADDRESS, _USER, _HEADER, _SERVICE) for match in pattern.finditer(text)]
    spans += [match.span("value") for match in _NAMED.finditer(text) if _is_value(match, text)]
    if _FORMED.search(text):
        from holdfast.secret_forms import find_secrets  # compiles many patterns, and most texts have nothing of the kind

        spans += [(secret.start, secret.end) for secret in find_secrets(text)]
    return _hidden(text, spans) if spans else text


def _is_value(match: re.Match[str], text: str) -> bool:
    """Not the name of a variable, not a number of tokens, and not a sentence that goes on behind `api_key: `."""
    value = match["value"]
    if _VARIABLE.match(value):
        return False
    if not match["word"] and _COUNT.fullmatch(value):
        return False
    told = match["sign"] == ":" and match["gap"] and _PLAIN_WORD.fullmatch(value)
    return not told or not text[match.end() : match.end() + 2].strip()


def _hidden(text: str, spans: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in sorted(spans):
        if start > at or not pieces:
            pieces += (text[at:start], HIDDEN)
        at = max(at, end)
    return "".join((*pieces, text[at:]))


def without_paths(text: str) -> str:
    """The text without paths of this machine; those inside of a sandbox, below /mnt, stay.

    >>> without_paths("cannot read /home/ada/.holdfast/memory.json: no permission")
    'cannot read ...: no permission'
    """
    return _PATH.sub("...", text)


def visible(text: str) -> str:
    """The text without characters that command a terminal or steer a reader's eye.

    >>> visible("done\\x1b[2J")
    'done\ufffd[2J'
    """
    return text if text.isprintable() else "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in text)


def visible_json(text: str) -> str:
    """JSON with every character that nobody sees written as an escape: for a program the same value, for a terminal no command."""
    return text if text.isprintable() else "".join(one if one.isprintable() or one in "\n\t" else _escape(one) for one in text)


def _escape(sign: str) -> str:
    code = ord(sign)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


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
