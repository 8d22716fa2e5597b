"""What a turn of a conversation tells while it runs, as values: tokens, tool calls, sub-agents, calls that wait for a person, the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from holdfast.agents.middleware.approval import Approval

Reason = Literal["completed", "clarification", "approval", "loop", "turn_capped", "cancelled"]


@dataclass(frozen=True)
class Token:
    """A piece of the answer."""

    text: str
    type: Literal["token"] = "token"


@dataclass(frozen=True)
class ToolCalled:
    """The model calls a tool."""

    id: str
    name: str
    args: Mapping[str, Any]
    type: Literal["tool_called"] = "tool_called"


@dataclass(frozen=True)
class ToolFinished:
    """A tool gave its result."""

    id: str
    name: str
    status: str
    text: str
    type: Literal["tool_finished"] = "tool_finished"


@dataclass(frozen=True)
class Subagent:
    """Something happened in a sub-agent: `event` is one of the six kinds of A6, with its values."""

    event: Mapping[str, Any]
    type: Literal["subagent"] = "subagent"


@dataclass(frozen=True)
class ApprovalNeeded:
    """Calls wait for a person: go on with `Conversation.decide`."""

    approvals: tuple[Approval, ...]
    type: Literal["approval_needed"] = "approval_needed"


@dataclass(frozen=True)
class Ended:
    """The turn is over: why, the answer (or the question that was asked), the files that were made, and what it used."""

    reason: Reason
    text: str = ""
    artifacts: tuple[str, ...] = ()
    tokens: int = 0
    run: str = ""
    type: Literal["ended"] = "ended"


TurnEvent = Token | ToolCalled | ToolFinished | Subagent | ApprovalNeeded | Ended


def as_dict(event: TurnEvent) -> dict[str, Any]:
    """Plain JSON, for a stream."""
    return asdict(event)
