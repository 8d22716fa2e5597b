"""The gate: what of a proposal becomes a fact, what waits for a person, and what is let go. No model, no I/O (M10).

Where a thing comes from decides before what it says. What the user typed in his own words is learned, working rules included, as a
description; if it loosens a check it is asked about. What he did not type waits for review, and so does a fact with a word that only
others said. Secrets are never kept, and what hides or breaks out of where it is put waits whoever wrote it. An extractor that reads may
name a concern of its own: wordings that no list has, in any language. It makes a decision stricter and never milder, so nothing is gained
by a text that talks it out of one.

`judge` runs each candidate through the rules below in their order; the first that decides ends it. A summary goes into every prompt as
facts do, and a removal can undo what the user said, so `admit_slots` and `admit_removals` look at the other things that may be proposed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from holdfast.clock import stamp
from holdfast.memory import merge
from holdfast.memory.facts import SLOTS, Candidate, Decision, Fact, Origin, Proposal, SlotUpdate, Turn, Verdict
from holdfast.memory.instructions import describe_wish, find_disguise, find_instruction
from holdfast.memory.screening import find_loosening, own_words, tells_secret, without_added_checks
from holdfast.memory.statements import Support, declares, find_support, foreign_words, speaks_to_somebody, strip_lead_in
from holdfast.memory.wording import reads_pasted, word_lists
from holdfast.redaction import replace_secrets
from holdfast.text.language import guess_language
from holdfast.text.likeness import NEAR, compare
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences
from holdfast.text.words import terms

LONGEST = 500  # characters of a fact
LONGEST_SLOT = 4000
INFERRED_CONFIDENCE = 0.6
"""A fact that the user did not state has at most this confidence, whatever the extractor says."""
ASKED = frozenset({"override", "permission", "check", "secrecy", "recipient", "money", "address", "delayed", "encoded"})
"""Rules by which something typed waits for the user's yes: a terminal asks in the same turn, elsewhere it waits for review."""

_PLACEHOLDER = re.compile(r"\[redacted: [^\]]*\]")
_CATEGORY = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_MEMORY_LINE = re.compile(
    r"^\s*(?:[-*]\s+|(?:Work|Personal|Top of mind|Recent|Earlier|Background):\s*)"
    r"|(?:(?<!\s)\s*+|(?<=\s))\(confidence: [\d.]+\)\s*+$"
)
_ABOUT_USER = re.compile(r"(?:the )?user\b", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"(?:i|i['’](?:m|ve|d|ll)|my|we|we['’]re|our)\b", re.IGNORECASE)
_REMOVAL = word_lists("support").pattern("removal", re.IGNORECASE)


@dataclass(frozen=True)
class _Case:
    """All that the rules look at. Only `facts` changes from candidate to candidate: what was just accepted counts."""

    turns: Sequence[Turn]
    clean: tuple[Turn, ...]
    facts: tuple[Fact, ...]
    threshold: float
    injected: tuple[str, ...]
    now: str
    new_id: Callable[[], str]
    thread: str | None
    fresh: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Draft:
    """A candidate on its way through the rules."""

    candidate: Candidate
    content: str
    quote: str | None
    error: str | None
    confidence: float
    support: Support

    @property
    def category(self) -> str:
        wanted = self.candidate.category.strip().lower()
        return wanted if _CATEGORY.fullmatch(wanted) else "context"


@dataclass(frozen=True)
class _Ruling:
    verdict: Verdict
    rule: str
    why: str
    fact: Fact | None = None
    target: str | None = None
    candidate: Candidate | None = None
    """What is told in place of the candidate, where even that must not be shown."""


_Rule = Callable[[_Draft, _Case], "_Draft | _Ruling"]


def judge(
    proposal: Proposal,
    turns: Sequence[Turn],
    facts: Sequence[Fact],
    *,
    threshold: float = 0.7,
    injected: str = "",
    now: datetime | str,
    new_id: Callable[[], str],
    thread: str | None = None,
) -> list[Decision]:
    """One decision for each candidate, in order. `injected` is the memory block that stood in the prompt.

    Pure but for `new_id`, which is called once for each fact that is added, replaces another or is kept for review.
    """
    moment = now if isinstance(now, str) else stamp(now)
    memory = memory_lines(injected)
    case = _Case(turns, _clean(turns, memory), tuple(facts), threshold, memory, moment, new_id, thread)
    decisions: list[Decision] = []
    candidates = [_redacted(candidate) for candidate in proposal.candidates]
    for candidate in candidates:
        decision = _decide(candidate, case)
        decisions.append(decision)
        if decision.fact is not None and decision.verdict in ("add", "replace", "confirm"):
            case = replace(case, facts=merge.apply(case.facts, [decision], case.now).facts, fresh=case.fresh | {decision.fact.id})
    return decisions


