"""One held session with an MCP server, used from ordinary code and from any event loop: by the store in `mcp.py`, and for tools of agents.

Starting a session costs most of a second, a call in one that is held a few milliseconds. So a thread with an event loop of its own holds
it, and calls come from any thread. A server that died is started or reached again by the next call.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from holdfast.config.tool_sections import McpConnection
from holdfast.errors import ConfigError, StorageError, StoreUnavailable
from holdfast.redaction import replace_secrets

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

Tool = Mapping[str, Any]
"""The members of a tool's input, by name, as JSON Schema."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """What it takes, as JSON Schema of an object."""
    repeatable: bool = False
    """Whether the server says that doing it twice does no more than doing it once."""

    @property
    def inputs(self) -> Tool:
        found = self.schema.get("properties")
        return found if isinstance(found, Mapping) else {}


_REFUSALS = frozenset({-32600, -32601, -32602, -32603})  # the server understood and said no: the connection is sound
_LOOKS = 10  # rounds of the loop in which the end of a connection goes from the pipe through the library's tasks
_CLOSING = 10.0
_CONNECTING = 30.0
_IDLE = 86_400.0  # seconds that a stream of events may be silent


def address_of(server: McpConnection) -> str:
    """Where a server is, for people: its address without any password or query, or its command."""
    if server.url:
        parts = urlsplit(server.url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "", ""))
    return " ".join([server.command or "", *server.args[:1]]).strip()


