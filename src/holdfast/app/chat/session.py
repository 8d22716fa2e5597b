"""A conversation from the first prompt to the last: reads, sends, shows, asks for approvals, survives Ctrl-C (O1, A10, A13)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.agents.middleware.approval import Approval, Decision
from holdfast.agents.turn_events import ApprovalNeeded, Ended, TurnEvent
from holdfast.app.chat.screen import Screen, one_line
from holdfast.app.chat.slash import Leave, Slash, run_command
from holdfast.app.chat.typing import read_message
from holdfast.app.chat.uploading import noticed
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.config.sections import Config


def one_turn(talk: Any, events: Iterator[TurnEvent], screen: Screen, *, ask: bool) -> Ended:
    """Show a turn to its end, with `ask` through the approvals that it stops for. Ctrl-C ends the turn and nothing else."""
    while True:
        ended = Ended("cancelled")
        waiting: tuple[Approval, ...] = ()
        try:
            for event in events:
                screen.show(event)
                if isinstance(event, ApprovalNeeded):
                    waiting = event.approvals
                elif isinstance(event, Ended):
                    ended = event
        except KeyboardInterrupt:
            close = getattr(events, "close", None)
            if close is not None:
                close()
            screen.break_line()
            screen.note("(cancelled; what was said is kept)")
            return ended
        if not (waiting and ask):
            return ended
        events = talk.decide({approval.id: _decision(approval, screen) for approval in waiting})


def converse(talk: Any, config: Config, screen: Screen) -> Any:
    """Talk until the person leaves; gives the conversation that was last. An error of ours is said, and the conversation goes on."""
    uploaded: list[Any] = []
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
                talk = run_command(typed, Slash(config, talk, screen, uploaded))
            except Leave:
                return talk
            continue
        try:
            message = noticed(typed, uploaded)
            uploaded.clear()
            one_turn(talk, talk.send(message), screen, ask=True)
        except HoldfastError as error:
            screen.break_line()
            sys.stderr.write(f"holdfast: {error}\n")


def _decision(approval: Approval, screen: Screen) -> Decision:
    """Ask the person. Anything that is not clearly a yes is a no, and what else was typed is the reason."""
    screen.line(f"{approval.tool} {one_line(json.dumps(dict(approval.args), ensure_ascii=False, default=str), 400)}")
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
    screen.line(json.dumps(dict(approval.args), ensure_ascii=False, default=str))
    try:
        args = json.loads(input("The arguments as JSON: "))
    except (ValueError, EOFError, KeyboardInterrupt):
        args = None
    if not isinstance(args, dict):
        screen.line("That is no JSON object: not run.")
        return Decision("reject", "The user wanted other arguments and did not give them.")
    return Decision("edit", args=args)
