"""The forms of the API's answers, for its description: clients that are made from it know what they get (O3).

They describe and change nothing: a route gives plain values, and a test calls every operation and compares. Only what is always there is
required; more may come beside it in later versions.
"""

from __future__ import annotations

import re
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

T = TypeVar("T")


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class PageOf(_Answer, Generic[T]):
    """A part of a list. `next` is the cursor of the part after it; none at the end."""

    items: list[T]
    next: str | None = None


class Readiness(_Answer):
    """Whether the server can do its work."""

    ready: bool


class Check(_Answer):
    """What the doctor finds about one thing."""

    about: str
    state: Literal["good", "note", "bad"]
    text: str


class BudgetShares(_Answer):
    """How a window is split, in tokens."""

    window: int
    base: int
    memory: int
    skills: int
    instructions: int
    kept: int
    buffer: int
    tool_definitions: int
    response: int


class Skill(_Answer):
    """A skill, and whether it is switched on."""

    name: str
    description: str
    enabled: bool


class FactForm(_Answer):
    """Something that is known about the user, and where it is from."""

    id: str
    content: str
    category: str
    confidence: float
    createdAt: str  # noqa: N815 - as the file has it
    source: str
    origin: dict[str, Any] = {}


class ChangeForm(_Answer):
    """A change of memory: when, by whom, why."""

    id: str
    time: str
    revision: int
    by: str
    why: str


class FactWithHistory(_Answer):
    """A fact as it is, none if it is gone, and every change of it."""

    fact: FactForm | None
    history: list[ChangeForm]


class RenderedMemory(_Answer):
    """What a model is shown of memory, and the ids of the facts in it."""

    text: str
    facts: list[str]


class RecordForm(_Answer):
    """A record of knowledge."""

    id: str
    text: str
    kind: str
    trust: str
    tags: list[str] = []
    source: str | None = None
    session: str | None = None
    time: str | None = None


class RecordAdded(_Answer):
    """The record, and whether it is new."""

    added: bool
    record: RecordForm


class HitForm(_Answer):
    """A record that was found, how well it fits, the part that fits best, and why it was found."""

    record: RecordForm
    score: float
    snippet: str
    why: str


class ThreadForm(_Answer):
    """A conversation."""

    id: str
    title: str
    agent: str | None = None


class MessageForm(_Answer):
    """A message of a conversation, and whether a model still sees it."""

    number: int
    id: str
    role: str
    text: str
    time: str | None = None
    in_window: bool | None = None


class RunForm(_Answer):
    """A turn: how it is doing, and what came of it."""

    id: str
    thread: str
    status: str
    created: str
    ended: str | None
    text: str
    tokens: int
    error: Any
    artifacts: list[str]


class SessionLine(_Answer):
    """A session in a list. A damaged one has a `problem`."""

    id: str
    workflow_id: str
    task: str
    status: str | None
    current_stage: str | None
    completed: int
    total: int | None
    updated_at: str
    error: str | None
    problem: str | None


class SessionForm(_Answer):
    """A session: how far it is, and what each stage gave."""

    id: str
    workflow_id: str
    task: str
    status: str
    completed_stages: list[str]
    stage_outputs: dict[str, Any]


class SessionState(_Answer):
    """A session that was begun or changed, and how it stands now."""

    id: str
    workflow_id: str
    status: str


_CHANGING = ("start", "resume", "cancel", "approve", "reject", "fork", "restore")
ANSWERS: dict[str, type[BaseModel]] = {
    "readiness": Readiness,
    "doctor": PageOf[Check],
    "budget": BudgetShares,
    "facts_list": PageOf[FactForm],
    "facts_add": FactForm,
    "facts_change": FactForm,
    "facts_read": FactWithHistory,
    "memory_history": PageOf[ChangeForm],
    "memory_undo": ChangeForm,
    "memory_rendered": RenderedMemory,
    "knowledge_search": PageOf[HitForm],
    "records_list": PageOf[RecordForm],
    "records_add": RecordAdded,
    "records_read": RecordForm,
    "threads_list": PageOf[ThreadForm],
    "threads_begin": ThreadForm,
    "threads_read": ThreadForm,
    "threads_rename": ThreadForm,
    "messages_list": PageOf[MessageForm],
    **dict.fromkeys(("runs_begin", "runs_resume", "runs_decide", "runs_read", "runs_cancel"), RunForm),
    "runs_list": PageOf[RunForm],
    "sessions_list": PageOf[SessionLine],
    "sessions_read": SessionForm,
    **dict.fromkeys((f"sessions_{done}" for done in _CHANGING), SessionState),
    "skills": PageOf[Skill],
    "skills_switch": Skill,
}
"""The form of an answer by the name of the function that gives it."""


def describe_answers(made: dict[str, Any]) -> None:
    """Put the forms into an OpenAPI description."""
    forms, shared = models_json_schema([(form, "serialization") for form in ANSWERS.values()], ref_template="#/components/schemas/{model}")
    made["components"]["schemas"].update(shared["$defs"])
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            name = operation["operationId"].removesuffix(re.sub(r"\W", "_", f"{path}_{method}"))
            if name in ANSWERS:
                answer = next(one for status, one in operation["responses"].items() if status.startswith("2"))
                answer["content"] = {"application/json": {"schema": forms[ANSWERS[name], "serialization"]}}
