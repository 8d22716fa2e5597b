"""The types of sub-agent (two built in, and those of the configuration), and the typed result of a task (A2, A4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from holdfast.agents.agent_settings import prompt_text
from holdfast.amounts import counted
from holdfast.config.known_keys import nearest
from holdfast.errors import InputError
from holdfast.events import (
    Artifacts,
    Bus,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskOutput,
    TaskStarted,
    TaskThread,
    TaskTimedOut,
    TaskTurn,
)
from holdfast.ids import check_name

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from holdfast.config.sections import Config, SubagentSettings


Status = Literal["completed", "failed", "timed_out", "cancelled", "turn_capped", "token_capped"]
NO_RESPONSE = "No response"


@dataclass(frozen=True)
class SubagentResult:
    """How a sub-agent ended, and its work up to then: its last words and the files it made."""

    id: str
    thread: str
    status: Status
    output: str = NO_RESPONSE
    artifacts: tuple[str, ...] = ()
    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    reason: str = ""
    """Why it failed; empty otherwise."""

    @property
    def done(self) -> bool:
        """Whether it ended by itself with an answer."""
        return self.status == "completed"

    @property
    def capped(self) -> bool:
        """Whether a limit of turns or tokens ended it; its work up to then is here."""
        return self.status in ("turn_capped", "token_capped")

    def text(self) -> str:
        """What the parent's model reads."""
        head = self._head()
        partial = f"Its work up to then:\n{self.output}" if head and self.output != NO_RESPONSE else self.output
        files = "Files: " + ", ".join(self.artifacts) if self.artifacts else ""
        return "\n\n".join(part for part in (head, partial, files) if part)

    def _head(self) -> str:
        match self.status:
            case "failed":
                return f"The sub-agent failed: {self.reason}"
            case "timed_out":
                return f"The sub-agent was stopped after {self.seconds:.0f} seconds."
            case "cancelled":
                return "The sub-agent was cancelled."
            case "turn_capped":
                return f"The sub-agent was stopped after {counted(self.turns, 'turn')}, before it was done."
            case "token_capped":
                return f"The sub-agent was stopped after {self.tokens} tokens, before it was done."
            case "completed":
                return ""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "artifacts": list(self.artifacts)}


Kind = Literal["task_started", "task_running", "task_completed", "task_failed", "task_timed_out", "task_cancelled"]
Emit = Callable[[dict[str, Any]], None]

_ENDS: dict[str, Kind] = {"failed": "task_failed", "timed_out": "task_timed_out", "cancelled": "task_cancelled"}
_LOGGED = 500


@dataclass(frozen=True)
class TaskReporter:
    """Reports what one sub-agent does, to the parent's stream and the bus. A listener that has gone away is no reason to stop."""

    bus: Bus
    emit: Emit | None
    head: dict[str, Any] = field(default_factory=dict)
    """What every event says: the ids of task, thread and call, and the description."""

    def started(self, description: str, thread: str, max_turns: int) -> None:
        """It has its place and begins."""
        self._send("task_started", max_turns=max_turns)
        self.bus.emit(TaskStarted(description=description))
        self.bus.emit(TaskThread(thread=thread))

    def turn(self, turn: int, max_turns: int, text: str, tools: list[str]) -> None:
        """It finished a turn: what it said and what it calls next."""
        self._send("task_running", turn=turn, max_turns=max_turns, text=text, tools=tools)
        self.bus.emit(TaskTurn(turn=turn, max_turns=max_turns))

    def ended(self, result: SubagentResult) -> None:
        """It ended, in whatever way."""
        kind = _ENDS.get(result.status, "task_completed")
        more: dict[str, Any] = {"result": result.as_dict()}
        if kind == "task_completed":
            more["stop_reason"] = result.status
        self._send(kind, **more)
        if kind == "task_completed":
            self.bus.emit(TaskCompleted(turns=result.turns))
        elif kind == "task_failed":
            self.bus.emit(TaskFailed(turns=result.turns, reason=result.reason))
        elif kind == "task_timed_out":
            self.bus.emit(TaskTimedOut(turns=result.turns, seconds=round(result.seconds, 1)))
        else:
            self.bus.emit(TaskCancelled(turns=result.turns))
        self.bus.emit(TaskOutput(output=_logged(result.output)))
        self.bus.emit(Artifacts(artifacts=result.artifacts))

    def _send(self, kind: Kind, **values: Any) -> None:
        if self.emit is None:
            return
        try:
            self.emit({"type": kind, **self.head, **values})
        except Exception:  # the parent's stream may be closed by now, in any way; the work goes on
            logging.getLogger("holdfast.SubagentExecutor").debug("nobody takes %s any more", kind, exc_info=True)


