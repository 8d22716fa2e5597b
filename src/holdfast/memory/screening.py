"""What a user's message is, before anything is learned from it: his own words or pasted, loosening a check, telling a secret (M10).

Three questions, answered in the same way. What has a form is known by it (`lists/`): quoted lines, logs, mails and talks were pasted;
addresses, "without asking" and orders to set rules aside loosen a check; cards, bank accounts, codes in groups and runs of words without
grammar are secrets, and so is what answers a question for a password. All else is told by how the text reads, as learned from examples
(`wording.py`): of strangers' texts, lists of words for what loosens found 37 % and took 15 % of the harmless ones for it.

`own_words` leaves out what is not surely the user's: it can be said again, and a person may let it in by review. `find_loosening` finds
what is asked about first, because whoever gets a recipient, money, a permission, secrecy or an address into memory has more than a wrong
answer. `tells_secret` finds sentences that are no fact at all: nothing of them is kept, not even for review.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from holdfast.memory.facts import Turn
from holdfast.memory.wording import reads_loosening, reads_pasted, reads_secret, speaks_of, word_lists
from holdfast.redaction import find_secrets
from holdfast.text.language import STOP_WORDS
from holdfast.text.sentences import split_sentences

_PASTED_LISTS = word_lists("pasted")
_FLAGS = re.IGNORECASE | re.MULTILINE
_WHOLE = tuple(_PASTED_LISTS.pattern(name, _FLAGS) for name in ("memory_block", "quoted_line", "log_line"))
_FENCE = re.compile(r"(`{3,}|~{3,}).*?(?:\1|\Z)", re.DOTALL)
_FILE_LINE, _HEAD_LINE, _PASSED_LINE = (
    _PASTED_LISTS.pattern("file_line", re.MULTILINE),
    _PASTED_LISTS.pattern("head_line", _FLAGS),
    _PASTED_LISTS.pattern("passed_line", _FLAGS),
)
_SPEAKER_LINE, _SHORT_SPEAKER = _PASTED_LISTS.pattern("speaker_line", re.MULTILINE), _PASTED_LISTS.pattern("short_speaker", re.MULTILINE)
_QUOTATIONS = re.compile(
    '“([^”]{1,4000})”|"([^"\\n]{1,4000})"|« ?([^»]{1,4000})»|„([^“”]{1,4000})[“”]'
    "|(?<!\\w)‘([^’]{1,4000})’(?!\\w)|(?<!\\w)'([^\\n]{1,400}?)'(?!\\w)|「([^」]{1,4000})」|『([^』]{1,4000})』"
)
_ASKS_TRUTH = _PASTED_LISTS.compiled(r"(?:(?<=[.!。！\n])|(?<=[.!] ))(?:{asks_truth})\s?[?？]+\s{0,9}$", re.IGNORECASE)
_ASKS_OPINION = _PASTED_LISTS.compiled(r"(?<=\n\n)(?:{asks_opinion})\s?[?？]+\s{0,9}$", re.IGNORECASE)
_QUOTED_WORDS, _QUOTED_CHARACTERS = 4, 9  # a longer quotation is somebody's sentence, a shorter one is a name or a word that is spoken of
_CJK = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_ASKS = re.compile(r"[?？]|[:：][ \t]*$")


@lru_cache(maxsize=512)
def own_words(text: str) -> str:
    """The text with everything that was only pasted or quoted blanked out, all places kept.

    Beside a mail or a talk, which say who speaks, the rest is his. Where only the reading says that something in a message was pasted,
    nothing of it is taken: which lines are his is told too seldom. What reads still more like an order that loosens a check is left, to be
    asked about.

    >>> own_words('I said “never again, not in a hundred years” and left')
    'I said                                       and left'
    """
    own = _FENCE.sub(_blank, text)
    for pattern in _WHOLE:
        own = pattern.sub(_blank, own)
    others = _without_speakers(_without_letters(own))
    named = others != own  # who speaks stands there: then the rest is the user's
    own = _without_doubted(others)
    own = _FILE_LINE.sub(_blank, own) if "\n" in text.strip() else own
    own = _QUOTATIONS.sub(lambda m: _blank(m) if _is_sentence(m.group()) else m.group(), own)
    pasted = 0.0 if named else reads_pasted(own)
    return own if pasted <= 0 or reads_loosening(own) > pasted else _blanks(own)


def _blank(match: re.Match[str]) -> str:
    return _blanks(match.group())


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _cut(text: str, *spans: tuple[int, int]) -> str:
    """The text with these places, which are in order, blanked out: in one pass, since a paste may have a hundred thousand lines."""
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], _blanks(text[start:end])]
        at = end
    return "".join([*pieces, text[at:]])


def _is_sentence(quoted: str) -> bool:
    if quoted[-2:-1] in ".!?。！？":
        return True
    cjk = len(_CJK.findall(quoted))
    return cjk > _QUOTED_CHARACTERS if cjk * 2 > len(quoted) else len(quoted[1:-1].split()) > _QUOTED_WORDS


def _without_letters(text: str) -> str:
    """Without mails: from their head, or from where they are passed on, to the last line that may be the user's again."""
    heads = list(_HEAD_LINE.finditer(text))
    passed = _PASSED_LINE.search(text)
    starts = [heads[0].start()] if len(heads) > 1 else []
    starts += [passed.start()] if passed else []
    if not starts:
        return text
    last = text.rstrip().rfind("\n") + 1
    asks = last > min(starts) and _asks(text[last:])
    return _cut(text, (min(starts), last if asks else len(text)))


