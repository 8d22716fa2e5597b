"""`holdfast sessions` and `holdfast session`: all of them in a table; one told, fixed, edited, compared, forked (W4, W5, O1)."""

from __future__ import annotations

import json
import re
import shlex
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.commands.workers import draw_queue, hand_over
from holdfast.app.commands.workflows import DRAFTS, SessionConfigOption, opened_sessions
from holdfast.app.output import (
    SESSIONS,
    Column,
    command,
    console,
    echo,
    given,
    group,
    listing,
    markdown,
    moment,
    open_harness,
    plain,
    prose,
    say,
    show,
    to_paste,
    typed,
)
from holdfast.app.session_views import draw_story, report_of, story_page
from holdfast.durable.folder import open_outside
from holdfast.durable.replace import replace_text
from holdfast.errors import Damaged, InputError
from holdfast.redaction import visible_json
from holdfast.session.document import render_session, session_json
from holdfast.session.editor import Difference, differences
from holdfast.session.output import output_json
from holdfast.session.story import Story, story_markdown, tell
from holdfast.validation import counted
from holdfast.workers.session_queue import SessionQueue
from holdfast.workflow import control

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.config.sections import Config
    from holdfast.session.state import Session
    from holdfast.session.store import SessionStore


app = typer.Typer(rich_markup_mode=None, add_completion=False)
session_app = group("Look at a session, and change it by hand.", epilog="Example: holdfast session show research-2026-04-19-001")

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the session; `holdfast sessions` lists them.")]
CURRENT = "current"
_LONGEST = 160
_COLOURS = {"completed": "green", "halted": "red", "damaged": "red", "running": "cyan"}


@command(app, epilog="Examples: holdfast sessions | holdfast sessions --status halted | holdfast sessions --json")
def sessions(
    status: Annotated[
        str | None, typer.Option("--status", help="Only these: ready, running, interrupted, paused, halted, completed, cancelled, damaged.")
    ] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="Only the newest N.")] = None,
    session_config: SessionConfigOption = None,
) -> None:
    """List the sessions, newest first: how far each came, and what keeps it."""
    known = ("ready", "running", "interrupted", "paused", "halted", "completed", "cancelled", "damaged")
    if status is not None and status not in known:
        raise InputError(f"{status!r} is not a status.", hint=f"Use one of {', '.join(known)}.")
    with open_harness(*SESSIONS) as harness, closing(harness.open_sessions(session_config)) as store:
        rows: list[dict[str, Any]] = []
        for brief in store.newest() if last is not None else store.list():
            found = "damaged" if brief.problem is not None else str(brief.status)
            if found == "running" and store.owner(brief.workflow_id) is None:
                found = "interrupted"  # it says that it runs, and nobody runs it
            if status in (None, found):
                rows.append({"session": brief.workflow_id} | asdict(brief) | {"status": found})
                if len(rows) == last:
                    break
        queue = _queued(store, rows, harness.config)
    value: dict[str, Any] = {"sessions": rows} | ({"queue": queue} if queue is not None else {})

    def draw(console: Console) -> None:
        _draw_sessions(console, rows, filtered=status is not None)
        if queue is not None:
            draw_queue(console, queue)

    show(value, draw)


def _queued(store: SessionStore, rows: list[dict[str, Any]], config: Config) -> dict[str, Any] | None:
    """The queue and its workers, where there is one; each of the rows then says its place in it."""
    queue = SessionQueue.find(store)
    if queue is None:
        return None
    places = queue.places(row["session"] for row in rows)
    for row in rows:
        row["queue"] = places.get(row["session"])
    return queue.overview(config)


