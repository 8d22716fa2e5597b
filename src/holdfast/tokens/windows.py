"""How many tokens a model can read, and how it counts: as its provider says, and as its server was seen to do (T1, S10).

The order is: `max_input_tokens` in the configuration, `context_window` there, `max_input_tokens` of the model's profile, and 8192 with one
warning for each model. A value that cannot be a window (text, negative, not a number) is passed over; `find_window` never raises.

Which vocabulary a model has, who provides it, and how many tokens a provider's vocabulary makes of a text that is one o200k token is where
counting starts. Factors marked *measured* are the mean over English, Markdown, Python, HTML, JSON and log lines with the vocabulary the
provider publishes, rounded to 0.05.

`Calibration` corrects that by what a server reports, without trusting it. Some servers report only the part of a prompt that was not
cached, some report nothing or zero, some cut a prompt that is too long and report what fitted. So a report may make the room smaller and
never larger: a factor is at least 1, and it never falls. A single odd report raises it by a quarter at most; what two reports in a row say
is believed. Reports of less than half or more than three times our count are not believed at all, and that is said once for each model.
What a server adds to every request (a chat template, instructions for tools) is an amount and not a factor: the first report says how much
it may be, and how later ones rise from there which of the two it is. A conversation whose reports stand still while our count of it grows
is being cut: that is said, and the report is the window from then on.

What a refusal says is believed for half an hour, since it may be about something else: then the model is asked again. The window that the
provider names is taken, else what was refused; never less than the model has taken before, or than a quarter of what it is said to have.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.tokens.accounts import Usage

FACTORS: dict[str, float] = {
    "openai": 1.0,
    "anthropic": 1.4,  # no vocabulary published since Claude 2; LangChain reckons 3.3 characters a token, o200k has 4.4 to 4.75 in English
    "google": 1.15,  # no vocabulary at hand; Google's documentation says a token is about 4 characters, see above
    "mistral": 1.15,  # measured: Tekken of September 2024 (1.0 to 1.5, digits count one by one)
    "qwen": 1.15,  # measured: qwen.tiktoken (1.0 to 1.5, digits count one by one)
    "deepseek": 1.05,  # measured: DeepSeek V3 (0.98 to 1.1)
    "meta": 1.0,  # measured: Llama 3 and 4 (0.97 to 1.02)
}
UNKNOWN_FACTOR = 1.1
"""For a model of which nothing is known: in the middle of those that could be measured."""

_PROVIDER_NAMES = {
    "openai": "openai",
    "azure": "openai",
    "azure_openai": "openai",
    "anthropic": "anthropic",
    "bedrock_anthropic": "anthropic",
    "google": "google",
    "google_genai": "google",
    "google_vertexai": "google",
    "mistral": "mistral",
    "mistralai": "mistral",
    "deepseek": "deepseek",
    "qwen": "qwen",
    "dashscope": "qwen",
    "tongyi": "qwen",
    "meta": "meta",
    "meta-llama": "meta",
    "llama": "meta",
}
_FAMILIES = (
    ("openai", re.compile(r"(chatgpt|gpt|o\d|codex|davinci|text-embedding)(?![a-z])")),
    ("anthropic", re.compile(r"claude")),
    ("google", re.compile(r"(gemini|gemma)")),
    ("mistral", re.compile(r"(open-)?(mistral|mixtral|codestral|ministral|magistral|devstral|pixtral)")),
    ("deepseek", re.compile(r"deepseek")),
    ("qwen", re.compile(r"(qwen|qwq)")),
    ("meta", re.compile(r"(meta-)?llama")),
)
_VOCABULARIES = (
    ("o200k", re.compile(r"chatgpt-4o|gpt-4o|gpt-4\.[1-9]|gpt-[5-9]|gpt-oss|o[1-9](?![a-z0-9])|codex")),
    ("cl100k", re.compile(r"gpt-4(?![0-9])|gpt-3\.5|gpt-35|text-embedding-(3|ada)|davinci-002|babbage-002")),
)


def _bare(model: str) -> tuple[str, str]:
    """`anthropic:claude-x`, `openai/gpt-4o`, `ft:gpt-4o:me`, `anthropic.claude-x-v1:0` -> what stands before, and the model's own name."""
    name = model.strip().lower()
    name = name.removeprefix("ft:")
    before, separator, after = name.partition(":")
    lead = ""
    if separator and before in _PROVIDER_NAMES:
        lead, name = before, after
    if "/" in name:
        *path, name = name.split("/")
        lead = next((part for part in reversed(path) if part in _PROVIDER_NAMES), lead)
    for before in name.split(".")[:-1]:
        if before in _PROVIDER_NAMES:
            return before, name.split(f"{before}.", 1)[1]
    return lead, name


