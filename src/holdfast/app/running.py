"""What `run`, `resume` and `approve` have in common: agents, memory, progress, signals, and what is said at the end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from holdfast.app.logs import open_config
from holdfast.app.output import show
from holdfast.app.progress import Progress
from holdfast.events import bus
from holdfast.session.output import output_json
from holdfast.workflow.agent_registry import Agents
from holdfast.workflow.control import result_of
from holdfast.workflow.launcher import Launcher

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.config.sections import Config
    from holdfast.session.state import Session
    from holdfast.workflow.definition import Workflow

EXIT_CODES = {"completed": 0, "halted": 4, "paused": 5, "cancelled": 130}
"""How the program ends: 5 says that a person is to decide."""
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def agents_for(config: Config, model: str | None) -> Agents | None:
    """The agents that ask a model, if one is configured or named and is good enough; what is not among them works by extraction (W18)."""
    if not config.models and model is None:
        from holdfast.agents.stages.opening import coder_without_model

        return {"coder": coder_without_model(config)}
    from holdfast.agents.stages.opening import stage_agents

    return dict(stage_agents(config, model=model))


def launch(
    work: Callable[[Launcher], Session],
    *,
    config: Path | None,
    session_config: Path | None,
    model: str | None,
    knowledge: str | None,
    remember: bool,
    as_json: bool,
) -> None:
    """Run or resume a session, show how it goes, and end with the exit code of how it ended."""
    loaded = open_config(config)
    if not as_json and "logging" not in loaded.raw:  # the display says it all; who wants the log as well asks for it
        logging.getLogger("holdfast.WorkflowRunner").setLevel(logging.CRITICAL)
    place: list[Path | None] = []
    opened = _open(knowledge, loaded)
    with _stopping() as stop, Progress(bus, quiet=as_json) as progress:

        def started(session: Session, workflow: Workflow, file: Path | None) -> None:
            place.append(file)
            if not as_json:
                typer.echo(f"Session {session.workflow_id}" + (f": {file}" if file else ""))
            progress.begin(session, workflow)

        try:
            session = work(
                Launcher(
                    config=loaded,
                    session_config=session_config,
                    agents=agents_for(loaded, model),
                    knowledge=opened,
                    remember=remember,
                    model=model,
                    stop=stop,
                    started=started,
                )
            )
        finally:
            if opened is not None:
                opened.close()
    report(session, place[0] if place else None, as_json=as_json)
    raise typer.Exit(EXIT_CODES[session.status])


def _open(knowledge: str | None, config: Config) -> Any:
    if knowledge is None:
        return None
    from holdfast.knowledge.opening import open_knowledge

    return open_knowledge(knowledge)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Ctrl-C, and being told to end, stop the session cleanly; a second Ctrl-C ends the program at once. Both can be resumed."""
    stop = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    known = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    before = {number: signal.signal(number, asked) for number in known}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def report(session: Session, file: Path | None, *, as_json: bool) -> None:
    """Say how it ended, where everything is, and what to do next."""
    steps = next_steps(session)
    value = {
        "session": session.workflow_id,
        "status": session.status,
        "file": str(file) if file else None,
        "completed_stages": list(session.completed_stages),
        "current_stage": session.current_stage,
        "error": _error(session),
        "result": {name: output_json(output) for name, output in result_of(session).items()},
        "next": steps,
    }

    def draw(console: Console) -> None:
        console.print()
        if session.status == "completed":
            for name, output in result_of(session).items():
                console.print(f"{name} (confidence {output.confidence})", style="bold", markup=False)
                console.print(output.summary, markup=False, soft_wrap=True)
        if session.error is not None:
            console.print(f"Halted at {session.error.stage or 'the run'} ({session.error.kind}): {session.error.message}", markup=False)
        console.print(
            f"Session {session.workflow_id} is {session.status}." + (f" File: {file}" if file else ""), markup=False, soft_wrap=True
        )
        for step in steps:
            console.print(f"  {step}", markup=False, soft_wrap=True)

    show(value, draw, as_json=as_json)


def _error(session: Session) -> dict[str, Any] | None:
    error = session.error
    if error is None:
        return None
    return {"stage": error.stage, "kind": error.kind, "message": error.message, "problems": list(error.problems), "hint": error.hint}


def next_steps(session: Session) -> list[str]:
    """What a person can do now, as commands."""
    name, stage = session.workflow_id, session.current_stage or ""
    if session.status == "paused":
        return [f"holdfast approve {name} {stage}", f'holdfast reject {name} {stage} --why "..."', f"holdfast session show {name}"]
    if session.status == "cancelled":
        return [f"holdfast resume {name}"]
    if session.status == "halted":
        kind = session.error.kind if session.error is not None else ""
        mend = [f"holdfast session fix {name} {stage}"] if kind in ("malformed_output", "low_confidence", "rejected") else []
        return [*mend, f"holdfast resume {name}"]
    return []
