"""`holdfast chat`: a conversation that can go on for weeks (A1, A13, A14, O1)."""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.app.chat_commands import Leave, Slash, run_command
from holdfast.app.chat_screen import Screen, one_line, one_turn, read_message, remember_lines
from holdfast.app.output import ConfigOption, JsonOption, complain, open_harness, show
from holdfast.config.known_keys import nearest
from holdfast.errors import HoldfastError, InputError
from holdfast.ids import check_name
from holdfast.talk import ApprovalNeeded, Talk, with_uploads
from holdfast.text.normalise import reveal

if TYPE_CHECKING:
    from holdfast.harness import Harness
    from holdfast.memory.history import Held
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


_TOLD, _WISHED = 2000, 480  # characters of what is told, and of what is wished for: more of them is a text about something
_MOMENT = 2.0  # seconds that learning by rules may take before the next message


@dataclass
class MemoryNews:
    """Tells and asks what concerns memory, for one conversation on a terminal (M10).

    Something that loosens a check is asked about in the turn in which it was typed, without waiting for any model; the answer holds for
    whatever is proposed of the same words later. What was learned meanwhile is told before the next message, with the way to take it back.
    """

    screen: Screen
    _seen: set[str] = field(default_factory=set)
    _answers: list[tuple[str, bool]] = field(default_factory=list)

    def begin(self, talk: Talk) -> None:
        """From here on what is new counts."""
        self._seen = self._known(talk)

    def after_turn(self, talk: Talk, typed: str) -> None:
        """Ask about what was typed, then tell what was learned and ask about what waits."""
        if not talk.memory.settings.enabled:
            return
        self._ask_at_once(talk, typed)
        if talk.memory.learns_by_rules:
            talk.memory.flush(_MOMENT)
        from holdfast.memory.gate import ASKED  # its tables of patterns are made when somebody first learns something

        for held in talk.memory.review(talk.agent_name):
            if held.id not in self._seen and held.rule in ASKED:
                self._settle(talk, held)
        for change in talk.memory.history(talk.agent_name):
            if change.id in self._seen or change.by != "updater":
                continue
            for difference in change.differences:
                content = difference.after.get("content") if isinstance(difference.after, dict) else None
                if difference.kind == "fact" and content:
                    self.screen.note(f"remembered: {one_line(str(content))}; /memory undo")
        self._seen = self._known(talk)

    def _known(self, talk: Talk) -> set[str]:
        changes = {change.id for change in talk.memory.history(talk.agent_name)}
        return changes | {held.id for held in talk.memory.review(talk.agent_name)}

    def _ask_at_once(self, talk: Talk, typed: str) -> None:
        from holdfast.memory.facts import Turn
        from holdfast.memory.loosening import find_standing
        from holdfast.memory.pasted import own_words
        from holdfast.memory.spoken_secrets import tells_secret

        own = " ".join(own_words(typed).split())
        if len(own) <= _TOLD and tells_secret(own, [Turn("typed", "user", own)]):
            way = "`holdfast memory forget --text WORDS` takes it out of the history too"
            self.screen.note(f"this reads like a secret and is not remembered; {way}")
            return
        loosens = find_standing(own) if len(own) <= _WISHED else None
        if loosens is None:
            return
        wanted = self._asks(f"Remember “{own}”? It {loosens.why}.")
        self._answers.append((own, wanted))
        if wanted:
            fact = talk.memory.add(f"User said: “{own}”", talk.agent_name, category="preference")
            self.screen.note(f"remembered: {one_line(fact.content)}; /memory undo")

    def _settle(self, talk: Talk, held: Held) -> None:
        """What waits is as it was answered before, or is asked about now."""
        words = " ".join((held.fact.origin.quote or held.fact.content).split())
        known = next((wanted for said, wanted in self._answers if words in said or said in words), None)
        if known is None and self._asks(f"Remember “{held.fact.content}”? It {held.why}."):
            talk.memory.accept(held.id, talk.agent_name)
        elif known is not None or self._answered:
            talk.memory.reject(held.id, talk.agent_name)

    _answered: bool = False

    def _asks(self, question: str) -> bool:
        """Anything that is not clearly a yes is a no. Without an answer nothing is decided: it waits for review."""
        self.screen.line(reveal(question))
        try:
            typed = input("[y/N] ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            self._answered = False
            return False
        self._answered = True
        return typed in ("y", "yes", "j", "ja", "s", "si", "sí", "o", "oui", "是", "はい")
