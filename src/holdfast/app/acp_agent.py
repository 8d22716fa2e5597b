"""The lead agent for an editor, by the Agent Client Protocol over stdio (O1, A13). A session of the editor is a thread of ours.

    holdfast acp        # an editor such as Zed starts it, and it ends with its input

The folder that the editor has open is shown to the agent as `/mnt/project` (paths are translated both ways, so that the editor can open the
file that a call is about), and the session's mode says what may be done there: `read` (the default), `ask` (each change and each command
waits for the user's permission) or `write`. The MCP servers of the editor are added to those of the configuration. Everything that is not a
message of the protocol goes to standard error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit

from acp import (
    PROTOCOL_VERSION,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    SetSessionModeResponse,
    plan_entry,
    run_agent,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import (
    AgentCapabilities,
    Implementation,
    ListSessionsResponse,
    McpCapabilities,
    PermissionOption,
    PromptCapabilities,
    SessionCapabilities,
    SessionInfo,
    SessionInfoUpdate,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    ToolCallLocation,
    ToolCallUpdate,
)

from holdfast import __version__
from holdfast.config.sections import Mount
from holdfast.config.tool_sections import McpServer
from holdfast.context.records import MessageRecord
from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.harness import Harness, build
from holdfast.redaction import redact_text, without_paths
from holdfast.talk import (
    Approval,
    ApprovalNeeded,
    Content,
    Decision,
    Ended,
    ModelReplaced,
    Subagent,
    Talk,
    Token,
    ToolCalled,
    ToolFinished,
    TurnEvent,
)
from holdfast.text.normalise import call_lines, framed, inert_line, one_line, reveal
from holdfast.validation import check_thread

PROJECT = "/mnt/project"
"""Where the agent sees the folder that the editor has open."""
_KINDS = {
    "bash": "execute",
    "glob": "search",
    "grep": "search",
    "ls": "read",
    "read_file": "read",
    "read_history": "read",
    "search_history": "search",
    "str_replace": "edit",
    "task": "think",
    "view_image": "read",
    "web_fetch": "fetch",
    "web_search": "fetch",
    "write_file": "edit",
    "write_todos": "think",
}
_TITLE = 100


@dataclass(frozen=True)
class Project:
    """The folder of the editor; None where the agent does not see it."""

    folder: Path | None = None

    def on_this_machine(self, path: object) -> str | None:
        """The real path of one that the agent names below its project; None for any other."""
        if self.folder is None or not isinstance(path, str):
            return None
        parts = PurePosixPath(path).parts
        if parts[:3] != ("/", "mnt", "project") or ".." in parts:
            return None
        return str(self.folder.joinpath(*parts[3:]))

    def for_agent(self, uri: str) -> str:
        """A file that the editor names, as the agent can open it; anything else stays as it is."""
        place = urlsplit(uri)
        if self.folder is None or place.scheme not in ("", "file"):
            return uri
        path = Path(unquote(place.path))
        return f"{PROJECT}/{path.relative_to(self.folder).as_posix()}" if path.is_relative_to(self.folder) else uri


# What the editor sends


def message_of(blocks: Sequence[Any], project: Project) -> Content:
    """The message in a prompt: its text, the files that were attached with their text, links to others, and pictures."""
    texts: list[str] = []
    pictures: list[dict[str, Any]] = []
    for block in blocks:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "image":
            pictures.append({"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}})
        elif block.type == "resource_link":
            texts.append(f"[{inert_line(block.name)}]({inert_line(project.for_agent(block.uri))})")
        elif block.type == "resource" and hasattr(block.resource, "text"):
            texts.append(f"\n{framed('document', block.resource.text, path=project.for_agent(block.resource.uri))}\n")
        elif block.type == "resource":
            texts.append(f"[a file that is no text]({inert_line(project.for_agent(block.resource.uri))})")
    said = "".join(texts)
    return [*([{"type": "text", "text": said}] if said.strip() else []), *pictures] if pictures else said


# What happens


def call_begun(call: ToolCalled | Approval, project: Project, status: str = "in_progress") -> Any:
    """A tool is called. A change of a file of the project is shown as one."""
    id, name = (call.id, call.name) if isinstance(call, ToolCalled) else (call.call, call.tool)
    path = project.on_this_machine(call.args.get("path"))
    content = _change(name, call.args, path) if path is not None else None
    if content is None and isinstance(call, Approval):  # the title is short: what a person agrees to is shown whole
        content = [tool_content(text_block("\n".join(call_lines(name, call.args))))]
    return start_tool_call(
        id,
        title_of(name, call.args),
        kind=cast("Any", _KINDS.get(name, "other")),
        status=cast("Any", status),
        content=content,
        locations=[ToolCallLocation(path=path)] if path is not None else None,
        raw_input=json.loads(json.dumps(dict(call.args), ensure_ascii=False, default=str)),
    )


def call_ended(event: ToolFinished) -> Any:
    """A tool gave its result."""
    status = "failed" if event.status == "error" else "completed"
    return update_tool_call(event.id, status=cast("Any", status), content=[tool_content(text_block(event.text))])


def subagent_moved(event: Subagent) -> Any | None:
    """What a sub-agent does, at the call that started it; None for what needs no line."""
    told, call = event.event, str(event.event.get("call") or "")
    kind = str(told.get("type", ""))
    if not call or kind not in ("task_started", "task_running"):
        return None  # how it ended is the result of the call
    turn = f" (turn {told.get('turn')} of {told.get('max_turns')})" if kind == "task_running" else ""
    does = ", ".join(map(str, told.get("tools") or ())) or one_line(told.get("text") or "begins", 200)
    return update_tool_call(call, status="in_progress", content=[tool_content(text_block(f"{told.get('subagent_type')}{turn}: {does}"))])


def plan_of(call: ToolCalled) -> Any | None:
    """The agent's own list as a plan, when it writes it; None for any other call."""
    todos = call.args.get("todos") if call.name == "write_todos" else None
    if not isinstance(todos, list):
        return None
    known = [todo for todo in todos if isinstance(todo, Mapping) and todo.get("status") in ("pending", "in_progress", "completed")]
    return update_plan([plan_entry(str(todo.get("content", "")), status=todo["status"]) for todo in known])


