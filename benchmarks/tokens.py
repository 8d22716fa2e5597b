"""How true and how fast token counts are (T1, T2). Prints one JSON object.

accuracy: for each text class the exact o200k count, and what the estimate, LangChain's approximate counter and characters / 4 say, as a
ratio to it (below 1 is an under-count). `.held` texts were not used to fit the estimate.
speed_mb_s: megabytes of UTF-8 a second, all classes but base64 together.
second_count: a message that was counted before, beside the plainest cache there can be: a method that asks a dict for the message's id.
ledger: the total of a conversation of n messages when two are new, beside counting all of them with LangChain's counter.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from holdfast.tokens.approximate import ApproximateCounter
from holdfast.tokens.counter import ExactCounter, TokenCounter
from holdfast.tokens.message_counts import Ledger, MessageCounts

TEXTS = Path(__file__).parent.parent / "tests" / "fixtures" / "texts"
CLASSES = ("english", "markdown", "python", "json", "logs", "html", "chinese", "japanese", "russian", "base64")


def text_of(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text(encoding="utf-8")


def best(work: Callable[[], object], rounds: int = 7) -> float:
    """Seconds of the quickest of some rounds: the others were disturbed."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def langchain_count(text: str) -> int:
    return count_tokens_approximately([HumanMessage(text)], extra_tokens_per_message=0, count_name=False)


def accuracy() -> dict[str, dict[str, float]]:
    exact, approximate = ExactCounter(), ApproximateCounter()
    table: dict[str, dict[str, float]] = {}
    for name in [*CLASSES, *(f"{name}.held" for name in CLASSES)]:
        text = text_of(name)
        count = exact.count_text(text)
        table[name] = {
            "exact": count,
            "approximate": round(approximate.count_text(text) / count, 3),
            "langchain": round(langchain_count(text) / count, 3),
            "chars4": round(len(text) / 4 / count, 3),
        }
    return table


def speed() -> dict[str, float]:
    texts = [text_of(name + held) for name in CLASSES if name != "base64" for held in ("", ".held")] * 10
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    counters: dict[str, Callable[[str], int]] = {
        "exact": ExactCounter().count_text,
        "exact_cl100k": ExactCounter(model="gpt-4").count_text,
        "approximate": ApproximateCounter().count_text,
        "langchain": langchain_count,
    }
    return {name: round(megabytes / best(lambda count=count: [count(text) for text in texts]), 1) for name, count in counters.items()}  # type: ignore[misc]


class PlainCache:
    """The yardstick: a dictionary by the message's id, behind a method. `get` bears a miss, as a cache must; `take` does not."""

    def __init__(self) -> None:
        self.counts: dict[str | None, int] = {}

    def get(self, message: Any) -> int | None:
        return self.counts.get(message.id)

    def take(self, message: Any) -> int:
        return self.counts[message.id]


def second_count() -> dict[str, float]:
    messages = [HumanMessage(text_of("english")[start : start + 600], id=f"m{start}") for start in range(1000)]
    counter: TokenCounter = ExactCounter()
    counts, plain = MessageCounts(counter), PlainCache()
    first = best(lambda: [counter.count_message(message) for message in messages], 3)
    for message in messages:
        plain.counts[message.id] = counts.count(message)
    rivals: dict[str, Callable[[], object]] = {
        "ours": lambda: [counts.count(message) for message in messages],
        "get": lambda: [plain.get(message) for message in messages],
        "take": lambda: [plain.take(message) for message in messages],
    }
    seconds = dict.fromkeys(rivals, float("inf"))
    for _ in range(150):  # by turns, so that a disturbance hits all
        for name, work in rivals.items():
            seconds[name] = min(seconds[name], best(work, 2))
    return {
        "ns": round(seconds["ours"] / len(messages) * 1e9, 1),
        "dict_lookup_ns": round(seconds["get"] / len(messages) * 1e9, 1),
        "ratio": round(seconds["ours"] / seconds["get"], 3),
        "ratio_to_bare_subscript": round(seconds["ours"] / seconds["take"], 3),
        "first_count_ns": round(first / len(messages) * 1e9, 1),
    }


def ledger() -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    text = text_of("english")
    for size in (200, 1000, 5000):
        messages = [HumanMessage(text[n % 700 : n % 700 + 600], id=f"m{n}") for n in range(size)]
        reloaded = [message.model_copy() for message in messages]
        books = Ledger(MessageCounts(ExactCounter()))
        cold = best(lambda books=books, messages=messages: books.total(messages), 1)  # type: ignore[misc]
        turns = [[HumanMessage("a new question", id=f"q{n}"), HumanMessage("and its answer", id=f"a{n}")] for n in range(20)]
        growing = [messages + [message for turn in turns[: n + 1] for message in turn] for n in range(20)]
        warm = min(best(lambda books=books, step=step: books.total(step), 1) for step in growing)  # type: ignore[misc]
        books.total(messages)
        again = best(lambda books=books, reloaded=reloaded: books.total(reloaded), 1)  # type: ignore[misc]
        langchain = best(lambda messages=messages: count_tokens_approximately(messages), 5)  # type: ignore[misc]
        table[str(size)] = {
            "cold_us": round(cold * 1e6, 1),
            "reloaded_us": round(again * 1e6, 1),
            "two_new_us": round(warm * 1e6, 1),
            "langchain_us": round(langchain * 1e6, 1),
            "langchain_over_two_new": round(langchain / warm, 1),
        }
    return table


def main() -> None:
    print(json.dumps({"accuracy": accuracy(), "speed_mb_s": speed(), "second_count": second_count(), "ledger": ledger()}, indent=2))


if __name__ == "__main__":
    main()
