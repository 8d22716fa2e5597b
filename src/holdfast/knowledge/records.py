"""What a knowledge store keeps and returns: records, hits, why something was found, and times as people write them. No files here.

A `Record` is one thing that was said or noted: a turn of a conversation, a note, a finding, a section of a document. Its id is made from
its content when none is given, so that adding the same thing twice adds it once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from holdfast.clock import stamp
from holdfast.errors import InputError
from holdfast.text.dates import find_dates
from holdfast.validation import kind_of, problems_of

SCHEMA = 1
Role = Literal["person", "assistant"]
Trust = Literal["low", "medium", "high"]
TRUST_LEVELS: tuple[Trust, ...] = ("low", "medium", "high")
"""low: text from outside (pages, tools); medium: an assistant's words, imported data; high: what a person typed or confirmed."""

_LONGEST_ID = 200
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_TEXTS = ("session", "source", "speaker")


@dataclass(frozen=True, slots=True)
class Record:
    """One thing to be found again. Everything but the text may be left out.

    Making one checks it (InputError) and brings it to the form in which every adapter keeps it: the time is UTC to the millisecond (a time
    without a zone is refused), tags come once and without blanks around them, and what UTF-8 or a database cannot hold (NUL, half a
    surrogate pair) is U+FFFD. So a record that comes back from a store equals the one that went in.
    """

    text: str
    _: KW_ONLY
    id: str = ""
    """Any text of at most 200 characters, or empty: then it is made from the content (`content_hash`)."""
    tags: tuple[str, ...] = ()
    session: str | None = None
    """The conversation it belongs to. Parts are divided by `/`: asking for `trip` also finds `trip/day-1`."""
    source: str | None = None
    """Where it comes from: a path with a heading, an address, the id of a stage."""
    speaker: str | None = None
    """The name of who said it."""
    time: datetime | None = None
    """When it was said or happened, not when it was stored."""
    kind: str = "note"
    """`note`, `turn`, `finding`, `document`, `fact`, or a word of the user's own."""
    trust: Trust = "medium"
    position: int | None = None
    """Its place inside its session: the records at the next positions are its neighbours."""
    role: Role | None = None
    """Whether a person or an assistant said it. Where a session has both, a person's turn and the answers after it are one round."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Whatever else belongs to it, as JSON values."""

    def __post_init__(self) -> None:
        put = _Setter(self)
        put("text", clean_text(self.text, "text"))
        if not self.text.strip():
            raise InputError("a record has no text.", hint="Leave it out, or give it some words.")
        put("kind", clean_text(self.kind, "kind").strip() or "note")
        for name in _TEXTS:
            value = getattr(self, name)
            put(name, None if value is None else clean_text(value, name).strip() or None)
        put("tags", _tags(self.tags))
        put("time", None if self.time is None else _moment(self.time))
        put("extra", _plain_extra(self.extra) if self.extra else {})
        if self.trust not in TRUST_LEVELS:
            raise InputError(f"{self.trust!r} is not a level of trust.", hint=f"Use {', '.join(TRUST_LEVELS)}.")
        if self.role not in (None, "person", "assistant"):
            raise InputError(f"{self.role!r} is not a role.", hint="Use person, assistant, or leave it out.")
        if self.position is not None and (isinstance(self.position, bool) or not isinstance(self.position, int)):
            raise InputError(f"the position {self.position!r} is not a whole number.")
        put("id", clean_text(self.id, "id").strip() or content_hash(self))
        if len(self.id) > _LONGEST_ID:
            raise InputError(f"the id {self.id[:40]!r}... is longer than {_LONGEST_ID} characters.", hint="Leave it out: one is made.")


@dataclass(frozen=True, slots=True)
class Why:
    """Why a record was found: what each ingredient of the ranking said. None means that the ingredient was not asked.

    Values are as the adapter computed them and are comparable inside one answer only. `str(why)` is one line for a person.
    """

    words: tuple[str, ...] = ()
    """The words of the question that it holds, the weightiest first, as stems."""
    keyword: float | None = None
    """BM25 over its words and those of its neighbours."""
    sentence: float | None = None
    """Likeness in meaning of its best sentence (cosine)."""
    token: float | None = None
    """Likeness word by word (late interaction)."""
    time: float | None = None
    """How near it is to the time that the question names, 0 to 1."""
    speaker: float | None = None
    """1 if the question names who said it."""
    rerank: float | None = None
    """What the cross-encoder said."""
    notes: tuple[str, ...] = ()
    """Anything else worth saying, in words."""

    def __str__(self) -> str:
        parts = []
        if self.words or self.keyword is not None:
            value = "" if self.keyword is None else f" ({self.keyword:.2f})"
            parts.append(f"words {', '.join(self.words) or 'none'}{value}")
        named = (("meaning", self.sentence), ("word by word", self.token), ("time", self.time), ("rerank", self.rerank))
        parts += [f"{name} {value:.2f}" for name, value in named if value is not None]
        if self.speaker:
            parts.append("said by the one who is asked about")
        return "; ".join([*parts, *self.notes]) or "no reason given"


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that was found, how good it is (higher is better, comparable inside one answer), and why."""

    record: Record
    score: float
    why: Why = field(default_factory=Why)
    unit: tuple[Record, ...] = ()
    """All records of what was found, in their order: the turns of a round. Empty means the record alone."""

    @property
    def records(self) -> tuple[Record, ...]:
        """What belongs to this hit: the round's turns, or the record alone."""
        return self.unit or (self.record,)

    @property
    def text(self) -> str:
        """The text as it would be shown to a model: each record's own, after the name of its speaker where there is one."""
        return "\n".join(f"{one.speaker}: {one.text}" if one.speaker else one.text for one in self.records)


