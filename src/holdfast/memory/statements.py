"""What a user says in their own words, sentence by sentence: in what mood, and whether a text is built like a statement at all.

What was pasted is not said (`screening.py`). The rules extractor reads these sentences and the gate grounds facts in them, so both agree on
what a user has stated. Whether a fact is supported by what the user typed himself is judged here too: by its words, or, where it is put
in other words or in another language, by the user's own that it quotes; and which of its words stand only in what others said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from holdfast.extract.selection import SourceText, ground
from holdfast.memory.facts import Candidate, SourceKind, Turn
from holdfast.memory.screening import own_words
from holdfast.memory.wording import speaks_of, word_lists
from holdfast.text.language import guess_language, scripts
from holdfast.text.likeness import are_opposite, count_negations, traits
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences
from holdfast.text.words import terms

Mood = Literal["plain", "question", "thought", "reported"]
"""`thought` is hypothetical, wished or uncertain; `reported` is what somebody else says, likes or does."""

_LISTS = word_lists("statements")
_CASELESS = re.IGNORECASE
_LEAD_IN = _LISTS.pattern("lead_in", _CASELESS)


_QUESTION_END = re.compile(r"[?？]\s*+[\"'”’)]*+\s*+$")
_QUESTION_HEAD = _LISTS.pattern("question_head", _CASELESS)
_TAG_QUESTION = _LISTS.pattern("tag_question", _CASELESS)
_ASIDE = _LISTS.pattern("aside", _CASELESS)
_OPENS_OTHERWISE = _LISTS.pattern("opens_otherwise", _CASELESS)
_TOLD = 3  # words before a comma that can tell something
_THOUGHT = _LISTS.pattern("thought", _CASELESS)
_REPORTED = _LISTS.pattern("reported", _CASELESS)
_FIRST_SAYS = _LISTS.pattern("first_says", _CASELESS)

_SUBJECTS, _ORDERING = frozenset(_LISTS.words("subjects")), frozenset(_LISTS.words("ordering"))
_NOT_PLURAL, _NOT_DOING = frozenset(_LISTS.words("not_plural")), frozenset(_LISTS.words("not_doing"))
_FINITE = _LISTS.pattern("finite")
_INTERJECTION = _LISTS.pattern("interjection")
_CLAUSE = _LISTS.pattern("clause")
_ONE_SELF = re.compile(
    "".join(rf"(?<!^{word} )" for word in _LISTS.words("self_not_right_after"))
    + r"\b(?:i|we|user|the user|they|my \w+|our \w+|user's \w+)\b(?:'\w+)?\s+\w"
)
_YOU, _HARMLESS_YOU, _FOREIGN_YOU = _LISTS.pattern("you"), _LISTS.pattern("harmless_you"), _LISTS.pattern("foreign_you")
_SUBJECT_FREE = _LISTS.pattern("subject_free")
_ORDER_SHAPE = _LISTS.pattern("order_shape")
_FOREIGN = tuple(_LISTS.pattern(name) for name in ("foreign_self", "foreign_own", "foreign_verb", "foreign_plain"))
_FOREIGN_FROM_NOW_ON = re.compile(r"(?:ab sofort|désormais|dorénavant|d'ora in poi|a partir d\w+|de ahora|с этого|in zukunft|künftig)\b")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence that a user typed: its words, where it stands in the turn's text, and its mood."""

    text: str
    start: int
    end: int
    mood: Mood
    kind: str = "sentence"


@lru_cache(maxsize=512)
def statements(text: str) -> tuple[Statement, ...]:
    """The sentences of a user's text that are their own, with their moods. Code and table rows are never among them."""
    own = own_words(text)
    return tuple(
        Statement(text[unit.start : unit.end], unit.start, unit.end, mood_of(own[unit.start : unit.end]), unit.kind)
        for unit in split_sentences(own)
        if unit.kind not in ("code", "row") and any(c.isalnum() for c in unit.text)
    )


