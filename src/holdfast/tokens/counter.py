"""Token counters: contract, exact counts with OpenAI's real vocabularies (o200k, cl100k, offline, from rs-bpe), opening one by name.

A vocabulary is read into memory at the first count (0.1 to 0.3 s), never at import. A model whose vocabulary is not published starts from
the o200k count times the factor of its provider (`windows.py`).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from holdfast.errors import ConfigError
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.tokens.message_counts import ToolCounts
from holdfast.tokens.messages import Message, count_message, image_tokens
from holdfast.tokens.windows import Notices, factor_of, maker_of, vocabulary_of
from holdfast.validation import load_dotted

Keep = Literal["head", "tail"]


@runtime_checkable
class TokenCounter(Protocol):
    """Counts what a model would read. Safe for many threads; never raises on any text, lone surrogates included.

    Counts are whole numbers and never negative; the count of the empty text is 0. A counter keeps no counts of messages: that is what
    `MessageCounts` is for. `BaseCounter` gives everything but `count_text`.
    """

    def count_text(self, text: str) -> int:
        """Tokens of a text. What looks like a special token in it counts as ordinary text."""

    def count_until(self, text: str, limit: int) -> int | None:
        """The count, or None as soon as it is known to be more than `limit`: cheap for a long text and a small limit."""

    def clip(self, text: str, limit: int, keep: Keep = "head") -> str:
        """The longest beginning (or end) that was found to count at most `limit`. A text that fits is returned as it is."""

    def count_message(self, message: Message) -> int:
        """Tokens of one message with its overhead, its tool calls and images."""

    def count_messages(self, messages: Iterable[Message]) -> int:
        """The sum over the messages."""

    def count_tools(self, tools: Iterable[object]) -> int:
        """Tokens of tool definitions, as the JSON that is sent. A tool that was counted before costs a look-up."""

    def count_image(self, width: int | None = None, height: int | None = None, detail: str | None = None) -> int:
        """Tokens of an image of this size, by the provider's formula; of a usual one when the size is not known."""


class BaseCounter(ABC):
    """Everything that follows from counting texts. A counter of your own needs `count_text` only.

    `factor` multiplies the counts of texts (not of images), for a model whose own vocabulary is not known.
    """

    _CHUNK: ClassVar[int] = 16_384

    model: str | None = None
    provider: str | None = None
    factor: float = 1.0

    def __init__(self, *, model: str | None = None, provider: str | None = None, factor: float = 1.0) -> None:
        if not (math.isfinite(factor) and factor > 0):
            raise ValueError(f"factor must be a positive number, not {factor!r}")
        self.model = model
        self.provider = maker_of(model, provider)
        self.factor = factor

    @cached_property
    def _tools(self) -> ToolCounts:  # made when first needed, so that a subclass with an `__init__` of its own need not call ours
        return ToolCounts(self.count_text)

    @abstractmethod
    def count_text(self, text: str) -> int: ...

    def bound_text(self, text: str) -> int | None:
        """A number that the count is never above, found at once; None where there is no such number."""
        return None

    def _scaled(self, count: float) -> int:
        """The count for the model at hand, rounded up: a little too many is safe, a little too few is not."""
        return math.ceil(count * self.factor - 1e-9)

    def count_until(self, text: str, limit: int) -> int | None:
        if limit < 0:
            return None
        total = 0
        for start in range(0, len(text), self._CHUNK):
            total += self.count_text(text[start : start + self._CHUNK])
            if total > limit:
                return None
        return total

    def clip(self, text: str, limit: int, keep: Keep = "head") -> str:
        if limit <= 0:
            return ""
        if self.count_until(text, limit) is not None and self.count_text(text) <= limit:
            return text
        low, high = 0, len(text)  # `low` characters fit, `high` do not
        step = min(high, limit * 4)
        while step < high and self.count_until(_end(text, step, keep), limit) is not None:
            low, step = step, min(high, step * 2)
        high = step
        while high - low > 1:
            middle = (low + high) // 2
            if self.count_until(_end(text, middle, keep), limit) is not None:
                low = middle
            else:
                high = middle
        return self._fitting(text, low, limit, keep)

    def _fitting(self, text: str, length: int, limit: int, keep: Keep) -> str:
        """The beginning or end of about this length that truly fits: how a text is cut changes how its edge is counted."""
        clipped = _end(text, length, keep)
        while clipped and self.count_text(clipped) > limit:
            length -= 1
            clipped = _end(text, length, keep)
        return clipped

    def count_message(self, message: Message) -> int:
        return count_message(message, self.count_text, self.count_image)

    def count_messages(self, messages: Iterable[Message]) -> int:
        return sum(map(self.count_message, messages))

    def count_tools(self, tools: Iterable[object]) -> int:
        return sum(map(self._tools, tools))

    def count_image(self, width: int | None = None, height: int | None = None, detail: str | None = None) -> int:
        return image_tokens(width, height, detail=detail, provider=self.provider)


