"""Drawings of the pages, as SVG: a window to scale, tokens over calls, a share. Numbers become places, texts are escaped.

Widths are attributes and colours are classes: the pages' policy allows no style inside of a document. Everything that a drawing shows
also stands on the page as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

ORIGINS: Mapping[str, str] = {
    "system": "what the agent is told",
    "skills": "skills",
    "memory": "what is known about you",
    "blocks": "blocks that the agent edits",
    "date": "today's date",
    "tools": "definitions of tools",
    "server": "what the model's server adds",
    "summary": "summary of what left",
    "recall": "came back from the archive",
    "retrieved": "came back from the archive",
    "reminder": "reminders",
    "conversation": "the conversation",
    "reference": "references to what was moved out",
    "repair": "put in so that the request is valid",
}
"""Where a part of a request comes from, in words. The name is also the class that gives it its colour."""
_MOST_POINTS = 240
_HIGH = 100.0
_THIN = 0.004
"""A part with a smaller share of the window is drawn without a gap beside it, or nothing would be left of it."""


@dataclass(frozen=True)
class Segment:
    """A stretch of the bar: the class of its colour, how long it is, what it is in words, and where it leads."""

    origin: str
    tokens: int
    label: str
    href: str = ""


@dataclass(frozen=True)
class Point:
    """One call in the chart. `mark` says what happened there, in words; empty for nothing of note."""

    number: int
    tokens: int
    href: str
    mark: str = ""


def known_origin(origin: str) -> str:
    """The class of an origin; an unknown one looks like a reminder."""
    return origin if origin in ORIGINS else "reminder"


def window_bar(segments: Sequence[Segment], *, window: int, cap: int, label: str) -> Markup:
    """The window of one call to scale. Each part leads to where it is described; arrow keys go from one to the next (window.js)."""
    scale = max(window, sum(one.tokens for one in segments), 1)
    drawn: list[Markup] = []
    at = 0
    for index, one in enumerate(segments):
        if one.tokens:
            thin = " thin" if one.tokens / scale < _THIN else ""
            rect = Markup('<rect x="{}" y="0" width="{}" height="100"/>').format(at, one.tokens)
            drawn.append(
                Markup('<a class="part {}{}" href="{}" data-part="{}" tabindex="{}" aria-label="{}"><title>{}</title>{}</a>').format(
                    known_origin(one.origin), thin, one.href, index, -1 if drawn else 0, one.label, one.label, rect
                )
            )
        at += one.tokens
    limit = _limit(cap) if 0 < cap <= scale else Markup()
    return Markup('<svg class="bar" viewBox="0 0 {} 100" preserveAspectRatio="none" role="group" aria-label="{}">{}{}</svg>').format(
        scale, label, Markup().join(drawn), limit
    )


def gauge(by_origin: Mapping[str, int], *, window: int, cap: int, label: str) -> Markup:
    """How full a window is, by origin, to look at and no more."""
    scale = max(window, sum(by_origin.values()), 1)
    rects: list[Markup] = []
    at = 0
    for origin, tokens in by_origin.items():
        rects.append(
            Markup('<rect class="{} thin" x="{}" y="0" width="{}" height="100"/>').format(f"part {known_origin(origin)}", at, tokens)
        )
        at += tokens
    limit = _limit(cap) if 0 < cap <= scale else Markup()
    return Markup('<svg class="bar gauge" viewBox="0 0 {} 100" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>').format(
        scale, label, Markup().join(rects), limit
    )


def share(value: float, kind: str = "share") -> Markup:
    """A number from 0 to 1 as a small bar. The number itself stands beside it."""
    width = round(100 * min(max(value, 0.0), 1.0))
    inner = Markup('<rect class="fill" x="0" y="0" width="{}" height="10"/>').format(width)
    return Markup('<svg class="{}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>').format(kind, inner)


def shrunk(before: int, after: int) -> Markup:
    """Two bars, one above the other: what it was and what it became."""
    scale = max(before, after, 1)
    first = Markup('<rect class="was" x="0" y="0" width="{}" height="44"/>').format(before)
    second = Markup('<rect class="is" x="0" y="56" width="{}" height="44"/>').format(after)
    return Markup('<svg class="shrunk" viewBox="0 0 {} 100" preserveAspectRatio="none" aria-hidden="true">{}{}</svg>').format(
        scale, first, second
    )


def near(points: Sequence[Point], current: int) -> Sequence[Point]:
    """The points to draw: all, or of very many those around the current one."""
    if len(points) <= _MOST_POINTS:
        return points
    at = next((index for index, point in enumerate(points) if point.number == current), len(points) - 1)
    start = min(max(0, at - _MOST_POINTS // 2), len(points) - _MOST_POINTS)
    return points[start : start + _MOST_POINTS]


def step_chart(points: Iterable[Point], *, current: int, cap: int, label: str) -> tuple[Markup, int]:
    """Tokens over calls as steps, with a mark where something left the window; and the tokens that the top stands for.

    A chart of little use shows no limit: the cap is drawn where the calls come near it.
    """
    shown = list(points)
    most = max((point.tokens for point in shown), default=1) or 1
    top = max(most, cap) if most > cap / 2 else most
    top = round(top * 1.08) or 1
    steps, columns = ["M0 100"], []
    for place, point in enumerate(shown):
        x, y = 10 * place, _height(point.tokens, top)
        steps.append(f"V{y}H{x + 10}")
        columns.append(_column(point, x, y, current=point.number == current))
    width = 10 * max(len(shown), 1)
    area = Markup('<path class="area" d="{}V100Z"/>').format("".join(steps))
    line = Markup('<path class="steps" d="{}"/>').format("M0 " + "".join(steps)[len("M0 100V") :] if shown else "M0 100")
    limit = Markup()
    if cap <= top:
        y = _height(cap, top)
        limit = Markup('<line class="cap" x1="0" x2="{}" y1="{}" y2="{}"/>').format(width, y, y)
    return (
        Markup('<svg class="chart" viewBox="0 0 {} 100" preserveAspectRatio="none" role="group" aria-label="{}">{}{}{}{}</svg>').format(
            width, label, area, line, limit, Markup().join(columns)
        ),
        top,
    )


def _column(point: Point, x: int, y: float, *, current: bool) -> Markup:
    said = f"Call {point.number}: {point.tokens:,} tokens" + (f", {point.mark}" if point.mark else "")
    kind = "call" + (" current" if current else "") + (" marked" if point.mark else "")
    inner = Markup('<rect class="hit" x="{}" y="0" width="10" height="100"/>').format(x)
    inner += Markup('<rect class="column" x="{}" y="{}" width="10" height="{}"/>').format(x, y, round(_HIGH - y, 2))
    if point.mark:
        inner += Markup('<line class="compaction" x1="{}" x2="{}" y1="0" y2="100"/>').format(x, x)
    return Markup('<a class="{}" href="{}" tabindex="-1" aria-label="{}"{}><title>{}</title>{}</a>').format(
        kind, point.href, said, Markup(' aria-current="true"') if current else "", said, inner
    )


def _height(tokens: int, top: int) -> float:
    return round(_HIGH * (1 - tokens / top), 2)


def _limit(cap: int) -> Markup:
    return Markup('<line class="cap" x1="{}" x2="{}" y1="0" y2="100"/>').format(cap, cap)


def marked(text: str, words: Iterable[str]) -> Markup:
    """A text with these words marked, wherever they stand in it."""
    folded = text.casefold()
    if len(folded) != len(text):  # a letter that becomes two when it is compared: places would not fit
        return escape(text)
    spans: list[tuple[int, int]] = []
    for word in {word.casefold() for word in words if len(word.strip()) > 1}:
        at = folded.find(word)
        while at >= 0:
            spans.append((at, at + len(word)))
            at = folded.find(word, at + len(word))
    pieces, end = [], 0
    for start, stop in sorted(spans):
        if start >= end:
            pieces += [escape(text[end:start]), Markup("<mark>{}</mark>").format(text[start:stop])]
            end = stop
    return Markup().join([*pieces, escape(text[end:])])
