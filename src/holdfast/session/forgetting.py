"""Taking a text out of a session: what goes, and what stays so that the session still fits its contract. No files here (M14).

Names that hold a session together (its id, its stages, statuses, times) are not words of anybody and stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from holdfast.errors import InputError
from holdfast.session.reading import read_session
from holdfast.session.state import Session
from holdfast.session.writing import written
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences

FORGOTTEN = "[forgotten]"

_FIXED = frozenset(
    (
        *("workflow_id", "topic_tag", "status", "current_stage", "next_stage", "completed_stages", "created_at", "updated_at"),
        *("workflow_hash", "revision", "schema_version"),
    )
)
_STAGE_FIXED = frozenset(
    ("stage", "stage_name", "kind", "status", "at", "started_at", "ended_at", "model", "added_by", "confidence", "raw_data_refs")
)
_DEFINITION_FIXED = frozenset(("id", "name", "agent_type", "inputs", "needs", "topic_tag", "model"))


class Scrub:
    """A text that is to go. Found in any case, style of quotes and spacing; `count` says how many places lost something."""

    def __init__(self, text: str) -> None:
        self._needle = normalise(text)
        if not self._needle:
            raise InputError("the text to forget is empty.", hint="Give some words of it.")
        self.count = 0

    def in_text(self, text: str) -> bool:
        """Whether the text holds it."""
        return self._needle in normalise(text)

    def in_value(self, value: Any) -> bool:
        """Whether it stands anywhere in a JSON value."""
        return any(self.in_text(text) for text in _strings(value))

    def in_bytes(self, data: bytes) -> bool:
        """Whether bytes show it, as text or in JSON's escapes."""
        readable = data.decode("utf-8", "replace")
        if self.in_text(readable):
            return True
        plain = readable.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
        with suppress(UnicodeDecodeError):
            plain += "\n" + readable.encode("ascii", "backslashreplace").decode("unicode_escape", "replace")
        return self.in_text(plain)

    def text(self, text: str) -> str:
        """The text with a mark in place of each sentence that holds it; only the mark if it runs over the end of a sentence."""
        if not self.in_text(text):
            return text
        self.count += 1
        kept, at = [], 0
        for sentence in split_sentences(text):
            if self.in_text(sentence.text):
                kept += [text[at : sentence.start], FORGOTTEN]
                at = sentence.end
        rest = "".join([*kept, text[at:]])
        return FORGOTTEN if self.in_text(rest) else rest

    def value(self, value: Any, fixed: Collection[str] = ()) -> Any:
        """A JSON value without it. Members whose names are `fixed` stay as they are, at every depth."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): one if name in fixed else self.value(one, fixed) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(one, fixed) for one in value]
        return value

    def session(self, session: Session) -> Session:
        """The session without it; the same object if it never held it."""
        before = self.count
        value = {name: member if name in _FIXED else self._member(name, member) for name, member in written(session).items()}
        return session if self.count == before else read_session(value)

    def _member(self, name: str, member: Any) -> Any:
        if name == "stage_outputs":
            return {stage: self._output(output) for stage, output in member.items()}
        if name == "stages":
            return {stage: self.value(record, _STAGE_FIXED) for stage, record in member.items()}
        if name in ("memory_snapshots", "error"):
            return self.value(member, _STAGE_FIXED)
        if name == "workflow":
            return self.value(member, _DEFINITION_FIXED)
        return self.value(member)

    def _output(self, output: Mapping[str, Any]) -> dict[str, Any]:
        """A finding that holds it goes as a whole: half a fact is a wrong one."""
        kept = [finding for finding in output["key_findings"] if not self.in_value(finding)]
        self.count += len(output["key_findings"]) - len(kept)
        return {**self.value({**output, "key_findings": []}, _STAGE_FIXED), "key_findings": kept}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)
