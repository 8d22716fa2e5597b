"""The transcript of a discussion: what was said, by whom, why it ended; kept turn by turn, so that a killed discussion goes on (W6, W12).

Each turn is a record of the stage's journal before the next one is asked for. A transcript belongs to one form of its stage: where the
definition, the task or what was given has changed, the talk begins anew.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.amounts import counted
from holdfast.extract.passages import SourceText
from holdfast.extract.selection import select
from holdfast.offline.panel import Discussion
from holdfast.session.output import output_json
from holdfast.text.framing import inert
from holdfast.workflow.agent import StageJournal, StageRequest

MODERATOR = "moderator"
_OLDEST = 20_000  # characters of older turns that are looked through for what matters
_OLD_SHARE = 4  # of the room, for what does not fit as a whole


@dataclass(frozen=True, slots=True)
class Turn:
    """What one participant said. `tokens` is what it took, the moderator's choice apart."""

    number: int
    speaker: str
    text: str
    model: str
    tokens: int = 0
    moderator_tokens: int = 0
    note: str = ""
    """Why this one spoke, where that needs saying."""
    read: tuple[Mapping[str, Any], ...] = ()
    """What it read by tools: source, reference, trust."""
    paid: tuple[Mapping[str, Any], ...] = ()
    """What was charged for it, as far as models report that: for whom, the model, and the usage."""

    @property
    def passed(self) -> bool:
        """Whether it had nothing to say."""
        return self.text.strip(" .!*_\"'").casefold() in ("pass", "")