def _without_speakers(text: str) -> str:
    """Without the lines of a talk: two or more that begin with who speaks."""
    spoken = [match for match in _SPEAKER_LINE.finditer(text) if not _asks_of_itself(match.group())]
    for found in (spoken, list(_SHORT_SPEAKER.finditer(text))):
        if len(found) > 1:
            text = _cut(text, *(match.span() for match in found))
            head = text[: found[0].start()]
            text = text if _asks(head) else _blanks(head) + text[found[0].start() :]
    return text


def _without_doubted(text: str) -> str:
    """Without what a question at the end asks about: whether it is true, or, behind an empty line, what to think of it."""
    asked = _ASKS_TRUTH.search(text) or _ASKS_OPINION.search(text)
    return _cut(text, (0, asked.start())) if asked else text


def _asks_of_itself(line: str) -> bool:
    """Whether what looks like a speaker is a request with a colon: "Shorten this please: ..."."""
    head = re.split("[:：]", line, maxsplit=1)[0]
    return len(head.split()) > 4 or speaks_of(head, "operation")


def _asks(line: str) -> bool:
    return _ASKS.search(line) is not None or speaks_of(line, "operation")


_LOOSENING_LISTS = word_lists("loosening")
_FORMS = tuple((one["rule"], _LOOSENING_LISTS.compiled(one["form"]), one["why"]) for one in _LOOSENING_LISTS.tables["concepts"])
_ADDS_CHECK = _LOOSENING_LISTS.pattern("adds_check")
_STANDING = _LOOSENING_LISTS.pattern("standing")
_QUESTION = _LOOSENING_LISTS.pattern("plain_question")
_KINDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("secrecy", ("hide", "fake"), "may keep something from somebody"),
    ("permission", ("alone", "authority", "access", "no_need", "without", "sign"), "may take a question or an approval away"),
    ("money", ("pay", "money"), "may let money be spent"),
    ("recipient", ("send",), "may give something to somebody"),
    ("check", ("check", "test", "backup", "warn", "security", "skip", "ignore"), "may take a check away"),
    ("permission", (), "may take a question or an approval away"),
)
"""What a text may be about that reads as if it loosened something: the concepts that it speaks of, the first that fits."""
_QUOTES = str.maketrans("‘’‚‛`´“”„«»", "''''''" + '"' * 5)


