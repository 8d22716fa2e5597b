"""The gate for summaries and removals: an extractor may propose them, the user's own words decide (M10).

`gate.py` judges facts. A summary goes into every prompt as facts do, and a removal can undo what the user said: neither is taken on
trust.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from holdfast.memory.declarations import declares, speaks_to_somebody
from holdfast.memory.disguise import find_disguise
from holdfast.memory.facts import SLOTS, Candidate, Fact, Proposal, SlotUpdate, Turn
from holdfast.memory.gate import memory_lines
from holdfast.memory.instructions import find_instruction
from holdfast.memory.statements import own_words
from holdfast.memory.support import find_support
from holdfast.text.likeness import compare
from holdfast.text.secrets import redact
from holdfast.text.sentences import split_sentences

LONGEST_SLOT = 4000
_REMOVAL = re.compile(
    (
        r"\b(?:forget|delete|remove|erase|drop|no longer|not any ?more|anymore|stopped|quit|left|not true|wrong|"
        r"incorrect|outdated|isn'?t true|never|changed|instead|used to|actually|not)\b|\bnicht mehr\b|"
        r"\bne\b.*\bplus\b|\bya no\b|больше не|不再"
    ),
    re.IGNORECASE,
)


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
    clean = [replace(turn, text=redact(turn.text)) for turn in turns]
    for update in proposal.slots:
        if update.slot not in SLOTS:
            refused.append((replace(update, text=redact(update.text[:LONGEST_SLOT])), "is none of the six summaries"))
            continue
        kept: list[str] = []
        left: list[str] = []
        why = ""
        for unit in split_sentences(redact(update.text[:LONGEST_SLOT])):
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
