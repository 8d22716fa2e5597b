"""`Config`: the whole configuration as one object, with an attribute for each section. The sections themselves are in `*_section(s).py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, PrivateAttr

from holdfast.config.agent_sections import Sandbox, Skills, Subagents, Title, ToolConfig, ToolGroup
from holdfast.config.memory_sections import Knowledge, Limit, Memory, Session, Summarization
from holdfast.config.model_section import ModelConfig
from holdfast.config.notices import Notice
from holdfast.config.reading import Reading
from holdfast.config.redaction import redact, redact_text
from holdfast.config.section import Section
from holdfast.config.service_sections import Limits, Logging, Server
from holdfast.config.wording import Misfit
from holdfast.errors import ModelNotConfigured


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
    server: Server = Server()
    logging: Logging = Logging()
    title: Title = Title()
    tools: tuple[ToolConfig, ...] = ()
    tool_groups: tuple[ToolGroup, ...] = ()
    limits: Limits = Limits()

    _file: Path | None = PrivateAttr(default=None)
    _base: Path = PrivateAttr(default_factory=lambda: Path.cwd() / ".holdfast")
    _base_source: str = PrivateAttr(default="default")
    _warnings: tuple[Notice, ...] = PrivateAttr(default=())
    _raw: Raw = PrivateAttr(default_factory=Raw)
    _reading: Reading = PrivateAttr(default_factory=lambda: Reading(None))

    def _come_from(
        self, *, file: Path | None, base: Path, base_source: str, warnings: tuple[Notice, ...], raw: Raw, reading: Reading
    ) -> Config:
        self._file, self._base, self._base_source = file, base, base_source
        self._warnings, self._raw, self._reading = warnings, raw, reading
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
        """Where the base directory comes from: `environment HOLDFAST_HOME`, `beside FILE`, or `default`."""
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

    def in_base(self, path: str) -> Path:
        """A path of a setting that is relative to the base directory, such as `memory.storage_path`."""
        return self.base / Path(path).expanduser()

    def beside(self, path: str) -> Path:
        """A path of a setting that is relative to the folder of the file, or to the working directory without one."""
        return (self.file.parent if self.file is not None else Path.cwd()) / Path(path).expanduser()

    def model(self, name: str) -> ModelConfig:
        """The model of this name. Raises ModelNotConfigured, naming those that there are."""
        for model in self.models:
            if model.name == name:
                return model
        known = ", ".join(model.name for model in self.models)
        hint = f"Configured are: {known}." if known else "No model is configured: add one to `models` in config.yaml."
        raise ModelNotConfigured(f"there is no model named {redact_text(name)!r}.", model=name, hint=hint)

    def lightweight_model(self) -> ModelConfig | None:
        """The model for side work when none is named (S14): the first marked `lightweight`, else the cheapest, else the first."""
        for model in self.models:
            if model.lightweight:
                return model
        priced = [model for model in self.models if model.pricing is not None]
        currencies = {model.pricing.currency for model in priced if model.pricing is not None}
        if len(currencies) == 1:  # prices in two currencies cannot be compared
            return min(priced, key=_price)
        return self.models[0] if self.models else None

    def run_limit(self) -> Limit:
        """What one run may use (T5)."""
        run = self.limits.run
        return Limit(
            tokens=run.tokens if run.tokens is not None else self.limits.tokens,
            cost=run.cost if run.cost is not None else self.limits.cost,
        )

    def session_limit(self) -> Limit:
        """What one session may use: `session.limits`, else `limits.session` (T5)."""
        own, common = self.session.limits, self.limits.session
        return Limit(
            tokens=own.tokens if own.tokens is not None else common.tokens,
            cost=own.cost if own.cost is not None else common.cost,
        )


def _price(model: ModelConfig) -> float:
    return model.pricing.input + model.pricing.output if model.pricing is not None else float("inf")
