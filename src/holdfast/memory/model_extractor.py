"""Facts by a model: the question, the checked answer, one chance to mend it, and long conversations piece by piece (M9).

The work is a generator that yields what to ask and is sent the answer; `ModelExtractor` drives it with a plain callable. Conversation and
memory are data in the question: framed, escaped, never a format string. Known facts are shown by number, so that a model cannot make up an
id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from holdfast.errors import ExtractionFailed
from holdfast.memory.facts import CONCERNS, SLOTS, Candidate, Fact, Proposal, SlotUpdate, Turn
from holdfast.redaction import replace_secrets
from holdfast.text.normalise import framed, inert
from holdfast.tokens.budget import take_fitting
from holdfast.validation import problems_of

_SLOT = "{material}"
_FENCED = re.compile(r"```(?:json)?\s*(\{.*\})\s*```", re.DOTALL)
_LEAST_ROOM = 200  # tokens for the conversation beside the prompt
_SHOWN_ERRORS = 6


@dataclass(frozen=True)
class Ask:
    """A prompt and the JSON schema that the answer has to fit; send the answer back, as text or as the object itself."""

    prompt: str
    schema: dict[str, Any]


class _Answered(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _NewFact(_Answered):
    content: str = Field(min_length=1, max_length=2000)
    category: str = Field(default="context", max_length=40)
    confidence: int = Field(ge=0, le=100, description="percent")
    quote: str = Field(default="", max_length=4000)
    replaces: list[int] = Field(default_factory=list, max_length=20)
    error: str = Field(default="", max_length=500)
    concern: str = Field(default="", max_length=40)

    @field_validator("confidence", mode="before")
    @classmethod
    def _as_percent(cls, value: object) -> object:
        """A share between 0 and 1 is what some models give in spite of the schema: 0.9 means 90."""
        if isinstance(value, float) and 0 < value <= 1:
            return round(value * 100)
        return round(value) if isinstance(value, float) and value == value else value

    @field_validator("quote", "error", "category", "concern", mode="before")
    @classmethod
    def _no_null(cls, value: object) -> object:
        return "" if value is None else value


class _NewSlot(_Answered):
    slot: str
    text: str = Field(max_length=4000)

    @field_validator("slot")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in SLOTS:
            raise ValueError(f"is none of {', '.join(SLOTS)}")
        return value


class _Answer(_Answered):
    facts: list[_NewFact] = Field(max_length=50)
    remove: list[int] = Field(default_factory=list, max_length=50)
    slots: list[_NewSlot] = Field(default_factory=list, max_length=6)


@cache
def default_prompt() -> str:
    """The prompt of the project. It has one slot, `{material}`; other braces are literal."""
    return resources.files("holdfast.memory").joinpath("prompts/extract.txt").read_text("utf-8")


def answer_schema(known: int) -> dict[str, Any]:
    """The JSON schema of an answer, for so many known facts.

    Confidence is a whole percent, because constrained decoding bounds integers, not fractions.
    """
    schema: dict[str, Any] = json.loads(resources.files("holdfast.memory").joinpath("prompts/answer_schema.json").read_text("utf-8"))
    number = {"type": "integer", "minimum": 1, "maximum": max(1, known)}
    numbers = {"type": "array", "items": number, "maxItems": 20 if known else 0}
    schema["properties"]["remove"] = schema["properties"]["facts"]["items"]["properties"]["replaces"] = numbers
    return schema


def extraction(
    turns: Sequence[Turn],
    facts: Sequence[Fact],
    *,
    slots: Sequence[SlotUpdate] = (),
    limit: int = 6000,
    count: Callable[[str], int],
    prompt: str | None = None,
) -> Generator[Ask, dict[str, Any] | str, Proposal]:
    """What a model proposes to learn. No single prompt is over `limit` tokens; a long conversation is read in several.

    Later pieces are asked with the facts of the earlier ones as known, so that nothing is proposed twice.
    Raises ExtractionFailed when an answer cannot be mended; what went wrong at the provider is thrown in by the caller.
    """
    template = prompt or default_prompt()
    found: list[Candidate] = []
    removed: list[str] = []
    texts = {update.slot: update.text for update in slots}
    changed: dict[str, str] = {}
    waiting = [_Piece(turn.kind, replace_secrets(turn.text)) for turn in turns if turn.kind in ("user", "assistant") and turn.text.strip()]
    waiting.reverse()
    while waiting:
        known = _fitting(facts, limit // 3, count)
        shown = _filled(template, _material(known, found, texts, ()))
        room = limit - count(shown)
        if room < _LEAST_ROOM:
            raise ExtractionFailed(
                f"A call of {limit} tokens has no room for the conversation beside the prompt and the known facts. Raise the limit."
            )
        piece = take_fitting(waiting, room, lambda one: count(one.shown), partial(_cut, count))
        answer = yield from _asked(_filled(template, _material(known, found, texts, piece)), answer_schema(len(known)))
        found.extend(_candidate(new, known) for new in answer.facts)
        removed.extend(known[number - 1].id for number in answer.remove if 1 <= number <= len(known))
        for update in answer.slots:
            texts[update.slot] = changed[update.slot] = update.text
    unique = {candidate.content.casefold(): candidate for candidate in found}
    return Proposal(tuple(unique.values()), tuple(dict.fromkeys(removed)), tuple(SlotUpdate(slot, text) for slot, text in changed.items()))


class ModelExtractor:
    """Asks a model, by a callable that takes the prompt and the schema and returns the answer as text or as an object."""

    def __init__(
        self,
        ask: Callable[[str, dict[str, Any]], dict[str, Any] | str],
        *,
        count: Callable[[str], int] | None = None,
        limit: int = 6000,
        prompt: str | None = None,
        slots: Callable[[], Sequence[SlotUpdate]] | None = None,
    ) -> None:
        self._ask = ask
        self._count = count or (lambda text: len(text.encode("utf-8")) // 3 + 1)
        self._limit = limit
        self._prompt = prompt
        self._slots = slots or (lambda: ())

    def extract(self, turns: Sequence[Turn], facts: Sequence[Fact]) -> Proposal:
        """What the model proposes. Raises ExtractionFailed, or whatever the callable raises."""
        work = extraction(turns, facts, slots=self._slots(), limit=self._limit, count=self._count, prompt=self._prompt)
        try:
            wanted = next(work)
            while True:
                wanted = work.send(self._ask(wanted.prompt, wanted.schema))
        except StopIteration as end:
            return end.value if isinstance(end.value, Proposal) else Proposal()


def _asked(prompt: str, schema: dict[str, Any]) -> Generator[Ask, dict[str, Any] | str, _Answer]:
    """One question, and the same once more with what was wrong about the answer."""
    answer = yield Ask(prompt, schema)
    try:
        return _read(answer)
    except ValueError as error:
        wrong = _problems(error)
    said = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
    again = yield Ask(
        (
            f"{prompt}\n\nYour last answer did not fit the schema:\n{inert(said[:2000])}\n\nWhat was "
            f"wrong:\n{wrong}\n\nGive the whole corrected JSON object."
        ),
        schema,
    )
    try:
        return _read(again)
    except ValueError as error:
        raise ExtractionFailed(
            f"The model's answer fits the memory schema neither at first nor after it was shown what is wrong: {_problems(error)}"
        ) from None


def _read(answer: object) -> _Answer:
    if isinstance(answer, str):
        fenced = _FENCED.search(answer)
        text = fenced[1] if fenced else answer[answer.find("{") : answer.rfind("}") + 1] if "{" in answer else answer
        if not text.strip():
            raise ValueError("The answer is empty.")
        try:
            answer = json.loads(text)
        except RecursionError:
            raise ValueError("The answer is nested too deeply.") from None
    return _Answer.model_validate(answer)


def _problems(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return "\n".join(f"- {problem}" for problem in problems_of(error)[:_SHOWN_ERRORS])
    return f"- {error}"


def _candidate(new: _NewFact, known: Sequence[Fact]) -> Candidate:
    replaces = tuple(dict.fromkeys(known[number - 1].id for number in new.replaces if 1 <= number <= len(known)))
    return Candidate(
        new.content.strip(),
        new.category.strip().lower() or "context",
        new.confidence / 100,
        new.quote.strip() or None,
        replaces,
        new.error.strip() or None,
        concern if (concern := new.concern.strip().lower()) in CONCERNS else None,
    )


@dataclass(frozen=True)
class _Piece:
    """A turn, or a part of a long one, as the model reads it."""

    kind: str
    text: str

    @property
    def shown(self) -> str:
        return framed("turn", self.text, from_=self.kind)


def _cut(count: Callable[[str], int], piece: _Piece, room: int) -> tuple[_Piece, _Piece | None]:
    """The longest beginning that fits, ending after a sentence or a word where there is one near; and the rest, if it has words."""
    low, high = 1, len(piece.text)
    while low < high:
        size = (low + high + 1) // 2
        low, high = (size, high) if count(_Piece(piece.kind, piece.text[:size]).shown) < room else (low, size - 1)
    ends = [match.end() for match in re.finditer(r"[.!?\n]\s|\s", piece.text[:low])]
    at = ends[-1] if ends and ends[-1] > low // 2 else low
    return _Piece(piece.kind, piece.text[:at]), _Piece(piece.kind, piece.text[at:]) if piece.text[at:].strip() else None


def _fitting(facts: Sequence[Fact], room: int, count: Callable[[str], int]) -> list[Fact]:
    """The newest facts that fit a third of the prompt, in their order."""
    kept: list[Fact] = []
    for fact in reversed(facts):
        room -= count(fact.content) + 4
        if room < 0:
            break
        kept.append(fact)
    return kept[::-1]


def _material(known: Sequence[Fact], found: Sequence[Candidate], slots: dict[str, str], piece: Sequence[_Piece]) -> str:
    lines = [f"{number}. {_line(fact.content)}" for number, fact in enumerate(known, 1)]
    lines += [f"- {_line(candidate.content)} (proposed already)" for candidate in found]
    summaries = [f"{slot}: {_line(text)}" for slot, text in slots.items() if text.strip()]
    parts = [f"<known_facts>\n{chr(10).join(lines) or 'none'}\n</known_facts>"]
    if summaries:
        parts.append(f"<summaries>\n{chr(10).join(summaries)}\n</summaries>")
    parts.append(f"<conversation>\n{chr(10).join(part.shown for part in piece)}\n</conversation>")
    return "\n".join(parts)


def _filled(template: str, material: str) -> str:
    before, slot, after = template.partition(_SLOT)
    return f"{before}{material}{after}" if slot else f"{template}\n\n{material}"


def _line(text: str) -> str:
    return inert(" ".join(text.split()))
