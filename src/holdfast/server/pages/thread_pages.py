"""Conversations as pages: the list, and the chat itself with what a model still sees of it. A turn is followed while it runs (A13, O4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from fastapi.responses import StreamingResponse
from markupsafe import Markup
from starlette.datastructures import UploadFile

from holdfast.agents.agent_settings import agent_names
from holdfast.context.call_log import Call
from holdfast.errors import InputError
from holdfast.ids import thread_folder
from holdfast.redaction import redact
from holdfast.server.event_stream import MEDIA_TYPE
from holdfast.server.pages import drawing
from holdfast.server.pages.chat_view import ChatView, Fold, chat_view, entries_of, live_entries
from holdfast.server.pages.html_pages import LIVE_END, live_event, page, render, to
from holdfast.server.routes.threads_api import files_list
from holdfast.server.running_turns import Run
from holdfast.server.services import Services, services_of
from holdfast.server.wire import ThreadId
from holdfast.talk import Approval, Decision, ThreadInfo, with_uploads

router = APIRouter(include_in_schema=False)
Use = Annotated[Services, Depends(services_of)]
Field = Annotated[str, Form(max_length=100_000)]
_LISTED = 50
_PACE = 0.08
"""Seconds between two pictures of a running turn: more often nobody sees."""
_MANY, _SHARED, _LONGEST = 4, 1.0, 3_600.0
"""A browser has six connections to a server. So that no page waits for one, further streams than so many end after a second, and their
pages ask again."""
_SUBAGENT = "subagent-"
NOTICES = {
    "compacted": "The conversation is shorter now. What left is in the archive, word for word.",
    "short": "Nothing left the window: there is nothing in it that could be summarized.",
    "renamed": "The title is changed.",
    "branched": "This is a new conversation. The one it comes from stays as it is.",
    "uploaded": "The file is there. Say what is to be done with it.",
}
"""What is said after something was done; the address names it, never the words."""


@router.get("/threads")
async def threads_page(
    request: Request, use: Use, last: Annotated[int, Query(ge=1, le=5_000)] = _LISTED, subagents: bool = False
) -> Response:
    """All conversations, the one that was used last first."""
    running = {run.thread for run in use.turns.running}

    def shown() -> Response:
        found = use.harness.conversations(subagents=subagents, last=last + 1)
        model = use.harness.talks()
        values: dict[str, Any] = {"agents": agent_names(use.harness.config) if model else [], "model": model, "running": running}
        values |= {"threads": found[:last], "more": last + _LISTED if len(found) > last else None, "subagents": subagents}
        return page(request, "threads.html", title="Threads", **values)

    return await asyncio.to_thread(shown)


@router.post("/threads")
async def threads_start(use: Use, content: Field, agent: Annotated[str, Form(max_length=64)] = "") -> Response:
    """Begin a conversation with its first message."""
    new = await asyncio.to_thread(lambda: use.talk(None, agent or None))
    await use.say(new.thread, content, agent or None)
    return _back(new.thread)


def _back(thread: str, done: str = "", place: str = "end") -> Response:
    return to(f"/threads/{quote(thread, safe='')}" + (f"?done={done}" if done else "") + (f"#{place}" if place else ""))


# the chat


@dataclass(frozen=True)
class Room:
    """How full the window was at the newest call."""

    call: Call
    drawn: Markup
    percent: int
    by_origin: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Chat:
    """All that the page of a conversation shows."""

    info: ThreadInfo
    view: ChatView
    room: Room | None
    approvals: tuple[Approval, ...] = ()
    interrupted: bool = False
    talks: bool = False
    """Whether a model answers here; else answers are looked up."""
    readonly: bool = False
    """It is a sub-agent's: there is nobody to talk to."""
    compactions: int = 0
    calls: int = 0
    files: tuple[str, ...] = ()
    """Names of uploads."""
    outputs: tuple[str, ...] = ()
    """Paths of what was made, without what only left the window."""


