"""A stage worked out by a model and checked by the program: each finding's source resolves and holds the fact, or it is marked (W12, W18).

The model is asked for the contract's own form. Its words about sources are only believed when the source is one that the stage was given.
`ModelResearcher` searches and cites, `ModelCoder` writes a program that the sandbox runs: what was found or printed is what they may cite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool, StructuredTool

from holdfast.agents.stages.asker import Asker, fitted, stop_if_cancelled, talk_with_tools
from holdfast.agents.stages.stage_agents import BASH, PROGRAMS, code_call, run_in, sandbox_thread
from holdfast.agents.stages.stage_sources import PAGE, Desk, Evidence, Passage, source_tools
from holdfast.durable.replace import replace_text
from holdfast.errors import HoldfastError, OutputInvalid, SandboxUnavailable
from holdfast.models.abilities import Task, abilities_of, is_on_this_machine, model_name_of
from holdfast.offline.documents import Library, SourceDocument
from holdfast.offline.planner import Planner, TaskQuestion, questions_listed, questions_of
from holdfast.offline.researcher import Retrieval
from holdfast.offline.sources import check_sources, gather, whole_number
from holdfast.sandbox.commands import CommandResult, Sandbox
from holdfast.session.output import StageOutput, addressed, output_schema, parse_output
from holdfast.validation import counted
from holdfast.workflow.agent import StageAgent, StageRequest, StageResult, as_result, ground_output
from holdfast.workflow.control import StageApprovals
from holdfast.workflow.definition import Stage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.config.sections import Config


Models = Callable[[str | None], "BaseChatModel"]
"""The chat model of a name; None is the one that the run uses."""
StageTools = Callable[[StageRequest], "Sequence[BaseTool]"]
"""The tools from outside, of MCP servers for example, that a stage is offered beside those of its agent."""


@dataclass(frozen=True)
class ModelStage:
    """A stage agent that lets a model read what it needs, and then asks it for the output. `role` names its prompt."""

    models: Models
    role: str = "llm"
    add_stages: bool = False
    outside: StageTools | None = None
    needs: Task = "json"
    """What a model must be able to do to be asked."""
    instead: StageAgent | None = None
    """Who does the stage without a model, where that one cannot (A15)."""
    approve: tuple[str, ...] = ()
    """The tools that wait for a person, by name or pattern."""

    def run(self, request: StageRequest) -> StageResult:
        stop_if_cancelled(request)
        asker = self.asker(request)
        if (weakness := self.weakness(request, asker)) is not None and self.instead is not None:
            return self._without_model(request, asker, weakness)
        evidence = self.evidence(request, asker)
        stop_if_cancelled(request)
        asker.pay(request)
        request.emit(f"asking {asker.name}")
        answer = asker.ask(self.messages(request, asker, evidence), self.schema(request), title=f"{self.role}_output")
        here = is_on_this_machine(asker.model)
        if (flaw := answer.flaw or (self.flaw(request, answer.value) if here else None)) is not None:
            asker.pay(request)
            if self.instead is not None and here:
                return self._without_model(request, asker, f"the answer {flaw}")
            hint = "Raise `max_tokens` of the model, or let the stage do less."
            raise OutputInvalid(f"the answer of {asker.name} {flaw}.", problems=[f"the answer {flaw}"], raw=answer.value, hint=hint)
        output, added = self.read(request, answer.value, evidence)
        return StageResult(output=self.finish(request, output), usage=asker.used, model=asker.name, add_stages=added)

    def weakness(self, request: StageRequest, asker: Asker) -> str | None:
        """Why this model is not asked; None when it is."""
        return None if abilities_of(asker.model).can(self.needs) else f"it is too weak for {self.needs}"

    def flaw(self, request: StageRequest, value: object) -> str | None:
        """What is wrong with an answer that is whole, of a model that may be a small one; here nothing."""
        return None

    def _without_model(self, request: StageRequest, asker: Asker, why: str) -> StageResult:
        """The stage by extraction. Its output says so, and why."""
        request.emit(f"{asker.name}: {why}; done without a model")
        done = as_result(cast("StageAgent", self.instead).run(request))
        output = parse_output(addressed(done.output, request.stage.name), stage=request.stage.name, schema=request.stage.output_schema)
        return replace(done, output=replace(output, extra={**output.extra, "without_model": f"{asker.name}: {why}"}))

    def asker(self, request: StageRequest) -> Asker:
        model = self.models(request.model)
        return Asker(model, request.model or model_name_of(model))

    def evidence(self, request: StageRequest, asker: Asker) -> Evidence:
        """What findings may be about: the given outputs, the retrieved memories, and the raw data that the model chose to read."""
        desk = Desk.of(request)
        self.look(request, asker, desk, self.source_tools(asker, desk), whole_number(request.stage, "max_tool_calls", _CALLS))
        return desk.evidence()

    def source_tools(self, asker: Asker, desk: Desk) -> list[BaseTool]:
        """The tools that read what is on the desk, with pages that fit the model. None where there is nothing to read."""
        return source_tools(desk, page=min(PAGE, asker.room)) if len(desk) else []

    def tools_for(
        self, request: StageRequest, own: Sequence[BaseTool], wanted: Sequence[str] | None
    ) -> tuple[list[BaseTool], list[BaseTool]]:
        """Of the agent's own tools and of those from outside the ones that are wanted by name; without names, all."""
        offered = self.outside(request) if self.outside and (wanted is None or wanted) else ()
        outside = [tool for tool in offered if wanted is None or any(fnmatchcase(tool.name, name) for name in wanted)]
        return [tool for tool in own if wanted is None or tool.name in wanted], outside

    def look(self, request: StageRequest, asker: Asker, desk: Desk, own: Sequence[BaseTool], calls: int, asked: str = "") -> None:
        """Let the model read and search by itself. What it found stays on the desk, however that ends.

        `tools` of the stage names those that it may use; without it there are those of its agent and those from outside.
        """
        tools, outside = self.tools_for(request, own, request.stage.tools)
        if not (tools or outside) or not abilities_of(asker.model).tools:
            return
        system = "\n\n".join(part for part in (role_prompt(self.role, "reading"), request.system_prompt.strip()) if part)
        sources = f"# Sources that you can read\n\n{desk.listed()}" if len(desk) else ""
        room = asker.room // 2 - asker.count(system) - asker.count(sources) - asker.count(asked)
        parts = (fitted(request.prompt, max(0, room), request.task, asker.count), sources, asked)
        messages = [SystemMessage(system), HumanMessage("\n\n".join(part for part in parts if part))]
        title = f"{self.role}_reading"
        talk_with_tools(request, asker, messages, tools, outside=outside, calls=calls, title=title, desk=desk, approve=self.approve)

    def schema(self, request: StageRequest) -> dict[str, Any]:
        """The contract, with the stage's name fixed and room for stages where the planner may add some."""
        schema = output_schema(request.stage.output_schema)
        properties = {**schema["properties"], "stage_name": {"type": "string", "enum": [request.stage.name]}}
        if self.add_stages:
            properties["add_stages"] = _ADDED
        return {**schema, "properties": properties, "required": list(schema["required"]), "additionalProperties": False}

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
        return evidence.weighed(checked), _plain_stages(added, request.stage.name)

    def finish(self, request: StageRequest, output: object) -> object:
        """A last step on an output that is right; here none."""
        return output