def content_hash(record: Record) -> str:
    """The id of a record without one: a hash of what makes it this thing and no other.

    That is its text and where, when and by whom it was said: `Yes.` at two places of a conversation is two records. Tags, trust, role and
    `extra` are not part of it: the same thing with another tag is still the same thing.
    """
    time = None if record.time is None else stamp(record.time)
    parts = [record.kind, record.text, record.session, record.source, record.speaker, time, record.position]
    return "k-" + blake2b(json.dumps(parts, ensure_ascii=False).encode(), digest_size=15).hexdigest()


AGREED = "agreed"
"""The member of `extra` that says when a person read a record and agreed that it may stand in a prompt."""


def agreed(record: Record, at: datetime) -> Record:
    """The record as a person has agreed to it: trusted like his own word (K1)."""
    return replace(record, trust="high", extra={**record.extra, AGREED: stamp(at)})


def merged(old: Record, new: Record) -> Record:
    """What a store keeps when `new` is added and `old` has its id: the same thing with the tags of both, or else the new one.

    What a person agreed to stays as trusted as he made it.
    """
    if content_hash(old) != content_hash(new):
        return new
    if AGREED in old.extra:
        new = replace(new, trust=old.trust)
    extra = {**old.extra, **new.extra}
    if FILES not in new.extra and FILE in new.extra and (files := {*files_of(old), *files_of(new)}) - {new.extra[FILE]}:
        extra |= {FILE: old.extra.get(FILE, new.extra[FILE]), FILES: sorted(files)}
    return replace(new, tags=tuple(dict.fromkeys((*old.tags, *new.tags))), extra=extra)


FILE, FILES = "file", "files"
"""The members of `extra` that say from which document a record was taken; the second where several say the same."""


def files_of(record: Record) -> list[str]:
    """The documents that a record was taken from."""
    several, one = record.extra.get(FILES), record.extra.get(FILE)
    return [name for name in several if isinstance(name, str)] if isinstance(several, list) else [one] if isinstance(one, str) else []


def least_trusted(trusts: Iterable[Trust]) -> Trust:
    """The trust of something made from sources that are trusted so far: that of the least trusted; `low` if there are none."""
    return min(trusts, key=TRUST_LEVELS.index, default="low")


def reading_order(record: Record) -> tuple[str, int, float, str]:
    """A key to sort by, in which conversations stay together and are in their order."""
    moment = record.time.timestamp() if record.time else 0.0
    return (record.session or "", -1 if record.position is None else record.position, moment, record.id)


def to_json(record: Record) -> dict[str, Any]:
    """A record as one JSON object, with what it does not have left out. `from_json` is the way back."""
    found: dict[str, Any] = {"schema": SCHEMA, "id": record.id, "kind": record.kind, "text": record.text}
    if record.tags:
        found["tags"] = list(record.tags)
    found |= {name: value for name in _TEXTS if (value := getattr(record, name)) is not None}
    if record.time is not None:
        found["time"] = stamp(record.time)
    found["trust"] = record.trust
    if record.position is not None:
        found["position"] = record.position
    if record.role is not None:
        found["role"] = record.role
    if record.extra:
        found["extra"] = dict(record.extra)
    return found


