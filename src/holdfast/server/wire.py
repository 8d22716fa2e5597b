"""Values of the API: what a request may hold, and pages of lists. Made for FastAPI; the library's own values never go out as they are."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Path, Query
from fastapi.security import HTTPBearer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, StringConstraints

T = TypeVar("T")

_VISIBLE = (
    r"[^\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180e\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u2064\u2066-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]"
)

Text = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
VisibleText = Annotated[str, StringConstraints(min_length=1, max_length=100_000, pattern=_VISIBLE)]
"""A text with at least one character that can be seen."""
Short = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Share = Annotated[float, Strict(), Field(ge=0, le=1)]
Flag = Annotated[bool, Strict()]
Priority = Annotated[
    int,
    Strict(),
    Field(ge=-1_000_000, le=1_000_000),
    BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value),
]
"""A whole number as JSON knows it: 3.0 is one, true and "3" are none."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
Id = Annotated[str, Path(pattern=NAME)]
PointName = Annotated[str, StringConstraints(pattern=NAME)]
ThreadId = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
StageName = Annotated[str, Path(min_length=1, max_length=128, pattern=r"^[^/\x00-\x1f\x7f]+$")]
Agent = Annotated[str | None, Query(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="The agent whose memory it is; none is the global one.")]
Limit = Annotated[int, Query(ge=1, le=500, description="How many at most.")]
Cursor = Annotated[str | None, Query(pattern=r"^n[0-9]{1,9}$", description="Where the page before ended: its `next`.")]
Words = Annotated[str, Query(min_length=1, max_length=2_000, description="What to look for.")]
Follow = Annotated[bool, Query(description="Wait for what comes; else send what is there and end.")]
LastEventId = Annotated[str | None, Header(max_length=100)]
TOKEN = Depends(HTTPBearer(auto_error=False, description="The token that `holdfast serve --show-token` prints."))


_EVENT = {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
STREAM: dict[int | str, dict[str, Any]] = {200: {"description": "Events", "content": {"text/event-stream": {"schema": _EVENT}}}}
"""How a stream is described: each event has an id, a kind, and an envelope as JSON text."""


class Body(BaseModel):
    """A request's body: nothing in it that nobody asked for."""

    model_config = ConfigDict(extra="forbid")


class Page(BaseModel):
    """A part of a list. `next` is the cursor of the part after it; none at the end."""

    items: list[dict[str, Any]]
    next: str | None = None


def page_of(items: Iterable[T], limit: int, cursor: str | None, shown: Any) -> Page:
    """The page of a list that begins at this cursor. Nothing after it is read."""
    start = int(cursor[1:]) if cursor else 0
    part = list(islice(items, start, start + limit + 1))
    return Page(items=[shown(item) for item in part[:limit]], next=f"n{start + limit}" if len(part) > limit else None)
