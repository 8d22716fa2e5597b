"""Facts from plain English statements, without any model (M13).

Each phrase in `lists/rules.toml` is one way of saying one kind of thing: a pattern over a clause in the user's own words, the category,
and how sure it is. What is found is put in the third person: "I use my own server" becomes "User uses their own server".
A sentence is read only if it is stated plainly (`statements.py`): questions, mere thoughts, what others say, code, logs and pasted text
teach nothing. Every candidate quotes its sentence word for word, and keeps its numbers and names as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.memory.facts import Candidate, Fact, Proposal, SlotUpdate, Turn
from holdfast.memory.instructions import describe_wish
from holdfast.memory.merge import attribute_of
from holdfast.memory.statements import Statement, mood_of, statements, strip_lead_in
from holdfast.memory.wording import word_lists
from holdfast.text.language import guess_language
from holdfast.text.normalise import normalise

_LONGEST = 240  # characters of a sentence: longer ones hold more than one plain statement
_LISTS = word_lists("rules")
_CASELESS = re.IGNORECASE
_CLAUSE, _OPENING = _LISTS.pattern("clause", _CASELESS), _LISTS.pattern("opening", _CASELESS)
_EMPTY, _POINTING, _PASSING = (_LISTS.pattern(name, _CASELESS) for name in ("empty", "pointing", "passing"))
_VAGUE_END = re.compile(r"\b(?:it|this|that|them|these|those|you)\b[.!]?$", _CASELESS)
_OPINION, _SARCASM = _LISTS.pattern("opinion", _CASELESS), _LISTS.pattern("sarcasm", _CASELESS)
_CORRECTIONS = tuple(_LISTS.compiled(one["says"], _CASELESS) for one in _LISTS.tables["corrections"])
_SUBJECT = _LISTS.compiled(
    r"(?P<who>\b(?:I|we|We|i)\b)(?P<glued>['’](?:m|ve|d|ll|re))?(?P<adverbs>(?:\s+{adverbs_before_a_verb})*)(?:\s+(?P<verb>[A-Za-z][\w'’]*))?"
)
_THIRD_PERSON: dict[str, str] = _LISTS.tables["third_person"]
_POSSESSIVES: dict[str, str] = _LISTS.tables["possessives"]
_PAST = frozenset(_LISTS.words("past_forms"))


@dataclass(frozen=True)
class _Phrase:
    """One way of saying one kind of thing, matched against a whole clause. `value`, where there is one, must say something of its own."""

    name: str
    category: str
    confidence: float
    pattern: re.Pattern[str]


_PHRASES = tuple(
    _Phrase(one["name"], one["category"], one["confidence"], _LISTS.compiled(one["says"], _CASELESS)) for one in _LISTS.tables["phrases"]
)


class RulesExtractor:
    """Finds plainly stated facts in the user's own turns. Deterministic, and quick enough to run after every turn."""

    def extract(self, turns: Sequence[Turn], facts: Sequence[Fact]) -> Proposal:
        """Candidates in the order in which they were said, each once; and the work summary, where the user plainly says where they work."""
        found: dict[str, Candidate] = {}
        work: list[str] = []
        for turn in turns:
            if turn.kind != "user":
                continue
            for name, candidate in _from_turn(turn):
                found.setdefault(normalise(candidate.content), candidate)
                attribute = attribute_of(candidate.content)
                if name == "work" and attribute is not None and attribute.name == "employer" and not attribute.denied:
                    work.append(candidate.content.removeprefix("User ").removesuffix("."))
        candidates = tuple(_with_targets(candidate, facts) for candidate in found.values())
        slots = (SlotUpdate("workContext", f"User {work[-1]}"),) if work else ()
        return Proposal(candidates, slots=slots)


def _from_turn(turn: Turn) -> Iterable[tuple[str, Candidate]]:
    for statement in statements(turn.text):
        if statement.kind == "heading" or len(statement.text) > _LONGEST or _SARCASM.search(statement.text):
            continue
        text = re.sub(r"^[-*•\d.)\s]+(?=\w)", "", statement.text) if statement.kind == "item" else statement.text
        wish = _wish(text)
        if wish is not None:
            yield "wish", wish
        elif statement.mood in ("plain", "reported", "question") and guess_language(text) == "en":
            yield from _from_sentence(text, statement)


def _wish(text: str) -> Candidate | None:
    described = describe_wish(text)
    return Candidate(described, "preference", 0.9, text.strip()) if described else None


def _from_sentence(text: str, statement: Statement) -> Iterable[tuple[str, Candidate]]:
    if statement.mood == "question":
        return
    correction = _correction(text)
    if correction is not None:
        yield "correction", correction
        return
    seen = False
    for clause in _clauses(text):
        plain = _OPENING.sub("", strip_lead_in(_OPENING.sub("", clause)))
        name, candidate = _by_rules(plain, text, mood_of(clause))
        if candidate is not None:
            seen = True
            yield name, candidate
    if not seen and statement.mood == "plain":
        whole = _OPENING.sub("", strip_lead_in(text))
        name, candidate = _by_rules(whole, text, statement.mood)
        if candidate is not None:
            yield name, candidate


