"""Secrets in a text: keys with a known form, private keys, passwords in addresses and assignments, strings that look random.

A known form is enough; anything else needs a telling word beside it and has to look random. Hashes, identifiers, images,
placeholders and names of variables are not secrets.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret's kind and place. Its text is not kept, so that it is not stored or printed by accident."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Form:
    """A known form. It can match only where one of the `hints` (lower case) is; group 1, where there is one, is the secret."""

    kind: str
    hints: tuple[str, ...]
    expression: str
    random: bool = True  # the part after the prefix must look random, or it is an example

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when one of the hints is met for the first time: most programs never see most of the forms."""
        return _compiled(self.expression)


_compiled = cache(re.compile)


# Nothing of a word may come after; what comes before is looked at in `_known`, because a pattern that begins with a literal is quick.
_END = r"(?![A-Za-z0-9_-])"
_LISTS = tomllib.loads(resources.files("holdfast").joinpath("lists/secrets.toml").read_text(encoding="utf-8"))
_FORMS = tuple(
    _Form(form["kind"], tuple(form["hints"]), form["form"] + (_END if form.get("whole") else ""), form.get("random", True))
    for form in _LISTS["forms"]
)

_URL_PASSWORD = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,80}:([^\s/@\"'<>]{3,128})@[^\s/@]")
_BEARER = re.compile(r"(?i)\b(?:bearer|authorization:\s{0,3}(?:token|basic)|x-api-key:)\s{1,3}([A-Za-z0-9._~+/=-]{16,})")
# The telling words, in lower case, and what has to follow them. Two steps, because the first is quick and rarely succeeds.
_KEYWORD = re.compile(
    r"pass(?:word|wort|wd|phrase|code)|kennwort|mot de passe|contraseña|密码|パスワード|pwd"
    r"|api[- ]?(?:schlüssel|密钥|密鑰|キー)|clé d'api|clave de api|密钥"
    r"|secret(?:[_ -]?(?:access[_ -]?)?key)?|api[_ -]?(?:key|token|secret)|access[_ -]?(?:key|token)"
    r"|auth[_ -]?(?:key|token)|client[_ -]?secret|(?:private|encryption|signing)[_ -]?key|token|credentials?"
)
_ASSIGNED = re.compile(
    r"(?:[_-][A-Za-z0-9]{1,12}){0,2}(?P<q>[\"']?)\s{0,4}(?P<sign>:=|=>|==?|:|：|\b[iI][sS]\b:?|\b(?:was|ist|lautet|es|est)\b|是|为|は)\s{0,4}"
    r"(?P<open>[\"'`]?)(?P<value>[^\s\"'`,;<>「」『』“”，。、]{4,200})"
)
_SPOKEN = frozenset(("is", "is:", "was", "ist", "lautet", "es", "est", "是", "为", "は", "："))
_QUOTED_PASSWORD = re.compile(
    r"(?i)(?:\b(?:password|passwort|passphrase)\b|mot de passe|contraseña|密码|パスワード)\s{0,3}"
    r"(?:is|was|ist|est|es|:|=|：|は|是|为)?\s{0,3}[\"'“「]([^\"'”」\s]{4,64})[\"'”」]"
)
_STRING = re.compile(r"(?<![A-Za-z0-9+/=_.-])[A-Za-z0-9+/_-]{20,120}={0,2}(?![A-Za-z0-9+/=_-])")

# A card has 13 to 19 digits, in groups of four or in one run, and begins with 2 to 6; of an account the length depends on the country.
_DIGITS = re.compile(r"\d{2}[ -]?[\dA-Z]{2}[ -]?\d")
_CARD = re.compile(
    r"(?<![\w.-])(?:[3-6]\d{12,18}|2[2-7]\d{14}|[2-6]\d{3}(?:[ -]\d{4}){2}[ -]\d{1,7}|3\d{3}[ -]\d{6}[ -]\d{5})(?![\w-])", re.ASCII
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")

_UUID = re.compile(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PUBLIC = re.compile(r"(?:sha\d{1,3}|md5)[:-].*|v?\d+(?:[.:/-]\d+)+\w*|\d+(?:\.\d+)?[a-z%]{0,4}", re.IGNORECASE)
_HEX = re.compile(r"(?i)(?:0x)?[0-9a-f]+")
_MARKED = re.compile(r"[<\[{(%$#*].*|.*[>\]})]|.*(?:\$\{|\{\{|\*{3}|…|\.{3}).*|x{3,}.*|.*x{6,}.*", re.IGNORECASE | re.DOTALL)
_SAYS_SO = re.compile(
    r"(?:your|my|the|an?|some|any|this|that|our|new|old)[-_ ].*"
    r"|.*(?:example|placeholder|change[-_]?me|dummy|sample|redacted|removed|hidden|insert|replace|goes[-_]here|your[-_]|todo|fixme|fake"
    r"|not[-_]?(?:a[-_])?real).*",
    re.IGNORECASE | re.DOTALL,
)
_PLAIN_VALUES = frozenset(_LISTS["plain"]["values"].split())
_CODE = re.compile(
    r"[A-Za-z_][\w.]*(?:\(.*|\[.*|\..*)|[A-Z][A-Z0-9_]+|[a-z]+(?:_[a-z]+)+|[a-z]+(?:[A-Z][a-z]+)+|(?:\.{0,2}|~)/.*|https?://.*", re.DOTALL
)


def find_secrets(text: str) -> list[Secret]:
    """All secrets of a text in order, never overlapping.

    >>> [found.kind for found in find_secrets("DB_PASSWORD=hunter2-Zebra! # set by hand")]
    ['password']
    """
    found: list[Secret] = []
    lowered = _lowered(text)
    for form in _FORMS:
        for hint in form.hints:  # no generator: this is done for every text that is kept or told
            if hint in lowered:
                found.extend(_known(form, text))
                break
    if "://" in text:
        found.extend(_matched(_URL_PASSWORD, "password in an address", text))
    words = list(_KEYWORD.finditer(lowered))
    found.extend(_assigned(text, words))
    if words:
        found.extend(_matched(_QUOTED_PASSWORD, "password", text))
        found.extend(_random_nearby(text, words))
    if _DIGITS.search(text):
        found.extend(_numbers(text))
    if "bearer" in lowered or "authorization" in lowered or "x-api-key" in lowered:
        found.extend(_bearer(text))
    return _without_overlaps(found)


def _numbers(text: str) -> Iterator[Secret]:
    """Cards and bank accounts whose check digits are right."""
    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match.group())
        if sum(sum(divmod(int(digit) * (1 + place % 2), 10)) for place, digit in enumerate(reversed(digits))) % 10 == 0:
            yield Secret("card number", *match.span())
    for match in _IBAN.finditer(text):
        bare = match.group().replace(" ", "")
        if int("".join(str(int(c, 36)) for c in bare[4:] + bare[:4])) % 97 == 1:
            yield Secret("bank account", *match.span())


def replace_secrets(text: str) -> str:
    """The text with every secret replaced by its kind: `[redacted: openai key]`."""
    pieces: list[str] = []
    at = 0
    for secret in find_secrets(text):
        pieces += (text[at : secret.start], f"[redacted: {secret.kind}]")
        at = secret.end
    return "".join((*pieces, text[at:]))


def _is_placeholder(value: str) -> bool:
    return value.lower().strip(".,:;!?)") in _PLAIN_VALUES or bool(_MARKED.fullmatch(value) or _SAYS_SO.fullmatch(value))


def _known(form: _Form, text: str) -> Iterator[Secret]:
    pattern = form.pattern
    for match in pattern.finditer(text):
        start, end = match.span(1) if pattern.groups else match.span()
        if not pattern.groups and start and text[start - 1].isascii() and (text[start - 1].isalnum() or text[start - 1] in "_-"):
            continue  # the tail of something longer
        if not form.random or _looks_random(text[start:end]):
            yield Secret(form.kind, start, end)


def _matched(pattern: re.Pattern[str], kind: str, text: str) -> Iterator[Secret]:
    for match in pattern.finditer(text):
        if not _is_placeholder(match[1]) and not re.fullmatch(r"[A-Z_]+|\$\w+", match[1]):
            yield Secret(kind, *match.span(1))


def _lowered(text: str) -> str:
    """Lower case, every character at its place: a few letters of the world grow when they are lowered."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c.lower() if c.isascii() else c for c in text)


def _assigned(text: str, words: list[re.Match[str]]) -> Iterator[Secret]:
    """`password = ...`, `api_key: ...`, "the password is ..."; what was assigned ends where the next assignment begins."""
    end = len(text)
    for word in reversed(words):
        if word.start() and text[word.start() - 1].isalpha() and not text[word.start()].isupper():
            continue  # inside another word; `dbPassword` is two
        match = _ASSIGNED.match(text, word.end(), end)
        if match and match["sign"] in ("=", ":=", ":"):
            end = word.start()
        value = _value(match) if match else ""
        if match and value and _is_secret_value(word.group(), match, value):
            yield Secret(_kind(word.group()), match.start("value"), match.start("value") + len(value))


def _bearer(text: str) -> Iterator[Secret]:
    for match in _BEARER.finditer(text):
        if _looks_random(match[1]) and not _is_placeholder(match[1]):
            yield Secret("bearer token", *match.span(1))


def _value(match: re.Match[str]) -> str:
    """What was assigned, without what closes the sentence or the call; a mark after `=` may belong to it."""
    value = match["value"]
    if match["open"]:
        return value
    return value.rstrip(")]}") if match["sign"] in ("=", ":=") else value.rstrip(".,;:)?]}")


def _kind(word: str) -> str:
    plain = re.sub(r"[_ -]", "", word.lower())
    if plain.startswith("pass") or plain == "pwd":
        return "password"
    return "api key" if plain.startswith("api") else "token" if plain.endswith("token") else "secret"


def _is_secret_value(word: str, match: re.Match[str], value: str) -> bool:
    if _is_placeholder(value) or _CODE.fullmatch(value) or _is_identifier(value):
        return False
    spoken = match["sign"].lower() in _SPOKEN or (match["sign"] == ":" and not match["q"])
    if _kind(word) == "password":
        quoted = bool(match["open"]) or not spoken
        return _mixed(value) or (quoted and match["sign"] != ":" and len(value) >= 6 and match["sign"] not in ("==",))
    if word.endswith("token") and value.isdigit():  # "tokens: 4096" counts, "token = 12" too
        return False
    return len(value) >= 12 and _mixed(value) and _looks_random(value)


def _mixed(value: str) -> bool:
    """Letters with digits or marks among them, as people are made to choose passwords; not a plain word."""
    letters, digits = any(c.isalpha() for c in value), any(c.isdigit() for c in value)
    marks = any(not c.isalnum() and c not in "-_./:" for c in value)
    return len(value) >= 6 and ((letters and digits) or (letters and marks) or (digits and marks and len(value) >= 8))


def _is_identifier(value: str) -> bool:
    """Things that look random and are public: identifiers, hashes of content, versions, dates, sizes, paths."""
    bare = value.strip("\"'`")
    return bool(_UUID.fullmatch(bare) or _PUBLIC.fullmatch(bare))


def _random_nearby(text: str, words: list[re.Match[str]]) -> Iterator[Secret]:
    """Random strings in a line that speaks of a secret."""
    end = -1
    for word in words:
        if word.start() < end:
            continue
        start = text.rfind("\n", 0, word.start()) + 1
        end = text.find("\n", word.end())
        line = text[start : end if end >= 0 else len(text)]
        end = start + len(line)
        if "data:image" in line:
            continue
        for match in _STRING.finditer(line):
            if _is_random_secret(match.group(), line[max(0, match.start() - 40) : match.start()]):
                yield Secret("secret", start + match.start(), start + match.end())


def _is_random_secret(value: str, before: str) -> bool:
    if _UUID.search(value) or _is_placeholder(value) or value.count("/") > 2:
        return False
    if _HEX.fullmatch(value):  # hashes are everywhere: a secret only right after the telling word
        return len(value) >= 32 and re.search(r"(?i)(?:secret|token|key|password)[\"']?\s*(?:[:=]|is)?\s*[\"']?$", before) is not None
    kinds = sum((any(c.islower() for c in value), any(c.isupper() for c in value), any(c.isdigit() for c in value)))
    return kinds == 3 and _entropy(value) >= 3.7 and not re.search(r"[a-z]{7,}", value)


def _looks_random(value: str) -> bool:
    """Not an example: letters vary, no long run of one letter, no row of the alphabet, no word that says so."""
    body = re.sub(r"^[A-Za-z0-9]{2,8}[-_.](?:[A-Za-z]{2,8}[-_])?", "", value)
    body = body if len(body) >= 8 else value
    if _is_placeholder(body) or re.search(r"(?i)(.)\1{5,}|abcdefgh|01234567|12345678|example|placeholder|your[-_]?|dummy|redacted", body):
        return False
    return any(c.isdigit() for c in body) and _entropy(body) >= 2.7 if len(body) < 60 else _entropy(body) >= 2.7


def _entropy(value: str) -> float:
    """Bits a character, by the characters' own frequencies."""
    counted = Counter(value)
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counted.values())


def _without_overlaps(found: list[Secret]) -> list[Secret]:
    """The first of overlapping finds stays; at the same place the one that was found first, which is the better known form."""
    order = {id(secret): number for number, secret in enumerate(found)}
    kept: list[Secret] = []
    for secret in sorted(found, key=lambda s: (s.start, order[id(s)])):
        if not kept or secret.start >= kept[-1].end:
            kept.append(secret)
        elif secret.end > kept[-1].end:  # a longer find at an overlapping place: nothing of it may stay in sight
            kept[-1] = Secret(kept[-1].kind, kept[-1].start, secret.end)
    return kept
