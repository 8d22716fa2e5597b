"""A coder: the model writes a program, the sandbox runs it, and what it printed is what the findings may cite (W12).

A program that fails is shown to the model with its output, a few times. Program and output are kept as raw data, so that every figure can
be traced.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from holdfast.agents.stages.model_stage import Asker, Evidence, ModelStage, Passage, fitted, role_prompt, stop_if_cancelled
from holdfast.agents.stages.stage_agents import PROGRAMS, sandbox_thread, stopping
from holdfast.durable.replace import replace_text
from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.commands import CommandResult, Sandbox
from holdfast.workflow.agent import StageRequest

_ROUNDS = 3
_SHOWN = 6_000
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
        with closing(self.open_sandbox(sandbox_thread(request))) as sandbox:
            for number in range(1, int(request.stage.settings.get("rounds", _ROUNDS)) + 1):
                stop_if_cancelled(request)
                program = self._program(request, asker, passages)
                if program is None:
                    continue
                language, code = program
                ran = self._run(request, sandbox, language, code)
                passages += self._kept(request, number, language, code, ran)
                request.emit(f"round {number}: exit code {ran.exit_code}")
                if ran.ok:
                    break
        return Evidence.given(request, passages)

    def _program(self, request: StageRequest, asker: Asker, passages: list[Passage]) -> tuple[str, str] | None:
        messages: list[BaseMessage] = [SystemMessage(f"{role_prompt(self.role)}\n\n{request.system_prompt}".strip())]
        room = asker.room - asker.count(messages[0].text)
        tried = "\n\n".join(f"[{passage.source}]\n{passage.text[-_SHOWN:]}" for passage in passages[-2:])
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
