"""Pages as HTML: templates and what they may use, drawings as SVG, errors as a page, parts that follow what happens.

Text of people and models reaches a page only as text: every value is escaped, Markdown knows no HTML and no images, links lead away without
saying from where. No page needs anything from elsewhere, nor a `style` attribute: the policy of the guard forbids both. Widths of drawings
are attributes therefore, and colours are classes; everything that a drawing shows also stands on the page as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from holdfast import __version__
from holdfast.errors import HoldfastError
from holdfast.server.wire import problem_of, thread_address, told_at
from holdfast.text.normalise import reveal
from holdfast.validation import counted

HERE = Path(__file__).parent
HEADERS = {"referrer-policy": "same-origin"}
"""With no referrer at all a browser would send `Origin: null` with our own forms, and the guard would refuse them."""
NAVIGATION = (
    ("Start", "/"),
    ("Sessions", "/sessions"),
    ("Threads", "/threads"),
    ("Memory", "/memory"),
    ("Knowledge", "/knowledge"),
    ("Search", "/search"),
    ("About", "/about"),
)
_PROGRAMS = ("/api/", "/v1/", "/openapi.json")
"""Below these an error is never a page, whoever asks."""


# What templates may use


def when(moment: str | datetime | float | None) -> Markup:
    """A moment as `<time>`: how long ago it was, with the exact one in its title. Nothing for no moment."""
    found = _moment(moment)
    if found is None:
        return Markup("") if not isinstance(moment, str) else escape(moment)
    exact = found.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        exact.isoformat(timespec="seconds"), exact.strftime("%Y-%m-%d %H:%M:%S"), ago(found)
    )


def _moment(moment: str | datetime | float | None) -> datetime | None:
    if isinstance(moment, datetime):
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    try:
        if isinstance(moment, int | float):
            return datetime.fromtimestamp(moment, UTC)
        return _moment(datetime.fromisoformat(moment)) if moment else None
    except (ValueError, OverflowError, OSError):
        return None


_UNITS = ((86_400, "day", "days"), (3_600, "h", "h"), (60, "min", "min"))


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago a moment was; a date when that was long ago.

    >>> ago(datetime(2026, 11, 16, 8, tzinfo=UTC), datetime(2026, 11, 16, 9, 30, tzinfo=UTC))
    '1 h ago'
    """
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if seconds < -60 or seconds > 14 * 86_400:
        return moment.strftime("%Y-%m-%d")
    for size, one, many in _UNITS:
        if seconds >= size:
            return f"{counted(int(seconds // size), one, many)} ago"
    return "just now"


def number(value: float | None) -> str:
    """A count with a mark for thousands; a dash for none.

    >>> number(12345)
    '12,345'
    """
    return "–" if value is None else f"{value:,.0f}"


def money(value: float | None) -> str:
    """An amount in dollars; small ones with enough digits to be more than zero.

    >>> money(0.0253), money(12.5)
    ('$0.0253', '$12.50')
    """
    return "–" if value is None else f"${value:.4f}" if abs(value) < 1 else f"${value:,.2f}"


def duration(seconds: float | None) -> str:
    """So long.

    >>> duration(0.04), duration(14.2), duration(600)
    ('0.04 s', '14.2 s', '10 min')
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds:.2g} s"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def markdown(text: str) -> Markup:
    """Markdown of anybody as HTML that can do no harm."""
    return Markup(_MARKDOWN.render(text))  # noqa: S704 - the renderer escapes, and knows no HTML


def ticked(text: str) -> Markup:
    """A sentence of ours, with what stands between backticks as code.

    >>> ticked("see `holdfast doctor` & go")
    Markup('see <code>holdfast doctor</code> &amp; go')
    """
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # one without its partner is a sign like others
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece) for index, piece in enumerate(pieces))


def short(text: str, most: int = 400) -> str:
    """The beginning of a text that would take much room; another is left as it is. `macros.rest` has the whole.

    >>> short("x" * 500, 10), short("so long", 10)
    ('xxxxxxx …', 'so long')
    """
    if len(text) <= most:
        return text
    part = text[: most * 7 // 10]
    return f"{part.rpartition(' ')[0] or part} …"


def sentence(text: str) -> str:
    """A text that begins as sentences do.

    >>> sentence("there is no session 'x'."), sentence("config.yaml is not there.")
    ("There is no session 'x'.", 'config.yaml is not there.')
    """
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def _tame(state: Any) -> None:
    """Headings are paragraphs: a page has one outline, its own. Links say not where they were. Each block has its own direction."""

    def tamed(tokens: Sequence[Token]) -> None:
        for token in tokens:
            if token.type in ("heading_open", "heading_close"):
                token.tag = "p"
                if token.nesting == 1:
                    token.attrSet("class", "heading")
            if token.type in _BLOCKS:
                token.attrSet("dir", "auto")
            if token.type == "link_open":
                token.attrSet("rel", "noreferrer nofollow")
            tamed(token.children or ())

    tamed(state.tokens)


_BLOCKS = frozenset(f"{name}_open" for name in ("heading", "paragraph", "list_item", "blockquote", "th", "td"))
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_MARKDOWN.core.ruler.push("tame", _tame)


def pretty(value: Any) -> str:
    """A value as JSON to read."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


