"""Which tools an agent has: all of ours, or those that `tools` in config.yaml lists, with tools of the user's own (A10).

An entry names one of ours by its name or by `use` (the reference's paths are known), or anything importable: a LangChain tool, a function.

The built-in tools work in the sandbox of a thread: bash, files, things to show (A5, A9, A10).
"""

from __future__ import annotations

import base64
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import ModelRequest
from langchain.tools import ToolRuntime
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.types import Command
from pydantic.json_schema import SkipJsonSchema

from holdfast.agents.middleware.base import AroundModelCall, files_thread
from holdfast.config.reading import references, resolve
from holdfast.config.tool_sections import search_engine
from holdfast.errors import ConfigError, HoldfastError, InputError, MissingVariable, NotImportable
from holdfast.sandbox import searching
from holdfast.sandbox.commands import Sandbox
from holdfast.sandbox.local import check_sandbox, commands_available, open_sandbox
from holdfast.sandbox.paths import quoted
from holdfast.validation import load_dotted, nearest

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.config.tool_sections import ToolConfig


_OPEN = 32  # an idle one holds three descriptors

Runtime = ToolRuntime[Any, Any]


@dataclass
class _Held:
    sandbox: Sandbox
    users: int = 0


class ThreadSandboxes:
    """The sandboxes of an agent's threads. Safe for many threads; one that is in use is never closed."""

    def __init__(self, open_sandbox: Callable[[str], Sandbox]) -> None:
        self._open = open_sandbox
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()

    @contextmanager
    def of(self, runtime: Any) -> Iterator[Sandbox]:
        """The sandbox for a call: that of its thread, or of the parent's thread in a sub-agent."""
        with self.named(files_thread(runtime) or "default") as sandbox:
            yield sandbox

    @contextmanager
    def named(self, thread: str) -> Iterator[Sandbox]:
        """The sandbox of a thread, held open while the block runs."""
        with self._lock:
            held = self._held.get(thread)
            if held is None:
                held = self._held[thread] = _Held(self._open(thread))
            self._held.move_to_end(thread)
            held.users += 1
        try:
            yield held.sandbox
        finally:
            with self._lock:
                held.users -= 1
                idle = [name for name, one in self._held.items() if one.users == 0]
                gone = [self._held.pop(name) for name in idle[: max(0, len(self._held) - _OPEN)]]
            for one in gone:
                one.sandbox.close()

    def close(self) -> None:
        """Close them all. What is running is stopped."""
        with self._lock:
            gone, self._held = list(self._held.values()), OrderedDict()
        for one in gone:
            one.sandbox.close()


