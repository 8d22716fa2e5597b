"""A history that every provider accepts: each call is followed by its results, and nothing else (S5).

Late results move up to their call, missing ones are made up and say so, results that nobody asked for and second results for one
call are taken out (the caller
archives them first). A real result takes the place of a made-up one. Provider packages do not check any of this; the server
answers with an error, and the thread is stuck.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from holdfast.context.plain import Forge
from holdfast.context.rules import pairing
from holdfast.context.view import calls_of, marks_of, view_of
from holdfast.tokens.messages import Message

MISSING = "No result: the run stopped before this call finished. It may have taken effect."


@dataclass(frozen=True)
class Repaired:
    """The history as it should be. `messages` is the very list that was given when nothing had to be done."""

    messages: Sequence[Message]
    dropped: tuple[Message, ...] = ()
    made: tuple[Message, ...] = ()

    changed: bool = False


def repair(messages: Sequence[Message], forge: Forge, *, answer_newest: bool = True) -> Repaired:
    """Put calls and results together.

    With `answer_newest=False` the unanswered calls of the newest assistant message are left alone: they are pending. Before a
    model call they have to be answered,
    because a provider refuses a request in which they are open.
    """
    stand_ins = {str(message.id): message for message in messages if marks_of(message).get("repaired")}
    real = [message for message in messages if str(message.id) not in stand_ins] if stand_ins else messages
    view = view_of(real, repeat(0, len(real)))
    results: dict[int, list[int]] = {}
    for result, asked in pairing(view).items():
        results.setdefault(asked, []).append(result)
    newest = next((item.index for item in reversed(view) if item.role == "ai"), None)
    ordered: list[Message] = []
    made: list[Message] = []
    for item in view:
        if item.role == "tool":
            continue
        ordered.append(real[item.index])
        answers: dict[str | None, list[Message]] = {}
        for index in sorted(results.get(item.index, ())):
            answers.setdefault(view[index].answers, []).append(real[index])
        for number, (call, name) in enumerate(calls_of(real[item.index]) if item.role == "ai" else ()):
            if answers.get(call):
                ordered.append(answers[call].pop(0))
            elif answer_newest or item.index != newest:
                id = f"repair-{item.id}-{number}"
                found = stand_ins.get(id)
                if found is None:
                    found = forge.result(MISSING, id=id, call=call, name=name)
                    made.append(found)
                ordered.append(found)
    if len(ordered) == len(messages) and all(a is b for a, b in zip(ordered, messages, strict=True)):
        return Repaired(messages)
    kept = set(map(builtins.id, ordered))
    dropped = tuple(message for message in messages if builtins.id(message) not in kept and str(message.id) not in stand_ins)
    return Repaired(ordered, dropped, tuple(made), changed=True)