def _draw_sessions(console: Console, rows: list[dict[str, Any]], *, filtered: bool) -> None:
    if not rows:
        prose(console, "No session has this status." if filtered else "There are no sessions yet. `holdfast run FILE` starts one.")
        return
    columns = (
        Column("id", style="bold"),
        Column("status"),
        Column("stage"),
        Column("progress"),
        Column("updated", style="dim"),
        Column("task or problem", text=True),
    )
    drawn = []
    for row in rows:
        status, place = row["status"], row.get("queue") or {}
        if place.get("state") == "waiting" and status in ("ready", "interrupted"):
            status = "queued"
        progress = f"{row['completed']}/{row['total'] if row['total'] is not None else '?'}" if status != "damaged" else ""
        said = " ".join((row["problem"] or row["error"] or place.get("problem") or row["task"]).split())
        said = said if len(said) <= _LONGEST else f"{said[:_LONGEST].rpartition(' ')[0]} …"
        stage = row["current_stage"] or row["next_stage"] or ""
        shown = plain(status, _COLOURS.get(status, "yellow"))
        at = stage if status != "completed" else ""
        drawn.append((row["workflow_id"], shown, at, progress, moment(row["updated_at"]), said))
    listing(console, columns, drawn, text_first=False)


@command(session_app, "show", epilog="Examples: holdfast session show ID | holdfast session show ID --html session.html")
def show_session(
    id: Id,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as one HTML file that needs nothing else.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="CHECKPOINT", help="As it was at a recovery point.")] = None,
    session_config: SessionConfigOption = None,
) -> None:
    """Tell a session as a story: the task, each stage with what it found, what went wrong, what to do next."""
    with opened_sessions(session_config) as store:
        session = store.load(id) if at is None else store.load_checkpoint(id, at)
        story, owner = _story(store, session), store.owner(id)
    more = {"session_config": session_config, "config": given().config}
    story = replace(story, next_steps=tuple(typed(*shlex.split(step)[1:], **more) for step in story.next_steps))
    if page is not None:
        replace_text(page, story_page(story), mode=0o644)
    value = {
        "session": session_json(session),
        "status": story.status,
        "owner": owner,
        "checkpoints": story.checkpoints,
        "damage": list(story.damage),
        "read_before_edit": control.read_before_edit(session),
        "next": story.next_steps,
        "page": page,
    }
    if page is not None:
        say(value, f"Wrote {page}.")
    else:
        show(value, lambda console: draw_story(console, story))


@command(session_app, "report", epilog="Examples: holdfast session report ID | holdfast session report ID > report.md")
def report(id: Id, session_config: SessionConfigOption = None) -> None:
    """Print what a session came to: its report, or the summaries of its last stages. On a terminal as text, into a file as Markdown."""
    with opened_sessions(session_config) as store:
        session = store.load(id)
        text, file = report_of(session, store.folder(id))
    if not text:
        raise InputError(
            f"{id} has no result yet: it is {session.status}.", hint=f"`holdfast session show {shlex.quote(id)}` tells how far it is."
        )

    def draw(console: Console) -> None:
        if not console.is_terminal:
            echo(text, exact=True)
            return
        console.print(markdown(text))
        if file is not None:
            prose(console, f"\n{file}", style="dim")

    show({"session": id, "status": session.status, "file": file, "text": text}, draw)