def tool_of(function: Callable[..., Any], *, coroutine: Callable[..., Any] | None = None) -> BaseTool:
    """A tool from a function. An error of ours becomes a result that the model reads, also where no middleware of ours is around it."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _told():
            return function(*args, **kwargs)

    async def call_later(*args: Any, **kwargs: Any) -> Any:
        with _told():
            return await coroutine(*args, **kwargs) if coroutine is not None else None

    later = wraps(coroutine)(call_later) if coroutine is not None else None
    return StructuredTool.from_function(call, coroutine=later, handle_tool_error=True)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except HoldfastError as error:
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        raise ToolException(f"Error: {kind}{error}") from error


IMAGE_BYTES = 5_000_000
_KINDS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"))


class SandboxTools:
    """The tools that work in the sandbox of the thread that calls them. What a model reads of each is its own description."""

    def __init__(self, places: ThreadSandboxes, settings: Mapping[str, Any] | None = None) -> None:
        self._places = places
        self._most = (settings or {}).get("max_results")

    def tool(self, name: str) -> BaseTool:
        """One of them. Of bash there are two forms: a cancelled turn, or a sub-agent that is stopped, stops its command with it."""
        return tool_of(getattr(self, name), coroutine=self._bash_later if name == "bash" else None)

    def bash(self, runtime: Runtime, command: str, timeout_seconds: float | SkipJsonSchema[None] = None) -> str:
        """Run a bash command in /mnt/user-data/workspace. No network unless allowed, no input."""
        with self._places.of(runtime) as sandbox:
            return sandbox.run(command, timeout=timeout_seconds).text

    async def _bash_later(self, runtime: Runtime, command: str, timeout_seconds: float | None = None) -> str:
        with self._places.of(runtime) as sandbox:
            return (await sandbox.arun(command, timeout=timeout_seconds)).text

    def ls(self, runtime: Runtime, path: str = "/mnt/user-data/workspace", depth: int = 1) -> str:
        """List a folder, `depth` levels deep."""
        with self._places.of(runtime) as sandbox:
            return sandbox.files.ls(path, depth=depth).text or "The folder is empty."

    def read_file(self, runtime: Runtime, path: str, offset: int = 1, limit: int | SkipJsonSchema[None] = None) -> str:
        """Read a text file from line `offset` on, at most `limit` lines."""
        with self._places.of(runtime) as sandbox:
            found = sandbox.files.read(path, offset=offset, limit=limit)
        if not found.text:
            return "The file is empty."
        if not found.more:
            return found.text
        return f"{found.text.rstrip()}\n[The file goes on: read on with offset={found.first + found.lines}.]"

    def write_file(self, runtime: Runtime, path: str, content: str, append: bool = False) -> str:
        """Write a file, or with `append` add to its end. Missing folders are made."""
        with self._places.of(runtime) as sandbox:
            seen = sandbox.files.append(path, content) if append else sandbox.files.write(path, content)
        return f"{quoted(seen.path)} has {seen.size:,} bytes now."

    def str_replace(self, runtime: Runtime, path: str, old_str: str, new_str: str, replace_all: bool = False) -> str:
        """Replace a text in a file. `old_str` must stand there once, unless `replace_all`."""
        with self._places.of(runtime) as sandbox:
            count = sandbox.files.str_replace(path, old_str, new_str, every=replace_all)
        return f"Replaced {'once' if count == 1 else f'{count} times'} in {path}."

    def glob(self, runtime: Runtime, pattern: str, path: str = "/mnt/user-data") -> str:
        """Find files by name, for example `**/*.py`."""
        with self._places.of(runtime) as sandbox:
            return searching.glob(sandbox.files, pattern, path=path, limits=self._limits()).text or "Nothing fits."

    def grep(
        self,
        runtime: Runtime,
        pattern: str,
        path: str = "/mnt/user-data",
        include: str | SkipJsonSchema[None] = None,
        literal: bool = False,
        ignore_case: bool = False,
    ) -> str:
        """Find lines by a regular expression, or a `literal` text, in files below a folder. `include` limits names."""
        with self._places.of(runtime) as sandbox:
            found = searching.grep(
                sandbox.files, pattern, path=path, include=include, literal=literal, ignore_case=ignore_case, limits=self._limits()
            )
            return found.text

    def _limits(self) -> searching.SearchLimits | None:
        """How much one search gives, where the configuration says it (`max_results`)."""
        return searching.SearchLimits(lines=self._most, names=self._most) if self._most is not None else None

    def present_files(self, runtime: Runtime, filepaths: list[str]) -> Command[Any]:
        """Show files of /mnt/user-data/outputs to the user."""
        shown = []
        with self._places.of(runtime) as sandbox:
            for path in filepaths:
                found = sandbox.files.artifact(path)
                found.stream.close()
                shown.append(found.path)
        if not shown:
            raise InputError("there is nothing to show.", hint="Give at least one path.")
        text = f"Shown to the user: {', '.join(map(quoted, shown))}."
        said = ToolMessage(text, tool_call_id=str(runtime.tool_call_id), name="present_files")
        return Command(update={"artifacts": shown, "messages": [said]})

    def view_image(self, runtime: Runtime, path: str) -> Command[Any]:
        """Look at a picture file (PNG, JPEG, GIF or WebP)."""
        with self._places.of(runtime) as sandbox:  # the picture itself stays in its file; `ViewImagesMiddleware` sends it along
            seen = sandbox.files.stat(path)
            kind = image_type(sandbox.files.read_bytes(path, limit=IMAGE_BYTES))
        if kind is None:
            raise InputError(f"{seen.path} is no picture in a form that can be shown.", hint="Convert it to PNG first.")
        call = str(runtime.tool_call_id)
        said = ToolMessage(f"{quoted(seen.path)} ({kind}, {seen.size:,} bytes) is shown below.", tool_call_id=call, name="view_image")
        return Command(update={"viewed_images": {seen.path: {"media_type": kind, "call": call}}, "messages": [said]})


def image_type(data: bytes) -> str | None:
    """What kind of picture the bytes are, by their beginning; None when they are none that models take.

    >>> image_type(b"GIF89a...")
    'image/gif'
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _KINDS if data.startswith(start)), None)


