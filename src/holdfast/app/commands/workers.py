"""`holdfast worker` and `holdfast schedule`; and what `run`, `resume` and `approve` do with a session that is the queue's (W17, O1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.output import (
    KNOWLEDGE,
    MEMORY,
    SESSIONS,
    Column,
    command,
    given,
    group,
    listing,
    moment,
    open_harness,
    prose,
    say,
    show,
    typed,
)
from holdfast.config.reading import plain_value
from holdfast.errors import InputError
from holdfast.models.call_limits import SharedLimiter, kept_by
from holdfast.validation import counted
from holdfast.workers.session_queue import Schedules, SessionQueue
from holdfast.workflow.control import WORKFLOW_FILE, check_unchanged
from holdfast.workflow.workflow_file import load_workflow

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.harness import Harness
    from holdfast.session.store import SessionStore


app = typer.Typer(rich_markup_mode=None, add_completion=False)
schedule_app = group(
    "Workflows that workers begin by the clock.",
    epilog='Example: holdfast schedule add morning "0 7 * * 1-5" workflow.yaml --timezone Europe/Berlin',
)

SessionConfigOption = Annotated[
    Path | None, typer.Option("--session-config", metavar="FILE", help="Settings of sessions alone: `session:` and `memory:`.")
]
PriorityOption = Annotated[int, typer.Option("--priority", metavar="N", help="In the queue; higher ones come first. Default: 0.")]


@command(app, epilog="Examples: holdfast worker | holdfast worker --concurrency 8 --name builder-1 | holdfast worker --once")
def worker(
    concurrency: Annotated[int, typer.Option("--concurrency", "-n", min=1, max=256, help="Sessions at once.")] = 4,
    name: Annotated[str | None, typer.Option("--name", help="What others see. Default: the machine and the process.")] = None,
    grace: Annotated[float, typer.Option("--grace", min=0, metavar="SECONDS", help="How long stages may go on when it is stopped.")] = 30.0,
    retries: Annotated[int, typer.Option("--retries", min=0, metavar="N", help="Failed tries until a session is given up.")] = 5,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is left to be done.")] = False,
    session_config: SessionConfigOption = None,
) -> None:
    """Advance sessions that were queued with `holdfast run --queue`, on as many machines as you like.

    Sessions, queue and limits of models are in PostgreSQL. Ctrl-C stops it in order: each stage comes to its commit, and other workers go
    on from there. A worker that is killed is replaced within seconds. What waits to be learned from is learned from as well.
    """
    from holdfast.workers.queue_worker import QueueWorker

    with (
        open_harness("models", *MEMORY, *KNOWLEDGE, *SESSIONS, traced=True) as harness,
        opened_queue(harness, session_config) as queue,
    ):

        def started() -> None:
            value = {"worker": made.name, "database": queue.database.shown, "concurrency": concurrency}
            say(value, f"Worker {made.name} takes sessions from {queue.database.shown}, {concurrency} at once (Ctrl-C stops it).")

        harness.attend("worker")
        made = QueueWorker(harness, queue, name=name, concurrency=concurrency, grace=grace, retries=retries, once=once, started=started)
        harness.memory.start(signals=False)
        with closing(SharedLimiter(queue.database, queue.sql["take_call"])) as limiter, kept_by(limiter):
            made.run()
        if once:
            harness.memory.flush()


@contextmanager
def opened_queue(harness: Harness, session_config: Path | None = None) -> Iterator[SessionQueue]:
    """The queue, made if need be."""
    with closing(harness.open_sessions(session_config)) as store:
        yield SessionQueue.open(store)


def parameter(text: str) -> tuple[str, Any]:
    """`name=value` as a parameter; a value that looks like a number or true and false is one."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise InputError(f"{text!r} is no parameter.", hint="Write it as NAME=VALUE.")
    return name.strip(), plain_value(value.strip())


def run_later(file: Path, *, priority: int, options: Mapping[str, Any], session_config: Path | None, **settings: Any) -> None:
    """Write a new session and let workers advance it; `settings` are its task, parameters and id."""
    with open_harness(*SESSIONS) as harness, opened_queue(harness, session_config) as queue:
        launcher = harness.launcher(store=queue.store, session_config=session_config, model=options.get("model"))
        session = queue.create(launcher, file, priority=priority, options=options, **settings)
        value = {"session": session.workflow_id, "status": session.status, "queued": True, "priority": priority, **_told(queue)}
    say_queued(value, session_config)


def hand_over(store: SessionStore, id: str, *, options: Mapping[str, Any] | None = None, as_started: bool = True) -> dict[str, Any] | None:
    """Let workers go on with a session that is the queue's; None for one that is not.

    Workers go on with the workflow that the session keeps. Unless that is meant (`as_started`), a file that changed since is refused.
    """
    queue = SessionQueue.find(store)
    if queue is None or queue.wish(id) is None:
        return None
    if not as_started:
        session = store.load(id)
        file = session.extra.get(WORKFLOW_FILE)
        if isinstance(file, str) and Path(file).is_file():
            check_unchanged(session, load_workflow(file))
    queue.put(id, options=options)
    return {"session": id, "status": store.load(id).status, "queued": True, **_told(queue)}