def _plain_stages(added: tuple[Mapping[str, Any], ...], by: str) -> tuple[Mapping[str, Any], ...]:
    """Stages that a model adds, if they are what it was asked for: no code by its path, no sources, no tools. Else OutputInvalid."""
    form = _ADDED["items"]
    strange = [f"add_stages: {name!r} cannot be given" for one in added for name in one if name not in form["properties"]]
    types = form["properties"]["agent_type"]["enum"]
    strange += [f"add_stages: the agent_type must be one of {', '.join(types)}" for one in added if one.get("agent_type") not in types]
    if strange:
        raise OutputInvalid(f"the stages that {by!r} adds do not fit: {strange[0]}.", problems=strange, raw=[*map(dict, added)], stage=by)
    return added


_CALLS = 12
_REPORT_TOKENS = 1_000
_REPORT_WORDS = 20
_OVERHEAD = 64  # what the messages cost beside their text
_ADDED: dict[str, Any] = {
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
    """A planner: the questions are in `data.questions`, where the researcher looks for them. Those that the stage lists need no model."""

    def run(self, request: StageRequest) -> StageResult:
        return Planner().run(request) if questions_listed(request.stage) else super().run(request)

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

    def weakness(self, request: StageRequest, asker: Asker) -> str | None:
        if request.stage.output_schema is None and asker.answer_room < _REPORT_TOKENS:
            return f"its answers have {asker.answer_room:,} tokens (`max_tokens`), and a report needs {_REPORT_TOKENS:,}"
        return super().weakness(request, asker)

    def flaw(self, request: StageRequest, value: object) -> str | None:
        data = value.get("data") if isinstance(value, Mapping) else None
        report = data.get("report") if isinstance(data, Mapping) and request.stage.output_schema is None else None
        words = len(report.split()) if isinstance(report, str) else _REPORT_WORDS
        return f"is a report of {counted(words, 'word')}" if words < _REPORT_WORDS else None

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


def role_prompt(role: str, form: str = "contract") -> str:
    """What a role is told, beside the stage's own system prompt: who it is, and the form of what is asked of it now."""
    return f"{prompt_text(role)}\n\n{prompt_text(form)}"


@cache
def prompt_text(name: str) -> str:
    """A text of `prompts/`."""
    return resources.files("holdfast.agents.stages").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


_PER_QUESTION = 4

_SHOWN = 1_500


class _Desk(Desk):
    """The desk of a researcher, who can also search the sources of the task."""

    def __init__(self, request: StageRequest, library: Library, retrieval: Retrieval | None) -> None:
        super().__init__(request, library)
        self.retrieval = retrieval

    def look_up(self, question: TaskQuestion, most: int) -> list[Passage]:
        """The sections that answer a question best."""
        found = []
        for answer in self.retrieval.answers(question.query, most, name=question.item) if self.retrieval is not None else []:
            text = self.library.text_of(answer.source)
            if text:
                found.append(self.lay(answer.source, text, document=answer.document, trust=self.trust_of(answer.document)))
        return found


@dataclass(frozen=True)
class ModelResearcher(ModelStage):
    """Finds passages and lets the model report from them. `config` says which web tools there are."""

    config: Config | None = None

    def check_sources(self, stage: Stage, home: Path | None) -> None:
        """ConfigError for sources that cannot be read."""
        check_sources(stage, home)

    def evidence(self, request: StageRequest, asker: Asker) -> Evidence:
        questions = questions_of(request)
        library = gather(request, [question.query for question in questions])
        retrieval = Retrieval(library) if len(library) else None
        desk = _Desk(request, library, retrieval)
        for question in questions:
            stop_if_cancelled(request)
            desk.look_up(question, whole_number(request.stage, "max_findings", _PER_QUESTION))
        asked = "\n".join(f"- {question.text}" for question in questions)
        calls = whole_number(request.stage, "max_searches", whole_number(request.stage, "max_tool_calls", _CALLS))
        self.look(request, asker, desk, self._tools(request, asker, desk), calls, f"# Questions\n\n{asked}")
        request.emit(f"{counted(len(desk.passages), 'passage')} from {counted(len(library), 'document')}")
        return desk.evidence()

    def _tools(self, request: StageRequest, asker: Asker, desk: _Desk) -> list[BaseTool]:
        knowledge = request.knowledge

        def search_sources(query: str) -> str:
            """Search the documents of this task. Returns passages under the names by which they are cited."""
            return _shown(desk.look_up(TaskQuestion("q", query), 5))

        def search_knowledge(query: str) -> str:
            """Search what earlier work found."""
            try:
                hits = knowledge.search(query, top_k=6) if knowledge is not None else []
            except HoldfastError as error:
                return f"Error: {error}"
            return _shown([desk.lay(hit.record.id, hit.text, trust=hit.record.trust) for hit in hits])

        found = [StructuredTool.from_function(search_sources)] if desk.retrieval is not None else []
        found += [StructuredTool.from_function(search_knowledge)] if knowledge is not None else []
        web = self._web(desk)
        return [*found, *web, *(source_tools(desk, page=min(PAGE, asker.room)) if web else self.source_tools(asker, desk))]

    def _web(self, desk: _Desk) -> list[BaseTool]:
        from holdfast.agents.tools.web_tools import make_fetcher, open_searcher

        entries = {entry.name: entry.arguments() for entry in self.config.tools} if self.config is not None else {}
        searcher = open_searcher(entries.get("web_search"))
        if searcher is None:
            return []
        fetcher = make_fetcher(entries.get("web_fetch") or {})

        def web_search(query: str) -> str:
            """Search the web. Read what looks useful with web_fetch."""
            found = [f"- {one.title} ({one.url}): {' '.join(one.text.split())[:300]}" for one in searcher.search(query, 6)]
            return "\n".join(found) or "Nothing was found."

        def web_fetch(url: str) -> str:
            """Read a web page. It can then be cited by its address, and read on with read_source."""
            page = fetcher.page(url)
            if desk.library.get(page.url) is None:
                desk.library.add(SourceDocument(page.url, page.text, trust="low"))
            return desk.read(page.url)

        return [StructuredTool.from_function(web_search), StructuredTool.from_function(web_fetch)]


def _shown(passages: Sequence[Passage]) -> str:
    return "\n\n".join(f"[{passage.source}]\n{passage.text[:_SHOWN]}" for passage in passages) or "Nothing was found."


_ROUNDS = 3
_SHOWN_OUTPUT = 6_000
_PROGRAM = {
    "type": "object",
    "properties": {
        "language": {"type": "string", "enum": ["python", "bash"]},
        "code": {"type": "string", "minLength": 1, "description": "a complete program that prints its results"},
    },
    "required": ["language", "code"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class ModelCoder(ModelStage):
    """Writes code, runs it in the sandbox of the session, and reports what it printed. `open_sandbox` takes a thread's name."""

    open_sandbox: Callable[[str], Sandbox] | None = None

    def evidence(self, request: StageRequest, asker: Asker) -> Evidence:
        if self.open_sandbox is None:
            raise SandboxUnavailable("the stage writes code, and there is no sandbox to run it in.", hint="Use another agent type.")
        passages: list[Passage] = []
        approvals = StageApprovals(request, self.approve)
        answered = [one.call.args for one in approvals.answered() if one.call.tool == BASH]  # what was asked for is not written anew
        with closing(self.open_sandbox(sandbox_thread(request))) as sandbox:
            for number in range(1, int(request.stage.settings.get("rounds", _ROUNDS)) + 1):
                stop_if_cancelled(request)
                asker.pay(request)
                kept = answered.pop(0) if answered else None
                program = (kept["language"], kept["code"]) if kept else self._program(request, asker, passages)
                if program is None:
                    continue
                language, code = program
                answer = approvals.ask(BASH, code_call(language, code))
                if not answer.approved:
                    passages += [Passage(f"program {number}", code), Passage(f"output {number}", answer.said)]
                    continue
                ran = run_in(sandbox, request, language, code)
                stop_if_cancelled(request)
                passages += self._kept(request, number, language, code, ran)
                request.emit(f"round {number}: exit code {ran.exit_code}")
                if ran.ok:
                    break
        return Evidence.given(request, passages)

    def _program(self, request: StageRequest, asker: Asker, passages: list[Passage]) -> tuple[str, str] | None:
        messages: list[BaseMessage] = [SystemMessage(f"{role_prompt(self.role)}\n\n{request.system_prompt}".strip())]
        room = asker.room - asker.count(messages[0].text)
        tried = "\n\n".join(f"[{passage.source}]\n{passage.text[-_SHOWN_OUTPUT:]}" for passage in passages[-2:])
        messages.append(HumanMessage(fitted(request.prompt, max(0, room - asker.count(tried)), request.task, asker.count)))
        if tried:
            messages.append(HumanMessage(f"The last program did not succeed. Write a corrected one.\n\n{tried}"))
        value: Any = asker.ask(messages, _PROGRAM, title="program").value
        if isinstance(value, dict) and value.get("language") in PROGRAMS and str(value.get("code") or "").strip():
            return str(value["language"]), str(value["code"])
        return None

    def _kept(self, request: StageRequest, number: int, language: str, code: str, ran: CommandResult) -> list[Passage]:
        program = request.raw.put(code, source=f"program {number}", media_type="text/x-python" if language == "python" else "text/x-sh")
        printed = request.raw.put(ran.text, source=f"output {number}", media_type="text/plain")
        return [Passage(f"program {number}", code, program), Passage(f"output {number}", ran.text, printed)]
