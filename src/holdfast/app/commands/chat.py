"""`holdfast chat`: a conversation that can go on for weeks (A1, A13, A14, O1)."""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.app.chat_commands import Leave, Slash, run_command
from holdfast.app.chat_memory import MemoryNews
from holdfast.app.chat_screen import Screen, one_turn, read_message, remember_lines
from holdfast.app.output import ConfigOption, JsonOption, complain, open_harness, show
from holdfast.config.known_keys import nearest
from holdfast.errors import HoldfastError, InputError
from holdfast.ids import check_name
from holdfast.talk import ApprovalNeeded, Talk, with_uploads

if TYPE_CHECKING:
    from holdfast.harness import Harness
    from holdfast.sandbox.uploads import Upload

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_PIPED = 1_000_000
_TITLE = 5.0  # seconds: a light model may still be writing the title, and a moment is worth it
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
    if thread is not None and resume:
        raise InputError("--thread and --resume contradict each other.", hint="--resume takes the conversation that was used last.")
    if prompt is not None and not prompt.strip():
        raise InputError("there is nothing in the prompt.", hint="Write at least one word after -p, or leave it out to talk.")
    with open_harness(config, traced=True) as harness:
        check_agent(agent, harness.base)
        message = _message(prompt)
        if as_json and message is None:
            raise InputError("with --json there must be something to say.", hint="Give -p, or pipe a text in.")
        if files and message is None:
            raise InputError("files are given with a message.", hint="Give -p, or use /upload in the conversation.")
        with closing(harness.conversation(thread, agent=agent, model=model, resume=resume)) as talk:
            if message is not None:
                taken = talk.upload([file.expanduser() for file in files]) if files else ()
                _once(talk, with_uploads(message, taken), quiet=quiet, as_json=as_json)
            else:
                _for_a_while(talk, harness, quiet=quiet)


def check_agent(agent: str | None, base: Path) -> None:
    """Refuse an agent that nobody has made: a mistyped name would begin a memory of its own without a word."""
    if agent is None or (base / "agents" / check_name(agent, "agent name")).is_dir():
        return
    known = sorted(place.name for place in (base / "agents").iterdir() if place.is_dir()) if (base / "agents").is_dir() else []
    near = nearest(agent, known)
    have = f"Did you mean {near}?" if near else f"There are {', '.join(known)}." if known else "There is none yet."
    raise InputError(f"there is no agent {agent!r}.", hint=f"{have} To make it: mkdir -p {shlex.quote(str(base / 'agents' / agent))}")


def _message(prompt: str | None) -> str | None:
    """What is to be said at once: the option, what is piped in, or both, the piped text below."""
    piped = ""
    if not sys.stdin.isatty():
        piped = sys.stdin.read(_PIPED + 1)
        if len(piped) > _PIPED:
            raise InputError(f"more than {_PIPED:,} characters were piped in.", hint="Put them into a file of the thread instead.")
    parts = [part for part in (prompt or "", piped) if part.strip()]
    return "\n\n".join(parts) if parts else None


def _once(talk: Talk, message: str, *, quiet: bool, as_json: bool) -> None:
    screen = Screen(out=StringIO(), notes=StringIO()) if as_json else Screen(quiet=quiet, verbatim=talk.verbatim)
    ended = one_turn(talk, talk.send(message), screen, ask=False)
    talk.wait_for_title(_TITLE)
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


def _for_a_while(talk: Talk, harness: Harness, *, quiet: bool) -> None:
    remember_lines(harness.base / "typed_lines")
    screen = Screen(quiet=quiet, verbatim=talk.verbatim)
    title = f" ({talk.title})" if talk.title else ""
    screen.note(f"{talk.thread}{title}, {talk.described}. /help lists the commands.")
    if talk.interrupted:
        waiting = talk.approvals()
        screen.note("The last turn was broken off; going on with it." if not waiting else "A call waits for your approval.")
        one_turn(talk, iter([ApprovalNeeded(waiting)]) if waiting else talk.resume(), screen, ask=True)
    last = _converse(talk, harness, screen)
    last.wait_for_title(_TITLE)
    screen.note(f"To go on: holdfast chat --thread {last.thread}")


def _converse(talk: Talk, harness: Harness, screen: Screen) -> Talk:
    """Talk until the person leaves; gives the conversation that was last. An error of ours is said, and the conversation goes on."""
    uploaded: list[Upload] = []
    news = MemoryNews(screen)
    news.begin(talk)
    while True:
        try:
            typed = read_message("\n› ")
        except KeyboardInterrupt:
            screen.line("(Ctrl-D or /quit leaves)")
            continue
        if typed is None:
            screen.line()
            return talk
        if not typed.strip():
            continue
        if typed.startswith("/"):
            try:
                talk = run_command(typed, Slash(harness, talk, screen, uploaded))
            except Leave:
                return talk
            continue
        try:
            message = with_uploads(typed, uploaded)
            uploaded.clear()
            one_turn(talk, talk.send(message), screen, ask=True)
            news.after_turn(talk, typed)
        except HoldfastError as error:
            screen.break_line()
            complain(str(error))
