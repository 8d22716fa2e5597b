"""The commands inside a conversation (`/help` lists them), each a small function that gives the conversation to go on with where that is
another one (A14, O1, S17)."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.agents.agent_settings import agent_names, load_agent
from holdfast.app.chat_screen import Screen, one_line, one_turn
from holdfast.app.commands.history import draw_threads
from holdfast.app.commands.memory import draw_known
from holdfast.errors import HoldfastError, InputError
from holdfast.talk import Talk
from holdfast.tokens.budget import Budget

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.harness import Harness
    from holdfast.sandbox.uploads import Upload


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
    model: str | None = None
    """The model that was asked for, for conversations of another agent."""
    opened: ExitStack = field(default_factory=ExitStack)
    """Conversations of another agent, which are closed when all of it ends."""

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


_NAMED = re.compile(r"/[^\W\d_]*(?:\s|$)")


def is_command(line: str) -> bool:
    """Whether a line is one of the commands."""
    return line.startswith("/") and line[1:].partition(" ")[0].lower() in COMMANDS


def means_command(line: str) -> bool:
    """Whether a line was meant as a command, mistyped or not: a slash and one word. A path is said to the agent.

    >>> means_command("/histroy 5"), means_command("/usr/bin/python3 segfaults, why?")
    (True, False)
    """
    return _NAMED.match(line) is not None


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
            hint = f"Did you mean /{near[0]}?" if near else "/help lists them. To say it to the agent, begin with a space."
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

    records = said = slash.talk.history()
    if words and not words[0].isdigit():
        wanted = [word.casefold() for word in words]
        records = [record for record in records if all(word in record.text.casefold() for word in wanted)]
    last = int(words[0]) if words and words[0].isdigit() else 20
    numbers = {record.id: number for number, record in enumerate(said, 1)}
    for record in records[-last:]:
        who = {"human": "you", "ai": "agent"}.get(record.role, record.role)
        typed = without_uploads(record.text) if record.role == "human" else record.text
        text = one_line(typed or record.text or "(tool calls)", slash.screen.width - 14)
        slash.screen.line(f"{f'#{numbers[record.id]}':>5} {who:>6}  {text}")
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
    new = slash.talk.branch(f"#{at}" if at is not None and at.isdecimal() else at)
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
    agent = slash.harness.agent_of(fits[0])
    if agent == slash.talk.agent_name:
        slash.screen.line(f"Going on in {fits[0]}.")
        return slash.talk.other(fits[0])
    new = slash.opened.enter_context(closing(slash.harness.conversation(fits[0], model=slash.model)))
    slash.screen.line(f"Going on in {fits[0]}, with {agent or 'the lead agent'}.")
    return new


def _resume(slash: Slash, words: list[str]) -> None:
    if not slash.talk.interrupted or slash.talk.approvals():
        raise InputError("no turn was broken off here.", hint="Just say something.")
    one_turn(slash.talk, slash.talk.resume(), slash.screen, ask=True)


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
    "resume": _Command(_resume, "/resume", "go on with a turn that was broken off", asks_model=True),
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
