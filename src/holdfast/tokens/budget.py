"""How a window is shared out between the parts of a prompt, and what of a long list fits a part.

A `Budget` is a value: eight shares that add up to the window. Every part of the prompt asks it how much it may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final, TypeVar

from holdfast.errors import BudgetError, InputError

_T = TypeVar("_T")

PARTS: Final[dict[str, int]] = {
    "base": 500,
    "memory": 500,
    "skills": 300,
    "instructions": 200,
    "kept": 3000,
    "buffer": 2000,
    "tool_definitions": 1000,
    "response": 500,
}
"""The shares of a window of 8,000 tokens; other windows are split in the same proportion."""


@dataclass(frozen=True)
class Share:
    """One part of a budget and the parts that it is made of, for showing."""

    name: str
    tokens: int
    parts: tuple[Share, ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Share]]:
        """This share and all below it, each with its depth."""
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)


@dataclass(frozen=True)
class Budget:
    """The shares of one window, in tokens. They always add up to it.

    `kept` is for messages word for word, `buffer` for the summary and for what the next turns bring.
    """

    window: int
    base: int
    memory: int
    skills: int
    instructions: int
    kept: int
    buffer: int
    tool_definitions: int
    response: int

    def __post_init__(self) -> None:
        shares = {name: getattr(self, name) for name in PARTS}
        for name, tokens in {"window": self.window, **shares}.items():
            _whole(tokens, name, least=1 if name == "window" else 0)
        if sum(shares.values()) != self.window:
            raise InputError(
                f"the parts of the budget add up to {sum(shares.values())} tokens, the window has {self.window}.",
                hint="Use `Budget.split`, which makes them add up.",
            )

    @classmethod
    def split(cls, window: int, max_injection_tokens: int | None = 2000, **parts: int) -> Budget:
        """Share out a window in the default proportion.

        Parts given by name have exactly that size, and the others share the rest. Memory that was not given by name takes at most
        `max_injection_tokens`; what it leaves goes to the buffer. Raises BudgetError when the parts given do not fit the window.
        """
        _whole(window, "window", least=1)
        _known(parts)
        for name, tokens in parts.items():
            _whole(tokens, name)
        left = window - sum(parts.values())
        free = [name for name in PARTS if name not in parts]
        if left < 0 or (left and not free):
            raise BudgetError(
                f"the parts given take {window - left} of {window} tokens"
                + (": too many." if left < 0 else ", and no part is left for the rest."),
                window=window,
                needs=parts,
                hint="Give smaller parts, or leave one out: it takes what is left.",
            )
        shares = {**parts, **_shared(left, free)}
        if max_injection_tokens is not None and "memory" not in parts:
            taken = min(shares["memory"], _whole(max_injection_tokens, "max_injection_tokens"))
            receiver = next((name for name in ("buffer", "kept", *free) if name not in parts and name != "memory"), None)
            if receiver is not None:
                shares[receiver] += shares["memory"] - taken
                shares["memory"] = taken
        return cls(window, **shares)

    @property
    def system(self) -> int:
        """What is sent before the conversation: base prompt, memory, skills, instructions."""
        return self.base + self.memory + self.skills + self.instructions

    @property
    def history(self) -> int:
        """The conversation: messages word for word, and the buffer."""
        return self.kept + self.buffer

    @property
    def tools_and_response(self) -> int:
        """Tool definitions and room for the answer."""
        return self.tool_definitions + self.response

    @property
    def input(self) -> int:
        """All but the answer."""
        return self.window - self.response

    def parts(self) -> Share:
        """The budget as a tree, for showing."""

        def of(*names: str) -> tuple[Share, ...]:
            return tuple(Share(name, getattr(self, name)) for name in names)

        return Share(
            "window",
            self.window,
            (
                Share("system", self.system, of("base", "memory", "skills", "instructions")),
                Share("history", self.history, of("kept", "buffer")),
                Share("tools and response", self.tools_and_response, of("tool_definitions", "response")),
            ),
        )

    def as_dict(self) -> dict[str, int]:
        """The window and every share by name."""
        return {part.name: getattr(self, part.name) for part in fields(self)}


def _shared(tokens: int, names: list[str]) -> dict[str, int]:
    """Largest remainder: every part gets its share rounded down, and the odd tokens go to those who lost most by it."""
    weight = sum(PARTS[name] for name in names)
    shares = {name: tokens * PARTS[name] // weight for name in names}
    odd = tokens - sum(shares.values())
    for name in sorted(names, key=lambda name: tokens * PARTS[name] % weight, reverse=True)[:odd]:
        shares[name] += 1
    return shares


def _known(parts: Mapping[str, int]) -> None:
    unknown = [name for name in parts if name not in PARTS]
    if unknown:
        raise InputError(f"a budget has no part called {', '.join(map(repr, unknown))}.", hint=f"It has {', '.join(PARTS)}.")


def _whole(tokens: object, name: str, *, least: int = 0) -> int:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < least:
        raise InputError(f"{name} must be a whole number of tokens, at least {least}, not {tokens!r}.")
    return tokens


def take_fitting(waiting: list[_T], room: int, cost: Callable[[_T], int], cut: Callable[[_T, int], tuple[_T, _T | None]]) -> list[_T]:
    """The next things that fit, taken off the end of the list; one that alone is too long is cut and the rest of it put back."""
    taken: list[_T] = []
    while waiting:
        tokens = cost(waiting[-1]) + 1
        if tokens <= room:
            taken.append(waiting.pop())
            room -= tokens
            continue
        if not taken:
            first, rest = cut(waiting.pop(), room)
            taken.append(first)
            if rest is not None:
                waiting.append(rest)
        break
    return taken
