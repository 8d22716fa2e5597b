"""A conversation as its users see it: the protocol `Talk`, the events of a turn, and what a person is asked and answers.

Two classes keep the protocol: `agents.conversation.Conversation`, with a model, and `offline.conversation.ExtractiveConversation`, without.
`Harness.conversation` opens the one that the configuration allows; command line and server work with either and need not know which.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.context.call_log import Manifest
    from holdfast.context.records import MessageRecord
    from holdfast.context.window import Prepared
    from holdfast.memory.service import MemoryService
    from holdfast.sandbox.uploads import Upload

Reason = Literal["completed", "clarification", "approval", "cut", "empty", "filtered", "loop", "bad_calls", "turn_capped", "cancelled"]
"""Why a turn ended. `cut`: the answer reached its token limit, and what there is of it is here; `empty`: nothing was answered;
`filtered`: a filter of the provider held it back, or the model refused; `bad_calls`: the model's tool calls did not arrive whole again and
again."""
Content = str | Sequence[Mapping[str, Any]]
"""A message: text, or blocks of text and images in LangChain's form."""


# What a turn tells while it runs


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
class ModelReplaced:
    """A model failed and another one answers in its place. What was said since the last tool call is no part of the answer."""

    model: str
    by: str
    why: str
    """What went wrong, in our words."""
    type: Literal["model_replaced"] = "model_replaced"


@dataclass(frozen=True)
class Approval:
    """A call that waits for a person. `id` is what the decision is given for."""

    id: str
    tool: str
    args: Mapping[str, Any]
    call: str


@dataclass(frozen=True)
class ApprovalNeeded:
    """Calls wait for a person: go on with `Talk.decide`."""

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


TurnEvent = Token | ToolCalled | ToolFinished | Subagent | ModelReplaced | ApprovalNeeded | Ended


def as_dict(event: TurnEvent) -> dict[str, Any]:
    """An event as plain JSON, for a stream."""
    return asdict(event)


@dataclass(frozen=True)
class Decision:
    """What a person says to a call: `approve`, `reject` (with a reason, if there is one) or `edit` (with other arguments)."""

    type: Literal["approve", "reject", "edit"]
    reason: str = ""
    args: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.type not in ("approve", "reject", "edit"):
            raise InputError(f"{self.type!r} is not a decision.", hint="Use approve, reject or edit.")
        if self.type == "edit" and not isinstance(self.args, Mapping):
            raise InputError("an edit needs the arguments to run the tool with.", hint="Give `args`.")


# The conversation


@dataclass(frozen=True)
class ThreadInfo:
    """One conversation in the list. `parent` is the thread that it was branched from, or that started it as a sub-agent."""

    id: str
    title: str = ""
    agent: str | None = None
    parent: str | None = None
    created: str = ""
    updated: str = ""
    title_by: str = ""
    """`extract`, `model` or `user`: who wrote the title."""
    messages: int = 0
    """How many messages it has, where they were counted: those that left the window too."""
    archived_only: bool = False
    """It has no window here: it was held without a model, or by an agent of the user's own."""


class Talk(Protocol):
    """One thread of conversation. One turn at a time; what was said is on disk. Close it when done.

    InputError from whatever needs a model where there is none.
    """

    thread: str
    agent_name: str | None
    """Whose memory and settings are used; None for the default agent."""
    verbatim: bool
    """Whether answers are quotes, to be shown letter for letter, and not the Markdown of a model."""
    new_run: Callable[[], str]
    """Gives the id of a turn's run, in the moment in which the turn has its thread to itself. Who knows a run by an id sets it."""
    title: str
    """Empty before the first exchange; the first words, what a light model made of them, or what the user set."""

    @property
    def described(self) -> str:
        """With whom one talks, in a few words."""

    @property
    def memory(self) -> MemoryService:
        """What is known about the user."""

    def send(self, text: Content, *, pasted: bool = False, typed: int = 0) -> Iterator[TurnEvent]:
        """Say something, and iterate over what happens until the turn ends. Leaving the loop early cancels the turn.

        `pasted` says that the text was not typed, where the caller knows: then nothing of it is learned as the user's own words, but for
        the first `typed` characters, after a notice of uploads.
        """

    def asend(self, text: Content) -> AsyncIterator[TurnEvent]:
        """As `send`, for async callers."""

    def ask(self, text: str) -> str:
        """Say something and wait for the answer."""

    def decide(self, decisions: Mapping[str, Decision] | Decision) -> Iterator[TurnEvent]:
        """Go on after `ApprovalNeeded`: a decision for each waiting call by its id, or one for all of them."""

    def adecide(self, decisions: Mapping[str, Decision] | Decision) -> AsyncIterator[TurnEvent]:
        """As `decide`, for async callers."""

    def resume(self) -> Iterator[TurnEvent]:
        """Go on with a turn that was broken off."""

    def aresume(self) -> AsyncIterator[TurnEvent]:
        """As `resume`, for async callers."""

    def cancel(self) -> None:
        """Stop the turn that is under way, at once. What was done and said stays."""

    @property
    def interrupted(self) -> bool:
        """Whether a turn was broken off, or waits for an approval."""

    def approvals(self) -> tuple[Approval, ...]:
        """The calls that wait for a person."""

    def history(self) -> list[MessageRecord]:
        """Everything that was ever said, in its order."""

    def threads(self) -> list[ThreadInfo]:
        """All conversations, the one that was used last first."""

    def other(self, thread: str | None = None) -> Talk:
        """Another conversation with the same agent: a new one, or the one of this thread, where it was left."""

    def branch(self, at: str | None = None, *, thread: str | None = None) -> Talk:
        """A new conversation that begins as this one, up to and including a message (by its id, or `#12`); without one, as it is now."""

    def compact(self, *, force: bool = True, keep: Any = None) -> Prepared:
        """Shorten the thread now (S17). `keep` is an amount such as ("messages", 5); without `force` only if a trigger is met."""

    def sent(self) -> Manifest | None:
        """What the last request of this process held, by origin; None before the first."""

    @property
    def window(self) -> int:
        """The model's window in tokens."""

    def subagents(self) -> Mapping[str, str]:
        """The kinds of sub-agents that it can start, each with its description."""

    def upload(self, paths: Sequence[Path]) -> Sequence[Upload]:
        """Copy files into the thread, office formats also as Markdown. InputError, before anything is copied, for a wrong one."""

    def files(self) -> str:
        """The files of the thread, as a tree for a person."""

    def wait_for_title(self, timeout: float | None = None) -> str:
        """The title, after a light model has had its say. A program that ends at once would not hear it otherwise."""

    def close(self) -> None:
        """Stop a turn that is under way, and let go of what was opened for this conversation."""


def marks_of_origin(pasted: bool, typed: int = 0) -> dict[str, Any]:
    """What is noted at a message that was not typed, or only its first characters."""
    return {"pasted": True, **({"typed": typed} if typed else {})} if pasted else {}


def with_uploads(message: str, taken: Sequence[Upload]) -> str:
    """The message with a notice of what was uploaded. Memory leaves the notice out of what it learns from."""
    if not taken:
        return message
    lines = [f"- {one.path} ({one.size:,} bytes)" + (f", as Markdown: {one.markdown}" if one.markdown else "") for one in taken]
    return "\n".join(["<uploaded_files>", *lines, "</uploaded_files>", "", message])
