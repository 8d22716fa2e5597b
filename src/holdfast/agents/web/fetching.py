"""Fetching one page, as Markdown: every hop judged, the connection pinned to the judged address, bounded in size and time (A10).

Settings of the environment (proxies, certificates by variable) are not used: a proxy would connect to whatever it likes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from holdfast.agents.web.guard import Guard, Target, shown
from holdfast.errors import WebError
from holdfast.text.html import read_html

if TYPE_CHECKING:
    import httpx


_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGENT = "Mozilla/5.0 (compatible; holdfast)"
_ACCEPT = "text/html,application/xhtml+xml,text/plain,text/markdown,application/json;q=0.9,*/*;q=0.5"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a server answered: the address that answered in the end, the media type, the bytes, and whether there were more."""

    url: str
    media_type: str
    charset: str | None
    body: bytes
    cut: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A page as text: where it was, what it is called, and its Markdown."""

    url: str
    title: str | None
    text: str
    media_type: str
    cut: bool


@dataclass(frozen=True)
class Fetcher:
    """Fetches pages. `max_bytes` bounds what is read, `seconds` all of it together, `redirects` the hops."""

    guard: Guard = field(default_factory=Guard)
    max_bytes: int = 3_000_000
    seconds: float = 20.0
    redirects: int = 5
    monotonic: Callable[[], float] = time.monotonic

    def page(self, url: str) -> Page:
        """The page as Markdown. Raises AddressRefused, or WebError for anything that is not a readable page."""

        return read_page(self.fetch(url))

    def fetch(self, url: str) -> Fetched:
        """The bytes behind an address, after at most `redirects` hops, each of which is judged anew."""
        import httpx

        deadline = self.monotonic() + self.seconds
        with httpx.Client(trust_env=False, follow_redirects=False, timeout=self.seconds, headers=_headers()) as client:
            for _ in range(self.redirects + 1):
                target = self.guard.judge(url)
                try:
                    answer = self._ask(client, target, deadline)
                except httpx.HTTPError as error:
                    said = "it did not answer in time" if isinstance(error, httpx.TimeoutException) else str(error) or type(error).__name__
                    raise WebError(f"{shown(url)} could not be fetched: {said}.", address=shown(url)) from error
                if isinstance(answer, Fetched):
                    return answer
                url = answer
        raise WebError(f"{shown(url)} redirects more than {self.redirects} times.", address=shown(url))

    def _ask(self, client: httpx.Client, target: Target, deadline: float) -> Fetched | str:
        """The answer, or the next address to ask."""
        import httpx

        pinned = httpx.URL(target.url).copy_with(host=target.address, fragment=None)
        headers = {"Host": _host_header(target)}
        left = self._left(deadline, target)
        with client.stream(
            "GET", pinned, headers=headers, extensions={"sni_hostname": target.host, "timeout": httpx.Timeout(left).as_dict()}
        ) as response:
            place: str | None = response.headers.get("location")
            if response.status_code in _REDIRECTS and place:
                return urljoin(target.url, place)
            if response.status_code >= 400:
                raise WebError(f"{shown(target.url)} answered {response.status_code} {response.reason_phrase}.", address=shown(target.url))
            body, cut = self._body(response, target, deadline)
            media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            return Fetched(target.url, media or "application/octet-stream", response.charset_encoding, body, cut)

    def _body(self, response: httpx.Response, target: Target, deadline: float) -> tuple[bytes, bool]:
        parts: list[bytes] = []
        size = 0
        for part in response.iter_bytes(65_536):
            self._left(deadline, target)
            parts.append(part)
            size += len(part)
            if size > self.max_bytes:
                return b"".join(parts)[: self.max_bytes], True
        return b"".join(parts), False

    def _left(self, deadline: float, target: Target) -> float:
        left = deadline - self.monotonic()
        if left <= 0:
            raise WebError(f"{shown(target.url)} took longer than {self.seconds:g} s.", address=shown(target.url))
        return left


def _headers() -> dict[str, str]:
    # asked for as it is: a compressed answer could be a thousand times larger than what was counted on the way
    return {"User-Agent": _AGENT, "Accept": _ACCEPT, "Accept-Encoding": "identity", "Accept-Language": "en,*;q=0.5"}


def _host_header(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    usual = {"http": 80, "https": 443}[target.scheme]
    return host if target.port == usual else f"{host}:{target.port}"


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
