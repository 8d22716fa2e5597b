"""A conversation on a terminal: what a person types, what a turn looks like, approvals, Ctrl-C (O1, A10, A13).

On a terminal tools are dim and short, and an answer's Markdown is drawn paragraph by paragraph; elsewhere the answer alone goes to
standard output and all else to standard error, so that a pipe gets the answer. What stands in a pipe cannot be taken back: there an answer
is held until it is the answer, since a model may call a tool after its first words, or break off and be replaced.
"""

from __future__ import annotations

import atexit
import json
import select
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from holdfast.app.output import clean_console, markdown, plain, prose
from holdfast.errors import HoldfastError
from holdfast.redaction import visible
from holdfast.talk import (
    Approval,
    ApprovalNeeded,
    Decision,
    Ended,
    ModelReplaced,
    Subagent,
    Talk,
    Token,
    ToolCalled,
    ToolFinished,
    TurnEvent,
)
from holdfast.text.normalise import call_lines, reveal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

_WIDTH = 100
ENDINGS = {
    "loop": "stopped: the same call was repeated over and over",
    "turn_capped": "stopped: too many steps in one turn",
    "bad_calls": "stopped: the model's tool calls did not arrive whole; raise `max_tokens:` of the model, or ask for smaller steps",
    "cut": "cut: the answer reached its token limit; say `go on`, or raise `max_tokens:` of the model",
    "empty": "nothing was answered: ask again, or say it in other words",
    "filtered": "held back by a filter of the provider, or refused by the model: say it in other words, or ask another model",
    "cancelled": "cancelled; what was said is kept",
}
_QUOTES = '"""'
_AT_ONCE = 0.05  # seconds in which the next line of a pasted text comes


def one_turn(talk: Talk, events: Iterator[TurnEvent], screen: Screen, *, ask: bool) -> Ended:
    """Show a turn to its end, with `ask` through the approvals that it stops for. Ctrl-C ends the turn and nothing else."""
    while True:
        ended = Ended("cancelled")
        waiting: tuple[Approval, ...] = ()
        screen.waiting(talk.described)
        try:
            for event in events:
                screen.show(event)
                if isinstance(event, ApprovalNeeded):
                    waiting = event.approvals
                elif isinstance(event, Ended):
                    ended = event
        except KeyboardInterrupt:
            if isinstance(events, Generator):  # the turn is over before anything else is said
                events.close()
            screen.drop()
            screen.note("(cancelled; what was said is kept)")
            return ended
        except HoldfastError:
            screen.drop()
            raise
        if not (waiting and ask):
            return ended
        events = talk.decide({approval.id: _decision(approval, screen) for approval in waiting})


