"""Functions that take many keywords by the name of a `TypedDict`: `**parts: Unpack[RunParts]`.

Type checkers and most editors read that as it stands. `spelled_out` makes the same true at run time: `help()`, `inspect.signature` and
the completion of interactive shells show each keyword with its type, and a wrong one is refused under the name of the function that was
called, with the nearest name that there is.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def spelled_out(keywords: type, *, checked: bool = True) -> Callable[[_F], _F]:
    """The function with the keywords of this `TypedDict` in its signature, in place of the `**` that stands for them.

    Without `checked` other keywords are left to the function.
    """

    def wrap(function: _F) -> _F:
        own = list(inspect.signature(function).parameters.values())
        *named, rest = own
        if rest.kind is not inspect.Parameter.VAR_KEYWORD:
            raise TypeError(f"{function.__qualname__} has no `**` to spell out")
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=said)
            for name, said in keywords.__annotations__.items()
        ]
        known = [one.name for one in (*named, *more)]

        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            for name in given if checked else ():
                if name not in known:
                    near = difflib.get_close_matches(name, known, 1)
                    hint = f". Did you mean {near[0]!r}?" if near else f". There are {', '.join(known)}."
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
            return function(*args, **given)

        returns = function.__annotations__.get("return", inspect.Signature.empty)
        called.__signature__ = inspect.Signature([*named, *more], return_annotation=returns)  # type: ignore[attr-defined]  # what inspect looks for
        return called  # type: ignore[return-value]  # the same function, with a check before it

    return wrap
