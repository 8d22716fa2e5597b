"""Rules that look at more than one setting: what contradicts, what is missing, and what has no effect.

`effective_settings` is every setting as it holds now, with where it came from: a default, a line of the file, or the environment (C5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.config.migration import is_reference_path
from holdfast.config.reading import KeyPath, dotted, references, value_at
from holdfast.config.section import NoticeKind, Section, presentable
from holdfast.config.sections import Config
from holdfast.config.tool_sections import denied_tools, search_engine, search_needs
from holdfast.errors import ConfigError, InputError, MissingVariable
from holdfast.redaction import redact_text
from holdfast.validation import check_name, is_findable, nearest

Finding = tuple[NoticeKind, str, KeyPath]


def contradictions(config: Config) -> Iterator[ConfigError]:
    """Settings that cannot work together."""
    summarization = config.summarization
    if summarization.written("enabled") is True and not summarization.written("trigger"):
        yield _error(
            config,
            "is true without a `trigger`.",
            ("summarization", "enabled"),
            "Add one, for example `trigger: {type: fraction, value: 0.8}`.",
        )
    seen: dict[str, int] = {}
    for index, model in enumerate(config.models):
        name = model.written("name")
        if not isinstance(name, str):
            continue
        if name in seen:
            yield _error(
                config,
                f"the name is already that of models[{seen[name]}].",
                ("models", index, "name"),
                "Give each model a name of its own.",
            )
        seen.setdefault(name, index)
    knowledge, session = config.knowledge, config.session
    if knowledge.written("adapter") == "postgres" and knowledge.written("dsn") is None:
        yield _error(config, "the adapter postgres needs `knowledge.dsn`.", ("knowledge", "adapter"), "Add the address of the database.")
    server = knowledge.server
    if knowledge.written("adapter") == "mcp" and (server is None or (server.written("command") is None and server.written("url") is None)):
        yield _error(config, "the adapter mcp needs `knowledge.server` with a `command` or a `url`.", ("knowledge", "adapter"), "Add it.")
    if knowledge.written("adapter") == "langchain" and knowledge.written("use") is None:
        hint = "Add chroma, qdrant, or package.module:Class."
        yield _error(config, "the adapter langchain needs `knowledge.use`.", ("knowledge", "adapter"), hint)
    store = session.written("vector_store")
    addresses = [place.written("connection") for place in (session, store) if isinstance(place, Section)]
    if session.written("storage_backend") == "postgresql" and all(one is None for one in addresses):
        yield _error(config, "postgresql needs `session.connection`.", ("session", "storage_backend"), "Add the address of the database.")


def _error(config: Config, message: str, path: KeyPath, hint: str) -> ConfigError:
    return ConfigError(message, file=config.file, line=config.reading.line(path), key=dotted(path), hint=hint)


def without_effect(config: Config) -> Iterator[Finding]:
    """Settings that are valid and change nothing (C5)."""
    rules: tuple[tuple[KeyPath, Callable[[Config], bool], str], ...] = (
        (
            ("summarization", "trigger"),
            lambda c: c.summarization.written("enabled") is False,
            "without `enabled: true` no summarizer is called.",
        ),
        (("memory", "injection_enabled"), lambda c: c.memory.written("enabled") is False, "`memory.enabled` is false."),
        (("memory", "injection"), lambda c: c.memory.written("injection_enabled") is False, "`memory.injection_enabled` is false."),
        (("memory", "blocks"), lambda c: c.memory.written("mode") == "middleware", "blocks are for `mode: tool`."),
        (
            ("memory", "long_term_memory", "rerank_model"),
            lambda c: c.memory.long_term_memory.written("rerank") is False,
            "without `rerank: true` no model ranks the results again.",
        ),
        (
            ("knowledge", "rerank_model"),
            lambda c: c.knowledge.written("rerank") is False,
            "without `rerank: true` no model ranks the results again.",
        ),
        (
            ("knowledge", "dsn"),
            lambda c: c.knowledge.written("adapter") not in ("postgres", "langchain"),
            "only `adapter: postgres` and `adapter: langchain` use an address.",
        ),
        (("knowledge", "use"), lambda c: c.knowledge.written("adapter") != "langchain", "only `adapter: langchain` uses another class."),
        (("knowledge", "server"), lambda c: c.knowledge.written("adapter") != "mcp", "only `adapter: mcp` uses a server."),
        (
            ("session", "connection"),
            lambda c: c.session.written("storage_backend") == "file",
            "only `storage_backend: postgresql` uses a database address.",
        ),
        *(
            (
                ("session", "long", key),
                lambda c: c.session.written("checkpoint_interval") is None,
                "without `checkpoint_interval` every session has a recovery point after each stage.",
            )
            for key in ("after_stages", "after_seconds")
        ),
    )
    for path, is_idle, reason in rules:
        if config.reading.places.get(path) is not None and _at(config, path) and is_idle(config):
            yield "without-effect", f"has no effect: {reason}", path


def _at(config: Config, path: KeyPath) -> bool:
    """Whether the file says something there, not null or an empty list."""
    value: object = config
    for part in path:
        value = value.written(str(part)) if isinstance(value, Section) else None
    return value is not None and value not in ({}, ())


def unknown_models(config: Config) -> Iterator[Finding]:
    """Names of models that are not in `models`; using one is an error."""
    names = [model.written("name") for model in config.models]
    for path, name in _model_names(config):
        if isinstance(name, str) and name not in names:
            yield "unknown-model", f"there is no model named {redact_text(name)!r} in `models`.", path


def _model_names(config: Config) -> Iterator[tuple[KeyPath, object]]:
    for section in ("summarization", "memory", "title"):
        yield (section, "model_name"), config.written(section).written("model_name")
    for group in ("agents", "custom_agents"):
        for agent, settings in config.subagents.written(group).items():
            if settings.written("model") != "inherit":
                yield ("subagents", group, agent, "model"), settings.written("model")
    for index, model in enumerate(config.models):
        fallbacks = model.written("fallbacks")
        for place, name in enumerate(fallbacks if isinstance(fallbacks, list | tuple) else ()):
            yield ("models", index, "fallbacks", place), name


def unready_tools(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Tools that are offered and cannot work yet (A10)."""
    for index, tool in enumerate(config.tools):
        use = tool.written("use")
        settings = dict(tool.fields())
        engine = search_engine(use) or settings.get("provider")
        is_search = (
            search_engine(use) is not None or use == "holdfast.agents.tools:web_search" or (use is None and tool.name == "web_search")
        )
        if is_search and (engine is None or isinstance(engine, str)) and (needs := search_needs(engine, settings, environ)) is not None:
            yield "not-ready", f"web_search is offered and cannot work: {needs[0]}. {needs[1]}", ("tools", index)
        ours = use is None or (isinstance(use, str) and use.startswith("holdfast.agents."))
        extra = [key for key in settings if key not in type(tool).model_fields]
        if extra and not ours:
            told = f"{', '.join(extra)}: these keys reach the tool only if `use` names a class; a function or a finished tool gets none."
            yield "without-effect", told, ("tools", index)


