"""`holdfast run`, `resume`, `cancel`, `approve` and `reject`: sessions of workflows that run (O1, W1, W6, W14, W19)."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.app.commands.workers import PriorityOption, hand_over, parameter, run_later, say_queued
from holdfast.app.output import (
    SESSIONS,
    TRACEBACKS,
    check_place,
    command,
    console,
    echo,
    given,
    open_harness,
    plain,
    prose,
    say,
    show,
    to_paste,
    typed,
)
from holdfast.app.session_views import Progress, report_of
from holdfast.durable.replace import replace_text
from holdfast.errors import InputError
from holdfast.redaction import visible
from holdfast.session.editor import draft_of
from holdfast.session.output import output_json
from holdfast.text.normalise import call_lines
from holdfast.validation import some
from holdfast.workers.session_queue import SessionQueue
from holdfast.workflow import control, events
from holdfast.workflow.control import result_of

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.events import Bus, Event
    from holdfast.session.state import Session
    from holdfast.session.store import SessionStore
    from holdfast.workflow.definition import Workflow
    from holdfast.workflow.launcher import Launcher


app = typer.Typer(rich_markup_mode=None, add_completion=False)

_EXIT_CODES = {"completed": 0, "halted": 4, "paused": 5, "cancelled": 130}
"""How the program ends: 5 says that a person is to decide."""
DRAFTS = "drafts"
"""The folder of the base directory with outputs that wait to be corrected."""
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")

SessionConfigOption = Annotated[
    Path | None, typer.Option("--session-config", metavar="FILE", help="Settings of this session alone: `session:` and `memory:`.")
]
KnowledgeOption = Annotated[
    str | None, typer.Option("--knowledge", "-k", metavar="PATH", help="A knowledge store in place of the configured one.")
]
RememberOption = Annotated[
    bool, typer.Option("--remember/--no-remember", help="Whether long-term memory is looked up before and added to after.")
]
HereOption = Annotated[bool, typer.Option("--here", help="Run it in this terminal, also if workers have it in their queue.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", metavar="NAME", help="A model of config.yaml for the stages that name none.")
]


@command(app, epilog='Examples: holdfast run workflow.yaml | holdfast run workflow.yaml --task "Which store is fastest?" --set region=eu')
def run(
    file: Annotated[Path, typer.Argument(help="The workflow, a YAML file with `id` and `stages`.")],
    task: Annotated[str | None, typer.Option("--task", "-t", help="The task. Default: the one of the file.")] = None,
    model: ModelOption = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter; may be given again.")] = None,
    session_config: SessionConfigOption = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The id of the session. Default: made from the workflow's id and the date.")
    ] = None,
    knowledge: KnowledgeOption = None,
    remember: RememberOption = True,
    queue: Annotated[bool, typer.Option("--queue", help="Leave it to `holdfast worker`, here or on other machines.")] = False,
    priority: PriorityOption = 0,
) -> None:
    """Run a workflow. Ctrl-C stops it cleanly, and whatever stops it, `holdfast resume` goes on from the last completed stage.

    Ends with 0 when it is completed, 4 when it halted, 5 when it waits for a person, 130 when it was stopped.
    """
    parameters = dict(parameter(one) for one in settings or ())
    how = How(session_config, model, knowledge, remember)
    if queue:
        more: dict[str, Any] = {"task": task, "parameters": parameters, "session_id": id}
        run_later(file, priority=priority, options=how.for_workers(), session_config=session_config, **more)
        return
    _launch(lambda launcher: launcher.run(file, task=task, parameters=parameters, session_id=id), how)


class How(NamedTuple):
    """The options of commands that run stages."""

    session_config: Path | None
    model: str | None
    knowledge: str | None
    remember: bool

    def for_workers(self) -> dict[str, Any]:
        """How workers are to run a session, as far as it was said."""
        place = str(Path(self.knowledge).absolute()) if self.knowledge is not None and "://" not in self.knowledge else self.knowledge
        found = {"model": self.model, "knowledge": place, "remember": None if self.remember else False}
        return {name: value for name, value in found.items() if value is not None}


@command(app, epilog="Example: holdfast resume research-2026-04-19-001")
def resume(
    id: Annotated[str, typer.Argument(help="The id of the session; `holdfast sessions` lists them.")],
    workflow: Annotated[
        Path | None, typer.Option("--workflow", "-w", metavar="FILE", help="The workflow, where the session does not say which it was.")
    ] = None,
    accept_changes: Annotated[bool, typer.Option("--accept-changes", help="Go on although the workflow file has changed since.")] = False,
    as_started: Annotated[
        bool, typer.Option("--as-started", help="Go on with the workflow as it was, whatever the file says now.")
    ] = False,
    here: HereOption = False,
    model: ModelOption = None,
    session_config: SessionConfigOption = None,
    knowledge: KnowledgeOption = None,
    remember: RememberOption = True,
) -> None:
    """Go on with a session. Completed stages do not run again; the interrupted one starts from its beginning.

    One that was started with `--queue` is left to workers again, unless `--here` says otherwise.
    """
    if accept_changes and as_started:
        raise InputError("--accept-changes and --as-started contradict each other.", hint="One takes the file as it is, the other not.")
    changed = workflow is not None or accept_changes
    _launch(
        lambda launcher: launcher.resume(id, workflow=workflow, accept_changes=accept_changes, as_started=as_started),
        How(session_config, model, knowledge, remember),
        queued=None if here or changed else id,
        as_started=as_started,
    )


@command(app, epilog="Example: holdfast approve research-2026-04-19-001 synthesis")
def approve(
    id: Annotated[str, typer.Argument(help="The id of the session.")],
    stage: Annotated[str | None, typer.Argument(help="The stage. Default: the only one that waits.")] = None,
    later: Annotated[bool, typer.Option("--later", help="Only note the approval; `holdfast resume` goes on.")] = False,
    here: HereOption = False,
    model: ModelOption = None,
    session_config: SessionConfigOption = None,
    knowledge: KnowledgeOption = None,
    remember: RememberOption = True,
) -> None:
    """Agree with what a stage wrote, or with the call that it wants to make. The session goes on at once."""
    with opened_sessions(session_config) as store:
        session = control.approve(store, id, stage)
    if later or session.status == "paused":
        value = {"session": id, "status": session.status, "approved": stage}
        say(value, f"Approved. Session {id} is {session.status}.")
        return
    how = How(session_config, model, knowledge, remember)
    _launch(lambda launcher: launcher.resume(id), how, queued=None if here else id, as_started=True)


@command(app, epilog='Example: holdfast reject research-2026-04-19-001 synthesis --why "The second figure has no source"')
def reject(
    id: Annotated[str, typer.Argument(help="The id of the session.")],
    stage: Annotated[str | None, typer.Argument(help="The stage. Default: the only one that waits.")] = None,
    why: Annotated[str, typer.Option("--why", help="The reason; the stage is told it when it runs again.")] = "",
    session_config: SessionConfigOption = None,
) -> None:
    """Refuse what a stage wrote, or the call that it wants to make. `holdfast resume` runs the stage again with the reason."""
    with opened_sessions(session_config) as store:
        session = control.reject(store, id, stage, why=why)
        queued = hand_over(store, id) if session.status == "ready" else None
    refused = session.error.stage if session.error is not None else stage or session.current_stage
    value = {"session": id, "status": session.status, "rejected": refused, "why": why}
    if queued is not None:
        say(value | queued, f"Rejected {refused}. A worker runs it again.")
        return
    step = typed("resume", id, session_config=session_config, config=given().config)
    say(value, f"Rejected {refused}. This runs it again:", then=step)


@command(app, epilog="Example: holdfast cancel research-2026-04-19-001")
def cancel(
    id: Annotated[str, typer.Argument(help="The id of the session.")],
    wait: Annotated[float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait until it has stopped.")] = 10.0,
    session_config: SessionConfigOption = None,
) -> None:
    """Stop a session at once. What is completed is kept, and `holdfast resume` goes on."""
    with opened_sessions(session_config) as store:
        store.load(id)
        if (queue := SessionQueue.find(store)) is not None:
            queue.withdraw(id)
        session = control.cancel(store, id, wait=wait)
    stopped = session.status != "running"
    line = f"Session {id} is {session.status}." if stopped else f"Session {id} was asked to stop and has not stopped yet."
    say({"session": id, "status": session.status, "stopped": stopped}, line)
    if not stopped:
        raise typer.Exit(1)


@contextmanager
def opened_sessions(session_config: Path | None) -> Iterator[SessionStore]:
    """The store, for a command that looks at sessions or changes one without running it."""
    with open_harness(*SESSIONS) as harness, closing(harness.open_sessions(session_config)) as store:
        yield store


def _launch(work: Callable[[Launcher], Session], how: How, *, queued: str | None = None, as_started: bool = False) -> None:
    """Run or resume a session, show how it goes, and end with the exit code of how it ended. One that is `queued` is left to workers."""
    place: list[Path | None] = []
    as_json = given().as_json
    check_place(how.knowledge)
    with open_harness(*SESSIONS, traced=True) as harness, ExitStack() as opened:
        if queued is not None:
            with closing(harness.open_sessions(how.session_config)) as store:
                handed = hand_over(store, queued, options=how.for_workers(), as_started=as_started)
            if handed is not None:
                say_queued(handed, how.session_config)
                return
        if not as_json and "logging" not in harness.config.raw:  # the display says it all; who wants the log as well asks for it
            log = logging.getLogger("holdfast.WorkflowRunner")
            opened.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL)
        if TRACEBACKS.is_set():
            opened.enter_context(_tracebacks(harness.bus))
        stop = opened.enter_context(_stopping(lambda: bool(place)))
        store_given = opened.enter_context(harness.open_knowledge(how.knowledge)) if how.knowledge is not None else None
        parts: dict[str, Any] = {**how._asdict(), "knowledge": store_given, "stop": stop}

        def once(work: Callable[[Launcher], Session]) -> Session:
            with Progress(harness.bus, quiet=as_json) as progress:

                def started(session: Session, workflow: Workflow, file: Path | None) -> None:
                    place.append(file)
                    if not as_json and len(place) == 1:
                        prose(console(), f"Session {session.workflow_id}" + (f": {file}" if file else ""))
                    progress.begin(session, workflow)

                return work(harness.launcher(**parts, started=started))

        session = once(work)
        while not as_json and sys.stdin.isatty() and sys.stdout.isatty() and (asked := control.asked_calls(session)):
            with closing(harness.open_sessions(how.session_config)) as store:
                for stage, call in asked.items():
                    _answer(store, session.workflow_id, stage, call)
            session = once(lambda launcher, id=session.workflow_id: launcher.resume(id))  # type: ignore[misc]  # bound now
        steps = _next_steps(session, harness.base, how)
    _report(session, place[0] if place else None, steps)
    raise typer.Exit(_EXIT_CODES[session.status])


def _answer(store: SessionStore, id: str, stage: str, call: Mapping[str, Any]) -> None:
    """Show the whole call that a stage wants to make, and ask. Anything that is not clearly a yes is a no."""
    echo(f"The stage {stage} wants to make this call:")
    echo("\n".join(call_lines(str(call.get("tool")), call.get("args") or {})))
    try:
        typed = input("Run it? [y]es, [n]o, or say why not: ").strip()
    except EOFError:
        typed = ""
    if typed.lower() in ("y", "yes"):
        control.approve(store, id, stage)
    else:
        control.reject(store, id, stage, why="it is not allowed" if typed.lower() in ("", "n", "no") else typed)


@contextmanager
def _tracebacks(bus: Bus) -> Iterator[None]:
    """What agents raised meanwhile, on standard error when the display is closed; of a stage that was tried several times the last."""
    raised: dict[str, str] = {}

    def told(event: Event) -> None:
        if isinstance(event, events.StageRaised):
            raised[event.stage] = event.traceback

    unsubscribe = bus.subscribe(told)
    try:
        yield
    finally:
        unsubscribe()
        for stage, trace in raised.items():
            sys.stderr.write(f"{visible(stage)} raised:\n{visible(trace)}\n")


@contextmanager
def _stopping(begun: Callable[[], bool]) -> Iterator[threading.Event]:
    """Ctrl-C, and being told to end, stop the session cleanly; a second Ctrl-C ends the program at once. Both can be resumed.

    Until a session has `begun` there is nothing to stop cleanly, and the first one ends the program.
    """
    stop = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.is_set() or not begun():
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


_NAMED = 10  # files that are named; the report names all


def _not_read(session: Session) -> dict[str, str]:
    """The sources that no stage could read, with the reason."""
    found: dict[str, str] = {}
    for output in session.stage_outputs.values():
        named = output.data.get("not_read") if isinstance(output.data, Mapping) else None
        found |= {str(name): str(why) for name, why in named.items()} if isinstance(named, Mapping) else {}
    return found


def _report(session: Session, file: Path | None, steps: list[str]) -> None:
    """Say how it ended, where everything is, and what to do next."""
    report = report_of(session, file.with_suffix("") / "files" if file else None)[1] if session.status == "completed" else None
    trace, error = _traceback_file(session, file), session.error
    value = {
        "session": session.workflow_id,
        "status": session.status,
        "file": str(file) if file else None,
        "report": report,
        "completed_stages": list(session.completed_stages),
        "current_stage": session.current_stage,
        "error": {name: getattr(error, name) for name in ("stage", "kind", "message", "problems", "hint")} if error is not None else None,
        "traceback": str(trace) if trace else None,
        "asks": {stage: dict(call) for stage, call in control.asked_calls(session).items()},
        "result": {name: output_json(output) for name, output in result_of(session).items()},
        "not_read": (unread := _not_read(session)),
        "read_before_edit": control.read_before_edit(session),
        "next": steps,
    }

    def draw(console: Console) -> None:
        console.print()
        if session.status == "completed":
            for name, output in result_of(session).items():
                prose(console, f"{name} (confidence {output.confidence})", style="bold")
                prose(console, output.summary)
            if report is not None:
                prose(console, f"Report: {report}")
        if unread:
            prose(console, f"Not read: {some((f'{name} ({why})' for name, why in unread.items()), _NAMED, '; ')}")
        for text in control.told_of_edits(session):
            prose(console, text, style="yellow")
        if error is not None:
            prose(console, f"Halted at {error.stage or 'the run'} ({error.kind}): {error.message}")
        if trace is not None:
            prose(console, f"The traceback is in {trace}")
        for stage, call in control.asked_calls(session).items():
            prose(console, f"The stage {stage} waits for a person to approve this call:")
            console.print(plain("\n".join(call_lines(str(call.get("tool")), call.get("args") or {}))), soft_wrap=True)
        prose(console, f"Session {session.workflow_id} is {session.status}.")
        if file is not None:
            prose(console, f"File: {file}")
        for step in steps:
            to_paste(console, step)

    show(value, draw)


def _traceback_file(session: Session, file: Path | None) -> Path | None:
    """The file with the traceback of the agent because of which the session halted."""
    if file is None or session.error is None or session.error.kind != "stage_failed":
        return None
    found = sorted((file.with_suffix("") / "stages").glob(f"[0-9]*-{session.error.stage}/output.md"))
    return found[-1] if found and "\nTraceback " in found[-1].read_text("utf-8", "replace") else None


def _next_steps(session: Session, base: Path, how: How) -> list[str]:
    """What a person can do now, as commands with the options that were given; `running` are those of commands that run stages."""
    name, stage = session.workflow_id, session.current_stage or ""
    said: dict[str, Any] = {"session_config": how.session_config, "config": given().config}
    running = said | {"model": how.model, "knowledge": how.knowledge, "no_remember": not how.remember}
    resume = typed("resume", name, **running)
    if session.status == "paused":
        reject = typed("reject", name, stage, why="what is wrong with it", **said)
        return [typed("approve", name, stage, **running), reject, typed("session", "show", name, **said)]
    if session.status == "cancelled":
        return [resume]
    if session.status == "halted":
        kind = session.error.kind if session.error is not None else ""
        if kind not in ("malformed_output", "low_confidence", "rejected"):
            return [resume]
        return [typed("session", "fix", name, stage, file=_draft(session, stage, base), **said), resume]
    return [typed("session", "report", name, **said)] if session.status == "completed" else []


def _draft(session: Session, stage: str, base: Path) -> Path:
    """A file with what the stage wrote, to be corrected and given to `session fix`; one for each halt, so that nothing typed is lost."""
    file = base / DRAFTS / f"{session.workflow_id}-{stage}-{session.revision}.json"
    if not file.exists():
        replace_text(file, draft_of(session, stage))
    return file
