"""What the check before a model call costs, ours beside LangChain's, and that it still notices a changed history (S4)."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from statistics import median
from types import SimpleNamespace
from typing import Any

from benchmarks.parts.conversation import conversation
from langchain.agents.middleware import SummarizationMiddleware as Theirs
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import MemoryArchive
from holdfast.events import Bus, LogSink, TokenCount
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat

__all__ = ["check_cost", "edits_noticed"]

_WINDOW = 100_000_000  # no trigger is met: what is measured is the check alone
_BLOCK = 20
_ANSWER = AIMessage("Fine.", id="answer")


class _Ours:
    """Our hook around a model that answers at once."""

    def __init__(self, *, listening: bool = False) -> None:
        self.counted: list[int] = []
        self.bus = Bus(self._hear) if listening else Bus(LogSink())
        model: Any = {"max_input_tokens": _WINDOW}
        self.model = ScriptedModel([repeat("never asked")], profile=model)
        self.middleware = SummarizationMiddleware(self.model, trigger=("fraction", 0.9), archive=MemoryArchive(), bus=self.bus)
        self.runtime: Any = SimpleNamespace(execution_info=SimpleNamespace(thread_id="t"), context=None)
        self.response = ModelResponse(result=[_ANSWER])

    def _hear(self, event: object) -> None:
        if isinstance(event, TokenCount):
            self.counted.append(event.tokens)

    def request(self, messages: list[AnyMessage]) -> ModelRequest[Any]:
        """Assembled before the clock starts: every agent pays for this, with or without a check."""
        state: Any = {"messages": messages}
        return ModelRequest(model=self.model, messages=messages, tools=[], state=state, runtime=self.runtime)

    def check(self, request: ModelRequest[Any]) -> object:
        return self.middleware.wrap_model_call(request, self._answered)

    def _answered(self, request: ModelRequest[Any]) -> ModelResponse[Any]:
        return self.response

    def total(self, messages: list[AnyMessage]) -> int:
        """The tokens that the check came to for this history."""
        self.check(self.request(messages))
        return self.counted[-1]


def check_cost(sizes: Sequence[int] = (200, 1000, 5000), *, calls: int = 300) -> dict[str, Any]:
    """Microseconds a call: the usual one (two messages are new), the first of a turn (all objects are), and a cold start."""
    return {str(size): _at(size, calls) for size in sizes}


def _at(size: int, calls: int) -> dict[str, float]:
    messages, _ = conversation(size)
    ours, theirs = _Ours(), _Langchain()
    bare = _Ours()
    bare.check(bare.request([]))
    usual: list[float] = []
    their_usual: list[float] = []
    empty: list[float] = []
    cold = _timed(ours.check, ours.request(messages))
    their_first = _timed(theirs.check, list(messages))
    histories = [[*messages[: size - 2], *_new_pair(messages, number)] for number in range(calls)]
    gc.collect()
    gc.disable()  # both sides alike: a collection in the midst of a call would be charged to whoever is running
    try:
        for start in range(
            0, calls, _BLOCK
        ):  # by turns in blocks: what disturbs the machine hits both, and neither empties the other's caches
            for history in histories[start : start + _BLOCK]:
                ours.check(ours.request(history[:-2]))
                usual.append(_timed(ours.check, ours.request(history)))
            their_usual += [_timed(theirs.check, list(history)) for history in histories[start : start + _BLOCK : 5]]
            empty += [_timed(bare.check, bare.request([])) for _ in range(_BLOCK)]
    finally:
        gc.enable()
    reloaded = median(_reloaded(ours, messages) for _ in range(max(3, calls // 30)))
    check, their_check = median(usual), median(their_usual)
    return {
        "ours_us": _us(check),
        "langchain_us": _us(their_check),
        "langchain_over_ours": round(their_check / check, 1),
        "ours_with_no_messages_us": _us(median(empty)),
        "ours_first_call_of_a_turn_us": _us(reloaded),
        "langchain_over_ours_first_call_of_a_turn": round(their_check / reloaded, 1),
        "ours_cold_start_us": _us(cold),
        "langchain_cold_start_us": _us(their_first),
    }


def _new_pair(messages: list[AnyMessage], number: int) -> list[AnyMessage]:
    """A question and an answer of the usual length that nobody has counted yet."""
    texts = [f"{number}: {messages[(number + step) % len(messages)].text or 'Go on.'}" for step in (0, 1)]
    return [HumanMessage(texts[0], id=f"q{number}"), AIMessage(texts[1], id=f"r{number}")]


class _Langchain:
    """Their hook, with a trigger that is not met either and the counter that they choose by default."""

    def __init__(self) -> None:
        profile: Any = {"max_input_tokens": _WINDOW}
        model = ScriptedModel([repeat("never asked")], profile=profile)
        self.middleware: Any = Theirs(model, trigger=("fraction", 0.9))
        self.runtime: Any = SimpleNamespace(context=None)

    def check(self, messages: list[AnyMessage]) -> object:
        return self.middleware.before_model({"messages": messages}, self.runtime)


def _reloaded(ours: _Ours, messages: list[AnyMessage]) -> float:
    """A turn begins with a history that was read from a checkpoint: the same ids, all objects new."""
    ours.check(ours.request(messages))
    request = ours.request([message.model_copy() for message in messages])
    return _timed(ours.check, request)


def edits_noticed(size: int = 1000) -> dict[str, bool]:
    """A message replaced under its id, one removed, and another tail: each time the total is the true one."""
    messages, _ = conversation(size)
    middle = size // 2
    middle = next(n for n in range(middle, size) if messages[n].type == "human" and messages[n + 1].type == "ai")
    longer = "Something much longer stands here now, and nobody said so. " * 5
    edited = [*messages[:middle], HumanMessage(longer, id=messages[middle].id), *messages[middle + 1 :]]
    removed = [*messages[:middle], *messages[middle + 2 :]]
    branched = [*messages[:middle], HumanMessage("Let us go another way.", id="branch"), AIMessage("Gladly.", id="branch-answer")]
    noticed = {}
    for name, changed in (("edited", edited), ("removed", removed), ("branched", branched)):
        ours = _Ours(listening=True)
        before = ours.total(messages)
        after = ours.total(changed)
        noticed[name] = after == _Ours(listening=True).total([message.model_copy() for message in changed]) and after != before
        noticed[f"{name}_and_back"] = ours.total(messages) == before
    assert all(noticed.values()), f"a change of the history was not noticed: {noticed}"
    return noticed


def _timed(work: Callable[[Any], object], given: object) -> float:
    start = time.perf_counter()
    work(given)
    return time.perf_counter() - start


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 1)