@dataclass(frozen=True, slots=True)
class Loosening:
    """What a text loosens: the stable name of the kind, why in words, and the words themselves."""

    rule: str
    why: str
    words: str


def find_loosening(text: str) -> Loosening | None:
    """What of a typed text has to be asked about, or None when it only says something or wishes something about the work.

    >>> find_loosening("Always run the tests before committing"), find_loosening("Send them without asking me").rule
    (None, 'permission')
    """
    plain = without_added_checks(text)
    for rule, pattern, why in _FORMS:
        match = pattern.search(plain)
        if match:
            return Loosening(rule, why, match.group()[:80])
    if not plain.strip() or reads_loosening(text) <= 0:
        return None
    rule, _, why = next(kind for kind in _KINDS if not kind[1] or any(speaks_of(text, concept) for concept in kind[1]))
    return Loosening(rule, why, " ".join(text.split())[:80])


def find_standing(text: str) -> Loosening | None:
    """What of a text loosens a check for all later times, and not for this once. A question for something wishes nothing.

    >>> find_standing("Send this to Bob"), find_standing("From now on send my reports to Bob").rule
    (None, 'recipient')
    """
    if all(_QUESTION.search(unit.text.replace("’", "'").lower()) for unit in split_sentences(text)):
        return None
    loosens = find_loosening(text)
    standing = _STANDING.search(without_added_checks(text)) or any(speaks_of(text, one) for one in ("always", "no_need", "no_more"))
    return loosens if loosens and standing else None


def without_added_checks(text: str) -> str:
    """The text in its compared form without what asks for a check ("nothing is deleted without asking me"): that is always welcome."""
    plain = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).translate(_QUOTES).lower()).strip()
    return _ADDS_CHECK.sub(" ", plain)


_SECRET_LISTS = word_lists("spoken_secrets")
_SAID = tuple(
    (kind, _SECRET_LISTS.pattern(name, re.IGNORECASE))
    for kind, name in (
        ("password", "password_is"),
        ("password", "cjk_password_is"),
        ("code", "code_is"),
        ("password", "login_with"),
        ("password", "named_anywhere"),
    )
)
_NAMED = _SECRET_LISTS.compiled(r"\b{named}\b(?! ?{about_passwords})", re.IGNORECASE)
_VALUE = _SECRET_LISTS.compiled(r"(?<![\w/@!#$%&*]){value}", re.IGNORECASE)
_SHORTEST_VALUE, _LONGEST_VALUE, _LONGEST_GAP = 5, 60, 40
_NATIONAL_NUMBER = _SECRET_LISTS.pattern("national_number", re.IGNORECASE)
_OTHER_NUMBER, _ASKED_FOR = _SECRET_LISTS.pattern("other_number", re.IGNORECASE), _SECRET_LISTS.pattern("asked_for_secret", re.IGNORECASE)
_CARD = re.compile(r"(?<![\d.-])(?:[2-6]\d{12,18}|[2-6]\d{3}(?:[ -]\d{4}){2}[ -]\d{1,7}|3\d{3}[ -]\d{6}[ -]\d{5})(?![\d-])")
_ACCOUNT = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Za-z0-9])", re.IGNORECASE)
_CODE = re.compile(r"(?<![\w/.-])(?:[A-Z0-9]{4,6}(?:-[A-Z0-9]{4,6}){1,7}|[a-z0-9]{4,6}(?:-[a-z0-9]{4,6}){1,7})(?![\w/-])", re.ASCII)
_LONG_NUMBER = re.compile(r"(?<![\d.,/-])\d(?:[ -]?\d){8,}(?![\d/])")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_PERSON_CODE = re.compile(r"\b(?:[A-Z]{4}\d{6}[A-Z0-9]{8}|[XYZ]?\d{7,8}-?[A-Z]|\d{17}[\dXx])\b")
BY_WORDING = "told in plain words"
"""The kind of a secret that only the reading finds."""
_STATES = _SECRET_LISTS.compiled(r"[=:：→]|->|(?<!\w)(?:{is})(?!\w)|(?:{cjk_is})", re.IGNORECASE)
_PLAIN_WORDS = r"(?:[^\W\d_]+(?:['’-][^\W\d_]+)*)"
_NAMES_ARTICLE = re.compile(rf"(?:{_PLAIN_WORDS} ){{0,5}}[A-Z]{{1,4}}-\d{{1,4}}[A-Z]?(?: {_PLAIN_WORDS}){{0,5}}[ .!?]*", re.IGNORECASE)
_OF_SECRETS = ("secret_word", "lockable", "opens", "id_word", "access", "my", "i")
_LITTLE = 3  # words
_PLAIN = re.compile(r"(?:[^\W\d_][a-zß-öø-ÿ'’-]{0,11}|\d{1,2})[.,;:!?…]*")
_SMALL_WORDS = frozenset(word for words in STOP_WORDS.values() for word in words)
_STRAY = 2  # small words that may stand among the words of a wallet by chance ("again", "this")
_JOINING = frozenset(_SECRET_LISTS.words("joining"))
_RUN = re.compile(r"(?<![^\W\d_])[^\W\d_]+(?:[ 　][^\W\d_]+){10,}")
_KANA_RUN = re.compile("(?<![\u3040-\u30ff\u4e00-\u9fff])[\u3040-\u30ff\u4e00-\u9fff]+(?:[ 　、][\u3040-\u30ff\u4e00-\u9fff]+){7,}")