def mood_of(sentence: str) -> Mood:
    """The mood of one sentence.

    >>> mood_of("I live in Rome."), mood_of("Do I like tea?"), mood_of("If I lived in Rome, I'd walk."), mood_of("My boss likes golf.")
    ('plain', 'question', 'thought', 'reported')
    """
    plain = sentence.strip().replace("’", "'")
    asks = _QUESTION_END.search(plain) is not None or _QUESTION_HEAD.match(plain) is not None
    if asks and not _TAG_QUESTION.search(plain) and not _tells_before_asking(plain):
        return "question"
    if _THOUGHT.search(plain):
        return "thought"
    return "reported" if _REPORTED.search(plain) and not _FIRST_SAYS.search(plain) else "plain"


def _tells_before_asking(sentence: str) -> bool:
    """Whether something of the user's own stands beside the question: in a form of `aside`, or before a comma.

    In another language than English a sentence that opens with a condition or a question tells nothing.
    """
    told, comma, asked = sentence.rpartition(", ")
    if guess_language(sentence) == "en" or not comma:
        return _ASIDE.search(sentence) is not None
    if _OPENS_OTHERWISE.match(told):
        return False
    own = len(told.split()) >= _TOLD and asked.strip(" ?？") and any(speaks_of(told, one) for one in ("i", "my", "am"))
    return bool(own) or _ASIDE.search(sentence) is not None


def strip_lead_in(text: str) -> str:
    """A statement without "Please remember that" and its like before it.

    >>> strip_lead_in("Remember that I'm vegan"), strip_lead_in("Remember Acme as a source")
    ("I'm vegan", 'Remember Acme as a source')
    """
    return _LEAD_IN.sub("", text, count=1)


def declares(text: str) -> bool:
    """Whether every sentence of the text is built like a statement.

    >>> declares("User likes tea"), declares("Lower the alerts"), declares("If it rains, close the roof"), declares("Uses PostgreSQL 16")
    (True, False, False, True)
    """
    sentences = [unit.text for unit in split_sentences(strip_lead_in(text.strip()))]
    parts = [part for sentence in sentences for part in sentence.split("; ") if any(c.isalnum() for c in part)]
    return bool(parts) and all(_declares(part) for part in parts)


def speaks_to_somebody(text: str) -> bool:
    """Whether the text addresses its reader. What is learned about a user says nothing to anybody."""
    plain = _HARMLESS_YOU.sub(" ", normalise(strip_lead_in(text.strip())))
    return _YOU.search(plain) is not None or (_FOREIGN_YOU.search(plain) is not None and _SUBJECT_FREE.search(plain) is not None)


def _declares(sentence: str) -> bool:
    plain = normalise(sentence).strip(" \"'()*-.!?…")
    bare = _INTERJECTION.sub("", plain)
    if not re.match(r"(?:i|we|they|user|the user)\b", bare) and any(
        _ORDER_SHAPE.match(tail) for tail in re.split(r"[,:]\s+|\s[–—-]\s", bare)[1:]
    ):
        return False  # "..., spread them": an order behind a statement
    if _CLAUSE.match(bare):
        _, comma, rest = bare.partition(", ")
        if comma:
            return _declares(rest) or (_has_head(rest) if rest else False)
        return _ONE_SELF.search(bare) is not None or _foreign(bare)
    return _has_head(bare) or _foreign(bare)


def _has_head(bare: str) -> bool:
    words = re.findall(r"[\w'&+#.-]+", bare)
    if not words:
        return False
    first = words[0]
    if (first in _SUBJECTS and words[:2] != ["a", "partir"]) or first.isdigit():
        return True
    if (
        first.endswith("s")
        and not first.endswith("ss")
        and first not in _NOT_PLURAL
        and first.isascii()
        and first.isalpha()
        and len(first) > 2
    ):
        return True  # "Uses PostgreSQL 16", "Deployments need an approval"
    if first.endswith("'s") or (first.endswith("ing") and first not in _NOT_DOING):
        return True  # "Ana's dog", "Running keeps me sane"
    if _ORDER_SHAPE.match(bare):
        return False
    return first not in _ORDERING and _FINITE.search(" ".join(words[1:6])) is not None


