"""Which types of sub-agent there are: two that are built in, and those of the configuration (A2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from holdfast.agents.prompting import prompt_text
from holdfast.config.known_keys import nearest
from holdfast.errors import InputError
from holdfast.ids import check_name

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from holdfast.config.sections import Config, SubagentSettings

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
        return tool not in NEVER and tool not in self.without and (self.tools is None or tool in self.tools)

    def pick(self, tools: Iterable[BaseTool]) -> list[BaseTool]:
        """Those of the parent's tools that it has."""
        return [tool for tool in tools if self.may_use(tool.name)]

    def turns(self, asked: int | None = None, default: int = 20) -> int:
        """How many turns it has when a call asks for some; the default of the tool means that nothing was asked for."""
        if asked is None or asked == default or asked < 1:
            return self.max_turns
        return min(asked, self.max_turns if self.own_turns else _MOST_TURNS)


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
