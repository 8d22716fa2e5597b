"""A stage worked out by a model and checked by the program: each finding's source resolves and holds the fact, or it is marked (W12, W18).

The model is asked for the contract's own form. Its words about sources are only believed when the source is one that the stage was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from holdfast.agents.stages.asking import Asker
from holdfast.agents.stages.evidence import Evidence
from holdfast.durable.replace import replace_text
from holdfast.errors import Cancelled, OutputInvalid
from holdfast.extract.passages import SourceText
from holdfast.extract.selection import select
from holdfast.session.output import StageOutput, output_schema, parse_output
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.output_grounding import ground_output

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

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
        return Asker(model, request.model or str(getattr(model, "model_name", None) or type(model).__name__))

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