@dataclass
class Transcript:
    """A talk as far as it went. `ended` says why it is over; `is_concluded` that its output was written down in the right form."""

    discussion: Discussion
    journal: StageJournal
    turns: list[Turn] = field(default_factory=list)
    remarks: list[tuple[int, str]] = field(default_factory=list)
    """What was said to all from outside, each after so many turns: why the output was not accepted."""
    ended: str | None = None
    is_concluded: bool = False
    moderator_tokens: int = 0

    @classmethod
    def opened(cls, request: StageRequest, discussion: Discussion) -> Transcript:
        """The talk of this stage as the journal has it, or a new one."""
        found = cls(discussion, request.journal)
        print_ = _fingerprint(request)
        records = request.journal.read()
        begins = [number for number, record in enumerate(records) if record.get("kind") == "begin"]
        if begins and records[begins[-1]].get("of") == print_:
            for record in records[begins[-1] + 1 :]:
                found._take(record)
        else:
            request.journal.append({"kind": "begin", "of": print_})
        return found

    def say(self, turn: Turn) -> None:
        """One more turn, durably."""
        self._note({"kind": "turn", **{name: _plain(getattr(turn, name)) for name in Turn.__slots__}})

    def remark(self, text: str) -> None:
        """Say something to all; they get one more round to answer."""
        self._note({"kind": "remark", "text": text})

    def end(self, why: str, tokens: int = 0) -> None:
        """Nobody speaks any more."""
        self._note({"kind": "end", "why": why, "tokens": tokens})

    def concluded(self) -> None:
        """What it came to is written down."""
        self._note({"kind": "concluded"})

    def _note(self, record: dict[str, Any]) -> None:
        self.journal.append(record)
        self._take(record)

    def _take(self, record: Mapping[str, Any]) -> None:
        match record.get("kind"):
            case "turn":
                turn = Turn(**{name: _tuple(record[name]) for name in Turn.__slots__ if name in record})
                self.turns.append(turn)
                self.moderator_tokens += turn.moderator_tokens
            case "remark":
                self.remarks.append((len(self.turns), str(record.get("text", ""))))
                self.ended, self.is_concluded = None, False
            case "end":
                self.ended = str(record.get("why"))
                self.moderator_tokens += int(record.get("tokens") or 0)
            case "concluded":
                self.is_concluded = True

    @property
    def tokens(self) -> int:
        """What the talk has taken so far, the moderator included."""
        return self.moderator_tokens + sum(turn.tokens for turn in self.turns)

    @property
    def allowed(self) -> int:
        """How many turns there may be: after a remark at least one more for everybody."""
        rounds = [after + len(self.discussion.participants) for after, _ in self.remarks]
        return max([self.discussion.max_turns, *rounds])

    def limit(self) -> str | None:
        """Why nobody may speak any more, or None."""
        everybody = len(self.discussion.participants)
        if len(self.turns) >= self.allowed:
            return f"the limit of {counted(self.allowed, 'turn')}"
        if self.turns and self.tokens >= self.discussion.max_tokens:
            return f"the limit of {self.discussion.max_tokens:,} tokens"
        last = self.turns[max(len(self.turns) - everybody, self.remarks[-1][0] if self.remarks else 0) :]
        return "nobody had anything to add" if len(last) == everybody and all(turn.passed for turn in last) else None

    def silent(self) -> list[str]:
        """Who never said anything."""
        spoke = {turn.speaker for turn in self.turns if not turn.passed}
        return [name for name in self.discussion.names if name not in spoke]

    def spent(self) -> dict[str, dict[str, Any]]:
        """For each participant: turns, tokens and models."""
        turns, tokens, models = Counter[str](), Counter[str](), dict[str, str]()
        for turn in self.turns:
            turns[turn.speaker] += 1
            tokens[turn.speaker] += turn.tokens
            models[turn.speaker] = turn.model
        return {name: {"turns": turns[name], "tokens": tokens[name], "model": models.get(name)} for name in self.discussion.names}

    def blocks(self) -> list[str]:
        """Turns and remarks as they stand in a prompt and in the file, in their order."""
        found = []
        for number in range(len(self.turns) + 1):
            found += [f"## To all\n\n{inert(text)}" for after, text in self.remarks if after == number]
            if number < len(self.turns):
                turn = self.turns[number]
                note = f" ({turn.note})" if turn.note else ""
                said = "(nothing to add)" if turn.passed else inert(turn.text)
                found.append(f"## {turn.number}. {turn.speaker}{note}\n\n{said}")
        return found

    def shown(self, room: int, question: str, count: Callable[[str], int]) -> str:
        """The talk within the room: the newest turns whole, and of the older ones the sentences that matter most."""
        blocks, newest, left = self.blocks(), list[str](), room
        while blocks and count(blocks[-1]) <= left - (room // _OLD_SHARE if len(blocks) > 1 else 0):
            newest.insert(0, blocks.pop())
            left -= count(newest[0]) + 2
        if not blocks:
            return "\n\n".join(newest)
        head = "(Of what was said before, what matters most:)"
        while len(blocks) > 1 and sum(map(len, blocks)) > _OLDEST:
            del blocks[1]  # the first turn says where it began
        texts = [SourceText(str(number), text) for number, text in enumerate(blocks)]
        older = select(texts, budget=max(0, left - count(head)), question=question, count=count).text
        return "\n\n".join(part for part in (head if older else "", older, *newest) if part)

    def markdown(self, name: str, task: str) -> str:
        """The talk as a file for people."""
        who = [f"- {one}" + (f" (model {spent['model']})" if spent["model"] else "") for one, spent in self.spent().items()]
        how = "A moderator says whose turn it is." if self.discussion.moderator is not None else "They speak in turn."
        over = [f"Ended after {counted(len(self.turns), 'turn')}: {self.ended}."] if self.ended is not None else ["(It goes on.)"]
        return "\n\n".join([f"# Discussion: {name}", inert(task), "\n".join(who), how, *self.blocks(), *over]) + "\n"


def _plain(value: Any) -> Any:
    return [dict(one) for one in value] if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _fingerprint(request: StageRequest) -> str:
    """What the talk is about: it is gone on with only where all of this is as it was."""
    about = [request.stage.document(), request.task, dict(request.parameters), [output_json(output) for output in request.given]]
    text = json.dumps(about, sort_keys=True, ensure_ascii=False, default=str)
    return "sha256-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
