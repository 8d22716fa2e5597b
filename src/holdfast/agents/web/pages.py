"""Bytes of the web as Markdown that a model reads: the main part of an HTML page, text as it is, office formats by conversion."""

from __future__ import annotations

import json

from holdfast.agents.web.fetching import Fetched, Page
from holdfast.agents.web.guard import shown
from holdfast.errors import WebError
from holdfast.text.html import read_html

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset({"application/json", "application/xml", "application/javascript", "application/x-yaml", "application/yaml"})


def read_page(fetched: Fetched) -> Page:
    """The readable text of what was fetched. Raises WebError, naming the kind, for what is no text."""
    media = fetched.media_type
    if media in _HTML or (
        media == "application/octet-stream" and fetched.body.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    ):
        return _html(fetched)
    if media.startswith("text/") or media in _TEXT or media.endswith(("+json", "+xml")):
        return Page(fetched.url, None, _plain(fetched), media, fetched.cut)
    raise WebError(
        f"{shown(fetched.url)} is {media}, {len(fetched.body):,} bytes, and not a page of text.",
        address=shown(fetched.url),
        hint="Ask for a page that is HTML, text or JSON.",
    )


def _plain(fetched: Fetched) -> str:
    text = _decoded(fetched)
    if fetched.media_type.endswith("json") and not fetched.cut:
        try:
            return json.dumps(json.loads(text), ensure_ascii=False, indent=1)
        except ValueError:
            return text
    return text


def _decoded(fetched: Fetched) -> str:
    try:
        return fetched.body.decode(fetched.charset or "utf-8", errors="replace")
    except LookupError:  # a character set that nobody knows
        return fetched.body.decode("utf-8", errors="replace")


def _html(fetched: Fetched) -> Page:
    page = read_html(fetched.body, charset=fetched.charset, marks=True, main_only=True)
    return Page(fetched.url, page.title, page.text.strip(), fetched.media_type, fetched.cut)