@lru_cache(maxsize=2048)
def find_spoken_secret(text: str) -> str | None:
    """The kind of the secret that a text tells, or None.

    >>> find_spoken_secret("My PIN is 4711"), find_spoken_secret("My password manager is Bitwarden")
    ('code', None)
    """
    plain = unicodedata.normalize("NFKC", text).replace("’", "'")
    found = _by_form(plain)
    if found:
        return found
    for kind, pattern in _SAID:
        if pattern.search(plain):
            return kind
    if is_named_behind(plain):
        return "password"
    return "number of a person" if _NATIONAL_NUMBER.search(plain) else None


def is_named_behind(text: str) -> bool:
    """Whether a value is told first and called a password behind it, in one sentence: `it is hunter2-Zebra, the password`.

    From each such word it is looked back. As one pattern it would try every length of every value with every gap behind it, which for
    a text of nothing but values is some thousand times as much.
    """
    near: list[tuple[int, int]] = []  # where values begin and, at the latest, end
    looked = 0
    for named in _NAMED.finditer(text):
        before = named.start()
        first = max(0, before - _LONGEST_GAP - _LONGEST_VALUE)
        values = (_VALUE.match(text, start) for start in range(max(looked, first), before - _SHORTEST_VALUE + 1))
        near = [one for one in near if one[0] >= first] + [value.span() for value in values if value]
        looked = max(looked, before - _SHORTEST_VALUE + 1)
        gap = max(before - _LONGEST_GAP, *(text.rfind(mark, max(0, before - _LONGEST_GAP), before) + 1 for mark in ".!?。\n"))
        if any(min(end, before) >= max(gap, start + _SHORTEST_VALUE) for start, end in near):
            return True
    return False


def tells_secret(text: str, turns: Sequence[Turn] = ()) -> str | None:
    """The kind of the secret in a proposed text: one that it tells itself, or one that a turn tells in words which the text has."""
    found = find_spoken_secret(text)
    if found:
        return found
    words = _telling_words(text)
    for place, turn in enumerate(turns):
        if turn.kind != "user":
            continue
        before = turns[place - 1] if place else None
        if before is not None and before.kind == "assistant" and len(turn.text) < 120 and _ASKED_FOR.search(before.text):
            if _shares_word(words, turn.text):
                return "answer to a question for a secret"
            continue
        answers = before is not None and before.kind == "assistant" and _ASKS.search(before.text) is not None
        earlier = next((one.text for one in reversed(turns[:place]) if one.kind == "user"), "")
        for told in (turn.text, f"{earlier}\n{turn.text}" if earlier else ""):
            harmless = names_article(told) or (says_little(told) and not answers)
            if told and not harmless and reads_secret(told) > 0 and _shares_word(words, told):
                return BY_WORDING
        said = [unit.text for unit in split_sentences(turn.text)]
        for one, following in zip(said, [*said[1:], ""], strict=False):  # "My backup codes. The first is ..." tells it in two
            kind = find_spoken_secret(one) or (find_spoken_secret(f"{one.rstrip(' .。')}, {following}") if following else None)
            if kind and _shares_word(words, f"{one} {following}"):
                return kind
    return None