class _RecordForm(BaseModel):
    """A record as JSON, front matter or an MCP server bring it. Members that are not known survive."""

    model_config = ConfigDict(extra="allow", strict=True)

    schema_: int = Field(SCHEMA, alias="schema")
    text: str
    id: str = ""
    tags: list[str] = []
    session: str | None = None
    source: str | None = None
    speaker: str | None = None
    time: datetime | None = None
    kind: str = "note"
    trust: Trust = "medium"
    position: int | None = None
    role: Role | None = None
    extra: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, value: Any) -> Any:
        """A known member that is null is left out; text that no file can hold is replaced before it is checked."""
        if not isinstance(value, Mapping):
            return value
        return {_cleaned(name): _cleaned(member) for name, member in value.items() if member is not None or name not in cls.model_fields}

    @field_validator("schema_")
    @classmethod
    def _known_schema(cls, value: int) -> int:
        if value > SCHEMA:
            raise ValueError(f"{value} is newer than {SCHEMA}: use a newer Holdfast to read it")
        return value

    @field_validator("tags", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else list(value) if isinstance(value, tuple) else value

    @field_validator("time", mode="before")
    @classmethod
    def _iso_time(cls, value: Any) -> datetime:
        if not isinstance(value, str):
            raise ValueError(f"must be a date as text, not {kind_of(value)}")  # noqa: TRY004  # pydantic collects ValueError only
        try:
            moment = datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is not a date of ISO 8601, such as 2024-05-08T13:56:00Z") from error
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def from_json(value: Any) -> Record:
    """The record that a JSON object describes. Members that are not known go into `extra`. InputError says everything that does not fit."""
    try:
        form = _RecordForm.model_validate(value)
    except ValidationError as error:
        raise not_fitting("a record", error) from error
    given = {name: getattr(form, name) for name in form.model_fields_set & _TAKEN}
    return Record(form.text, tags=tuple(form.tags), extra={**(form.model_extra or {}), **form.extra}, **given)


_TAKEN = frozenset(_RecordForm.model_fields) - {"schema_", "text", "tags", "extra"}


def not_fitting(what: str, error: ValidationError) -> InputError:
    """The error that says what is wrong with a value from outside that should be `what`."""
    wrong = "; ".join(str(problem) if problem.place else f"it {problem.what}" for problem in problems_of(error))
    return InputError(f"this is not {what}: {wrong}.")


class _Setter:
    """Puts checked values into a frozen record, once, while it is made."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def __call__(self, name: str, value: Any) -> None:
        object.__setattr__(self._record, name, value)


def clean_text(value: Any, name: str) -> str:
    """A text as every store can hold it. InputError if it is none."""
    if not isinstance(value, str):
        raise InputError(f"the {name} of a record is text, not {kind_of(value)}.")
    return _UNWRITABLE.sub("\ufffd", value) if _UNWRITABLE.search(value) else value


def _tags(tags: Any) -> tuple[str, ...]:
    if isinstance(tags, str):
        raise InputError(f"the tags of a record are several: {tags!r} alone is one.", hint=f"Write ({tags!r},).")
    return tuple(dict.fromkeys(tag for tag in (clean_text(tag, "tag").strip() for tag in tags) if tag))


def _moment(time: Any) -> datetime:
    if not isinstance(time, datetime):
        raise InputError(f"the time of a record is a moment, not {kind_of(time)}.")
    if time.tzinfo is None:
        raise InputError("the time of a record has no zone.", hint="Give one, for example `tzinfo=datetime.UTC`.")
    moment = time.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _plain_extra(extra: Any) -> dict[str, Any]:
    """`extra` as it comes back from JSON."""
    if not isinstance(extra, Mapping):
        raise InputError(f"the extra of a record is a mapping, not {kind_of(extra)}.")
    try:
        written = json.dumps(dict(extra), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the extra of a record has no form in JSON: {error}.") from error
    plain: dict[str, Any] = _cleaned(json.loads(written))
    return plain


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value, "extra")
    if isinstance(value, Mapping):
        return {clean_text(name, "extra"): _cleaned(member) for name, member in value.items()}
    return [_cleaned(member) for member in value] if isinstance(value, list) else value


_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([ap])?\.?m?\b", re.IGNORECASE)


def read_moment(text: str) -> datetime | None:
    """A date as logs and people write it, with its time of day where it has one; UTC unless it says otherwise. None if it is none.

    >>> read_moment("1:56 pm on 8 May, 2023").isoformat(), read_moment("2023/05/20 (Sat) 06:37").isoformat()
    ('2023-05-08T13:56:00+00:00', '2023-05-20T06:37:00+00:00')
    """
    text = text.strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    spans = [span for span in find_dates(_DASHED.sub(" ", text), datetime(1900, 1, 1, tzinfo=UTC)) if not span.relative]
    if not spans or spans[0].start != spans[0].end:
        return None
    midnight = datetime.combine(spans[0].start, datetime.min.time(), UTC)
    return midnight + _time_of_day(text)


_DASHED = re.compile(r"(?<=[A-Za-z])-(?=\d)|(?<=\d)-(?=[A-Za-z])|(?<=[A-Za-z]-\d\d)-(?=\d{4})|(?<=[A-Za-z]-\d)-(?=\d{4})")


def _time_of_day(text: str) -> timedelta:
    match = _CLOCK.search(text)
    if match is None:
        return timedelta()
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    if match[4] and hours <= 12:
        hours = hours % 12 + (12 if match[4].lower() == "p" else 0)
    return timedelta(hours=hours, minutes=minutes, seconds=seconds) if hours < 24 and minutes < 60 and seconds < 60 else timedelta()
