"""Which script a text is written in, a cheap guess of its language, and the word lists that lie beside the code as TOML files.

The guess counts function words and telling letters: enough to choose a stemmer, not a classifier. English is the answer
where nothing tells. `read_lists("holdfast.text", "stop_words")` reads a file of lists.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections import Counter
from functools import cache, lru_cache
from importlib import resources
from typing import Any


@cache
def read_lists(package: str, name: str) -> dict[str, Any]:
    """The tables of `lists/NAME.toml` in a package. Read once; do not change what is given."""
    return tomllib.loads(resources.files(package).joinpath(f"lists/{name}.toml").read_text(encoding="utf-8"))


def read_words(package: str, name: str) -> dict[str, frozenset[str]]:
    """The lists of a file whose values are words with spaces between them."""
    return {key: frozenset(words.split()) for key, words in read_lists(package, name).items()}


def alternatives(entry: str) -> str:
    """An entry of words or phrases as alternatives of a regular expression. They are on lines of their own, or have ` | ` between them.

    >>> alternatives("each | every one\\nall")
    'each|every one|all'
    """
    return "|".join(part for line in entry.split("\n") for part in line.split(" | ") if part)


STOP_WORDS = read_words("holdfast.text", "stop_words")
"""Function words of each language, lower case."""

# Where each script's letters begin; a block without letters of interest is "other".
_STARTS: tuple[tuple[int, str], ...] = (
    (0x0000, "other"), (0x0041, "latin"), (0x005B, "other"), (0x0061, "latin"), (0x007B, "other"), (0x00AA, "latin"), (0x00AB, "other"),
    (0x00B5, "greek"), (0x00B6, "other"), (0x00C0, "latin"), (0x0250, "other"), (0x0370, "greek"), (0x0400, "cyrillic"),
    (0x0530, "armenian"), (0x0590, "hebrew"), (0x0600, "arabic"), (0x0700, "other"), (0x0750, "arabic"), (0x0780, "other"),
    (0x0900, "devanagari"), (0x0980, "other"), (0x0B80, "tamil"), (0x0C00, "other"), (0x0E00, "thai"), (0x0E80, "lao"),
    (0x0F00, "other"), (0x1000, "myanmar"), (0x10A0, "other"), (0x1100, "hangul"), (0x1200, "other"), (0x1780, "khmer"),
    (0x1800, "other"), (0x1E00, "latin"), (0x1F00, "greek"), (0x2000, "other"), (0x3005, "han"), (0x3008, "other"),
    (0x3041, "hiragana"), (0x30A0, "katakana"), (0x3100, "other"), (0x3130, "hangul"), (0x3190, "other"), (0x31F0, "katakana"),
    (0x3200, "other"), (0x3400, "han"), (0x4DC0, "other"), (0x4E00, "han"), (0xA000, "other"), (0xAC00, "hangul"), (0xD7A4, "other"),
    (0xF900, "han"), (0xFB00, "latin"), (0xFB07, "other"), (0xFB50, "arabic"), (0xFE00, "other"), (0xFE70, "arabic"), (0xFF00, "other"),
    (0xFF21, "latin"), (0xFF3B, "other"), (0xFF41, "latin"), (0xFF5B, "other"), (0xFF66, "katakana"), (0xFFA0, "hangul"),
    (0xFFE0, "other"), (0x20000, "han"), (0x323B0, "other"),
)  # fmt: skip
_POINTS = [point for point, _ in _STARTS]
_NAMES = [name for _, name in _STARTS]

# The scripts whose words are not parted by spaces (Korean has spaces, but its words take so many endings that pairs serve better).
NO_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa"
    "\u30fc-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U000323af"
)
_SPACELESS = re.compile(f"[{NO_SPACES}]")

_BY_SCRIPT = {
    "cyrillic": "ru", "greek": "el", "armenian": "hy", "hebrew": "he", "arabic": "ar", "devanagari": "hi", "tamil": "ta",
    "thai": "th", "lao": "lo", "myanmar": "my", "khmer": "km", "hangul": "ko",
}  # fmt: skip

_TELLING_LETTERS = {
    "ß": ("de",), "ñ": ("es",), "¿": ("es",), "¡": ("es",), "ã": ("pt",), "õ": ("pt",), "ø": ("da", "no"), "æ": ("da", "no"),
    "å": ("sv", "da", "no"), "ä": ("de", "sv", "fi"), "ö": ("de", "sv", "fi"), "ü": ("de",), "œ": ("fr",), "ê": ("fr", "pt"),
    "ó": ("es",), "í": ("es",), "á": ("es", "pt"), "è": ("fr", "it"), "ù": ("fr", "it"), "ò": ("it",), "ì": ("it",), "ç": ("fr", "pt"),
}  # fmt: skip

# Function words that are also English words say little in a text that may be English.
_ENGLISH_TOO = """
    a ad af all alt am an as at ate be bin car come dag de den des die dies do dog dos due e end era es et for fra from ha ham han hans
    has hat he her hers him his hun i if in io is it jo kan la le les li lo man mange me men mens mes met mi mine mod mot my ne net no
    not of om on op or os over par per plus pour se sea sera si sin sit so sob son sous sue sui sur te tem thi to tot tu um un under
    uns up ut var vi via ville war was we weg wel wie will want
