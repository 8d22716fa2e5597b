"""The web, for agents: search by a provider, and pages as Markdown, never from an address inside the user's network.

May import every room but `app` and `testing`.
Start with `guard.py`, which says what may be asked, then `fetching.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.agents.web.fetching import Fetcher, Page
    from holdfast.agents.web.guard import Guard
    from holdfast.agents.web.searching import Result, Searcher, open_searcher

__all__ = ["Fetcher", "Guard", "Page", "Result", "Searcher", "open_searcher", "web_fetch", "web_search"]

web_fetch: Any
web_search: Any

__getattr__, __dir__ = exports(
    __name__,
    {
        "fetching": ("Fetcher", "Page"),
        "guard": ("Guard",),
        "searching": ("Result", "Searcher", "open_searcher"),
        "tools": ("web_fetch", "web_search"),
    },
)