_POLICIES: Mapping[str, str] = {
    "guardrails": "`sandbox.approve` names tools that wait for a person, `tools` those that there are",
    "authorization": "`sandbox.approve` names tools that wait for a person, `tools` those that there are",
    "token_budget": "`limits.tokens` stops a run, `subagents.max_tokens` a sub-agent",
}
_MIDDLEWARES = "`sandbox.approve` and `tools` limit what agents do; middlewares of your own go to `make_lead_agent(middleware=...)`"


def idle_policies(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """What of the reference limits its agents, is switched on, and is not carried out here, each with what does it here (C2)."""
    denied = denied_tools(raw)
    for name, instead in _POLICIES.items():
        section = raw.get(name)
        if not isinstance(section, Mapping) or section.get("enabled") is not True:
            continue
        if name == "guardrails" and denied:
            kept = f"is carried out as far as `denied_tools` goes: no agent has {', '.join(denied)}. Nothing else of it is"
            yield "policy", f"{kept}. In its place: {instead}.", (name,)
        else:
            yield "policy", f"is switched on and not carried out here. In its place: {instead}.", (name,)
    extensions = raw.get("extensions")
    if isinstance(extensions, Mapping) and extensions.get("middlewares"):
        yield "policy", f"are not run here. In their place: {_MIDDLEWARES}.", ("extensions", "middlewares")


SUBAGENT_TYPES = ("general-purpose", "bash")
"""The types of sub-agent that are there without a configuration."""
_RESOLVED_LATER = frozenset({"exact", "approximate", "file", "postgres", "postgresql"})


def subagent_names(config: Config) -> Iterator[Finding]:
    """Types of sub-agent that nobody has or that cannot have such a name: an agent cannot be made then (A2)."""
    custom = config.subagents.written("custom_agents")
    known = [*SUBAGENT_TYPES, *(str(name).lower() for name in custom)]
    for group in ("custom_agents", "agents"):
        for name in config.subagents.written(group):
            try:
                checked = check_name(name, "type of sub-agent")
            except InputError as error:
                yield "not-ready", f"{error.message} No agent can be made with it.", ("subagents", group, name)
                continue
            if checked not in known:
                near = nearest(checked, known)
                meant = f" Did you mean {near}?" if near else ""
                yield (
                    "not-ready",
                    f"there is no type of sub-agent {checked!r}, and no agent can be made with it.{meant}",
                    ("subagents", group, name),
                )


def missing_mounts(config: Config, file: str | None) -> Iterator[Finding]:
    """Folders that are to be mounted and are not there: every command fails then."""
    here = Path(file).parent if file is not None else Path.cwd()
    for index, mount in enumerate(config.sandbox.mounts):
        host = mount.written("host_path")
        if isinstance(host, str) and not (here / Path(host).expanduser()).is_dir():
            yield "not-ready", f"{host} is not a folder: every command and file tool fails.", ("sandbox", "mounts", index, "host_path")


def missing_modules(config: Config) -> Iterator[Finding]:
    """Class paths whose module cannot be found. Nothing is imported for it."""
    embedder = config.knowledge.written("embedder")
    paths: list[tuple[KeyPath, object]] = [
        (("memory", "storage_class"), config.memory.written("storage_class")),
        (("memory", "token_counter"), config.memory.written("token_counter")),
        (("summarization", "token_counter"), config.summarization.written("token_counter")),
        (("sandbox", "use"), config.sandbox.written("use")),
        (("knowledge", "embedder", "use"), embedder.written("use") if isinstance(embedder, Section) else None),
        (("knowledge", "adapter"), config.knowledge.written("adapter")),
        *((("tools", index, "use"), tool.written("use")) for index, tool in enumerate(config.tools)),
        *((("models", index, "use"), model.written("use")) for index, model in enumerate(config.models)),
    ]
    for path, value in paths:
        if isinstance(value, str) and value not in _RESOLVED_LATER and "." in value and not is_reference_path(value):
            module = value.partition(":")[0] if ":" in value else value.rpartition(".")[0]
            if re.fullmatch(r"[A-Za-z_][\w.]*", module) and not is_findable(module):
                yield "not-ready", f"the module {module} cannot be found: is it installed, and on the Python path?", path


def wrong_values(config: Config) -> Iterator[Finding]:
    """Settings whose variable is set, and says something that does not fit."""

    def look(section: Section, path: KeyPath) -> Iterator[Finding]:
        for name, value in section.fields():
            here = (*path, name)
            if isinstance(value, Section):
                yield from look(value, here)
            elif isinstance(value, Mapping):
                for key, item in value.items():
                    yield from look(item, (*here, key)) if isinstance(item, Section) else ()
            elif isinstance(value, list | tuple) and any(isinstance(item, Section) for item in value):
                for index, item in enumerate(value):
                    yield from look(item, (*here, index)) if isinstance(item, Section) else ()
            elif name in type(section).model_fields and any(references(value)):
                try:
                    getattr(section, name)
                except MissingVariable:  # told by itself
                    continue
                except ConfigError as error:
                    yield "not-ready", error.message, here

    yield from look(config, ())


def missing_variables(values: object) -> Iterator[tuple[str, str | None, int | None]]:
    """Variable, key and line of every environment value that cannot be read now (C3)."""
    for reference in references(values):
        for name in reference.missing():
            yield name, reference.key, reference.line


@dataclass(frozen=True)
class Source:
    """Where a setting comes from. `variables` are the environment variables it names, `missing` those that are not set."""

    kind: Literal["default", "file", "environment"]
    file: str | None = None
    line: int | None = None
    variables: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        if self.kind == "default":
            return "default"
        if self.kind == "file":
            return where or "given"
        names = ", ".join(f"{name} (not set)" if name in self.missing else name for name in self.variables)
        return f"environment {names}" + (f", {where}" if where else "")


@dataclass(frozen=True)
class Setting:
    """One setting: its key as it is written in errors, its value as it may be shown, and its source."""

    key: str
    value: Any
    source: Source
    is_default: bool = False
    """Whether it has the value that it would have if nobody had set it, written out or not."""


def effective_settings(config: Config) -> list[Setting]:
    """All settings of all sections, in the order of the sections, after the base directory."""
    file = str(config.file) if config.file is not None else None
    where = config.base_source
    variable = where.removeprefix("environment ") if where.startswith("environment ") else None
    source = Source("environment", variables=(variable,)) if variable else Source("file", file) if file else Source("default")
    return [Setting("base", str(config.base), source), *_settings(config, config, ())]


def _settings(config: Config, section: Section, path: KeyPath) -> Iterator[Setting]:
    for name, value in section.fields():
        if name not in type(section).model_fields and section.strange != "passed on":
            continue  # kept, but it has no effect; the warnings name it
        yield from _of_value(config, section, value, (*path, name))


def _of_value(config: Config, section: Section, value: Any, path: KeyPath) -> Iterator[Setting]:
    if isinstance(value, Section):
        yield from _settings(config, value, path)
    elif isinstance(value, list | tuple) and any(isinstance(item, Section) for item in value):
        for index, item in enumerate(value):
            yield from _of_value(config, section, item, (*path, index))
    elif isinstance(value, Mapping) and any(isinstance(item, Section) for item in value.values()):
        for key, item in value.items():
            yield from _of_value(config, section, item, (*path, key))
    else:
        source = _source(config, value, path)
        yield Setting(dotted(path), _shown(section, value, path), source, source.kind == "default" or _is_usual(section, value, path))


def _is_usual(section: Section, value: Any, path: KeyPath) -> bool:
    usual = type(section).model_fields.get(str(path[-1]))
    return usual is not None and not usual.is_required() and bool(value == usual.get_default(call_default_factory=True))


def _shown(section: Section, value: Any, path: KeyPath) -> Any:
    """The value for people. One from the environment is shown only where it cannot be a secret: a number, or true or false."""
    name = str(path[-1])
    if any(references(value)) and name in type(section).model_fields:
        try:
            now = getattr(section, name)
        except ConfigError:  # not set, or it does not fit: the source and the warnings say so
            now = None
        if isinstance(now, bool | int | float):
            return presentable(now, name)
    return presentable(value, name)


_ABSENT = object()


def _source(config: Config, value: Any, path: KeyPath) -> Source:
    reading = config.reading
    written = value_at(reading.values, path, _ABSENT)
    is_given = path in reading.keys if reading.keys else written is not _ABSENT
    if not is_given or (written is None and value is not None):  # `key:` with nothing after it means the default
        return Source("default")
    line = reading.line(path)
    found = list(references(value))
    if not found:
        return Source("file", reading.file, line)
    names = tuple(dict.fromkeys(name for reference in found for name in reference.names))
    missing = tuple(dict.fromkeys(name for reference in found for name in reference.missing()))
    return Source("environment", reading.file, line, names, missing)
