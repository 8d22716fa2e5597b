"""A lead agent on a scripted model in a folder of its own, for the tests of agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from holdfast.agents.lead import LeadAgent, make_lead_agent
from holdfast.config.loading import config_from_values
from holdfast.config.sections import Config
from holdfast.events import Bus
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request

__all__ = ["asked_by", "configured", "is_subagent_call", "lead", "look", "make", "scripted", "whole"]

PROFILE: Any = {"max_input_tokens": 8_000}


@tool
def look(what: str) -> str:
    """Looks something up."""
    return f"Seen for {what}: it is as it was."


@tool(response_format="content_and_artifact")
def make(name: str) -> tuple[str, dict[str, list[str]]]:
    """Makes a file for the user."""
    return f"Made {name}.", {"artifacts": [name]}


def configured(base: Path, values: Mapping[str, Any] | None = None) -> Config:
    """A configuration whose state is in this folder."""
    return config_from_values({"title": {"enabled": True}, **(values or {})}, environ={"HOLDFAST_HOME": str(base)})


def scripted(script: Sequence[Any] | Callable[[Request], Any], **settings: Any) -> ScriptedModel:
    return ScriptedModel(script, **{"profile": PROFILE, **settings})


@contextmanager
def lead(
    base: Path, model: ScriptedModel, values: Mapping[str, Any] | None = None, tools: Sequence[BaseTool] = (look,), **parts: Any
) -> Iterator[LeadAgent]:
    """A lead agent, closed at the end as a process closes it."""
    with make_lead_agent(configured(base, values), model=model, tools=list(tools), **{"bus": Bus(), **parts}) as agent:
        yield agent


def is_subagent_call(request: Request) -> bool:
    """Whether a request is a sub-agent's: its prompt says so."""
    return request.system.startswith("You are a sub-agent")


def asked_by(request: Request) -> str:
    """The first thing that the user, or the parent, said in a request."""
    return next(message.text for message in request.messages if message.type == "human")


def whole(messages: Sequence[BaseMessage]) -> bool:
    """Every call is directly followed by its results, and there are no others: what a provider accepts."""
    results = 0
    for index, message in enumerate(messages):
        asked = [one["id"] for one in message.tool_calls] if isinstance(message, AIMessage) else []
        following = messages[index + 1 : index + 1 + len(asked)]
        if sorted(str(one.tool_call_id) for one in following if isinstance(one, ToolMessage)) != sorted(map(str, asked)):
            return False
        results += len(asked)
    return results == sum(isinstance(message, ToolMessage) for message in messages)