def say_queued(value: dict[str, Any], session_config: Path | None) -> None:
    """Say that workers go on with it."""
    ahead, workers = value["waiting"], value["workers"]
    at_it = counted(workers, "worker is", "workers are")
    line = f"Session {value['session']} is queued; {counted(ahead, 'waits', 'wait')}, and {at_it} at it."
    then = typed("session", "show", value["session"], session_config=session_config, config=given().config)
    say(value, line if workers else f"{line} Start one with `holdfast worker`.", then=then)


def _told(queue: SessionQueue) -> dict[str, Any]:
    found = queue.overview()
    return {"waiting": found["waiting"], "workers": len(found["workers"])}


def draw_queue(console: Console, found: Mapping[str, Any]) -> None:
    """The queue and its workers, below the sessions."""
    oldest = f", the oldest for {_ago(found['oldest_waiting_seconds'])}" if found["waiting"] else ""
    rate = f"{found['completed_last_minute']} completed in the last minute, {found['completed_last_hour']} in the last hour"
    prose(console, f"Queue: {found['waiting']} waiting{oldest}, {found['running']} running, {found['retried']} tried again; {rate}.")
    for one in found["workers"]:
        busy = ", ".join(one["sessions"]) or "idle"
        quiet = f", silent for {_ago(one['last_sign_of_life_seconds'])}" if one["last_sign_of_life_seconds"] > 3 else ""
        prose(console, f"Worker {one['name']} on {one['host']} ({len(one['sessions'])} of {one['concurrency']}{quiet}): {busy}")
    for one in found["models"]:
        calls = f"{one['running']} of {one['max_concurrent']} calls at once" if one["max_concurrent"] else "calls"
        left = f", {one['calls_left']:g} left of {one['requests_per_minute']:g} a minute" if one["requests_per_minute"] else ""
        prose(console, f"Model {one['model']}: {calls}{left}.")
    if not found["workers"] and found["waiting"]:
        prose(console, "No worker is at it. Start one with `holdfast worker`.")


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


@command(schedule_app, "add", epilog='Example: holdfast schedule add morning "0 7 * * 1-5" workflow.yaml --task "What is new?"')
def add(
    name: Annotated[str, typer.Argument(help="What it is called; its sessions begin with it.")],
    cron: Annotated[str, typer.Argument(help='Minute, hour, day, month, weekday: "0 7 * * 1-5".')],
    file: Annotated[Path, typer.Argument(help="The workflow. It is kept as it is now.")],
    task: Annotated[str | None, typer.Option("--task", "-t", help="The task. Default: the one of the file.")] = None,
    timezone: Annotated[str, typer.Option("--timezone", help="Where the clock hangs, such as Europe/Berlin.")] = "UTC",
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter; may be given again.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", metavar="NAME", help="A model of config.yaml.")] = None,
    priority: PriorityOption = 0,
) -> None:
    """Begin a workflow again and again by the clock; one of the same name is replaced. Workers begin it, each time once."""
    with open_harness(*SESSIONS) as harness, opened_queue(harness) as queue:
        due = Schedules(harness, queue).put(
            name,
            cron,
            file,
            task=task,
            timezone=timezone,
            parameters=dict(parameter(one) for one in settings or ()),
            options={"model": model} if model else {},
            priority=priority,
        )
    say({"schedule": name, "next": due.isoformat()}, f"{name} begins next at {due:%Y-%m-%d %H:%M} UTC.")


@command(schedule_app, "list", epilog="Example: holdfast schedule list")
def list_schedules() -> None:
    """List the schedules: when each begins next, and what it began last."""
    with open_harness(*SESSIONS) as harness, closing(harness.open_sessions()) as store:
        queue = SessionQueue.find(store)
        found = queue.overview()["schedules"] if queue is not None else []

    def draw(console: Console) -> None:
        if not found:
            prose(console, "There are no schedules yet. `holdfast schedule add` makes one.")
            return
        columns = (
            Column("name", style="bold"),
            Column("cron"),
            Column("zone"),
            Column("next"),
            Column("last"),
            Column("problem", text=True),
        )
        rows = [
            (one["name"], one["cron"], one["timezone"], moment(one["next_at"]), one["last_session"] or "", one["problem"] or "")
            for one in found
        ]
        listing(console, columns, rows, text_first=False)

    show({"schedules": found}, draw)


@command(schedule_app, "remove", epilog="Example: holdfast schedule remove morning")
def remove(
    name: Annotated[str, typer.Argument(help="The schedule.")],
) -> None:
    """Forget a schedule. The sessions that it began stay."""
    with open_harness(*SESSIONS) as harness, opened_queue(harness) as queue:
        Schedules(harness, queue).remove(name)
    say({"removed": name}, f"{name} is no longer begun.")
