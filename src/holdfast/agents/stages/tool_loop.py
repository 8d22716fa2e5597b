"""A model that works with tools until it has said what it wants to say: within its window, its limits and a number of calls.

The loop is small on purpose: no state is kept between two stages, each call is paid for before the next, and a request to stop ends it
between two calls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool

from holdfast.agents.middleware.tool_calls import failed_result
from holdfast.agents.model_spans import asked, tool_run
from holdfast.agents.stages.asker import Asker, stop_if_cancelled
from holdfast.agents.stages.stage_sources import Desk
from holdfast.amounts import counted
from holdfast.errors import HoldfastError, LimitExceeded
from holdfast.models.abilities import abilities_of
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.stage_approvals import StageApprovals

_LEFT_OUT = "(Left out, because there is no room for it any more. It is among the passages; call the tool again to see it here.)"
_LONGEST = 12_000


def talk_with_tools(
    request: StageRequest,
    asker: Asker,
    messages: Sequence[BaseMessage],
    tools: Sequence[BaseTool],
    *,
    calls: int,
    title: str,
    desk: Desk,
    outside: Sequence[BaseTool] = (),
    approve: Collection[str] = (),
) -> str | None:
    """The model's last words, after at most `calls` rounds of tool calls; None where it cannot take tools, or did not come to an end.

    What tools from outside answer is laid on the desk, so that it can be cited. Tools named in `approve` wait for a person: ApprovalWanted
    ends the attempt, and in the next one the very call that was answered comes first. Raises LimitExceeded and what a model raises.
    """
    known = {tool.name: tool for tool in (*tools, *outside)}
    if not known or not abilities_of(asker.model).tools:
        return None
    try:
        bound: Any = asker.model.bind_tools(list(known.values()))
    except NotImplementedError:
        return None
    foreign = frozenset(tool.name for tool in outside)
    approvals = StageApprovals(request, approve)
    talk = list(messages)
    for answer in approvals.answered():
        if answer.call.tool in known:
            call = {"name": answer.call.tool, "args": dict(answer.call.args), "id": f"call_{answer.call.id}"}
            talk.append(AIMessage("", tool_calls=[call]))
            talk.append(_result(call, known, desk, foreign, approvals))
    for _ in range(calls + 1):
        stop_if_cancelled(request)
        asker.pay(request)
        if not _fit(talk, asker):
            break
        with asked(asker.model, talk, purpose=title) as heard:
            said: AIMessage = asker.charged(bound.invoke(list(talk), {"callbacks": [], "tags": ["nostream"], "run_name": title}))
            heard.append(said)
        if not said.tool_calls:
            return str(said.text).strip()
        talk.append(said)
        for wanted in said.tool_calls:
            stop_if_cancelled(request)
            talk.append(_result(wanted, known, desk, foreign, approvals))
    request.emit(f"stopped after {counted(calls, 'round')} of tool calls")
    return None


def _result(call: Any, known: dict[str, BaseTool], desk: Desk, foreign: frozenset[str], approvals: StageApprovals) -> ToolMessage:
    tool = known.get(call["name"])
    id = str(call.get("id") or "")
    if tool is None:
        return ToolMessage(f"There is no tool {call['name']!r}. There are: {', '.join(known)}.", tool_call_id=id, status="error")
    answer = approvals.ask(tool.name, call["args"])
    if not answer.approved:
        return ToolMessage(answer.said, tool_call_id=id, name=tool.name, status="error")
    try:
        with tool_run(tool.name, id, call["args"]):
            said = tool.invoke({**call, "id": id, "type": "tool_call"})
    except LimitExceeded:
        raise
    except HoldfastError as error:
        return ToolMessage(f"Error: {error}", tool_call_id=id, name=tool.name, status="error")
    except Exception as error:  # noqa: BLE001 - a tool may raise anything, and none of it may end the stage
        return failed_result(call, error)
    text = str(said.text) if isinstance(said, ToolMessage) else str(said)
    if tool.name in foreign:
        name = f"{tool.name} {1 + sum(source.startswith(f'{tool.name} ') for source in desk.passages)}"
        desk.lay(name, text, trust="low")
        text = f"[{name}]\n{text}"
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n(cut; {len(text)} characters in all)"
    return ToolMessage(short, tool_call_id=id, name=tool.name)


def _fit(talk: list[BaseMessage], asker: Asker) -> bool:
    """Take the oldest results out of a talk that has become too long for the model. False where even that is not enough."""
    total = sum(asker.count(_text(message)) for message in talk)
    for number, message in enumerate(talk[:-1]):
        if total <= asker.room:
            break
        if isinstance(message, ToolMessage) and message.content != _LEFT_OUT:
            total -= asker.count(_text(message)) - asker.count(_LEFT_OUT)
            talk[number] = message.model_copy(update={"content": _LEFT_OUT})
    return total <= asker.room


def _text(message: BaseMessage) -> str:
    calls = str(message.tool_calls) if isinstance(message, AIMessage) and message.tool_calls else ""
    return f"{message.text}{calls}"
