"""What a model may be asked: a summary, an extraction, tool calls, JSON.

A model that is too weak for a task is not asked; extraction without a model takes its place (A15). What `can:` in the configuration says
counts first, then what a trial of the model found. Until there was one, local weights are guessed at by their size, and models of the big
providers are taken to be able to do everything. No LangChain before a model is asked.

A `trial` (`holdfast models test`) is four short tasks, each checked by program: fill a schema from a text, call a tool and use what it says
(and not call one for a greeting), write 300 words. What came of it is kept in the base directory for each model with its settings: a key, a
price or another name change nothing; another model, address or temperature is another model.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from holdfast.config.sections import ModelConfig
from holdfast.durable.replace import replace_json
from holdfast.errors import ConfigError, ModelTooWeak, ModelUnavailable
from holdfast.models.failures import flaw_of, typed
from holdfast.models.providers import LLAMA_CPP, is_loopback
from holdfast.models.weights import KNOWN_WEIGHTS, read_head
from holdfast.redaction import is_secret_key
from holdfast.validation import counted

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage

Task = Literal["summary", "extraction", "tools", "json"]
TASKS: tuple[Task, ...] = get_args(Task)
CAN = "holdfast_can"
"""The key in a model's profile that holds what the configuration says under `can:`."""


@dataclass(frozen=True)
class Abilities:
    """What can be asked of a model. `parameters` is its size where that is known."""

    summary: bool = True
    extraction: bool = True
    tools: bool = True
    json: bool = True
    parameters: int | None = None

    def can(self, task: Task) -> bool:
        return bool(getattr(self, task))


ABLE = Abilities()
"""A model of one of the big providers, and any model of which nothing else is known."""

# Read by eye on a ten-turn dialogue: 135M loops on an invented exchange and repeats one fact; 0.5B copies sentences, loses a
# third of the facts and takes two from the assistant; 1.5B writes a fluent summary with nine of twelve facts and takes
# facts only from the user. Below a billion, tools are called at random.
_WEAK = 1_000_000_000
_SIZE = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)\s?([mb])(?![a-z0-9])", re.IGNORECASE | re.ASCII)


def abilities_of(model: BaseChatModel | ModelConfig | object) -> Abilities:
    """What this model may be asked: what `can:` says, over what the model says of itself, its profile or its weights say."""
    if isinstance(model, ModelConfig):
        return _with(_abilities_by_settings(model), model.can)
    own, profile = getattr(model, "abilities", None), getattr(model, "profile", None)
    known = profile if isinstance(profile, Mapping) else {}
    said = known.get(CAN)
    return _with(own if isinstance(own, Abilities) else abilities_by_profile(known), said if isinstance(said, Mapping) else None)


def abilities_by_size(parameters: int, *, takes_tools: bool = True) -> Abilities:
    """What local weights of this size can do. Without a place for tools in its template a model is offered none."""
    able = parameters >= _WEAK
    return Abilities(summary=able, extraction=able, tools=able and takes_tools, parameters=parameters)


def abilities_by_profile(profile: Mapping[str, Any] | None) -> Abilities:
    """What a LangChain profile says of a model. A size in its name (`SmolLM2-135M`) decides for open weights.

    >>> abilities_by_profile({"name": "SmolLM2-135M-Instruct", "open_weights": True}).summary
    False
    """
    if not profile:
        return ABLE
    size = _size_in(str(profile.get("name", ""))) if profile.get("open_weights") else None
    able = abilities_by_size(size) if size is not None else ABLE
    return replace(able, tools=False) if profile.get("tool_calling") is False else able


def require(model: BaseChatModel | ModelConfig, task: Task) -> None:
    """Raise ModelTooWeak when this must not be asked of the model."""
    name = model.name if isinstance(model, ModelConfig) else model_name_of(model)
    require_ability(abilities_of(model), task, model=name)


def require_ability(able: Abilities, task: Task, *, model: str | None = None) -> None:
    """Raise ModelTooWeak, under this name of the model, when `able` does not allow the task."""
    if able.can(task):
        return
    size = f" ({able.parameters / 1e6:.0f} million parameters)" if able.parameters else ""
    hint = "Configure a larger model for it, or leave it to the extraction that needs no model."
    raise ModelTooWeak(f"the model {model or ''}{size} is too weak for {task}.".replace("  ", " "), model=model, hint=hint)


