"""Counting texts exactly and approximately, and opening counters by name (T1, T2)."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from holdfast.config.loading import config_from_values
from holdfast.errors import ConfigError
from holdfast.events import Bus, Event
from holdfast.tokens import counter as counter_module
from holdfast.tokens.approximate import ApproximateCounter, estimate
from holdfast.tokens.counter import BaseCounter, ExactCounter, TokenCounter, VocabularyMissing, open_counter
from holdfast.tokens.windows import Notices, factor_of, provider_of, vocabulary_of
from holdfast.validation import load_dotted

TEXTS = Path(__file__).parents[2] / "fixtures" / "texts"
CLASSES = ("english", "markdown", "python", "json", "logs", "html", "chinese", "japanese", "russian")


def text_of(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*CLASSES, *(f"{name}.held" for name in CLASSES)])
def test_the_estimate_is_within_0_85_and_1_25_of_the_exact_count_on_every_class_also_on_texts_not_used_for_fitting(name: str) -> None:
    text = text_of(name)
    ratio = ApproximateCounter().count_text(text) / ExactCounter().count_text(text)
    assert 0.85 <= ratio <= 1.25, f"{name}: {ratio:.3f}"


@pytest.mark.parametrize("name", CLASSES)
def test_the_estimate_holds_for_short_pieces_on_the_whole_and_never_strays_far(name: str) -> None:
    """A message is short: the estimate of each of many pieces, not only of the sum, must be usable."""
    text = text_of(f"{name}.held")
    exact = ExactCounter()
    pieces = [text[start : start + 300] for start in range(0, len(text) - 300, 300)]
    for piece in pieces:
        assert 0.7 <= estimate(piece) / exact.count_text(piece) <= 1.4, piece


def test_base64_is_the_one_class_that_is_under_counted_and_less_than_by_characters() -> None:
    for name in ("base64", "base64.held"):
        text = text_of(name)
        exact = ExactCounter().count_text(text)
        assert len(text) / 4 / exact < ApproximateCounter().count_text(text) / exact < 1.25


def test_exact_counts_are_those_of_the_published_vocabularies() -> None:
    """`hello world` is two tokens in both; Chinese tells the two apart."""
    assert ExactCounter(model="gpt-4o").count_text("hello world") == 2
    assert ExactCounter(model="gpt-4").count_text("hello world") == 2
    chinese = text_of("chinese")
    assert ExactCounter(model="gpt-4").count_text(chinese) > 1.3 * ExactCounter(model="gpt-4o").count_text(chinese)


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("gpt-4o", "o200k"),
        ("gpt-4o-mini-2024-07-18", "o200k"),
        ("openai:gpt-4.1-nano", "o200k"),
        ("openai/gpt-5.5", "o200k"),
        ("o1", "o200k"),
        ("o3-mini", "o200k"),
        ("o4-mini", "o200k"),
        ("gpt-oss-20b", "o200k"),
        ("ft:gpt-4o:me::x", "o200k"),
        ("GPT-4O", "o200k"),
        ("gpt-4", "cl100k"),
        ("gpt-4-turbo", "cl100k"),
        ("gpt-3.5-turbo-0125", "cl100k"),
        ("gpt-35-turbo", "cl100k"),
        ("claude-sonnet-4-6", None),
        ("ollama-thing", None),
        ("", None),
        (None, None),
    ],
)
def test_the_vocabulary_follows_from_the_models_name(model: str | None, vocabulary: str | None) -> None:
    assert vocabulary_of(model) == vocabulary


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-haiku-4-5", "anthropic"),
        ("anthropic:claude-x", "anthropic"),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", "anthropic"),
        ("gemini-2.5-pro", "google"),
        ("google_genai:gemini-3", "google"),
        ("mistral-large-latest", "mistral"),
        ("mistralai/Mixtral-8x7B", "mistral"),
        ("deepseek-chat", "deepseek"),
        ("qwen2.5-coder:1.5b", "qwen"),
        ("meta-llama/Llama-3.3-70B", "meta"),
        ("openrouter/anthropic/some-model", "anthropic"),
        ("anything", None),
    ],
)
def test_the_provider_follows_from_the_models_name(model: str, provider: str | None) -> None:
    assert provider_of(model) == provider


def test_a_model_without_a_known_vocabulary_starts_from_o200k_times_the_factor_of_its_provider() -> None:
    text = text_of("python")
    plain = ExactCounter().count_text(text)
    for model, provider in (("claude-sonnet-4-6", "anthropic"), ("mistral-small", "mistral"), ("deepseek-chat", "deepseek")):
        factor = factor_of(model)
        assert factor > 1
        assert ExactCounter(model=model).count_text(text) == pytest.approx(plain * factor, abs=1)
        assert ExactCounter(provider=provider).count_text(text) == ExactCounter(model=model).count_text(text)
        assert open_counter("approximate", model=model).count_text(text) == pytest.approx(estimate(text) * factor, abs=1)
    assert factor_of(None) == 1.0
    assert factor_of("gpt-4o", "openai") == 1.0
    assert factor_of("anything", "openai") == 1.0
    assert 1 < factor_of("nobody-knows") < factor_of("claude")
    assert ExactCounter(model="anything", provider="google_genai").provider == "google"
    assert ExactCounter(model="claude-x", provider="openai").provider == "anthropic"


@pytest.mark.parametrize("kind", ["exact", "approximate"])
@pytest.mark.parametrize("name", ["english", "english.held"])
def test_english_for_anthropic_counts_about_3_3_characters_a_token(kind: str, name: str) -> None:
    text = text_of(name)
    assert 3.0 <= len(text) / open_counter(kind, model="claude-sonnet-4-6").count_text(text) <= 3.6


@pytest.mark.parametrize("counter", [ExactCounter(), ApproximateCounter(), ExactCounter(model="claude"), ExactCounter(model="gpt-4")])
def test_no_text_makes_a_counter_raise(counter: TokenCounter) -> None:
    for text in ("\ud800", "a\udfffb", "\ud83d\ude42", "\x00\x01\x0e\x11", "\U0010ffff", "e\u0301" * 9, "\ufeff", "\r\n", "<|endoftext|>"):
        count = counter.count_text(text)
        assert isinstance(count, int)
        assert count > 0
        assert counter.count_until(text, 10_000) == count
        assert counter.count_until(text, 0) is None
    assert counter.count_text("") == 0
    assert counter.count_until("", 0) == 0


@pytest.mark.parametrize("counter", [ExactCounter(), ApproximateCounter()])
def test_text_that_looks_like_a_special_token_counts_as_ordinary_text(counter: TokenCounter) -> None:
    assert counter.count_text("<|endoftext|>") > 3
    assert counter.count_text("<|im_start|>system") > 3


@pytest.mark.parametrize("counter", [ExactCounter(), ApproximateCounter()])
@pytest.mark.parametrize("char", ["a", " ", "\n", "=", "漢", "🙂", "é", "\x00", "a'", "aA", "\t "])
def test_equal_characters_in_great_number_are_counted_in_linear_work(counter: TokenCounter, char: str) -> None:
    """200,000 equal characters: a quadratic tokenizer would need minutes here and run into the test's time-out."""
    text = (char * 200_000)[:200_000]
    half, whole = counter.count_text(text[:100_000]), counter.count_text(text)
    assert whole == pytest.approx(2 * half, rel=0.01, abs=2)
    assert counter.count_until(text, 10) is None


