"""Conversations as a person knows them: a list with titles and times, and a way to be rid of one (A14).

What a thread is called and whose it is stands beside its checkpoints; what was said is in the checkpoints and in the archive, and its
files are below `{base}/threads/{thread}/`.

The whole of a conversation is read here, searched by the agent (S9), and a new one begins as another did (A14).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from langchain_core.messages import AnyMessage, BaseMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import StateGraph
from langgraph.types import Overwrite

from holdfast.agents.middleware.base import LangChainMessages, LeadState, thread_of
from holdfast.clock import Clock, SystemClock, made_at, stamp
from holdfast.context import recall
from holdfast.context.archive import Archive, MemoryArchive
from holdfast.context.records import MessageRecord, message_of, records_of
from holdfast.context.view import marks_of, repair
from holdfast.durable.folder import remove_tree
from holdfast.errors import HoldfastError, InputError, NotThere, OutsideRoot
from holdfast.events import Bus, Event
from holdfast.search.questions import certainty
from holdfast.talk import ThreadInfo
from holdfast.validation import check_kind, check_thread, thread_folder
from holdfast.workflow.long_term_memory import TrustedKnowledge

if TYPE_CHECKING:
    from holdfast.agents.agent_loop import Parts
    from holdfast.agents.checkpoints import Checkpoints
    from holdfast.context.archive import FileArchive
    from holdfast.context.call_log import CallLog
    from holdfast.knowledge.records import Trust
    from holdfast.knowledge.store import KnowledgeStore


SUBAGENT = "subagent-"
"""How the threads of sub-agents begin (A3)."""
_KNOWN = 5
"""Records of a knowledge store that one message is compared with."""


def is_subagent(thread: str) -> bool:
    """Whether the thread is a sub-agent's."""
    return thread.startswith(SUBAGENT)


_AT_ONCE = 50  # threads that are removed in one transaction