def provider_of(model: str | None) -> str | None:
    """Who made the model, as far as its name says; None when it does not. The family's name counts more than who serves it."""
    if not model:
        return None
    lead, name = _bare(model)
    family = next((family for family, pattern in _FAMILIES if pattern.match(name)), None)
    return family or _PROVIDER_NAMES.get(lead)


def vocabulary_of(model: str | None) -> str | None:
    """`o200k` or `cl100k` when the model is known to use it, else None."""
    if not model:
        return None
    _, name = _bare(model)
    return next((vocabulary for vocabulary, pattern in _VOCABULARIES if pattern.match(name)), None)


def maker_of(model: str | None, provider: str | None = None) -> str | None:
    """Who made the model: by its name, else by the provider given (`azure` and `google_genai` are understood), else None."""
    return provider_of(model) or _PROVIDER_NAMES.get((provider or "").strip().lower())


def factor_of(model: str | None, provider: str | None = None) -> float:
    """What an o200k count is multiplied with for this model. 1 when neither model nor provider is given."""
    if vocabulary_of(model):
        return 1.0
    maker = maker_of(model, provider)
    if maker is None:
        return UNKNOWN_FACTOR if model or provider else 1.0
    return FACTORS[maker]


def start_of(model: str | None, provider: str | None = None) -> tuple[float, float]:
    """Where o200k counts start for a model: what they are multiplied with, and which part of its window is left free on top of that.

    A model of which nothing is known is counted as it is, and has a tenth less room; so has one whose vocabulary is known and another one.
    """
    factor = factor_of(model, provider) if maker_of(model, provider) else 1.0
    return factor, 1.0 if factor > 1 or vocabulary_of(model) == "o200k" else UNKNOWN_FACTOR


class Notices:
    """Remembers what was said. Safe for many threads; keeps at most `most` keys and then starts over, so that it cannot grow for ever."""

    def __init__(self, most: int = 1000) -> None:
        self._said: set[str] = set()
        self._most = most
        self._lock = threading.Lock()

    def first(self, key: str) -> bool:
        """True the first time that this key is asked for."""
        with self._lock:
            if key in self._said:
                return False
            if len(self._said) >= self._most:
                self._said.clear()
            self._said.add(key)
            return True


DEFAULT_WINDOW = 8192


@dataclass(frozen=True, kw_only=True)
class WindowUnknown(Event):
    """Neither the configuration nor a profile says how much a model can read."""

    component: ClassVar[str] = "Models"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = (
        "The window of model {model} is not known: using {window} tokens. Set `max_input_tokens` for it in `models` of config.yaml, "
        "or in the `profile` of the model object."
    )

    model: str
    window: int


@dataclass(frozen=True)
class Window:
    """A window and where it came from: `max_input_tokens`, `context_window`, `profile` or `default`."""

    tokens: int
    source: str


_notices = Notices()
_NUMBER = re.compile(r"\s*(\d[\d_,]*(?:\.\d+)?)\s*([km]?)\s*", re.IGNORECASE | re.ASCII)
_LARGEST = 10**12


def find_window(config: object, profile: object = None, *, name: str | None = None, bus: Bus | None = None) -> Window:
    """The window in tokens, at least 1, and where it came from.

    `config` and `profile` are mappings or objects with attributes, or None. A profile that hangs on the config itself (`model.profile`) is
    looked at as well.
    """
    for key in ("max_input_tokens", "context_window"):
        tokens = _window(_read(config, key))
        if tokens:
            return Window(tokens, key)
    for source in (profile, _read(config, "profile"), _read(profile, "profile")):
        tokens = _window(_read(source, "max_input_tokens"))
        if tokens:
            return Window(tokens, "profile")
    model = name or _text(_read(config, "name")) or _text(_read(config, "model")) or _text(_read(config, "model_name")) or "without a name"
    if _notices.first(model):
        (bus or process_bus).emit(WindowUnknown(model=model, window=DEFAULT_WINDOW))
    return Window(DEFAULT_WINDOW, "default")


