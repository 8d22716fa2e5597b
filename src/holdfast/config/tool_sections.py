"""`tools`, `tool_groups` and `mcp`: which tools agents get (A10, O5). MCP servers of the reference's `extensions_config.json` too.

`all_servers` is the one place that says which MCP servers there are: those of `mcp.servers`, and those of the reference's file beside
config.yaml that have no namesake there. Nothing is started here. A tool of ours is named by `holdfast.agents.tools:NAME`, and made by
`agents/tools`; `search_needs` says what a web search cannot do without.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationError

from holdfast.config.reading import MAX_BYTES, Reading, mark
from holdfast.config.section import Misfit, Seconds, Section, Strange, Text, Texts, Value, plain_words
from holdfast.durable.folder import open_outside

if TYPE_CHECKING:
    from holdfast.config.sections import Config


class ToolConfig(Section):
    """One entry of `tools`. Keys that are not named here go to the tool as they are (`arguments`)."""

    strange: ClassVar[Strange] = "passed on"

    name: Text
    group: Text | None = None
    use: Text | None = None

    def arguments(self) -> dict[str, Any]:
        """The keys that are not ours, with environment values read now."""
        return self.extras()


class ToolGroup(Section):
    """A name under which tools are given to an agent together."""

    shorthand: ClassVar[str | None] = "name"

    name: Text


def denied_tools(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The tools that the reference's AllowlistProvider forbids by name: a plain list, which is kept to here as well."""
    place: Any = raw.get("guardrails")
    if not isinstance(place, Mapping) or place.get("enabled") is not True:
        return ()
    provider = place.get("provider")
    use, settings = (provider.get("use"), provider.get("config")) if isinstance(provider, Mapping) else (None, None)
    if not isinstance(use, str) or not use.endswith("AllowlistProvider") or not isinstance(settings, Mapping):
        return ()
    names = settings.get("denied_tools")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


# Web search


SEARCH_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tavily": ("TAVILY_API_KEY",),
        "brave": ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY"),
        "serper": ("SERPER_API_KEY",),
        "searxng": ("SEARXNG_URL",),
        "duckduckgo": (),
    }
)
"""The search engines that are known, each with the variables that may hold its key (SearXNG: its address)."""

_ENGINE = re.compile(r"holdfast\.agents\.tools[:.](\w+)_web_search", re.ASCII)


def search_engine(use: object) -> str | None:
    """The engine that a tool's path names, as `holdfast.agents.tools:tavily_web_search`; None where it names none, or is not yet known."""
    match = _ENGINE.fullmatch(use) if isinstance(use, str) else None
    return match[1] if match else None


def search_needs(engine: str | None, settings: Mapping[str, object], environ: Mapping[str, str]) -> tuple[str, str] | None:
    """What a web search cannot do without, and how to give it; None when nothing is missing. `engine` None is whichever has a key."""
    if engine is None:
        keys = [name for names in SEARCH_KEYS.values() for name in names]
        if settings.get("api_key") or settings.get("base_url") or any(environ.get(name) for name in keys):
            return None
        return "no search engine is set up", f"Set one of {', '.join(keys)}, or `provider: duckduckgo` with the package ddgs."
    if engine not in SEARCH_KEYS:
        return f"the search engine {engine} is not known here", f"Set `use: web_search` and `provider` to one of {', '.join(SEARCH_KEYS)}."
    if engine == "duckduckgo":
        return None if find_spec("ddgs") else ("the provider duckduckgo needs the package ddgs", "Install it: pip install ddgs.")
    if any(environ.get(name) for name in SEARCH_KEYS[engine]):
        return None
    if engine == "searxng":
        return None if settings.get("base_url") else ("the provider searxng needs its address", "Set `base_url`.")
    return None if settings.get("api_key") else (f"the provider {engine} needs a key", f"Set {SEARCH_KEYS[engine][0]}, or `api_key`.")


# MCP servers


EXTENSIONS = "extensions_config.json"
"""The reference's own name of the file."""

_TRANSPORTS = {"streamable_http": "http", "streamable-http": "http", "streamablehttp": "http", "streamable http": "http"}
_OF_THE_REFERENCE = frozenset({"description", "oauth", "routing", "tool_interceptors", "session_pool", "tool_call_timeout", "disabled"})
"""Keys of the reference's servers that have no effect here."""


def _transport(value: Any) -> Any:
    return _TRANSPORTS.get(value.lower(), value.lower()) if isinstance(value, str) else value