def _clauses(text: str) -> list[str]:
    if re.search(r"\?\s*$", text):  # "I'm a nurse in Leeds, which scheme applies?": what stands before the question
        text = re.split(r",\s+(?=(?:so |and )?(?:who|what|when|where|why|how|which|can|could|do|does|is|are|should|would|will)\b)", text)[0]
        return [] if text.rstrip().endswith("?") else [text.strip()]
    pieces = [piece.strip() for piece in _CLAUSE.split(text) if piece and piece.strip()]
    return pieces if all(len(piece.split()) > 1 for piece in pieces) else [text.strip()]


def _by_rules(plain: str, quote: str, mood: str) -> tuple[str, Candidate | None]:
    bare = plain.strip().rstrip(".!").strip()
    for rule in _PHRASES:
        if mood == "reported" and rule.name not in ("family", "of me"):
            continue
        match = rule.pattern.fullmatch(bare)
        if match is None:
            continue
        value = next((v for k, v in match.groupdict().items() if k.startswith("value") and v), None)
        if value is not None and _is_vague(value):
            return rule.name, None
        return rule.name, Candidate(_content(bare, rule), rule.category, rule.confidence, quote.strip())
    return "", None


def _is_vague(value: str) -> bool:
    """Whether what was said holds only in this conversation: it points at something, or passes by tomorrow."""
    if _EMPTY.match(value) or _PASSING.fullmatch(value.strip()):
        return True
    short = len(value.split()) <= 5
    return short and (_VAGUE_END.search(value) is not None or _POINTING.search(value) is not None)


def _content(bare: str, rule: _Phrase) -> str:
    if rule.name == "name":
        named = re.fullmatch(r"(?:i['’]m|i am) ((?-i:[A-Z])[\w'’-]+(?: (?-i:[A-Z])[\w'’-]+){0,2})", bare, re.IGNORECASE)
        if named:
            return f"User's name is {named[1]}"
    return third_person(bare)


def _correction(text: str) -> Candidate | None:
    """ "No, it is X, not Y": the claim in the third person, and what was wrong."""
    stripped = text.strip()
    for pattern in _CORRECTIONS:
        match = pattern.match(stripped)
        if match is None:
            continue
        claim, parts = match["claim"].strip().rstrip(".!"), match.groupdict()
        if not _says_something(claim):
            return None
        wrong = parts.get("y")
        return Candidate(third_person(claim), "correction", 0.95, stripped, error=wrong.strip() if wrong else None)
    return None


def _says_something(claim: str) -> bool:
    about_it = re.match(r"(?:it['’]s|it is)\s", claim, re.IGNORECASE) is not None
    return not _OPINION.match(claim) and (about_it or not _EMPTY.match(claim)) and len(claim.split()) >= 3 and not claim.endswith("?")


def _with_targets(candidate: Candidate, facts: Sequence[Fact]) -> Candidate:
    """For a correction: the known facts that say what is wrong now."""
    if not candidate.error:
        return candidate
    wrong = normalise(candidate.error)
    named = tuple(fact.id for fact in facts if re.search(rf"(?<!\w){re.escape(wrong)}(?!\w)", normalise(fact.content)))
    return Candidate(candidate.content, candidate.category, candidate.confidence, candidate.quote, named, candidate.error)


def third_person(sentence: str) -> str:
    """The sentence about "User", without the mark at its end. Names, numbers and all but the pronouns and their verbs stay as they are.

    >>> third_person("I don't use my phone at work."), third_person("My sister's name is Ana."), third_person("We run Postgres 16.")
    ("User doesn't use their phone at work", "User's sister's name is Ana", 'User runs Postgres 16')
    """
    text = sentence.strip().rstrip(".!").strip()
    text = re.sub(r"^(?:My|my|Our|our)\b", "User's", text)
    seen = 0

    def subject(match: re.Match[str]) -> str:
        nonlocal seen
        seen += 1
        return _subject(match, "User" if seen == 1 and "User" not in text[: match.start()] else "they")

    text = _SUBJECT.sub(subject, text)
    text = re.sub(r"\b(?:my|our|mine|ours|me|us|myself|ourselves)\b", lambda m: _POSSESSIVES[m.group()], text)
    return text[:1].upper() + text[1:]


def _subject(match: re.Match[str], name: str) -> str:
    glued, adverbs, verb = (match["glued"] or "").replace("’", "'"), match["adverbs"] or "", (match["verb"] or "").replace("’", "'")
    plural = name == "they"
    if glued:
        first = {"'m": "are", "'re": "are", "'ve": "have"}.get(glued) if plural else None
        return f"{name} {first or _THIRD_PERSON[glued]}{adverbs}{' ' + verb if verb else ''}"
    if not verb:
        return f"{name}{adverbs}"
    return f"{name}{adverbs} {('are' if verb == 'am' else verb) if plural else _conjugated(verb)}"


def _conjugated(verb: str) -> str:
    lowered = verb.lower()
    if lowered in _THIRD_PERSON:
        return _THIRD_PERSON[lowered]
    if lowered in _PAST or (lowered.endswith(("ed", "ing")) and len(lowered) > 4) or not verb.isalpha() or not verb.islower():
        return "needs" if lowered == "need" else verb
    if re.search(r"(?:s|x|z|ch|sh|o)$", lowered):
        return verb + "es"
    return verb[:-1] + "ies" if re.search(r"[^aeiou]y$", lowered) else verb + "s"
