"""Settings of one agent: `{base}/agents/{name}/config.yaml`, and its own words in `SOUL.md` beside it.

    # agents/coder/config.yaml
    description: Writes and reviews code.
    model: gpt-5-mini
    tools: [bash, read_file, write_file, str_replace]

An agent without a folder is a lead agent with the defaults and a memory of its own. The types of sub-agent are here too, two built in and
those of `subagents:` (A2, A4), and the fixed part of a prompt: base, the user's own words, skills, and how to delegate (A1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from holdfast.config.reading import read_yaml
from holdfast.config.section import Section, Text, Texts, plain_words
from holdfast.durable.folder import Folder
from holdfast.errors import ConfigError, InputError
from holdfast.text.normalise import inert_line
from holdfast.validation import check_name, near_miss, nearest

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from holdfast.config.sections import Config, Mount, SubagentSettings


AGENT_FILES = _FILE, _SOUL = ("config.yaml", "SOUL.md")
"""What an agent's folder has besides its memory: its settings, and its own words."""
_LONGEST = 200_000
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


class _File(Section):
    """What stands in the file."""

    name: Text | None = None
    description: Text = ""
    prompt: Text = ""
    model: Text | None = None
    thinking: bool = False
    tools: Texts | None = None
    tool_groups: Texts | None = None
    skills: Texts | None = None
    memory: bool = True
    subagents: bool = True


@dataclass(frozen=True)
class AgentSettings:
    """How one agent differs from the lead agent; without a name it is the lead agent itself. None means: as the configuration says."""

    name: str | None = None
    description: str = ""
    prompt: str = ""
    """Its own words: `prompt:` and SOUL.md."""
    model: str | None = None
    thinking: bool = False
    tools: tuple[str, ...] | None = None
    tool_groups: tuple[str, ...] | None = None
    skills: tuple[str, ...] | None = None
    memory: bool = True
    """Whether it knows and learns about the user."""
    subagents: bool = True

    def allows(self, tool: str, config: Config) -> bool:
        """Whether it may use a tool of this name: named in `tools` (`github_*` too), or in a group; all if neither is given."""
        if self.tools is None and self.tool_groups is None:
            return True
        group = next((known.group for known in config.tools if known.name == tool), None)
        return _fits(tool, self.tools or ()) or (group is not None and group in (self.tool_groups or ()))


def agent_names(config: Config) -> list[str]:
    """The agents that have a folder with settings."""
    folder = config.base / "agents"
    found = (place for place in folder.iterdir() if (place / _FILE).is_file() or (place / _SOUL).is_file()) if folder.is_dir() else ()
    return sorted(place.name for place in found if _is_name(place.name))


def load_agent(config: Config, name: str) -> AgentSettings:
    """The settings of an agent. Raises InputError for a name that is not allowed, ConfigError for a file that does not fit."""
    checked = check_name(name, "agent name")
    folder = config.base / "agents" / checked
    if not folder.is_dir():
        return AgentSettings(checked)
    with Folder(folder) as place:  # no link in it leads out
        written = _read(place, _FILE)
        soul = _COMMENT.sub("", (_read(place, _SOUL) or b"").decode("utf-8", "replace")).strip()
    said = _parsed(written, folder / _FILE) if written is not None else _File()
    prompt = "\n\n".join(part for part in (said.prompt.strip(), soul) if part)
    return AgentSettings(**{**{name: getattr(said, name) for name in _File.model_fields}, "name": checked, "prompt": prompt})


def _read(folder: Folder, name: str) -> bytes | None:
    try:
        return folder.read_bytes(name, limit=_LONGEST)
    except FileNotFoundError:
        return None


def _parsed(source: bytes, file: Path) -> _File:
    reading = read_yaml(source, file)
    values: Any = reading.values or {}
    if not isinstance(values, dict):
        raise ConfigError("the file must be a mapping, such as `model: name`.", file=file, line=1)
    known = list(_File.model_fields)
    for key in values:
        near = near_miss(str(key), known)
        if key not in known and near is not None:
            line, hint = reading.line((key,)), f"Did you mean `{near}`?"
            raise ConfigError(f"there is no setting {key!r}.", file=file, line=line, key=str(key), nearest=near, hint=hint)
    try:
        return _File.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        line = reading.line(tuple(first["loc"]))
        raise ConfigError(f"{plain_words(first)}.", file=file, line=line, key=".".join(map(str, first["loc"]))) from None


def check_agent_file(source: bytes, file: Path) -> tuple[str, ...]:
    """ConfigError if this is no file of an agent. Gives its keys that have no effect.

    None of the others names a class, a command or an address, and `$NAME` in one is no variable: such a file chooses among the models,
    tools and skills that the configuration has, and is as far from asking for more as any words in a prompt (C1).
    """
    _parsed(source, file)
    values = read_yaml(source, file).values or {}
    return tuple(key for key in map(str, values) if key not in _File.model_fields)


def _is_name(name: str) -> bool:
    try:
        return check_name(name) == name
    except InputError:
        return False


_SLOT = re.compile(r"\{([a-z_]+)\}")
_NAME = "Holdfast"


@cache
def prompt_text(name: str) -> str:
    """One of the files in `prompts/`."""
    return resources.files("holdfast.agents").joinpath("prompts", name).read_text(encoding="utf-8").strip()


def filled(prompt: str, /, **values: str) -> str:
    """A prompt with its slots filled in one pass: braces in a value stay what they are."""
    return _SLOT.sub(lambda slot: values.get(slot[1], slot[0]), prompt_text(prompt))


def lead_prompt(
    settings: AgentSettings | None = None, *, skills: str = "", types: Mapping[str, SubagentType] | None = None, folders: str = ""
) -> str:
    """The system prompt of a lead agent. `skills` is the block of the skills room, `folders` what `folders_block` says."""
    settings = settings or AgentSettings()
    parts = [filled("lead.md", name=settings.name or _NAME), settings.prompt, folders, skills]
    if types:
        parts.append(filled("delegation.md", types="\n".join(f"- {type.name}: {inert_line(type.description)}" for type in types.values())))
    return "\n\n".join(part for part in parts if part)


def subagent_prompt(type: SubagentType, *, skills: str = "", folders: str = "") -> str:
    """The system prompt of a sub-agent."""
    return "\n\n".join(part for part in (type.prompt, folders, skills) if part)


def folders_block(mounts: Iterable[Mount]) -> str:
    """The folders of the machine that tools reach, for a prompt: nobody looks for what they have not heard of."""
    shown = [f"- {inert_line(mount.container_path)}{' (read-only)' if mount.read_only else ''}" for mount in mounts]
    return "\n".join(["Folders of the user that your file tools reach:", *shown]) if shown else ""


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
    names = ("tools", "model", "thinking", "max_turns", "timeout_seconds", "max_tokens", "skills")
    said = {name: getattr(own, name) for name in names if getattr(own, name) is not None}
    said |= {"without": own.disallowed_tools} if own.disallowed_tools is not None else {}
    said |= {"model": None} if own.model == _INHERIT else {}
    return replace(type, own_turns=type.own_turns or "max_turns" in said, **said)


def _unknown(name: str, known: Iterable[str]) -> InputError:
    names = sorted(known)
    near = nearest(str(name), names)
    meant = f" Did you mean {near}?" if near else ""
    return InputError(f"there is no type of sub-agent {name!r}.", hint=f"There are {', '.join(names)}.{meant}")
