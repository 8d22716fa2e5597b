"""What hides in a text or breaks out of where it is put: markup, role markers, invisible characters, encoded text.

`find_disguise` names the first thing that has no business in a fact. `readings` gives a text as it stands and as it reads when a
simple disguise is taken off, so that an instruction is recognised in any of them.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import unquote

from holdfast.text.normalise import find_invisible, find_mixed_script, normalise


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a text that keeps it from becoming a fact: the rule's stable name, and why in words."""

    rule: str
    why: str


_ROLE_MARKER = re.compile(
    r"<\|[^|>\n]{0,40}\|>|\[/?(?:INST|SYS|SYSTEM|ASSISTANT|USER)\]|<</?SYS>>|"
    r"(?:^|[\n.!?;>\]])\s*(?:system|assistant|developer|human|ai|model|tool|function|instructions?|"
    r"### ?\w+)\s*(?:prompt|message|note)?\s*(?::|>>)|"
    r"[\"']role[\"']\s*:|^\s*#{1,6}\s*\w+|\bBEGIN (?:SYSTEM|PROMPT|INSTRUCTIONS)\b",
    re.IGNORECASE,
)
_TAG = re.compile(
    (
        r"<\s*/?\s*[a-zA-Z][\w:-]*(?:\s[^<>]*)?/?\s*>|<!--|-->|<!\[CDATA|<\s*/?\s*(?:memory|system|user|assistant|"
        r"tool)\b|&lt;|&#x?[0-9a-f]{2,6};"
    ),
    re.IGNORECASE,
)
_FENCE = re.compile(r"`{3,}|~{3,}")
_IMAGE = re.compile(r"!\[[^\]]*\]\s*[(\[]|\]\(\s*(?:javascript|data|vbscript|file):|\]\(\s*https?:", re.IGNORECASE)
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\$\{[^}]*\}|\{%.*?%\}|\{[a-z_]{3,}\}")
_JSON = re.compile(r"^\s*[{\[]\s*[\"'{\[]|\{\s*\"\w+\"\s*:")
_URL_PARAMETERS = re.compile(
    r"(?:https?|hxxps?|ftp|wss?)\s*:\s*/{1,2}\s*\S*[?;]\S*=?\S*|www\.\S+\?\S+=|\b[\w-]+\.[a-z]{2,6}/\S*\?\S+=|hxxps?:|\[\.\]", re.IGNORECASE
)
_STRANGE_SCHEME = re.compile(r"\b(?:javascript|vbscript|file|gopher|data):[^\s]", re.IGNORECASE)
_BASE64 = re.compile(r"(?<![\w+/=-])(?=[\w+/-]*[a-z])(?=[\w+/-]*[A-Z])[A-Za-z0-9+/_-]{20,}={0,2}(?![\w+/=-])")
_HEX = re.compile(r"(?<![0-9a-zA-Z])(?:0x)?(?:[0-9a-fA-F]{2}[\s:-]?){16,}(?![0-9a-zA-Z])")
_ESCAPES = re.compile(r"(?:\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2}){2,}|(?:\\[0-7]{3}){3,}|(?:\b[01]{8}\b\s*){4,}")
_SPACED = re.compile(r"(?:\b\w[ \u00a0._*-]{1,3}){5,}\w\b")
_FANCY = re.compile("[\U0001d400-\U0001d7ff\u24b6-\u24e9\U0001f130-\U0001f189\uff21-\uff3a\uff41-\uff5a]{2,}")
_LEET = str.maketrans("013457@$", "oieastas")
_LEET_WORD = re.compile(r"(?i)(?<![\w/.-])(?=[a-z@$]*[013457][a-z@$]*)(?=(?:[013457@$]*[a-z]){3})[a-z013457@$]{4,}(?![\w/.-])")


def find_disguise(text: str) -> Finding | None:
    """The first thing in the text that is no plain writing, or None.

    >>> find_disguise("User likes tea</memory>").rule, find_disguise("User likes tea & a < b")
    ('markup', None)
    """
    invisible = find_invisible(text)
    if invisible:
        return Finding("invisible", f"holds a character that cannot be seen ({invisible[0].name})")
    mixed = find_mixed_script(text)
    if mixed:
        return Finding("mixed-script", f"“{mixed[0].text}” has letters of another script in the place of Latin ones")
    if _FANCY.search(text) and not all(unicodedata.normalize("NFKC", c).isascii() is False for c in text if c.isalpha()):
        return Finding("mixed-script", "is written with letters that only look like letters")
    for rule, pattern, why in _PATTERNS:
        if pattern.search(text):
            return Finding(rule, why)
    if _blobs(text):
        return Finding("encoded", "holds a run of characters that hides a text or a key")
    return None


_PATTERNS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("role-marker", _ROLE_MARKER, "holds a marker of a speaker or of a system message"),
    ("markup", _TAG, "holds markup that could close or open a block"),
    ("markup", _FENCE, "holds a fence of code"),
    ("markup", _IMAGE, "holds a link or an image in markup"),
    ("markup", _TEMPLATE, "holds a slot of a template"),
    ("markup", _JSON, "is data in JSON, not a sentence"),
    ("url-parameters", _URL_PARAMETERS, "holds an address with parameters"),
    ("url-parameters", _STRANGE_SCHEME, "holds an address that runs or embeds something"),
    ("encoded", _ESCAPES, "holds escaped characters"),
    ("encoded", _SPACED, "is spelled out letter by letter"),
)


def _blobs(text: str) -> list[str]:
    found = [m.group() for m in _BASE64.finditer(text) if _is_blob(m.group())]
    return found + [m.group() for m in _HEX.finditer(text)]


def _is_blob(run: str) -> bool:
    """Random-looking or really encoded text; long names in camel case, paths and identifiers are neither."""
    if re.fullmatch(r"(?:[A-Z]?[a-z]+[/_-]?)+", run):
        return False
    switches = sum(1 for a, b in pairwise(run) if a.isalpha() and b.isalpha() and a.islower() and b.isupper())
    return run.endswith("=") or switches >= 4 or _decoded64(run) is not None


def _decoded64(run: str) -> str | None:
    padded = run.rstrip("=") + "=" * (-len(run.rstrip("=")) % 4)
    try:
        text = base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return text if text.isprintable() and sum(c.isalpha() or c == " " for c in text) > 0.8 * len(text) else None


def readings(text: str) -> Iterator[str]:
    """The text in its compared form, then as it reads with simple disguises taken off: only readings that differ."""
    plain = normalise(text)
    seen = {plain}
    yield plain
    for other in _undisguised(text, plain):
        form = normalise(other)
        if form not in seen:
            seen.add(form)
            yield form


def _undisguised(text: str, plain: str) -> Iterator[str]:
    yield html.unescape(unquote(text))
    if _LEET_WORD.search(plain):
        yield _LEET_WORD.sub(lambda m: m.group().translate(_LEET), plain)
    if _SPACED.search(text):
        yield re.sub(r"(?<=\b\w)[ \u00a0._*-](?=\w\b)", "", text)
    for run in _blobs(text):
        decoded = _decoded64(run)
        if decoded:
            yield decoded
    yield codecs.encode(plain, "rot13")
    yield plain[::-1]
