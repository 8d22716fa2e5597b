"""Who may use the server: whoever has its token, and the browsers that were let in with it.

The token is the one of the configuration, else one that is made once and kept in `server.token` of the base directory, for its owner alone.
A browser gets a cookie that holds no token, only a name for the time that this server runs; cookies know no port, so it is named by it.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from pathlib import Path

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