def _foreign(plain: str) -> bool:
    after = plain.split(", ", 1)[1] if _FOREIGN_FROM_NOW_ON.match(plain) and ", " in plain else plain
    return any(pattern.search(after) is not None for pattern in _FOREIGN)


_ENOUGH = 0.6  # of a fact's telling words, predicates counted twice
_LONG = 20_000  # characters of a turn from which on only exact words are looked for, where nothing hangs on it
_LOOKS = 40  # sentences of a long message that are compared with a fact in full
_LEAST = 8  # letters of a text that can be told to be another's
_WINDOW = 3  # a fact may gather up to so many neighbouring sentences


@dataclass(frozen=True, slots=True)
class Support:
    """What supports a fact: who said it (`user` only where the user stated it plainly), in which turns, and in which words."""

    kind: SourceKind
    messages: tuple[str, ...] = ()
    quote: str | None = None
    score: float = 0.0
    verbatim: bool = False
    """Only the quote is the user's: the fact says it in words that he did not use."""

    @property
    def typed(self) -> bool:
        return self.kind == "user"


_SUPPORT_LISTS = word_lists("support")
_PREDICATES: dict[str, frozenset[int]] = {}
"""Stems by the kinds of thing that they say about a user: one in the fact needs one of the same kind in the user's words."""
for _kind, _stems in enumerate(_SUPPORT_LISTS.tables["predicates"]):
    for _stem in _stems.split():
        _PREDICATES[_stem] = _PREDICATES.get(_stem, frozenset()) | {_kind}
_COPULA = _SUPPORT_LISTS.pattern("copula", re.IGNORECASE)
_ROLES = frozenset((2, 3, 4))  # what "I'm a nurse from Leeds" says without a verb for it
_FRAME = frozenset(_SUPPORT_LISTS.words("frame"))
_SELF = _SUPPORT_LISTS.pattern("self", re.IGNORECASE)
_PRONOUN = _SUPPORT_LISTS.pattern("pronoun", re.IGNORECASE)
_IMPERATIVE = _SUPPORT_LISTS.compiled(r"\s*{imperatives}\b", re.IGNORECASE)
_OWNED = re.compile(r"^(?:the )?user(?:'s|’s| has| have| had| owns?)\b", re.IGNORECASE)
_ABOUT_USER = re.compile(r"^(?:the )?user\b", re.IGNORECASE)


def find_support(candidate: Candidate, turns: Sequence[Turn]) -> Support:
    """The best support for a candidate. What the user typed plainly wins; then other turns; `unknown` when nothing has it."""
    repeated = _repeated(candidate, turns)
    if repeated is not None:
        return repeated
    typed = max(_typed(candidate, turns), key=lambda found: found.score, default=None)
    if typed is not None and typed.score >= _ENOUGH:
        return typed
    quoted = _quoted(candidate, turns)
    if quoted is not None:
        return quoted
    others = [turn for turn in turns if turn.kind != "user"]
    for turn in sorted(others, key=lambda turn: turn.kind == "assistant"):  # an answer repeats what a tool said: the tool is the source
        found = _located(candidate.quote or candidate.content, turn) or _located(candidate.content, turn)
        if found:
            return Support(turn.kind, (turn.id,), found)
    for turn in turns:
        found = _located(candidate.content, turn) if turn.kind == "user" else None
        if found:  # pasted, quoted, asked or imagined: it stood in the user's message, but they did not state it
            return Support("unknown", (turn.id,), found)
    return Support("unknown")


def _repeated(candidate: Candidate, turns: Sequence[Turn]) -> Support | None:
    """The foreign turn that a candidate, or what it quotes, stands in word for word while the user has no such words."""
    own = [_squeezed(own_words(turn.text)) for turn in turns if turn.kind == "user"]
    for text in (candidate.quote, candidate.content):
        words = _squeezed(text or "")
        if len(words) < _LEAST or any(words in said for said in own):
            continue
        for turn in _foreign_turns(turns):
            if words in _squeezed(turn.text):
                return Support(turn.kind, (turn.id,), text)
    return None


