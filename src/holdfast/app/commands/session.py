"""`holdfast session`: look at one session and change it by hand: show, fix, edit, diff, fork, restore, export (W4, W5, O1)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.commands.run import SessionConfigOption
from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.errors import Damaged, InputError

if TYPE_CHECKING:
    from holdfast.app.session_story import Story
    from holdfast.session.differences import Difference
    from holdfast.session.state import Session
    from holdfast.session.store import SessionStore

app = typer.Typer(
    help="Look at a session, and change it by hand.",
    epilog="Example: holdfast session show research-2026-04-19-001",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the session; `holdfast sessions` lists them.")]
CURRENT = "current"


@app.command("show", epilog="Examples: holdfast session show ID | holdfast session show ID --html session.html")
def show_session(
    id: Id,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as one HTML file that needs nothing else.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="CHECKPOINT", help="As it was at a recovery point.")] = None,
    session_config: SessionConfigOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell a session as a story: the task, each stage with what it found, what went wrong, what to do next."""
    from holdfast.app.deciding import sessions
    from holdfast.app.session_story import draw_story
    from holdfast.durable.replace import replace_text
    from holdfast.session.state import session_json

    with sessions(config, session_config) as store:
        session = store.load(id) if at is None else store.load_checkpoint(id, at)
        story, owner = _story(store, session), store.owner(id)
    if page is not None:
        from holdfast.app.session_page import story_page

        replace_text(page, story_page(story), mode=0o644)
    value = {
        "session": session_json(session),
        "status": story.status,
        "owner": owner,
        "checkpoints": story.checkpoints,
        "next": story.next_steps,
        "page": page,
    }
    if page is not None:
        _say(value, f"Wrote {page}.", as_json=as_json)
    else:
        show(value, lambda console: draw_story(console, story), as_json=as_json)


@app.command(
    "fix", epilog="Examples: holdfast session fix ID web_research --file out.json | holdfast session fix ID plan --file - < out.json"
)
def fix(
    id: Id,
    stage: Annotated[str, typer.Argument(help="The stage whose output it is.")],
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="The corrected output as JSON; - reads standard input.")],
    session_config: SessionConfigOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a corrected output in place of what a stage wrote. It is checked first; `holdfast resume` goes on from there."""
    from holdfast.app.deciding import sessions
    from holdfast.clock import SystemClock, stamp
    from holdfast.session.mending import fixed
    from holdfast.session.output import output_json

    text = _read(file)
    with sessions(config, session_config) as store:
        store.load(id)  # says that there is none before anything is made for it
        with store.hold(id, owner="fix"):
            session = store.load(id)
            done = store.commit(fixed(session, stage, text, at=stamp(SystemClock().now())), expect=session.revision)
    value = {
        "session": id,
        "stage": stage,
        "status": done.status,
        "revision": done.revision,
        "output": output_json(done.stage_outputs[stage]),
    }
    step = f"Go on with `holdfast resume {id}`." if done.status == "ready" else f"The session is {done.status}."
    _say(value, f"The output of {stage} is in. {step}", as_json=as_json)


@app.command("edit", epilog="Example: EDITOR=nano holdfast session edit ID")
def edit(id: Id, session_config: SessionConfigOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Edit the whole session as text in your editor. What you saved is checked before it takes the place of the old one."""
    from holdfast.app.deciding import sessions
    from holdfast.app.session_editing import edit_session

    with sessions(config, session_config) as store:
        done = edit_session(store, id)
    if done is None:
        _say({"session": id, "changed": False}, "Nothing was changed.", as_json=as_json)
    else:
        _say({"session": id, "changed": True, "revision": done.revision}, f"{id} is now at revision {done.revision}.", as_json=as_json)


