"""A pytest plugin: Holdfast's SummarizationMiddleware, innermost, in every agent that the tests make (S16).

Loaded by `langchain_suite.py` with `-p`, before any test module is imported. An agent that has a summarization middleware of its own keeps
it.
"""

from __future__ import annotations

import functools
from typing import Any

import langchain.agents
import langchain.agents.factory

from holdfast.agents.middleware.summarization import SummarizationMiddleware

_create_agent = langchain.agents.factory.create_agent


@functools.wraps(_create_agent)
def create_agent(*args: Any, middleware: Any = (), **kwargs: Any) -> Any:
    """LangChain's, with one more middleware."""
    given = list(middleware)
    if not any(one.name == SummarizationMiddleware.__name__ for one in given):
        given.append(SummarizationMiddleware(trigger=("fraction", 0.8)))
    return _create_agent(*args, middleware=given, **kwargs)


langchain.agents.create_agent = create_agent
langchain.agents.factory.create_agent = create_agent
