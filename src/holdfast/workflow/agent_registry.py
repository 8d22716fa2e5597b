"""Finding the agent that a stage names: a short name, or any importable callable as `package.module:function` (W12).

The names of the registry are dotted paths, imported when a stage uses them. Without a capable model the extraction agents serve; with
one, whoever builds the run passes its own agents under the same names.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.config.known_keys import nearest
from holdfast.errors import ConfigError
from holdfast.imports import load_dotted
from holdfast.workflow.agent import StageAgent, StageRequest, StageResult
from holdfast.workflow.definition import Stage, Workflow

AgentSource = StageAgent | type[StageAgent] | Callable[[StageRequest], object] | str
"""An agent, a class of agents, a function of the request, or the dotted path of one of these."""
Agents = Mapping[str, AgentSource]

OFFLINE_AGENTS: Mapping[str, str] = {
    "planner": "holdfast.offline.planner:Planner",
    "researcher": "holdfast.offline.researcher:Researcher",
    "synthesizer": "holdfast.offline.synthesizer:Synthesizer",
    "writer": "holdfast.offline.writer:Writer",
    "coder": "holdfast.offline.coder:Coder",
    "llm": "holdfast.offline.llm:Plain",
}
"""The agents that work without a model (W18)."""

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class FunctionAgent:
    """A plain function as an agent. What it returns is the output, unless it is a StageResult already."""

    function: Callable[[StageRequest], object]

    def run(self, request: StageRequest) -> StageResult:
        found = self.function(request)
        return found if isinstance(found, StageResult) else StageResult(output=found)


def find_agents(workflow: Workflow, agents: Agents | None = None) -> dict[str, StageAgent]:
    """An agent for each agent type of the workflow. Raises ConfigError, with the line, for one that cannot be had: nothing has run then."""
    found: dict[str, StageAgent] = {}
    for stage in workflow.stages:
        if stage.agent_type not in found:
            found[stage.agent_type] = find_agent(stage, agents, file=workflow.file)
    return found


def find_agent(stage: Stage, agents: Agents | None = None, *, file: str | None = None) -> StageAgent:
    """The agent that a stage names: one of those given, one of the registry, or whatever the dotted path says."""
    name = stage.agent_type
    given = agents or {}
    source: object = given.get(name, OFFLINE_AGENTS.get(name, name))
    if isinstance(source, str) and _PATH.fullmatch(source) is None:
        known = sorted({*given, *OFFLINE_AGENTS})
        near = nearest(source, known)
        hint = f"Did you mean `{near}`?" if near else f"There are {', '.join(known)}, and any `package.module:function`."
        raise _error(f"there is no agent type {name!r}.", stage, file, nearest=near, hint=hint)
    if isinstance(source, str):
        source = load_dotted(source, "the agent", file=file, line=stage.line, key=_key(stage))
    return _as_agent(source, stage, file)


def _as_agent(source: object, stage: Stage, file: str | None) -> StageAgent:
    if inspect.isclass(source):
        try:
            source = source()
        except TypeError as error:
            raise _error(f"the agent class {source!r:.80} cannot be made without arguments: {error}.", stage, file) from error
    if isinstance(source, StageAgent):
        return source
    if inspect.iscoroutinefunction(source):
        raise _error("an agent is an ordinary function, not an `async` one.", stage, file, hint="Wrap it: `asyncio.run(work(request))`.")
    if callable(source):
        return FunctionAgent(source)
    raise _error(f"{source!r:.80} is no agent.", stage, file, hint="It needs a method `run(request)`, or to be a function of the request.")


def _error(message: str, stage: Stage, file: str | None, *, nearest: str | None = None, hint: str | None = None) -> ConfigError:
    return ConfigError(message, file=file, line=stage.line, key=_key(stage), nearest=nearest, hint=hint)


def _key(stage: Stage) -> str:
    return f"stages.{stage.name}.agent_type"
