"""`Config`: the whole configuration as one object, with an attribute for each section.

Here are the sections of models, sub-agents, sandbox, skills, title, server, logging and limits; those of summarization, memory, knowledge
and sessions are in `memory_sections.py`, those of tools and MCP servers in `tool_sections.py`.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from holdfast.config.memory_sections import Knowledge, Limit, Limits, Memory, Session, Summarization
from holdfast.config.migration import IGNORED, MODEL_ARGUMENTS
from holdfast.config.reading import Reading, base_directory, resolve
from holdfast.config.section import Amount, Count, Misfit, Notice, Number, Price, Seconds, Section, Strange, Text, Texts, Value
from holdfast.config.tool_sections import Mcp, ToolConfig, ToolGroup, denied_tools
from holdfast.config.trust import NOT_THERE, Trust
from holdfast.errors import ModelNotConfigured
from holdfast.redaction import redact, redact_text


class SubagentSettings(Section):
    """What differs for one type of sub-agent, built in or custom. What is left out is inherited (A2, A7)."""

    tolerated = IGNORED["subagents.agents"]

    model: Text | None = None
    thinking: bool | None = None
    max_turns: Count | None = None
    timeout_seconds: Seconds | None = None
    max_tokens: Count | None = None
    tools: Texts | None = None
    disallowed_tools: Texts | None = None
    skills: Texts | None = None


class CustomAgent(SubagentSettings):
    """A type of sub-agent of the user's own (A2)."""

    description: Text = ""
    system_prompt: Text = ""


class Subagents(Section):
    """How many sub-agents run at once and how long, and which types there are (A2, A7, A8)."""

    tolerated = IGNORED["subagents"]

    timeout_seconds: Seconds = 900.0
    max_turns: Count = 20
    max_concurrent: Count = 3
    max_tokens: Count = 200_000
    retain_days: Amount = 30
    agents: dict[str, SubagentSettings] = Field(default_factory=dict)
    custom_agents: dict[str, CustomAgent] = Field(default_factory=dict)


class Mount(Section):
    """A folder of the machine that commands see under another name."""

    host_path: Text
    container_path: Text
    read_only: bool = False


class Sandbox(Section):
    """Where commands run, what they may reach, and which tools wait for a person (A10)."""

    tolerated = IGNORED["sandbox"]
    spellings = MappingProxyType({"bash_command_timeout": "timeout_seconds", "memory_mib": "memory_mb"})

    use: Text | None = None
    allow_host_bash: bool = False
    network: bool = False
    approve: Texts = ()
    mounts: tuple[Mount, ...] = ()
    environment: dict[str, Value] = Field(default_factory=dict)
    timeout_seconds: Seconds = 600.0
    memory_mb: Count | None = 2048
    max_bytes: Count | None = 10 * 1024**3
    bash_output_max_chars: Amount = 20_000
    read_file_output_max_chars: Amount = 50_000
    ls_output_max_chars: Amount = 20_000


class Skills(Section):
    """Where skills are, and under which path agents see them (A12)."""

    tolerated = IGNORED["skills"]

    path: Text | None = None
    container_path: Text = "/mnt/skills"


class Title(Section):
    """The title of a conversation after its first exchange (A13)."""

    tolerated = IGNORED["title"]

    enabled: bool = True
    max_words: Count = 6
    max_chars: Count = 60
    model_name: Text | None = None


class Server(Section):
    """Where the HTTP API listens and who may use it (O3)."""

    strange: ClassVar[Strange] = "refused"

    host: Text = "127.0.0.1"
    port: Annotated[Amount, Field(le=65535)] = 8765
    token: Text | None = None
    cors: Texts = ()
    allowed_hosts: Texts = ()
    max_upload_bytes: Count = 52_428_800
    shutdown_seconds: Annotated[float, Field(ge=0, le=600)] = 10.0
    """How long turns and stages may take to come to an end when the server stops."""
    request_seconds: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """How long a request may take until its answer begins."""
    workflows: Text | None = None
    """A folder with workflow files that may be started by their names."""
    gateway_memory: bool = True
    """Whether what is known about the user is shown to the models behind `/v1`."""
    gateway_learn: bool = False
    """Whether what is said there is learned from."""


def _level(value: Any) -> Any:
    lowered = value.lower() if isinstance(value, str) else value
    return {"warn": "warning", "fatal": "critical"}.get(lowered, lowered) if isinstance(lowered, str) else lowered


