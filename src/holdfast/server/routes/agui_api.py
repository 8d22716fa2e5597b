"""`/agui`: our agents for front ends that speak AG-UI, streamed as server-sent events by the protocol's own encoder (O3)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from holdfast.errors import InputError, NotThere
from holdfast.imports import missing_extra
from holdfast.server.event_stream import MEDIA_TYPE
from holdfast.server.services import Services, services_of
from holdfast.server.wire import STREAM, TOKEN

router = APIRouter(prefix="/agui", tags=["agui"], dependencies=[TOKEN])
Use = Annotated[Services, Depends(services_of)]
AgentName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_INPUT: dict[str, Any] = {
    "type": "object",
    "description": "`RunAgentInput` of AG-UI: `threadId` names the conversation, `tools` are the front end's, `resume` answers interrupts.",
    "properties": {
        "threadId": {"type": "string"},
        "runId": {"type": "string"},
        "messages": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["threadId", "runId", "messages"],
}
_BODY: dict[str, Any] = {"requestBody": {"content": {"application/json": {"schema": _INPUT}}, "required": True}}


@router.post("", openapi_extra=_BODY, responses=STREAM, response_class=Response)
async def agui_run(use: Use, request: Request) -> Response:
    """Run a turn of the lead agent, or of the agent that a known thread belongs to."""
    return await _run(use, request, None)


@router.post("/{agent}", openapi_extra=_BODY, responses=STREAM, response_class=Response)
async def agui_agent_run(use: Use, request: Request, agent: AgentName) -> Response:
    """Run a turn of this agent."""
    return await _run(use, request, agent)


async def _run(use: Services, request: Request, agent: str | None) -> Response:
    try:
        from ag_ui.core import RunAgentInput

        from holdfast.server.agui_events import agui_events, begin_turn
    except ModuleNotFoundError as error:
        raise (missing_extra(error) or error) from error
    try:
        asked = RunAgentInput.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_input=False)]) from error
    known, owner = await asyncio.to_thread(_owner, use, asked.thread_id)
    if known and agent not in (None, owner):
        raise InputError("this thread belongs to another agent.", hint="Take its own address, or another threadId.")
    talk = await asyncio.to_thread(use.talk, asked.thread_id, owner if known else agent)
    turn = begin_turn(talk, asked, known, use.harness.ids)

    async def frames() -> Any:
        with use.counted():
            try:
                async for frame in agui_events(asked, lambda: turn, use.harness.bus, talk.thread, request.headers.get("accept")):
                    yield frame
            finally:
                await asyncio.to_thread(talk.close)

    return StreamingResponse(frames(), media_type=MEDIA_TYPE, headers={"x-holdfast-thread": talk.thread})


def _owner(use: Services, thread: str) -> tuple[bool, str | None]:
    """Whether somebody has talked in this thread, and whose it is."""
    try:
        return True, use.agent_of(thread)
    except NotThere:
        return False, None
