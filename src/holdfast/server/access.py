"""Who may use the server: whoever has its token, the browsers that were let in with it; and the door, at which that is checked.

The token is the one of the configuration, else one that is made once and kept in `server.token` of the base directory, for its owner alone.
A browser gets a cookie that holds no token, only a name for the time that this server runs; cookies know no port, so it is named by it.

The door is plain ASGI, outermost: host, origin and token are checked before anything of a request is read, and every answer gets the
headers that protect a page. A request for another host name (DNS rebinding), from a page of another origin, or without the token ends here.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

from holdfast.config.sections import Config
from holdfast.durable.replace import replace_text
from holdfast.errors import InputError

FILE = "server.token"
_SHORTEST = 16


def find_token(config: Config) -> str:
    """The token of this configuration, made durably if there is none. InputError for one that could be guessed."""
    given = config.server.token
    if given is not None:
        if len(given) < _SHORTEST or not given.isascii() or not given.isprintable() or " " in given:
            raise InputError(
                f"server.token needs at least {_SHORTEST} ASCII letters or digits, without spaces.", hint="Leave it out: one is made then."
            )
        return given
    path = config.base / FILE
    kept = _read(path)
    if kept is None:
        config.base.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_text(path, f"hf-{secrets.token_urlsafe(32)}\n")
        kept = _read(path)
    if kept is None:
        raise InputError("the token of the server cannot be read.", hint=f"Look at {FILE} in the base directory.")
    return kept


def _read(path: Path) -> str | None:
    try:
        found = path.read_text("utf-8").strip()
    except FileNotFoundError:
        return None
    return found or None


class Keys:
    """Says whether a request may pass. Safe for many threads."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        self.cookie = f"holdfast_{port}"
        self._lock = threading.Lock()
        self._browsers: dict[str, None] = {}

    def opens(self, given: bytes) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(given, self._token)

    def let_in(self) -> str:
        """A name for a browser that showed the token. The oldest of many is forgotten."""
        name = secrets.token_urlsafe(32)
        with self._lock:
            self._browsers[name] = None
            while len(self._browsers) > 256:
                self._browsers.pop(next(iter(self._browsers)))
        return name

    def knows(self, name: str) -> bool:
        """Whether a browser of this name was let in."""
        with self._lock:
            return name in self._browsers


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/healthz", "/readyz", "/login"})
"""What anybody on this machine may ask; it tells nothing but whether the server is there."""


def is_open(path: str) -> bool:
    """Whether a path of the server needs no token."""
    return path in OPEN or path.startswith("/static/")


_ONCE = (b"host", b"authorization", b"origin", b"x-api-key", b"content-length")
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_EXPOSED = b"retry-after, x-holdfast-compacted, x-holdfast-placed, x-holdfast-sent-tokens, x-holdfast-thread"
_NAMES = re.compile(rb"[A-Za-z0-9_-]+(?:\s*,\s*[A-Za-z0-9_-]+)*")