def _end(text: str, length: int, keep: Keep) -> str:
    return text[:length] if keep == "head" else text[len(text) - length :]


class CallableCounter(BaseCounter):
    """A function from text to tokens as a counter."""

    def __init__(self, count: Callable[[str], int], *, model: str | None = None, provider: str | None = None) -> None:
        super().__init__(model=model, provider=provider)
        self._count = count

    def count_text(self, text: str) -> int:
        return self._count(text)


class MessagesCounter(BaseCounter):
    """A function from a list of messages to tokens, LangChain's kind, as a counter. A text is counted as a message of the user."""

    def __init__(self, count: Callable[..., int], *, model: str | None = None, provider: str | None = None) -> None:
        super().__init__(model=model, provider=provider)
        self.function = count

    def count_text(self, text: str) -> int:
        return self.function([_user_message(text)]) if text else 0

    def count_message(self, message: Message) -> int:
        return self.function([message])

    def count_messages(self, messages: Iterable[Message]) -> int:
        return self.function(list(messages))


def _user_message(text: str) -> Any:
    """A message of LangChain's kind where that is installed: such functions often ask for the class."""
    try:
        return importlib.import_module("langchain_core.messages").HumanMessage(text)
    except ImportError:
        return SimpleNamespace(type="human", content=text, id=None, tool_calls=[], additional_kwargs={})


def _counts_messages(count: Callable[..., Any]) -> bool:
    """Whether a function takes a list of messages and not a text: it counts a longer message as more. Given a list, a function over texts
    fails or sees one element."""
    try:
        short, long = (count([_user_message(text)]) for text in ("one", "one two three four five six seven " * 30))
    except Exception:  # noqa: BLE001 - the user's own code may fail in any way; then it is not of this kind
        return False
    return all(isinstance(found, int) and not isinstance(found, bool) for found in (short, long)) and long > short


@dataclass(frozen=True, kw_only=True)
class VocabularyMissing(Event):
    """Exact counting was asked for, and the package that holds the vocabularies cannot be imported."""

    component: ClassVar[str] = "TokenCounter"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "No vocabulary ({reason}): counting approximately. `pip install rs-bpe` counts exactly."

    reason: str


_notices = Notices()
_METHODS = ("count_text", "count_until", "clip", "count_message", "count_messages", "count_tools", "count_image")


def open_counter(
    kind: str | TokenCounter | Callable[..., Any] = "exact",
    *,
    model: str | None = None,
    provider: str | None = None,
    bus: Bus | None = None,
) -> TokenCounter:
    """The counter called `exact` or `approximate`, or one of the user's own by the path `module:Name`.

    One's own may be a class (it is given `model` and `provider` where it takes them), a ready counter, or a function from a text, or from
    a list of messages, to tokens. Raises ConfigError when it cannot be loaded or does not do what a `TokenCounter` promises, and says
    what is missing.
    """
    if not isinstance(kind, str):
        return _fulfilled(kind, repr(kind), model=model, provider=provider)
    if kind == "exact":
        return _exact_or_approximate(model, provider, bus or process_bus)
    if kind == "approximate":
        return _approximate(model, provider)
    if ":" not in kind and "." not in kind:
        nearest = difflib.get_close_matches(kind, ("exact", "approximate"), n=1)
        raise ConfigError(
            f"there is no token counter called {kind!r}.",
            key="token_counter",
            nearest=nearest[0] if nearest else None,
            hint="Use `exact`, `approximate`, or the path of your own as `module:Name`.",
        )
    found = load_dotted(
        kind, "the token counter", key="token_counter", hint="Give it as `module:Name`, with the module on the Python path."
    )
    return _fulfilled(found, kind, model=model, provider=provider)


def _exact_or_approximate(model: str | None, provider: str | None, bus: Bus) -> TokenCounter:
    try:
        return ExactCounter(model=model, provider=provider)
    except ImportError as error:
        if _notices.first("rs-bpe"):
            bus.emit(VocabularyMissing(reason=str(error)))
        return _approximate(model, provider)


def _approximate(model: str | None, provider: str | None) -> TokenCounter:
    from holdfast.tokens.approximate import ApproximateCounter

    return ApproximateCounter(model=model, provider=provider, factor=factor_of(model, provider))


