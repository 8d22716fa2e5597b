"""Records in the forms in which files hold them: Markdown with a head of YAML, and conversations of other programs. No files here.

Markdown        `render` and `parse`: one record a file. What we write is a small part of YAML, one `name: value` a line with JSON for what
                is not plain, and is read back without a YAML parser; what others wrote may be any YAML, or have no head at all
sessions        {"id", "sessions": [{"id", "date", "turns": [{"id", "speaker", "text"}]}]}
messages        {"messages": [{"role", "content"}]}, or such messages by themselves
LangChain       [{"type": "human", "data": {"content"}}], or what `dumpd` and `model_dump` write
transcripts     lines like `Ann: text`, with dates before the name or on lines of their own
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import ConfigError, InputError
from holdfast.knowledge.records import Record, Role, Trust, from_json, read_moment, to_json
from holdfast.text.transcripts import TURN, speaker

_ORDER = ("schema", "id", "kind", "tags", "session", "position", "speaker", "role", "time", "source", "trust", "extra")
_HEAD = re.compile(r"---[ \t]*\r?\n(?P<head>.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"([A-Za-z_][\w-]*):[ ]+(.+)")
_PLAIN = re.compile(r"[A-Za-z](?:[\w ./@+-]*[\w./@+-])?", re.ASCII)
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_WORDS_OF_YAML = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # YAML would fold or refuse these where JSON lets them stand
_TEXTS = ("id", "kind", "session", "source", "speaker", "trust", "role")


def render(record: Record) -> bytes:
    """The file of a record. `parse` gives back an equal one."""
    value = to_json(record)
    lines = [f"{name}: {_yaml_value(value[name])}" for name in _ORDER if name in value]
    return "\n".join(["---", *lines, "---", "", record.text, ""]).encode("utf-8")


def _yaml_value(value: Any) -> str:
    if isinstance(value, str) and (_STAMP.fullmatch(value) or (_PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML)):
        return value
    return _BREAKS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def parse(data: bytes, path: str) -> Record | None:
    """The record in a file at `path`, relative to its store; None for a file without any text. InputError if its head makes no sense."""
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"it is not UTF-8 text (byte {error.start}).", hint="Save it as UTF-8.") from error
    match = _HEAD.match(content)
    head = _head(match["head"]) if match else None
    if match is None or head is None:
        text = content.strip()
        return Record(text, id=path, source=path) if text.strip("\0 \t\n") else None
    body = content[match.end() :]
    if "schema" in head:
        return from_json({**_known(head), "text": body.removeprefix("\n").removesuffix("\n")})
    if not body.strip():
        return None
    given = _known(head)
    return from_json({"id": path, "source": path, **given, "text": body.strip()})


def _head(text: str) -> Mapping[str, Any] | None:
    """The members of a head. None if it is not one: two lines of dashes around a paragraph are Markdown too."""
    found: dict[str, Any] = {}
    for line in text.splitlines() if "\r" in text else text.split("\n"):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        simple, value = _simple(match[2]) if match else (False, None)
        if match is None or not simple or match[1] in found:
            return _yaml(text)
        found[match[1]] = value
    return found


def _simple(written: str) -> tuple[bool, Any]:
    """Whether a value is of the part of YAML that we write, and what it is."""
    if written[0] in '"[{-0123456789':
        if _STAMP.fullmatch(written):
            return True, written
        try:
            return True, json.loads(written)
        except (ValueError, RecursionError):
            return False, None
    plain = _PLAIN.fullmatch(written) is not None and written.lower() not in _WORDS_OF_YAML
    return plain, written


def _yaml(text: str) -> Mapping[str, Any] | None:
    from holdfast.config.reading import read_head

    try:
        value = read_head(text)
    except ConfigError as error:
        where = f"line {error.line + 1}: " if error.line is not None else ""  # the first line is that of the dashes
        raise InputError(f"{where}its head cannot be read: {error.message}", hint="Mend the lines between the dashes.") from error
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else None


def _known(head: Mapping[str, Any]) -> dict[str, Any]:
    """What people write, in the form of `records.from_json`: numbers as names, one tag or several, dates in any form."""
    found: dict[str, Any] = dict(head)
    for name in _TEXTS:
        if found.get(name) is not None:
            found[name] = str(found[name])
    ours = "schema" in found
    tags = found.get("tags", None if ours else found.pop("tag", None))
    if isinstance(tags, str):
        tags = [tag for tag in re.split(r"[,\s]+", tags) if tag]
    found["tags"] = [str(tag) if ours else str(tag).lstrip("#") for tag in tags] if isinstance(tags, list) else tags
    for name in ("time",) if ours else ("time", "date", "created"):
        if "time" in found and name != "time":
            continue
        if name in found and found[name] is not None:
            found["time"] = _iso_date(str(found.pop(name)), name)
    return found


def _iso_date(written: str, name: str) -> str:
    moment = read_moment(written)
    if moment is None:
        raise InputError(f"{name}: {written!r} is not a date.", hint="Write it like 2024-05-08 or 2024-05-08T13:56:00Z.")
    return moment.isoformat()


# Conversations

_ASSISTANTS = frozenset({"assistant", "ai", "bot", "chatbot", "model", "agent", "chatgpt"})
_PEOPLE = frozenset({"user", "human", "me", "you", "person"})
_SILENT = frozenset({"system", "developer", "tool", "function", "toolmessage", "systemmessage", "remove"})  # said by no one who converses
_CLASSES = {"humanmessage": "human", "aimessage": "ai", "humanmessagechunk": "human", "aimessagechunk": "ai", "chatmessage": "human"}

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
        id = f"{conversation}/{own}" if unique else f"{below}/{place}"
        time = read_moment(str(session.get("date") or ""))
        found.append(_turn(turn["text"], below, place, speaker, roles[speaker], source=name, time=time, id=id))
    return found


def _turn(
    text: str, session: str, place: int, speaker: str, role: Role | None, *, source: str | None, time: datetime | None, id: str = ""
) -> Record:
    return Record(
        text,
        id=id,
        session=session,
        source=source,
        speaker=speaker if speaker and speaker.strip().lower() not in _PEOPLE | _ASSISTANTS else None,  # a name worth finding somebody by
        time=time,
        kind="turn",
        trust=_TRUST[role],
        position=place,
        role=role,
    )


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


def of_messages(messages: Sequence[Any], session: str, source: str | None = None) -> list[Record]:
    """The turns of a list of messages: what people and assistants said, without system prompts and tools."""
    found: list[Record] = []
    for place, message in enumerate(messages):
        if not is_message(message):
            raise InputError(f"message {place + 1} is neither of the form {{role, content}} nor one of LangChain.")
        inner = _inner(message)
        role, text = _role(message, inner), _text(inner.get("content"))
        if role is None or not text.strip():
            continue
        name = str(inner.get("name") or "")
        found.append(_turn(text, session, place, name, role, source=source, time=_time(inner, message)))
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


def of_transcript(text: str, session: str, source: str | None = None) -> list[Record]:
    """The turns of a transcript. A line without a name goes on with the turn before; a date alone on a line holds from there on."""
    turns: list[tuple[str, datetime | None, list[str]]] = []
    day: datetime | None = None
    for line in text.splitlines():
        match = TURN.match(line)
        if match is not None and read_moment(line) is not None and not match["text"]:
            match = None
        if match is not None:
            written = match["date"] or match["date2"]
            turns.append((speaker(match), (read_moment(written) if written else None) or day, [match["text"] or ""]))
        elif len(line) < 60 and (moment := read_moment(line.strip(" #*=-—–[]"))) is not None:
            day = moment
        elif turns and line.strip():
            turns[-1][2].append(line)
    roles = roles_of(list(dict.fromkeys(name for name, _, _ in turns)))
    return [
        _turn("\n".join(lines).strip(), session, place, name, roles[name], source=source, time=time)
        for place, (name, time, lines) in enumerate(turns)
        if "".join(lines).strip()
    ]