_TEMPLATES = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_TEMPLATES.filters.update(
    {
        one.__name__: one for one in (when, number, money, duration, markdown, pretty, sentence, short, thread_address, ticked)
    },  # `ago` is inside of `when`
    count=counted,
)
_TEMPLATES.globals.update(navigation=NAVIGATION, version=__version__)


# Answers


_TURNS = re.compile(r"(?s)<textarea\b.*?</textarea>|<[^>]*>|[\u202a-\u202e\u2066-\u2069]")
"""What may hold a sign that turns the direction of writing and is left as it is (fields, tags), or such a sign itself."""


def render(name: str, **values: Any) -> str:
    """A template with these values, as text. Signs that would turn the direction of what comes after them are written out."""
    made = str(_TEMPLATES.get_template(name).render(**values))
    return _TURNS.sub(lambda found: reveal(found[0]) if len(found[0]) == 1 else found[0], made)


@dataclass(frozen=True)
class Refused:
    """A form that was refused: which one (`form`, and `which` of several), why, and what was written in it. The empty form is none."""

    form: str
    error: HoldfastError
    written: Mapping[str, str] = field(default_factory=dict)
    which: str = ""

    @cached_property
    def why(self) -> dict[str, Any]:
        """The members that `macros.problem` shows."""
        return problem_values(self.error)

    def at(self, form: str, which: str = "") -> bool:
        """Whether it is this form."""
        return (form, which) == (self.form, self.which if which else "")


def page(request: Request, name: str, *, title: str, status: int = 200, refused: Refused | None = None, **values: Any) -> HTMLResponse:
    """A whole page. `title` says what it is; the template extends `layout.html`. With a refused form it has the status of the refusal."""
    if refused is not None:
        status = refused.why["status"]
    return HTMLResponse(render(name, title=title, path=request.url.path, refused=refused, **values), status, headers=HEADERS)


def part(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A part of a page, for htmx."""
    return HTMLResponse(render(name, **values), status, headers=HEADERS)


def to(address: str) -> Response:
    """After a form: look there. The address is one of ours, made with `quote` where it holds names."""
    return Response(status_code=303, headers={**HEADERS, "location": address})


def live_event(html: str) -> bytes:
    """A part of a page as a server-sent event that htmx puts in place."""
    return b"".join(b"data: " + line + b"\n" for line in html.encode("utf-8", "replace").splitlines()) + b"\n"


LIVE_END = b"event: end\ndata: \n\n"
"""The last event of a part that will not change any more."""


# Errors


_MEMBERS: dict[str, Any] = {"type": "", "hint": None, "errors": [], "owner": None, "reference": None, "detail": None}
"""What a problem may lack."""


def wants_page(accept: str, path: str) -> bool:
    """Whether an error is answered as a page: a browser asks, and not for the API."""
    return "text/html" in accept and not path.startswith(_PROGRAMS)


def error_page(path: str, said: dict[str, Any], *, small: bool = False) -> str:
    """What went wrong (the members of a problem), as a page or, `small`, as a part of one."""
    values = {**_MEMBERS, **said}
    if small:
        return render("problem.html", problem=values)
    return render("error.html", title=str(values["title"]).capitalize(), path=path, problem=values)


def problem_values(error: HoldfastError) -> dict[str, Any]:
    """One of our errors as the members that `macros.problem` shows, for a page that says it beside a form."""
    said: dict[str, Any] = json.loads(bytes(problem_of(error).body))
    if said.get("errors"):  # each stands in a line of its own, and not in the sentence as well
        said["detail"] = str(said.get("detail")).partition(":")[0] + "."
        said["errors"] = [{"at": "", "message": one["message"]} for one in said["errors"]]
    return {**_MEMBERS, **said}


def as_page(request: Request, said: JSONResponse) -> Response:
    """A problem in the form that whoever asked can read. Who opens the address of a form is led to the page that has the form."""
    if not wants_page(request.headers.get("accept", ""), request.url.path):
        return told_at(request.url.path, said)
    if said.status_code == 405 and request.method in ("GET", "HEAD") and (place := _page_above(request)):
        return to(place)
    kept = {name: value for name, value in said.headers.items() if name in ("allow", "retry-after", "www-authenticate")}
    html = error_page(request.url.path, json.loads(bytes(said.body)), small="hx-request" in request.headers)
    return HTMLResponse(html, said.status_code, headers={**kept, **HEADERS})


def _page_above(request: Request) -> str:
    """The nearest page above an address that has none itself, with the query of the address; empty for none but the first page."""
    above = request.url.path.rpartition("/")[0]
    while above:
        scope = {**request.scope, "path": above, "method": "GET"}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            return quote(above, safe="/~") + (f"?{request.url.query}" if request.url.query else "")
        above = above.rpartition("/")[0]
    return ""


# Files


class Static(StaticFiles):
    """Style sheet, scripts and icon. A browser asks each time whether they have changed."""

    def __init__(self) -> None:
        super().__init__(directory=HERE / "static")

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file, to be asked for again."""
        found = await super().get_response(path, scope)
        found.headers["cache-control"] = "no-cache"
        return found


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
    return with_marks(text, spans)


def with_marks(text: str, spans: Iterable[tuple[int, int]]) -> Markup:
    """A text with these places marked."""
    pieces, end = [], 0
    for start, stop in sorted(spans):
        if start >= end:
            pieces += [escape(text[end:start]), Markup("<mark>{}</mark>").format(text[start:stop])]
            end = stop
    return Markup().join([*pieces, escape(text[end:])])