class Guard:
    """Lets pass what may. `hosts` are the names, with port, under which the server answers; `origins` the pages that may use it; `is_open`
    says the paths that need no token."""

    def __init__(
        self,
        app: App,
        *,
        keys: Keys,
        hosts: Collection[str],
        origins: Collection[str],
        max_body: int,
        is_open: Callable[[str], bool] = is_open,
    ) -> None:
        self._app, self._keys = app, keys
        self._hosts, self._origins = frozenset(hosts), frozenset(origins)
        self._max_body = max_body
        self._is_open = is_open
        from holdfast.server import wire  # the framework: who asks for the token alone does without it
        from holdfast.server.routes import html_pages

        self._wire, self._pages = wire, html_pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, and hand on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        cross = self._cross(scope)
        sending = _with_headers(send, (*cross, *_HEADERS))
        if (refusal := self._refusal(scope)) is None:
            await self._app(scope, receive, sending)
        elif refusal[0] == 401 and cross and (allowed := _preflight(scope)):
            await send({"type": "http.response.start", "status": 204, "headers": [*cross, *allowed]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._answer(sending, scope, *refusal)

    def _cross(self, scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
        """What lets a page of another origin read the answer, where the configuration names that origin; nothing for all others."""
        found = dict(scope["headers"])
        origin, host = found.get(b"origin", b""), found.get(b"host", b"").lower()
        if origin.decode("latin-1").lower() not in self._origins or origin.lower() == b"http://" + host:
            return ()
        return ((b"access-control-allow-origin", origin), (b"vary", b"Origin"), (b"access-control-expose-headers", _EXPOSED))

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        """Status, kind and words of what is wrong; None for a request that may pass."""
        found: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in found and name in _ONCE:
                return 400, "bad-request", "A header stands twice."
            found[name] = value
        if found.get(b"host", b"").decode("latin-1").lower() not in self._hosts:
            return 421, "wrong-host", "This server does not answer for that host name."
        origin = found.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() not in self._origins:
            return 403, "wrong-origin", "Pages of other origins may not use this server."
        if not self._is_open(scope["path"]) and not self._has_key(found, scope):
            return 401, "no-token", "A token is needed: `Authorization: Bearer ...`. The command prints it with --show-token."
        length = found.get(b"content-length", b"0")
        if not length.isdigit():
            return 400, "bad-request", "The length of the body is no number."
        if int(length) > self._max_body:
            return (
                413,
                "too-large",
                f"The body may have {self._max_body} bytes at most; `server.max_upload_bytes` of the server says how large a file may be.",
            )
        return None

    def _has_key(self, found: dict[bytes, bytes], scope: Scope) -> bool:
        given = found.get(b"authorization", b"")
        if given[:7].lower() == b"bearer ":
            return self._keys.opens(given[7:].strip())
        if b"x-api-key" in found:
            return self._keys.opens(found[b"x-api-key"].strip())
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(found.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            return False
        name = cookies.get(self._keys.cookie)
        safe = scope["method"] in ("GET", "HEAD") or b"origin" in found  # a form of another page has an origin, and was refused by it
        return name is not None and safe and self._keys.knows(name.value)

    async def _answer(self, send: Send, scope: Scope, status: int, kind: str, detail: str) -> None:
        said = {"type": f"urn:holdfast:{kind}", "title": kind.replace("-", " "), "status": status, "detail": detail}
        asked = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"accept", b"hx-request")}
        if self._pages.wants_page(asked.get(b"accept", ""), scope["path"]):
            kind, body = "text/html; charset=utf-8", self._pages.error_page(scope["path"], said, small=b"hx-request" in asked).encode()
            own = [(name.encode(), value.encode()) for name, value in self._pages.HEADERS.items()]
        else:
            kind, told = self._wire.in_form_of(scope["path"], said)
            body, own = json.dumps(told).encode(), []
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()), *own]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _preflight(scope: Scope) -> list[tuple[bytes, bytes]]:
    """The answer to a browser that asks whether a page may send such a request; nothing for any other request. It brings no token."""
    found = dict(scope["headers"])
    if scope["method"] != "OPTIONS" or b"access-control-request-method" not in found:
        return []
    wanted = found.get(b"access-control-request-headers", b"")
    allowed = [(b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"), (b"access-control-max-age", b"600")]
    if _NAMES.fullmatch(wanted):
        allowed.append((b"access-control-allow-headers", wanted))
    if b"access-control-request-private-network" in found:
        allowed.append((b"access-control-allow-private-network", b"true"))
    return allowed


def _with_headers(send: Send, more: Sequence[tuple[bytes, bytes]]) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = [*message.get("headers", ())]
            names = {name.lower() for name, _ in own}
            message = {**message, "headers": [*own, *(pair for pair in more if pair[0] not in names)]}
        await send(message)

    return sending
