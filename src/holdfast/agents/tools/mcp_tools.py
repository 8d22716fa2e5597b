"""Tools of MCP servers for agents and stages: one held session for each server in a process, however many agents use it (O5).

    servers = open_mcp(config)
    tools = servers.tools()      # starts what is not running yet; a server that cannot be had is reported and left out
    servers.close()

Names begin with the server's: `github_create_issue`. What a tool answers is text from outside, and passes the same limits as any other
result. A server that dies is started again by the next call; one that cannot be started is left alone for a while, longer each time.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from logging import WARNING
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from holdfast.agents.tools.toolset import BUILT_IN, COMES_WITH_A_MIDDLEWARE
from holdfast.clock import Clock, SystemClock
from holdfast.config.tool_sections import McpServer, ServerList, all_servers
from holdfast.errors import HoldfastError, StorageError, StoreUnavailable
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.knowledge.mcp_session import HeldSession, OfferedTool, address_of
from holdfast.text.normalise import strip_invisible, without_tags

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from holdfast.config.sections import Config

_WAITS = (2.0, 300.0)
_LONGEST_NAME, _LONGEST_DESCRIPTION, _LONGEST_RESULT = 64, 1_024, 2_000_000
_MOST_TOOLS = 128
_OURS = frozenset({*BUILT_IN, *COMES_WITH_A_MIDDLEWARE, "search_sources", "read_source", "find_quote", "search_knowledge"}) | frozenset(
    f"memory_{deed}" for deed in ("search", "add", "update", "remove", "read_block", "write_block")
)
"""Names that no tool of a server may take: a server called `web` with a tool `search` is no `web_search`."""


@dataclass(frozen=True, kw_only=True)
class McpServerDown(Event):
    """A server could not be started or reached, or ended while it was asked."""

    component: ClassVar[str] = "MCP"
    text: ClassVar[str] = "{server}: {reason} Its tools are not there until it is; tried again in {seconds} seconds at the earliest"
    level: ClassVar[int] = WARNING
    server: str
    reason: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class McpServerUp(Event):
    """A server is there, for the first time or again."""

    component: ClassVar[str] = "MCP"
    text: ClassVar[str] = "{server} is there with {tools} tools (start {starts})"
    server: str
    tools: int
    starts: int


@dataclass(frozen=True, kw_only=True)
class McpProblem(Event):
    """Something about the servers' settings or tools cannot be used."""

    component: ClassVar[str] = "MCP"
    text: ClassVar[str] = "{problem}"
    level: ClassVar[int] = WARNING
    problem: str


@dataclass(frozen=True)
class ServerState:
    """What is known of a server, for people: where it is, whether it is there, its tools by the names that agents call them."""

    name: str
    where: str
    state: str
    """`there`, `down` or `off`."""
    tools: tuple[str, ...] = ()
    problem: str = ""


