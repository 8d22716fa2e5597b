"""Tools that wait for a person: named in `sandbox.approve`, asked about before they run (A10, A13).

The question is a LangGraph interrupt: it is in the checkpoint, so the answer may come after a restart, and other calls of the same step
run meanwhile. A person approves, rejects with a reason, or runs the tool with other arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import ToolMessage
from langgraph.types import Command, interrupt

from holdfast.talk import Approval, Decision

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

_KIND = "approval"


def approval_of(id: str, value: object) -> Approval | None:
    """The call that waits, from an interrupt of LangGraph; None if it is another kind of one."""
    if not isinstance(value, Mapping) or value.get("kind") != _KIND:
        return None
    return Approval(id, str(value["tool"]), dict(value["args"]), str(value["call"]))


def answer_of(decision: Decision) -> dict[str, Any]:
    """A decision as it is sent to the waiting tool."""
    return {"type": decision.type, "reason": decision.reason, "args": dict(decision.args) if decision.args is not None else None}


def decision_of(value: object) -> Decision:
    """The decision from what came back. Anything that is not clearly a yes is a no."""
    if isinstance(value, Mapping) and value.get("type") in ("approve", "reject", "edit"):
        args = value.get("args")
        if value["type"] != "edit" or isinstance(args, Mapping):
            return Decision(value["type"], str(value.get("reason") or ""), args if isinstance(args, Mapping) else None)
    return Decision("reject", "The answer was not understood.")


class ApprovalMiddleware(AgentMiddleware[Any, Any, Any]):
    """Asks a person before one of these tools runs. Put it outside of the middleware that turns errors into messages.

    With `refuse` nobody is there to be asked, as in a sub-agent: the tools are not run, and the model is told why.
    """

    def __init__(self, tools: Collection[str], *, refuse: bool = False) -> None:
        super().__init__()
        self._tools_to_ask, self._refuse = frozenset(tools), refuse

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]) -> Any:
        """Ask, then run the tool or say that it was not run."""
        decided = self._decided(request)
        return decided if isinstance(decided, ToolMessage) else handler(decided)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> Any:
        """The same, awaited."""
        decided = self._decided(request)
        return decided if isinstance(decided, ToolMessage) else await handler(decided)

    def _decided(self, request: ToolCallRequest) -> ToolCallRequest | ToolMessage:
        call = request.tool_call
        if call["name"] not in self._tools_to_ask:
            return request
        if self._refuse:
            return _not_run(call, "it needs the user's approval, which cannot be had here. Leave it to the agent that gave the task.")
        asked = {"kind": _KIND, "tool": call["name"], "args": call["args"], "call": str(call["id"])}
        decision = decision_of(interrupt(asked))  # raises until there is an answer; then this runs again from the start
        if decision.type == "reject":
            reason = f" They said: {decision.reason}" if decision.reason else ""
            return _not_run(call, f"the user did not approve this call.{reason}")
        if decision.type == "edit":
            return request.override(tool_call={**call, "args": dict(decision.args or {})})
        return request


def _not_run(call: Mapping[str, Any], why: str) -> ToolMessage:
    return ToolMessage(f"Not run: {why}", tool_call_id=str(call["id"]), name=call["name"], status="error")
