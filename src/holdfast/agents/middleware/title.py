"""A title after the first exchange (A13): at once from the user's own words, and a better one from a light model when that has time.

The answer never waits for it. What the model writes later is kept by the thread's record and stands in the state from the next turn on.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.types import Command

from holdfast.agents.middleware.sync_async import AroundModelCall
from holdfast.agents.middleware.thread_data import LeadState
from holdfast.agents.prompting import filled
from holdfast.context.view import marks_of
from holdfast.memory.filtering import without_uploads
from holdfast.models.providers import model_name_of
from holdfast.text.secrets import redact
from holdfast.tokens.usage import Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.agents.threads import Threads
    from holdfast.config.sections import Config
    from holdfast.tokens.accounts import Accounts

_END = re.compile(r"(?<=[.!?。！？])\s")
_MOST = 4_000


def extracted_title(text: str, *, max_words: int = 6, max_chars: int = 60) -> str:
    """The first words of what the user said.

    >>> extracted_title("Please plan the move of the office to Mill Lane. We have until May.")
    'Please plan the move of the ...'
    """
    first = _END.split(" ".join(redact(without_uploads(text)).split()), maxsplit=1)[0]
    words = first.split(" ")
    short = " ".join(words[:max_words])
    cut = len(words) > max_words
    if len(short) > max_chars:
        short, cut = short[: max_chars - 4].rstrip(), True
    return f"{short} ..." if cut else short.rstrip(".!?:;, ")


@dataclass(frozen=True)
class Titles:
    """Makes titles. `model` is a light one that may be asked, or None: then they are taken from the user's words."""

    max_words: int = 6
    max_chars: int = 60
    model: BaseChatModel | None = None
    accounts: Accounts | None = None

    @classmethod
    def of(cls, config: Config, model: BaseChatModel | None, accounts: Accounts | None = None) -> Titles:
        """As the `title` section says."""
        return cls(config.title.max_words, config.title.max_chars, model, accounts)

    def extracted(self, question: str) -> str:
        """At once, from the user's words."""
        return extracted_title(question, max_words=self.max_words, max_chars=self.max_chars)

    async def written(self, question: str, answer: str) -> str | None:
        """By the model; None when there is none or it said nothing of use."""
        if self.model is None:
            return None
        prompt = filled("title.md", words=str(self.max_words), question=question[:_MOST], answer=answer[:_MOST])
        said = await self.model.ainvoke([HumanMessage(prompt)], {"callbacks": [], "tags": ["nostream"], "run_name": "title"})
        usage = Usage.read(said)
        if usage is not None and self.accounts is not None:
            self.accounts.charge(usage, model=model_name_of(self.model), purpose="title")
        text = " ".join(str(said.text).split()).strip("\"'“”*# .")
        return text[: self.max_chars].strip() if 0 < len(text) <= 4 * self.max_chars else None


class TitleMiddleware(AroundModelCall):
    """Puts the title into the state: the extracted one with the first answer, a written one when it is there."""

    state_schema = LeadState

    def __init__(self, titles: Titles, threads: Threads | None = None) -> None:
        super().__init__()
        self._titles, self._threads = titles, threads

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model; its first final answer brings the title."""
        return self._titled(request, (yield request))

    def _titled(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> Any:
        state: Any = request.state
        if state.get("title") or any(isinstance(one, AIMessage) and one.tool_calls for one in response.result):
            return response
        first = next((message for message in request.messages if _is_users(message)), None)
        title = self._titles.extracted(first.text) if first is not None else ""
        return ExtendedModelResponse(response, Command(update={"title": title})) if title else response


def _is_users(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and "summary" not in marks_of(message)