@command(
    session_app,
    "fix",
    epilog="Examples: holdfast session fix ID web_research --file out.json | holdfast session fix ID plan --file - < out.json",
)
def fix(
    id: Id,
    stage: Annotated[str, typer.Argument(help="The stage whose output it is.")],
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="The corrected output as JSON; - reads standard input. Default: your editor."),
    ] = None,
    session_config: SessionConfigOption = None,
) -> None:
    """Put a corrected output in place of what a stage wrote. It is checked; `holdfast resume` goes on, and what read it runs again.

    A stage that waits for your approval still waits for it."""
    text = _read(file) if file is not None else None
    with opened_sessions(session_config) as store:
        done = control.fix(store, id, stage, text)
        queued = hand_over(store, id) if done.status == "ready" else None
    if file is not None and re.fullmatch(rf".*/{DRAFTS}/{re.escape(f'{id}-{stage}')}-\d+\.json", file):
        Path(file).unlink(missing_ok=True)  # the draft that the halt left; the output is in the session now
    value = {
        "session": id,
        "stage": stage,
        "status": done.status,
        "revision": done.revision,
        "output": output_json(done.stage_outputs[stage]),
    }
    again = control.outdated_stages(done)
    told = f"The output of {stage} is in." + (f" It was read by {', '.join(again)}: to be run again." if again else "")
    value["runs_again"] = list(again)
    if queued is not None:
        say(value | queued, f"{told} A worker goes on with it.")
        return
    resume = typed("resume", id, session_config=session_config, config=given().config)
    if stage in control.waiting_stages(done):
        approve = typed("approve", id, stage, session_config=session_config, config=given().config)
        say(value, f"{told} It still waits for your approval:", then=approve)
        return
    ready = done.status == "ready"
    step = "Go on with:" if ready else f"The session is {done.status}."
    say(value, f"{told} {step}", then=resume if ready else None)


@command(session_app, "edit", epilog="Example: EDITOR=nano holdfast session edit ID")
def edit(id: Id, session_config: SessionConfigOption = None) -> None:
    """Edit the whole session as text in your editor. What you saved is checked before it takes the place of the old one."""
    with opened_sessions(session_config) as store:
        done = control.edit(store, id)
    if done is None:
        say({"session": id, "changed": False}, "Nothing was changed.")
        return
    value = {"session": id, "changed": True, "revision": done.revision, "read_before_edit": control.read_before_edit(done)}
    say(value, " ".join((f"{id} is now at revision {done.revision}.", *control.told_of_edits(done))))


@command(session_app, "diff", epilog="Examples: holdfast session diff ID 002-research | holdfast session diff ID 001-plan 002-research")
def diff(
    id: Id,
    before: Annotated[str, typer.Argument(metavar="A", help="A recovery point, or `current`.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")] = CURRENT,
    session_config: SessionConfigOption = None,
) -> None:
    """Show what is different between two recovery points, or between one and the current state."""
    with opened_sessions(session_config) as store:
        old, new = (store.load(id) if name == CURRENT else store.load_checkpoint(id, name) for name in (before, after))
    found = differences(old, new)
    show({"session": id, "before": before, "after": after, "differences": found}, lambda console: _draw_diff(console, found))


@command(session_app, "fork", epilog="Examples: holdfast session fork ID | holdfast session fork ID --from 002-research --as second-try")
def fork(
    id: Id,
    point: Annotated[str | None, typer.Option("--from", metavar="CHECKPOINT", help="A recovery point. Default: the current state.")] = None,
    name: Annotated[
        str | None, typer.Option("--id", "--as", metavar="NEW", help="The id of the new session. Default: ID-fork-001 and so on.")
    ] = None,
    session_config: SessionConfigOption = None,
) -> None:
    """Start a new session from the state of another."""
    with opened_sessions(session_config) as store:
        made = control.fork(store, id, name, checkpoint=point)
        new = made.workflow_id
        queue = SessionQueue.find(store)
        queued = queue is not None and made.status != "completed" and queue.follow(id, new)
    value = {"session": new, "lineage": made.lineage, "completed": made.completed_stages, "status": made.status}
    if queued:
        say(value | {"queued": True}, f"Forked {id} as {new}. A worker goes on with it.")
        return
    resume = typed("resume", new, session_config=session_config, config=given().config)
    say(value, f"Forked {id} as {new}. Go on with:", then=resume)


