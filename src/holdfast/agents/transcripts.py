"""The whole of a conversation: read, searched by the agent (S9), and a new one that begins as another did (A14).

A thread's past is in two places: what left the window is in the archive, the rest in the newest checkpoint. A branch takes both up to a
message. If that is more than the window holds, the first model call of the new thread compacts it like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AnyMessage, BaseMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Overwrite

from holdfast.agents.message_factory import LangChainMessages
from holdfast.agents.middleware.thread_data import thread_of
from holdfast.context import recall
from holdfast.context.archive import Archive
from holdfast.context.records import MessageRecord, message_of, records_of
from holdfast.context.rules import repair
from holdfast.context.view import marks_of
from holdfast.errors import InputError
from holdfast.ids import check_thread

if TYPE_CHECKING:
    from holdfast.agents.lead import LeadAgent

_MADE = ("summary", "repaired")


def transcript(archive: Archive, thread: str, window: Sequence[AnyMessage]) -> list[MessageRecord]:
    """Everything that was said, each message once and word for word: the archive first, then what is only in the window."""
    held = [record for record in archive.messages(thread) if not any(mark in record.marks for mark in (*_MADE, "archived"))]
    newest = {record.id: record for record in held}
    said = [record for record in held if newest[record.id] is record]
    fresh = [message for message in window if str(message.id) not in newest and not any(mark in marks_of(message) for mark in _MADE)]
    tail: list[MessageRecord] = []
    for record in reversed(records_of(fresh, history=window)):
        at = next((index for index, later in enumerate(said) if later.after == record.id), None)
        if at is None:
            tail.insert(0, record)
        else:  # the goal, say, stayed in the window while what came after it left
            said.insert(at, record)
    return [*said, *tail]


def branch(agent: LeadAgent, thread: str, *, at: str | None = None, into: str | None = None) -> str:
    """Make the new thread and give its name. Raises InputError when there is no such message or the new name is taken."""
    parts, graph = agent.parts, agent.graph
    new = check_thread(into) if into is not None else parts.ids.new("thread")
    if new in parts.checkpoints.threads() or parts.threads.find(new) is not None:
        raise InputError(f"there is a thread {new!r} already.", hint="Choose another name.")
    state: dict[str, Any] = graph.get_state({"configurable": {"thread_id": thread}}).values
    window: list[AnyMessage] = list(state.get("messages", ()))
    values = {name: state[name] for name in ("artifacts", "todos") if state.get(name)}
    if at is None:
        messages: Sequence[Any] = window
        values |= {name: state[name] for name in ("holdfast_window", "holdfast_memory", "holdfast_todos") if state.get(name)}
        past = transcript(parts.archive, thread, [])
    else:
        said = transcript(parts.archive, thread, window)
        end = _place(said, at)
        kept = said[: end + 1]
        inside = [str(message.id) for message in window]
        if str(kept[-1].id) in inside:  # the window up to there, with the summary that stands for what is before it
            messages = window[: inside.index(str(kept[-1].id)) + 1]
            past = [record for record in kept if record.id not in inside]
        else:
            messages, past = convert_to_messages([_plain(record) for record in kept]), []
    if not messages:
        raise InputError(f"the thread {thread!r} is empty.")
    whole: Sequence[BaseMessage] = repair(messages, LangChainMessages()).messages  # type: ignore[assignment]  # messages in, messages out
    if past:
        parts.archive.add(new, past)
    graph.update_state({"configurable": {"thread_id": new}}, {**values, "messages": Overwrite(list(whole))}, as_node="model")
    parts.threads.note(new, agent=agent.name, parent=thread)
    known = parts.threads.find(thread)
    if known is not None and known.title:
        parts.threads.set_title(new, f"{known.title} (branch)", "extract")
    return new


def _place(said: Sequence[MessageRecord], at: str) -> int:
    """Where the message is, by its id or its number."""
    if at.startswith("#") and at[1:].isdecimal() and 1 <= int(at[1:]) <= len(said):
        return int(at[1:]) - 1
    for index, record in enumerate(said):
        if record.id == at:
            return index
    raise InputError(f"there is no message {at!r} in the thread.", hint="Use an id, or a number such as #12, from its history.")


def _plain(record: MessageRecord) -> dict[str, Any]:
    """The record in the form that LangChain reads. What was reported about the call is left out: it is not this thread's."""
    said = message_of(record)
    said["role"] = {"human": "user", "ai": "assistant"}.get(record.role, record.role)
    return {name: said[name] for name in ("role", "content", "id", "tool_calls", "tool_call_id", "name") if said.get(name) is not None}


def recall_tools(archive: Archive, unnamed: Callable[[], str]) -> list[BaseTool]:
    """Both tools over one archive. The thread is the one that the agent runs in; `unnamed` says it for a run without one."""

    def thread(config: RunnableConfig) -> str:
        return thread_of(config) or unnamed()

    def search_history(query: str, config: RunnableConfig, top_k: int = 5) -> str:
        """Search the earlier part of this conversation that is no longer in view. Use names, numbers and rare words."""
        return recall.search_history(archive, thread(config), query, top_k)

    def read_history(id: str, config: RunnableConfig, around: int = 0, start: int = 0) -> str:
        """Read an earlier message of this conversation word for word by its id, with `around` messages before and after it."""
        return recall.read_history(archive, thread(config), id, around, start)

    return [StructuredTool.from_function(search_history), StructuredTool.from_function(read_history)]
