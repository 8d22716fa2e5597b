"""`server`, `logging` and `limits`: the HTTP API, the log, and when work stops by itself."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from holdfast.config.kinds import Amount, Count, Price, Text, Texts
from holdfast.config.known import IGNORED
from holdfast.config.memory_sections import Limit
from holdfast.config.section import Section, Strange


class Server(Section):
    """Where the HTTP API listens and who may use it (O3)."""

    strange: ClassVar[Strange] = "refused"

    host: Text = "127.0.0.1"
    port: Annotated[Amount, Field(le=65535)] = 8765
    token: Text | None = None
    cors: Texts = ()
    allowed_hosts: Texts = ()
    max_upload_bytes: Count = 52_428_800


def _level(value: Any) -> Any:
    lowered = value.lower() if isinstance(value, str) else value
    return {"warn": "warning", "fatal": "critical"}.get(lowered, lowered) if isinstance(lowered, str) else lowered


class Logging(Section):
    """How much is logged and in which form (O2)."""

    tolerated = IGNORED["logging"]

    level: Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_level)] = "info"
    format: Literal["text", "json"] = "text"


class Limits(Section):
    """When work stops with everything kept (T5). `tokens` and `cost` alone hold for each run; `run` and `session` say it apart."""

    strange: ClassVar[Strange] = "refused"

    tokens: Count | None = None
    cost: Price | None = None
    run: Limit = Limit()
    session: Limit = Limit()