class Threads:
    """All conversations of a base directory. Safe for many threads and processes."""

    def __init__(self, base: Path, checkpoints: Checkpoints, archive: FileArchive, *, clock: Clock | None = None) -> None:
        self._base, self._checkpoints, self._archive = base, checkpoints, archive
        self._clock = clock or SystemClock()

    def all(self, *, subagents: bool = False) -> list[ThreadInfo]:
        """The conversations, the one that was used last first."""
        with self._checkpoints.cursor(transaction=False) as cursor:
            rows = cursor.execute(f"SELECT {_COLUMNS} FROM threads ORDER BY updated DESC, id DESC").fetchall()  # noqa: S608 - our own names
        found = [ThreadInfo(*row) for row in rows]
        return [one for one in found if subagents or not is_subagent(one.id)]

    def find(self, thread: str) -> ThreadInfo | None:
        """What is known of a thread, or None."""
        with self._checkpoints.cursor(transaction=False) as cursor:
            row = cursor.execute(f"SELECT {_COLUMNS} FROM threads WHERE id = ?", (check_thread(thread),)).fetchone()  # noqa: S608
        return ThreadInfo(*row) if row is not None else None

    def window(self, thread: str) -> list[AnyMessage]:
        """The messages in the window of a thread, as its newest checkpoint has them. Needs no agent and no model."""
        values = self._reader.get_state({"configurable": {"thread_id": check_thread(thread)}}).values
        return list(values.get("messages", ()))

    @cached_property
    def _reader(self) -> Any:
        """A graph that does nothing, over the state of all conversations: by it their checkpoints are read."""
        graph = StateGraph(LeadState).add_node("model", lambda _: {}).add_node("tools", lambda _: {})  # where a checkpoint may wait for
        return graph.set_entry_point("model").compile(checkpointer=self._checkpoints)

    def only_in_window(self, thread: str) -> list[str]:
        """The ids of the messages that were said in a thread and are not in its archive yet."""
        ids = [str(message.id) for message in self.window(thread) if marks_of(message).keys().isdisjoint(_MADE)]
        held = self._archive.has(thread, ids)
        return [id for id in ids if id not in held]

    def first_words(self, thread: str) -> str:
        """What a person said first of what is still in the window."""
        said = (message.text for message in self.window(thread) if message.type == "human" and marks_of(message).keys().isdisjoint(_MADE))
        return next(said, "")

    def note(self, thread: str, *, agent: str | None = None, parent: str | None = None) -> None:
        """The thread is used now; it is in the list from here on."""
        now = stamp(self._clock.now())
        with self._checkpoints.cursor() as cursor:
            cursor.execute(
                "INSERT INTO threads (id, agent, parent, created, updated) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET updated = excluded.updated",
                (check_thread(thread), agent, parent, now, now),
            )

    def set_title(self, thread: str, title: str, by: str = "user") -> None:
        """Give the thread a title. One that a person gave is not replaced by any other."""
        clean = " ".join(title.split())[:200]
        if not clean:
            raise InputError("a title needs at least one word.")
        with self._checkpoints.cursor() as cursor:
            cursor.execute(
                "UPDATE threads SET title = ?, title_by = ? WHERE id = ? AND (? = 'user' OR title_by <> 'user')",
                (clean, by, check_thread(thread), by),
            )

    def older_than(self, moment: str) -> list[str]:
        """The threads of sub-agents that were last used before a moment."""
        with self._checkpoints.cursor(transaction=False) as cursor:
            found = cursor.execute("SELECT id FROM threads WHERE updated < ? AND substr(id, 1, ?) = ?", (moment, len(SUBAGENT), SUBAGENT))
            return [id for (id,) in found.fetchall()]

    def delete(self, threads: Sequence[str] | str) -> list[str]:
        """Remove conversations with all that belongs to them: checkpoints, archive, files. Says which there were."""
        names = [check_thread(name) for name in ([threads] if isinstance(threads, str) else threads)]
        gone = []
        known = set(self._checkpoints.threads())
        self._archive.release()
        for start in range(0, len(names), _AT_ONCE):
            part = {name: self._folder(name) for name in names[start : start + _AT_ONCE]}
            gone += [name for name, folder in part.items() if name in known or self.find(name) is not None or folder.exists()]
            self._checkpoints.delete_threads(list(part))
            for folder in part.values():
                if folder.exists():
                    remove_tree(folder)
        return gone

    def _folder(self, thread: str) -> Path:
        root = self._base / "threads"
        folder = root / thread_folder(thread)
        if folder.is_symlink():
            raise OutsideRoot(f"{folder} is a link.", path=folder, operation="delete", hint="Remove the link by hand.")
        return folder


_COLUMNS = "id, title, agent, parent, created, updated, title_by"


def prune_subagents(threads: Threads, archive: FileArchive, *, retain_days: int, now: datetime) -> list[str]:
    """Remove those that were last used longer ago, with their checkpoints, archive and files. Says which."""
    limit = stamp(now - timedelta(days=retain_days))
    old = set(threads.older_than(limit))
    listed = {info.id for info in threads.all(subagents=True)}
    for name in archive.threads():  # of one that was never listed only the archive may be left
        if is_subagent(name) and name not in listed and (last := archive.stats(name).last) and last < limit:
            old.add(name)
    return threads.delete(sorted(old)) if old else []


_MADE = ("summary", "repaired")


def transcript(archive: Archive, thread: str, window: Sequence[AnyMessage], times: Mapping[str, str] | None = None) -> list[MessageRecord]:
    """Everything that was said, each message once and word for word: the archive first, then what is only in the window.

    `times` are known for messages in the window by their ids."""
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
    return _timed([*said, *tail], times or {})


_OURS = "message-"


def _timed(said: Sequence[MessageRecord], times: Mapping[str, str]) -> list[MessageRecord]:
    """The messages with the time at which each was said: what its own id tells, or these times, else that of the message before it."""
    found: list[MessageRecord] = []
    for record in said:
        made = made_at(record.id) if record.id.startswith(_OURS) else None
        before = found[-1].time if found else ""
        found.append(record if record.time else replace(record, time=stamp(made) if made else times.get(record.id, before)))
    return found


