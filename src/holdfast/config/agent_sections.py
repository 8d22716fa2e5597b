"""`tools`, `tool_groups`, `subagents`, `sandbox`, `skills` and `title`: what agents may use, start and call themselves."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import Field

from holdfast.config.kinds import Amount, Count, Seconds, Text, Texts, Value
from holdfast.config.known import IGNORED
from holdfast.config.section import Section, Strange


class ToolConfig(Section):
    """One entry of `tools`. Keys that are not named here go to the tool as they are (`arguments`)."""

    strange: ClassVar[Strange] = "passed on"

    name: Text
    group: Text | None = None
    use: Text | None = None

    def arguments(self) -> dict[str, Any]:
        """The keys that are not ours, with environment values read now."""
        return self.extras()


class ToolGroup(Section):
    """A name under which tools are given to an agent together."""

    shorthand: ClassVar[str | None] = "name"

    name: Text


class SubagentSettings(Section):
    """What differs for one type of sub-agent, built in or custom. What is left out is inherited (A2, A7)."""

    tolerated = IGNORED["subagents.agents"]

    model: Text | None = None
    thinking: bool | None = None
    max_turns: Count | None = None
    timeout_seconds: Seconds | None = None
    max_tokens: Count | None = None
    tools: Texts | None = None
    disallowed_tools: Texts | None = None
    skills: Texts | None = None


class CustomAgent(SubagentSettings):
    """A type of sub-agent of the user's own (A2)."""

    description: Text = ""
    system_prompt: Text = ""


class Subagents(Section):
    """How many sub-agents run at once and how long, and which types there are (A2, A7, A8)."""

    tolerated = IGNORED["subagents"]

    timeout_seconds: Seconds = 900.0
    max_turns: Count = 20
    max_concurrent: Count = 3
    max_tokens: Count = 200_000
    retain_days: Amount = 30
    agents: dict[str, SubagentSettings] = Field(default_factory=dict)
    custom_agents: dict[str, CustomAgent] = Field(default_factory=dict)


class Mount(Section):
    """A folder of the machine that commands see under another name."""

    host_path: Text
    container_path: Text
    read_only: bool = False


class Sandbox(Section):
    """Where commands run, what they may reach, and which tools wait for a person (A10)."""

    tolerated = IGNORED["sandbox"]
    spellings = MappingProxyType({"bash_command_timeout": "timeout_seconds", "memory_mib": "memory_mb"})

    use: Text | None = None
    allow_host_bash: bool = False
    network: bool = False
    approve: Texts = ()
    mounts: tuple[Mount, ...] = ()
    environment: dict[str, Value] = Field(default_factory=dict)
    timeout_seconds: Seconds = 600.0
    memory_mb: Count | None = 2048
    bash_output_max_chars: Amount = 20_000
    read_file_output_max_chars: Amount = 50_000
    ls_output_max_chars: Amount = 20_000


class Skills(Section):
    """Where skills are, and under which path agents see them (A12)."""

    tolerated = IGNORED["skills"]

    path: Text | None = None
    container_path: Text = "/mnt/skills"


class Title(Section):
    """The title of a conversation after its first exchange (A13)."""

    tolerated = IGNORED["title"]

    enabled: bool = True
    max_words: Count = 6
    max_chars: Count = 60
    model_name: Text | None = None
