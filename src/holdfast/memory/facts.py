"""The values of this room: a fact, where it came from, what somebody proposes to learn, and what becomes of the proposal.

Everything here is frozen and plain. A fact's fields that Holdfast does not know are in `extra` and survive every round trip. `turns_of`
says what of a conversation is learned from: what the user typed and the final answers, and nothing that the machinery put there (M8).
What somebody states, by hand or by an agent's tool, is checked by the functions at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from holdfast.errors import InputError
from holdfast.text.normalise import find_invisible

SourceKind = Literal["user", "assistant", "tool", "file", "web", "summary", "manual", "import", "unknown"]
"""Who said it. Only what a user typed is trusted without confirmation; a derived thing is as trusted as its least trusted source."""

SLOTS = ("workContext", "personalContext", "topOfMind", "recentMonths", "earlierContext", "longTermBackground")
"""The six summaries: the first three are the user's, the last three the history's."""

CATEGORIES = ("preference", "knowledge", "identity", "behavior", "goal", "decision", "correction", "context")
"""What facts are usually filed under; others are kept as they come."""

CONCERNS = frozenset({"secret", "pasted", "permission", "check", "recipient", "money", "secrecy", "address"})
"""What an extractor may find about a fact that it proposes: the gate lets go of a secret, holds what was pasted, asks about the rest."""


@dataclass(frozen=True)
class Origin:
    """Where a fact comes from: the thread, the messages, the words themselves, and who said them."""

    kind: SourceKind = "unknown"
    thread: str | None = None
    messages: tuple[str, ...] = ()
    quote: str | None = None


@dataclass(frozen=True)
class Fact:
    """Something that is known about the user. Times are ISO 8601 in UTC.

    `status` is `active`, or `provisional` while a weak source waits for confirmation. A fact that was replaced or removed is in the
    history.
    """

    id: str
    content: str
    category: str = "context"
    confidence: float = 0.5
    created: str = ""
    source: str = "unknown"
    origin: Origin = field(default_factory=Origin)
    status: Literal["active", "provisional"] = "active"
    confirmations: int = 1
    confirmed: str = ""
    valid_from: str = ""
    replaces: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


def is_learned(fact: Fact) -> bool:
    """Whether a fact was learned, and not put in by a person, by hand or by an import: only what was learned makes room (M11)."""
    return fact.origin.kind not in ("manual", "import") and fact.source != "manual"


@dataclass(frozen=True)
class Turn:
    """One message of a conversation as the extractors and the gate see it."""

    id: str
    kind: SourceKind
    text: str
    time: str = ""


@dataclass(frozen=True)
class Candidate:
    """A fact that an extractor proposes. `quote` is the user's own words for it, where the extractor gives them."""

    content: str
    category: str = "context"
    confidence: float = 0.5
    quote: str | None = None
    replaces: tuple[str, ...] = ()
    """Ids of facts that this one takes the place of, as the extractor thinks."""
    error: str | None = None
    """For a correction: what was wrong before."""
    concern: str | None = None
    """Why the extractor itself would not simply learn it, one of `CONCERNS`. It makes the gate stricter, never milder."""


@dataclass(frozen=True)
class SlotUpdate:
    """A new text for one of the six summaries."""

    slot: str
    text: str


@dataclass(frozen=True)
class Proposal:
    """All that one extraction proposes."""

    candidates: tuple[Candidate, ...] = ()
    remove: tuple[str, ...] = ()
    slots: tuple[SlotUpdate, ...] = ()


Verdict = Literal["add", "confirm", "replace", "quarantine", "drop"]


@dataclass(frozen=True)
class Decision:
    """What the gate decides about one candidate, and why, in words that `memory review` shows.

    `fact` is what would be stored (redacted, rephrased as a description, confidence capped); `target` is the fact that is confirmed or
    replaced.
    """

    verdict: Verdict
    candidate: Candidate
    why: str
    fact: Fact | None = None
    target: str | None = None
    rule: str = ""
    """The short, stable name of the rule that decided."""