def _foreign_turns(turns: Sequence[Turn]) -> list[Turn]:
    """What others said: tools, pages, files, summaries, and an assistant after such a text, for it repeats it; before, it only asks."""
    found: list[Turn] = []
    for turn in turns:
        if turn.kind not in ("user", "assistant") or (turn.kind == "assistant" and found):
            found.append(turn)
    return found


def _quoted(candidate: Candidate, turns: Sequence[Turn]) -> Support | None:
    """The user's own sentences that a candidate quotes, where it says the same in other words. Questions and thoughts state nothing."""
    typed = [turn for turn in turns if turn.kind == "user"]
    wanted = _squeezed(candidate.quote or "")
    if not wanted or wanted not in "".join(_squeezed(own_words(turn.text)) for turn in typed):
        return None
    for turn in reversed(typed):  # a quote may go over several turns: the last of them that states something is taken
        plain = [one for one in statements(turn.text) if one.mood in ("plain", "reported") and _squeezed(one.text) in wanted]
        said = " ".join(one.text for one in plain)
        if said and _speaks_of(candidate.content, said):
            return Support("user", (turn.id,), said, _ENOUGH, verbatim=True)
    return None


def _squeezed(text: str) -> str:
    return re.sub(r"\W+", "", normalise(text))


def _speaks_of(content: str, said: str) -> bool:
    """Whether a fact may be the user's sentences in other words: in the same language they meet in a word, of two nothing can be told."""
    language = guess_language(said)
    if _script(content) != _script(said) or guess_language(content) != language:
        return True
    have = frozenset(terms(said, language)) | _small_words(normalise(said))
    words = {*terms(content, language), *_small_words(normalise(content))} - _FRAME
    return any(word in have or any(_akin(word, other) for other in have) for word in words)


def _akin(word: str, other: str) -> bool:
    return len(word) > 4 and word[:4] == other[:4]


def _script(text: str) -> str:
    found = scripts(text).most_common(1)
    return found[0][0] if found else ""


def foreign_words(content: str, turns: Sequence[Turn]) -> list[str]:
    """The telling words of a fact that stand in what others said, or in what was pasted, and nowhere in what the user typed."""
    typed = " ".join(own_words(turn.text) for turn in turns if turn.kind == "user")
    others = [turn.text[:_LONG] for turn in _foreign_turns(turns)]
    others += [_pasted(turn.text)[:_LONG] for turn in turns if turn.kind == "user"]
    if not any(text.strip() for text in others):
        return []
    language = guess_language(content)
    own = frozenset(terms(typed, language)) | _small_words(normalise(typed))
    classes = frozenset(number for word in own for number in _PREDICATES.get(word, ()))
    theirs = frozenset(term for text in others for term in terms(text, language))
    return [
        word
        for word in dict.fromkeys(terms(content, language))
        if word in theirs and word not in own and word not in _FRAME and not (_PREDICATES.get(word, frozenset()) & classes)
    ]


def _pasted(text: str) -> str:
    own = own_words(text)
    return "".join(character if own[place] != character else " " for place, character in enumerate(text))


def _located(claim: str, turn: Turn) -> str | None:
    """The words of a turn that a claim comes from: nearly in a short one, letter by letter in a long one."""
    if len(turn.text) > _LONG:
        return claim if claim in turn.text else None
    found = ground(claim, [SourceText(turn.id, turn.text)])
    return found.passage.text if found.passage else None


def _typed(candidate: Candidate, turns: Sequence[Turn]) -> Iterator[Support]:
    for turn in turns:
        if turn.kind != "user":
            continue
        said = statements(turn.text)
        for first in _promising(candidate.content, said):
            for size in range(1, min(_WINDOW, len(said) - first) + 1):
                window = said[first : first + size]
                text = turn.text[window[0].start : window[-1].end]
                score = _covered(candidate.content, window, text) - 0.02 * (size - 1)
                if score > 0:
                    yield Support("user", (turn.id,), text, score)
    typed = [turn for turn in turns if turn.kind == "user"]
    if len(typed) > 1:  # said in two turns: each must be plain
        everything = [(turn, statement) for turn in typed for statement in statements(turn.text) if statement.mood == "plain"][-_LOOKS:]
        score = _covered(candidate.content, [statement for _, statement in everything], "\n".join(s.text for _, s in everything)) - 0.1
        if score > 0:
            yield Support("user", tuple(dict.fromkeys(turn.id for turn, _ in everything)), None, score)


