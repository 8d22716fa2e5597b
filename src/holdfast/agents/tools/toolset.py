"""Which tools an agent has: all of ours, or those that `tools` in config.yaml lists, with tools of the user's own (A10).

An entry names one of ours by its name or by `use` (the reference's paths are known), or anything importable: a LangChain tool, a function.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool

from holdfast.agents.tools.builtin import ThreadSandboxes
from holdfast.config.known_keys import nearest
from holdfast.errors import ConfigError, HoldfastError, NotImportable
from holdfast.imports import load_dotted

if TYPE_CHECKING:
    from holdfast.config.sections import Config, ToolConfig

_LOG = logging.getLogger("holdfast.tools")
_OURS = "holdfast.agents."

_SANDBOX_TOOLS = ("bash", "ls", "read_file", "write_file", "str_replace", "glob", "grep", "present_files", "view_image")
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {name: "holdfast.agents.tools.builtin" for name in _SANDBOX_TOOLS}
    | dict.fromkeys(("web_search", "web_fetch"), "holdfast.agents.web.web_tools")
)
"""Where each of our tools is made. `ask_clarification`, `write_todos`, `task` and those of memory and history come with middlewares."""

COMES_WITH_A_MIDDLEWARE = frozenset({"ask_clarification", "write_todos", "task", "search_history", "read_history"})
_OTHER_NAMES = {"present_file": "present_files"}


def open_sandboxes(config: Config) -> ThreadSandboxes:
    """The sandboxes of the threads of a configuration."""
    from holdfast.sandbox.local import open_sandbox

    return ThreadSandboxes(lambda thread: open_sandbox(config, thread))


def open_tools(
    config: Config,
    places: ThreadSandboxes,
    *,
    names: Collection[str] | None = None,
    groups: Collection[str] | None = None,
    commands: bool | None = None,
) -> list[BaseTool]:
    """The tools of a configuration. `names` and `groups` leave only those; `commands=False` leaves out bash.

    Without `tools` in the configuration they are all of ours; bash only where commands can be run, web_search only with a provider. Raises
    ConfigError for an entry that names nothing.
    """
    entries = [(entry.name, entry) for entry in config.tools] if config.tools else [(name, None) for name in BUILT_IN]
    runs = can_run_commands(config) if commands is None else commands
    made: dict[str, BaseTool] = {}
    for number, (name, entry) in enumerate(entries):
        if groups is not None and (entry is None or entry.group not in groups):
            continue
        tool = _made(number, name, entry, places, config)
        if tool is None or (tool.name == "bash" and not runs) or (names is not None and tool.name not in names):
            continue
        made[tool.name] = tool
    return list(made.values())


def can_run_commands(config: Config) -> bool:
    """Whether bash is to be offered: in bubblewrap, or on the host where the user allows that (A10)."""
    from holdfast.sandbox.local import commands_available

    return commands_available(config)


def _made(number: int, name: str, entry: ToolConfig | None, places: ThreadSandboxes, config: Config) -> BaseTool | None:
    use = entry.use if entry is not None else None
    settings = entry.arguments() if entry is not None else {}
    ours = _ours(name, use)
    if ours in COMES_WITH_A_MIDDLEWARE:
        return None
    if ours is not None:
        if ours == "view_image" and not any(model.supports_vision for model in config.models):
            return None
        maker: Callable[..., BaseTool | None] = load_dotted(f"{BUILT_IN[ours]}:{ours}", "the tool")
        return maker(settings) if ours.startswith("web_") else maker(places, settings)
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


def _ours(name: str, use: str | None) -> str | None:
    """Which of our tools an entry means, if any."""
    if use is not None:
        if not use.startswith(_OURS):
            return None
        name = use.replace(":", ".").rpartition(".")[2]
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