class HeldSession:
    """A session with the server. Safe for many threads. StoreUnavailable when it cannot be reached, StorageError when it says no."""

    def __init__(self, server: McpConnection, *, key: str = "knowledge.server", start_seconds: float | None = None) -> None:
        if not server.command and not server.url:
            raise ConfigError("the MCP server has neither a command nor an address.", key=key, hint="Give `command` or `url`.")
        self.where = address_of(server)
        self._server = server
        self._key = key
        self._timeout = server.timeout_seconds
        self._start = start_seconds or server.timeout_seconds
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._live: _Live | None = None
        self.starts = 0
        """How often a session was opened: more than once when the server died or broke off."""

    def tools(self) -> Mapping[str, Tool]:
        """The server's tools with what they take."""
        return {tool.name: tool.inputs for tool in self.offered()}

    def offered(self) -> list[OfferedTool]:
        """The server's tools as it describes them."""
        return list(self._connected().tools.values())

    @property
    def alive(self) -> bool:
        """Whether there is a session and the server has not ended it."""
        live = self._live
        return live is not None and not live.closed

    def call(self, tool: str, arguments: Mapping[str, Any], *, again: bool) -> Any:
        """What the tool answers: its structured content, else its text, read as JSON where it is that.

        When the connection breaks the call is made once more on a new one if `again` says that doing it twice does no harm.
        """
        return self._content(tool, self.result(tool, arguments, again=again))

    def result(self, tool: str, arguments: Mapping[str, Any], *, again: bool) -> CallToolResult:
        """What the tool answers, as the server sent it, errors included. Breaks as `call`."""
        for last in (False, True):
            live = self._connected()
            try:
                return self._run(live.call(tool, arguments), self._timeout + 5)  # type: ignore[no-any-return]  # what `call` returns
            except Exception as error:  # noqa: BLE001 - anyio, httpx and the SDK raise what they like; it means one of two things
                self._broken(live, tool, error, again=again, last=last)
        raise AssertionError("unreachable")

    async def aresult(self, tool: str, arguments: Mapping[str, Any], *, again: bool) -> CallToolResult:
        """As `result`, awaited. When the waiting is cancelled, so is the call."""
        for last in (False, True):
            live = await asyncio.to_thread(self._connected)
            try:
                return await asyncio.wait_for(asyncio.wrap_future(self._begun(live.call(tool, arguments))), self._timeout + 5)
            except Exception as error:  # noqa: BLE001 - as above
                await asyncio.to_thread(self._broken, live, tool, error, again=again, last=last)
        raise AssertionError("unreachable")

    def _broken(self, live: _Live, tool: str, error: Exception, *, again: bool, last: bool) -> None:
        """End a session that broke, and raise unless the call is to be made once more. A refusal is no break."""
        if getattr(error, "code", None) in _REFUSALS:
            raise StorageError(self._said(tool, str(error)), path=self.where, operation=tool) from None
        self._disconnect(live)
        harmless = again or isinstance(error, _NotSent)
        if last or not harmless:
            done = "" if harmless else " It is not known whether it was done."
            raise StoreUnavailable(
                f"the MCP server {self.where} did not answer {tool}: {_reason(error)}.{done}", path=self.where, operation=tool
            ) from None

    def close(self) -> None:
        """End the session, and the server if we started it."""
        with self._lock:
            if self._live is not None:
                self._disconnect(self._live)
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_CLOSING)
            if not thread.is_alive():
                loop.close()

    def _content(self, tool: str, result: CallToolResult) -> Any:
        texts = [part.text for part in result.content if part.type == "text"]
        if result.is_error:
            raise StorageError(self._said(tool, " ".join(texts)), path=self.where, operation=tool)
        if result.structured_content is not None:
            held: Any = result.structured_content
            if not isinstance(held, dict) or held.keys() != {"result"}:
                return held
            return _read(held["result"]) if isinstance(held["result"], str) else held["result"]  # the SDK wraps what is no object
        found = [_read(text) for text in texts]
        return found[0] if len(found) == 1 else found

    def _said(self, tool: str, said: str) -> str:
        return f"the MCP server {self.where} refused {tool}: {replace_secrets(' '.join(said.split()))[:500] or 'no reason given'}."

    def _connected(self) -> _Live:
        with self._lock:
            if self._live is not None and self._live.closed:  # it died while nobody asked: nothing was sent, so nothing is in doubt
                self._disconnect(self._live)
            if self._live is None:
                if self._loop is None:
                    self._loop = asyncio.new_event_loop()
                    self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-mcp", daemon=True)
                    self._thread.start()
                live = _Live(self._server)
                try:
                    self._run(live.open(), self._start)
                except Exception as error:  # noqa: BLE001 - as above: whatever it is, there is no session
                    with suppress(Exception):
                        self._run(live.close(), _CLOSING)
                    raise StoreUnavailable(
                        f"the MCP server {self.where} cannot be reached: {_reason(error)}{live.complaint}.",
                        path=self.where,
                        operation="connect",
                        hint=f"Is it running, and does `{self._key}` name it rightly?",
                    ) from None
                self._live = live
                self.starts += 1
            return self._live

    def _disconnect(self, live: _Live) -> None:
        with self._lock:
            if self._live is live:
                self._live = None
            with suppress(Exception):  # it is broken or no longer wanted: how it ends is of no interest
                self._run(live.close(), _CLOSING)

    def _begun(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        loop = self._loop
        if loop is None:
            work.close()
            raise ConnectionError("the session was closed")
        return asyncio.run_coroutine_threadsafe(work, loop)

    def _run(self, work: Coroutine[Any, Any, Any], timeout: float) -> Any:
        future = self._begun(work)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise


class _NotSent(ConnectionError):
    """The server had ended the connection before the call was made."""


class _Live:
    """A connection. It is opened and closed by one and the same task, as the library needs it."""

    def __init__(self, server: McpConnection) -> None:
        self._server = server
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._errors: IO[str] | None = None
        self.client: Client
        self.tools: dict[str, OfferedTool] = {}
        self.complaint = ""
        """The last line that the server wrote to its error output before it gave up."""

    @property
    def closed(self) -> bool:
        """Whether the other side has ended the connection, as far as the library lets us see."""
        return self._task is None or self._task.done() or bool(getattr(getattr(self.client.session, "_dispatcher", None), "_closed", False))

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        for _ in range(_LOOKS):  # the end of a server that has just died may still wait to be read on this loop
            await asyncio.sleep(0)
        if self.closed:
            raise _NotSent("the server has ended")
        return await self.client.call_tool(tool, dict(arguments), read_timeout_seconds=self._server.timeout_seconds)

    async def open(self) -> None:
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(ready))
        try:
            await ready
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def close(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSING / 2)
            if not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=_CLOSING / 2)
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                self.client = await self._connect(stack)
                cursor: str | None = None
                while True:
                    page = await self.client.list_tools(cursor=cursor)
                    self.tools |= {tool.name: _offered(tool) for tool in page.tools}
                    cursor = page.next_cursor
                    if cursor is None:
                        break
                ready.set_result(None)
                await self._stop.wait()
        except BaseException as error:  # handed to who waits; a task that nobody waits for any more ends quietly
            self.complaint = self._last_line()
            if not ready.done():
                ready.set_exception(error if isinstance(error, Exception) else ConnectionError(_reason(error)))
            elif isinstance(error, asyncio.CancelledError):
                raise

    async def _connect(self, stack: AsyncExitStack) -> Client:
        from mcp import Client, StdioServerParameters, stdio_client

        server = self._server
        if server.url and server.transport != "stdio":
            import httpx2
            from mcp.client.sse import sse_client
            from mcp.client.streamable_http import streamable_http_client

            headers = {**({"Authorization": f"Bearer {server.token}"} if server.token else {}), **server.headers}
            here = urlsplit(server.url).hostname in ("127.0.0.1", "::1", "localhost")  # a proxy of the machine is not for loopback

            def client(headers: Any = headers, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
                patience = timeout or httpx2.Timeout(_CONNECTING, read=server.timeout_seconds)
                return httpx2.AsyncClient(headers=headers, timeout=patience, auth=auth, trust_env=not here)

            if server.transport == "sse":
                reader = sse_client(server.url, headers=headers, sse_read_timeout=_IDLE, httpx_client_factory=client)
                return await stack.enter_async_context(Client(reader))
            http = await stack.enter_async_context(client())
            return await stack.enter_async_context(Client(streamable_http_client(server.url, http_client=http)))
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed with the connection
        environment = {name: str(value) for name, value in server.environment.items()} or None
        parameters = StdioServerParameters(command=server.command or "", args=list(server.args), env=environment, cwd=server.cwd)
        return await stack.enter_async_context(Client(stdio_client(parameters, errlog=self._errors)))

    def _last_line(self) -> str:
        if self._errors is None or self._errors.closed:
            return ""
        with suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = [line.strip() for line in self._errors.read()[-4000:].splitlines() if line.strip()]
            return f" ({replace_secrets(lines[-1])[:300]})" if lines else ""
        return ""


def _offered(tool: Any) -> OfferedTool:
    schema = tool.input_schema if isinstance(tool.input_schema, Mapping) else {}
    said = tool.annotations
    repeatable = bool(said is not None and (said.read_only_hint or said.idempotent_hint))
    return OfferedTool(tool.name, tool.description or "", schema, repeatable)


def _reason(error: BaseException) -> str:
    """What went wrong at the root of it, without secrets."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "it took too long"
    return replace_secrets(" ".join(str(error).split()))[:300].rstrip(".") or type(error).__name__


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