def _read(source: object, key: str) -> object:
    try:
        return source.get(key) if isinstance(source, Mapping) else getattr(source, key, None)
    except Exception:  # noqa: BLE001 - a model object's property may run any code; a window that cannot be read is a window not given
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _window(value: object) -> int | None:
    """A whole number of tokens, or None. `"128k"` and `"200_000"` are understood."""
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value[:40])
        if match is None:
            return None
        value = float(match[1].replace("_", "").replace(",", "")) * {"": 1, "k": 1000, "m": 1_000_000}[match[2].lower()]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 1 <= value <= _LARGEST else None  # neither holds for what is not a number


LEAST, MOST = 0.5, 3.0
"""Between these shares of our count a report is believed."""
_ADDED = 600
"""The most that is taken for what a server adds to every request."""
_FURTHER = 1.5
"""How many times the first request another one must be to show how reports rise."""
_ONE_REPORT = 1.25
"""How far one report may raise the factor that no other bears out."""
_THREADS = 256

_GROWN, _GROWN_SHARE, _GROWN_EXACTLY = 64, 0.03, 32
"""Tokens, and the share of a request, by which it must have grown before its report can be said to stand still; and the tokens where the
report is the very same."""
_RISES, _STILL, _FALLS, _BREAKS = 0.6, 0.02, 0.05, 0.5
"""A report rises with the count by at least the first share of the growth. It stands still when it rises by less than the second share of
it and has not fallen by more than the third share of itself. One that falls by the fourth was of a part of the request."""
_RISEN = 2
"""Rises after which a server is known to report whole requests."""
_SMALLEST_WINDOW = 512
HELD_SECONDS = 1800.0
"""How long a refusal is believed: then the next long request is a trial."""


@dataclass(frozen=True, kw_only=True)
class ReportNotBelieved(Event):
    """A server reports an amount that cannot be the size of what it was sent."""

    component: ClassVar[str] = "TokenCounter"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = (
        "Model {model} reports {reported} input tokens for a request of about {counted}: reports of less than half or more than three "
        "times our count are not used."
    )

    model: str
    counted: int
    reported: int


@dataclass(frozen=True, kw_only=True)
class RequestsTruncated(Event):
    """A server cuts long requests without saying so."""

    component: ClassVar[str] = "TokenCounter"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = (
        "Model {model} reports {window} input tokens however long the request is (about {counted} by now): it cuts what does not fit. Its "
        "window is taken to be {window} tokens. Give it a larger one at the server, or set `max_input_tokens` to what it has."
    )

    model: str
    counted: int
    window: int


