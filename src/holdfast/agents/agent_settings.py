"""Settings of one agent: `{base}/agents/{name}/config.yaml`, and its own words in `SOUL.md` beside it.

    # agents/coder/config.yaml
    description: Writes and reviews code.
    model: gpt-5-mini
    tools: [bash, read_file, write_file, str_replace]

An agent without a folder is a lead agent with the defaults and a memory of its own.

The fixed part of an agent's prompt is made here: base, the user's own words for the agent, skills, and how to delegate (A1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from holdfast.config.known_keys import near_miss
from holdfast.config.problems import plain_words
from holdfast.config.reading import read_yaml
from holdfast.config.section import Section, Text, Texts
from holdfast.durable.folder import Folder
from holdfast.errors import ConfigError, InputError
from holdfast.ids import check_name
from holdfast.text.framing import inert_line

if TYPE_CHECKING:
    from holdfast.agents.subagents.task_types import SubagentType
    from holdfast.config.sections import Config, Mount


_FILE, _SOUL = "config.yaml", "SOUL.md"
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
        named = any(fnmatchcase(tool, name) for name in self.tools or ())
        return named or (group is not None and group in (self.tool_groups or ()))


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
    return AgentSettings(
        checked,
        said.description,
        prompt,
        said.model,
        said.thinking,
        said.tools,
        said.tool_groups,
        said.skills,
        said.memory,
        said.subagents,
    )


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
            raise ConfigError(
                f"there is no setting {key!r}.",
                file=file,
                line=reading.line((key,)),
                key=str(key),
                nearest=near,
                hint=f"Did you mean `{near}`?",
            )
    try:
        return _File.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        line = reading.line(tuple(first["loc"]))
        raise ConfigError(f"{plain_words(first)}.", file=file, line=line, key=".".join(map(str, first["loc"]))) from None


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