@app.command("diff", epilog="Examples: holdfast session diff ID after-02 | holdfast session diff ID after-01 after-02")
def diff(
    id: Id,
    before: Annotated[str, typer.Argument(metavar="A", help="A recovery point, or `current`.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")] = CURRENT,
    session_config: SessionConfigOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is different between two recovery points, or between one and the current state."""
    from holdfast.app.deciding import sessions
    from holdfast.session.differences import differences

    with sessions(config, session_config) as store:
        old, new = (store.load(id) if name == CURRENT else store.load_checkpoint(id, name) for name in (before, after))
    found = differences(old, new)
    show(
        {"session": id, "before": before, "after": after, "differences": found}, lambda console: _draw_diff(console, found), as_json=as_json
    )


@app.command("fork", epilog="Examples: holdfast session fork ID | holdfast session fork ID --from after-02 --as second-try")
def fork(
    id: Id,
    point: Annotated[str | None, typer.Option("--from", metavar="CHECKPOINT", help="A recovery point. Default: the current state.")] = None,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NEW", help="The id of the new session. Default: ID-fork-001 and so on.")
    ] = None,
    session_config: SessionConfigOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a new session from the state of another."""
    from holdfast.app.deciding import sessions
    from holdfast.session.succession import spare_name

    with sessions(config, session_config) as store:
        store.load(id) if point is None else store.load_checkpoint(id, point)
        new = name or spare_name((brief.workflow_id for brief in store.list()), f"{id[:110]}-fork")
        made = store.fork(id, new, checkpoint=point)
    value = {"session": new, "lineage": made.lineage, "completed": made.completed_stages, "status": made.status}
    _say(value, f"Forked {id} as {new}. Go on with `holdfast resume {new}`.", as_json=as_json)


@app.command("restore", epilog="Example: holdfast session restore ID after-02")
def restore(
    id: Id,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The recovery point.")],
    session_config: SessionConfigOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go back to a recovery point. What is current is kept as a recovery point first."""
    from holdfast.app.deciding import sessions

    with sessions(config, session_config) as store:
        store.load_checkpoint(id, checkpoint)
        with store.hold(id, owner="restore"):
            done = store.restore(id, checkpoint)
        kept = [one.name for one in store.checkpoints(id) if one.name.startswith("before-restore-")]
    value = {"session": id, "restored": checkpoint, "status": done.status, "revision": done.revision, "kept_as": kept[-1] if kept else None}
    aside = f" What was current is kept as {kept[-1]}." if kept else ""
    _say(value, f"{id} is back at {checkpoint}, with {len(done.completed_stages)} of its stages completed.{aside}", as_json=as_json)


@app.command("export", epilog="Examples: holdfast session export ID --to session.json | holdfast session export ID --markdown > report.md")
def export(
    id: Id,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Where to write it. Default: standard output.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown for people in place of JSON.")] = False,
    session_config: SessionConfigOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a session as JSON, or as Markdown for people."""
    from holdfast.app.deciding import sessions
    from holdfast.app.session_story import story_markdown
    from holdfast.durable.replace import replace_text
    from holdfast.session.writing import SessionWriter

    with sessions(config, session_config) as store:
        session = store.load(id)
        story = _story(store, session)
    text = story_markdown(story) if markdown else SessionWriter().encode(session).decode()
    if to is None and not as_json:
        typer.echo(text, nl=False)
        return
    if to is not None:
        replace_text(to, text, mode=0o644)
    _say({"session": id, "file": to, "text": None if to is not None else text}, f"Wrote {to}.", as_json=as_json)


def _story(store: SessionStore, session: Session) -> Story:
    from holdfast.app.session_story import tell
    from holdfast.workflow.run_settings import session_file

    id = session.workflow_id
    place = session_file(store, id)
    return tell(session, owner=store.owner(id), checkpoints=store.checkpoints(id), place=str(place) if place is not None else None)


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
    except OSError as error:
        raise InputError(f"could not read {file}: {error.strerror or error}.", hint="Give a file with the output as JSON, or -.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Damaged(f"{file} is not UTF-8 text, at byte {error.start}.", path=file, position=error.start) from error


def _draw_diff(console: Any, found: list[Difference]) -> None:
    import json

    from holdfast.app.memory_tables import plain

    def shown(value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
        return text if len(text) <= 2000 else f"{text[:2000]}..."

    if not found:
        console.print("There is no difference.")
    for one in found:
        console.print(plain(f"{one.place} {one.kind}", "bold"), soft_wrap=True)
        for sign, colour, value, there in (
            ("- ", "red", one.before, one.kind != "added"),
            ("+ ", "green", one.after, one.kind != "removed"),
        ):
            if there:
                console.print(plain("\n".join(sign + line for line in shown(value).splitlines() or [""]), colour), soft_wrap=True)


def _say(value: Any, line: str, *, as_json: bool) -> None:
    show(value, lambda console: console.print(line, markup=False, soft_wrap=True), as_json=as_json)
