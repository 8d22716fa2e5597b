"""Stage agents that use tools with a model: the researcher searches and cites, the coder writes a program that the sandbox runs (W12).

What a search found, or a program printed, is what the findings may cite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool, StructuredTool

from holdfast.agents.stages.asker import Asker, fitted, stop_if_cancelled
from holdfast.agents.stages.model_stage import ModelStage, role_prompt
from holdfast.agents.stages.stage_agents import BASH, PROGRAMS, code_call, sandbox_thread, stopping
from holdfast.agents.stages.stage_sources import PAGE, Desk, Evidence, Passage, source_tools
from holdfast.amounts import counted
from holdfast.durable.replace import replace_text
from holdfast.errors import HoldfastError, SandboxUnavailable
from holdfast.offline.documents import Library, SourceDocument
from holdfast.offline.planner import TaskQuestion, questions_given, split_task
from holdfast.offline.retrieval import Retrieval
from holdfast.offline.sources import check_sources, gather
from holdfast.offline.stage_settings import whole_number
from holdfast.sandbox.commands import CommandResult, Sandbox
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.definition import Stage
from holdfast.workflow.stage_approvals import StageApprovals

if TYPE_CHECKING:
    from holdfast.config.sections import Config


_PER_QUESTION = 4
_CALLS = 12
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
        questions = questions_given(request.given) or split_task(request.task)
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
        found = [_search_sources(desk)] if desk.retrieval is not None else []
        if request.knowledge is not None:
            found.append(_search_knowledge(desk))
        web = self._web(desk)
        return [*found, *web, *(source_tools(desk, page=min(PAGE, asker.room)) if web else self.source_tools(asker, desk))]

    def _web(self, desk: _Desk) -> list[BaseTool]:
        from holdfast.agents.web.web_tools import make_fetcher, open_searcher

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


def _search_sources(desk: _Desk) -> BaseTool:
    def search_sources(query: str) -> str:
        """Search the documents of this task. Returns passages under the names by which they are cited."""
        return _shown(desk.look_up(TaskQuestion("q", query), 5))

    return StructuredTool.from_function(search_sources)


def _search_knowledge(desk: _Desk) -> BaseTool:
    search: Callable[..., Any] = desk.request.knowledge.search  # type: ignore[union-attr]  # only made where there is one

    def search_knowledge(query: str) -> str:
        """Search what earlier work found."""
        try:
            hits = search(query, top_k=6)
        except HoldfastError as error:
            return f"Error: {error}"
        return _shown([desk.lay(hit.record.id, hit.text, trust=hit.record.trust) for hit in hits])

    return StructuredTool.from_function(search_knowledge)


def _shown(passages: Sequence[Passage], *, most: int = _SHOWN) -> str:
    return "\n\n".join(f"[{passage.source}]\n{passage.text[:most]}" for passage in passages) or "Nothing was found."


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
        answered = [
            answer.call.args for answer in approvals.answered() if answer.call.tool == BASH
        ]  # what was asked for is not written anew
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
                ran = self._run(request, sandbox, language, code)
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

    def _run(self, request: StageRequest, sandbox: Sandbox, language: str, code: str) -> CommandResult:
        name, command = PROGRAMS[language]
        sandbox.files.write(name, code)
        replace_text(request.folder / name, code)
        with stopping(request) as cancel:
            ran = sandbox.run(command, cancel=cancel)
        stop_if_cancelled(request)
        return ran

    def _kept(self, request: StageRequest, number: int, language: str, code: str, ran: CommandResult) -> list[Passage]:
        program = request.raw.put(code, source=f"program {number}", media_type="text/x-python" if language == "python" else "text/x-sh")
        printed = request.raw.put(ran.text, source=f"output {number}", media_type="text/plain")
        return [Passage(f"program {number}", code, program), Passage(f"output {number}", ran.text, printed)]
