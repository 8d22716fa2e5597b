"""Agent state whose checkpoints hold what is new, not the whole conversation once more at every step (A14).

LangGraph writes the full list of messages into each checkpoint; a thread of a thousand messages and twelve turns makes twenty megabytes of
them. With `create_agent(..., state_schema=ThreadState)` a checkpoint holds the step's own messages, and all of them only now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from langchain.agents import AgentState
from langchain_core.messages import AnyMessage
from langgraph.channels import DeltaChannel
from langgraph.graph.message import add_messages


def merge_messages(known: Any, updates: Sequence[Any]) -> Any:
    """Apply updates in their order, as LangGraph's own reducer applies each: same ids replace, removals remove, the rest is appended.

    The result does not depend on how the updates were batched, which is what a channel of deltas needs.
    """
    for update in updates:
        known = add_messages(known, update)
    return known


class ThreadState(AgentState[Any]):
    """The usual agent state with messages kept as deltas."""

    messages: Annotated[list[AnyMessage], DeltaChannel(merge_messages)]
