"""The fixed part of an agent's prompt: base, the user's own words for the agent, skills, and how to delegate (A1).

Memory and date are added by the memory middleware, which keeps them the same between two compactions. Prompts are files in `prompts/`;
what is put into their slots is data and never looked at as a template again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from holdfast.agents.agent_settings import AgentSettings

if TYPE_CHECKING:
    from holdfast.agents.subagents.registry import SubagentType

_SLOT = re.compile(r"\{([a-z_]+)\}")
_NAME = "Holdfast"


@cache
def prompt_text(name: str) -> str:
    """One of the files in `prompts/`."""
    return resources.files("holdfast.agents").joinpath("prompts", name).read_text(encoding="utf-8").strip()


def filled(prompt: str, /, **values: str) -> str:
    """A prompt with its slots filled in one pass: braces in a value stay what they are."""
    return _SLOT.sub(lambda slot: values.get(slot[1], slot[0]), prompt_text(prompt))


def lead_prompt(settings: AgentSettings | None = None, *, skills: str = "", types: Mapping[str, SubagentType] | None = None) -> str:
    """The system prompt of a lead agent. `skills` is the block of the skills room."""
    settings = settings or AgentSettings()
    parts = [filled("lead.md", name=settings.name or _NAME), settings.prompt, skills]
    if types:
        parts.append(filled("delegation.md", types="\n".join(f"- {type.name}: {_line(type.description)}" for type in types.values())))
    return "\n\n".join(part for part in parts if part)


def subagent_prompt(type: SubagentType, *, skills: str = "") -> str:
    """The system prompt of a sub-agent."""
    return "\n\n".join(part for part in (type.prompt, skills) if part)


def _line(text: str) -> str:
    """A text from outside as one line that cannot close a block."""
    return " ".join(text.split()).replace("<", "&lt;")