@dataclass(frozen=True, kw_only=True)
class WindowLearned(Event):
    """A model refused a request as too long: for a while it is sent less than it is said to read."""

    component: ClassVar[str] = "TokenCounter"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = (
        "Model {model} refused a request of about {counted} tokens as too long: for {minutes} minutes it is sent no more than {window} of "
        "the {said} tokens that it is said to read. Set `max_input_tokens` for it to what it has."
    )

    model: str
    counted: int
    window: int
    said: int
    minutes: int = int(HELD_SECONDS // 60)


@dataclass(frozen=True, kw_only=True)
class WindowForgotten(Event):
    """What a refusal taught is no longer believed, before its time: the model took more, or could not be asked at all with so little."""

    component: ClassVar[str] = "TokenCounter"
    text: ClassVar[str] = "Model {model}: what its refusal said of its window is forgotten"

    model: str


@dataclass(frozen=True)
class _Refused:
    """What refusals said, and until when it is believed."""

    window: int | None
    factor: float
    until: float


@dataclass
class _Track:
    """The last report of one conversation that moved, and how often later ones stood still."""

    counted: int
    reported: int
    signs: int = 0

    def follow(self, counted: int, reported: int) -> str:
        """What the next report did while the request grew: rose with it, stood `still`, `broke` down, or nothing that says anything."""
        grown, risen = counted - self.counted, reported - self.reported
        if 0 <= grown < (max(_GROWN, self.counted * _GROWN_SHARE) if risen else _GROWN_EXACTLY):
            return ""
        if grown > 0 and -self.reported * _FALLS <= risen <= grown * _STILL:
            self.signs += 1
            return "still"
        broke = grown > 0 and risen < -self.reported * _BREAKS
        rose = grown > 0 and risen >= grown * _RISES
        self.counted, self.reported, self.signs = counted, reported, 0
        return "broke" if broke else "rose" if rose else ""


@dataclass
class _Model:
    agreed: float = 1.0
    """What two reports in a row say at least."""
    highest: float = 1.0
    last: float = 1.0
    first: tuple[int, int] | None = None
    """Count and report of the first request that was not reported as less than it is."""
    reports: int = 0
    refusals: int = 0
    refused: _Refused | None = None
    taken: int = 0
    """The most input tokens, in its own counting, of a request that it answered; `fitted` is the same in ours."""
    fitted: int = 0
    window: int | None = None
    doubted: bool = False
    rises: int = 0
    partial: bool = False
    """It was seen to report a part of a request: what stands still is no window then."""
    tracks: OrderedDict[str, _Track] = field(default_factory=OrderedDict)

    @property
    def factor(self) -> float:
        return max(self.agreed, min(self.highest, self.agreed * _ONE_REPORT))

    @property
    def added(self) -> int:
        """What the first report had beyond the factor."""
        counted, reported = self.first or (0, 0)
        return max(0, min(_ADDED, math.ceil(reported - self.factor * counted)))

    def believe(self, counted: int, reported: int) -> None:
        if self.first is None and reported >= counted * 0.9:
            self.first = counted, reported
        ratio = (reported - self.added) / counted
        if self.first is not None and counted >= self.first[0] * _FURTHER + _GROWN:
            ratio = max(ratio, min(MOST, (reported - self.first[1]) / (counted - self.first[0])))
        self.agreed = max(self.agreed, min(ratio, self.last))
        self.highest = max(self.highest, ratio)
        self.last = ratio
        self.reports += 1

    def is_cut(self, thread: str, counted: int, reported: int, *, low: bool) -> bool:
        """Whether this conversation is being cut. One sign is enough of a server that is known to report whole requests; else it may be the
        size of what was not cached that happens to repeat, and two are needed, neither of them too low to be believed."""
        track = self.tracks.pop(thread, None)
        did = track.follow(counted, reported) if track is not None else ""
        self.tracks[thread] = track = track or _Track(counted, reported)
        while len(self.tracks) > _THREADS:
            self.tracks.popitem(last=False)
        self.partial = self.partial or did == "broke"
        self.rises += did == "rose" and not low
        if did != "still" or self.partial or not _SMALLEST_WINDOW <= reported < (self.window or math.inf):
            return False
        return self.rises >= _RISEN or (track.signs >= 2 and not low)


_UNKNOWN: Final = _Model()


class Calibration:
    """What is known of each model's counting, by its name. Safe for many threads.

    `counted` is always our own count of the very request that was reported on, not corrected by this.
    """

    def __init__(self, bus: Bus | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._bus, self._now = bus or process_bus, now
        self._models: dict[str, _Model] = {}
        self._lock = threading.Lock()

    def observe(self, model: str, counted: int, reported: object, *, thread: str | None = None) -> float:
        """Learn from one report: a number of input tokens, a usage mapping, or a message that carries one. Returns the factor now.

        With `thread` the request is the next of that conversation, and cut requests are noticed.
        """
        tokens = input_tokens(reported, counted)
        if tokens <= 0 or counted <= 0:
            return self.factor(model)
        said: Event | None = None
        low, high = tokens < LEAST * counted, tokens > MOST * counted + _ADDED
        with self._lock:
            known = self._models.setdefault(model, _Model())
            if thread is not None and not high and known.is_cut(thread, counted, tokens, low=low):
                known.window = tokens
                said = RequestsTruncated(model=model, counted=counted, window=tokens)
            elif (low or high) and not known.doubted:
                known.doubted = True
                said = ReportNotBelieved(model=model, counted=counted, reported=tokens)
            if not (low or high):
                known.believe(counted, tokens)
        if said is not None:
            self._bus.emit(said)
        if not (low or high):
            self.accepted(model, tokens, counted)
        return self.factor(model)

    def accepted(self, model: str, tokens: int, counted: int = 0) -> None:
        """A request of so many input tokens was answered, as reported and by our own count: no refusal makes the window smaller."""
        with self._lock:
            known = self._models.setdefault(model, _Model())
            known.taken, known.fitted = max(known.taken, tokens), max(known.fitted, counted)
        refused = self._refused(model)
        if refused is not None and refused.window is not None and tokens > refused.window:
            self.forget(model)

    def refused(self, model: str, counted: int, window: int, *, named: int | None = None, sent: int | None = None) -> None:
        """A request of this count was refused as too long, for its own sake and not for the answer's.

        Either the model counts more than we do, or its window is smaller than was said. `named` is its window and `sent` the size of the
        request, where the refusal says them. Else the reports show which of the two it is; what would be more than `MOST` is believed only
        when it happens again.
        """
        before = self.learned(model, window)
        with self._lock:
            known = self._models.setdefault(model, _Model())
            known.refusals += 1
            held = self._refused(model) or _Refused(None, 1.0, 0.0)
            smaller, factor = held.window, held.factor
            named = named if named is not None and named >= _SMALLEST_WINDOW else None
            ratio = (sent or (named or window) + 1) / max(1, counted)
            if named is not None and named < window:
                smaller = max(named, known.taken)
                factor = max(factor, ratio) if sent is not None and ratio <= MOST else factor
            elif (known.reports < 2 or named is not None) and ratio <= MOST:
                factor = max(factor, ratio)
            elif ratio <= MOST or known.refusals > 1:
                guess = math.ceil(counted * max(known.factor, factor))
                smaller = max(min(held.window or window, guess), known.taken, window // 4)
            factor = max(1.0, min(factor, window / max(1, known.fitted)))
            known.refused = _Refused(smaller, factor, self._now() + HELD_SECONDS)
        now = self.learned(model, window)
        if now is not None and now != before:
            self._bus.emit(WindowLearned(model=model, counted=counted, window=now, said=window))

    def learned(self, model: str, said: int) -> int | None:
        """How much of the window that was said is used for what refusals said, in our counting; None where they said nothing."""
        refused = self._refused(model)
        if refused is None:
            return None
        least = min(said, refused.window or said, math.floor(said / refused.factor))
        return least if least < said else None

    def forget(self, model: str) -> bool:
        """Believe what was said of the model's window again, and no refusal. Says whether there was one."""
        with self._lock:
            known = self._models.get(model)
            held = known is not None and self._refused(model) is not None
            if known is not None:
                known.refused, known.refusals = None, 0
        if held:
            self._bus.emit(WindowForgotten(model=model))
        return held

    def _refused(self, model: str) -> _Refused | None:
        refused = self._models.get(model, _UNKNOWN).refused
        return refused if refused is not None and self._now() < refused.until else None

    def stands_still(self, model: str, thread: str, reported: object) -> bool:
        """Whether the report is no larger than the one before it in this conversation: then counting the request is worth while."""
        known = self._models.get(model, _UNKNOWN).tracks.get(thread)
        return known is not None and input_tokens(reported, known.reported) <= known.reported * (1 + _STILL)

    def factor(self, model: str) -> float:
        """What our counts are multiplied with, at least 1."""
        refused = self._refused(model)
        return max(self._models.get(model, _UNKNOWN).factor, refused.factor if refused is not None else 1.0)

    def added(self, model: str) -> int:
        """What the server adds to every request, in its own tokens."""
        return self._models.get(model, _UNKNOWN).added

    def window(self, model: str, said: int) -> int:
        """The window: what was said, or less where the server was seen to cut or refuse."""
        refused = self._refused(model)
        return min(said, self._models.get(model, _UNKNOWN).window or said, (refused.window if refused is not None else None) or said)

    def corrected(self, model: str, counted: int) -> int:
        """Our count as the provider would report it, rounded up."""
        return self.added(model) + math.ceil(counted * self.factor(model) - 1e-9)

    def room(self, model: str, tokens: int) -> int:
        """The other way: how much of our counting fits into so many of the provider's tokens, rounded down."""
        return max(0, math.floor((tokens - self.added(model)) / self.factor(model) + 1e-9))

    def reports(self, model: str) -> int:
        """How many reports were believed."""
        return self._models.get(model, _UNKNOWN).reports


def input_tokens(reported: object, counted: int) -> int:
    """The input tokens of a report, those read from and written to a cache included; 0 when it says nothing.

    Cached tokens that are named may be a part of the input or stand beside it; which it is shows in our own count.
    """
    if isinstance(reported, bool) or reported is None:
        return 0
    if isinstance(reported, int | float):
        return int(reported) if math.isfinite(reported) else 0
    usage = Usage.read(reported)
    if usage is None:
        return 0
    within, beside = usage.input_tokens, usage.input_tokens + usage.cache_read + usage.cache_write
    return within if abs(within - counted) <= abs(beside - counted) else beside