@pytest.mark.parametrize("counter", [ExactCounter(), ApproximateCounter(), ExactCounter(model="claude"), ApproximateCounter(factor=1.4)])
@pytest.mark.parametrize("name", ["english", "chinese", "japanese", "json", "base64"])
@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_clipped_text_is_a_beginning_or_an_end_that_fits_and_wastes_little(counter: TokenCounter, name: str, limit: int) -> None:
    text = text_of(name)
    head, tail = counter.clip(text, limit), counter.clip(text, limit, "tail")
    assert text.startswith(head)
    assert text.endswith(tail)
    for part in (head, tail):
        assert counter.count_text(part) <= limit
        assert counter.count_text(part) >= limit - 3 - limit // 20
    assert counter.clip(text, 10**6) is text
    assert counter.clip(text, 0) == counter.clip(text, -1) == ""


def test_clipping_does_not_cut_a_character_in_two() -> None:
    text = "👩‍👩‍👧 ꙮ 𓀀 日本語" * 5
    for limit in range(1, 30):
        for keep in ("head", "tail"):
            part = ExactCounter().clip(text, limit, keep)
            assert part in text
            assert "\ufffd" not in part


def test_counting_until_a_limit_agrees_with_counting() -> None:
    for counter in (ExactCounter(), ApproximateCounter(), ExactCounter(model="claude"), ExactCounter(model="mistral-small")):
        text = text_of("markdown")
        count = counter.count_text(text)
        assert counter.count_until(text, count) == count
        assert counter.count_until(text, count - 1) is None
        assert counter.count_until(text, -1) is None


def test_counting_until_a_limit_stops_early() -> None:
    """The default reads a text in pieces: of a long one only the first is counted."""
    seen: list[int] = []

    class Watching(BaseCounter):
        def count_text(self, text: str) -> int:
            seen.append(len(text))
            return len(text)

    assert Watching().count_until("x" * 10_000_000, 100) is None
    assert sum(seen) < 100_000