class ViewImagesMiddleware(AroundModelCall):
    """Sends the pictures that the model asked to look at along, right behind the call that asked; never stored in the conversation (A10).

    A picture in a tool result is refused by many providers, and one in the state would be written into every checkpoint. So the state holds
    the path, and the picture is read from its file for each request of the turn that it was asked for in. Later requests name it only. Put
    it outside of whatever counts what is really sent.
    """

    def __init__(self, places: ThreadSandboxes) -> None:
        super().__init__()
        self._places = places

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, with the pictures where there are any."""
        return (yield self._with_pictures(request))

    def _with_pictures(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        state: Any = request.state
        viewed = state.get("viewed_images") or {}
        by_call = {str(seen.get("call")): path for path, seen in viewed.items() if isinstance(seen, Mapping)}
        asked = _asked_in_this_turn(request.messages, by_call)
        if not asked:
            return request
        thread = files_thread(request.runtime) or "default"
        messages = list(request.messages)
        for position, paths in sorted(asked.items(), reverse=True):
            messages.insert(position + 1, self._picture_message(thread, paths))
        return request.override(messages=messages)

    def _picture_message(self, thread: str, paths: Sequence[str]) -> HumanMessage:
        blocks: list[Any] = []
        for path in paths:
            blocks.append({"type": "text", "text": f"{path}:"})
            try:
                with self._places.named(thread) as sandbox:
                    data = sandbox.files.read_bytes(path, limit=IMAGE_BYTES)
            except HoldfastError as error:
                blocks.append({"type": "text", "text": f"(cannot be shown: {error.message})"})
                continue
            kind = image_type(data)
            if kind is None:
                blocks.append({"type": "text", "text": "(is no picture any more)"})
            else:
                blocks.append({"type": "image", "base64": base64.b64encode(data).decode("ascii"), "mime_type": kind})
        return HumanMessage(content_blocks=blocks, id=f"pictures-{abs(hash(tuple(paths))):x}")


def _asked_in_this_turn(messages: Sequence[AnyMessage], by_call: Mapping[str, str]) -> dict[int, list[str]]:
    """Where to put pictures: the position of the last tool result of each batch, with the paths that the batch asked for."""
    if not by_call:
        return {}
    found: dict[int, list[str]] = {}
    end, paths = None, []
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if isinstance(message, ToolMessage):
            end = position if end is None else end
            if message.tool_call_id in by_call and message.status != "error":
                paths.append(by_call[message.tool_call_id])
            continue
        if end is not None and paths:
            found[end] = list(reversed(paths))
        end, paths = None, []
        if isinstance(message, HumanMessage):
            break
    return found


_LOG = logging.getLogger("holdfast.tools")
_OURS = "holdfast.agents."

_SANDBOX_TOOLS = ("bash", "ls", "read_file", "write_file", "str_replace", "glob", "grep", "present_files", "view_image")
BUILT_IN = (*_SANDBOX_TOOLS, "web_search", "web_fetch")
"""The tools that are made here. `ask_clarification`, `write_todos`, `task` and those of memory and history come with middlewares."""

COMES_WITH_A_MIDDLEWARE = frozenset({"ask_clarification", "write_todos", "task", "search_history", "read_history"})
ALWAYS = ("present_files", "view_image")
"""Tools that an agent has whatever the list says: skills count on them. `view_image` is for models that see."""
_OTHER_NAMES = {"present_file": "present_files"}


def open_sandboxes(config: Config) -> ThreadSandboxes:
    """The sandboxes of the threads of a configuration. ConfigError, before any turn, where no such sandbox can be made."""
    check_sandbox(config)
    return ThreadSandboxes(lambda thread: open_sandbox(config, thread))


def open_tools(config: Config, places: ThreadSandboxes, *, commands: bool | None = None) -> list[BaseTool]:
    """The tools of a configuration; `commands=False` leaves out bash. Which of them an agent has, say its settings.

    Without `tools` in the configuration they are all of ours; bash only where commands can be run, web_search only with a provider.
    Whatever is listed, `present_files` and `view_image` are there. Raises ConfigError for an entry that names nothing.
    """
    entries: list[tuple[str, ToolConfig | None]] = [(entry.name, entry) for entry in config.tools] or [(name, None) for name in BUILT_IN]
    listed = [_ours(name, entry.use if entry is not None else None) for name, entry in entries]
    entries += [(name, None) for name in ALWAYS if name not in listed]
    made = [_made(number, name, entry, places, config) for number, (name, entry) in enumerate(entries)]
    runs = commands_available(config) if commands is None else commands
    return list({tool.name: tool for tool in made if tool is not None and (runs or tool.name != "bash")}.values())


SMALL_WINDOW = 16_000
_BASH_DOES = frozenset({"ls", "glob", "grep", "str_replace"})


def fitting(tools: Sequence[BaseTool], window: int) -> list[BaseTool]:
    """The tools to offer, where nobody listed them, in a window of this size (T4): in a small one bash does what it can do as well."""
    small = window < SMALL_WINDOW and any(tool.name == "bash" for tool in tools)
    return [tool for tool in tools if not (small and tool.name in _BASH_DOES)]


def _made(number: int, name: str, entry: ToolConfig | None, places: ThreadSandboxes, config: Config) -> BaseTool | None:
    use = entry.use if entry is not None else None
    ours = _ours(name, use)
    settings = _settings(entry, lenient=ours == "web_search") if entry is not None else {}
    if ours in COMES_WITH_A_MIDDLEWARE:
        return None
    if ours is not None:
        if ours == "view_image" and not any(model.supports_vision for model in config.models):
            return None
        if ours in _SANDBOX_TOOLS:
            return SandboxTools(places, _search_settings(number, ours, settings, config)).tool(ours)
        from holdfast.agents.tools import web_tools

        if ours == "web_search":
            return web_tools.web_search(settings, engine=search_engine(use), asked_for=entry is not None)
        return web_tools.web_fetch(settings)
    if use is None:
        known = [*BUILT_IN, *sorted(COMES_WITH_A_MIDDLEWARE)]
        raise ConfigError(
            f"there is no tool {name!r}.",
            file=config.file,
            line=config.reading.line(("tools", number)),
            key=f"tools[{number}].name",
            nearest=nearest(name, known),
            hint=f"Ours are {', '.join(known)}; for one of your own say `use: package.module:name`.",
        )
    return _imported(number, name, use, settings, config)


def _search_settings(number: int, name: str, settings: Mapping[str, Any], config: Config) -> Mapping[str, Any]:
    """What glob and grep are told. ConfigError for a number of results that is none."""
    most = settings.get("max_results") if name in ("glob", "grep") else None
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        where: Any = ("tools", number, "max_results")
        line, key = config.reading.line(where), f"tools[{number}].max_results"
        raise ConfigError("must be 1 or more.", file=config.file, line=line, key=key)
    return {"max_results": most}


def _settings(entry: ToolConfig, *, lenient: bool) -> dict[str, Any]:
    """What a tool is given. A `lenient` one does without values whose variable is not set, and says itself what it lacks."""
    try:
        return entry.arguments()
    except MissingVariable:
        if not lenient:
            raise
        whole = {name: value for name, value in entry.fields() if not any(one.missing() for one in references(value))}
        return {name: resolve(value) for name, value in whole.items() if name not in type(entry).model_fields}


def _ours(name: str, use: str | None) -> str | None:
    """Which of our tools an entry means, if any."""
    if use is not None:
        if not use.startswith(_OURS):
            return None
        name = "web_search" if search_engine(use) else use.replace(":", ".").rpartition(".")[2]
    name = _OTHER_NAMES.get(name, name)
    return name if name in BUILT_IN or name in COMES_WITH_A_MIDDLEWARE else None


def _imported(number: int, name: str, use: str, settings: Mapping[str, Any], config: Config) -> BaseTool | None:
    try:
        found = load_dotted(use, "the tool")
        if isinstance(found, type):
            found = found(**settings)
        tool = found if isinstance(found, BaseTool) else StructuredTool.from_function(found)
    except Exception as error:  # code of the user's own may raise anything; the agent works without that tool
        if isinstance(error, HoldfastError) and not isinstance(error, NotImportable):
            raise
        line = config.reading.line(("tools", number))
        _LOG.warning("the tool %s (%s, line %s) is left out: %s: %s", name, use, line, type(error).__name__, error)
        return None
    return tool if tool.name == name else tool.model_copy(update={"name": name})
