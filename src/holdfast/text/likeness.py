"""How alike two short texts are, what keeps alike texts apart, and whether a text repeats itself.

Two texts are near duplicates when they say the same with other small words, another order of clauses or a typing error.
They are not when a number, a name, a negation or one telling word differs: losing a fact to a false merge is worse than
keeping it twice.

Also here: whether a text denies, and words that are each other's opposite, which turn a statement around; and `repetition`, for a model
that has lost the thread and says the same again and again until its limit is reached.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from holdfast.text.language import guess_language
from holdfast.text.normalise import normalise
from holdfast.text.words import keys, tokenise

_ENGLISH = (
    r"\b(?:not|no(?! ?\.? ?\d| longer)|no longer|never|none|nobody|nothing|nowhere|neither|cannot|without|hardly|barely|rarely|\w+n't)\b"
)
_NEGATIONS = {
    # A short text in another language is often taken for English, so that its plainest negations count here too.
    "en": _ENGLISH + r"|\b(?:nicht|kein|keine|keinen|niemals|jamais|nunca|jamás|não|niet|geen|inte|ikke|не|нет)\b",
    "de": r"\b(?:nicht|nichts|kein\w*|nie|niemals|niemand|ohne)\b",
    "fr": r"\b(?:ne|n')\s*\w+\s+(?:pas|plus|jamais|rien)\b|\b(?:aucune?|sans|jamais)\b",
    "es": r"\b(?:no|nunca|jamás|tampoco|nadie|nada|ningún|ninguna|ninguno|sin)\b",
    "it": r"\b(?:non|mai|nessun\w*|niente|nulla|senza)\b",
    "pt": r"\b(?:não|nunca|jamais|nenhum|nenhuma|ninguém|nada|sem)\b",
    "nl": r"\b(?:niet|niets|geen|nooit|niemand|zonder)\b",
    "sv": r"\b(?:inte|aldrig|ingen|inget|inga|utan)\b",
    "da": r"\b(?:ikke|aldrig|ingen|intet|uden)\b",
    "no": r"\b(?:ikke|ikkje|aldri|ingen|intet|uten)\b",
    "fi": r"\b(?:ei|en|et|emme|ette|eivät|älä|ilman)\b",
    "ru": r"\b(?:не|нет|никогда|никто|ничего|без)\b",
    "zh": r"[不没沒未](?![同过過断斷少仅僅论論久错錯])|[无無非](?=法|需|须|須|权|權|人)|并非|並非|從不|从不",
    "ja": r"ない|なかった|ません|なく|ず(?=に|、)|ぬ(?=。)",
    "ko": r"않|못(?=[했하합])|없|아니",
}
_PATTERNS = {language: re.compile(pattern, re.IGNORECASE) for language, pattern in _NEGATIONS.items()}

_OPPOSITES = (
    "like dislik", "love hate", "enabl disabl", "increas decreas", "rise fall", "rose fell", "grow shrink", "grew shrank",
    "allow forbid", "allow deni", "accept reject", "true fals", "open close", "start stop", "begin end", "before after", "more less",
    "more fewer", "most least", "max min", "maximum minimum", "left right", "high low", "higher lower", "hot cold", "win lose",
    "won lost", "buy sell", "bought sold", "pass fail", "success failur", "succeed fail", "includ exclud", "add remov", "prefer avoid",
    "alway never", "agre disagre", "support oppos", "approv reject", "light dark", "earli late", "earlier later", "north south",
    "east west", "marri singl", "morn even", "first last", "old new", "public privat", "async sync", "tab space", "gain lose",
    "safe unsaf", "happi unhappi", "possibl imposs", "legal illeg", "complet incomplet", "strong weak", "fast slow", "faster slower",
    "present absent", "guilti innoc", "aliv dead", "arriv depart", "import export", "encrypt unencrypt", "stabl unstabl",
    "know unknown", "visibl hidden", "optim pessim", "cheap expens",
)  # fmt: skip
_PAIRS = frozenset(frozenset(pair.split()) for pair in _OPPOSITES)


def count_negations(plain: str, language: str = "en") -> int:
    """How many words of a normalised text deny something. An even number turns nothing around."""
    pattern = _PATTERNS.get(language, _PATTERNS["en"])
    return sum(1 for _ in pattern.finditer(plain))


def are_opposite(stem: str, other: str) -> bool:
    """Whether two English stems are each other's opposite."""
    return frozenset((stem, other)) in _PAIRS


NEAR = 0.8  # from here on two texts count as saying the same

# Stems that change nothing in what is said.
_LIGHT = frozenset(
    ("realli", "veri", "also", "just", "still", "actual", "current", "quit", "basic", "simpli", "rather", "user", "now", "usual")
)
_NUMBER_WORDS = {
    "zero": "0", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10",
    "eleven": "11", "twelve": "12", "fifteen": "15", "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60",
    "hundred": "100", "thousand": "1000", "million": "1000000", "billion": "1000000000", "half": "0.5", "dozen": "12", "twice": "2",
}  # fmt: skip

