"""Facts from plain English statements, without any model (M13).

Each rule is one way of saying one kind of thing: a pattern over a sentence in the user's own words, the category, and how sure it is.
A sentence is read only if it is stated plainly (`statements.py`): questions, mere thoughts, what others say, code, logs and pasted text
teach nothing. Every candidate quotes its sentence word for word, and keeps its numbers and names as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from holdfast.memory.attributes import attribute_of
from holdfast.memory.facts import Candidate, Fact, Proposal, SlotUpdate, Turn
from holdfast.memory.instructions import strip_lead_in
from holdfast.memory.phrases import CORRECTIONS, PHRASES, Phrase
from holdfast.memory.rewriting import third_person
from holdfast.memory.statements import Statement, mood_of, statements
from holdfast.memory.wishes import describe_wish
from holdfast.text.language import guess_language
from holdfast.text.normalise import normalise

_LONGEST = 240  # characters of a sentence: longer ones hold more than one plain statement
_CLAUSE = re.compile(
    (
        r"\s*(?:;|\s[–—-]\s|,?\s+(?:and|but|so|because|since|which is why|although|though)\s+(?=(?:i|we|my|our)\b)|"
        r",\s+(?=(?:i|we)\s|(?:i|we)['’]|(?:my|our)\s+\w+\s+(?:is|are)\b))\s*"
    ),
    re.IGNORECASE,
)
_OPENING = re.compile(
    r"^(?:(?:hi|hello|hey|ok|okay|well|so|and|but|also|anyway|actually|oh|yes|yeah|sure|great|thanks|thank you|"
    r"right|honestly|frankly|basically|personally|generally|usually|currently|at work|at home|these days|"
    r"right now|at the moment|in general|for context|fyi|btw|by the way|as i said|as mentioned|to be honest|"
    r"sorry)[,.!:]?\s+)+(?=(?:i|we|my|our|the|please|answer|call|use)\b|i['’])",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    (
        r"^(?:it|this|that|them|these|those|so|one|you|your|something|anything|everything|nothing|what|how|more|"
        r"some|a lot|help|the (?:first|second|last|other|same|above|latter|former|idea|answer|result|output)(?: one|"
        r" option)?)\b(?!\s+(?:over|to|than)\b)"
    ),
    re.IGNORECASE,
)
_VAGUE_END = re.compile(r"\b(?:it|this|that|them|these|those|you)\b[.!]?$", re.IGNORECASE)
_POINTING = re.compile(
    (
        r"\b(?:this(?! (?:year|week|month|morning|summer|spring|autumn|fall|winter|weekend|season|quarter|semester|"
        r"evening|afternoon))|these|your|that (?:bug|error|file|one|code)|it)\b"
    ),
    re.IGNORECASE,
)
_PASSING = re.compile(
    r"(?:not |still |all |now |again )*(?:failing|broken|red|green|slow|down|wrong|right|correct|fine|ok|okay|"
    r"empty|missing|below|above|here|there|ready|done|gone|late|late again|stuck|crashing|not working|working|"
    r"attached|as follows|"
    r"the following|red again|\w+ing(?: again| now)?)|(?:the|my|our) (?:script|command|code|program|query|build|"
    r"app|loop|function)\b.*|(?:into|out of|through) .+",
    re.IGNORECASE,
)
_OPINION = re.compile(
    (
        r"(?:i|we)(?:['’]m| am)? (?:don['’]t |do not |can['’]t )?(?:think|know|understand|agree|believe|see|get|"
        r"guess|need|want|just|sorry|sure)\b"
    ),
    re.IGNORECASE,
)
_SARCASM = re.compile(r"\b(?:yeah right|as if|sure\.\.\.|/s|lol|haha|oh great|just love it when|just what i needed)\b|🙄|😏", re.IGNORECASE)


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
    for rule in PHRASES:
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


def _content(bare: str, rule: Phrase) -> str:
    if rule.name == "name":
        named = re.fullmatch(r"(?:i['’]m|i am) ((?-i:[A-Z])[\w'’-]+(?: (?-i:[A-Z])[\w'’-]+){0,2})", bare, re.IGNORECASE)
        if named:
            return f"User's name is {named[1]}"
    return third_person(bare)


def _correction(text: str) -> Candidate | None:
    """ "No, it is X, not Y": the claim in the third person, and what was wrong."""
    stripped = text.strip()
    for pattern in CORRECTIONS:
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
