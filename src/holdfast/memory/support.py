"""Where a proposed fact has its support: in what the user typed, only in what others wrote, or nowhere.

A quote alone proves nothing: "yes, please" can be quoted for anything. The words of the fact itself have to be among the user's own
words, said plainly, with every number and name, and about the user where the fact is about the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from holdfast.extract.passages import SourceText, ground
from holdfast.memory.facts import Candidate, SourceKind, Turn
from holdfast.memory.statements import Statement, statements, strip_lead_in
from holdfast.memory.word_lists import word_lists
from holdfast.text.language import guess_language
from holdfast.text.likeness import are_opposite, count_negations, traits
from holdfast.text.normalise import normalise
from holdfast.text.words import terms

_ENOUGH = 0.6  # of a fact's telling words, predicates counted twice
_LONG = 20_000  # characters of a turn from which on only exact words are looked for, where nothing hangs on it
_LOOKS = 40  # sentences of a long message that are compared with a fact in full
_WINDOW = 3  # a fact may gather up to so many neighbouring sentences


@dataclass(frozen=True, slots=True)
class Support:
    """What supports a fact: who said it (`user` only where the user stated it plainly), in which turns, and in which words."""

    kind: SourceKind
    messages: tuple[str, ...] = ()
    quote: str | None = None
    score: float = 0.0

    @property
    def typed(self) -> bool:
        return self.kind == "user"


_LISTS = word_lists("support")
_PREDICATES: dict[str, frozenset[int]] = {}
"""Stems by the kinds of thing that they say about a user: one in the fact needs one of the same kind in the user's words."""
for _kind, _stems in enumerate(_LISTS.tables["predicates"]):
    for _stem in _stems.split():
        _PREDICATES[_stem] = _PREDICATES.get(_stem, frozenset()) | {_kind}
_COPULA = _LISTS.pattern("copula", re.IGNORECASE)
_ROLES = frozenset((2, 3, 4))  # what "I'm a nurse from Leeds" says without a verb for it
_FRAME = frozenset(_LISTS.words("frame"))
_SELF = _LISTS.pattern("self", re.IGNORECASE)
_PRONOUN = _LISTS.pattern("pronoun", re.IGNORECASE)
_IMPERATIVE = _LISTS.compiled(r"\s*{imperatives}\b", re.IGNORECASE)
_OWNED = re.compile(r"^(?:the )?user(?:'s|’s| has| have| had| owns?)\b", re.IGNORECASE)
_ABOUT_USER = re.compile(r"^(?:the )?user\b", re.IGNORECASE)


def find_support(candidate: Candidate, turns: Sequence[Turn]) -> Support:
    """The best support for a candidate. What the user typed plainly wins; then other turns; `unknown` when nothing has it."""
    typed = max(_typed(candidate, turns), key=lambda found: found.score, default=None)
    if typed is not None and typed.score >= _ENOUGH:
        return typed
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
