"""Conversations as pages: the list, the chat with what a model still sees of it, and the window of any call (A13, O4, S7).

A turn is followed while it runs. The window is drawn to scale, with the origin of each part and what changed since the call before;
compactions show what left it beside what it became.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from markupsafe import Markup
from starlette.datastructures import UploadFile

from holdfast.agents.agent_settings import agent_names
from holdfast.context.call_log import Call, Part
from holdfast.context.records import SummaryRecord
from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.sandbox.uploads import Upload
from holdfast.server.routes.chat_view import ChatView, Fold, chat_view, entries_of, live_entries
from holdfast.server.routes.html_pages import (
    LIVE_END,
    ORIGINS,
    Point,
    Refused,
    Segment,
    gauge,
    live_event,
    near,
    page,
    render,
    shrunk,
    step_chart,
    to,
    window_bar,
)
from holdfast.server.routes.memory_routes import Written
from holdfast.server.routes.threads_api import by_origin, files_list, part_text
from holdfast.server.runs import MEDIA_TYPE, Run
from holdfast.server.services import Services, ThreadId, Use
from holdfast.server.wire import thread_address
from holdfast.talk import Approval, Decision, ThreadInfo, with_uploads
from holdfast.text.normalise import call_lines
from holdfast.validation import counted, thread_folder

router = APIRouter(include_in_schema=False)
_LISTED = 50
_PACE = 0.08
"""Seconds between two pictures of a running turn: more often nobody sees."""
_MANY, _SHARED, _LONGEST = 4, 1.0, 3_600.0
"""A browser has six connections to a server. So that no page waits for one, further streams than so many end after a second, and their
pages ask again."""
_SUBAGENT = "subagent-"
_TITLE = 200
_PART = 16_000_000
"""Bytes of a message in a form with files; the length of a body is limited before."""
NOTICES = {
    "compacted": "The conversation is shorter now. What left is in the archive, word for word.",
    "short": "Nothing left the window: there is nothing in it that could be summarized.",
    "renamed": "The title is changed.",
    "branched": "This is a new conversation. The one it comes from stays as it is.",
    "kept": "What you uploaded is there already: name it in your message, it need not be sent again.",
    "uploaded": "The file is there. Say what is to be done with it.",
}
"""What is said after something was done; the address names it, never the words."""


@router.get("/threads")
async def threads_page(
    request: Request, use: Use, last: Annotated[int, Query(ge=1, le=5_000)] = _LISTED, subagents: bool = False
) -> Response:
    """All conversations, the one that was used last first."""
    return await _threads_page(request, use, last, subagents)


async def _threads_page(
    request: Request, use: Services, last: int = _LISTED, subagents: bool = False, refused: Refused | None = None
) -> Response:
    running = {run.thread for run in use.turns.running}

    def shown() -> Response:
        found = use.harness.conversations(subagents=subagents, last=last + 1)
        model = use.harness.talks()
        values: dict[str, Any] = {"agents": agent_names(use.harness.config) if model else [], "model": model, "running": running}
        values |= {"threads": found[:last], "more": last + _LISTED if len(found) > last else None, "subagents": subagents}
        return page(request, "threads.html", title="Threads", refused=refused, **values)

    return await asyncio.to_thread(shown)


@router.post("/threads")
async def threads_start(request: Request, use: Use, content: Written = "", agent: Annotated[str, Form(max_length=64)] = "") -> Response:
    """Begin a conversation with its first message. What is refused comes back with the reason."""
    try:
        new = await asyncio.to_thread(lambda: use.talk(None, agent or None))
        await use.say(new.thread, content, agent or None)
    except HoldfastError as error:
        return await _threads_page(request, use, refused=Refused("begin", error, {"content": content, "agent": agent}))
    return _back(new.thread)


def _back(thread: str, done: str = "", place: str = "end") -> Response:
    return to(f"/threads/{thread_address(thread)}" + (f"?done={done}" if done else "") + (f"#{place}" if place else ""))


# the chat


@dataclass(frozen=True)
class Chat:
    """All that the page of a conversation shows."""

    info: ThreadInfo
    view: ChatView
    room: Mapping[str, Any] | None
    approvals: tuple[Approval, ...] = ()
    interrupted: bool = False
    elsewhere: str | None = None
    """Who is at a turn of it now, if this server is not."""
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

    @property
    def changes(self) -> bool:
        """Whether it can be named and branched: who answers now, a model or none, is who held it."""
        return not self.readonly and not (self.info.archived_only if self.talks else self.view.windowed)


def _chat(use: Services, id: str, at: str | None, before: int | None, until: int | None) -> Chat:
    agent = use.agent_of(id)
    archive, harness = use.harness.archive, use.harness
    info = use.info(id) or ThreadInfo(id, archive.title(id) or "", agent=agent, archived_only=True)
    readonly, model = id.startswith(_SUBAGENT), harness.talks()
    waiting: tuple[Approval, ...] = ()
    broken, elsewhere = False, None
    if model and not readonly and until is None and not info.archived_only:
        talk = use.talk(id, agent)
        waiting, (elsewhere, broken) = talk.approvals(), use.standing_of(id, talk)
    entries = entries_of(use.history(id), use.window(id), {one.call for one in waiting})
    summaries, calls = archive.summaries(id), use.calls.calls(id)
    view = chat_view(entries, summaries, at=at, before=before, until=until)
    outputs = _outputs(use, id) if not readonly else ()
    files = tuple(dict.fromkeys(name for entry in entries for name in entry.files))
    known: dict[str, Any] = {"approvals": waiting, "interrupted": broken, "elsewhere": elsewhere, "talks": model, "readonly": readonly}
    known |= {"compactions": len(summaries), "calls": len(calls), "files": files, "outputs": outputs}
    return Chat(info, view, _room(calls[-1]) if calls else None, **known)


def _outputs(use: Services, id: str) -> tuple[str, ...]:
    if not (use.harness.base / "threads" / thread_folder(id) / "user-data" / "outputs").is_dir():
        return ()  # to open a place for files only to find none in it takes long
    found = (one["path"] for one in files_list(use, id, "outputs").items if one["kind"] == "file")
    return tuple(path for path in found if not path.startswith("moved/"))[:_LISTED]


def _room(call: Call) -> dict[str, Any]:
    """How full the window was at the newest call."""
    percent = round(100 * call.tokens / call.cap) if call.cap else 0
    label = f"{call.tokens:,} of {call.window:,} tokens were sent, {percent} % of what may be"
    sums = by_origin(call)
    drawn = gauge(sums, window=call.window, cap=call.cap, label=label)
    return {"call": call, "drawn": drawn, "percent": percent, "by_origin": tuple(sums.items())}


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
    return await _thread_page(request, use, id, at=at, before=before, notice=NOTICES.get(done, ""))


async def _thread_page(
    request: Request,
    use: Services,
    id: str,
    *,
    at: str | None = None,
    before: int | None = None,
    notice: str = "",
    refused: Refused | None = None,
) -> Response:
    run = _run(use, id)
    running = run if run is not None and run.status == "running" else None
    if running is not None and not running.progress.held:  # its first turn has just begun: nothing is kept yet
        chat = Chat(ThreadInfo(id, agent=running.agent), ChatView((), 0), None, talks=use.harness.talks())
    else:
        chat = await asyncio.to_thread(_chat, use, id, at, before, running.progress.held if running is not None else None)
    values: dict[str, Any] = {"chat": chat, "run": run, "running": running, "live": live_entries(running.progress) if running else []}
    values |= {
        "notice": notice,
        "calls": ["\n".join(call_lines(one.tool, one.args)) for one in chat.approvals],  # whole: `key=$(...)` hides no command
        "arguments": [json.dumps(dict(one.args), indent=2) for one in chat.approvals],
    }
    return await asyncio.to_thread(lambda: page(request, "thread.html", title=_title(chat, running), refused=refused, **values))


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
    """Say something, with files or without; or only put files there. What is refused comes back with the reason."""
    form = await request.form(max_files=20, max_part_size=_PART)
    content = form.get("content")
    files = [one for one in form.getlist("files") if isinstance(one, UploadFile) and one.filename]
    words = content if isinstance(content, str) else ""
    taken: list[Upload] = []
    try:
        for one in files:
            upload = await asyncio.to_thread(use.take_file, id, one.filename or "upload", one.file)
            taken.append(upload)
        if taken and not words.strip():
            return _back(id, "uploaded")
        await use.say(id, with_uploads(words, taken))
    except HoldfastError as error:
        return await _refused(request, use, id, Refused("send", error, {"content": words}), NOTICES["kept"] if taken else "")
    return _back(id)


async def _refused(request: Request, use: Services, id: str, refused: Refused, notice: str = "") -> Response:
    """The page of a conversation with what was refused; where there is no such conversation, that."""
    await asyncio.to_thread(use.agent_of, id)
    return await _thread_page(request, use, id, notice=notice, refused=refused)


@router.post("/threads/{id}/stop")
async def thread_stop(use: Use, id: ThreadId) -> Response:
    """Stop the turn that runs. What was said stays."""
    run = _run(use, id)
    if run is not None:
        await use.turns.cancel(run)
    return _back(id)


@router.post("/threads/{id}/resume")
async def thread_resume(request: Request, use: Use, id: ThreadId) -> Response:
    """Go on with a turn that was broken off."""
    try:
        await use.go_on(id)
    except HoldfastError as error:
        return await _refused(request, use, id, Refused("", error))
    return _back(id)


@router.post("/threads/{id}/decide")
async def thread_decide(
    request: Request,
    use: Use,
    id: ThreadId,
    call: Annotated[str, Form(max_length=200)],
    verdict: Annotated[Literal["approve", "reject", "edit"], Form()],
    reason: Written = "",
    args: Written = "",
) -> Response:
    """Answer a call that waits; the turn goes on."""
    try:
        await use.decide(id, {call: Decision(verdict, reason, _arguments(args) if verdict == "edit" else None)})
    except HoldfastError as error:
        waiting = await asyncio.to_thread(lambda: any(one.id == call for one in use.known_talk(id).approvals()))
        written = {"args": args} if verdict == "edit" else {"reason": reason}
        return await _refused(request, use, id, Refused("decide" if waiting else "", error, written, call))
    return _back(id)


def _arguments(text: str) -> dict[str, Any]:
    try:
        made = json.loads(text)
    except ValueError as error:
        raise InputError(f"these arguments are no JSON: {error}.", hint="Mend them, and send them again.") from error
    if not isinstance(made, dict):
        raise InputError("the arguments of a call are an object.", hint='Write them as {"name": value}.')
    return made


@router.post("/threads/{id}/branch")
async def thread_branch(request: Request, use: Use, id: ThreadId, at: Annotated[str, Form(max_length=128)] = "") -> Response:
    """A new conversation that begins as this one, up to a message."""
    try:
        new = await asyncio.to_thread(lambda: use.known_talk(id).branch(at or None))
    except HoldfastError as error:
        return await _refused(request, use, id, Refused("", error))
    return _back(new.thread, "branched")


@router.post("/threads/{id}/compact")
async def thread_compact(request: Request, use: Use, id: ThreadId) -> Response:
    """Shorten the window now."""
    try:
        done = await asyncio.to_thread(lambda: use.known_talk(id).compact(force=True))
    except HoldfastError as error:
        return await _refused(request, use, id, Refused("", error))
    return _back(id, "compacted" if done.outcome is not None and done.outcome.plan is not None else "short", "")


@router.post("/threads/{id}/title")
async def thread_rename(request: Request, use: Use, id: ThreadId, title: Written = "") -> Response:
    """Give it a title."""
    try:
        await asyncio.to_thread(_rename, use, id, title)
    except HoldfastError as error:
        return await _refused(request, use, id, Refused("title", error, {"title": title}))
    return _back(id, "renamed", "")


def _rename(use: Services, id: str, title: str) -> None:
    if not title.strip() or len(title) > _TITLE:
        raise InputError(f"a title has 1 to {_TITLE} characters.")
    use.known_talk(id).title = title


@router.post("/threads/{id}/delete")
async def thread_delete(request: Request, use: Use, id: ThreadId) -> Response:
    """Remove a conversation with all that belongs to it."""
    await asyncio.to_thread(use.agent_of, id)
    try:
        await asyncio.to_thread(lambda: use.harness.threads.delete(id))
    except HoldfastError as error:
        return await _refused(request, use, id, Refused("", error))
    return to("/threads")


_SHOWN = 1_500
"""Characters of a part that stand on the page; the message itself is one step away."""
_ORIGINALS = 200
"""Messages that left that one page shows."""
_COMPACTIONS = 20
HOW = {
    "model": "written by a model",
    "extract": "made of sentences of the originals, without a model",
    "reference": "no summary: a reference to the archive",
}


@router.get("/threads/{id}/calls")
def calls_page(request: Request, use: Use, id: ThreadId) -> Response:
    """The newest call; a page that says what to do where there is none."""
    use.agent_of(id)
    calls = use.calls.calls(id)
    if calls:
        return to(f"/threads/{thread_address(id)}/calls/{calls[-1].number}")
    return page(request, "no_calls.html", title="No calls yet", id=id, called=_name(use, id))


@router.get("/threads/{id}/calls/{number}")
def call_page(request: Request, use: Use, id: ThreadId, number: Annotated[int, Path(ge=1, le=1_000_000_000)]) -> Response:
    """What one call was sent."""
    agent = use.agent_of(id)
    calls = use.calls.calls(id)
    at = next((index for index, one in enumerate(calls) if one.number == number), None)
    if at is None:
        raise NotThere(f"there is no call {number} in this thread.", hint="The newest is at /threads/ID/calls.")
    call, before = calls[at], calls[at - 1] if at else None
    parts = _parts(use, id, agent, call, before)
    points = [Point(one.number, one.tokens, f"/threads/{thread_address(id)}/calls/{one.number}", _mark(one)) for one in calls]
    chart, top = step_chart(near(points, number), current=number, cap=call.cap, label="Tokens sent with each call")
    values: dict[str, Any] = {
        "id": id,
        "called": _name(use, id),
        "call": call,
        "parts": parts,
        "bar": _bar(call, parts),
        "origins": [(origin, ORIGINS.get(origin, origin), tokens) for origin, tokens in by_origin(call).items()],
        "step": _step(call, before) if before is not None else None,
        "chart": chart,
        "top": top,
        "calls": len(calls),
        "first": calls[0].number,
        "earlier": calls[at - 1].number if at else None,
        "later": calls[at + 1].number if at + 1 < len(calls) else None,
        "newest": calls[-1].number,
        "mark": _mark(call),
    }
    return page(request, "call.html", title=f"Window of call {number}", **values)


def _name(use: Services, id: str) -> str:
    info = use.info(id)
    return (info.title if info is not None else "") or id


def _mark(call: Call) -> str:
    if call.left:
        return f"{counted(len(call.left), 'message')} left the window"
    return "a summary was made" if call.how else ""


def _key(part: Part) -> tuple[str, str | None]:
    return part.origin, part.id


def _parts(use: Services, id: str, agent: str | None, call: Call, before: Call | None) -> list[dict[str, Any]]:
    """The parts of a request as the page shows them. `text` is None where the words are no longer kept, `number` is the place of a message
    in the conversation, and `new` is what was not in the call before."""
    whole = use.harness.whole_thread(id)
    numbers = {record.id: place for place, record in enumerate(use.history(id), 1)}
    known = {_key(part) for part in before.parts} if before is not None else set()
    found = []
    for index, part in enumerate(call.parts):
        text = part_text(use, id, agent, call, index, whole)
        shown = {"text": text[:_SHOWN] if text is not None else None, "cut": text is not None and len(text) > _SHOWN}
        number, new = numbers.get(part.id or ""), before is not None and _key(part) not in known
        found.append({"index": index, "part": part, "number": number, "new": new, **shown})
    return found


def _bar(call: Call, parts: Sequence[Mapping[str, Any]]) -> Markup:
    segments = []
    for one in parts:
        part, place = one["part"], f", message {one['number']}" if one["number"] is not None else ""
        label = f"{part.origin}: {ORIGINS.get(part.origin, part.origin)}{place}, {part.tokens:,} tokens"
        segments.append(Segment(part.origin, part.tokens, label, f"#p-{one['index']}"))
    said = f"{call.tokens:,} of {call.window:,} tokens in {counted(len(parts), 'part')}"
    return window_bar(segments, window=call.window, cap=call.cap, label=said)


def _step(call: Call, before: Call) -> dict[str, Any]:
    """What is different from the call before: what `came` and `went` as (origin, how many, tokens), what `grew` as (origin, tokens)."""
    old, new = {_key(part): part for part in before.parts}, {_key(part): part for part in call.parts}
    grew: Counter[str] = Counter()
    for key in old.keys() & new.keys():
        grew[key[0]] += new[key].tokens - old[key].tokens
    return {
        "number": before.number,
        "tokens": call.tokens - before.tokens,
        "came": _summed(part for key, part in new.items() if key not in old),
        "went": _summed(part for key, part in old.items() if key not in new),
        "grew": [(origin, tokens) for origin, tokens in grew.items() if tokens],
    }


def _summed(parts: Iterable[Part]) -> list[tuple[str, int, int]]:
    found, tokens = Counter[str](), Counter[str]()
    for part in parts:
        found[part.origin] += 1
        tokens[part.origin] += part.tokens
    return [(origin, count, tokens[origin]) for origin, count in found.items()]


# compactions


@router.get("/threads/{id}/compactions")
def compactions_page(request: Request, use: Use, id: ThreadId, last: Annotated[int, Query(ge=1, le=1_000)] = _COMPACTIONS) -> Response:
    """Each compaction, the newest first: what left and what it became."""
    use.agent_of(id)
    summaries = use.harness.archive.summaries(id)
    numbered = list(enumerate(summaries, 1))
    place = {one.id: number for number, one in numbered}
    calls = {message: call.number for call in use.calls.calls(id) for message in call.left}
    shown = [_compaction(use, id, number, one, place, calls) for number, one in numbered[-last:]]
    return page(
        request,
        "compactions.html",
        title="Compactions",
        id=id,
        called=_name(use, id),
        compactions=shown[::-1],
        total=len(summaries),
        more=last + _COMPACTIONS if len(summaries) > last else None,
        how=HOW,
        numbers={record.id: number for number, record in enumerate(use.history(id), 1)} if summaries else {},
    )


def _compaction(use: Services, id: str, number: int, one: SummaryRecord, place: dict[str, int], calls: dict[str, int]) -> dict[str, Any]:
    """One compaction: the summary, the originals that it stands for as far as they are kept, and the call that it was made for."""
    held = use.harness.archive.originals(id, one.covers)
    kept = [held[message] for message in one.covers if message in held]
    sizes = (one.tokens_before, one.tokens_after) if one.tokens_before is not None and one.tokens_after is not None else None
    return {
        "number": number,
        "summary": one,
        "originals": kept[:_ORIGINALS],
        "missing": len(one.covers) - min(len(kept), _ORIGINALS),
        "call": next((calls[message] for message in one.covers if message in calls), None),
        "drawn": shrunk(*sizes) if sizes else None,
        "saved": sizes[0] - sizes[1] if sizes else None,
        "previous": place.get(one.previous or ""),
    }
