"""The gate: what of a proposal becomes a fact, what waits for a person, and what is let go. No model, no I/O (M10).

`judge` runs each candidate through the rules below in their order; the first that decides ends it. A rule may also change the draft:
take a secret out, put a wish as a description, lower the confidence. A summary goes into every prompt as facts do, and a removal can
undo what the user said, so `admit_slots` and `admit_removals` look at the other two things that an extractor may propose.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from holdfast.clock import stamp
from holdfast.memory import merge
from holdfast.memory.facts import SLOTS, Candidate, Decision, Fact, Origin, Proposal, SlotUpdate, Turn, Verdict
from holdfast.memory.instructions import describe_wish, find_disguise, find_instruction
from holdfast.memory.statements import Support, declares, find_support, own_words, speaks_to_somebody, strip_lead_in
from holdfast.memory.word_lists import word_lists
from holdfast.secret_forms import replace_secrets
from holdfast.text.likeness import NEAR, compare
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences
from holdfast.text.words import terms

LONGEST = 500  # characters of a fact
LONGEST_SLOT = 4000
INFERRED_CONFIDENCE = 0.6
"""A fact that the user did not state has at most this confidence, whatever the extractor says."""

_PLACEHOLDER = re.compile(r"\[redacted: [^\]]*\]")
_CATEGORY = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_MEMORY_LINE = re.compile(r"^\s*(?:[-*]\s+|(?:Work|Personal|Top of mind|Recent|Earlier|Background):\s*)|\s*\(confidence: [\d.]+\)\s*$")
_OPEN_END = word_lists("support").pattern("open_end", re.IGNORECASE)
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
    wish: bool = False

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
    joined = _joined_orders(candidates)
    for number, candidate in enumerate(candidates):
        decision = _decide(candidate, case, part_of=joined.get(number))
        decisions.append(decision)
        if decision.fact is not None and decision.verdict in ("add", "replace", "confirm"):
            case = replace(case, facts=merge.apply(case.facts, [decision], case.now).facts, fresh=case.fresh | {decision.fact.id})
    return decisions


def _decide(candidate: Candidate, case: _Case, *, part_of: str | None) -> Decision:
    draft = _Draft(candidate, candidate.content, candidate.quote, candidate.error, candidate.confidence, Support("unknown"))
    for rule in _RULES:
        outcome = rule(draft, case)
        if isinstance(outcome, _Ruling):
            return _decision(outcome, draft, case)
        draft = outcome
        if rule is _disguise and part_of is not None:
            return _decision(_Ruling("quarantine", "split-instruction", f"together with the next it reads: “{part_of[:120]}”"), draft, case)
    return _decision(_Ruling("drop", "undecided", "no rule decided"), draft, case)


def _decision(ruling: _Ruling, draft: _Draft, case: _Case) -> Decision:
    fact = ruling.fact
    if fact is None and ruling.verdict == "quarantine":
        fact = _provisional(draft, case)
    return Decision(ruling.verdict, draft.candidate, ruling.why, fact, ruling.target, ruling.rule)


def _confident(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    if not draft.content.strip():
        return _Ruling("drop", "empty", "says nothing")
    confidence = draft.confidence
    if not math.isfinite(confidence) or confidence < case.threshold:
        return _Ruling("drop", "confidence", f"confidence {confidence} is below {case.threshold}")
    return replace(draft, confidence=min(confidence, 1.0))


def _more_than_a_secret(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    if _PLACEHOLDER.search(draft.content) and len(terms(_PLACEHOLDER.sub(" ", draft.content))) < 3:
        return _Ruling("drop", "only-a-secret", "holds nothing but a secret")
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
    for line in case.injected:
        differs = compare(draft.content, line)
        if differs.score >= NEAR or (differs.shared >= 0.8 and not differs.negation and not (differs.numbers[0] or differs.names[0])):
            return _Ruling("drop", "from-memory", "comes from the memory that was shown, not from the user")
    return draft


def _wish(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    """A wish about style that the user typed is put as a description. Anybody else's is an instruction."""
    described = describe_wish(draft.content) or (describe_wish(draft.quote) if draft.quote and find_instruction(draft.content) else None)
    if described is None:
        return draft
    said = next((turn for turn in case.turns if turn.kind == "user" and _says(turn, draft)), None)
    if said is None:
        return _Ruling("quarantine", "instruction", "is a wish about answers that the user did not type")
    support = Support("user", (said.id,), draft.quote or draft.support.quote or draft.candidate.content, 1.0)
    return replace(draft, content=described, wish=True, support=support)


def _says(turn: Turn, draft: _Draft) -> bool:
    """Whether the user's own words hold the wish: word for word, or as a wish with the same description."""
    own = own_words(turn.text)
    if any(normalise(text).strip(" .!") in normalise(own) for text in (draft.content, draft.quote) if text and describe_wish(text)):
        return True
    wanted = describe_wish(draft.content)
    return any(wanted == describe_wish(unit.text) for unit in split_sentences(own)) if wanted else False