@command(session_app, "restore", epilog="Examples: holdfast session restore ID | holdfast session restore ID 002-research")
def restore(
    id: Id,
    checkpoint: Annotated[
        str | None, typer.Argument(metavar="CHECKPOINT", help="The recovery point. Without it: those that there are.")
    ] = None,
    session_config: SessionConfigOption = None,
) -> None:
    """Go back to a recovery point. What is current is kept as a recovery point first."""
    if checkpoint is None:
        _list_checkpoints(id, session_config)
        return
    with opened_sessions(session_config) as store:
        store.load_checkpoint(id, checkpoint)
        with store.lease(id, owner="restore"):
            done = store.restore(id, checkpoint)
        kept = [one.name for one in store.checkpoints(id) if one.name.startswith("before-restore-")]
    value = {"session": id, "restored": checkpoint, "status": done.status, "revision": done.revision, "kept_as": kept[-1] if kept else None}
    aside = f" What was current is kept as {kept[-1]}." if kept else ""
    say(value, f"{id} is back at {checkpoint}, with {counted(len(done.completed_stages), 'stage')} completed.{aside}")


@command(
    session_app,
    "export",
    epilog="Examples: holdfast session export ID --to session.json | holdfast session export ID --markdown > report.md",
)
def export(
    id: Id,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Where to write it. Default: standard output.")] = None,
    markdown_wanted: Annotated[bool, typer.Option("--markdown", help="As Markdown for people in place of JSON.")] = False,
    session_config: SessionConfigOption = None,
) -> None:
    """Write a session as JSON, or as Markdown for people."""
    if to is not None and not to.absolute().parent.is_dir():
        raise InputError(f"there is no folder {to.parent}.", hint="Make it first, or write to another place.")
    with opened_sessions(session_config) as store:
        session = store.load(id)
        story = _story(store, session)
    text = story_markdown(story) if markdown_wanted else render_session(session).decode()
    if to is None and not given().as_json:
        if markdown_wanted and sys.stdout.isatty():
            console().print(markdown(text))
        else:
            echo(text if markdown_wanted else visible_json(text), exact=True, nl=False)
        return
    if to is not None:
        replace_text(to, text, mode=0o644)
    say({"session": id, "file": to, "text": None if to is not None else text}, f"Wrote {to}.")


def _list_checkpoints(id: str, session_config: Path | None) -> None:
    with opened_sessions(session_config) as store:
        points = store.checkpoints(id)[::-1]

    def draw(console: Console) -> None:
        if not points:
            prose(console, f"{id} has no recovery points yet.")
            return
        columns = (Column("recovery point", style="bold"), Column("stages", right=True), Column("made", style="dim"))
        listing(console, columns, [(one.name, str(one.completed), moment(one.at)) for one in points])
        prose(console, "\nGo back to the newest, or to another one, with:")
        to_paste(console, typed("session", "restore", id, points[0].name, session_config=session_config, config=given().config))

    show({"session": id, "checkpoints": points}, draw)


def _story(store: SessionStore, session: Session) -> Story:
    id = session.workflow_id
    place = store.file(id)
    return tell(
        session,
        owner=store.owner(id),
        checkpoints=store.checkpoints(id),
        damage=store.damage(id),
        notes=control.told_of_edits(session),
        place=str(place) if place is not None else None,
    )


def _whole(file: Path) -> bytes:
    with open_outside(file) as opened:
        return opened.read()


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else _whole(Path(file).expanduser())
    except OSError as error:
        raise InputError(f"could not read {file}: {error.strerror or error}.", hint="Give a file with the output as JSON, or -.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Damaged(f"{file} is not UTF-8 text, at byte {error.start}.", path=file, position=error.start) from error


def _draw_diff(console: Any, found: list[Difference]) -> None:

    def shown(value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
        return text if len(text) <= 2000 else f"{text[:2000]}..."

    if not found:
        prose(console, "There is no difference.")
    for one in found:
        prose(console, plain(f"{one.place} {one.kind}", "bold"))
        for sign, colour, value, there in (
            ("- ", "red", one.before, one.kind != "added"),
            ("+ ", "green", one.after, one.kind != "removed"),
        ):
            if there:
                for line in shown(value).splitlines() or [""]:
                    prose(console, line, mark=plain(sign, colour), style=colour)