def said_before(record: MessageRecord, project: Project) -> Iterator[Any]:
    """A message of an earlier turn, to be shown again."""
    if record.role == "human":
        yield update_user_message_text(record.said)
    elif record.role == "ai":
        if record.text.strip():
            yield update_agent_message_text(record.text)
        for call in record.tool_calls:
            begun = ToolCalled(str(call.get("id")), str(call.get("name")), call.get("args") or {})
            yield call_begun(begun, project)
    elif record.role == "tool" and record.tool_call_id:
        status = str(record.extras.get("status") or "success")
        yield call_ended(ToolFinished(record.tool_call_id, record.name or "", status, record.text))


def title_of(tool: str, args: Mapping[str, Any]) -> str:
    """A call on one line, with what cannot be seen written out: a person may have to agree to it."""
    values = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str) for value in args.values()]
    shown = values[0] if len(values) == 1 else ", ".join(f"{name}={value}" for name, value in zip(args, values, strict=True))
    return one_line(reveal(f"{tool} {shown}".strip()), _TITLE)


def _change(name: str, args: Mapping[str, Any], path: str) -> list[Any] | None:
    if name == "write_file" and not args.get("append"):
        return [tool_diff_content(path, str(args.get("content", "")))]
    if name == "str_replace":
        return [tool_diff_content(path, str(args.get("new_str", "")), str(args.get("old_str", "")))]
    return None


# The agent


Mode = Literal["read", "ask", "write"]
MODES: Mapping[Mode, tuple[str, str]] = {
    "read": ("Read", "The project can be read; nothing in it is changed."),
    "ask": ("Ask", "Each change of a file, each command and each tool of an MCP server waits for your permission."),
    "write": ("Write", "Files of the project are changed without asking."),
}
_CHANGING = ("bash", "str_replace", "write_file")
_LINE = 50 * 1024 * 1024
"""Bytes of one message of the protocol: a picture is one line."""
_STOPS = {"cancelled": "cancelled", "turn_capped": "max_turn_requests"}
_PERMISSIONS = (("once", "Allow", "allow_once"), ("always", "Allow for this session", "allow_always"), ("no", "Reject", "reject_once"))
_log = logging.getLogger("holdfast.acp")