def is_on_this_machine(model: object) -> bool:
    """Whether the model runs here: weights in this process, or a server at a loopback address."""
    if abilities_of(model).parameters is not None:
        return True
    address = getattr(model, "openai_api_base", None) or getattr(model, "base_url", None)
    return isinstance(address, str) and is_loopback(urlsplit(address).hostname or "")


def model_name_of(model: object) -> str:
    """What a chat model is called by its provider, under whichever name its class has for that; else the name of the class."""
    for field in ("model_name", "model", "model_id", "name"):
        name = getattr(model, field, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def _abilities_by_settings(settings: ModelConfig) -> Abilities:
    """What is known without making the model: the size of local weights, by name or from the head of their file."""
    if settings.use != LLAMA_CPP:
        return ABLE
    known = KNOWN_WEIGHTS.get(settings.model or "")
    if known is not None and not settings.path:
        return abilities_by_size(known.parameters)
    try:
        head = read_head(Path(settings.path).expanduser()) if settings.path else None
    except (ModelUnavailable, OSError):  # told when the model is made
        head = None
    if head is not None and head.parameters:
        return abilities_by_size(head.parameters, takes_tools=head.takes_tools)
    return abilities_by_profile({"name": settings.path or settings.model or "", "open_weights": True})


def _with(able: Abilities, said: Mapping[str, Any] | None) -> Abilities:
    return replace(able, **{task: bool(yes) for task, yes in (said or {}).items() if task in TASKS})


def _size_in(name: str) -> int | None:
    found = _SIZE.search(name.replace("-", " ").replace("_", " "))
    if found is None:
        return None
    return round(float(found[1]) * (1e9 if found[2].lower() == "b" else 1e6))


FILE = "model-trials.json"
_SCHEMA_NUMBER = 1
_TEXT = (
    "The ferry Alma was launched in 1962 in Bergen. She carried 240 passengers and 35 cars. In 1988 a fire in the engine room put her out "
    "of service for seven months. Her owner, Kystlinjen, sold her in 1994 to a school for sailors, which removed the car deck and built 48 "
    "bunks. Since 2009 she has been a hostel in the harbour of Stavanger, where a night costs 390 kroner."
)
_SOURCE = "ferry.md"
_QUESTION = "What is the capital of France? Answer with one word."
_FORM = {
    "title": "findings",
    "description": "What the text says.",
    "type": "object",
    "properties": {
        "summary": {"type": "string", "maxLength": 400},
        "key_findings": {
            "type": "array",
            "minItems": 3,
            "maxItems": 5,
            "items": {
                "type": "object",
                "properties": {"fact": {"type": "string", "maxLength": 200}, "source": {"type": "string", "maxLength": 60}},
                "required": ["fact", "source"],
                "additionalProperties": False,
            },
        },
        "confidence": {"type": "string", "enum": ["high", "medium", "low"]},
    },
    "required": ["summary", "key_findings", "confidence"],
    "additionalProperties": False,
}
_WORD = re.compile(r"[^\W\d_]{4,}")
_FIGURE = re.compile(r"\d+")
_ENDED = frozenset({"authentication", "permission", "not_found", "quota", "connection"})
"""Failures that no other question can mend."""


@dataclass(frozen=True)
class Outcome:
    """How one question went. `ok` is None when it was not asked; `seconds_to_first` is for streams; tokens as the server reported them.

    `can` is what the answer says about the model; empty where it says nothing, as when the server was not reached.
    """

    question: str
    ok: bool | None
    detail: str
    seconds: float = 0.0
    seconds_to_first: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    error: str | None = None
    can: Mapping[str, bool] | None = None


@dataclass(frozen=True)
class _Answer:
    detail: str
    messages: tuple[AIMessage, ...] = ()
    first: float | None = None
    ok: bool = True
    can: Mapping[str, bool] | None = None


def trial(model: BaseChatModel, name: str, secrets: tuple[str, ...] = ()) -> Iterator[Outcome]:
    """Ask everything, one after the other, and say how each went. After a failure that no other question can mend, stop."""
    questions: tuple[tuple[str, tuple[Task, ...], Callable[[BaseChatModel], _Answer]], ...] = (
        ("plain answer", (), lambda model: _text_answer(model.invoke(_QUESTION))),
        ("streamed answer", (), _streamed),
        ("fills a schema", ("json", "extraction"), _fills_a_schema),
        ("calls a tool", ("tools",), _calls_a_tool),
        ("writes 300 words", ("summary",), _writes),
    )
    for question, tasks, ask in questions:
        outcome = _asked(question, tasks, partial(ask, model), name, secrets)
        yield outcome
        if outcome.error in _ENDED:
            return


def verdict(outcomes: Sequence[Outcome]) -> dict[str, bool] | None:
    """What the model can do, of all that was asked; None when it could not be asked to the end."""
    found: dict[str, bool] = {}
    for outcome in outcomes:
        found |= outcome.can or {}
    return found if set(found) == set(TASKS) else None


def keep_trial(settings: ModelConfig, base: Path, can: Mapping[str, bool], *, at: str) -> None:
    """Keep what a trial found, durably, in place of what an earlier one did."""
    mark = _fingerprint(settings)
    if mark is not None:
        entry = {"name": settings.name, "at": at, "can": dict(can)}
        replace_json(base / FILE, {"schema": _SCHEMA_NUMBER, "trials": {**_kept(base), mark: entry}})


def kept_trial(settings: ModelConfig, base: Path) -> dict[str, bool] | None:
    """What the trial of this model with these settings found; None when there was none, or its file cannot be read."""
    known = _kept(base)
    entry = known.get(_fingerprint(settings) or "") if known else None
    can = entry.get("can") if isinstance(entry, Mapping) else None
    return {task: bool(can[task]) for task in TASKS if task in can} if isinstance(can, Mapping) else None


def with_trial(settings: ModelConfig, base: Path) -> ModelConfig:
    """The settings with what the trial found under `can`, below what the configuration itself says there."""
    found = kept_trial(settings, base)
    return settings if found is None else settings.model_copy(update={"can": {**found, **(settings.can or {})}})


def _kept(base: Path) -> dict[str, Any]:
    try:
        value = json.loads((base / FILE).read_bytes())
    except (OSError, ValueError):  # none yet, or not ours to read: the models are judged by what is known otherwise
        return {}
    trials = value.get("trials") if isinstance(value, dict) and value.get("schema") == _SCHEMA_NUMBER else None
    return trials if isinstance(trials, dict) else {}


def _fingerprint(settings: ModelConfig) -> str | None:
    """What makes answers this model's: class, name, address, weights and every argument but secrets. None where a variable is missing."""
    try:
        said = {name: value for name, value in settings.arguments().items() if not is_secret_key(name)}
        said |= {"use": settings.use, "path": settings.path}
    except ConfigError:
        return None
    if settings.path:
        try:
            status = Path(settings.path).expanduser().stat()
            said["weights"] = [status.st_size, status.st_mtime_ns]
        except OSError:
            said["weights"] = None
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _asked(question: str, tasks: tuple[Task, ...], ask: Callable[[], _Answer], name: str, secrets: tuple[str, ...]) -> Outcome:
    start = time.monotonic()
    try:
        answer = ask()
    except Exception as error:  # noqa: BLE001 - whatever a provider's client raises is the result here, in our words
        ours = typed(error, model=name, secrets=secrets)
        kind = getattr(ours, "kind", type(ours).__name__)
        # a request that is refused as such, or a class that does not have it, says that it cannot; a failure on the way says nothing
        says = kind in ("invalid", "unknown", "ModelTooWeak") or isinstance(error, NotImplementedError)
        can = dict.fromkeys(map(str, tasks), False) if says else None
        return Outcome(question, False, str(ours), time.monotonic() - start, error=kind, can=can)
    used = [message.usage_metadata for message in answer.messages if message.usage_metadata]
    given, came = (sum(one["input_tokens"] for one in used), sum(one["output_tokens"] for one in used)) if used else (None, None)
    showed = answer.can if answer.can is not None else dict.fromkeys(map(str, tasks), answer.ok)
    wrong = None if answer.ok else "answer"
    return Outcome(question, answer.ok, answer.detail, time.monotonic() - start, answer.first, given, came, wrong, showed)


def _streamed(model: BaseChatModel) -> _Answer:
    start, first, whole = time.monotonic(), None, None
    for piece in model.stream(_QUESTION):
        if first is None and piece.text:
            first = time.monotonic() - start
        whole = piece if whole is None else whole + piece
    if whole is None:
        return _Answer("nothing came", ok=False)
    return _text_answer(whole, first)


def _text_answer(message: Any, first: float | None = None) -> _Answer:
    text = " ".join(message.text.split())
    return _Answer(_short(text) if text else "the answer is empty", (message,), first, bool(text))


def _fills_a_schema(model: BaseChatModel) -> _Answer:
    """JSON in the form that stages answer in, with findings that are in the text and name it."""
    asked = f"[{_SOURCE}]\n{_TEXT}\n\nReport at least three facts from this text as JSON. The source of each is {_SOURCE}."
    result: Any = model.with_structured_output(_FORM, include_raw=True).invoke(asked)
    value, raw = result.get("parsed"), result.get("raw")
    flaw = flaw_of(raw) or (str(result["parsing_error"]) if result.get("parsing_error") else None)
    if not _fits(value):
        said = _short(flaw or str(value or getattr(raw, "text", "")))
        return _Answer(f"not in the schema: {said}", (raw,), ok=False, can={"json": False, "extraction": False})
    facts = [one["fact"] for one in value["key_findings"]]
    true = {fact for fact in facts if _is_in_text(fact)}
    named = all(_SOURCE in one["source"] for one in value["key_findings"])
    good = flaw is None and len(true) >= 3 and len(true) == len(facts) and named
    what = f"{len(true)} of {len(facts)} facts are in the text{'' if named else ', not all with their source'}"
    return _Answer(what if flaw is None else f"the answer {flaw}", (raw,), ok=good, can={"json": flaw is None, "extraction": good})


def _fits(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("summary"), str) or value.get("confidence") not in ("high", "medium", "low"):
        return False
    listed = value.get("key_findings")
    return isinstance(listed, list) and all(
        isinstance(one, dict) and isinstance(one.get("fact"), str) and isinstance(one.get("source"), str) for one in listed
    )


def _is_in_text(fact: str) -> bool:
    """Whether a sentence says only what the text says: no other figure, and hardly another word."""
    words = [word.casefold() for word in _WORD.findall(fact)]
    there = set(_WORD.findall(_TEXT.casefold()))
    known = sum(any(word[:5] == other[:5] for other in there) for word in words)
    return bool(words) and set(_FIGURE.findall(fact)) <= set(_FIGURE.findall(_TEXT)) and known >= 0.6 * len(words)


def _calls_a_tool(model: BaseChatModel) -> _Answer:
    """No call for a greeting, the right call for a question, and an answer that uses what came back."""
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    @tool
    def weather(city: str) -> str:
        """The weather in a city now."""
        return f"14 degrees and rain in {city}"

    @tool
    def time_of_day(city: str) -> str:
        """The time of day in a city."""
        return f"noon in {city}"

    bound = model.bind_tools([weather, time_of_day])
    greeted = bound.invoke("Hello! Greet me in one short sentence.")
    if greeted.tool_calls or "weather" in greeted.text.lower() or "time_of_day" in greeted.text:
        return _Answer(f"a greeting was answered with a tool: {_said(greeted)}", (greeted,), ok=False)
    asked = HumanMessage("What is the weather in Paris now? Use the tool.")
    called = bound.invoke([asked])
    calls = [call for call in called.tool_calls if call["name"] == "weather" and isinstance(call["args"].get("city"), str)]
    if not calls:
        return _Answer(f"the tool was not called: {_said(called)}", (greeted, called), ok=False)
    results = [
        ToolMessage(weather.invoke(call["args"]) if call in calls else "unknown", tool_call_id=call["id"] or "")
        for call in called.tool_calls
    ]
    told = bound.invoke([asked, called, *results])
    good = "14" in told.text or "rain" in told.text.lower()
    call_text = f"weather({calls[0]['args']['city']!r})"
    return _Answer(call_text if good else f"{call_text}, and what it said was not used: {_said(told)}", (greeted, called, told), ok=good)


def _writes(model: BaseChatModel) -> _Answer:
    """About 300 words over a text: whole, in its own figures, without going round in circles."""
    message = model.invoke(
        f"{_TEXT}\n\nWrite a report of about 300 words on this ferry for a museum. Use whole sentences, and only what the text says."
    )
    text, flaw = message.text, flaw_of(message)
    words, figures = len(text.split()), set(_FIGURE.findall(text))
    own = len(figures & set(_FIGURE.findall(_TEXT)))
    problem = f"the answer {flaw}" if flaw else None
    if problem is None and not 150 <= words <= 900:
        problem = counted(words, "word")
    elif problem is None and own < 4:
        problem = f"{own} of {len(set(_FIGURE.findall(_TEXT)))} figures of the text"
    return _Answer(problem or f"{words} words, {own} figures of the text", (message,), ok=problem is None)


def _said(message: AIMessage) -> str:
    calls = ", ".join(str(call["name"]) for call in message.tool_calls)
    return _short(calls or " ".join(message.text.split()) or "nothing")


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