def with_window(threads: Threads, archive: Archive, thread: str, calls: CallLog) -> Archive:
    """All of a conversation as an archive that can be read and searched: what is archived, and what is still in the window."""
    window = threads.window(thread)
    fresh = [record for record in transcript(archive, thread, window, calls.times(thread) if window else {}) if not record.seq]
    if not fresh:
        return archive
    info = threads.find(thread)
    whole = MemoryArchive()
    dated = [record if record.time or info is None else replace(record, time=info.updated) for record in fresh]
    whole.add(thread, [*archive.messages(thread), *dated, *archive.summaries(thread)])
    return whole


class Branching(Protocol):
    """Whose conversations are branched: a lead agent, or whatever has a graph over the same parts."""

    @property
    def graph(self) -> Any: ...
    @property
    def parts(self) -> Parts: ...
    @property
    def name(self) -> str | None: ...


def branch(agent: Branching, thread: str, *, at: str | None = None, into: str | None = None) -> str:
    """Make the new thread and give its name. Raises InputError when there is no such message or the new name is taken."""
    check_kind("at", at, (str, type(None)), "the id of a message, or its number such as '#12'")
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
    raise NotThere(f"there is no message {at!r} in the thread.", hint="Use an id, or a number such as #12, from its history.")


def _plain(record: MessageRecord) -> dict[str, Any]:
    """The record in the form that LangChain reads. What was reported about the call is left out: it is not this thread's."""
    said = message_of(record)
    said["role"] = {"human": "user", "ai": "assistant"}.get(record.role, record.role)
    return {name: said[name] for name in ("role", "content", "id", "tool_calls", "tool_call_id", "name") if said.get(name) is not None}


@dataclass(frozen=True, kw_only=True)
class KnowledgeNotReached(Event):
    """The knowledge store could not be looked up for a message; the conversation goes on without it."""

    component: ClassVar[str] = "SummarizationMiddleware"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "The knowledge store was not looked up: {reason}"
    reason: str


def known_in(store: Callable[[], KnowledgeStore], least: Trust, bus: Bus) -> recall.LongTerm:
    """What a knowledge store has about a question, as far as it is trusted: for `SummarizationMiddleware(long_term=...)`.

    A store that compares no meaning says of nothing that it is sure. One that cannot be read is told once and ends no turn.
    """
    told: set[str] = set()

    def look(question: str) -> list[recall.Known]:
        try:
            found = TrustedKnowledge(store(), least).search(question, top_k=_KNOWN)
        except HoldfastError as error:
            if str(error) not in told:
                told.add(str(error))
                bus.emit(KnowledgeNotReached(reason=str(error)))
            return []
        return [
            recall.Known(
                f"knowledge:{hit.record.id}", str(hit.record.source or hit.record.id), hit.text, certainty(hit.why.token, hit.why.sentence)
            )
            for hit in found
        ]

    return look


def recall_tools(
    archive: Callable[[], Archive], unnamed: Callable[[], str], window: Callable[[str], Sequence[Any] | None] = lambda thread: None
) -> list[BaseTool]:
    """Both tools over one archive. The thread is the one that the agent runs in; `unnamed` says it for a run without one.

    `window` says what a thread's model was last sent, so that what was said in a branch that was left can be marked.
    """

    def thread(config: RunnableConfig) -> str:
        return thread_of(config) or unnamed()

    def now(config: RunnableConfig) -> frozenset[str] | None:
        seen = window(thread(config))
        return recall.ids_now(archive(), thread(config), seen) if seen is not None else None

    def search_history(query: str, config: RunnableConfig, top_k: int = 5) -> str:
        """Search what was said earlier in this conversation and is no longer in view. Use names, numbers and rare words."""
        return recall.search_history(archive(), thread(config), query, top_k, now=now(config))

    def read_history(id: str, config: RunnableConfig, around: int = 0, start: int = 0) -> str:
        """Read an earlier message word for word by its id, with `around` messages before and after it."""
        return recall.read_history(archive(), thread(config), id, around, start, now=now(config))

    return [StructuredTool.from_function(search_history), StructuredTool.from_function(read_history)]