def _decide(candidate: Candidate, case: _Case) -> Decision:
    draft = _Draft(candidate, candidate.content, candidate.quote, candidate.error, candidate.confidence, Support("unknown"))
    for rule in _RULES:
        outcome = rule(draft, case)
        if isinstance(outcome, _Ruling):
            return _decision(outcome, draft, case)
        draft = outcome
    return _decision(_Ruling("drop", "undecided", "no rule decided"), draft, case)


def _decision(ruling: _Ruling, draft: _Draft, case: _Case) -> Decision:
    fact = ruling.fact
    if fact is None and ruling.verdict == "quarantine":
        fact = _provisional(draft, case)
    return Decision(ruling.verdict, ruling.candidate or draft.candidate, ruling.why, fact, ruling.target, ruling.rule)


def _confident(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    if not draft.content.strip():
        return _Ruling("drop", "empty", "says nothing")
    confidence = draft.confidence
    if not math.isfinite(confidence) or confidence < case.threshold:
        return _Ruling("drop", "confidence", f"confidence {confidence} is below {case.threshold}")
    return replace(draft, confidence=min(confidence, 1.0))


def _more_than_a_secret(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    if _PLACEHOLDER.search(draft.content) and len(terms(_PLACEHOLDER.sub(" ", draft.content))) < 4:
        return _Ruling("drop", "only-a-secret", "holds nothing but a secret")
    return draft


def _no_secret(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    """Whatever tells a secret is let go whole: nothing of it is kept, not even to be looked at."""
    named = "secret" if draft.candidate.concern == "secret" else None
    for text in (draft.content, draft.quote, draft.error):
        kind = named or (tells_secret(text, case.clean) if text else None)
        if kind:
            blank = replace(draft.candidate, content=f"[redacted: {kind}]", quote=None, error=None)
            return _Ruling("drop", "secret", f"tells a secret ({kind})", candidate=blank)
    return draft


def _redacted(candidate: Candidate) -> Candidate:
    """The candidate without secrets. Done before all rules, because every decision is shown or stored, also one that lets go."""
    quote, error = candidate.quote, candidate.error
    return replace(
        candidate,
        content=replace_secrets(candidate.content),
        quote=None if quote is None else replace_secrets(quote),
        error=None if error is None else replace_secrets(error),
    )


def _short(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    if len(draft.content) > LONGEST:
        shortened = replace(draft, content=draft.content[: LONGEST - 1] + "…")
        fact = _provisional(shortened, case)
        return _Ruling("quarantine", "too-long", f"is longer than {LONGEST} characters", fact)
    return draft


def _disguise(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    for text in (draft.content, draft.error or ""):
        found = find_disguise(text)
        if found:
            return _Ruling("quarantine", found.rule, found.why)
    return replace(draft, content=re.sub(r"\s+", " ", strip_lead_in(draft.content.strip())))


def _supported(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    claim = replace(draft.candidate, content=draft.content, quote=draft.quote)
    return replace(draft, support=find_support(claim, case.clean))


def _clean(turns: Sequence[Turn], memory: tuple[str, ...]) -> tuple[Turn, ...]:
    """The turns with their secrets taken out, so that a fact that lost one still finds its sentence; memory lines are no user's words."""
    cleaned = []
    for turn in turns:
        text = replace_secrets(turn.text)
        if turn.kind == "user" and memory and "(confidence:" in text:
            text = "\n".join(line for line in text.splitlines() if _MEMORY_LINE.sub("", line).strip() not in memory)
        cleaned.append(replace(turn, text=text))
    return tuple(cleaned)


def _not_from_memory(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    if draft.support.typed:
        return draft
    known = [compare(draft.content, line) for line in case.injected]
    if not case.clean and known and frozenset.intersection(*(frozenset(one.words[0]) for one in known)):
        return (
            draft  # nobody talked, so a program brings it on its own account, with a word that memory does not have: a person looks at it
        )
    for differs in known:
        if differs.score >= NEAR or (differs.shared >= 0.8 and not differs.negation and not (differs.numbers[0] or differs.names[0])):
            return _Ruling("drop", "from-memory", "comes from the memory that was shown, not from the user")
    return draft


def _typed(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    """What the user did not type waits for review; it neither confirms nor replaces anything."""
    if not draft.support.typed:
        kind, related = merge.find_related(draft.content, case.facts)
        if kind == "same" and related is not None:
            return _Ruling("drop", "weak-repeat", "is known already, and the user did not say it again", target=related.id)
        elsewhere = "" if draft.support.kind == "unknown" else f", only in a turn of kind “{draft.support.kind}”"
        return _Ruling("quarantine", "not-typed", f"is not in what the user typed in their own words{elsewhere}")
    if draft.candidate.concern == "pasted":
        fact = _provisional(replace(draft, support=replace(draft.support, kind="unknown")), case)
        return _Ruling("quarantine", "not-typed", "stands in a text that the user only pasted or quoted, as the extractor read it", fact)
    foreign = foreign_words(draft.content, case.clean)
    if foreign:
        support = replace(draft.support, kind="unknown")
        fact = _provisional(replace(draft, support=support), case)
        return _Ruling("quarantine", "foreign-words", f"“{foreign[0]}” is not the user's word: others said it", fact)
    return draft


def _asked_about(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    """What loosens a check is asked about, with all that stands beside it in the message: an order may be spread over sentences."""
    if draft.candidate.concern in ASKED:
        return _Ruling("quarantine", draft.candidate.concern, "loosens a check, as the extractor read it")
    for text in (draft.content, draft.support.quote or ""):
        found = find_instruction(without_added_checks(text), disguised=guess_language(text) == "en")
        if found and found.rule in ASKED:
            return _Ruling("quarantine", found.rule, found.why)
    for text in _said_beside(draft, case):  # how the proposal puts it says nothing of how the user meant it
        loosens = find_loosening(text)
        if loosens:
            return _Ruling("quarantine", loosens.rule, f"{loosens.why} (“{loosens.words}”)")
    return draft


def _said_beside(draft: _Draft, case: _Case) -> Iterator[str]:
    """The user's own words around a fact: its messages, and each with the one before or after it where only both together loosen."""
    typed = [(turn.id, own_words(turn.text)) for turn in case.clean if turn.kind == "user"]
    yield from (text for id, text in typed if id in draft.support.messages)
    for (first, before), (second, after) in pairwise(typed):
        if {first, second} & set(draft.support.messages) and not (find_loosening(before) or find_loosening(after)):
            yield f"{before.rstrip(' .…')} {after.lstrip(' .…')}"


def _described(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    """A wish or a rule is put as a description, and what the user said in another language, or in other words, as his saying."""
    content = draft.content
    described = describe_wish(content)
    if described is None and draft.support.verbatim and draft.support.quote:
        described = describe_wish(draft.support.quote) or f"User said: “{_shortened(draft.support.quote)}”"
    elif described is None and not _ABOUT_USER.match(content) and not _states(content):
        told = guess_language(content) == "en" and find_instruction(content, disguised=False) is not None
        described = f"User wants: {_shortened(content)}" if told else f"User said: “{_shortened(content)}”"
    return replace(draft, content=described) if described else draft


def _states(content: str) -> bool:
    """Whether a text is plainly a statement, so that it needs no frame. Of other languages than English that is not known."""
    english = _FIRST_PERSON.match(content) is not None or guess_language(content) == "en"
    return english and declares(content) and not speaks_to_somebody(content)


def _shortened(text: str) -> str:
    plain = re.sub(r"\s+", " ", text).strip()
    return plain if len(plain) <= LONGEST - 20 else plain[: LONGEST - 21] + "…"


def _merged(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    kind, related = merge.find_related(draft.content, case.facts)
    if kind == "same" and related is not None:
        return _confirmed(draft, case, related)
    named = [fact for fact in case.facts if fact.id in draft.candidate.replaces and _related_enough(draft, fact)]
    corrected = [fact for fact in case.facts if draft.error and _states_error(fact, draft)]
    against = [related] if related is not None else []
    if any(_was_corrected(fact, draft) for fact in against):
        return _Ruling("quarantine", "corrected-before", "repeats what the user corrected before")
    targets = tuple(dict.fromkeys(fact.id for fact in (*against, *named, *corrected)))
    fact = replace(_fact(draft, case, case.new_id()), replaces=targets)
    if targets:
        return _Ruling("replace", "supersedes", "says something else about the same thing, later", fact, targets[0])
    return _Ruling("add", "grounded", "is in the user's own words", fact)


def _confirmed(draft: _Draft, case: _Case, related: Fact) -> _Ruling:
    if related.id in case.fresh:
        return _Ruling("drop", "repeated", "is in the same proposal already", target=related.id)
    fact = _fact(draft, case, related.id)
    seen = related.origin.thread == case.thread and set(fact.origin.messages) <= set(related.origin.messages) and fact.origin.messages
    if seen and related.status == "active":
        return _Ruling("drop", "already-learned", "was learned from the same messages before", target=related.id)
    return _Ruling("confirm", "confirmed", "is known already and was said again", merge.confirm(related, fact, case.now), related.id)


def _related_enough(draft: _Draft, fact: Fact) -> bool:
    """An extractor may name what a fact replaces, but not wipe out what has nothing to do with it."""
    return compare(draft.content, fact.content).shared >= 0.25 and _kinds_agree(draft, fact)


def _kinds_agree(draft: _Draft, fact: Fact) -> bool:
    return fact.category != "correction" or draft.category == "correction" or draft.support.typed


def _states_error(fact: Fact, draft: _Draft) -> bool:
    wrong = normalise(draft.error or "").strip(" .")
    return (
        bool(wrong)
        and re.search(rf"(?<!\w){re.escape(wrong)}(?!\w)", normalise(fact.content)) is not None
        and _shares_topic(draft, fact, wrong)
    )


def _shares_topic(draft: _Draft, fact: Fact, wrong: str) -> bool:
    left = set(terms(fact.content)) - set(terms(wrong)) - {"user"}
    return bool(left & set(terms(draft.content))) or not left


def _was_corrected(fact: Fact, draft: _Draft) -> bool:
    """Whether the draft says again what a correction called wrong."""
    wrong = fact.extra.get("sourceError") if fact.category == "correction" and draft.category != "correction" else None
    return isinstance(wrong, str) and bool(wrong.strip()) and set(terms(wrong)) <= set(terms(draft.content))


def _provisional(draft: _Draft, case: _Case) -> Fact:
    return replace(_fact(draft, case, case.new_id()), status="provisional", confidence=min(draft.confidence, INFERRED_CONFIDENCE))


def _fact(draft: _Draft, case: _Case, fact_id: str) -> Fact:
    support = draft.support
    quote = draft.quote if draft.quote and support.typed else support.quote
    return Fact(
        id=fact_id,
        content=draft.content,
        category=draft.category,
        confidence=draft.confidence,
        created=case.now,
        source=case.thread or "conversation",
        origin=Origin(support.kind, case.thread, support.messages, None if quote is None else replace_secrets(quote)[:LONGEST]),
        confirmed=case.now,
        valid_from=case.now,
        extra={"sourceError": draft.error} if draft.error else {},
    )


_RULES: tuple[_Rule, ...] = (
    _confident,
    _more_than_a_secret,
    _no_secret,
    _short,
    _disguise,
    _supported,
    _not_from_memory,
    _typed,
    _asked_about,
    _described,
    _merged,
)


def memory_lines(injected: str) -> tuple[str, ...]:
    """The facts and summaries of a rendered memory block, without their marks."""
    lines = (_MEMORY_LINE.sub("", _MEMORY_LINE.sub("", line)).strip() for line in injected.splitlines())
    return tuple(line for line in lines if line and not line.startswith(("<", "#", "(")))


# Summaries and removals: an extractor may propose them, the user's own words decide


def admit_slots(
    proposal: Proposal, turns: Sequence[Turn], *, injected: str = ""
) -> tuple[tuple[SlotUpdate, ...], tuple[tuple[SlotUpdate, str], ...]]:
    """The new summaries that may be stored, cleaned; and what of them may not, each with the reason.

    A summary is kept sentence by sentence: a sentence that is an instruction, is in disguise, or that neither the user's words nor the
    memory of before supports is refused. A summary of which nothing is left changes nothing.
    """
    lines = memory_lines(injected)
    admitted: list[SlotUpdate] = []
    refused: list[tuple[SlotUpdate, str]] = []
    clean = [replace(turn, text=replace_secrets(turn.text)) for turn in turns]
    for update in proposal.slots:
        if update.slot not in SLOTS:
            refused.append((replace(update, text=replace_secrets(update.text[:LONGEST_SLOT])), "is none of the six summaries"))
            continue
        kept: list[str] = []
        left: list[str] = []
        why = ""
        for unit in split_sentences(replace_secrets(update.text[:LONGEST_SLOT])):
            if tells_secret(unit.text, clean):
                why = why or "tells a secret"
                continue
            problem = _slot_problem(unit.text, clean, lines)
            why = why or problem
            (left if problem else kept).append(re.sub(r"\s+", " ", unit.text))
        if kept:
            admitted.append(SlotUpdate(update.slot, " ".join(kept)))
        if left or not kept:
            refused.append((SlotUpdate(update.slot, " ".join(left)), why or "says nothing"))
    return tuple(admitted), tuple(refused)


def _slot_problem(sentence: str, turns: Sequence[Turn], lines: Sequence[str]) -> str:
    found = find_disguise(sentence) or find_instruction(sentence)
    if found:
        return found.why
    if speaks_to_somebody(sentence) or not declares(sentence):
        return "is not built like a statement"
    if any(compare(sentence, line).shared >= 0.8 for line in lines):
        return ""
    loosens, foreign = find_loosening(sentence), foreign_words(sentence, turns)
    if loosens or foreign:
        return loosens.why if loosens else f"“{foreign[0]}” is not the user's word"
    return "" if find_support(Candidate(sentence), turns).typed else "is not in what the user stated"


def admit_note(text: str, known: str, turns: Sequence[Turn]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What of a text that an agent writes for itself may be kept, line by line, and what may not, each with the reason.

    A note is the agent's, so it need not be in the user's words; but nothing in it may be a secret, hide, loosen a check, or come from
    what a tool, a page or a file said. What stood there before (`known`) may stay. A secret is not given back.
    """
    kept: list[str] = []
    left: list[tuple[str, str]] = []
    clean = [replace(turn, text=replace_secrets(turn.text)) for turn in turns]
    for line in replace_secrets(text).splitlines():
        problem = "" if not line.strip() or line in known.splitlines() else _note_problem(line, clean)
        if not problem:
            kept.append(line)
        else:
            left.append(("" if tells_secret(line, clean) else line.strip(), problem))
    return "\n".join(kept), tuple(left)


def _note_problem(line: str, turns: Sequence[Turn]) -> str:
    disguise, loosens, foreign = find_disguise(line), find_loosening(line), foreign_words(line, turns)
    order = find_instruction(without_added_checks(line))
    if disguise or (order and order.rule in ASKED):
        return (disguise or order).why  # type: ignore[union-attr]  # one of the two is there
    if loosens or foreign:
        return loosens.why if loosens else f"“{foreign[0]}” is a word of a tool, a page or a file"
    return "tells a secret" if tells_secret(line, turns) else ""


def admit_removals(proposal: Proposal, turns: Sequence[Turn], facts: Sequence[Fact]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The ids that may be removed, and those that may not, each with the reason.

    A fact is removed only when the user, in their own words, speaks of what it says and that it is over, wrong or to be forgotten.
    """
    known = {fact.id: fact for fact in facts}
    admitted: list[str] = []
    refused: list[tuple[str, str]] = []
    typed = [own for turn in turns if turn.kind == "user" and reads_pasted(own := own_words(turn.text)) <= 0]
    said = [unit.text for own in typed for unit in split_sentences(own)]
    for fact_id in dict.fromkeys(proposal.remove):
        fact = known.get(fact_id)
        if fact is None:
            refused.append((fact_id, "is no fact that is known"))
        elif any(_REMOVAL.search(text) and compare(text, fact.content).shared >= 0.4 for text in said):
            admitted.append(fact_id)
        else:
            refused.append((fact_id, "the user did not say that it is over or wrong"))
    return tuple(admitted), tuple(refused)
