"""Conversations over HTTP: messages, runs with events that can be left and joined again, the window of any call, files (A13, A14, O4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response, UploadFile
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.convertors import PathConvertor, register_url_convertor

from holdfast.context.archive import Archive
from holdfast.context.call_log import Call, digest
from holdfast.context.records import MessageRecord
from holdfast.errors import InputError, NotThere
from holdfast.redaction import redact
from holdfast.sandbox.uploads import Uploads
from holdfast.server.runs import Run
from holdfast.server.services import Services, ThreadId, Use
from holdfast.server.wire import (
    AGENT,
    STREAM,
    TOKEN,
    Body,
    Cursor,
    Flag,
    Follow,
    Id,
    LastEventId,
    Limit,
    Page,
    Short,
    Text,
    Words,
    page_of,
    saved_as,
)
from holdfast.talk import Decision
from holdfast.validation import counted

router = APIRouter(tags=["threads"], dependencies=[TOKEN])


class NewThread(Body):
    """A conversation to begin."""

    agent: Annotated[str, Query(pattern=AGENT)] | None = None
    title: Short | None = None


class Title(Body):
    """What a conversation is called."""

    title: Short


class RunSettings(Body):
    """What a run asks for in place of what its conversation has; what is left out stays as it is (M3)."""

    agent_name: Annotated[str, Query(pattern=AGENT)] | None = None
    model_name: Short | None = None
    thinking_enabled: Flag | None = None
    subagent_enabled: Flag | None = None


class NewRun(Body):
    """Something to say, and to whom."""

    content: Text
    configurable: RunSettings = Field(default_factory=RunSettings)


class BranchAt(Body):
    """After which message a new conversation leaves; now without one."""

    at: Short | None = None


class Shorten(Body):
    """How a conversation is made shorter."""

    force: Flag = True
    keep: Annotated[int, Query(ge=1, le=10_000)] | None = None


class Verdict(Body):
    """What a person says to a call that waits."""

    type: Literal["approve", "reject", "edit"]
    reason: str = ""
    args: dict[str, Any] | None = None


class Verdicts(Body):
    """One verdict for all waiting calls, or one for each by its id."""

    all: Verdict | None = None
    calls: dict[str, Verdict] = Field(default_factory=dict)


@router.get("/threads")
def threads_list(use: Use, limit: Limit = 100, cursor: Cursor = None) -> Page:
    """All conversations, the one that was used last first."""
    last = int(cursor[1:]) + limit + 1 if cursor else limit + 1
    return page_of(use.harness.conversations(last=last), limit, cursor, asdict)


@router.post("/threads", status_code=201)
def threads_begin(use: Use, body: NewThread = NewThread()) -> dict[str, Any]:
    """A new conversation, with an agent that is there (404 for another). It can be read, named and talked in from now on."""
    talk = use.begin_thread(body.agent, body.title)
    return {"id": talk.thread, "agent": talk.agent_name, "title": body.title or ""}


@router.get("/threads/{id}")
def threads_read(use: Use, id: ThreadId) -> dict[str, Any]:
    """What is known of a conversation. `running` is a turn that somebody is at, here or elsewhere; `interrupted` one that nobody is at."""
    talk = use.known_talk(id)
    stats = use.harness.whole_thread(id).stats(id)
    waiting = [asdict(one) for one in talk.approvals()]
    owner, interrupted = use.standing_of(id, talk)
    return {
        "id": id,
        "agent": talk.agent_name,
        "title": talk.title,
        "messages": stats.messages,
        "window": talk.window if use.harness.talks() else None,
        "running": owner is not None,
        "interrupted": interrupted,
        "approvals": waiting,  # whole: what a person agrees to is not what a redactor leaves of it
    }


@router.patch("/threads/{id}")
def threads_rename(use: Use, id: ThreadId, body: Title) -> dict[str, Any]:
    """Give it a title."""
    talk = use.known_talk(id)
    talk.title = body.title
    return {"id": id, "title": talk.title}


@router.delete("/threads/{id}", status_code=204)
def threads_delete(use: Use, id: ThreadId) -> Response:
    """Remove a conversation with all that belongs to it."""
    use.agent_of(id)
    use.harness.threads.delete(id)
    return Response(status_code=204)


@router.get("/threads/{id}/messages")
def messages_list(
    use: Use,
    id: ThreadId,
    around: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page:
    """Everything that was ever said, each message word for word; `in_window` are those that a model still sees."""
    use.agent_of(id)
    said = use.history(id)
    inside = {str(message.id) for message in use.window(id)}
    numbered = list(enumerate(said, 1))
    if around is not None:
        at = next((index for index, record in enumerate(said) if record.id == around), None)
        if at is None:
            raise NotThere(f"there is no message {around!r} in this thread.")
        numbered = numbered[max(0, at - limit // 2) : at + limit // 2 + 1]
    return page_of(numbered, limit, cursor, lambda one: {"number": one[0], **_message(one[1]), "in_window": one[1].id in inside})


def _message(record: MessageRecord) -> dict[str, Any]:
    calls = [{"name": name, "args": args} for name, args in record.calls]
    return {"id": record.id, "role": record.role, "text": record.text, "name": record.name, "calls": calls, "time": record.time}


@router.get("/threads/{id}/search")
def messages_search(use: Use, id: ThreadId, q: Words, limit: Annotated[int, Query(ge=1, le=100)] = 10) -> Page:
    """Messages that fit some words, also those that left the window long ago."""
    use.agent_of(id)
    hits = use.harness.whole_thread(id).search(id, q, limit)
    return Page(items=[{"score": hit.score, "snippet": hit.snippet, "why": list(hit.why), "message": _message(hit.record)} for hit in hits])


@router.post("/threads/{id}/branch", status_code=201)
def threads_branch(use: Use, id: ThreadId, body: BranchAt = BranchAt()) -> dict[str, Any]:
    """A new conversation that begins as this one."""
    new = use.known_talk(id).branch(body.at)
    return {"id": new.thread, "parent": id}


@router.post("/threads/{id}/compact")
def threads_compact(use: Use, id: ThreadId, body: Shorten = Shorten()) -> dict[str, Any]:
    """Shorten the window now. What leaves is in the archive, word for word."""
    done = use.known_talk(id).compact(force=body.force, keep=("messages", body.keep) if body.keep else None)
    plan = done.outcome.plan if done.outcome is not None else None
    return {"compacted": plan is not None, "messages": len(done.messages), "tokens": done.tokens}


@router.get("/threads/{id}/compactions")
def compactions_list(use: Use, id: ThreadId) -> Page:
    """Each compaction: what left, what it became, how it was made."""
    use.agent_of(id)
    return Page(items=[redact(asdict(one)) for one in use.harness.archive.summaries(id)])


# runs


def _run(run: Run, response: Response | None = None) -> dict[str, Any]:
    """A run as it is now; in a `response` that began it also where it is."""
    if response is not None:
        response.headers["location"] = f"/api/v1/runs/{run.id}"
    known = {name: getattr(run, name) for name in ("id", "thread", "agent", "created", "status", "text", "tokens", "error", "ended")}
    return {**known, "artifacts": list(run.artifacts)}


@router.post("/threads/{id}/runs", status_code=202)
async def runs_begin(use: Use, id: ThreadId, body: NewRun, response: Response) -> dict[str, Any]:
    """Say something; with an id that nobody has used, a conversation begins under it.

    The turn runs whether or not anybody follows it; `/runs/{id}/events` tells what happens.
    """
    return _run(await use.say(id, body.content, asked=body.configurable.model_dump()), response)


@router.post("/threads/{id}/resume", status_code=202)
async def runs_resume(use: Use, id: ThreadId, response: Response) -> dict[str, Any]:
    """Go on with a turn that was broken off."""
    return _run(await use.go_on(id), response)


@router.post("/threads/{id}/decisions", status_code=202)
async def runs_decide(use: Use, id: ThreadId, response: Response, body: Verdicts = Verdicts()) -> dict[str, Any]:
    """Answer the calls that wait for a person; the turn goes on."""
    made = {call: Decision(one.type, one.reason, one.args) for call, one in body.calls.items()}
    decisions = made or (Decision(body.all.type, body.all.reason, body.all.args) if body.all else None)
    if decisions is None:
        raise InputError("there is no decision.", hint="Give `all`, or `calls` by their ids.")
    return _run(await use.decide(id, decisions), response)


@router.get("/threads/{id}/runs")
async def runs_list(use: Use, id: ThreadId) -> Page:
    """The runs of a conversation that this server knows, the newest first."""
    await asyncio.to_thread(use.agent_of, id)
    return Page(items=[_run(run) for run in use.turns.of_thread(id)])


async def _found_run(use: Use, id: Id) -> Run:
    return use.turns.find(id)


Found = Annotated[Run, Depends(_found_run)]


@router.get("/runs/{id}")
async def runs_read(run: Found) -> dict[str, Any]:
    """How a run is doing."""
    return _run(run)


@router.post("/runs/{id}/cancel")
async def runs_cancel(use: Use, run: Found) -> dict[str, Any]:
    """Stop it. What was said stays in the conversation."""
    await use.turns.cancel(run)
    return _run(run)


@router.get("/runs/{id}/events", response_class=StreamingResponse, responses=STREAM)
async def runs_events(use: Use, run: Found, last_event_id: LastEventId = None, follow: Follow = True) -> StreamingResponse:
    """What happens in a run, from the event after `Last-Event-ID` on."""
    return use.streamed(run.stream.follow(last_event_id, wait=follow))


# the window of any call


def by_origin(call: Call) -> dict[str, int]:
    """Tokens for each origin, in the order in which they were sent."""
    sums: Counter[str] = Counter()
    for part in call.parts:
        sums[part.origin] += part.tokens
    return dict(sums)


def _call(call: Call) -> dict[str, Any]:
    known = {name: getattr(call, name) for name in ("number", "at", "run", "model", "window", "cap", "how", "answer")}
    return {**known, "tokens": call.tokens, "by_origin": by_origin(call), "usage": dict(call.usage), "left": len(call.left)}


@router.get("/threads/{id}/calls")
def calls_list(use: Use, id: ThreadId, limit: Limit = 100, cursor: Cursor = None) -> Page:
    """Every request that was sent to a model for this conversation."""
    use.agent_of(id)
    return page_of(use.calls.calls(id), limit, cursor, _call)


Number = Annotated[int, Path(ge=1, le=1_000_000_000)]


@router.get("/threads/{id}/calls/{number}")
def calls_read(use: Use, id: ThreadId, number: Number) -> dict[str, Any]:
    """The window of one call: each part, where it came from, and its tokens."""
    use.agent_of(id)
    call = use.calls.call(id, number)
    parts = [{"origin": one.origin, "role": one.role, "tokens": one.tokens, "message": one.id} for one in call.parts]
    return {**_call(call), "parts": parts, "left": list(call.left), "cleared": list(call.cleared)}


@router.get("/threads/{id}/calls/{number}/parts/{index}")
def calls_part(use: Use, id: ThreadId, number: Number, index: Annotated[int, Path(ge=0, le=1_000_000)]) -> dict[str, Any]:
    """The words of one part, as far as they are still kept: a message from the archive or the window, a piece of the system message if it
    is still the same."""
    agent = use.agent_of(id)
    call = use.calls.call(id, number)
    if index >= len(call.parts):
        raise NotThere(f"call {number} has {counted(len(call.parts), 'part')}.")
    part = call.parts[index]
    text = part_text(use, id, agent, call, index, use.harness.whole_thread(id))
    return {"origin": part.origin, "role": part.role, "tokens": part.tokens, "message": part.id, "text": text}


def part_text(use: Services, thread: str, agent: str | None, call: Call, index: int, whole: Archive) -> str | None:
    """The words of a part of a call, from all that is kept of the thread (`whole`); None for what is no longer kept."""
    part = call.parts[index]
    if part.id is None:
        return _system_text(use, thread, agent, call, index)
    passage = whole.read(thread, part.id)
    if passage is not None:
        return passage.record.text
    return next((one.text for one in whole.summaries(thread) if one.id == part.id), None)


def _system_text(use: Services, thread: str, agent: str | None, call: Call, index: int) -> str | None:
    if not call.system or call.parts[index].role != "system" or not use.harness.talks():
        return None
    request = use.lead(agent).assembled.summarization.system_text(thread)
    if request is None or digest(request) != call.system:
        return None
    starts = sorted(part.offset for part in call.parts if part.role == "system" and part.id is None)
    begin = call.parts[index].offset
    return request[begin : next((start for start in starts if start > begin), len(request))]


# files

Area = Literal["uploads", "outputs", "workspace"]
_SHOWN = ("text/plain", "image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


@router.get("/threads/{id}/files/{area}")
def files_list(use: Use, id: ThreadId, area: Area) -> Page:
    """The files of a conversation: what was uploaded, what was made, what is being worked on."""
    use.agent_of(id)
    with use.places.named(id) as sandbox:
        root = f"/mnt/user-data/{area}"
        entries = sandbox.files.ls(root, depth=5).entries if sandbox.files.exists(root) else ()
    items = [{"path": one.path.removeprefix(f"{root}/"), "size": one.size, "kind": one.kind} for one in entries]
    return Page(items=items)


@router.post("/threads/{id}/files/uploads", status_code=201)
def files_upload(use: Use, id: ThreadId, file: UploadFile) -> dict[str, Any]:
    """Put a file into a conversation; office formats also as Markdown."""
    taken = use.take_file(id, file.filename or "upload", file.file)
    return {"name": taken.name, "path": taken.path, "size": taken.size, "markdown": taken.markdown, "problem": taken.problem}


@router.delete("/threads/{id}/files/uploads/{name}", status_code=204)
def files_remove(use: Use, id: ThreadId, name: Annotated[str, Path(min_length=1, max_length=200)]) -> Response:
    """Remove an upload."""
    use.agent_of(id)
    with use.places.named(id) as sandbox:
        Uploads(id, sandbox.files, base=use.harness.base).remove(name)
    return Response(status_code=204)


class _AnyPath(PathConvertor):
    """The rest of a path, also where there is a line break in it: Starlette's own does not match one."""

    regex = "(?s:.*)"


register_url_convertor("anypath", _AnyPath())


@router.get(
    "/threads/{id}/files/{area}/{path:anypath}",
    response_class=StreamingResponse,
    responses={
        200: {"description": "The file", "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
    },
)
def files_read(use: Use, id: ThreadId, area: Area, path: Annotated[str, Path(min_length=1, max_length=1_000)]) -> StreamingResponse:
    """A file, to be saved; only plain text, pictures and PDF may be shown."""
    use.agent_of(id)
    within = f"/mnt/user-data/{area}"
    with use.places.named(id) as sandbox:
        found = sandbox.files.artifact(f"{within}/{path}", within=within)
    kind = found.media_type if found.media_type in _SHOWN else "application/octet-stream"
    how = "inline" if kind in _SHOWN else "attachment"
    return StreamingResponse(found.stream, media_type=kind, headers=saved_as(found.name, how))
