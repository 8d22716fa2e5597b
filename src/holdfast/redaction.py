"""Secrets are never shown: the one redactor of logs, errors and settings, and what a secret in a text looks like.

By the name of a setting, by the words around, by the form: keys with a known form, private keys, passwords in addresses and assignments,
strings that look random. A known form is enough; anything else needs a telling word beside it and has to look random. Hashes,
identifiers, images, placeholders and names of variables are not secrets.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


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
    r"pass(?:word|wort|wd|phrase|code)|kennwort|mot de passe|contraseña|senha|пароль|密码|密碼|パスワード|pwd"
    r"|api[- ]?(?:schlüssel|密钥|密鑰|キー)|clé d'api|clave de api|密钥"
    r"|secret(?:[_ -]?(?:access[_ -]?)?key)?|api[_ -]?(?:key|token|secret)|access[_ -]?(?:key|token)"
    r"|auth[_ -]?(?:key|token)|client[_ -]?secret|(?:private|encryption|signing)[_ -]?key|token|credentials?"
)
_ASSIGNED = re.compile(
    r"(?:[_-][A-Za-z0-9]{1,12}){0,2}(?P<q>[\"']?)\s{0,4}(?P<sign>:=|=>|==?|:|：|\b[iI][sS]\b:?|\b(?:was|ist|lautet|es|est|è|é)\b|—|是|为|為|は)\s{0,4}"
    r"(?P<open>[\"'`]?)(?P<value>[^\s\"'`,;<>「」『』“”，。、]{4,200})"
)
_SPOKEN = frozenset(("is", "is:", "was", "ist", "lautet", "es", "est", "è", "é", "—", "是", "为", "為", "は", "："))
_PASSWORDS = frozenset(("pwd", "kennwort", "motdepasse", "contraseña", "senha", "пароль", "密码", "密碼", "パスワード"))
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
    if plain.startswith("pass") or plain in _PASSWORDS:
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
_ASKER = re.compile(r"(?<=:)//(?!\*\*\*@)[^\s/?#]{1,1024}@")
_QUERY = re.compile(r"[?&;#](?P<name>[^\s=&;#?]{1,64})=(?P<value>[^\s&;#\"'`]+)")
_NAMED = re.compile(
    r"(?i)(?:(?P<word>pass(?:word|wd|phrase|wort)|pwd|secret|api[_-]?key|credential)|(?<![a-z0-9])(?:token|key)|(?<=[_-])(?:token|key))s?"
    r"[\"']?\s{0,4}(?P<sign>[=:])(?P<gap>\s{0,4})(?P<value>'[^'\n]{0,512}'|\"[^\"\n]{0,512}\"|`*[^\s&;,\"'`]+(?:`+[^\s&;,\"'`]+)*)"
)
_HEADER = re.compile(r"(?i)\b(?:bearer|basic)\s{1,4}(?P<value>(?=[\w.~+/=-]{0,256}[\d=])[\w.~+/=-]{6,})")
_SERVICE = re.compile(
    r"\b(?P<value>(?:sk|pk|rk|tp)-[\w-]{8,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|xox[abprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|hf_\w{16,}"
    r"|eyJ[\w-]{8,4096}\.[\w-]{8,}\.[\w-]*)"
)
_COOKIE = re.compile(r"(?i)\bcookie[\"']?\s{0,4}:\s{0,4}[\"']?(?P<value>[\w.-]{1,64}=[^\r\n\"']{1,4096})")
_FORMED = re.compile(r"[A-Za-z0-9_+/=-]{16}|-----BEGIN|(?i:pass|密码|密碼|パスワード|contraseña|senha|пароль|kennwort)")
_COUNT = re.compile(r"[\d.,]{1,7}")
_VARIABLE = re.compile(r"\$\{?[A-Z][A-Z0-9_]*\}?(?!\w)")
_PLAIN_WORD = re.compile(r"[a-z]+")
_PATH = re.compile(r"(?<![\w.:/<])(?:~|\.{1,2})?/(?!mnt/|api/v1/|v1/)[^\s'\"`,;:()\[\]]+")


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
    spans = [match.span("value") for pattern in (_ADDRESS, _USER, _HEADER, _COOKIE, _SERVICE) for match in pattern.finditer(text)]
    spans += [match.span("value") for match in _NAMED.finditer(text) if _is_value(match, text)]
    if "://" in text:
        spans += [match.span("value") for match in _QUERY.finditer(text) if _is_secret_part(match["name"])]
    if _FORMED.search(text):
        spans += [(secret.start, secret.end) for secret in find_secrets(text)]
    return _hidden(text, spans) if spans else text


def shown_address(address: str) -> str:
    """An address as it may be shown: without who asks there, and without what a key is called in its query.

    >>> shown_address("https://ada:s3cret@models.example/v1?api-version=3&sig=a1b2c3")
    'https://***@models.example/v1?api-version=3&sig=***'
    """
    return redact_text(_ASKER.sub("//***@", address))


def _is_secret_part(name: str) -> bool:
    return name.lower() in ("sig", "code", "pass") or is_secret_key(name)


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
    """The text without paths of this machine; those inside of a sandbox, below /mnt, and addresses of our own API stay.

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


_COMMANDING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]|\r(?!\n)")


def harmless(text: str) -> str:
    """A document without characters that command a terminal or turn its lines round; joiners and hard spaces, which it needs, stay.

    >>> harmless("10\\xa0km\\x1b[2J")
    '10\\xa0km\ufffd[2J'
    """
    return _COMMANDING.sub("\ufffd", text)


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