class Logging(Section):
    """How much is logged and in which form (O2)."""

    tolerated = IGNORED["logging"]

    level: Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_level)] = "info"
    format: Literal["text", "json"] = "text"


class Pricing(Section):
    """What a million tokens cost."""

    spellings = MappingProxyType(
        {
            "input_per_million": "input",
            "output_per_million": "output",
            "input_cache_hit_per_million": "cache_read",
            "input_cache_write_per_million": "cache_write",
        }
    )

    input: Price = 0.0
    output: Price = 0.0
    cache_read: Price | None = None
    cache_write: Price | None = None
    currency: Text = "USD"


def _abilities(value: Any) -> Any:
    return dict.fromkeys(value, True) if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value) else value


class ModelConfig(Section):
    """One entry of `models`. Keys that are not named here go to the model class as they are (`arguments`)."""

    strange: ClassVar[Strange] = "passed on"
    tolerated = MODEL_ARGUMENTS

    name: Text
    display_name: Text | None = None
    description: Text | None = None
    use: Text | None = None
    model: Text | None = None
    path: Text | None = None
    base_url: Text | None = None
    api_key: Text | None = None
    max_tokens: Count | None = None
    temperature: Number | None = None
    timeout: Seconds | None = None
    max_retries: Amount | None = None
    max_input_tokens: Count | None = None
    context_window: Count | None = None
    pricing: Pricing | None = None
    lightweight: bool = False
    supports_thinking: bool = False
    supports_vision: bool = False
    supports_reasoning_effort: bool = False
    when_thinking_enabled: dict[str, Any] | None = None
    when_thinking_disabled: dict[str, Any] | None = None
    can: Annotated[dict[str, bool], BeforeValidator(_abilities)] | None = None
    fallbacks: Texts = ()
    max_concurrent: Count | None = None
    requests_per_minute: Seconds | None = None

    @property
    def window(self) -> int | None:
        """The tokens that the configuration says the model takes, or None when it says nothing (T3)."""
        return self.max_input_tokens or self.context_window

    def arguments(self, *, thinking: bool | None = None) -> dict[str, Any]:
        """What the model class is called with: our keys that it shares and all keys that are not ours, with environment values read now.

        `thinking` adds what `when_thinking_enabled` or `when_thinking_disabled` says.
        """
        given = {name: getattr(self, name) for name in _PASSED if self.written(name) is not None}
        given |= self.extras()
        if thinking is not None:
            extra = self.when_thinking_enabled if thinking else self.when_thinking_disabled
            given = _merged(given, resolve(extra or {}))
        return {name: value for name, value in given.items() if value is not None}


_PASSED = ("model", "base_url", "api_key", "max_tokens", "temperature", "timeout", "max_retries")


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, mapping by mapping."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


class Raw(dict[str, Any]):
    """What the file says, word for word, also in sections that nobody knows. Shown without secrets."""

    def __repr__(self) -> str:
        return repr(redact(dict(self)))


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise Misfit("must be a number or text", found=value)
    return value


