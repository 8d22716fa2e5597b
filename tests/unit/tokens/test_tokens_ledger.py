"""Counts are kept for each message and summed up in running totals (T1)."""

from __future__ import annotations

import gc
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from holdfast.tokens.counter import ExactCounter, open_counter
from holdfast.tokens.message_counts import Ledger, MessageCounts
from holdfast.tokens.messages import MESSAGE_OVERHEAD


class CountingVocabulary:
    """A vocabulary of one token a letter that notes every text it was asked for."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, input: str) -> int:
        self.texts.append(input)
        return len(input)

    def count_till_limit(self, input: str, limit: int) -> int | None:
        return len(input) if len(input) <= limit else None

    def encode(self, input: str) -> list[int]:
        return [ord(c) for c in input]

    def decode(self, tokens: list[int]) -> str | None:
        return "".join(map(chr, tokens))


@pytest.fixture
def vocabulary() -> CountingVocabulary:
    return CountingVocabulary()


@pytest.fixture
def counts(vocabulary: CountingVocabulary) -> MessageCounts:
    return MessageCounts(ExactCounter(vocabulary=vocabulary))


def test_the_second_count_of_a_message_does_not_count_the_text_again(counts: MessageCounts, vocabulary: CountingVocabulary) -> None:
    message = HumanMessage("hello", id="m1")
    assert counts.count(message) == counts.count(message) == 5 + MESSAGE_OVERHEAD
    assert vocabulary.texts == ["hello"]


def test_the_second_count_of_a_message_looks_at_nothing_but_its_identity(counts: MessageCounts) -> None:
    looked: list[str] = []

    class Watched:
        type = "human"

        def __init__(self) -> None:
            self.id, self.content = "m1", "hello"

        def __getattribute__(self, name: str) -> object:
            looked.append(name)
            return object.__getattribute__(self, name)

    message = Watched()
    first = counts.count(message)
    looked.clear()
    assert counts.count(message) == first
    assert looked == []


def test_a_reloaded_message_with_the_same_id_and_content_is_not_counted_again(
    counts: MessageCounts, vocabulary: CountingVocabulary
) -> None:
    calls = [{"name": "look", "args": {"q": [1, {"a": None}]}, "id": "c1"}]
    original = AIMessage([{"type": "text", "text": "hello"}], id="m1", tool_calls=calls)
    count = counts.count(original)
    asked = len(vocabulary.texts)
    assert counts.count(AIMessage.model_validate_json(original.model_dump_json())) == count
    assert len(vocabulary.texts) == asked


def test_an_edited_copy_under_the_same_id_is_counted_anew(counts: MessageCounts) -> None:
    message = HumanMessage("hello", id="m1")
    edited = message.model_copy(update={"content": "hello, world"})
    assert counts.count(message) == 5 + MESSAGE_OVERHEAD
    assert counts.count(edited) == 12 + MESSAGE_OVERHEAD
    assert counts.count(message) == 5 + MESSAGE_OVERHEAD


def test_messages_without_an_id_are_told_apart_by_content(counts: MessageCounts, vocabulary: CountingVocabulary) -> None:
    assert counts.count(HumanMessage("one")) == 3 + MESSAGE_OVERHEAD
    assert counts.count(HumanMessage("three")) == 5 + MESSAGE_OVERHEAD
    assert counts.count(HumanMessage("one")) == 3 + MESSAGE_OVERHEAD
    assert vocabulary.texts == ["one", "three"]


def test_the_place_of_a_message_that_is_gone_does_not_lend_its_count_to_another(vocabulary: CountingVocabulary) -> None:
    counts = MessageCounts(ExactCounter(vocabulary=vocabulary), most=3)
    for size in range(200):
        assert counts.count(HumanMessage("x" * size, id=str(size))) == size + MESSAGE_OVERHEAD
        gc.collect(0)


def test_the_cache_is_bounded_and_keeps_what_is_used(vocabulary: CountingVocabulary) -> None:
    counts = MessageCounts(ExactCounter(vocabulary=vocabulary), most=50)
    used = HumanMessage("used", id="used")
    for number in range(1000):
        counts.count(HumanMessage("x", id=str(number)))
        counts.count(used)
        assert len(counts) <= 100
    assert vocabulary.texts.count("used") == 1


def test_many_threads_share_the_counts() -> None:
    counts = MessageCounts(ExactCounter(), most=40)
    messages = [HumanMessage(f"message {number} " * (number % 7), id=str(number)) for number in range(100)]
    expected = [ExactCounter().count_message(message) for message in messages]
    wrong: list[int] = []

    def work() -> None:
        for _ in range(20):
            wrong.extend(n for n, message in enumerate(messages) if counts.count(message) != expected[n])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ------------------------------------------------------------------ running sums


def conversation(*sizes: int) -> list[HumanMessage]:
    return [HumanMessage("x" * (size - MESSAGE_OVERHEAD), id=f"m{number}") for number, size in enumerate(sizes)]


def test_only_new_messages_are_counted_and_the_total_is_right(counts: MessageCounts, vocabulary: CountingVocabulary) -> None:
    ledger = Ledger(counts)
    messages = conversation(10, 20, 30)
    assert ledger.total(messages) == 60
    assert ledger.total([*messages, HumanMessage("new", id="new")]) == 60 + 3 + MESSAGE_OVERHEAD
    assert (ledger.unchanged, len(ledger)) == (3, 4)
    assert len(vocabulary.texts) == 4


def test_replaced_removed_and_reordered_messages_are_noticed(counts: MessageCounts) -> None:
    ledger = Ledger(counts)
    a, b, c, d = conversation(10, 20, 30, 40)
    assert ledger.total([a, b, c, d]) == 100
    edited = b.model_copy(update={"content": "y" * 96})
    assert ledger.total([a, edited, c, d]) == 180
    assert ledger.unchanged == 1
    assert ledger.total([a, c, d]) == 80
    assert ledger.total([d, c, a]) == 80
    assert ledger.total([]) == 0
    assert ledger.total([a]) == 10


def test_the_tokens_of_a_stretch_are_known(counts: MessageCounts) -> None:
    ledger = Ledger(counts)
    ledger.total(conversation(10, 20, 30, 40))
    assert ledger.between(1, 3) == 50
    assert ledger.between(1) == ledger.between(-3) == 90
    assert ledger.between(3, 1) == 0


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=8), max_size=12), st.integers(0, 9))
def test_whatever_becomes_of_a_conversation_the_ledger_says_the_sum_of_its_messages(steps: list[list[tuple[int, int]]], room: int) -> None:
    """Every step is a list of (id, version): messages come, go, change places and are edited; some are new objects, some the same."""
    counter = ExactCounter(vocabulary=CountingVocabulary())
    ledger = Ledger(MessageCounts(counter, most=5))
    known: dict[tuple[int, int], AnyMessage] = {}
    for number, step in enumerate(steps):
        messages = []
        for which, version in step:
            fresh = HumanMessage("x" * (which * 3 + version * 11), id=str(which))
            messages.append(fresh if number % 3 == 0 else known.setdefault((which, version), fresh))
        assert ledger.total(messages) == counter.count_messages(messages)
        assert ledger.between(room) == counter.count_messages(messages[room:])


@given(st.lists(st.text(max_size=60), max_size=12), st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=8))
def test_a_rough_total_is_never_below_the_true_one_and_does_not_disturb_it(texts: list[str], asks: list[tuple[bool, int]]) -> None:
    """S4: most calls are far from every trigger, and then a bound is enough."""
    counter = open_counter("exact")
    messages = [HumanMessage(text, id=f"m{n}") for n, text in enumerate(texts)]
    ledger = Ledger(MessageCounts(counter))
    for exactly, length in asks:
        head = messages[:length]
        true = counter.count_messages(head)
        if exactly:
            assert ledger.total(head) == true
            assert ledger.between(0) == true
        else:
            assert ledger.rough(head) >= true
    assert ledger.total(messages) == counter.count_messages(messages)


def test_what_is_only_asked_for_roughly_is_not_counted() -> None:
    """S4"""
    counted: list[str] = []

    class Watching(ExactCounter):
        def count_text(self, text: str) -> int:
            counted.append(text)
            return super().count_text(text)

    ledger = Ledger(MessageCounts(Watching()))
    messages = [HumanMessage("one", id="1"), HumanMessage("two", id="2")]
    ledger.rough(messages)
    assert counted == []
    ledger.total(messages)
    ledger.rough([*messages, HumanMessage("three", id="3")])
    assert counted == ["one", "two"]
