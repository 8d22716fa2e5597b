"""The seam between the runner and what does the work of a stage.

An agent is anything with `run(request) -> StageResult`, and a plain function that takes the request and returns the output is enough.
What it may know is in the request; what it found goes back in the result. It never sees the session itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from holdfast.tokens.usage import Usage

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.session.output import StageOutput
    from holdfast.workflow.definition import Stage


class RawAccess(Protocol):
    """The raw data of one session (W10): pages, tool output, whatever is too long to be passed on."""

    def put(self, data: bytes | str, *, source: str | None = None, media_type: str | None = None) -> str:
        """Keep it durably and return its reference, `raw:sha256-...`. The same data has the same reference."""

    def get(self, ref: str) -> bytes:
        """The data of a reference, or of a unique beginning of one. Raises InputError when there is none."""

    def text(self, ref: str) -> str:
        """The data of a reference as text; bytes that are no UTF-8 become U+FFFD."""


def _never() -> bool:
    return False


def _silent(_line: str) -> None:
    return None


def _free(_usage: object, _model: str) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class StageRequest:
    """All that an agent is given for one attempt at a stage."""

    session_id: str
    stage: Stage
    task: str
    system_prompt: str
    prompt: str
    """The task, the given outputs and the retrieved memories as one text that fits `budget`, system prompt included."""
    given: tuple[StageOutput, ...] = ()
    """The outputs that are in the prompt, in the order of the workflow: what was left out for want of room is not here."""
    provisional: frozenset[str] = frozenset()
    """The names of those whose confidence is low: they are to be checked, not built upon."""
    retrieved: tuple[Mapping[str, Any], ...] = ()
    """The memories that are in the prompt: `text`, `source`, `tags`, `score` and more, as in the session file."""
    feedback: str | None = None
    """Why the last answer was not accepted, or why it is to be looked at again. It is in `prompt` too."""
    attempt: int = 1
    raw: RawAccess
    knowledge: KnowledgeStore | None = None
    folder: Path
    """Where the agent may write files. It exists."""
    home: Path | None = None
    """The folder of the workflow file, where paths in it are looked for first; None when it came as values."""
    budget: int | None = None
    """The tokens that system prompt and prompt may take together, where that is limited."""
    model: str | None = None
    """The name of the model in the configuration, where one is asked for."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    cancelled: Callable[[], bool] = _never
    """Whether to stop. Whoever loops asks; raising `Cancelled` or returning anything are both right then."""
    emit: Callable[[str], None] = _silent
    """Say in one line what is being done, for the log and the progress display."""
    charge: Callable[[object, str], None] = _free
    """Account for one call of a model at once: `charge(usage, model)`. Raises LimitExceeded when nothing is left for another one.

    An agent that makes one call may leave it to the result's `usage` instead; it must not do both.
    """


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """What an agent gives back. `output` is a StageOutput, a mapping in the same form, or text that holds it as JSON."""

    output: object
    usage: Usage | None = None
    model: str | None = None
    add_stages: tuple[Mapping[str, Any], ...] = ()
    """Stages to run after this one, in the form of the workflow file (W13). Allowed up to the workflow's `max_added_stages`."""


@runtime_checkable
class StageAgent(Protocol):
    """Does the work of a stage."""

    def run(self, request: StageRequest) -> StageResult:
        """Work the stage out. Called in a thread of its own; may be called again with `feedback`, and again after a crash.

        Raises what it likes: the runner retries, then halts or skips as the stage says. Where it loops it must ask `request.cancelled()`.
        """