class Config(Section):
    """What the user wrote, checked, with a working default for everything else. Made by `load_config`."""

    config_version: Annotated[Any, AfterValidator(_scalar)] = None
    holdfast_version: int = 1
    models: tuple[ModelConfig, ...] = ()
    summarization: Summarization = Summarization()
    memory: Memory = Memory()
    subagents: Subagents = Subagents()
    sandbox: Sandbox = Sandbox()
    skills: Skills = Skills()
    session: Session = Session()
    knowledge: Knowledge = Knowledge()
    mcp: Mcp = Mcp()
    server: Server = Server()
    logging: Logging = Logging()
    title: Title = Title()
    tools: tuple[ToolConfig, ...] = ()
    tool_groups: tuple[ToolGroup, ...] = ()
    limits: Limits = Limits()

    _file: Path | None = PrivateAttr(default=None)
    _base: Path = PrivateAttr(default_factory=lambda: base_directory(None, trusted=False)[0])
    _base_source: str = PrivateAttr(default_factory=lambda: base_directory(None, trusted=False)[1])
    _warnings: tuple[Notice, ...] = PrivateAttr(default=())
    _raw: Raw = PrivateAttr(default_factory=Raw)
    _reading: Reading = PrivateAttr(default_factory=lambda: Reading(None))
    _trust: Trust = PrivateAttr(default=NOT_THERE)

    def _come_from(self, *, file: Path | None, base: Path, base_source: str, raw: Raw, reading: Reading, trust: Trust) -> Config:
        self._file, self._base, self._base_source = file, base, base_source
        self._raw, self._reading, self._trust = raw, reading, trust
        return self

    @property
    def file(self) -> Path | None:
        """The file it was read from, or None when there is none."""
        return self._file

    @property
    def base(self) -> Path:
        """The folder that holds all state (C6). It is not made here."""
        return self._base

    @property
    def base_source(self) -> str:
        """Why the base directory is there, in words: `environment HOLDFAST_HOME`, `beside config.yaml`, `the user's data directory`."""
        return self._base_source

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What a person should know about the file, in the order of its lines."""
        return self._warnings

    @property
    def raw(self) -> Raw:
        """Everything the file says, before any upgrade; unknown sections are here and nowhere else."""
        return self._raw

    @property
    def reading(self) -> Reading:
        """The file's values after the upgrade, with their lines."""
        return self._reading

    @property
    def trust(self) -> Trust:
        """How far the file counts, and what of it does not (C1)."""
        return self._trust

    @property
    def denied_tools(self) -> tuple[str, ...]:
        """The tools that no agent has, whatever else is said: the reference's `guardrails` may name some."""
        return denied_tools(self._raw)

    def need(self, *keys: str) -> None:
        """Raise NotTrusted when the file says something at or below these keys that does not count. For whoever cannot do without it."""
        self._trust.check(self._file, *keys)

    def in_base(self, path: str) -> Path:
        """A path of a setting that is relative to the base directory, such as `memory.storage_path`."""
        return self.base / Path(path).expanduser()

    def beside(self, path: str) -> Path:
        """A path of a setting that is relative to the folder of the file, or to the working directory without one."""
        return (self.file.parent if self.file is not None else Path.cwd()) / Path(path).expanduser()

    def found_beside(self, path: str) -> Path | None:
        """What lies beside the file under this name, unless it is not there or does not count."""
        place = self.beside(path)
        return place if self._trust.beside and place.exists() else None

    def skills_in_use(self) -> Path | None:
        """The folder of the skills: `skills.path`, else `skills/` beside the file or in the base directory. None if there is none."""
        places = [self.beside(self.skills.path)] if self.skills.path else [self.found_beside("skills"), self.in_base("skills")]
        return next((place for place in places if place is not None and place.is_dir()), None)

    def model(self, name: str, *, setting: str | None = None) -> ModelConfig:
        """The model of this name, which `setting` names. Raises ModelNotConfigured, naming those that there are, or NotTrusted where the
        file's do not count."""
        for model in self.models:
            if model.name == name:
                return model
        self.need("models")
        known = ", ".join(model.name for model in self.models)
        hint = f"Configured are: {known}." if known else "No model is configured: add one to `models` in config.yaml."
        named = f", which `{setting}` names" if setting else ""
        raise ModelNotConfigured(f"there is no model named {redact_text(name)!r}{named}.", model=name, hint=hint)

    def side_models(self, used: ModelConfig | None = None) -> tuple[ModelConfig, ...]:
        """The models for side work when none is named, best first (S14): those marked `lightweight`, then by price, then the `used` one.

        Prices count where they can be compared: the model that is used (else the first) has one, and all are in one currency.
        """
        used = used or (self.models[0] if self.models else None)
        priced = [model for model in self.models if model.pricing is not None]
        currencies = {model.pricing.currency for model in priced if model.pricing is not None}
        by_price = sorted(priced, key=_price) if used is not None and used.pricing is not None and len(currencies) == 1 else []
        ordered = [*(model for model in self.models if model.lightweight), *by_price, *([used] if used is not None else [])]
        return tuple({model.name: model for model in ordered}.values())

    def run_limit(self) -> Limit:
        """What one run may use (T5)."""
        return self.limits.run.filled(self.limits)

    def session_limit(self) -> Limit:
        """What one session may use: `session.limits`, else `limits.session` (T5)."""
        return self.session.limits.filled(self.limits.session)


def _price(model: ModelConfig) -> float:
    return model.pricing.input + model.pricing.output if model.pricing is not None else float("inf")
