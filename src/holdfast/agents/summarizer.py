"""Who writes a summary: a chat model that is prompted, or a function or Runnable that is given the messages (S7, S13, S15, S16).

Both are asked so that neither the user's stream nor the user's callbacks see it, and a hanging one costs the time-out and not the run.
Whatever goes wrong is a SummaryError: the history stays as it was.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import coerce_to_runnable

from holdfast.agents.model_spans import asked
from holdfast.context.compaction import LEAD, Ask, Entry
from holdfast.errors import InputError, SummaryError
from holdfast.models.abilities import model_name_of

_CONFIG: RunnableConfig = {"callbacks": [], "tags": ["nostream"], "run_name": "summary", "metadata": {"lc_source": "summarization"}}
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
"""What providers call an end by the token limit."""


@dataclass(frozen=True)
class Summarizer:
    """Asks for summaries. Exactly one of `model` and `function` is there; `heard` gets every answer of the model, for the accounts."""

    model: BaseChatModel | None = None
    function: Runnable[Any, Any] | None = None
    timeout: float | None = 120.0
    heard: Callable[[Ask, BaseMessage], None] = lambda want, message: None

    @classmethod
    def of(cls, wanted: Any, **settings: Any) -> Summarizer | None:
        """For a chat model, the text `provider:name`, a Runnable, a function (also an async one), or nothing."""
        if isinstance(wanted, str):
            from langchain.chat_models import init_chat_model

            wanted = init_chat_model(wanted)
        if wanted is None:
            return None
        if isinstance(wanted, BaseChatModel):
            return cls(model=wanted, **settings)
        if not isinstance(wanted, Runnable) and not callable(wanted):
            raise InputError(f"{wanted!r} cannot write summaries.", hint="Give a chat model, a Runnable, or a function of messages.")
        return cls(function=coerce_to_runnable(wanted), **settings)

    @property
    def name(self) -> str:
        """Who it is, for the record."""
        return model_name_of(self.model) if self.model is not None else str(self._asked.get_name())

    def ask(self, want: Ask) -> str:
        """The summary, asked for in a thread of its own."""
        answer: Future[Any] = Future()

        def work() -> None:
            try:
                answer.set_result(self._asked.invoke(self._given(want), _CONFIG))
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the answer is waited for
                answer.set_exception(error)

        threading.Thread(target=work, name="holdfast-summary", daemon=True).start()
        try:
            with self._traced(want) as heard:
                heard.append(answer.result(self.timeout))
            return self._text(want, answer.result())
        except SummaryError:
            raise
        except Exception as error:  # a provider may raise anything; whatever it is, the history stays as it was
            raise SummaryError(f"The summarizer failed: {type(error).__name__}: {error}") from error

    async def aask(self, want: Ask) -> str:
        """The summary, awaited."""
        try:
            async with asyncio.timeout(self.timeout):
                with self._traced(want) as heard:
                    work = self._asked.ainvoke(self._given(want), _CONFIG)
                    # what a function calls would inherit the callbacks of the run from the context, so it gets an empty one
                    answer = await (work if self.function is None else asyncio.create_task(work, context=contextvars.Context()))
                    heard.append(answer)
                return self._text(want, answer)
        except SummaryError:
            raise
        except Exception as error:  # as above; a cancellation is not an Exception and goes through
            raise SummaryError(f"The summarizer failed: {type(error).__name__}: {error}") from error

    @property
    def _asked(self) -> Runnable[Any, Any]:
        asked = self.function if self.function is not None else self.model
        assert asked is not None  # noqa: S101 - `of` makes one with either
        return asked

    def _traced(self, want: Ask) -> AbstractContextManager[list[Any]]:
        """A span, where it is a model that is asked."""
        return asked(self.model, [HumanMessage(want.prompt)], purpose="summary") if self.model is not None else nullcontext([])

    def _given(self, want: Ask) -> list[BaseMessage]:
        if self.function is None:
            return [HumanMessage(want.prompt)]
        before = [HumanMessage(f"{LEAD}\n\n{want.notes}")] if want.notes else []
        return [*before, *map(_message, want.entries)]

    def _text(self, want: Ask, answer: Any) -> str:
        if self.function is not None:
            if not isinstance(answer, str):
                raise SummaryError(f"`summarizer` must return a str, got {type(answer).__name__}.")
            return answer
        self.heard(want, answer)
        text = str(answer.text)
        if _is_cut(answer):
            raise SummaryError("The summary was cut off by the token limit of its model.", words=max(1, len(text.split())))
        return text


def _message(entry: Entry) -> Any:
    """The message as it was; of one that is read in parts, the part."""
    if entry.message is not None:
        return entry.message
    kind = AIMessage if entry.head.startswith("assistant") else HumanMessage
    return kind(entry.text, id=entry.id)


def _is_cut(message: BaseMessage) -> bool:
    """Whether the answer ended because its token limit was reached, as OpenAI, Anthropic, Google and Mistral say it."""
    said: Mapping[str, Any] = message.response_metadata
    details = said.get("incomplete_details")
    ends: Iterable[Any] = (
        said.get("finish_reason"),
        said.get("stop_reason"),
        details.get("reason") if isinstance(details, Mapping) else None,
    )
    return any(isinstance(end, str) and end.lower() in _CUT for end in ends)
