"""What the tools of the MCP server answer: the forms that a client sees as output schemas (O5)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class FactOut(BaseModel):
    """A fact about the user."""

    id: str
    content: str
    category: str
    confidence: float
    since: str


class Facts(BaseModel):
    """Facts, best first."""

    facts: list[FactOut]


class Outcome(BaseModel):
    """What became of a change."""

    status: Literal["stored", "confirmed", "held", "refused", "done"]
    id: str | None = None
    said: str


class HeldOut(BaseModel):
    """Something that waits for a person."""

    id: str
    content: str
    why: str


class Review(BaseModel):
    """What waits for a person. `holdfast memory review` decides about it."""

    held: list[HeldOut]


class ChangeOut(BaseModel):
    """One change of memory."""

    id: str
    time: str
    by: str
    why: str


class Changes(BaseModel):
    """Changes, newest first."""

    changes: list[ChangeOut]


class ThreadOut(BaseModel):
    """A conversation."""

    thread: str
    messages: int
    first: str
    last: str


class Conversations(BaseModel):
    """Conversations, the one that was used last first."""

    threads: list[ThreadOut]


class MessageOut(BaseModel):
    """A message of a conversation."""

    thread: str
    id: str
    time: str
    role: str
    text: str


class Messages(BaseModel):
    """Messages; from a search best first, else in the order of the conversation."""

    messages: list[MessageOut]


class SessionOut(BaseModel):
    """A workflow session in short."""

    id: str
    task: str
    status: str | None
    stage: str | None
    completed: int
    total: int | None
    updated: str
    error: str | None


class Sessions(BaseModel):
    """Sessions, the one that changed last first."""

    sessions: list[SessionOut]


class SessionTold(BaseModel):
    """A session told as Markdown."""

    id: str
    status: str
    markdown: str
