"""A stage worked out by a model and checked by the program: each finding's source resolves and holds the fact, or it is marked (W12, W18).

The model is asked for the contract's own form. Its words about sources are only believed when the source is one that the stage was given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from holdfast.durable.replace import replace_text
from holdfast.errors import Cancelled, InputError, OutputInvalid
from holdfast.extract.passages import SourceText
from holdfast.extract.selection import select
from holdfast.models.abilities import model_name_of
from holdfast.offline.documents import Library
from holdfast.offline.sources import library_of_outputs
from holdfast.session.output import Finding, StageOutput, addressed, output_schema, parse_output
from holdfast.tokens.counter import open_counter
from holdfast.tokens.usage import Usage
from holdfast.tokens.windows import find_window
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.output_grounding import ground_output
from holdfast.workflow.stage_context import inert

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.tokens.counter import TokenCounter


_ANSWER_SHARE = 4  # a quarter of the window is left to the answer
_LARGEST_ANSWER = 8192
_QUIET = {"callbacks": [], "tags": ["nostream"]}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered: the object when it kept to the schema, else its text; and what that used."""

    value: object
    usage: Usage | None


@dataclass
class Asker:
    """A chat model, asked for objects. `room` is what a prompt may have."""

    model: BaseChatModel
    name: str
    used: Usage | None = None
    _counter: TokenCounter | None = field(default=None, repr=False)

    @property
    def window(self) -> int:
        return find_window(self.model, name=self.name).tokens

    @property
    def room(self) -> int:
        """The tokens that all messages of a question may take together."""
        return self.window - min(_LARGEST_ANSWER, self.window // _ANSWER_SHARE)

    def count(self, text: str) -> int:
        """The tokens of a text, as this model counts them as far as is known."""
        if self._counter is None:
            self._counter = open_counter("exact", model=model_name_of(self.model))
        return self._counter.count_text(text)

    def ask(self, messages: Sequence[BaseMessage], schema: Mapping[str, Any], *, title: str) -> Answer:
        """The answer as an object that is meant to fit the schema. It is not validated here."""
        named = {"title": title, "description": "The answer.", **schema}
        settings: Any = {**_QUIET, "run_name": title}
        try:
            structured: Any = self.model.with_structured_output(named, include_raw=True)
        except NotImplementedError:
            return self._in_words(messages, schema, settings)
        found = structured.invoke(list(messages), settings)
        usage = self._charge(found["raw"])
        parsed, error = found.get("parsed"), found.get("parsing_error")
        if isinstance(parsed, Mapping):
            return Answer(dict(parsed), usage)
        if error is not None and not isinstance(error, OutputParserException | ValueError | TypeError):
            raise error
        return Answer(_text(found["raw"]), usage)

    def say(self, messages: Sequence[BaseMessage], *, title: str) -> Answer:
        """The answer as text."""
        settings: Any = {**_QUIET, "run_name": title}
        answer = self.model.invoke(list(messages), settings)
        return Answer(_text(answer), self._charge(answer))

    def _in_words(self, messages: Sequence[BaseMessage], schema: Mapping[str, Any], settings: Any) -> Answer:
        wanted = json.dumps(schema, ensure_ascii=False)
        form = HumanMessage(f"Answer with one JSON object that fits this JSON Schema, and nothing else:\n{wanted}")
        answer = self.model.invoke([*messages, form], settings)
        return Answer(_text(answer), self._charge(answer))

    def _charge(self, message: object) -> Usage | None:
        usage = Usage.read(message)
        if usage is not None:
            self.used = usage if self.used is None else self.used + usage
        return usage


def _text(message: object) -> str:
    if not isinstance(message, AIMessage):
        return str(getattr(message, "content", message))
    for call in message.tool_calls:  # the schema as a tool: what did not parse is in the call
        return json.dumps(call["args"], ensure_ascii=False)
    return str(message.text)


@dataclass(frozen=True, slots=True)
class Passage:
    """A text with the name that findings cite. `ref` is where the whole of it is kept as raw data."""

    source: str
    text: str
    ref: str | None = None


@dataclass(frozen=True)
class Evidence:
    """Passages that are shown to a model, and texts that are only looked at when its findings are checked."""

    shown: tuple[Passage, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    raw: Callable[[str], str] | None = None
    library: Library = field(default_factory=Library)

    @classmethod
    def given(cls, request: StageRequest, shown: Iterable[Passage] = ()) -> Evidence:
        """What the request itself brings: findings of earlier stages by their sources, memories, and raw data by reference."""
        texts: dict[str, list[str]] = {}
        for output in request.given:
            for finding in output.key_findings:
                texts.setdefault(finding.source, []).append(finding.fact)
            texts.setdefault(output.stage_name, []).append(output.summary)
        for memory in request.retrieved:
            for name in (memory.get("source"), memory.get("id")):
                if name:
                    texts.setdefault(str(name), []).append(str(memory.get("text", "")))
        known = {source: "\n".join(found) for source, found in texts.items()}
        return cls(tuple(shown), known, request.raw.text, library_of_outputs(request))

    def rendered(self, budget: int, question: str, count: Callable[[str], int]) -> str:
        """The passages as they stand in a prompt, each under its name, within the budget: of long ones what matters for the question."""
        if not self.shown or budget <= 0:
            return ""
        head = "# Passages\n\nCite a passage by the name in brackets."
        left = budget - count(head)
        whole = [self._block(passage) for passage in self.shown]
        if sum(count(text) for text in whole) > left:
            names = sum(count(f"[{passage.source}]\n\n") for passage in self.shown)
            chosen = select(
                [SourceText(str(number), passage.text) for number, passage in enumerate(self.shown)],
                budget=max(0, left - names),
                question=question,
                count=count,
            )
            parts: dict[int, list[str]] = {}
            for piece in chosen.passages:
                parts.setdefault(int(piece.source), []).append(piece.text)
            whole = [self._block(replace(self.shown[number], text="\n".join(texts))) for number, texts in sorted(parts.items())]
        return "\n\n".join([head, *whole]) if whole else ""

    @staticmethod
    def _block(passage: Passage) -> str:
        return f"[{passage.source}]\n{inert(passage.text)}"

    def named(self, output: StageOutput) -> StageOutput:
        """The output with sources in the spelling of the passages: models like to keep the brackets, or to say `source: x`."""
        names = {_plain(passage.source): passage.source for passage in self.shown} | {_plain(name): name for name in self.known}
        findings = tuple(replace(one, source=names.get(_plain(one.source), one.source)) for one in output.key_findings)
        refs = tuple(dict.fromkeys((*output.raw_data_refs, *self._refs(findings))))
        return replace(output, key_findings=findings, raw_data_refs=refs)

    def _refs(self, findings: Iterable[Finding]) -> Iterable[str]:
        by_source = {passage.source: passage.ref for passage in self.shown}
        return (ref for one in findings if (ref := by_source.get(one.source)))

    def resolve(self, source: str) -> str | None:
        """The text behind a source, or None when there is none of that name."""
        found = [passage.text for passage in self.shown if passage.source == source]
        if source in self.known:
            found.append(self.known[source])
        if not found and (kept := self.library.text_of(source)) is not None:
            return kept
        if not found and self.raw is not None and source.startswith("raw:"):
            try:
                return self.raw(source)
            except InputError:
                return None
        return "\n".join(found) if found else None


def _plain(source: str) -> str:
    text = source.strip().strip("[]()`\"'").strip()
    return text.removeprefix("source:").removeprefix("Source:").strip().casefold()


Models = Callable[[str | None], "BaseChatModel"]
"""The chat model of a name; None is the one that the run uses."""


@dataclass(frozen=True)
class ModelStage:
    """A stage agent that asks a model once. `role` names its prompt; subclasses gather evidence first."""

    models: Models
    role: str = "llm"
    add_stages: bool = False
    extras: Mapping[str, Any] = field(default_factory=dict)

    def run(self, request: StageRequest) -> StageResult:
        stop_if_cancelled(request)
        asker = self.asker(request)
        evidence = self.evidence(request, asker)
        stop_if_cancelled(request)
        request.emit(f"asking {asker.name}")
        answer = asker.ask(self.messages(request, asker, evidence), self.schema(request), title=f"{self.role}_output")
        output, added = self.read(request, answer.value, evidence)
        return StageResult(output=self.finish(request, output), usage=asker.used, model=asker.name, add_stages=added)

    def asker(self, request: StageRequest) -> Asker:
        model = self.models(request.model)
        return Asker(model, request.model or model_name_of(model))

    def evidence(self, request: StageRequest, asker: Asker) -> Evidence:
        """What findings may be about: here the given outputs, the retrieved memories and the raw data they refer to."""
        return Evidence.given(request)

    def schema(self, request: StageRequest) -> dict[str, Any]:
        """The contract, with the stage's name fixed and room for stages where the planner may add some."""
        schema = output_schema(request.stage.output_schema)
        properties = {**schema["properties"], "stage_name": {"type": "string", "enum": [request.stage.name]}}
        required = list(schema["required"])
        if self.add_stages:
            properties["add_stages"] = _ADDED
        return {**schema, "properties": properties, "required": required, "additionalProperties": False}

    def messages(self, request: StageRequest, asker: Asker, evidence: Evidence) -> list[BaseMessage]:
        """The role, the stage's own words, what was given and what was found, within the model's window."""
        system = "\n\n".join(part for part in (role_prompt(self.role), request.system_prompt.strip()) if part)
        room = asker.room - asker.count(system) - _OVERHEAD
        shown = evidence.rendered(max(0, room // 2), request.task, asker.count)
        rest = room - asker.count(shown)
        prompt = fitted(request.prompt, rest, request.task, asker.count)
        return [SystemMessage(system), HumanMessage("\n\n".join(part for part in (prompt, shown) if part))]

    def read(self, request: StageRequest, value: object, evidence: Evidence) -> tuple[object, tuple[Mapping[str, Any], ...]]:
        """The output with its findings checked; what does not parse is passed on as it is, for the runner to ask again."""
        added: tuple[Mapping[str, Any], ...] = ()
        value = addressed(value, request.stage.name)
        if isinstance(value, dict):
            added = tuple(one for one in value.pop("add_stages", None) or () if isinstance(one, Mapping))
            value = {**value, "stage_name": request.stage.name}  # who is asked is known to us, and is no matter of opinion
        try:
            output = parse_output(value, stage=request.stage.name, schema=request.stage.output_schema)
        except OutputInvalid:
            return value, ()
        checked, _ = ground_output(evidence.named(output), evidence.resolve)
        return checked, added

    def finish(self, request: StageRequest, output: object) -> object:
        """A last step on an output that is right; here none."""
        return output


_OVERHEAD = 64  # what the messages cost beside their text
_ADDED = {
    "type": "array",
    "maxItems": 5,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "agent_type": {"type": "string", "enum": ["researcher", "synthesizer", "writer", "llm"]},
            "system_prompt": {"type": "string", "minLength": 1},
        },
        "required": ["name", "agent_type", "system_prompt"],
        "additionalProperties": False,
    },
}


class ModelPlanner(ModelStage):
    """A planner: the questions are in `data.questions`, where the researcher looks for them."""

    def schema(self, request: StageRequest) -> dict[str, Any]:
        schema = super().schema(request)
        if request.stage.output_schema is None:
            question = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}
            questions = {"type": "array", "minItems": 1, "maxItems": 12, "items": {**question, "additionalProperties": False}}
            _add_data(schema, {"questions": questions})
        return schema


class ModelWriter(ModelStage):
    """A writer: the report is in `data.report`, and in a file beside the stage."""

    def schema(self, request: StageRequest) -> dict[str, Any]:
        schema = super().schema(request)
        if request.stage.output_schema is None:
            _add_data(schema, {"report": {"type": "string", "minLength": 1}})
        return schema

    def finish(self, request: StageRequest, output: object) -> object:
        data = output.data if isinstance(output, StageOutput) else None
        if isinstance(data, Mapping) and isinstance(data.get("report"), str):
            replace_text(request.folder / "report.md", data["report"].rstrip() + "\n")
        return output


def _add_data(schema: dict[str, Any], properties: dict[str, Any]) -> None:
    """Ask for `data` with these members, all of them."""
    data = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    schema["properties"]["data"] = data
    schema["required"].append("data")


def stop_if_cancelled(request: StageRequest) -> None:
    """Raise Cancelled when the run is to stop."""
    if request.cancelled():
        raise Cancelled(f"the stage {request.stage.name} was told to stop.", session=request.session_id, stage=request.stage.name)


def fitted(prompt: str, room: int, question: str, count: Callable[[str], int]) -> str:
    """The prompt, or where it is longer than `room` its beginning and the passages of the rest that matter for the question."""
    if count(prompt) <= room:
        return prompt
    note = "\n\n(Shortened to what matters most for the task.)\n\n"
    head, _, rest = prompt.partition("\n\n")
    if count(head) > room // 2:
        head, rest = "", prompt
    budget = room - count(head) - count(note)
    if budget <= 0:
        return head
    chosen = select([SourceText("given", rest)], budget=budget, question=question, count=count).text
    return f"{head}{note}{chosen}".strip()


@cache
def role_prompt(role: str) -> str:
    """What a role is told, beside the stage's own system prompt."""
    folder = resources.files("holdfast.agents.stages").joinpath("prompts")
    return "\n\n".join(folder.joinpath(f"{name}.md").read_text("utf-8").strip() for name in (role, "contract"))