def test_the_import_of_the_room_loads_no_vocabulary_and_no_langchain() -> None:
    code = (
        "import sys; from holdfast.tokens.counter import ExactCounter; c = ExactCounter(); "
        "import holdfast.tokens.counter as e; assert not e._loaded; c.count_text('a'); assert list(e._loaded) == ['o200k']; "
        "assert not [m for m in sys.modules if m.startswith(('langchain', 'numpy', 'pydantic'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_many_threads_count_alike() -> None:
    counter, text, counts = ExactCounter(model="gpt-4"), text_of("russian"), set()

    def work() -> None:
        for _ in range(20):
            counts.add((counter.count_text(text), ApproximateCounter().count_text(text)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 1


def test_without_the_vocabulary_package_counting_is_approximate_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rs_bpe.bpe", None)
    monkeypatch.setattr(counter_module, "_notices", Notices())
    seen: list[Event] = []
    first = open_counter("exact", model="claude-x", bus=Bus(seen.append))
    second = open_counter("exact", bus=Bus(seen.append))
    assert isinstance(first, ApproximateCounter)
    assert isinstance(second, ApproximateCounter)
    assert first.factor > 1
    assert [type(event) for event in seen] == [VocabularyMissing]


class OwnCounter(BaseCounter):
    def count_text(self, text: str) -> int:
        return len(text.split())


class Forgetful(BaseCounter):
    """Has an `__init__` of its own that does not call ours."""

    def __init__(self) -> None:
        self.words = 0

    def count_text(self, text: str) -> int:
        self.words += 1
        return len(text)


class BareCounter:
    """Counts texts, and has forgotten everything else."""

    def count_text(self, text: str) -> int:
        return len(text)


class Greedy:
    def __init__(self, size: int) -> None:
        self.size = size


def own_count(text: str) -> int:
    return len(text)


def messages_count(messages: Any) -> int:
    return sum(len(message.content) + 3 for message in messages)


def wrong_count(text: str) -> str:
    return text


def failing_count(text: str) -> int:
    raise RuntimeError("no server")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, "own_counters", sys.modules[__name__])
    return "own_counters"


def test_a_counter_of_ones_own_is_opened_by_its_path(own: str) -> None:
    made = open_counter(f"{own}:OwnCounter", model="claude-x")
    assert made.count_text("three small words") == 3
    assert isinstance(made, TokenCounter)
    assert isinstance(made, OwnCounter)
    assert made.provider == "anthropic"
    assert open_counter(f"{own}.OwnCounter").count_text("two words") == 2


def test_a_plain_function_counts_texts_messages_and_tools(own: str) -> None:
    made = open_counter(f"{own}:own_count")
    assert made.count_text("four") == 4
    assert made.count_tools([{"name": "a"}]) == len('{"name": "a"}')
    assert open_counter(own_count).count_text("ab") == 2
    assert open_counter(made) is made


@pytest.mark.parametrize("path", ["{own}:messages_count", "langchain_core.messages.utils:count_tokens_approximately"])
def test_a_function_over_messages_is_opened_by_its_path(own: str, path: str) -> None:
    """T1: in YAML too."""
    config = config_from_values({"summarization": {"token_counter": path.format(own=own)}})
    made = open_counter(config.summarization.token_counter)
    assert isinstance(made, TokenCounter)
    pair = [HumanMessage("Where is the file?"), HumanMessage("In the second drawer.")]
    found = load_dotted(path.format(own=own), "the counter")
    assert made.count_messages(pair) == found(pair)
    assert made.count_message(pair[0]) == found(pair[:1])
    assert made.count_text("a text of some words") == found([HumanMessage("a text of some words")])
    assert made.count_text("") == 0
    assert made.clip("abc " * 100, 20) != ""


@pytest.mark.parametrize("function", [len, lambda text: len(text) // 4, lambda text: len(text.split()), lambda text: len(text.encode())])
def test_a_function_over_texts_is_not_taken_for_one_over_messages(function: Any) -> None:
    assert open_counter(function).count_text("one two three") == function("one two three")


def test_a_counter_that_only_counts_texts_can_do_everything(own: str) -> None:
    made = open_counter(f"{own}:Forgetful")
    assert made.count_tools([{"a": 1}]) == len('{"a": 1}')
    assert made.count_image(1024, 1024) == 765
    assert made.clip("abcdef", 4) == "abcd"
    assert made.clip("abcdef", 4, "tail") == "cdef"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("own_counters:BareCounter", "`count_until`, `clip`, `count_message`"),
        ("own_counters:Greedy", "cannot be made"),
        ("own_counters:wrong_count", "not a whole number"),
        ("own_counters:failing_count", "RuntimeError: no server"),
        ("own_counters:Missing", "cannot be loaded"),
        ("no_such_module:Counter", "cannot be loaded"),
        (":Counter", "cannot be loaded"),
        ("own_counters:TEXTS", "it has no `count_text`"),
        ("exakt", "there is no token counter"),
    ],
)
def test_what_is_no_counter_is_refused_with_what_is_missing(own: str, path: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_counter(path)
    assert says in str(caught.value)
    assert caught.value.key == "token_counter"
    assert caught.value.hint


def test_a_near_miss_of_a_name_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        open_counter("approximat")
    assert caught.value.nearest == "approximate"