def _promising(content: str, said: Sequence[Statement]) -> list[int]:
    """Where windows begin that are worth a closer look: at the sentences that share most words with the fact, and right before them."""
    if len(said) <= _LOOKS:
        return list(range(len(said)))
    wanted = _terms(content)
    best = sorted(range(len(said)), key=lambda n: (-len(wanted & _terms(said[n].text)), -n))[: _LOOKS // 2]
    return sorted({place for n in best for place in (n - 1, n) if place >= 0})


@lru_cache(maxsize=1 << 14)
def _terms(text: str) -> frozenset[str]:
    return frozenset(terms(text, "en"))


def _covered(content: str, window: Sequence[Statement], text: str) -> float:
    """How much of the fact's words the user's sentences hold; 0 where a number, a name or the sense differs."""
    moods = {statement.mood for statement in window}
    plain = normalise(text)
    if normalise(content).strip(" .!") == plain.strip(" .!"):
        return 1.0 if moods <= {"plain", "reported"} else 0.0
    about_user, owned = _ABOUT_USER.match(content), _OWNED.match(content)
    fitting = {"plain"} if about_user and not owned else {"plain", "reported"}  # "my boss likes golf" says nothing of what the user likes
    if not moods & fitting:
        return 0.0
    if about_user and guess_language(text) == "en":
        speaks = _SELF if owned else _PRONOUN
        own = " ".join(s.text for s in window if s.mood in fitting)
        if not speaks.search(own.replace("’", "'")) and not _IMPERATIVE.match(own):
            return 0.0
    language = guess_language(f"{content}\n{text}")
    wanted, given = traits(content, language), traits(text, language)
    if wanted.numbers - given.numbers - set(given.terms):
        return 0.0
    have = frozenset(given.terms) | frozenset(terms(text, language)) | _small_words(plain)
    if {name for name in wanted.names if name not in _FRAME} - have:
        return 0.0
    if _other_sense(content, window, language):
        return 0.0
    return _share(wanted.terms, have, text)


@lru_cache(maxsize=4096)
def _small_words(plain: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w']+", plain))


def _share(wanted: Sequence[str], have: frozenset[str], text: str) -> float:
    roles = _ROLES if _COPULA.search(text.replace("’", "'")) else frozenset()
    classes = frozenset(number for word in have for number in _PREDICATES.get(word, ())) | roles
    found = total = 0.0
    for term in dict.fromkeys(wanted):
        if term in _FRAME:
            continue
        kinds = _PREDICATES.get(term)
        weight = 2.0 if kinds else 1.0
        total += weight
        if term in have or (kinds and kinds & classes):
            found += weight
    return found / total if total else 0.0


def _other_sense(content: str, window: Sequence[Statement], language: str) -> bool:
    """Whether the sentence that is closest to the fact says the opposite."""
    own = frozenset(terms(content, language))
    closest = max(window, key=lambda s: len(own & frozenset(terms(s.text, language))))
    theirs = frozenset(terms(closest.text, language))
    denied = _denials(content, language) % 2 != _denials(closest.text, language) % 2
    opposite = any(are_opposite(a, b) for a in own - theirs for b in theirs - own)
    return denied != opposite


def _denials(text: str, language: str) -> int:
    """Negations, "no, " at the start and ", not Y" at the end left out: they correct, they do not deny what stands between."""
    plain = re.sub(
        (
            r"^(?:no|nope|not quite|not really)[,.:;]\s*|(?:,| and| but)? (?:not|rather than|instead of) (?:in |at |on |"
            r"the |a )*[\w.,:-]+$|\bwithout\b|\bno longer\b|\bnot? (?:any ?more|anymore)\b"
        ),
        " ",
        normalise(strip_lead_in(text.strip())).strip(" .!"),
    )
    return count_negations(plain, language)