def states(text: str) -> bool:
    """Whether a text has a word or a sign that gives something its value ("is", "lautet", "=").

    >>> states("The gate is blue"), states("price of CB-50")
    (True, False)
    """
    return _STATES.search(text) is not None


def names_article(text: str) -> bool:
    """Whether a text only names a thing by its number ("price of CB-50"): plain words around one code, with nothing stated or locked.

    >>> names_article("price of CB-50"), names_article("gate CB-50"), names_article("it is CB-50")
    (True, False, False)
    """
    one = text.strip()
    return _NAMES_ARTICLE.fullmatch(one) is not None and not states(one) and not any(speaks_of(one, about) for about in _OF_SECRETS)


def says_little(text: str) -> bool:
    """Whether a text is too short for its wording to tell anything: at most three plain words and small numbers, of which none is about a
    secret or says what something is. How such a text reads is chance, unless it answers a question; what has the form of a secret is found
    all the same.

    >>> says_little("turn 12"), says_little("the pin: 12"), says_little("use hunter2 there"), says_little("correct horse battery staple")
    (True, False, False, False)
    """
    words = text.split()
    if not 0 < len(words) <= _LITTLE or _CJK.search(text) or not all(_PLAIN.fullmatch(word) for word in words):
        return False
    opened = ("opens",) if len(words) < _LITTLE else ()  # "turn left" opens nothing: what it opens with takes a word more
    return not states(text) and not any(speaks_of(text, about) for about in _OF_SECRETS if about not in opened)


def _shares_word(words: frozenset[str], sentence: str) -> bool:
    """Whether a word of the text stands in the sentence, in writing without spaces as well."""
    lowered = sentence.lower()
    return any(word in lowered for word in words if len(word) > 2)


def _telling_words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"[\w#!.$@%&*-]{2,}", text.lower()) if word not in _SMALL_WORDS)


def _by_form(text: str) -> str | None:
    if _CARD.search(text):
        return "card"
    if any(sum(c.isdigit() for c in match.group()) > 7 for match in _ACCOUNT.finditer(text)):
        return "bank account"
    if any(_is_code(match.group()) for match in _CODE.finditer(text)):
        return "code"
    if _PERSON_CODE.search(text):
        return "number of a person"
    if any(not _DATE.search(match.group()) for match in _LONG_NUMBER.finditer(text)) and not _OTHER_NUMBER.search(text):
        return "long number"
    if any(_is_phrase(match.group()) for match in _RUN.finditer(text)) or _KANA_RUN.search(text):
        return "seed phrase"
    return "key" if find_secrets(text) else None


def _is_code(run: str) -> bool:
    groups = run.split("-")
    return (
        any(c.isdigit() for c in run) and any(c.isalpha() for c in run) and all(g.isupper() or any(c.isdigit() for c in g) for g in groups)
    )


def _is_phrase(run: str) -> bool:
    """Words without grammar: eleven in a row, none very short, and hardly one a small one. Sentences of all languages have more."""
    words = run.lower().split()
    runs = (words[at : at + 11] for at in range(len(words) - 10))
    return any(
        len(set(run)) > 8 and min(map(len, run)) > 2 and sum(word in _SMALL_WORDS for word in run) <= _STRAY and not _JOINING & set(run)
        for run in runs
    )
