"""A discussion (W12): several roles, each with a prompt and a model of its own, talk in turns, and one stage output comes of it.

Who speaks next is said by the order or by a moderator. Each turn is on disk before the next is asked for (`transcript.py`), so a
discussion that is killed, cancelled or fails goes on where it stood. Each participant is charged for what it used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from holdfast.agents.stages.asker import Asker, fitted, stop_if_cancelled
from holdfast.agents.stages.model_stage import ModelStage, prompt_text
from holdfast.agents.stages.stage_sources import Desk, Passage
from holdfast.agents.stages.tool_loop import talk_with_tools
from holdfast.agents.stages.transcript import MODERATOR, Transcript, Turn
from holdfast.amounts import counted
from holdfast.errors import InputError, ModelNotConfigured
from holdfast.models.abilities import model_name_of
from holdfast.models.factory import settings_of
from holdfast.offline.panel import Discussion, Panel, Participant, read_discussion, wrong
from holdfast.offline.stage_settings import whole_number
from holdfast.session.output import StageOutput
from holdfast.tokens.usage import Usage
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.definition import Stage
from holdfast.workflow.output_grounding import lowered

if TYPE_CHECKING:
    from holdfast.config.sections import Config

_CALLS = 4
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
                raise wrong(
                    stage,
                    f"participants[{number}].model",
                    f"the participant {participant.name} has no model: the stage names none, and no configured one is good enough.",
                    "Give it a `model`, or give the stage one.",
                )

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
        about: dict[str, Any] = {
            "turns": len(transcript.turns),
            "ended": transcript.ended,
            "participants": transcript.spent(),
            "transcript": ref,
        }
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
        if value.get("end") is True and self._all_have_spoken():
            self.transcript.end(f"the moderator saw nothing left to discuss{_why(value)}", tokens)
            return None
        wanted = str(value.get("next") or "").strip().casefold()
        for participant in self.discussion.participants:
            if participant.name.casefold() == wanted:
                return participant, "", tokens, paid
        note = "the moderator named nobody; next in turn"
        self.request.emit(note)
        return in_turn, note, tokens, paid

    def _all_have_spoken(self) -> bool:
        return {turn.speaker for turn in self.transcript.turns} >= set(self.discussion.names)

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
        parts = (
            f"You are {participant.name}. You discuss with {others}.",
            prompt_text("participant"),
            participant.prompt,
            self.request.system_prompt,
        )
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
        calls = whole_number(self.request.stage, "max_tool_calls", _CALLS)
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


def _why(value: Mapping[str, Any]) -> str:
    said = " ".join(str(value.get("why") or "").split())[:200].rstrip(".")
    return f" ({said})" if said else ""
