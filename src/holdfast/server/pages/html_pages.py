"""Pages as HTML: templates and what they may use, errors as a page, parts that follow what happens.

Text of people and models reaches a page only as text: every value is escaped, Markdown knows no HTML and no images, links lead away without
saying from where. No page needs anything from elsewhere, nor a `style` attribute: the policy of the guard forbids both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from holdfast import __version__
from holdfast.amounts import counted
from holdfast.errors import HoldfastError
from holdfast.server.problem_details import problem_of

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
"""Below these an error is always `problem+json`, whoever asks."""


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


def sentence(text: str) -> str:
    """A text that begins as sentences do.

    >>> sentence("there is no session 'x'."), sentence("config.yaml is not there.")
    ("There is no session 'x'.", 'config.yaml is not there.')
    """
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def _tame(state: Any) -> None:
    """Headings are paragraphs: a page has one outline, its own. Links say nothing about where they were."""

    def tamed(tokens: Sequence[Token]) -> None:
        for token in tokens:
            if token.type in ("heading_open", "heading_close"):
                token.tag = "p"
                if token.nesting == 1:
                    token.attrSet("class", "heading")
            if token.type == "link_open":
                token.attrSet("rel", "noreferrer nofollow")
            tamed(token.children or ())

    tamed(state.tokens)


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_MARKDOWN.core.ruler.push("tame", _tame)


def pretty(value: Any) -> str:
    """A value as JSON to read."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


_TEMPLATES = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_TEMPLATES.filters.update(
    {one.__name__: one for one in (when, number, money, duration, markdown, pretty, sentence, ticked)},  # `ago` is inside of `when`
    count=counted,
)
_TEMPLATES.globals.update(navigation=NAVIGATION, version=__version__)


# Answers


def render(name: str, **values: Any) -> str:
    """A template with these values, as text."""
    return str(_TEMPLATES.get_template(name).render(**values))


def page(request: Request, name: str, *, title: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A whole page. `title` says what it is; the template extends `layout.html`."""
    return HTMLResponse(render(name, title=title, path=request.url.path, **values), status, headers=HEADERS)


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


_MEMBERS: dict[str, Any] = {"hint": None, "errors": [], "owner": None, "reference": None, "detail": None}
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
    """A problem in the form that whoever asked can read."""
    if not wants_page(request.headers.get("accept", ""), request.url.path):
        return said
    kept = {name: value for name, value in said.headers.items() if name in ("allow", "retry-after", "www-authenticate")}
    html = error_page(request.url.path, json.loads(bytes(said.body)), small="hx-request" in request.headers)
    return HTMLResponse(html, said.status_code, headers={**kept, **HEADERS})


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