class Screen:
    """Shows the events of a turn. `quiet` leaves only the answer; `verbatim` says that answers are quotes and not Markdown."""

    def __init__(self, *, out: IO[str] | None = None, notes: IO[str] | None = None, quiet: bool = False, verbatim: bool = False) -> None:

        self._out = out or sys.stdout
        self.console = clean_console()(file=self._out, highlight=False, soft_wrap=False)
        self._terminal = self._out.isatty()
        self._notes = notes or (self._out if self._terminal else sys.stderr)
        self._quiet, self._verbatim = quiet, verbatim
        self._held = ""  # of an answer that is not at its end yet, where it cannot be taken back
        self._spoke = False  # whether anything was said since the last tool call
        self._unread = ""  # what of the answer is not a whole paragraph yet
        self._live: Live | None = None  # shows that for the time being, or that somebody is at work

    @property
    def width(self) -> int:
        """Columns for a line that is cut rather than wrapped."""
        return self.console.width - 2 if self._terminal else _WIDTH

    def waiting(self, who: str) -> None:
        """Say who is at work, until the first thing is heard of it."""
        if self._terminal and not self._quiet and not self._verbatim:
            from rich.spinner import Spinner

            self._show_for_now(Spinner("dots", text=plain(f"{who} ...", "dim"), style="dim"), refreshes=True)

    def show(self, event: TurnEvent) -> None:
        """Show what happened."""
        if isinstance(event, Token):
            self._write(event.text)
        elif isinstance(event, ModelReplaced):
            self.drop()
            self.note(f"({event.why} {event.by} answers instead.)")
        elif isinstance(event, ToolCalled):
            self.drop()
            self.note(f"• {event.name} {_arguments(event.args, self.width - len(event.name) - 3)}".rstrip())
        elif isinstance(event, ToolFinished):
            if event.status == "error":
                self.note(f"  {one_line(event.text, self.width - 2)}", style="red")
            elif self._terminal:
                self.note(f"  {one_line(event.text, self.width - 2)}")
        elif isinstance(event, Subagent):
            self.note(_progress(event.event))
        elif isinstance(event, ApprovalNeeded):
            for approval in event.approvals:
                self.note(f"? {approval.tool} {_arguments(approval.args, self.width)} waits for your approval", style="bold")
        elif isinstance(event, Ended):
            self._end(event)

    def _end(self, event: Ended) -> None:
        if event.text and not self._spoke and not self._verbatim and event.reason != "approval":
            self._write(event.text)
        if self._held:
            self._out.write(visible(self._held) + ("" if self._held.endswith("\n") else "\n"))
            self._out.flush()
        self._held, self._spoke = "", False
        self.break_line()
        if event.reason in ENDINGS:
            self.note(f"({ENDINGS[event.reason]})")
        for path in event.artifacts:
            self.note(f"→ {path}")

    def drop(self) -> None:
        """What was said until now is no part of the answer. On a terminal it stands there; elsewhere it goes beside the answer."""
        self.break_line()
        held, self._held, self._spoke = self._held, "", False
        if held.strip():
            self.note(held.strip("\n"))

    def note(self, text: str, *, style: str = "dim") -> None:
        """A line beside the answer."""
        if self._quiet:
            return
        self.break_line()
        if self._terminal and self._notes is self._out:
            prose(self.console, text, style=style)
        else:
            self._notes.write(f"{visible(text)}\n")
            self._notes.flush()

    def line(self, text: str = "", *, mark: str = "") -> None:
        """A line of its own, such as a command gives."""
        self.break_line()
        prose(self.console, text, mark=mark)

    def _write(self, text: str) -> None:
        self._spoke = self._spoke or bool(text.strip())
        if not self._terminal:
            self._held += text
            return
        self._unread += text
        whole, self._unread = _paragraphs(self._unread) if not self._verbatim else _lines(self._unread)
        if whole:
            self._print_answer(whole)
        tail = "\n".join(self._unread.splitlines()[-self.console.height :]) if not self._verbatim else ""
        self._show_for_now(plain(tail) if tail else None)

    def _print_answer(self, text: str) -> None:
        self._show_for_now(None)
        if not self._verbatim:
            if text.strip():
                self.console.print(markdown(text))
                self.console.print()
            return
        for line in text.removesuffix("\n").split("\n"):
            prose(self.console, line.removeprefix("- "), mark="- " if line.startswith("- ") else "")

    def _show_for_now(self, what: RenderableType | None, *, refreshes: bool = False) -> None:
        """Show something that the next thing takes the place of; None takes it away."""
        from rich.live import Live

        if self._live is not None and (what is None or refreshes or self._live.auto_refresh):
            self._live.stop()
            self._live = None
        if what is None:
            return
        if self._live is None:
            self._live = Live(console=self.console, transient=True, auto_refresh=refreshes, vertical_overflow="crop")
            self._live.start()
        self._live.update(what, refresh=True)

    def break_line(self) -> None:
        """End the line that the answer is on, if it has begun."""
        if self._terminal:
            self._show_for_now(None)
            rest, self._unread = self._unread, ""
            if rest.strip():
                self._print_answer(rest)


def _lines(text: str) -> tuple[str, str]:
    """The whole lines at the beginning of a text, and the rest."""
    at = text.rfind("\n") + 1
    return text[:at], text[at:]


def _paragraphs(text: str) -> tuple[str, str]:
    """The whole paragraphs at the beginning of a Markdown text, and the rest. A block of code is one, with its empty lines."""
    ends, at, fence = 0, 0, ""
    for line in text.splitlines(keepends=True):
        at += len(line)
        begins = line.strip()[:3]
        if fence:
            fence = "" if begins == fence else fence
        elif begins in ("```", "~~~"):
            fence = begins
        elif not begins and line.endswith("\n"):
            ends = at
    return text[:ends], text[ends:]


