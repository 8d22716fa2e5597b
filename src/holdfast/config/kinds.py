"""The kinds of value that settings have. Each says in plain words what would fit."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from holdfast.config.wording import Misfit


def _no_truth(value: Any) -> Any:
    """pydantic takes `true` for 1; in a file it is a mistake."""
    if isinstance(value, bool):
        raise Misfit("must be a number", found=value)
    return value


def _text(value: Any) -> Any:
    """A whole number without quotes is fine as text (an id, a port); anything else loses its spelling, so it needs quotes."""
    if isinstance(value, bool | float):
        raise Misfit("must be text in quotes", found=value)
    return str(value) if isinstance(value, int) else value


def _variable(value: Any) -> Any:
    """The value of an environment variable: always text in the end."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _texts(value: Any) -> Any:
    """One text stands for a list of one."""
    return [value] if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_text)]
Value = Annotated[str, BeforeValidator(_variable)]
Count = Annotated[int, BeforeValidator(_no_truth), Field(ge=1)]
Amount = Annotated[int, BeforeValidator(_no_truth), Field(ge=0)]
Number = Annotated[float, BeforeValidator(_no_truth), Field(allow_inf_nan=False)]
Seconds = Annotated[float, BeforeValidator(_no_truth), Field(gt=0, allow_inf_nan=False)]
Price = Annotated[float, BeforeValidator(_no_truth), Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(_no_truth), Field(ge=0, le=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_texts)]