def _chat(use: Services, id: str, at: str | None, before: int | None, until: int | None) -> Chat:
    agent = use.agent_of(id)
    archive, harness = use.harness.archive, use.harness
    info = (harness.threads.find(id) if harness.has_checkpoints else None) or ThreadInfo(id, agent=agent, archived_only=True)
    readonly, model = id.startswith(_SUBAGENT), harness.talks()
    waiting: tuple[Approval, ...] = ()
    broken = False
    if model and not readonly and until is None and not info.archived_only:
        talk = use.talk(id, agent)
        waiting, broken = talk.approvals(), talk.interrupted
    entries = entries_of(use.history(id), use.window(id), {one.call for one in waiting})
    summaries, calls = archive.summaries(id), use.calls.calls(id)
    view = chat_view(entries, summaries, at=at, before=before, until=until)
    outputs = _outputs(use, id) if not readonly else ()
    files = tuple(dict.fromkeys(name for entry in entries for name in entry.files))
    return Chat(
        info, view, _room(calls[-1]) if calls else None, waiting, broken, model, readonly, len(summaries), len(calls), files, outputs
    )


def _outputs(use: Services, id: str) -> tuple[str, ...]:
    if not (use.harness.base / "threads" / thread_folder(id) / "user-data" / "outputs").is_dir():
        return ()  # to open a place for files only to find none in it takes long
    found = (one["path"] for one in files_list(use, id, "outputs").items if one["kind"] == "file")
    return tuple(path for path in found if not path.startswith("moved/"))[:_LISTED]


def _room(call: Call) -> Room:
    percent = round(100 * call.tokens / call.cap) if call.cap else 0
    label = f"{call.tokens:,} of {call.window:,} tokens were sent, {percent} % of what may be"
    sums = by_origin(call)
    return Room(call, drawing.gauge(sums, window=call.window, cap=call.cap, label=label), percent, tuple(sums.items()))


def by_origin(call: Call) -> dict[str, int]:
    """Tokens for each origin, in the order in which they were sent."""
    sums: dict[str, int] = {}
    for part in call.parts:
        sums[part.origin] = sums.get(part.origin, 0) + part.tokens
    return sums


def _run(use: Services, id: str) -> Run | None:
    return next(iter(use.turns.of_thread(id)), None)


def _title(chat: Chat, running: Run | None) -> str:
    """What the conversation is called: its title, or its first words."""
    if chat.info.title:
        return chat.info.title
    said = [entry.text for block in chat.view.blocks for entry in (block.entries if isinstance(block, Fold) else (block,))]
    words = " ".join((said[0] if said else running.progress.said if running else "").split())
    return (words if len(words) <= 80 else f"{words[:80].rpartition(' ')[0]} …") or chat.info.id