def one_line(text: str, width: int = _WIDTH) -> str:
    """The beginning of a text on one line."""
    flat = visible(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def _arguments(args: Mapping[str, Any], width: int) -> str:
    if len(args) == 1:
        return one_line(str(next(iter(args.values()))), width)
    said = {name: value if isinstance(value, str) else json.dumps(value, default=str) for name, value in args.items()}
    return one_line(", ".join(f"{name}={value}" for name, value in said.items()), width)


def _progress(event: Mapping[str, Any]) -> str:
    kind = str(event.get("type", "")).removeprefix("task_")
    name = one_line(str(event.get("description") or event.get("task_id") or "task"), 60)
    turn, most = event.get("turn") or event.get("turns"), event.get("max_turns")
    steps = f" turn {turn}/{most}" if kind == "running" and turn and most else ""
    why = f" ({event['stop_reason']})" if event.get("stop_reason") else ""
    return f"  ↳ {name}: {kind.replace('_', ' ')}{steps}{why}"


# Approvals


def _decision(approval: Approval, screen: Screen) -> Decision:
    """Ask the person. Anything that is not clearly a yes is a no, and what else was typed is the reason."""
    screen.line("\n".join(call_lines(approval.tool, approval.args)))
    try:
        typed = input("Run it? [y]es, [n]o, or say why not; [e]dit the arguments: ").strip()
    except (EOFError, KeyboardInterrupt):
        return Decision("reject", "The user did not answer.")
    if typed.lower() in ("y", "yes"):
        return Decision("approve")
    if typed.lower() in ("e", "edit"):
        return _edited(approval, screen)
    return Decision("reject", "" if typed.lower() in ("", "n", "no") else typed)


def _edited(approval: Approval, screen: Screen) -> Decision:
    screen.line(reveal(json.dumps(dict(approval.args), ensure_ascii=False, default=str)))
    try:
        args = json.loads(input("The arguments as JSON: "))
    except (ValueError, EOFError, KeyboardInterrupt):
        args = None
    if not isinstance(args, dict):
        screen.line("That is no JSON object: not run.")
        return Decision("reject", "The user wanted other arguments and did not give them.")
    return Decision("edit", args=args)


# Typing


def remember_lines(file: Path) -> None:
    """Arrow keys bring back what was typed, also in an earlier conversation."""
    if not sys.stdin.isatty():
        return
    try:
        import readline
    except ImportError:  # not built in on every system: then there is no line editing
        return
    with suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(1000)
    readline.parse_and_bind("set enable-bracketed-paste on")

    def save() -> None:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
            file.chmod(0o600)

    atexit.register(save)


@dataclass(frozen=True, slots=True)
class Message:
    """What a person gave at the prompt. `pasted`: some of it came at once, so it was surely not typed."""

    text: str
    pasted: bool = False


def read_messages(prompt: str, is_command: Callable[[str], bool]) -> list[Message]:
    """The next message; none at the end of the input. A line that ends with a backslash goes on in the next one.

    Enter ends what is typed, so several lines come at once only where a text was pasted: in one read, where the terminal marks what is
    pasted (bracketed paste), or else as lines that wait already when one was read. They are one message, and no line of it is a command.
    What was typed before the prompt was there comes at once too: there, and where all lines are commands, each command stands alone.
    """
    ahead = _more_waits(0)
    try:
        line = input(prompt)
    except EOFError:
        return []
    if line.strip() == _QUOTES:
        return [_block()]
    reads, at_once = [line], False
    while (waits := _more_waits()) or reads[-1].endswith("\\"):
        at_once = at_once or waits
        if not waits:
            reads[-1] = reads[-1][:-1]
        try:
            reads.append(input("" if waits else "… "))
        except EOFError:
            break
    if at_once and (ahead or all(is_command(one) for one in reads if one.strip())):
        groups = groupby(reads, key=is_command)
        return [one for command, lines in groups for one in (map(Message, lines) if command else [_message([*lines], at_once=True)])]
    return [_message(reads, at_once=at_once)]


def _more_waits(seconds: float = _AT_ONCE) -> bool:
    """Whether the terminal has more already: faster than anybody types."""
    return sys.stdin.isatty() and bool(select.select([sys.stdin], [], [], seconds)[0])


def _message(reads: Sequence[str], *, at_once: bool) -> Message:
    several = at_once and sum(bool(one.strip()) for one in reads) > 1  # Enter twice is no paste
    return Message("\n".join(reads).rstrip("\n"), pasted=several or any("\n" in one.strip() for one in reads))


def _block() -> Message:
    lines: list[str] = []
    at_once = False
    with suppress(EOFError):
        while (line := input("… ")).strip() != _QUOTES:
            lines.append(line)
            at_once = _more_waits() or at_once
    return _message(lines, at_once=at_once)