def _logged(text: str) -> str:
    return text if len(text) <= _LOGGED else f"{text[:_LOGGED]} ..."


GENERAL = "general-purpose"
NEVER = frozenset({"task", "ask_clarification"})
"""Tools that no sub-agent has: it cannot start others, and there is nobody whom it could ask."""
_INHERIT = "inherit"
_COMMANDS = ("bash", "ls", "read_file", "write_file", "str_replace", "glob", "grep")
_MOST_TURNS = 200


@dataclass(frozen=True)
class SubagentType:
    """A type of sub-agent: what it is for, what it is told, what it may use and how far it may go. None is inherited from the parent."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    model: str | None = None
    thinking: bool | None = None
    max_turns: int = 20
    own_turns: bool = False
    """Whether the configuration sets the turns for this type; then a call cannot ask for more."""
    timeout_seconds: float = 900.0
    max_tokens: int = 200_000
    skills: tuple[str, ...] | None = None

    def may_use(self, tool: str) -> bool:
        """Whether it has the tool of this name, if the parent has it."""
        return tool not in NEVER and not _fits(tool, self.without) and (self.tools is None or _fits(tool, self.tools))

    def pick(self, tools: Iterable[BaseTool]) -> list[BaseTool]:
        """Those of the parent's tools that it has."""
        return [tool for tool in tools if self.may_use(tool.name)]

    def turns(self, asked: int | None = None, default: int = 20) -> int:
        """How many turns it has when a call asks for some; the default of the tool means that nothing was asked for."""
        if asked is None or asked == default or asked < 1:
            return self.max_turns
        return min(asked, self.max_turns if self.own_turns else _MOST_TURNS)


def _fits(tool: str, names: Iterable[str]) -> bool:
    """Whether a tool is one of these; a name may be a pattern, such as `github_*`."""
    return any(fnmatchcase(tool, name) for name in names)


class Registry(Mapping[str, SubagentType]):
    """All types by name."""

    def __init__(self, types: Iterable[SubagentType]) -> None:
        self._types = MappingProxyType({type.name: type for type in types})

    @classmethod
    def of(cls, config: Config) -> Registry:
        """The built-in types and the configured ones. Names are checked; `subagents.agents` changes any of them."""
        wanted = config.subagents
        found = {
            GENERAL: SubagentType(
                GENERAL, "Explores, reads and writes files, and does work of several steps.", prompt_text("general-purpose.md")
            ),
            "bash": SubagentType("bash", "Runs commands whose output you do not need in full.", prompt_text("bash.md"), tools=_COMMANDS),
        }
        for name, custom in wanted.custom_agents.items():
            checked = check_name(name, "type of sub-agent")
            prompt = custom.system_prompt or prompt_text("general-purpose.md")
            found[checked] = SubagentType(checked, custom.description or f"The sub-agent {checked}.", prompt)
        for name, type in found.items():
            found[name] = replace(type, max_turns=wanted.max_turns, timeout_seconds=wanted.timeout_seconds, max_tokens=wanted.max_tokens)
        settings: list[tuple[str, SubagentSettings]] = [*wanted.custom_agents.items(), *wanted.agents.items()]
        for name, own in settings:
            checked = check_name(name, "type of sub-agent")
            if checked not in found:
                raise _unknown(checked, found)
            found[checked] = _changed(found[checked], own)
        return cls(found.values())

    def __getitem__(self, name: str) -> SubagentType:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def find(self, name: str) -> SubagentType:
        """The type of this name. Raises InputError, naming those that there are."""
        found = self._types.get(name.strip().lower() if isinstance(name, str) else "")
        if found is None:
            raise _unknown(name, self._types)
        return found


def _changed(type: SubagentType, own: SubagentSettings) -> SubagentType:
    """The type with what the settings say; what they leave out stays."""
    return replace(
        type,
        tools=own.tools if own.tools is not None else type.tools,
        without=own.disallowed_tools if own.disallowed_tools is not None else type.without,
        model=(None if own.model == _INHERIT else own.model) if own.model is not None else type.model,
        thinking=own.thinking if own.thinking is not None else type.thinking,
        max_turns=own.max_turns if own.max_turns is not None else type.max_turns,
        own_turns=own.max_turns is not None or type.own_turns,
        timeout_seconds=own.timeout_seconds if own.timeout_seconds is not None else type.timeout_seconds,
        max_tokens=own.max_tokens if own.max_tokens is not None else type.max_tokens,
        skills=own.skills if own.skills is not None else type.skills,
    )


def _unknown(name: str, known: Iterable[str]) -> InputError:
    names = sorted(known)
    near = nearest(str(name), names)
    meant = f" Did you mean {near}?" if near else ""
    return InputError(f"there is no type of sub-agent {name!r}.", hint=f"There are {', '.join(names)}.{meant}")
