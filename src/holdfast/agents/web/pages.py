"""Bytes of the web as Markdown that a model reads: the main part of an HTML page, text as it is, office formats by conversion."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from holdfast.agents.web.fetching import Fetched, Page
from holdfast.agents.web.guard import shown
from holdfast.errors import WebError

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset({"application/json", "application/xml", "application/javascript", "application/x-yaml", "application/yaml"})
_DROPPED = (
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "canvas",
    "iframe",
    "form",
    "button",
    "input",
    "select",
    "nav",
    "footer",
    "aside",
)
_HIDDEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0)", re.IGNORECASE)
_BLANKS = re.compile(r"\n{3,}")


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
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(fetched.body, "html.parser", from_encoding=fetched.charset)
    title = soup.title.get_text(" ", strip=True) if soup.title else None
    main = _main(soup)
    text = str(MarkdownConverter(heading_style="ATX", strip=["img"], bullets="-").convert_soup(main))
    text = _BLANKS.sub("\n\n", "\n".join(line.rstrip() for line in text.splitlines())).strip()
    return Page(fetched.url, title or None, text, fetched.media_type, fetched.cut)


def _main(soup: BeautifulSoup) -> Tag:
    """The part that carries the text; what a reader does not see (hidden elements, comments) is where instructions are planted."""
    from bs4 import Comment, Tag

    for comment in soup.find_all(string=lambda found: isinstance(found, Comment)):
        comment.extract()
    for tag in soup.find_all(_DROPPED):
        tag.decompose()
    for tag in soup.find_all(True):
        if isinstance(tag, Tag) and tag.attrs and _unseen(tag):
            tag.decompose()
    whole = soup.body or soup
    for name in ("article", "main"):
        found = [tag for tag in soup.find_all(name) if isinstance(tag, Tag)]
        if found:
            best = max(found, key=lambda tag: len(tag.get_text()))
            if len(best.get_text(strip=True)) >= 0.3 * len(whole.get_text(strip=True)):
                return best
    return whole


def _unseen(tag: Tag) -> bool:
    return "hidden" in tag.attrs or tag.get("aria-hidden") == "true" or bool(_HIDDEN.search(str(tag.get("style") or "")))