def _fulfilled(found: Any, path: str, *, model: str | None, provider: str | None) -> TokenCounter:
    counter = found
    if inspect.isclass(found):
        try:
            counter = found(**_accepted(found, {"model": model, "provider": provider}))
        except (TypeError, ValueError) as error:
            raise _unfit(path, f"it cannot be made: {error}.") from error
    missing = [name for name in _METHODS if not callable(getattr(counter, name, None))]
    if len(missing) == len(_METHODS) and callable(counter):
        kind = MessagesCounter if _counts_messages(counter) else CallableCounter
        counter, missing = kind(counter, model=model, provider=provider), []
    if missing:
        raise _unfit(path, f"it has no {', '.join(f'`{name}`' for name in missing)}.")
    try:
        sample = counter.count_text("one two")
    except Exception as error:  # the user's own code may fail in any way: it is told as what it is, a wrong setting
        raise _unfit(path, f"counting a text failed with {type(error).__name__}: {error}.") from error
    if not isinstance(sample, int) or isinstance(sample, bool) or sample < 0:
        raise _unfit(path, f"counting a text gave {sample!r}, not a whole number of tokens.")
    return counter  # type: ignore[no-any-return]  # just checked


def _accepted(found: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return {}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return offered
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in offered.items() if name in names}


def _unfit(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"{path!r} is no token counter: {why}",
        key="token_counter",
        hint="Subclass `holdfast.tokens.BaseCounter`, which needs `count_text` only, or give a function from a text or messages to tokens.",
    )


_lock = threading.Lock()
_loaded: dict[str, Vocabulary] = {}


class Vocabulary(Protocol):
    """What is used of a vocabulary. Texts have no lone surrogates; special tokens are ordinary text to it."""

    def count(self, input: str) -> int: ...

    def count_till_limit(self, input: str, limit: int) -> int | None: ...

    def encode(self, input: str) -> list[int]: ...

    def decode(self, tokens: list[int]) -> str | None: ...


def _extension() -> Any:
    """The compiled module, without any vocabulary. Raises ImportError."""
    return importlib.import_module("rs_bpe.bpe").openai  # by name: the package has no types


def _vocabulary(name: str) -> Vocabulary:
    found = _loaded.get(name)
    if found is None:
        with _lock:
            found = _loaded.get(name)
            if found is None:
                extension = _extension()
                found = _loaded[name] = extension.cl100k_base() if name == "cl100k" else extension.o200k_base()
    return found


def _clean(text: str) -> str:
    """Lone surrogates cannot be written as UTF-8 and so are in no request: each counts as a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


class ExactCounter(BaseCounter):
    """Counts with a real vocabulary. Raises ImportError when rs-bpe is not there; `open_counter` falls back then.

    `vocabulary` may be given, to count with another one.
    """

    def __init__(self, *, model: str | None = None, provider: str | None = None, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(model=model, provider=provider, factor=factor_of(model, provider))
        self.vocabulary_name = vocabulary_of(model) or "o200k"
        self._given = vocabulary
        if vocabulary is None:
            _extension()

    @property
    def _vocabulary(self) -> Vocabulary:
        return self._given or _loaded.get(self.vocabulary_name) or _vocabulary(self.vocabulary_name)

    def count_text(self, text: str) -> int:
        vocabulary = self._vocabulary
        try:
            count = vocabulary.count(text)
        except UnicodeEncodeError:
            count = vocabulary.count(_clean(text))
        return count if self.factor == 1.0 else self._scaled(count)

    def bound_text(self, text: str) -> int | None:
        """A token is at least one byte, and a character at most four."""
        size = len(text) if text.isascii() else 4 * len(text)
        return size if self.factor == 1.0 else self._scaled(size)

    def count_until(self, text: str, limit: int) -> int | None:
        if limit < 0:
            return None
        most = self._most(limit)
        try:
            count = self._vocabulary.count_till_limit(text, most)
        except UnicodeEncodeError:
            count = self._vocabulary.count_till_limit(_clean(text), most)
        return None if count is None else self._scaled(count)

    def _most(self, limit: int) -> int:
        """The largest count of the vocabulary that the factor takes to at most `limit`."""
        most = int(limit / self.factor) + 1
        while most > 0 and self._scaled(most) > limit:
            most -= 1
        return most

    def clip(self, text: str, limit: int, keep: Keep = "head") -> str:
        if limit <= 0:
            return ""
        if self.count_until(text, limit) is not None:
            return text
        most = self._most(limit)
        piece, size = text, max(64, most * 8)
        while size < len(text):
            piece = text[:size] if keep == "head" else text[len(text) - size :]
            if self._vocabulary.count_till_limit(_clean(piece), most) is None:
                break
            piece, size = text, size * 2
        tokens = self._vocabulary.encode(_clean(piece))
        return self._fitting(text, self._length(tokens, most, keep), limit, keep)

    def _length(self, tokens: list[int], most: int, keep: Keep) -> int:
        """How many characters the first (or last) tokens hold; a token that ends inside a character is left out with it."""
        for count in range(most, max(0, most - 8), -1):
            try:
                said = self._vocabulary.decode(tokens[:count] if keep == "head" else tokens[len(tokens) - count :])
            except (UnicodeDecodeError, ValueError):
                continue
            if said is not None and "�" not in (said[-1:] if keep == "head" else said[:1]):
                return len(said)
        return most // 2