@dataclass(frozen=True)
class AcpOptions:
    """What the command line says: whose memory and settings, which model, what may be done in the project at first (None: not shown)."""

    agent: str | None = None
    model: str | None = None
    mode: Mode | None = "read"


@dataclass
class _Session:
    """One conversation of the editor."""

    thread: str
    project: Project
    mode: Mode | None
    servers: dict[str, McpServer] = field(default_factory=dict)
    talk: Talk | None = None
    allowed: set[str] = field(default_factory=set)
    """Tools that the user allowed for the rest of the session."""
    title: str = ""


class AcpAgent:
    """Answers an editor. The connection calls its methods by the names of the protocol; `close` it when the editor has gone."""

    def __init__(self, harness: Harness, options: AcpOptions | None = None) -> None:
        self._harness, self._options = harness, options or AcpOptions()
        self._sessions: dict[str, _Session] = {}
        self._roots: dict[tuple[Any, ...], tuple[Harness, Talk]] = {}
        self._opening = asyncio.Lock()
        self._editor: Any = None

    def on_connect(self, conn: Any) -> None:
        """Whom to tell."""
        self._editor = conn

    def close(self) -> None:
        """Stop what runs, and let go of everything."""
        for session in self._sessions.values():
            if session.talk is not None:
                session.talk.close()
        for harness, root in self._roots.values():
            root.close()
            harness.close()

    # sessions

    async def initialize(self, protocol_version: int, **_: Any) -> Any:
        """What we can do."""
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=SessionCapabilities(list=SessionListCapabilities()),
            ),
            agent_info=Implementation(name="holdfast", title="Holdfast", version=__version__),
        )

    async def new_session(self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any) -> Any:
        """A new conversation."""
        with _told():
            session = await self._open(None, cwd, mcp_servers)
        return NewSessionResponse(session_id=session.thread, modes=_modes(session))

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any) -> Any:
        """A conversation of earlier, also one of `holdfast chat` or the server: all of it is shown again, then it goes on."""
        with _told():
            thread = check_thread(session_id)
            if thread not in await asyncio.to_thread(self._harness.thread_names):
                raise NotThere(f"there is no conversation {thread[:80]!r}.", hint="`holdfast threads` lists them.")
            session = await self._open(thread, cwd, mcp_servers)
            talk = await self._talk(session)
            for record in await asyncio.to_thread(talk.history):
                for update in said_before(record, session.project):
                    await self._editor.session_update(session.thread, update)
        return LoadSessionResponse(modes=_modes(session))

    async def list_sessions(self, cwd: str | None = None, **_: Any) -> Any:
        """The conversations, the newest first. They belong to no folder: the agent and its memory are the same in each."""
        with _told():
            found = await asyncio.to_thread(lambda: self._harness.conversations(last=200))
        here = cwd or str(Path.cwd())
        return ListSessionsResponse(
            sessions=[SessionInfo(session_id=one.id, cwd=here, title=one.title or None, updated_at=one.updated or None) for one in found]
        )

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> Any:
        """What may be done in the project from the next prompt on."""
        with _told():
            session = self._session(session_id)
            if mode_id not in MODES or session.mode is None:
                raise InputError(
                    f"there is no mode {mode_id[:40]!r} here.", hint=f"There are {', '.join(MODES)}, where a project is shown."
                )
            if mode_id != session.mode:
                session.mode, session.talk = cast("Mode", mode_id), None
        return SetSessionModeResponse()

    async def authenticate(self, **_: Any) -> None:
        """Nothing to do: the editor is the user."""

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the turn that is under way. What was said is kept."""
        session = self._sessions.get(session_id)
        if session is not None and session.talk is not None:
            session.talk.cancel()

    # a turn

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> Any:
        """Run a turn to its end, through the permissions that it stops for."""
        with _told():
            session = self._session(session_id)
            talk = await self._talk(session)
            events = talk.asend(message_of(prompt, session.project))
            while True:
                ended, waiting = await self._show(session, events)
                if not waiting:
                    break
                decisions = await self._decisions(session, waiting)
                if decisions is None:
                    return PromptResponse(stop_reason="cancelled")
                events = talk.adecide(decisions)
            title = await asyncio.to_thread(lambda: talk.title)
            if title and title != session.title:
                session.title = title
                await self._update(session, SessionInfoUpdate(session_update="session_info_update", title=title))
        return PromptResponse(stop_reason=cast("Any", _STOPS.get(ended.reason, "end_turn")))

    async def _show(self, session: _Session, events: AsyncIterator[TurnEvent]) -> tuple[Ended, tuple[Approval, ...]]:
        ended, waiting, heard = Ended("cancelled"), cast("tuple[Approval, ...]", ()), ""
        async for event in events:
            if isinstance(event, Token):
                heard += event.text
                await self._update(session, update_agent_message_text(event.text))
            elif isinstance(event, ToolCalled):
                heard = ""
                await self._update(session, call_begun(event, session.project))
                await self._update(session, plan_of(event))
            elif isinstance(event, ToolFinished):
                await self._update(session, call_ended(event))
            elif isinstance(event, Subagent):
                await self._update(session, subagent_moved(event))
            elif isinstance(event, ModelReplaced):
                broke = "\n\n" if heard else ""
                heard = ""
                await self._update(session, update_agent_message_text(f"{broke}({event.why} {event.by} answers instead.)\n\n"))
            elif isinstance(event, ApprovalNeeded):
                waiting = event.approvals
            else:
                ended = event
        if ended.text.strip() and not heard.strip() and ended.reason != "approval":  # a question, or why it was stopped
            await self._update(session, update_agent_message_text(ended.text))
        return ended, waiting

    async def _update(self, session: _Session, update: Any | None) -> None:
        if update is not None:
            await self._editor.session_update(session.thread, update)

    async def _decisions(self, session: _Session, waiting: Sequence[Approval]) -> dict[str, Decision] | None:
        """What the user says to each call; None if they stopped the turn instead."""
        decided: dict[str, Decision] = {}
        for one in waiting:
            if one.tool not in session.allowed:
                shown = call_begun(one, session.project, "pending").model_dump(exclude={"session_update"}, exclude_none=True)
                options = [PermissionOption(option_id=id, name=name, kind=cast("Any", kind)) for id, name, kind in _PERMISSIONS]
                answer = await self._editor.request_permission(
                    options=options, session_id=session.thread, tool_call=ToolCallUpdate(**shown)
                )
                chosen = getattr(answer.outcome, "option_id", None)
                if chosen is None:
                    return None
                if chosen == "always":
                    session.allowed.add(one.tool)
                if chosen not in ("once", "always"):
                    decided[one.id] = Decision("reject")
                    continue
            decided[one.id] = Decision("approve")
            await self._update(session, update_tool_call(one.call, status="in_progress"))
        return decided

    # which agent

    def _session(self, id: str) -> _Session:
        found = self._sessions.get(id)
        if found is None:
            raise NotThere(f"there is no session {id[:80]!r} here.", hint="Begin one with session/new, or load it.")
        return found

    async def _open(self, thread: str | None, cwd: str, servers: Sequence[Any] | None) -> _Session:
        project = Project(self._shown(cwd) if self._options.mode is not None else None)
        mode = self._options.mode if project.folder is not None else None
        session = _Session(thread or self._harness.ids.new("thread"), project, mode, servers_of(servers or ()))
        await self._talk(session)
        self._sessions[session.thread] = session
        return session

    def _shown(self, cwd: str) -> Path | None:
        """The folder, if it may be shown: not one that holds the state of Holdfast itself, with its keys and what it knows."""
        folder = Path(cwd).resolve()
        if not Path(cwd).is_absolute() or not folder.is_dir() or not self._harness.talks():
            return None
        if self._harness.base.resolve().is_relative_to(folder):
            _log.warning("%s holds the state of Holdfast, so the agent is not shown it. `sandbox.mounts` can show parts of it.", folder)
            return None
        return folder

    async def _talk(self, session: _Session) -> Talk:
        """The conversation of a session, with the agent for its project and mode."""
        if session.talk is None:
            key = (session.project.folder, session.mode, repr(sorted(session.servers.items())))
            async with self._opening:
                if key not in self._roots:
                    self._roots[key] = await asyncio.to_thread(self._root, session)
            session.talk = await asyncio.to_thread(self._roots[key][1].other, session.thread)
        return session.talk

    def _root(self, session: _Session) -> tuple[Harness, Talk]:
        config, mode = self._harness.config, session.mode
        sandbox, asks = config.sandbox, mode in ("read", "ask")
        if session.project.folder is not None:
            mount = Mount(host_path=str(session.project.folder), container_path=PROJECT, read_only=mode == "read")
            kept = tuple(one for one in sandbox.mounts if one.container_path.rstrip("/") != PROJECT)
            more = _CHANGING if mode == "ask" else ()
            sandbox = sandbox.model_copy(update={"mounts": (*kept, mount), "approve": tuple(dict.fromkeys((*sandbox.approve, *more)))})
        foreign = {name: one.model_copy(update={"approve": ("*",)}) if asks else one for name, one in session.servers.items()}
        mcp = config.mcp.model_copy(update={"servers": {**foreign, **config.mcp.servers}})
        harness = build(config.model_copy(update={"sandbox": sandbox, "mcp": mcp}), bus=self._harness.bus)
        try:
            return harness, harness.conversation(agent=self._options.agent, model=self._options.model)
        except BaseException:
            harness.close()
            raise


def _modes(session: _Session) -> Any | None:
    if session.mode is None:
        return None
    return SessionModeState(
        current_mode_id=session.mode,
        available_modes=[SessionMode(id=id, name=name, description=does) for id, (name, does) in MODES.items()],
    )


def servers_of(given: Sequence[Any]) -> dict[str, McpServer]:
    """The MCP servers of the editor as ours. Those that would be reached through the editor itself are left out."""
    found: dict[str, McpServer] = {}
    for one in given:
        if hasattr(one, "command"):
            values = {"command": one.command, "args": list(one.args), "environment": {pair.name: pair.value for pair in one.env}}
        elif hasattr(one, "url"):
            values = {"url": one.url, "transport": one.type, "headers": {pair.name: pair.value for pair in one.headers}}
        else:
            _log.warning("the MCP server %s is reached in a way that is not known here; it is left out.", one.name)
            continue
        found[one.name] = McpServer.model_validate(values)
    return found


@contextmanager
def _told() -> Iterator[None]:
    """Errors as the editor shows them: words, no path of ours, no secret. What nobody foresaw is in the log."""
    try:
        yield
    except RequestError:
        raise
    except HoldfastError as error:
        hint = f" {without_paths(redact_text(error.hint))}" if error.hint else ""
        code = -32002 if isinstance(error, NotThere) else -32602 if isinstance(error, InputError) else -32603
        raise RequestError(code, f"{error.public}{hint}", {"kind": type(error).__name__}) from error
    except Exception as error:
        _log.exception("a request of the editor failed")
        raise RequestError(-32603, f"{type(error).__name__}: the log on standard error has it.") from error


async def serve_editor(harness: Harness, options: AcpOptions | None = None) -> None:
    """Answer the editor on standard input and output until it goes. Whatever else is printed goes to standard error."""
    loop = asyncio.get_running_loop()
    wire = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    heard = asyncio.StreamReader(limit=_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(heard), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, wire)
    agent = AcpAgent(harness, options)
    try:
        await run_agent(cast("Any", agent), asyncio.StreamWriter(transport, protocol, None, loop), heard)
    finally:
        transport.close()
        await asyncio.to_thread(agent.close)
