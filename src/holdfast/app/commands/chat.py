"""`holdfast chat`: a conversation that can go on for weeks, what it says of memory, and its own commands (A1, A13, A14, M10, O1)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.app.chat_commands import Leave, Slash, is_command, means_command, run_command
from holdfast.app.chat_screen import ENDINGS, Message, Screen, one_line, one_turn, read_messages, remember_lines
from holdfast.app.output import command, complain, echo_json, given, open_harness, piped_text
from holdfast.errors import HoldfastError, InputError
from holdfast.talk import ApprovalNeeded, Talk, Token, TurnEvent, with_uploads
from holdfast.text.normalise import reveal
from holdfast.validation import check_name, nearest

if TYPE_CHECKING:
    from holdfast.harness import Harness
    from holdfast.memory.history import Held


app = typer.Typer(rich_markup_mode=None, add_completion=False)

_PIPED = 1_000_000
_TITLE = 5.0  # seconds: a light model may still be writing the title, and a moment is worth it
_WAITS = 5  # the exit code when a call waits for an approval and nobody is there to give it
_UNANSWERED = ("empty", "filtered", "bad_calls")


@command(app, epilog='Example: holdfast chat -p "What did we decide about the queue?"')
def chat(
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Say this, print the answer, and end.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", "-t", help="Go on in this conversation, or begin it under this name.")] = None,
    resume: Annotated[bool, typer.Option("--resume", "-r", help="Go on in the conversation that was used last.")] = False,
    agent: Annotated[str | None, typer.Option("--agent", "-a", metavar="NAME", help="An agent with a memory of its own.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of config.yaml. Default: the first one.")] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", metavar="PATH", help="Give this file to the conversation. May be repeated.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show the answer alone.")] = False,
) -> None:
    """Talk to the agent. What is piped in is part of the message. Without a model it answers from memory, history and knowledge.

    A conversation keeps its agent. With -p or a pipe the exit code is 1 where nothing was answered, 5 where a call waits for approval.
    """
    if thread is not None and resume:
        raise InputError("--thread and --resume contradict each other.", hint="--resume takes the conversation that was used last.")
    if prompt is not None and not prompt.strip():
        raise InputError("there is nothing in the prompt.", hint="Write at least one word after -p, or leave it out to talk.")
    with open_harness(traced=True) as harness:
        check_agent(agent, harness.base)
        harness.attend("chat")
        message, words = _message(prompt)
        if given().as_json and message is None:
            raise InputError("with --json there must be something to say.", hint="Give -p, or pipe a text in.")
        if files and message is None:
            raise InputError("files are given with a message.", hint="Give -p, or use /upload in the conversation.")
        if absent := [str(file) for file in files or () if not file.expanduser().is_file()]:
            raise InputError(f"{absent[0]} is not a file.", hint="Give the path of a file that is there.")
        if message is None and not sys.stdin.isatty():
            raise InputError("nothing was piped in, so there is nothing to say.", hint="Give -p, pipe a text in, or talk on a terminal.")
        with closing(harness.conversation(thread, agent=agent, model=model, resume=resume)) as talk:
            if talk.verbatim and not quiet and not given().as_json:
                _tell_unusable_keys(harness)
            if message is not None:
                taken = talk.upload([file.expanduser() for file in files]) if files else ()
                for one in taken:
                    if one.problem:
                        complain(f"{one.name}: {one.problem}.")
                _once(talk, with_uploads(message, taken), words, message[len(words) :].strip(), quiet=quiet)
            else:
                _for_a_while(talk, harness, model, quiet=quiet)


def _tell_unusable_keys(harness: Harness) -> None:
    """Say on standard error which key is there that cannot be used as it is, and what is missing: else it reads as if there were none."""
    from holdfast.models.choice import unusable_keys

    for line in unusable_keys() if not harness.config.models else ():
        complain(line + ".")


def check_agent(agent: str | None, base: Path) -> None:
    """Refuse an agent that nobody has made: a mistyped name would begin a memory of its own without a word."""
    if agent is None or (base / "agents" / check_name(agent, "agent name")).is_dir():
        return
    known = sorted(place.name for place in (base / "agents").iterdir() if place.is_dir()) if (base / "agents").is_dir() else []
    near = nearest(agent, known)
    have = f"Did you mean {near}?" if near else f"There are {', '.join(known)}." if known else "No agent was made yet."
    raise InputError(f"there is no agent {agent!r}.", hint=f"{have} To make one: mkdir -p {shlex.quote(str(base / 'agents' / agent))}")


def _message(prompt: str | None) -> tuple[str | None, str]:
    """What is to be said at once: the option, what is piped in, or both, the piped text below. And what of it was typed: the option."""
    piped = ""
    if not sys.stdin.isatty():
        piped = piped_text(_PIPED)
    words = (prompt or "").strip()
    parts = [part for part in (words, piped) if part.strip()]
    return ("\n\n".join(parts) if parts else None), words


def _sent(talk: Talk, message: str, *, told: set[str], pasted: bool = False, typed: int = 0) -> Iterator[TurnEvent]:
    """Say something. The lines that say how an answer came about are `told` once."""
    events = talk.send(message, pasted=pasted, typed=typed)
    if not talk.verbatim:
        yield from events
        return
    from holdfast.offline.conversation import NOTES

    for event in events:
        note = event.text.strip() if isinstance(event, Token) else ""
        if note not in NOTES or note not in told:
            yield event
        if note in NOTES:
            told.update(NOTES)


def _silent(quiet: bool) -> set[str]:
    """The lines that need not be told: none, or with `quiet` all of them."""
    if not quiet:
        return set()
    from holdfast.offline.conversation import NOTES

    return set(NOTES)


def _once(talk: Talk, message: str, words: str, piped: str, *, quiet: bool) -> None:
    """Say it and end. `words` of it were typed, and `piped` came through a pipe."""
    as_json = given().as_json
    screen = Screen(out=StringIO(), notes=StringIO()) if as_json else Screen(quiet=quiet, verbatim=talk.verbatim)
    news = MemoryNews(screen, undo="holdfast memory undo")
    news.begin(talk)
    ended = one_turn(talk, _sent(talk, message, told=_silent(quiet), pasted=bool(piped), typed=len(words)), screen, ask=False)
    news.tell(talk)
    news.tell_piped(piped)
    talk.wait_for_title(_TITLE)
    if as_json:
        value = {
            "thread": talk.thread,
            "reason": ended.reason,
            "text": ended.text,
            "artifacts": list(ended.artifacts),
            "tokens": ended.tokens,
        }
        echo_json(value)
    if ended.reason == "approval":
        if not as_json:
            sys.stderr.write(f"holdfast: a call waits for your approval. Answer it in `holdfast chat --thread {talk.thread}`.\n")
        raise typer.Exit(_WAITS)
    if ended.reason == "cancelled":
        raise typer.Exit(130)
    if ended.reason in _UNANSWERED or (ended.reason == "cut" and not ended.text.strip()):
        if quiet and not as_json:
            complain(f"{ENDINGS[ended.reason]}.")
        raise typer.Exit(1)


def _for_a_while(talk: Talk, harness: Harness, model: str | None, *, quiet: bool) -> None:
    remember_lines(harness.base / "typed_lines")
    screen = Screen(quiet=quiet, verbatim=talk.verbatim)
    title = f" ({talk.title})" if talk.title else ""
    screen.note(f"{talk.thread}{title}, {talk.described}. /help lists the commands.")
    with ExitStack() as opened:
        last = _converse(talk, Slash(harness, talk, screen, model=model, opened=opened), quiet=quiet)
        with suppress(KeyboardInterrupt):  # they leave without the title
            last.wait_for_title(_TITLE)
        if last.history():
            options = {"--thread": last.thread, "--model": model, "--config": given().config}  # the environment is that of this shell
            words = [shlex.quote(str(word)) for option in options.items() if option[1] is not None for word in option]
            screen.note(" ".join(["To go on: holdfast chat", *words]))


def _pick_up(talk: Talk, screen: Screen) -> list[Message]:
    """Tell of what the last turn left open, ask about it, and do it. What was typed in place of an answer is the next message."""
    if not talk.interrupted:
        return []
    if waiting := talk.approvals():
        screen.note("A call waits for your approval.")
        one_turn(talk, iter([ApprovalNeeded(waiting)]), screen, ask=True)
        return []
    screen.line("The last turn was broken off before its end. Until you say something else, /resume goes on with it.")
    try:
        answer = input("Go on with it? [Y/n] ")
    except (EOFError, KeyboardInterrupt):
        screen.line()
        return []
    if answer.strip(" .!").lower() in _YES | {""}:
        one_turn(talk, talk.resume(), screen, ask=True)
    elif answer.strip(" .!").lower() not in _NO:
        return [Message(answer)]
    return []


def _converse(talk: Talk, slash: Slash, *, quiet: bool = False) -> Talk:
    """Talk until the person leaves; gives the conversation that was last. An error of ours is said, and the conversation goes on, and so it
    does after Ctrl-C."""
    screen = slash.screen
    unread: list[Message] = []
    news, told = MemoryNews(screen), _silent(quiet)
    entered: Talk | None = None
    while True:
        try:
            if entered is not talk:
                entered = talk
                news.begin(talk)
                unread += _pick_up(talk, screen)
            unread = unread or [one for one in [news.take_unread()] if one] or read_messages("\n› ", is_command)
        except HoldfastError as error:
            complain(str(error))
            continue
        except KeyboardInterrupt:
            screen.line("(Ctrl-D or /quit leaves)")
            continue
        if not unread:
            screen.line()
            return talk
        message = unread.pop(0)
        said = message.text
        if not said.strip():
            continue
        if said.strip(" .!").lower() in _ENDS:
            return talk
        try:
            talk = _say(message, replace(slash, talk=talk), news, told)
        except Leave:
            return talk
        except KeyboardInterrupt:
            screen.line("(stopped; the conversation goes on)")
        except HoldfastError as error:
            screen.break_line()
            complain(str(error))


def _say(message: Message, slash: Slash, news: MemoryNews, told: set[str]) -> Talk:
    """Do what a person typed, a command or something to say, and give the conversation to go on with."""
    talk, said = slash.talk, message.text
    if talk.verbatim and said.strip(" .!").lower() == "stop":
        slash.screen.line("Nothing runs here. /quit ends.")
        return talk
    if means_command(said) and not message.pasted:
        return run_command(said, slash)
    whole = with_uploads(said, slash.pending)
    slash.pending.clear()
    one_turn(talk, _sent(talk, whole, told=told, pasted=message.pasted), slash.screen, ask=True)
    news.after_turn(talk, said, pasted=message.pasted)
    return talk


_ENDS = frozenset(("quit", "exit", "bye", "goodbye", ":q"))  # a person who types one of these alone wants to leave
_YES = frozenset(("y", "yes", "j", "ja", "s", "si", "sí", "o", "oui", "是", "はい"))
_NO = frozenset(("", "n", "no", "nein", "non", "não", "nope", "否", "不", "いいえ"))
_PASTED = "not learned: it {why}. What is true of you: `holdfast memory add WORDS`"
_TOLD, _WISHED = 2000, 480  # characters of what is told, and of what is wished for: more of them is a text about something
_SHORT = 24
_MOMENT = 2.0  # seconds that learning by rules may take before the next message


@dataclass
class MemoryNews:
    """Tells and asks what concerns memory, for one conversation on a terminal (M10).

    Something that loosens a check is asked about in the turn in which it was typed, without waiting for any model; the answer holds for
    whatever is proposed of the same words later. What was learned meanwhile is told before the next message, with the way to take it back,
    and so is that a message was taken for pasted, of which nothing is learned. An answer that is neither yes nor no counts as no, and is
    the next message.
    """

    screen: Screen
    undo: str = "/memory undo"
    _seen: set[str] = field(default_factory=set)
    _answers: list[tuple[str, bool]] = field(default_factory=list)

    def begin(self, talk: Talk) -> None:
        """From here on what is new counts."""
        self._seen = self._known(talk)

    def after_turn(self, talk: Talk, typed: str, *, pasted: bool = False) -> None:
        """Ask about what was typed, then tell what was learned and ask about what waits."""
        if not talk.memory.settings.enabled:
            return
        if not pasted:
            self._ask_at_once(talk, typed)
        self.tell(talk, asks=True)
        if len(typed) <= _TOLD:
            self._tell_pasted(typed, pasted)

    def tell(self, talk: Talk, *, asks: bool = False) -> None:
        """Tell what was learned and what waits. What loosens a check is asked about where there is somebody who `asks`."""
        if not talk.memory.settings.enabled:
            return
        if talk.memory.learns_by_rules:
            talk.memory.flush(_MOMENT)
        from holdfast.memory.gate import ASKED  # its tables of patterns are made when somebody first learns something

        for held in talk.memory.review(talk.agent_name):
            if held.id in self._seen:
                continue
            if asks and held.rule in ASKED:
                self._settle(talk, held)
            else:
                self.screen.note(f"waits for you in `holdfast memory review`: {one_line(held.fact.content)}")
        for change in talk.memory.history(talk.agent_name):
            if change.id in self._seen or change.by != "updater":
                continue
            found = [one.after.get("content") for one in change.differences if one.kind == "fact" and isinstance(one.after, dict)]
            facts = [one_line(str(content)) for content in found if content]
            for number, fact in enumerate(facts, 1):
                many = f" takes back {'both' if number == 2 else 'all of them'}" if number > 1 else ""
                self.screen.note(f"remembered: {fact}" + (f"; {self.undo}{many}" if number == len(facts) else ""))
        self._seen = self._known(talk)

    def _tell_pasted(self, typed: str, pasted: bool) -> None:
        """Say that nothing is learned of a message that was pasted, or that reads so and speaks of the user."""
        from holdfast.memory.screening import own_words
        from holdfast.offline.conversation import speaks_of_user
        from holdfast.offline.planner import is_request

        if pasted:
            self.screen.note(_PASTED.format(why="was pasted"))
        elif typed.strip() and not own_words(typed).strip() and speaks_of_user(typed) and not is_request(typed):
            self.screen.note(_PASTED.format(why="reads as pasted"))

    def tell_piped(self, text: str) -> None:
        """Say that nothing is learned of what came through a pipe, where it speaks of the user."""
        from holdfast.offline.conversation import speaks_of_user

        if len(text) <= _TOLD and speaks_of_user(text):
            self.screen.note(_PASTED.format(why="was piped in"))

    def take_unread(self) -> Message | None:
        """What was typed in place of an answer, once: it is the next message."""
        unread, self._unread = self._unread, None
        return unread

    _unread: Message | None = None

    def _known(self, talk: Talk) -> set[str]:
        changes = {change.id for change in talk.memory.history(talk.agent_name)}
        return changes | {held.id for held in talk.memory.review(talk.agent_name)}

    def _ask_at_once(self, talk: Talk, typed: str) -> None:
        from holdfast.memory.facts import Turn
        from holdfast.memory.screening import find_standing, own_words, tells_secret

        own = " ".join(own_words(typed).split())
        if len(own) <= _TOLD and tells_secret(own, [Turn("typed", "user", own)]):
            way = "`holdfast memory forget --text WORDS` takes it out of the history too"
            if not talk.verbatim:  # without a model the answer says it
                self.screen.note(f"this reads like a secret and is not remembered; {way}")
            return
        if len(own) < _SHORT and " " not in own and own.isascii():  # one word is no wish
            return
        loosens = find_standing(own) if len(own) <= _WISHED else None
        if loosens is None:
            return
        wanted = self._asks(f"Remember “{own}”? It {loosens.why}.")
        self._answers.append((own, wanted))
        if wanted:
            fact = talk.memory.add(f"User said: “{own}”", talk.agent_name, category="preference")
            self.screen.note(f"remembered: {one_line(fact.content)}; {self.undo}")

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
        self._answered = False
        if self._unread is not None:  # they have gone on: nothing more is asked before that is read
            return False
        self.screen.line(reveal(question))
        try:
            typed = input("[y/N] ")
        except (EOFError, KeyboardInterrupt):
            return False
        self._answered = True
        answer = typed.strip(" .!").lower()
        if answer not in _YES | _NO:
            self._unread = Message(typed, pasted="\n" in typed.strip())
            self.screen.note("(not remembered; what you typed is your next message)")
        return answer in _YES