class McpConnection(Section):
    """How an MCP server is reached: a command that is started, or an address."""

    strange: ClassVar[Strange] = "refused"
    tolerated = _OF_THE_REFERENCE
    spellings = MappingProxyType({"env": "environment", "type": "transport"})

    command: Text | None = None
    args: Texts = ()
    environment: dict[str, Value] = Field(default_factory=dict)
    cwd: Text | None = None
    url: Text | None = None
    transport: Annotated[Literal["stdio", "http", "sse"], BeforeValidator(_transport)] | None = None
    token: Text | None = None
    headers: dict[str, Value] = Field(default_factory=dict)
    timeout_seconds: Seconds = 60.0


def _names(value: Any) -> Any:
    if value is True:
        return ("*",)
    if value is False or value is None:
        return ()
    if not isinstance(value, str | list | tuple):
        raise Misfit("must be true, false, or names of tools", found=value)
    return value


class McpServer(McpConnection):
    """One server whose tools agents get, under names that begin with the server's. `approve` names those that wait for a person."""

    enabled: bool = True
    tools: Texts | None = None
    approve: Annotated[Texts, BeforeValidator(_names)] = ()
    start_seconds: Seconds = 20.0


class Mcp(Section):
    """The servers by name, and the reference's file that may name more; an empty name leaves that out."""

    strange: ClassVar[Strange] = "refused"

    servers: dict[str, McpServer] = Field(default_factory=dict)
    extensions: Text = EXTENSIONS


@dataclass(frozen=True)
class ServerList:
    """The servers that are switched on, those that are not, and what could not be read, in words."""

    enabled: Mapping[str, McpServer] = field(default_factory=dict)
    disabled: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    """The file that names each of them."""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Settings that have no effect here and matter, in words."""


def all_servers(config: Config, environ: Mapping[str, str] | None = None) -> ServerList:
    """Every server that the configuration and the reference's file beside it name. A file that cannot be read is a problem, no error."""
    own = dict(config.mcp.servers)
    named = config.mcp.extensions
    file = config.found_beside(named) if named else None
    foreign, problems = read_extensions(file, environ) if file is not None else ({}, [])
    found = {**foreign, **own}
    origin = str(config.file) if config.file is not None else "the configuration"
    for name, server in found.items():
        if server.enabled and not _reachable(server):
            problems.append(f"the MCP server {name} has neither a `command` nor a `url`.")
    return ServerList(
        {name: server for name, server in found.items() if server.enabled and _reachable(server)},
        tuple(name for name, server in found.items() if not server.enabled),
        {name: origin if name in own else str(config.beside(named)) for name in found},
        tuple(problems),
        tuple(
            f"the MCP server {name}: `oauth` has no effect here. Give a `token`, or an `Authorization` in `headers`."
            for name, server in found.items()
            if server.enabled and _signs_in(server)
        ),
    )


def _signs_in(server: McpServer) -> bool:
    oauth = dict(server.fields()).get("oauth")
    return isinstance(oauth, Mapping) and bool(oauth) and oauth.get("enabled") is not False


def _reachable(server: McpServer) -> bool:
    return bool(server.written("command") or server.written("url"))


def read_extensions(path: Path, environ: Mapping[str, str] | None = None) -> tuple[dict[str, McpServer], list[str]]:
    """The servers of a file in the reference's form, `{"mcpServers": {NAME: {...}}}`, and what in it cannot be used."""
    if path.exists() and not path.is_file():
        return {}, [f"{path} is not a file."]
    try:
        with open_outside(path) as file:
            document = json.loads(file.read(MAX_BYTES))
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, RecursionError) as error:
        return {}, [f"{path} cannot be read: {type(error).__name__}."]
    servers = document.get("mcpServers", document.get("mcp_servers")) if isinstance(document, Mapping) else None
    if servers is None:
        return {}, []
    if not isinstance(servers, Mapping):
        return {}, [f"{path}: `mcpServers` must be a mapping of servers by their names."]
    reading = Reading(document, str(path))
    found: dict[str, McpServer] = {}
    problems: list[str] = []
    for name, settings in servers.items():
        try:
            found[str(name)] = _read(str(name), settings, reading, os.environ if environ is None else environ)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "it"
            problems.append(f"{path}: the MCP server {name} is left out: {where} {plain_words(first)}.")
    return found, problems


def _read(name: str, settings: Any, reading: Reading, environ: Mapping[str, str]) -> McpServer:
    """One server. Keys that are not ours are the reference's own, and are let be."""
    known = {*McpServer.model_fields, *McpServer.spellings, "oauth"}
    given = {key: value for key, value in settings.items() if key in known} if isinstance(settings, Mapping) else settings
    values = mark(given, ("mcpServers", name), reading, environ)
    if isinstance(values, Mapping):
        values = {McpServer.spellings.get(key, key): value for key, value in values.items()}
        if isinstance(settings, Mapping) and settings.get("disabled") is True:
            values["enabled"] = False
    return McpServer.model_validate(values)
