"""Conversations in the forms in which they are kept elsewhere, as records. No files here: values and texts go in.

sessions        {"id", "sessions": [{"id", "date", "turns": [{"id", "speaker", "text"}]}]}
messages        {"messages": [{"role", "content"}]}, or such messages by themselves
LangChain       [{"type": "human", "data": {"content"}}], or what `dumpd` and `model_dump` write
transcripts     lines like `Ann: text`, with dates before the name or on lines of their own
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import InputError
from holdfast.knowledge.periods import read_moment
from holdfast.knowledge.records import Record, Role, Trust

_ASSISTANTS = frozenset({"assistant", "ai", "bot", "chatbot", "model", "agent", "chatgpt"})
_PEOPLE = frozenset({"user", "human", "me", "you", "person"})
_SILENT = frozenset({"system", "developer", "tool", "function", "toolmessage", "systemmessage", "remove"})  # said by no one who converses
_CLASSES = {"humanmessage": "human", "aimessage": "ai", "humanmessagechunk": "human", "aimessagechunk": "ai", "chatmessage": "human"}

_NAME = r"(?P<name>[^\W\d_][\w .'’-]{0,39}?)"
_BEFORE = r"(?:\[(?P<date>[^\]\n]{4,40})\]|(?P<date2>\d[\d./:, -]{5,28}(?:[ap]\.?m\.?)?)\s*[-–—]?)"
_TURN = re.compile(rf"^\s*(?:{_BEFORE}\s*)?(?:\*\*)?{_NAME}(?:\*\*)?\s*:(?:\*\*)?(?:\s+(?P<text>.*)|\s*)$", re.IGNORECASE)
_TRUST: Mapping[Role | None, Trust] = {"person": "high", "assistant": "medium", None: "medium"}


def is_assistant(speaker: str) -> bool:
    """Whether a speaker's name says that it is a program."""
    return speaker.strip().lower() in _ASSISTANTS


def roles_of(speakers: Sequence[str]) -> dict[str, Role | None]:
    """Who is who in a conversation: with an assistant in it everybody else is a person; between people nobody has a role."""
    if not any(map(is_assistant, speakers)):
        return dict.fromkeys(speakers)
    return {speaker: "assistant" if is_assistant(speaker) else "person" for speaker in speakers}


def is_conversation(value: Any) -> bool:
    """Whether this is a conversation with sessions."""
    return isinstance(value, Mapping) and isinstance(value.get("sessions"), list)


def is_message(value: Any) -> bool:
    """Whether this is one message, of OpenAI's or LangChain's making."""
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("role"), str) and "content" in value:
        return True
    kind = value.get("type")
    return isinstance(kind, str) and (
        "content" in value or isinstance(value.get("data"), Mapping) or isinstance(value.get("kwargs"), Mapping)
    )


def of_sessions(value: Mapping[str, Any], name: str = "conversation") -> list[Record]:
    """The turns of a conversation with sessions. The id of a turn is `conversation/turn`. InputError says what does not fit."""
    conversation = str(value.get("id") or name)
    turns = list(_turns(value))
    roles = roles_of(list(dict.fromkeys(str(turn.get("speaker") or "") for _, _, turn in turns)))
    counted = Counter(str(turn.get("id")) for _, _, turn in turns if turn.get("id") is not None)
    found: list[Record] = []
    for session, place, turn in turns:
        speaker, own = str(turn.get("speaker") or ""), turn.get("id")
        unique = own is not None and counted[str(own)] == 1
        below = f"{conversation}/{session['id']}"
        found.append(
            Record(
                turn["text"],
                id=f"{conversation}/{own}" if unique else f"{below}/{place}",
                session=below,
                source=name,
                speaker=_shown(speaker),
                time=read_moment(str(session.get("date") or "")),
                kind="turn",
                trust=_TRUST[roles[speaker]],
                position=place,
                role=roles[speaker],
            )
        )
    return found


def _turns(value: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int, Mapping[str, Any]]]:
    """Every turn with words in it, with its session and its place there."""
    for number, session in enumerate(value["sessions"], 1):
        if not isinstance(session, Mapping) or not isinstance(session.get("turns"), list):
            raise InputError(f"session {number} is not an object with a list `turns`.")
        named = {"id": f"session-{number}", **{key: member for key, member in session.items() if member is not None}}
        for place, turn in enumerate(session["turns"]):
            if not isinstance(turn, Mapping) or not isinstance(turn.get("text"), str):
                raise InputError(f"turn {place + 1} of session {named['id']} is not an object with a text.")
            if turn["text"].strip():
                yield named, place, turn


