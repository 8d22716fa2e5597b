"""The part of the prompt that tells a model which skills there are: names, descriptions and where to read more (A12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape

from holdfast.skills.skill_file import Skill

_HEAD = "Before you do what a skill is for, read its file with read_file and follow it."


def render(skills: Iterable[Skill], *, budget: int | None = None, count: Callable[[str], int] | None = None) -> str:
    """`<skills>` with one line for each that is enabled, by name; nothing at all when there is none.

    Within `budget` tokens descriptions are shortened first, then left out; a last line says how many skills did not fit. Text from files is
    escaped: it cannot close the block.
    """
    chosen = sorted((skill for skill in skills if skill.enabled and skill.usable), key=lambda skill: skill.name)
    if not chosen:
        return ""
    if budget is None:
        return _block(chosen, None, 0)
    measure = count or _approximate
    for longest in (None, 200, 80, 0):
        text = _block(chosen, longest, 0)
        if measure(text) <= budget:
            return text
    low, high = 0, len(chosen)
    while low < high:  # the most skills that fit by name alone
        middle = (low + high + 1) // 2
        if measure(_block(chosen[:middle], 0, len(chosen) - middle)) <= budget:
            low = middle
        else:
            high = middle - 1
    return _block(chosen[:low], 0, len(chosen) - low) if low else ""


def _block(skills: list[Skill], longest: int | None, left_out: int) -> str:
    lines = [_line(skill, longest) for skill in skills]
    if left_out:
        lines.append(f"({left_out} more skills did not fit here.)")
    return "\n".join(["<skills>", _HEAD, *lines, "</skills>"])


def _line(skill: Skill, longest: int | None) -> str:
    text = skill.description
    if longest is not None and len(text) > longest:
        text = text[: max(longest - 3, 0)].rstrip() + "..." if longest else ""
    said = f": {escape(text, quote=False)}" if text else ""
    return f"- {escape(skill.name, quote=False)} ({escape(skill.location, quote=False)}){said}"


def _approximate(text: str) -> int:
    from holdfast.tokens.counter import open_counter

    return open_counter().count_text(text)
