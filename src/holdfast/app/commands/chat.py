"""`holdfast chat`: a conversation that can go on for weeks (A1, A13, A14, O1)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.logs import open_config
from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.config.sections import Config

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_PIPED = 1_000_000
_WAITS = 5  # the exit code when a call waits for an approval and nobody is there to give it


@app.command(epilog='Example: holdfast chat -p "What did we decide about the queue?"')
def chat(
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Say this, print the answer, and end.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", "-t", help="Go on in this conversation, or begin it under this name.")] = None,
    resume: Annotated[bool, typer.Option("--resume", "-r", help="Go on in the conversation that was used last.")] = False,
    agent: Annotated[str | None, typer.Option("--agent", "-a", metavar="NAME", help="An agent with a memory of its own.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of config.yaml. Default: the first one.")] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", metavar="PATH", help="Give this file to the agent. May be repeated.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show the answer alone.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Talk to the agent. What is piped in is part of the message. Without a model it answers from memory, history and knowledge."""
    loaded = open_config(config)
    message = _message(prompt)
    if as_json and message is None:
        raise InputError("with --json there must be something to say.", hint="Give -p, or pipe a text in.")
    if files and message is None:
        raise InputError("files are given with a message.", hint="Give -p, or use /upload in the conversation.")
    from holdfast.app.chat.opening import open_talk

    with open_talk(loaded, thread=thread, resume=resume, agent=agent, model=model) as talk:
        if message is not None:
            _once(talk, _with_files(talk, message, files), quiet=quiet, as_json=as_json)
        else:
            _for_a_while(talk, loaded, quiet=quiet)


def _with_files(talk: Any, message: str, files: list[Path] | None) -> str:
    if not files:
        return message
    from holdfast.app.chat.uploading import noticed, take_files

    return noticed(message, take_files(talk, [file.expanduser() for file in files]))


def _message(prompt: str | None) -> str | None:
    """What is to be said at once: the option, what is piped in, or both, the piped text below."""
    piped = ""
    if not sys.stdin.isatty():
        piped = sys.stdin.read(_PIPED + 1)
        if len(piped) > _PIPED:
            raise InputError(f"more than {_PIPED:,} characters were piped in.", hint="Put them into a file of the thread instead.")
    parts = [part for part in (prompt or "", piped) if part.strip()]
    return "\n\n".join(parts) if parts else None


def _once(talk: Any, message: str, *, quiet: bool, as_json: bool) -> None:
    from io import StringIO

    from holdfast.app.chat.screen import Screen
    from holdfast.app.chat.session import one_turn

    screen = Screen(out=StringIO(), notes=StringIO()) if as_json else Screen(quiet=quiet)
    ended = one_turn(talk, talk.send(message), screen, ask=False)
    _await_title(talk)
    if as_json:
        value = {
            "thread": talk.thread,
            "reason": ended.reason,
            "text": ended.text,
            "artifacts": list(ended.artifacts),
            "tokens": ended.tokens,
        }
        show(value, lambda console: None, as_json=True)
    if ended.reason == "approval":
        if not as_json:
            sys.stderr.write(f"holdfast: a call waits for your approval. Answer it in `holdfast chat --thread {talk.thread}`.\n")
        raise typer.Exit(_WAITS)
    if ended.reason == "cancelled":
        raise typer.Exit(130)


def _for_a_while(talk: Any, config: Config, *, quiet: bool) -> None:
    from holdfast.app.chat.opening import described
    from holdfast.app.chat.screen import Screen
    from holdfast.app.chat.session import converse, one_turn
    from holdfast.app.chat.typing import remember_lines

    remember_lines(config.base / "typed_lines")
    screen = Screen(quiet=quiet)
    title = f" ({talk.title})" if talk.title else ""
    screen.note(f"{talk.thread}{title}, {described(talk)}. /help lists the commands.")
    if getattr(talk, "interrupted", False):
        waiting = talk.approvals()
        screen.note("The last turn was broken off; going on with it." if not waiting else "A call waits for your approval.")
        from holdfast.agents.turn_events import ApprovalNeeded

        events = iter([ApprovalNeeded(waiting)]) if waiting else talk.resume()
        one_turn(talk, events, screen, ask=True)
    last = converse(talk, config, screen)
    _await_title(last)
    screen.note(f"To go on: holdfast chat --thread {last.thread}")


def _await_title(talk: Any) -> None:
    """A light model may still be writing the title: a moment is worth it, no more."""
    wait = getattr(talk, "wait_for_title", None)
    if wait is not None:
        wait(5.0)
