"""`holdfast chat`: a conversation that can go on for weeks, what it says of memory, and its own commands (A1, A13, A14, M10, O1)."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.agents.agent_settings import agent_names, load_agent
from holdfast.app.chat_screen import Message, Screen, one_line, one_turn, read_messages, remember_lines
from holdfast.app.commands.history import draw_threads
from holdfast.app.commands.memory import draw_known
from holdfast.app.output import command, complain, echo_json, given, open_harness, piped_text
from holdfast.errors import HoldfastError, InputError
from holdfast.talk import ApprovalNeeded, Talk, Token, TurnEvent, with_uploads
from holdfast.text.normalise import reveal
from holdfast.tokens.budget import Budget
from holdfast.validation import check_name, nearest

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.harness import Harness
    from holdfast.memory.history import Held
    from holdfast.sandbox.uploads import Upload


app = typer.Typer(rich_markup_mode=None, add_completion=False)

_PIPED = 1_000_000
_TITLE = 5.0  # seconds: a light model may still be writing the title, and a moment is worth it
_WAITS = 5  # the exit code when a call waits for an approval and nobody is there to give it


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
    """Talk to the agent. What is piped in is part of the message. Without a model it answers from memory, history and knowledge."""
    if thread is not None and resume:
        raise InputError("--thread and --resume contradict each other.", hint="--resume takes the conversation that was used last.")
    if prompt is not None and not prompt.strip():
        raise InputError("there is nothing in the prompt.", hint="Write at least one word after -p, or leave it out to talk.")
    with open_harness(traced=True) as harness:
        check_agent(agent, harness.base)
        harness.attend("chat")
        message = _message(prompt)
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
                _once(talk, with_uploads(message, taken), quiet=quiet)
            else:
                _for_a_while(talk, harness, quiet=quiet)


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


def _message(prompt: str | None) -> str | None:
    """What is to be said at once: the option, what is piped in, or both, the piped text below."""
    piped = ""
    if not sys.stdin.isatty():
        piped = piped_text(_PIPED)
    parts = [part for part in (prompt or "", piped) if part.strip()]
    return "\n\n".join(parts) if parts else None


def _sent(talk: Talk, message: str, *, told: set[str], pasted: bool = False) -> Iterator[TurnEvent]:
    """Say something. The lines that say how an answer came about are `told` once."""
    events = talk.send(message, pasted=pasted)
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


def _once(talk: Talk, message: str, *, quiet: bool) -> None:
    as_json = given().as_json
    screen = Screen(out=StringIO(), notes=StringIO()) if as_json else Screen(quiet=quiet, verbatim=talk.verbatim)
    news = MemoryNews(screen, undo="holdfast memory undo")
    news.begin(talk)
    ended = one_turn(talk, _sent(talk, message, told=_silent(quiet)), screen, ask=False)
    news.tell(talk)
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


def _for_a_while(talk: Talk, harness: Harness, *, quiet: bool) -> None:
    remember_lines(harness.base / "typed_lines")
    screen = Screen(quiet=quiet, verbatim=talk.verbatim)
    title = f" ({talk.title})" if talk.title else ""
    screen.note(f"{talk.thread}{title}, {talk.described}. /help lists the commands.")
    if talk.interrupted:
        waiting = talk.approvals()
        screen.note("The last turn was broken off; going on with it." if not waiting else "A call waits for your approval.")
        one_turn(talk, iter([ApprovalNeeded(waiting)]) if waiting else talk.resume(), screen, ask=True)
    last = _converse(talk, harness, screen, quiet=quiet)
    last.wait_for_title(_TITLE)
    if last.history():
        screen.note(f"To go on: holdfast chat --thread {last.thread}")


def _converse(talk: Talk, harness: Harness, screen: Screen, *, quiet: bool = False) -> Talk:
    """Talk until the person leaves; gives the conversation that was last. An error of ours is said, and the conversation goes on."""
    uploaded: list[Upload] = []
    unread: list[Message] = []
    news, told = MemoryNews(screen), _silent(quiet)
    news.begin(talk)
    while True:
        try:
            unread = unread or [one for one in [news.take_unread()] if one] or read_messages("\n› ", _is_command)
        except KeyboardInterrupt:
            screen.line("(Ctrl-D or /quit leaves)")
            continue
        if not unread:
            screen.line()
            return talk
        given = unread.pop(0)
        typed = given.text
        if not typed.strip():
            continue
        if typed.strip(" .!").lower() in _ENDS:
            return talk
        if talk.verbatim and typed.strip(" .!").lower() == "stop":
            screen.line("Nothing runs here. /quit ends.")
            continue
        if typed.startswith("/") and not given.pasted:
            try:
                talk = run_command(typed, Slash(harness, talk, screen, uploaded))
            except Leave:
                return talk
            continue
        try:
            message = with_uploads(typed, uploaded)
            uploaded.clear()
            one_turn(talk, _sent(talk, message, told=told, pasted=given.pasted), screen, ask=True)
            news.after_turn(talk, typed, pasted=given.pasted)
        except HoldfastError as error:
            screen.break_line()
            complain(str(error))


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


# The commands inside a conversation, each a small function that gives the conversation to go on with where that is another one


class Leave(Exception):
    """The person wants to end the conversation."""


@dataclass(frozen=True)
class Slash:
    """What a command works with: the harness, the conversation, and where to say things."""

    harness: Harness
    talk: Talk
    screen: Screen
    pending: list[Upload] = field(default_factory=list)
    """What was uploaded since the last message."""

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.harness.config


@dataclass(frozen=True)
class _Command:
    run: Callable[[Slash, list[str]], Talk | None]
    usage: str
    help: str
    asks_model: bool = False
    """Whether there is nothing for it to do in a conversation without a model."""


def _is_command(line: str) -> bool:
    return line.startswith("/") and line[1:].partition(" ")[0].lower() in COMMANDS


def run_command(line: str, slash: Slash) -> Talk:
    """Run a line that begins with a slash, and give the conversation to go on with. An error of ours is said and ends nothing."""
    try:
        words = shlex.split(line[1:])
    except ValueError:
        words = line[1:].split()
    name = words[0].lower() if words else "help"
    known = COMMANDS.get(name)
    try:
        if known is None:
            near = difflib.get_close_matches(name, COMMANDS, 1)
            hint = f"Did you mean /{near[0]}?" if near else "/help lists them."
            raise InputError(f"there is no command /{one_line(name, 40)}.", hint=hint)
        found = known.run(slash, words[1:])
    except HoldfastError as error:
        slash.screen.line(f"holdfast: {error}")
        return slash.talk
    return slash.talk if found is None else found


def _help(slash: Slash, words: list[str]) -> None:
    commands = [one for one in dict.fromkeys(COMMANDS.values()) if not (slash.talk.verbatim and one.asks_model)]  # /exit is /quit
    width = max(len(one.usage) for one in commands)
    for one in commands:
        slash.screen.line(one.help, mark=f"{one.usage:<{width}}  ")
    if slash.talk.verbatim:
        others = ", ".join(f"/{name}" for name, one in COMMANDS.items() if one.asks_model)
        slash.screen.line(f"With a model there are also {others}: `holdfast models list` says how to give me one.")
    slash.screen.line("Ctrl-C stops the turn and keeps the conversation. A block between two lines of three quotes is one message.")


def _compact(slash: Slash, words: list[str]) -> None:
    keep = ("messages", _number(words[0], "messages to keep")) if words else None
    outcome = slash.talk.compact(force=True, keep=keep).outcome
    if outcome is None:
        slash.screen.line("There is nothing to compact yet.")
        return
    plan = outcome.plan
    slash.screen.line(f"{plan.before:,} tokens became {plan.after:,}. All of it stays in the history: /history.")


def _memory(slash: Slash, words: list[str]) -> None:
    memory, agent = slash.talk.memory, slash.talk.agent_name
    if words and words[0] == "undo":
        for difference in memory.undo(words[1] if words[1:] else None, agent).differences:
            said = difference.after if difference.after is not None else difference.before
            text = next((said[key] for key in ("content", "summary", "text") if said.get(key)), "") if isinstance(said, dict) else said
            known = "no longer known" if difference.after is None else "known again" if difference.before is None else "now"
            slash.screen.line(f"{known}: {one_line(str(text)) or '(nothing)'}")
        return
    if words:
        hits = memory.search(" ".join(words), agent=agent)
        for hit in hits:
            slash.screen.line(hit.fact.content, mark="- ")
        if not hits:
            slash.screen.line("Nothing about that.")
        return
    draw_known(slash.screen.console, memory.document(agent))


def _budget(slash: Slash, words: list[str]) -> None:
    without = slash.talk.verbatim
    manifest = None if without else slash.talk.sent()
    if manifest is None:
        window = slash.harness.find_window().tokens if without else slash.talk.window
        split = Budget.split(window, slash.config.memory.max_injection_tokens)
        shares = ", ".join(
            f"{name.replace('_', ' ')} {getattr(split, name):,}" for name in ("system", "history", "tool_definitions", "response")
        )
        slash.screen.line(f"Nothing was sent in this process yet. The window has {split.window:,} tokens: {shares}.")
        return
    slash.screen.line(f"{manifest.tokens:,} of {manifest.window:,} tokens were sent with the last request:")
    for origin, tokens in manifest.by_origin().items():
        bar = "█" * max(1, round(40 * tokens / max(1, manifest.window)))
        slash.screen.line(f"  {origin:<13}{tokens:>8,}  {bar}")


def _history(slash: Slash, words: list[str]) -> None:
    from holdfast.memory.facts import without_uploads

    records = slash.talk.history()
    if words and not words[0].isdigit():
        wanted = [word.casefold() for word in words]
        records = [record for record in records if all(word in record.text.casefold() for word in wanted)]
    last = int(words[0]) if words and words[0].isdigit() else 20
    for record in records[-last:]:
        who = {"human": "you", "ai": "agent"}.get(record.role, record.role)
        said = without_uploads(record.text) if record.role == "human" else record.text
        slash.screen.line(f"{record.seq or '·':>5} {who:>6}  {one_line(said or record.text or '(tool calls)', slash.screen.width - 14)}")
    if not records:
        slash.screen.line("Nothing yet.")


def _undo(slash: Slash, words: list[str]) -> Talk:
    records = slash.talk.history()
    asked = [number for number, record in enumerate(records) if record.role == "human"]
    if not asked:
        raise InputError("there is nothing to undo yet.")
    new = slash.talk.branch(records[asked[-1] - 1].id) if asked[-1] > 0 else slash.talk.other()
    slash.harness.note_used(new.thread)
    slash.screen.line(f"Back before your last message, in {new.thread}. What was said after it stays in {slash.talk.thread}.")
    return new


def _branch(slash: Slash, words: list[str]) -> Talk:
    at = words[0] if words else None
    if at is not None and at.removeprefix("#").isdigit():
        wanted = int(at.removeprefix("#"))
        at = next((record.id for record in slash.talk.history() if record.seq == wanted), at)
    new = slash.talk.branch(at)
    slash.harness.note_used(new.thread)
    slash.screen.line(f"Going on in {new.thread}. {slash.talk.thread} stays as it is.")
    return new


def _threads(slash: Slash, words: list[str]) -> None:
    found = slash.harness.conversations(last=_number(words[0], "conversations") if words else 20)
    if found:
        draw_threads(slash.screen.console, found, current=slash.talk.thread)
    else:
        slash.screen.line("There is none yet: say something.")


def _open(slash: Slash, words: list[str]) -> Talk:
    known = slash.harness.thread_names()
    if not words:
        raise InputError("which thread?", hint="/threads lists them.")
    fits = [thread for thread in known if thread == words[0]] or [thread for thread in known if thread.startswith(words[0])]
    if len(fits) != 1:
        raise InputError(f"{'no' if not fits else 'more than one'} thread is called {words[0]!r}.", hint="/threads lists them.")
    slash.screen.line(f"Going on in {fits[0]}.")
    return slash.talk.other(fits[0])


def _title(slash: Slash, words: list[str]) -> None:
    if words:
        slash.talk.title = " ".join(words)
    slash.screen.line(slash.talk.title or "(no title yet)")


def _agents(slash: Slash, words: list[str]) -> None:
    names = agent_names(slash.config)
    none = "There are no agents with settings of their own."
    slash.screen.line("Agents with settings of their own (`holdfast chat --agent NAME`):" if names else none)
    for name in names:
        slash.screen.line(load_agent(slash.config, name).description or "", mark=f"  {name}  ")
    kinds = slash.talk.subagents()
    if kinds:
        slash.screen.line("Sub-agents that it can start:")
    for name, description in kinds.items():
        slash.screen.line(description, mark=f"  {name}  ")


def _files(slash: Slash, words: list[str]) -> None:
    slash.screen.line(slash.talk.files() or "No files yet.")


def _upload(slash: Slash, words: list[str]) -> None:
    if not words:
        raise InputError("which file?", hint="/upload PATH")
    taken = slash.talk.upload([Path(word).expanduser() for word in words])
    slash.pending.extend(taken)
    for one in taken:
        slash.screen.line(f"{one.path}" + (f" and {one.markdown}" if one.markdown else "") + (f" ({one.problem})" if one.problem else ""))
    found = "What you ask is looked for there too."
    slash.screen.line(found if slash.talk.verbatim else "The agent is told with your next message.")


def _quit(slash: Slash, words: list[str]) -> None:
    raise Leave


def _number(word: str, what: str) -> int:
    if not word.isdigit() or int(word) < 1:
        raise InputError(f"{word!r} is no number of {what}.", hint="Give 1 or more.")
    return int(word)


COMMANDS: dict[str, _Command] = {
    "compact": _Command(
        _compact, "/compact [N]", "shorten the conversation now, keeping the newest N messages word for word", asks_model=True
    ),
    "memory": _Command(_memory, "/memory [WORDS | undo [CHANGE]]", "what is known about you; search it; take a change back"),
    "budget": _Command(_budget, "/budget", "what the window held in the last request"),
    "history": _Command(_history, "/history [N | WORDS]", "what was said, also what is no longer in the window"),
    "undo": _Command(_undo, "/undo", "go back before your last message; nothing is lost"),
    "branch": _Command(_branch, "/branch [NUMBER]", "go on in a copy of this conversation, up to a message of /history"),
    "threads": _Command(_threads, "/threads [N]", "your conversations, with a model and without"),
    "open": _Command(_open, "/open THREAD", "go on in another conversation"),
    "title": _Command(_title, "/title [WORDS]", "show or set the title"),
    "agents": _Command(_agents, "/agents", "agents and the sub-agents that they can start"),
    "upload": _Command(_upload, "/upload PATH...", "give files of yours to the conversation"),
    "files": _Command(_files, "/files", "the files of this conversation"),
    "help": _Command(_help, "/help", "these lines"),
    "quit": _Command(_quit, "/quit", "end; the conversation can be resumed"),
}
COMMANDS["exit"] = COMMANDS["quit"]