"""
_ALSO_ENGLISH = frozenset(_ENGLISH_TOO.split())

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_ENOUGH = 400  # words looked at: more does not change the guess


def _profile() -> dict[str, tuple[tuple[str, float], ...]]:
    owners: dict[str, list[str]] = {}
    for language, words in STOP_WORDS.items():
        for word in words:
            owners.setdefault(word, []).append(language)
    return {word: tuple((language, _weight(word, language, len(owning))) for language in owning) for word, owning in owners.items()}


def _weight(word: str, language: str, owners: int) -> float:
    return (0.25 if word in _ALSO_ENGLISH and language != "en" else 1.0) / owners


_PROFILE = _profile()


def script_of(character: str) -> str:
    """The script of one character: "latin", "han", "cyrillic" ..., or "other" for digits, marks and rare scripts.

    >>> script_of("ж"), script_of("7")
    ('cyrillic', 'other')
    """
    return _NAMES[bisect_right(_POINTS, ord(character)) - 1]


def scripts(text: str) -> Counter[str]:
    """How many letters of each script a text has."""
    counted = Counter(map(script_of, text))
    del counted["other"]
    return counted


def dominant_script(text: str) -> str:
    """The script with the most letters, "other" when there are none. Ties go to the name that sorts first."""
    counted = scripts(text)
    return min(counted, key=lambda name: (-counted[name], name)) if counted else "other"


def is_spaceless(text: str) -> bool:
    """Whether the text has letters of a script that is indexed by character pairs."""
    return not text.isascii() and _SPACELESS.search(text) is not None


@lru_cache(maxsize=2048)
def guess_language(text: str, default: str = "en") -> str:
    """The ISO 639-1 code of the text's likely language, `default` when nothing tells.

    >>> guess_language("Wir haben uns gestern für die zweite Lösung entschieden.")
    'de'
    """
    head = text[:4000]
    if not head.isascii():
        by_script = _guess_by_script(head)
        if by_script is not None:
            return by_script
    return _guess_by_words(head, default)


def _guess_by_script(text: str) -> str | None:
    counted = scripts(text)
    kana = counted["hiragana"] + counted["katakana"]
    east = kana + counted["han"] + counted["hangul"]
    # One of these letters carries about as much as a syllable: a third of the letters is most of the text.
    if east and east * 3 >= counted["latin"]:
        if counted["hangul"] > kana + counted["han"]:
            return "ko"
        return "ja" if kana * 12 >= east else "zh"
    name = dominant_script(text)
    return _BY_SCRIPT.get(name)


def _guess_by_words(text: str, default: str) -> str:
    score: dict[str, float] = {}
    words = _WORD.findall(text.lower().replace("’", "'"))[:_ENOUGH]
    for word in words:
        for language, weight in _PROFILE.get(word, ()):
            score[language] = score.get(language, 0.0) + weight
    if not text.isascii():
        for letter, languages in _TELLING_LETTERS.items():
            count = min(text.lower().count(letter), 5)
            for language in languages if count else ():
                score[language] = score.get(language, 0.0) + 0.3 * count / len(languages)
    if not score:
        return default
    best = min(score, key=lambda language: (-score[language], language != default, language))
    beaten = score[best] - score.get(default, 0.0)
    return best if score[best] >= 0.6 and beaten > 0.2 else default
