"""A turn in the words of the Agent Client Protocol: what an editor sends becomes a message, what happens updates its panel (A13).

Nothing here talks to anybody. The project of the editor is seen by the agent under `/mnt/project`; paths are translated both ways, so that
the editor can open the file that a call is about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from acp import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import ToolCallLocation

from holdfast.context.records import MessageRecord
from holdfast.talk import Approval, Content, Subagent, ToolCalled, ToolFinished
from holdfast.text.framing import framed, inert_line
from holdfast.text.normalise import one_line, reveal

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
    return start_tool_call(
        id,
        title_of(name, call.args),
        kind=cast("Any", _KINDS.get(name, "other")),
        status=cast("Any", status),
        content=_change(name, call.args, project),
        locations=_locations(call.args, project),
        raw_input=_plain(call.args),
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


def _plain(args: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(dict(args), ensure_ascii=False, default=str))


def _locations(args: Mapping[str, Any], project: Project) -> list[Any] | None:
    path = project.on_this_machine(args.get("path"))
    return [ToolCallLocation(path=path)] if path is not None else None


def _change(name: str, args: Mapping[str, Any], project: Project) -> list[Any] | None:
    path = project.on_this_machine(args.get("path"))
    if path is None:
        return None
    if name == "write_file" and not args.get("append"):
        return [tool_diff_content(path, str(args.get("content", "")))]
    if name == "str_replace":
        return [tool_diff_content(path, str(args.get("new_str", "")), str(args.get("old_str", "")))]
    return None