@router.get("/threads/{id}")
async def thread_page(
    request: Request,
    use: Use,
    id: ThreadId,
    at: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
    before: Annotated[int | None, Query(ge=1)] = None,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """The chat: what was said, what a model still sees, and what can be done."""
    run = _run(use, id)
    running = run if run is not None and run.status == "running" else None
    chat = await asyncio.to_thread(_chat_or_new, use, id, at, before, running)
    values: dict[str, Any] = {"chat": chat, "run": run, "running": running, "live": live_entries(running.progress) if running else []}
    values |= {
        "notice": NOTICES.get(done, ""),
        "arguments": [json.dumps(redact(dict(one.args)), indent=2, ensure_ascii=False) for one in chat.approvals],
    }
    return await asyncio.to_thread(lambda: page(request, "thread.html", title=_title(chat, running), **values))


def _chat_or_new(use: Services, id: str, at: str | None, before: int | None, running: Run | None) -> Chat:
    """The conversation; of one whose first turn has just begun nothing is kept yet."""
    if running is not None and not running.progress.held:
        return Chat(ThreadInfo(id, agent=running.agent), ChatView((), 0), None, talks=use.harness.talks())
    return _chat(use, id, at, before, running.progress.held if running is not None else None)


@router.get("/threads/{id}/live")
async def thread_live(use: Use, id: ThreadId) -> Response:
    """The turn that runs, as it goes; ends with it."""
    run = _run(use, id)
    return StreamingResponse(_pictures(use, run), media_type=MEDIA_TYPE)


async def _pictures(use: Services, run: Run | None) -> AsyncIterator[bytes]:
    if run is None or run.status != "running":
        yield LIVE_END
        return
    with use.counted():
        clock = asyncio.get_running_loop()
        until = clock.time() + (_SHARED if use.streams > _MANY else _LONGEST)
        frames = run.stream.follow()
        while (left := until - clock.time()) > 0:
            try:
                data = await asyncio.wait_for(anext(frames), left)
            except StopAsyncIteration:
                yield LIVE_END
                return
            except TimeoutError:  # the page comes back by itself
                return
            if data.startswith(b":"):  # keep-alive
                yield data
                continue
            yield live_event(render("thread_live.html", running=run, live=live_entries(run.progress)))
            await asyncio.sleep(_PACE)


# what can be done


@router.post("/threads/{id}/send")
async def thread_send(request: Request, use: Use, id: ThreadId) -> Response:
    """Say something, with files or without; or only put files there."""
    form = await request.form(max_files=20)
    content = form.get("content")
    files = [one for one in form.getlist("files") if isinstance(one, UploadFile) and one.filename]
    taken = [await asyncio.to_thread(use.take_file, id, one.filename or "upload", one.file) for one in files]
    words = content if isinstance(content, str) else ""
    if taken and not words.strip():
        return _back(id, "uploaded")
    await use.say(id, with_uploads(words, taken))
    return _back(id)


@router.post("/threads/{id}/stop")
async def thread_stop(use: Use, id: ThreadId) -> Response:
    """Stop the turn that runs. What was said stays."""
    run = _run(use, id)
    if run is not None:
        await use.turns.cancel(run)
    return _back(id)


@router.post("/threads/{id}/resume")
async def thread_resume(use: Use, id: ThreadId) -> Response:
    """Go on with a turn that was broken off."""
    await use.go_on(id)
    return _back(id)


@router.post("/threads/{id}/decide")
async def thread_decide(
    use: Use,
    id: ThreadId,
    call: Annotated[str, Form(max_length=200)],
    verdict: Annotated[Literal["approve", "reject", "edit"], Form()],
    reason: Field = "",
    args: Field = "",
) -> Response:
    """Answer a call that waits; the turn goes on."""
    await use.decide(id, {call: Decision(verdict, reason, _arguments(args) if verdict == "edit" else None)})
    return _back(id)


def _arguments(text: str) -> dict[str, Any]:
    try:
        made = json.loads(text)
    except ValueError as error:
        raise InputError(f"these arguments are no JSON: {error}.", hint="Go back and mend them.") from error
    if not isinstance(made, dict):
        raise InputError("the arguments of a call are an object.", hint='Write them as {"name": value}.')
    return made


@router.post("/threads/{id}/branch")
def thread_branch(use: Use, id: ThreadId, at: Annotated[str, Form(max_length=128)] = "") -> Response:
    """A new conversation that begins as this one, up to a message."""
    return _back(use.known_talk(id).branch(at or None).thread, "branched")


@router.post("/threads/{id}/compact")
def thread_compact(use: Use, id: ThreadId) -> Response:
    """Shorten the window now."""
    done = use.known_talk(id).compact(force=True)
    return _back(id, "compacted" if done.outcome is not None and done.outcome.plan is not None else "short", "")


@router.post("/threads/{id}/title")
def thread_rename(use: Use, id: ThreadId, title: Annotated[str, Form(max_length=200)]) -> Response:
    """Give it a title."""
    use.known_talk(id).title = title
    return _back(id, "renamed", "")


@router.post("/threads/{id}/delete")
def thread_delete(use: Use, id: ThreadId) -> Response:
    """Remove a conversation with all that belongs to it."""
    use.agent_of(id)
    use.harness.threads.delete(id)
    return to("/threads")