class ToolServer:
    """One server with its session. Safe for many threads. Knows when it was last in vain to ask for it."""

    def __init__(self, name: str, settings: McpServer, *, clock: Clock, bus: Bus) -> None:
        self.name = name
        self.where = address_of(settings)
        self.settings = settings
        self.problem = ""
        self._session = HeldSession(settings, key=f"mcp.servers.{name}", start_seconds=settings.start_seconds)
        self._clock, self._bus = clock, bus
        self._try_again, self._wait = 0.0, _WAITS[0]
        self._starts = self._tools = 0

    def offered(self) -> list[OfferedTool]:
        """Its tools; the server is started if need be. StoreUnavailable, at once while it is left alone, when it cannot be had."""
        with self._asking(HoldfastError):
            found = self._session.offered()
        self._tools = len(found)
        self._answered()
        return found

    def call(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> str:
        """What a tool answers, in words. StorageError with the server's reason when it refuses, StoreUnavailable when it is not there."""
        with self._asking(StoreUnavailable):
            result = self._session.result(tool.name, arguments, again=tool.repeatable)
        return self._read(tool, result)

    async def acall(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> str:
        """As `call`, awaited; cancelled with who waits."""
        with self._asking(StoreUnavailable):
            result = await self._session.aresult(tool.name, arguments, again=tool.repeatable)
        return self._read(tool, result)

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def _asking(self, failure: type[HoldfastError]) -> Iterator[None]:
        """Around a question to the server: refused at once while it is left alone, and a failure is noted."""
        left = self._try_again - self._clock.monotonic()
        if left > 0 and not self._session.alive:
            raise StoreUnavailable(f"{self.problem} It is tried again in {left:.0f} seconds.", path=self.where, operation="connect")
        try:
            yield
        except failure as error:
            self._failed(error)
            raise

    def _read(self, tool: OfferedTool, result: CallToolResult) -> str:
        self._answered()
        said = words_of(result)
        if result.is_error:
            raise StorageError(said or f"{tool.name} failed and did not say why.", path=self.where, operation=tool.name)
        return said or f"{tool.name} is done; it answered nothing."

    def _answered(self) -> None:
        if self._session.starts != self._starts:
            self._starts = self._session.starts
            self._bus.emit(McpServerUp(server=self.name, tools=self._tools, starts=self._starts))
        self.problem, self._try_again, self._wait = "", 0.0, _WAITS[0]

    def _failed(self, error: HoldfastError) -> None:
        """Say what is wrong. A session that broke is opened again at once; a server that cannot be started is left alone for a while."""
        self.problem = error.message
        seconds = 0.0
        if isinstance(error, StorageError) and error.operation == "connect":
            seconds, self._wait = self._wait, min(2 * self._wait, _WAITS[1])
            self._try_again = self._clock.monotonic() + seconds
        self._bus.emit(McpServerDown(server=self.name, reason=error.message, seconds=seconds))


class McpTool(BaseTool):
    """A tool of a server. Its arguments may have any names, those that LangChain keeps for itself included."""

    handle_tool_error: Any = True
    _server: ToolServer = PrivateAttr()
    _offered: OfferedTool = PrivateAttr()

    @classmethod
    def of(cls, name: str, server: ToolServer, offered: OfferedTool) -> McpTool:
        also = {key: offered.schema[key] for key in ("required", "$defs", "additionalProperties") if key in offered.schema}
        schema = {"type": "object", "properties": dict(offered.inputs), **also}
        made = cls(name=name, description=_described(server, offered), args_schema=schema, metadata={"mcp_server": server.name})
        made._server, made._offered = server, offered
        return made

    def _run(self, /, **arguments: Any) -> str:
        with _told():
            return self._server.call(self._offered, arguments)

    async def _arun(self, /, **arguments: Any) -> str:
        with _told():
            return await self._server.acall(self._offered, arguments)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except HoldfastError as error:
        raise ToolException(f"Error: {error}") from error


class McpServers:
    """The servers of a configuration, shared with whoever else in the process names the same ones."""

    def __init__(self, found: ServerList, servers: Sequence[ToolServer], *, bus: Bus, problems: Iterable[str] = ()) -> None:
        self._found = found
        self._servers = tuple(servers)
        self._bus = bus
        self.problems = (*found.problems, *problems)
        self._made: dict[str, list[McpTool]] = {}
        self._closed = False

    def tools(self) -> list[BaseTool]:
        """The tools of all servers that can be had; those that are not running are started, all at once. The others are reported."""
        if not self._servers:
            return []
        with ThreadPoolExecutor(len(self._servers), thread_name_prefix="holdfast-mcp-start") as pool:
            made = list(pool.map(self._tools_of, self._servers))
        found: dict[str, BaseTool] = {}
        for tool in (tool for tools in made for tool in tools):
            if tool.name in found:
                self._bus.emit(McpProblem(problem=f"two servers have a tool {tool.name}; that of the first is used."))
            found.setdefault(tool.name, tool)
        return list(found.values())

    def _tools_of(self, server: ToolServer) -> list[McpTool]:
        try:
            offered = server.offered()
        except HoldfastError:
            return []  # the event says why
        made = tools_of(server, offered)
        left_out = len([one for one in offered if _wanted(server, one)]) - len(made)
        if left_out:
            self._bus.emit(McpProblem(problem=f"{server.name}: {left_out} of its tools are left out: no name or schema, or too many."))
        self._made[server.name] = made
        return made

    @property
    def approvals(self) -> tuple[str, ...]:
        """The tools that wait for a person, by the names or patterns that `approve` of their servers gives."""
        return tuple(_called(server.name, name) for server in self._servers for name in server.settings.approve)

    def states(self) -> list[ServerState]:
        """What is known of each server after it was asked for its tools."""
        self.tools()
        made = {server.name: tuple(tool.name for tool in self._made.get(server.name, ())) for server in self._servers if not server.problem}
        there = [
            ServerState(one.name, one.where, "down" if one.problem else "there", made.get(one.name, ()), one.problem)
            for one in self._servers
        ]
        return [*there, *(ServerState(name, self._found.origins.get(name, ""), "off") for name in self._found.disabled)]

    def close(self) -> None:
        """Let go of the servers. One that nobody uses any more is ended, if we started it."""
        if not self._closed:
            self._closed = True
            for server in self._servers:
                _let_go(server)


def open_mcp(config: Config, *, clock: Clock | None = None, bus: Bus | None = None) -> McpServers:
    """The servers of a configuration and of the reference's file beside it. Nothing is started yet. Close it when done."""
    bus = bus or process_bus
    found = all_servers(config)
    problems: list[str] = []
    servers: list[ToolServer] = []
    if found.enabled and importlib.util.find_spec("mcp") is None:
        problems.append("the tools of MCP servers need the extra: install holdfast[mcp].")
        found = ServerList({}, (*found.disabled, *found.enabled), found.origins, found.problems)
    for name, settings in found.enabled.items():
        try:
            servers.append(_hold(name, settings, clock or SystemClock(), bus))
        except HoldfastError as error:  # a variable that is not set, a setting that does not fit
            problems.append(f"the MCP server {name} is left out: {error}")
    for problem in (*found.problems, *problems):
        bus.emit(McpProblem(problem=problem))
    return McpServers(found, servers, bus=bus, problems=problems)


# One session for each server in a process.

_held: dict[tuple[Any, ...], list[Any]] = {}
_holding = threading.Lock()


def _hold(name: str, settings: McpServer, clock: Clock, bus: Bus) -> ToolServer:
    form = tuple(repr(getattr(settings, member)) for member in type(settings).model_fields)
    key = (name, form, id(clock) if not isinstance(clock, SystemClock) else 0, id(bus))
    with _holding:
        if key not in _held:
            _held[key] = [ToolServer(name, settings, clock=clock, bus=bus), 0]
        _held[key][1] += 1
        server: ToolServer = _held[key][0]
        return server


def _let_go(server: ToolServer) -> None:
    with _holding:
        key = next(key for key, held in _held.items() if held[0] is server)
        _held[key][1] -= 1
        if _held[key][1]:
            return
        del _held[key]
    server.close()


# Their tools


def prefix_of(server: str) -> str:
    """The beginning of the names of a server's tools.

    >>> prefix_of("my files"), prefix_of("github")
    ('my_files', 'github')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "_", server).strip("_")[:32] or "mcp"


def _called(server: str, tool: str) -> str:
    """The name by which agents call a tool, never one of ours; stars of a pattern stay.

    >>> _called("github", "create issue"), _called("web", "search")
    ('github_create_issue', 'mcp_web_search')
    """
    name = f"{prefix_of(server)}_{re.sub(r'[^A-Za-z0-9_*-]+', '_', tool).strip('_')}"
    return (f"mcp_{name}" if name in _OURS else name)[:_LONGEST_NAME]


def tools_of(server: ToolServer, offered: Iterable[OfferedTool]) -> list[McpTool]:
    """The tools of a server that can be used: those that its settings want, with a name that is theirs alone and a schema of an object."""
    made: dict[str, McpTool] = {}
    for one in offered:
        name = _called(server.name, one.name.replace("*", "_"))
        if (
            re.search(r"\w", one.name)
            and _wanted(server, one)
            and name not in made
            and one.schema.get("type", "object") == "object"
            and len(made) < _MOST_TOOLS
        ):
            made[name] = McpTool.of(name, server, one)
    return list(made.values())


def _wanted(server: ToolServer, one: OfferedTool) -> bool:
    wanted = server.settings.tools
    return wanted is None or any(fnmatch.fnmatchcase(one.name, name) for name in wanted)


def _described(server: ToolServer, offered: OfferedTool) -> str:
    """What the server says of its tool: outside text, so it is short, without signs that nobody sees, and closes no frame of a prompt."""
    seen = "".join(sign for sign in " ".join(strip_invisible(offered.description).split()) if sign.isprintable())
    said = without_tags(seen)
    return said[:_LONGEST_DESCRIPTION] or f"The tool {offered.name} of the MCP server {server.name}."


def words_of(result: CallToolResult) -> str:
    """A result as text: what is text in it, a note for what is not, and the structured content where there is nothing else."""
    parts: list[str] = []
    for one in result.content:
        part: Any = one
        if part.type == "text":
            parts.append(part.text)
        elif part.type in ("image", "audio"):
            parts.append(f"({part.mime_type or part.type}, {len(part.data) * 3 // 4:,} bytes, which cannot be shown here)")
        elif part.type == "resource":
            text = getattr(part.resource, "text", None)
            parts.append(text if isinstance(text, str) else f"(the resource {part.resource.uri}, which is no text)")
        elif part.type == "resource_link":
            parts.append(f"(a link to {part.uri}: {part.name})")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts)[:_LONGEST_RESULT]