def of_messages(messages: Sequence[Any], session: str, source: str | None = None, time: datetime | None = None) -> list[Record]:
    """The turns of a list of messages: what people and assistants said, without system prompts and tools."""
    found: list[Record] = []
    for place, message in enumerate(messages):
        if not is_message(message):
            raise InputError(f"message {place + 1} is neither of the form {{role, content}} nor one of LangChain.")
        inner = _inner(message)
        role, text = _role(message, inner), _text(inner.get("content"))
        if role is None or not text.strip():
            continue
        name = inner.get("name")
        found.append(
            Record(
                text,
                session=session,
                source=source,
                speaker=_shown(str(name)) if name else None,
                time=_time(inner, message) or time,
                kind="turn",
                trust=_TRUST[role],
                position=place,
                role=role,
            )
        )
    return found


def _inner(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The members of a message wherever its writer put them."""
    for name in ("data", "kwargs"):
        if isinstance(message.get(name), Mapping):
            return dict(message[name])
    return message


def _role(message: Mapping[str, Any], inner: Mapping[str, Any]) -> Role | None:
    kind = str(message.get("role") or inner.get("role") or message.get("type") or "").lower()
    if kind == "constructor":  # what `dumpd` writes: the class is the last part of its path
        path = message.get("id")
        kind = _CLASSES.get(str(path[-1]).lower(), "system") if isinstance(path, list) and path else "system"
    if kind in _SILENT:
        return None
    return "assistant" if kind in _ASSISTANTS or kind in ("ai", "aimessage") else "person"


def _text(content: Any) -> str:
    """The words of a content that may be parts; images and calls have none."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None for part in content)
    return "\n".join(part for part in parts if isinstance(part, str))


def _time(*places: Mapping[str, Any]) -> datetime | None:
    for place in places:
        for name in ("timestamp", "created_at", "create_time", "time", "date"):
            value = place.get(name)
            if isinstance(value, str) and (moment := read_moment(value)) is not None:
                return moment
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12:
                return datetime.fromtimestamp(value if value < 1e11 else value / 1000, UTC)
    return None


def _shown(speaker: str) -> str | None:
    """A name worth finding somebody by."""
    return speaker if speaker and speaker.strip().lower() not in _PEOPLE | _ASSISTANTS else None


def is_transcript(text: str) -> bool:
    """Whether most lines of a text begin with a name and a colon, and names come again."""
    lines = [line for line in text[:20_000].splitlines() if line.strip()]
    matches = [match for line in lines if (match := _TURN.match(line)) and match["text"]]
    names = Counter(match["name"].lower() for match in matches)
    return len(matches) >= 2 and len(matches) * 2 > len(lines) and len(names) <= max(len(matches) // 2, 2)


def of_transcript(text: str, session: str, source: str | None = None) -> list[Record]:
    """The turns of a transcript. A line without a name goes on with the turn before; a date alone on a line holds from there on."""
    turns: list[tuple[str, datetime | None, list[str]]] = []
    day: datetime | None = None
    for line in text.splitlines():
        match = _TURN.match(line)
        if match is not None and read_moment(line) is not None and not match["text"]:
            match = None
        if match is not None:
            written = match["date"] or match["date2"]
            turns.append((match["name"].strip(), (read_moment(written) if written else None) or day, [match["text"] or ""]))
        elif len(line) < 60 and (moment := read_moment(line.strip(" #*=-—–[]"))) is not None:
            day = moment
        elif turns and line.strip():
            turns[-1][2].append(line)
    roles = roles_of(list(dict.fromkeys(name for name, _, _ in turns)))
    return [
        Record(
            "\n".join(lines).strip(),
            session=session,
            source=source,
            speaker=_shown(name),
            time=time,
            kind="turn",
            trust=_TRUST[roles[name]],
            position=place,
            role=roles[name],
        )
        for place, (name, time, lines) in enumerate(turns)
        if "".join(lines).strip()
    ]
