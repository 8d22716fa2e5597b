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

from holdfast.memory.word_lists import word_lists
from holdfast.text.normalise import find_invisible, find_mixed_script, normalise


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a text that keeps it from becoming a fact: the rule's stable name, and why in words."""

    rule: str
    why: str


_BASE64 = re.compile(r"(?<![\w+/=-])(?=[\w+/-]*[a-z])(?=[\w+/-]*[A-Z])[A-Za-z0-9+/_-]{20,}={0,2}(?![\w+/=-])")
_HEX = re.compile(r"(?<![0-9a-zA-Z])(?:0x)?(?:[0-9a-fA-F]{2}[\s:-]?){16,}(?![0-9a-zA-Z])")
_SPACED = re.compile(r"(?:\b\w[ \u00a0._*-]{1,3}){5,}\w\b")
_FANCY = re.compile("[\U0001d400-\U0001d7ff\u24b6-\u24e9\U0001f130-\U0001f189\uff21-\uff3a\uff41-\uff5a]{2,}")
_LEET = str.maketrans("013457@$", "oieastas")
_LEET_WORD = re.compile(r"(?i)(?<![\w/.-])(?=[a-z@$]*[013457][a-z@$]*)(?=(?:[013457@$]*[a-z]){3})[a-z013457@$]{4,}(?![\w/.-])")
_LISTS = word_lists("disguises")
_PATTERNS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    *(
        (one["rule"], _LISTS.compiled(one["form"], re.IGNORECASE if one.get("ignore_case") else re.NOFLAG), one["why"])
        for one in _LISTS.tables["disguises"]
    ),
    ("encoded", _SPACED, "is spelled out letter by letter"),
)


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
