"""The agents of the stages of a run: those that ask the configured model, where there is one that is good enough (W12, W18, A15).

Also how a stage's code is run in the sandbox of its session, with or without a model that wrote it. No LangChain until a model is asked.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.clock import SystemClock, stamp
from holdfast.durable.replace import replace_text
from holdfast.errors import ModelNotConfigured, ModelTooWeak, SandboxError
from holdfast.models.abilities import abilities_of, keep_trial, kept_trial, trial, verdict
from holdfast.models.factory import create_chat_model, secrets_of, settings_of
from holdfast.models.providers import LLAMA_CPP
from holdfast.offline.panel import Coder, Ran, RunCode
from holdfast.sandbox.commands import Cancel, CommandResult, Sandbox
from holdfast.validation import load_dotted
from holdfast.workflow.agent import OFFLINE_AGENTS, StageAgent, StageRequest
from holdfast.workflow.control import StageApprovals

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.agents.stages.model_stage import Models, StageTools
    from holdfast.config.sections import Config


_LOG = logging.getLogger("holdfast.models")
_BY_EXTRACTION = ("planner", "researcher", "synthesizer", "writer", "llm")

PROGRAMS = {"python": ("program.py", "python3 program.py"), "bash": ("program.sh", "bash program.sh")}
"""For each language the file that code is written to, and the command that runs it."""


BASH = "bash"
"""The tool that running code counts as, where tools wait for a person."""


def code_call(language: str, code: str) -> dict[str, str]:
    """The running of code as the call of a tool: what a person is shown and asked about."""
    return {"command": PROGRAMS[language][1], "language": language, "code": code}


def run_code(open_sandbox: Callable[[str], Sandbox], approve: Collection[str] = ()) -> RunCode:
    """A way to run given code, for the coder that works without a model. It waits for a person where bash does (`approve`)."""

    def run(code: str, *, language: str, folder: Path, request: StageRequest) -> Ran:
        if language not in PROGRAMS:
            raise SandboxError(f"code in {language!r} cannot be run.", hint=f"Use {' or '.join(PROGRAMS)}.")
        answer = StageApprovals(request, approve).ask(BASH, code_call(language, code))
        if not answer.approved:
            return Ran(1, answer.said)
        with closing(open_sandbox(sandbox_thread(request))) as sandbox:
            ran = run_in(sandbox, request, language, code)
        failed = ran.exit_code if ran.exit_code is not None else 1
        return Ran(failed, ran.text, timed_out=ran.ending == "timed_out")

    return run


def sandbox_thread(request: StageRequest) -> str:
    """The name of the thread whose folders the code of a session sees. Long session ids are shortened, and stay apart."""
    name = f"session-{request.session_id}"
    return name if len(name) <= 64 else f"{name[:51]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def run_in(sandbox: Sandbox, request: StageRequest, language: str, code: str) -> CommandResult:
    """Write the code beside the stage and into the sandbox, and run it there. It is stopped as soon as the run is to stop."""
    name, command = PROGRAMS[language]
    sandbox.files.write(name, code)
    replace_text(request.folder / name, code)
    cancel, done = Cancel(), threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            if request.cancelled():
                cancel.set()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        return sandbox.run(command, cancel=cancel)
    finally:
        done.set()
        watcher.join()


def stage_agents(
    config: Config,
    *,
    model: str | BaseChatModel | None = None,
    open_sandbox: Callable[[str], Sandbox] | None = None,
    environ: Mapping[str, str] | None = None,
    tools: StageTools | None = None,
    approve: Collection[str] | None = None,
) -> dict[str, StageAgent]:
    """Agents by type, for `run_workflow(agents=...)`. Only the coder that runs given code when extraction is to do the rest of the work,
    because no model is good enough.

    A model that is named is asked for what it can do, and the rest is done by extraction, which the output says. Without a name it is
    the first configured one, if its profile or its trial says that it can do such work. ModelNotConfigured and ModelTooWeak are about a
    named one. `tools` gives each stage further tools, of MCP servers for example. Tools named in `approve`, else in
    `sandbox.approve`, wait for a person (A10).
    """
    asks = tuple(config.sandbox.approve if approve is None else approve)
    if isinstance(model, str) and not abilities_of(settings_of(model, config=config, environ=environ)).can("json"):
        hint = "Leave `--model` out: extraction does the work then."
        raise ModelTooWeak(f"the model {model} cannot answer in a form.", model=model, hint=hint)
    chosen = model if model is not None else model_for_stages(config, environ=environ)
    if chosen is None:
        return {"coder": coder_without_model(config, open_sandbox), **_discussion_of_named(config, tools, asks)}
    return _agents(_models(config, chosen), config, open_sandbox, {"outside": tools, "approve": asks})


def coder_without_model(config: Config, open_sandbox: Callable[[str], Sandbox] | None = None) -> StageAgent:
    """The coder that runs given code in the sandbox of the session, and writes none."""
    return Coder(sandbox=run_code(_sandboxes(config, open_sandbox), config.sandbox.approve))


def model_for_stages(config: Config, *, environ: Mapping[str, str] | None = None) -> str | None:
    """The name of the model that stages use when nobody names one; None when there is none that can extract."""
    try:
        settings = settings_of(None, config=config, environ=environ)
    except ModelNotConfigured:
        return None
    return settings.name if abilities_of(settings).can("extraction") else None


def _discussion_of_named(config: Config, tools: StageTools | None, approve: tuple[str, ...]) -> dict[str, StageAgent]:
    """Discussions whose participants name models of their own, where there is none that everybody uses."""
    if not config.models:
        return {}
    from holdfast.agents.stages.discussion import ModelDiscussion

    return {"discussion": ModelDiscussion(_models(config, None), outside=tools, approve=approve, config=config, has_usual=False)}


def _models(config: Config, usual: str | BaseChatModel | None) -> Models:
    """Makes each model once, when a stage first asks for it. Stages of a graph may ask at the same time."""
    made: dict[str, BaseChatModel] = {}
    lock = threading.Lock()

    def find(name: str | None) -> BaseChatModel:
        wanted = name if name is not None else usual
        if wanted is None:
            raise ModelNotConfigured("no configured model is good enough for stages that name none.", hint="Name one: `model:`.")
        if not isinstance(wanted, str):
            return wanted
        with lock:
            if wanted not in made:
                made[wanted] = _tried(wanted, config)
            return made[wanted]

    return find


def _tried(name: str, config: Config) -> BaseChatModel:
    """The model of this name. Weights that run here and were never tried are tried first, once; what they fail they are not asked (A15)."""
    model, settings = create_chat_model(name, config=config), settings_of(name, config=config)
    if settings.use != LLAMA_CPP or kept_trial(settings, config.base) is not None or not abilities_of(model).can("extraction"):
        return model
    _LOG.warning("the model %s is tried once, to know what it can be asked; `holdfast models test %s` does it again", name, name)
    can = verdict(list(trial(model, name, secrets_of(settings))))
    if can is None:
        return model
    keep_trial(settings, config.base, can, at=stamp(SystemClock().now()))
    return create_chat_model(name, config=config)


def _agents(models: Models, config: Config, open_one: Callable[[str], Sandbox] | None, tools: dict[str, Any]) -> dict[str, StageAgent]:
    """An agent for each type. `tools` has what is offered to all of them, and what waits for a person."""
    from holdfast.agents.stages.discussion import ModelDiscussion
    from holdfast.agents.stages.model_stage import ModelCoder, ModelPlanner, ModelResearcher, ModelStage, ModelWriter

    sandboxes = _sandboxes(config, open_one)
    one: dict[str, StageAgent] = {role: load_dotted(path, "the agent")() for role, path in OFFLINE_AGENTS.items() if role in _BY_EXTRACTION}
    parts: dict[str, Any] = {
        "planner": ModelPlanner(models, "planner", add_stages=True, needs="extraction", instead=one["planner"], **tools),
        "researcher": ModelResearcher(models, "researcher", needs="extraction", instead=one["researcher"], config=config, **tools),
        "synthesizer": ModelStage(models, "synthesizer", needs="summary", instead=one["synthesizer"], **tools),
        "writer": ModelWriter(models, "writer", needs="summary", instead=one["writer"], **tools),
        "coder": ModelCoder(models, "coder", open_sandbox=sandboxes, **tools),
        "llm": ModelStage(models, "llm", needs="extraction", instead=one["llm"], **tools),
        "discussion": ModelDiscussion(models, config=config, **tools),
    }
    return parts


def _sandboxes(config: Config, open_one: Callable[[str], Sandbox] | None) -> Callable[[str], Sandbox]:
    def opened(thread: str) -> Sandbox:
        from holdfast.sandbox.local import open_sandbox

        return open_sandbox(config, thread)

    return open_one or opened