_HUMAN = frozenset({"human", "user", "HumanMessageChunk"})
_AI = frozenset({"ai", "assistant", "AIMessageChunk"})
_TOOL = frozenset({"tool", "function", "ToolMessageChunk"})
_FOREIGN = 20_000  # characters of a tool's answer that words are compared with
_HIDDEN_NAMES = frozenset({"summary", "reminder", "memory", "recall"})
_HIDDEN_MARKS = frozenset({"summary", "reminder", "repaired", "recall"})
_UPLOADS = re.compile(r"<(uploaded_files|current_uploads|uploads)\b[^<>]*>.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_REMINDER = re.compile(r"<(/?)(system-reminder|memory|reminder)\b[^<>]*>", re.IGNORECASE)
_THINKING = re.compile(r"<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)


def turns_of(messages: Iterable[Any], *, time: str = "", foreign: bool = False) -> list[Turn]:
    """The turns to learn from, in their order. Messages are LangChain's or plain dicts, known by their shape (`type` or `role`, `content`).

    Left out are tool calls and their results, system messages, hidden messages, summaries and reminders. A message that was only a
    notice of an upload is left out together with its answer: both speak of a file that the next conversation does not have.

    What is marked as pasted stands there as a quotation: an extractor may read it, and nothing of it counts as the user's own words.

    With `foreign` what tools, sub-agents and summaries said is among them, as turns of that kind. Nothing is learned from those: the gate
    tells by them which words are not the user's (M10).
    """
    turns: list[Turn] = []
    unasked = False
    for message in messages:
        role = str(_get(message, "type") or _get(message, "role") or "")
        text = _text(_get(message, "content"))
        id = str(_get(message, "id") or "")
        if foreign and (other := _foreign_kind(role, message)) and text.strip():
            turns.append(Turn(id, other, _without_reminders(text[:_FOREIGN]), time))
        if (role not in _HUMAN and role not in _AI) or _is_hidden(message):
            continue
        if role in _HUMAN:
            said = without_uploads(text)
            if "pasted" in (marks := _marks(message)):
                said = _quoted(said, marks.get("typed"))
            unasked = not said and bool(text.strip())
            if said:
                turns.append(Turn(id, "user", said, time))
        elif not _get(message, "tool_calls") and not _get(message, "invalid_tool_calls"):
            said = _THINKING.sub("", text).strip()
            if said and not unasked:
                turns.append(Turn(id, "assistant", said, time))
    return turns


def _quoted(text: str, typed: Any) -> str:
    """The text as a quotation, which is nobody's own words, but for the first characters, that were typed."""
    own = typed if isinstance(typed, int) and typed > 0 else 0
    quoted = "\n".join(f"> {line}" for line in text[own:].strip().splitlines())
    return f"{text[:own]}\n\n{quoted}" if own else quoted


def _foreign_kind(role: str, message: Any) -> Literal["tool", "summary"] | None:
    if role in _TOOL:
        return "tool"
    named = _get(message, "name") == "summary" or "summary" in _marks(message)
    return "summary" if role in _HUMAN and named else None


def without_uploads(text: str) -> str:
    """What the user typed, without the notices and reminders that were put into the message."""
    return _without_reminders(_UPLOADS.sub("", text)).strip()


def _without_reminders(text: str) -> str:
    """The text without `<memory>...</memory>` and the like; a tag that is never closed stays. One pass, however many there are."""
    tags = list(_REMINDER.finditer(text))
    closed = {tag[2].lower(): tag.start() for tag in tags if tag[1]}
    kept: list[str] = []
    end, inside = 0, ""
    for tag in tags:
        name = tag[2].lower()
        if not inside and not tag[1] and closed.get(name, -1) > tag.start():
            kept.append(text[end : tag.start()])
            inside = name
        elif inside == name and tag[1]:
            end, inside = tag.end(), ""
    return "".join(kept) + text[end:]


def _is_hidden(message: Any) -> bool:
    more = _mapping(_get(message, "additional_kwargs"))
    if not _HIDDEN_MARKS.isdisjoint(_marks(message)):
        return True
    return bool(more.get("hide_from_ui") or more.get("hidden")) or _get(message, "name") in _HIDDEN_NAMES


def _marks(message: Any) -> Mapping[str, Any]:
    """What Holdfast itself noted at a message."""
    return _mapping(_mapping(_get(message, "additional_kwargs")).get("holdfast"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [block if isinstance(block, str) else _block_text(block) for block in content]
    return "\n".join(part for part in parts if part)


def _block_text(block: Any) -> str:
    text = block.get("text") if isinstance(block, Mapping) and block.get("type") in ("text", "input_text", "output_text", None) else None
    return text if isinstance(text, str) else ""


def _get(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


LONGEST_STATED = 2000
"""Characters of a fact that somebody states."""


def stated_text(content: str, *, by_hand: bool = False) -> str:
    """The text of a fact with plain spacing. InputError if it cannot be one; what an agent proposes is looked at by the gate after that."""
    if not isinstance(content, str):
        raise InputError(f"a fact is text, and not {type(content).__name__}.", hint='For example: "Prefers short answers".')
    text = " ".join(content.split())
    if not text:
        raise InputError("a fact needs words.", hint='For example: "Prefers short answers".')
    control = next((one for one in find_invisible(text) if one.kind == "control"), None) if by_hand else None
    if control is not None:
        raise InputError(f"a fact is text, and this holds a character that cannot be seen ({control.name}).", hint="Take it out.")
    if len(text) > LONGEST_STATED:
        raise InputError(f"a fact has at most {LONGEST_STATED} characters, and this one {len(text)}.", hint="Make several of it.")
    return text


FRAME = re.compile(r"\AUser (?:said|wants): ?“?|”\Z")
"""What the gate puts around a user's words."""
_PLAINLY = 0.5  # above the mark from which on a sentence of a conversation counts as telling a secret


def _secret_in(text: str) -> str | None:
    """The kind of the secret that a stated text tells, by the judgement that a conversation is held to as well (M10)."""
    from holdfast.memory.screening import tells_secret  # its tables are made when somebody first states or learns something

    return tells_secret(text, [Turn("stated", "user", text)]) if text.strip() else None


def let_go_of_secret(decision: Decision) -> Decision:
    """What the user did not type is judged by its own words too: nothing that tells a secret waits for review (M10)."""
    kind = _secret_in(decision.candidate.content) if decision.verdict == "quarantine" and decision.rule == "not-typed" else None
    if kind is None:
        return decision
    blank = replace(decision.candidate, content=f"[redacted: {kind}]")
    return Decision("drop", blank, f"tells a secret ({kind})", rule="secret")


def stated_secret(text: str) -> str | None:
    """The kind of the secret in a text that stands as a fact, or None.

    Whoever states a fact has thought about it: where only its wording speaks against it, that must be plain ("The heron is grey" is not).
    """
    from holdfast.memory.wording import reads_secret

    own = FRAME.sub("", text)
    kind = _secret_in(own)
    return kind if kind and (kind != "told in plain words" or reads_secret(own) >= _PLAINLY) else None


def without_secret(text: str) -> str:
    """The text, if it tells no secret. InputError, which does not repeat it, if it does."""
    kind = stated_secret(text)
    if kind:
        raise InputError(
            f"this reads like a secret ({kind}) and was not kept.",
            hint="Passwords, PINs, keys and numbers of accounts belong in a password manager. If it is none, put it in other words.",
        )
    return text


def stated_confidence(value: float) -> float:
    """How sure somebody is of what they state. InputError if it is no share."""
    if isinstance(value, int | float) and 0.0 <= value <= 1.0:
        return float(value)
    raise InputError(f"{value!r} is not a confidence.", hint="Give a number from 0 to 1.")
