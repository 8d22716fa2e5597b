"""A discussion (W12): several roles, each with a prompt and a model of its own, talk in turns, and one stage output comes of it.

Who speaks next is said by the order or by a moderator. Each participant is charged for what it used. The `Transcript` says what was said,
by whom, and why it ended: each turn is a record of the stage's journal before the next one is asked for, so a discussion that is killed,
cancelled or fails goes on where it stood (W6). It belongs to one form of its stage: where the definition, the task or what was given has
changed, the talk begins anew.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from holdfast.agents.stages.asker import Asker, fitted, stop_if_cancelled, talk_with_tools
from holdfast.agents.stages.model_stage import ModelStage, prompt_text
from holdfast.agents.stages.stage_sources import Desk, Passage
from holdfast.errors import InputError, ModelNotConfigured
from holdfast.extract.selection import SourceText, select
from holdfast.models.abilities import model_name_of
from holdfast.models.factory import settings_of
from holdfast.offline.panel import Discussion, Panel, Participant, read_discussion
from holdfast.offline.sources import whole_number, wrong
from holdfast.session.output import StageOutput, output_json
from holdfast.text.normalise import inert
from holdfast.tokens.accounts import Usage
from holdfast.validation import counted
from holdfast.workflow.agent import StageJournal, StageRequest, StageResult, lowered
from holdfast.workflow.definition import Stage

if TYPE_CHECKING:
    from holdfast.config.sections import Config


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
        values = {name: getattr(turn, name) for name in Turn.__slots__}
        self._note({"kind": "turn", **{k: [dict(one) for one in v] if isinstance(v, tuple) else v for k, v in values.items()}})

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
                known: dict[str, Any] = {name: record[name] for name in Turn.__slots__ if name in record}
                known |= {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
                turn = Turn(**known)
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


def _fingerprint(request: StageRequest) -> str:
    """What the talk is about: it is gone on with only where all of this is as it was."""
    about = [request.stage.document(), request.task, dict(request.parameters), [output_json(output) for output in request.given]]
    text = json.dumps(about, sort_keys=True, ensure_ascii=False, default=str)
    return "sha256-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_TURN_CALLS = 4
_SHARE_OF_TALK = 2  # half of a prompt's room is for what was said
_SHOWN_ROLE = 300


@dataclass(frozen=True)
class ModelDiscussion(ModelStage):
    """Lets the participants of a stage talk. `config` knows the models that they name; `has_usual`: whether the others have one too."""

    role: str = "discussion"
    config: Config | None = None
    has_usual: bool = True

    def check(self, stage: Stage) -> None:
        """ConfigError for a participant without a model, a model that is not configured, and settings that do not fit."""
        discussion = read_discussion(stage)
        named = [*discussion.models(), *([("model", stage.model)] if stage.model is not None else [])]
        for key, model in named:
            self._known(stage, key, model)
        if self.has_usual or stage.model is not None or not named:
            return
        for number, participant in enumerate(discussion.participants):
            if participant.model is None:
                told = f"the participant {participant.name} has no model: the stage names none, and no configured one is good enough."
                raise wrong(stage, f"participants[{number}].model", told, "Give it a `model`, or give the stage one.")

    def _known(self, stage: Stage, key: str, model: str) -> None:
        if self.config is None:
            return
        try:
            settings_of(model, config=self.config)
        except ModelNotConfigured as error:
            raise wrong(stage, key, error.message, error.hint) from error

    def run(self, request: StageRequest) -> StageResult:
        stop_if_cancelled(request)
        discussion = read_discussion(request.stage)
        if not (self.has_usual or request.model or discussion.models()):
            return Panel().run(request)  # nobody can talk (W18)
        talk = _Talk(self, request, discussion)
        talk.go_on()
        return self._conclude(request, talk)

    def asker(self, request: StageRequest) -> Asker:
        """Who writes down what it came to: the stage's model, else the moderator's, else that of whoever has one."""
        name = request.model
        if name is None and not self.has_usual:
            discussion = read_discussion(request.stage)
            moderator = discussion.moderator.model if discussion.moderator is not None else None
            name = moderator or discussion.models()[0][1]
        return self.asker_for(name)

    def asker_for(self, name: str | None, who: str | None = None) -> Asker:
        model = self.models(name)
        return Asker(model, name or model_name_of(model), who=who)

    def _conclude(self, request: StageRequest, talk: _Talk) -> StageResult:
        transcript, asker = talk.transcript, self.asker(request)
        text = transcript.markdown(request.stage.name, request.task)
        request.show("transcript", text)
        ref = request.raw.put(text, source=f"transcript of {request.stage.name}", media_type="text/markdown")
        turns = [Passage(f"turn {turn.number}", f"{turn.speaker}: {turn.text}", ref) for turn in transcript.turns if not turn.passed]
        evidence = replace(talk.desk.evidence(), shown=(*turns, *talk.desk.passages.values()))
        stop_if_cancelled(request)
        request.emit(f"asking {asker.name} what it came to")
        answer = asker.ask(self.messages(request, asker, evidence), self.schema(request), title="discussion_output")
        output, _ = self.read(request, answer.value, evidence)
        if isinstance(output, StageOutput):
            output = self._completed(output, transcript, ref)
            transcript.concluded()
        return StageResult(output=output, usage=asker.used, model=asker.name)

    def _completed(self, output: StageOutput, transcript: Transcript, ref: str) -> StageOutput:
        """The output with the transcript, and with how it was talked over. It is less sure where somebody never spoke."""
        silent = transcript.silent()
        about: dict[str, Any] = {"turns": len(transcript.turns), "ended": transcript.ended}
        about |= {"participants": transcript.spent(), "transcript": ref}
        notes = list(dict.fromkeys(turn.note for turn in transcript.turns if turn.note))
        about |= {"notes": notes} if notes else {}
        about |= {"never_spoke": silent} if silent else {}
        return replace(
            output,
            confidence=lowered(output.confidence) if silent else output.confidence,
            raw_data_refs=tuple(dict.fromkeys((ref, *output.raw_data_refs))),
            extra={**output.extra, "discussion": about},
        )


class _Talk:
    """A discussion while it goes on."""

    def __init__(self, agent: ModelDiscussion, request: StageRequest, discussion: Discussion) -> None:
        self.agent = agent
        self.request = request
        self.discussion = discussion
        self.transcript = Transcript.opened(request, discussion)
        self.desk = Desk.of(request)
        self._askers: dict[str, Asker] = {}
        for turn in self.transcript.turns:
            self._lay_again(turn.read)
        self._charge_again()

    def _lay_again(self, read: Sequence[Mapping[str, Any]]) -> None:
        """Put what was read before a kill back on the desk."""
        for one in read:
            found = self.desk.find(str(one.get("source")))
            try:
                text = found[2] if found is not None else self.request.raw.text(str(one.get("ref")))
            except InputError:  # it was forgotten since
                continue
            self.desk.passages[str(one["source"])] = Passage(str(one["source"]), text, one.get("ref"), one.get("trust"))

    def _charge_again(self) -> None:
        """Charge what a kill took out of the accounts: a turn is kept at once, the accounts with the next commit of the session."""
        entries = [entry for turn in self.transcript.turns for entry in turn.paid]
        for who in {str(entry["who"]) for entry in entries}:
            own = [(str(entry["model"]), Usage(**entry["usage"])) for entry in entries if entry["who"] == who]
            charged = self.request.charged(who)
            missing = sum(usage.total for _, usage in own) - charged if charged is not None else 0
            while missing > 0:
                model, usage = own.pop()
                self.request.charge(usage, model, who)
                missing -= usage.total

    def go_on(self) -> None:
        """Let everybody speak until the talk is over. What was said before a kill, a failure or a cancellation stands."""
        transcript = self.transcript
        if self.request.feedback and transcript.is_concluded:
            transcript.remark(self.request.feedback)
        while transcript.ended is None:
            stop_if_cancelled(self.request)
            why = transcript.limit()
            if why is not None:
                transcript.end(why)
                break
            chosen = self._next()
            if chosen is not None:
                self._turn(*chosen)
        self.request.emit(f"the discussion is over after {counted(len(transcript.turns), 'turn')}: {transcript.ended}")

    def _next(self) -> tuple[Participant, str, int, list[dict[str, Any]]] | None:
        """Who speaks now, why where that needs saying, the tokens of choosing, and what was charged. None when the moderator ends it."""
        last = self.transcript.turns[-1].speaker if self.transcript.turns else None
        in_turn = self.discussion.after(last)
        if self.discussion.moderator is None:
            return in_turn, "", 0, []
        asker = self._asker(MODERATOR, self.discussion.moderator.model)
        messages, asker.since = self._moderator_messages(asker), None
        answer = asker.ask(messages, self._choice, title="next_speaker")
        tokens = asker.since.total if asker.since is not None else asker.estimate(messages, str(answer.value))
        paid = _paid(asker)
        asker.pay(self.request)
        value = answer.value if isinstance(answer.value, Mapping) else {}
        if value.get("end") is True and {turn.speaker for turn in self.transcript.turns} >= set(self.discussion.names):
            why = " ".join(str(value.get("why") or "").split())[:200].rstrip(".")
            self.transcript.end(f"the moderator saw nothing left to discuss{f' ({why})' if why else ''}", tokens)
            return None
        wanted = str(value.get("next") or "").strip().casefold()
        for participant in self.discussion.participants:
            if participant.name.casefold() == wanted:
                return participant, "", tokens, paid
        note = "the moderator named nobody; next in turn"
        self.request.emit(note)
        return in_turn, note, tokens, paid

    @cached_property
    def _choice(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {
                "next": {"type": "string", "enum": list(self.discussion.names), "description": "who speaks next"},
                "end": {"type": "boolean", "description": "true when there is nothing left to discuss"},
                "why": {"type": "string", "description": "in one sentence"},
            },
            "required": ["next", "end", "why"],
            "additionalProperties": False,
        }

    def _moderator_messages(self, asker: Asker) -> list[BaseMessage]:
        moderator = self.discussion.moderator
        roles = "\n".join(f"- {one.name}: {' '.join(one.prompt.split())[:_SHOWN_ROLE]}" for one in self.discussion.participants)
        parts = (prompt_text("moderator"), moderator.prompt if moderator else "", self.request.system_prompt, f"# Participants\n\n{roles}")
        left = self.transcript.allowed - len(self.transcript.turns)
        return self._messages(asker, parts, f"At most {counted(left, 'more turn')}. Who speaks next?")

    def _messages(self, asker: Asker, parts: Sequence[str], last: str) -> list[BaseMessage]:
        system = "\n\n".join(part.strip() for part in parts if part.strip())
        room = asker.room - asker.count(system) - asker.count(last)
        said = self.transcript.shown(max(0, room // _SHARE_OF_TALK), self.request.task, asker.count)
        given = fitted(self.request.prompt, max(0, room - asker.count(said)), self.request.task, asker.count)
        talk = f"# The discussion so far\n\n{said}" if said else "# The discussion so far\n\nNobody has spoken yet."
        return [SystemMessage(system), HumanMessage(f"{given}\n\n{talk}\n\n{last}")]

    def _turn(self, participant: Participant, note: str, choosing: int, paid: list[dict[str, Any]]) -> None:
        asker = self._asker(participant.name, participant.model)
        known, asker.since = set(self.desk.passages), None
        others = ", ".join(name for name in self.discussion.names if name != participant.name)
        who = f"You are {participant.name}. You discuss with {others}."
        parts = (who, prompt_text("participant"), participant.prompt, self.request.system_prompt)
        messages = self._messages(asker, parts, f"It is your turn, {participant.name}.")
        text = self._with_tools(participant, asker, messages)
        if text is None:
            text = str(asker.say(messages, title="turn").value).strip()
        stop_if_cancelled(self.request)
        read = [self.desk.passages[source] for source in self.desk.passages if source not in known]
        turn = Turn(
            len(self.transcript.turns) + 1,
            participant.name,
            text,
            asker.name,
            tokens=asker.since.total if asker.since is not None else asker.estimate(messages, text),
            moderator_tokens=choosing,
            note=note,
            read=tuple({"source": one.source, "ref": one.ref, "trust": one.trust} for one in read),
            paid=(*paid, *_paid(asker)),
        )
        self.transcript.say(turn)  # before it is paid for: a limit that is reached must not cost what was said
        self.request.emit(f"{turn.number}. {participant.name}: {' '.join(text.split())[:160]}")
        self.request.show("transcript", self.transcript.markdown(self.request.stage.name, self.request.task))
        asker.pay(self.request)

    def _with_tools(self, participant: Participant, asker: Asker, messages: Sequence[BaseMessage]) -> str | None:
        """What the participant says after it has looked at what it wanted to; None where it has no tools, or did not come to an end."""
        wanted = participant.tools if participant.tools is not None else self.request.stage.tools
        own, outside = self.agent.tools_for(self.request, self.agent.source_tools(asker, self.desk), wanted)
        calls = whole_number(self.request.stage, "max_tool_calls", _TURN_CALLS)
        given: dict[str, Any] = {"outside": outside, "calls": calls, "desk": self.desk, "approve": self.agent.approve}
        return talk_with_tools(self.request, asker, messages, own, title="turn", **given)

    def _asker(self, who: str, model: str | None) -> Asker:
        if who not in self._askers:
            self._askers[who] = self.agent.asker_for(model or self._model_of_stage(), who)
        return self._askers[who]

    def _model_of_stage(self) -> str | None:
        """The model of whoever names none: that of the stage or the run; for the moderator of a stage without one, that of the first."""
        if self.request.model is not None or self.agent.has_usual:
            return self.request.model
        return self.discussion.models()[0][1]


def _paid(asker: Asker) -> list[dict[str, Any]]:
    return [{"who": asker.who, "model": asker.name, "usage": asdict(asker.since)}] if asker.since is not None else []