def _no_instruction(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    if draft.wish:
        return draft
    found = find_instruction(draft.content)
    if found is None and not draft.support.typed and draft.quote:
        found = find_disguise(draft.quote) or find_instruction(draft.quote)
    return _Ruling("quarantine", found.rule, found.why) if found else draft


def _statement(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    """Whatever has not the build of a statement may be an order in words that no list has."""
    if draft.wish:
        return draft
    if speaks_to_somebody(draft.content):
        return _Ruling("quarantine", "addressed", "speaks to somebody instead of about the user")
    return draft if declares(draft.content) else _Ruling("quarantine", "not-a-statement", "is not built like a statement")


def _grounded(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    """What the user did not state stays provisional, with little confidence; it neither confirms nor replaces anything."""
    if draft.support.typed:
        return draft
    kind, related = merge.find_related(draft.content, case.facts)
    if kind == "same" and related is not None:
        return _Ruling("drop", "weak-repeat", "is known already, and the user did not say it again", target=related.id)
    fact = _provisional(draft, case)
    source = "no turn of this conversation" if draft.support.kind == "unknown" else f"a turn of kind “{draft.support.kind}”"
    return _Ruling("add", "inferred", f"is not in what the user stated, only in {source}", fact)


def _merged(draft: _Draft, case: _Case) -> _Draft | _Ruling:
    kind, related = merge.find_related(draft.content, case.facts)
    if kind == "same" and related is not None:
        return _confirmed(draft, case, related)
    named = [fact for fact in case.facts if fact.id in draft.candidate.replaces and _related_enough(draft, fact)]
    corrected = [fact for fact in case.facts if draft.error and _states_error(fact, draft)]
    against = [related] if related is not None else []
    if any(_was_corrected(fact, draft) for fact in against):
        weak = _provisional(draft, case)
        return _Ruling("add", "corrected-before", "repeats what the user corrected before", weak)
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
    _short,
    _disguise,
    _supported,
    _not_from_memory,
    _wish,
    _no_instruction,
    _statement,
    _grounded,
    _merged,
)


def memory_lines(injected: str) -> tuple[str, ...]:
    """The facts and summaries of a rendered memory block, without their marks."""
    lines = (_MEMORY_LINE.sub("", _MEMORY_LINE.sub("", line)).strip() for line in injected.splitlines())
    return tuple(line for line in lines if line and not line.startswith(("<", "#", "(")))


def _joined_orders(candidates: Sequence[Candidate]) -> dict[int, str]:
    """Candidates that are harmless one by one and an instruction when read on: number to the joined text."""
    found: dict[int, str] = {}
    for number, (first, second) in enumerate(pairwise(candidates)):
        if len(first.content) + len(second.content) > LONGEST:
            continue  # each is judged alone, and too long anyway
        cut_off = _no_end(first.content) and _no_head(second.content) and not declares(first.content)  # facts often have no full stop
        if not (_OPEN_END.search(first.content) or _goes_on(second.content) or cut_off):
            continue
        joined = f"{first.content.rstrip(' .…')} {second.content.lstrip(' .…')}"
        if describe_wish(joined) is None and (
            find_disguise(joined) or find_instruction(joined) or not declares(joined) or speaks_to_somebody(joined)
        ):
            found[number] = found[number + 1] = joined
    return found


def _no_end(text: str) -> bool:
    return text.rstrip()[-1:] not in (".", "!", "?", "。")


def _no_head(text: str) -> bool:
    return (
        re.match(
            r"\s*(?:the |user|i\b|i'|my\b|we\b|our\b|it\b|[A-Z]\w+ (?:is|are|has|uses?|likes?|prefers?|wants?|works?|lives?)\b)",
            text,
            re.IGNORECASE,
        )
        is None
    )


def _goes_on(text: str) -> bool:
    """Whether a text begins in the middle of a sentence: with a small letter, a digit or a mark."""
    first = text.lstrip()[:1]
    return first.islower() or not first.isalpha()


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
    return "" if find_support(Candidate(sentence), turns).typed else "is not in what the user stated"


def admit_removals(proposal: Proposal, turns: Sequence[Turn], facts: Sequence[Fact]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The ids that may be removed, and those that may not, each with the reason.

    A fact is removed only when the user, in their own words, speaks of what it says and that it is over, wrong or to be forgotten.
    """
    known = {fact.id: fact for fact in facts}
    admitted: list[str] = []
    refused: list[tuple[str, str]] = []
    said = [unit.text for turn in turns if turn.kind == "user" for unit in split_sentences(own_words(turn.text))]
    for fact_id in dict.fromkeys(proposal.remove):
        fact = known.get(fact_id)
        if fact is None:
            refused.append((fact_id, "is no fact that is known"))
        elif any(_REMOVAL.search(text) and compare(text, fact.content).shared >= 0.4 for text in said):
            admitted.append(fact_id)
        else:
            refused.append((fact_id, "the user did not say that it is over or wrong"))
    return tuple(admitted), tuple(refused)