# "Tabs over spaces" turned round says the opposite with the same words.
_COMPARISON = re.compile(r"\b(?:over|than|instead of|rather than|before|after|versus|vs)\b")

# How much a difference leaves of the likeness, at most.
_OTHER_NUMBER, _MORE_NUMBERS, _OTHER_POLARITY, _OTHER_NAME, _OTHER_WORD, _TURNED_ROUND = 0.5, 0.75, 0.4, 0.55, 0.7, 0.6


@dataclass(frozen=True, slots=True)
class Traits:
    """What a text is compared by: its terms in order, the numbers and names among them, how often it negates, its letters."""

    terms: tuple[str, ...]
    numbers: frozenset[str]
    names: frozenset[str]
    negations: int
    compares: bool
    trigrams: frozenset[str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Differences:
    """What keeps two texts apart. Each pair holds what only the first and what only the second has.

    `score` is the likeness with all differences weighed in. `shared` is how much of the shorter text's content words the other
    has too, numbers left out: it says whether both speak of the same thing at all.
    """

    score: float
    shared: float
    numbers: tuple[frozenset[str], frozenset[str]]
    names: tuple[frozenset[str], frozenset[str]]
    words: tuple[frozenset[str], frozenset[str]]
    negation: bool
    opposites: bool


@lru_cache(maxsize=1024)
def traits(text: str, language: str | None = None) -> Traits:
    """The traits of a text. Cached, because the same facts are compared again and again."""
    chosen = language or guess_language(text)
    plain = normalise(text)
    listed: list[str] = []
    numbers: set[str] = set()
    names: set[str] = set()
    for place, word in enumerate(tokenise(text)):
        found = keys(word, chosen)
        if word.text.lower() in _NUMBER_WORDS:
            found = (_NUMBER_WORDS[word.text.lower()],)
            numbers.add(found[0])
        elif word.kind in ("number", "version", "date"):
            numbers.add(found[0])
        elif word.kind in ("identifier", "email", "url", "path", "acronym") or (place > 0 and word.text[:1].isupper()):
            # "Mia" and "Ben" are small words in some language; a name is never one, whatever language the text was taken for
            found = found or ((word.text.lower(),) if len(word.text) > 1 else ())
            names.update(found[:1])
        listed.extend(found if word.kind in ("characters", "compound") else found[:1])
    return Traits(
        tuple(listed),
        frozenset(numbers),
        frozenset(names),
        count_negations(plain, chosen),
        _COMPARISON.search(plain) is not None,
        _trigrams(plain),
    )


def _trigrams(plain: str) -> frozenset[str]:
    letters = re.sub(r"\W+", " ", plain).strip()
    padded = f" {letters} "
    return frozenset(padded[i : i + 3] for i in range(len(padded) - 2))


def compare(first: str, second: str, language: str | None = None) -> Differences:
    """How alike two texts are and what differs."""
    if language is None:  # both in one language, or the same word would have two stems
        language = guess_language(f"{first}\n{second}")
    a, b = traits(first, language), traits(second, language)
    numbers = (a.numbers - b.numbers, b.numbers - a.numbers)
    words_a, words_b = _telling(a), _telling(b)
    only_a, only_b = _without_slips(words_a - words_b, words_b - words_a)
    common = len(words_a | words_b) - len(words_a - words_b) - len(words_b - words_a)
    matched = common + len(words_a - words_b) - len(only_a)
    names = (a.names & only_a, b.names & only_b)
    negation = a.negations % 2 != b.negations % 2
    opposites = any(are_opposite(x, y) for x in only_a for y in only_b)
    shorter = min(len(words_a), len(words_b))
    shared = matched / shorter if shorter else 0.0
    score = 1.0 if normalise(first) == normalise(second) else _score(a, b, matched, len(words_a) + len(words_b))
    for differs, left in (
        (numbers[0] and numbers[1], _OTHER_NUMBER),
        (numbers[0] or numbers[1], _MORE_NUMBERS),
        (negation or opposites, _OTHER_POLARITY),
        (names[0] and names[1], _OTHER_NAME),
        (only_a and only_b, _OTHER_WORD),
        (a.compares and b.compares and _order(a.terms, b.terms) < 1, _TURNED_ROUND),
    ):
        score = min(score, left) if differs else score
    return Differences(score, shared, numbers, names, (frozenset(only_a), frozenset(only_b)), negation, opposites)


def _telling(a: Traits) -> frozenset[str]:
    telling = frozenset(a.terms) - a.numbers
    return telling - _LIGHT or telling


def _without_slips(only_a: frozenset[str], only_b: frozenset[str]) -> tuple[set[str], set[str]]:
    """What is left when words that differ by a slip of the fingers count as the same: "postgresql" and "postgressql"."""
    left_a, left_b = set(only_a), set(only_b)
    if len(only_a) * len(only_b) > 400:  # long texts: a slip decides nothing there
        return left_a, left_b
    for word in sorted(only_a):
        for other in sorted(left_b):
            if _is_slip(word, other):
                left_a.discard(word)
                left_b.discard(other)
                break
    return left_a, left_b


def _is_slip(word: str, other: str) -> bool:
    """One letter more, less, other, or two swapped, in words of five letters and more that hold no digit."""
    shorter, longer = sorted((word, other), key=len)
    if len(shorter) < 5 or len(longer) - len(shorter) > 1 or any(c.isdigit() for c in longer):
        return False
    start = 0
    while start < len(shorter) and shorter[start] == longer[start]:
        start += 1
    if start == 0:
        return False
    rest_s, rest_l = shorter[start:], longer[start:]
    if len(shorter) < len(longer):
        return rest_s == rest_l[1:]
    return rest_s[1:] == rest_l[1:] or (rest_s[:2] == rest_l[:2][::-1] and rest_s[2:] == rest_l[2:])


def _score(a: Traits, b: Traits, matched: int, total: int) -> float:
    words = 2 * matched / total if total else 0.0
    letters = _dice(a.trigrams, b.trigrams)
    if not total:
        return letters if a.terms == b.terms else 0.0
    return 0.55 * words + 0.25 * letters + 0.2 * words * _order(a.terms, b.terms)


def _dice(a: frozenset[str], b: frozenset[str]) -> float:
    return 2 * len(a & b) / (len(a) + len(b)) if a or b else 0.0


def _order(a: Sequence[str], b: Sequence[str]) -> float:
    """How many neighbours among the common terms come in the same order in both: who did what to whom."""
    place: dict[str, int] = {}
    for at, term in enumerate(b):
        place.setdefault(term, at)
    common = [place[term] for term in dict.fromkeys(a) if term in place]
    if len(common) < 2:
        return 1.0
    return sum(x < y for x, y in pairwise(common)) / (len(common) - 1)


def likeness(first: str, second: str, language: str | None = None) -> float:
    """How alike two short texts are, from 0 to 1; from `NEAR` on they say the same.

    >>> likeness("The user prefers dark mode.", "User really prefers the dark mode") > NEAR
    True
    >>> likeness("The server runs on port 8080", "The server runs on port 9090") > NEAR
    False
    """
    return compare(first, second, language).score


_LONGEST_UNIT = 400
_SHORT_UNIT = 40
_LEAST = 100
"""Characters of repetition from which on it is no figure of speech, no table and no ruled line."""
_SENTENCES = 12
_DIFFERENT = 3
_END = re.compile(r"[.!?\n]+")
_DIGITS = re.compile(r"\d+")


def repetition(text: str) -> int | None:
    """Where a text begins to say again, up to its very end, what it has just said; None when it does not.

    What is kept before that place has the repeated words once.

    >>> text = "The sky is blue. " + "I help people, and I help them. " * 9
    >>> text[: repetition(text)]
    'The sky is blue. I help people, and I help them.'
    >>> repetition("Row, row, row your boat, gently down the stream.") is None
    True
    """
    whole = text.rstrip()
    found = _same_unit(whole)
    return _same_sentences(whole) if found is None else found


def _same_unit(text: str) -> int | None:
    """The same characters over and over."""
    for size in range(1, min(_LONGEST_UNIT, len(text) // 3) + 1):
        times = max(6 if size < _SHORT_UNIT else 3, -(-_LEAST // size))
        if len(text) < size * times:
            continue
        unit = text[-size:]
        if not any(letter.isalpha() for letter in unit) or not text.endswith(unit * times):
            continue
        start = len(text) - size * times
        while start >= size and text[start - size : start] == unit:
            start -= size
        before = start
        while before > 0 and text[before - 1] == text[before - 1 + size]:
            before -= 1  # the unit began somewhere else than our count from the end says
        return len(text[: before + size].rstrip())
    return None


def _same_sentences(text: str) -> int | None:
    """A few sentences over and over, in any order, whatever numbers stand in them."""
    ends = [0, *(match.end() for match in _END.finditer(text))]
    if ends[-1] < len(text):
        ends.append(len(text))
    sentences = [(start, _DIGITS.sub("", text[start:end]).strip(" .!?\n\t-*").casefold()) for start, end in pairwise(ends)]
    said = [(start, words) for start, words in sentences if len(words) >= 12]
    last = said[-_SENTENCES:]
    if len(last) < _SENTENCES or len({words for _, words in last}) > _DIFFERENT:
        return None
    known = {words for _, words in last}
    first = len(said)
    while first > 0 and said[first - 1][1] in known:
        first -= 1
    heard: set[str] = set()
    for start, words in said[first:]:
        if words in heard:
            return len(text[:start].rstrip())
        heard.add(words)
    return None
