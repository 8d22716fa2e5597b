"""The chat model of a local server: LangChain's OpenAI client, with answers held to a schema by llama.cpp and tokens counted by the model.

Tools are llama.cpp's own business, which reads calls by the model's chat template; weights without a place for tools there, or too small
for them, are offered none. Start with `local_chat_model`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Self, cast

import openai
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import LanguageModelInput, ModelProfile
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import Runnable, RunnableLambda, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, SecretStr, ValidationError

from holdfast.errors import InputError, ModelUnavailable
from holdfast.models.abilities import Abilities, abilities_by_size, require
from holdfast.models.failures import REPEATED
from holdfast.models.local_server import LocalServer, ServerOptions, shared_server
from holdfast.models.weights import KNOWN_WEIGHTS, check_weights, find_weights
from holdfast.text.likeness import repetition

_CLOSE_EACH = {"Connection": "close"}  # an idle connection would belong to an event loop that may be gone when the next request comes
_TIMEOUT = 1800.0  # a long prompt takes minutes on a small machine
_BOUNDS: Mapping[str, Mapping[str, Any]] = {
    "string": {"maxLength": 200},
    "array": {"maxItems": 8},
    "number": {"multipleOf": 0.0001, "minimum": -(10**9), "maximum": 10**9},
    "integer": {"minimum": -(10**9), "maximum": 10**9},
}


def local_chat_model(
    path: str | Path,
    *,
    window: int | None = None,
    threads: int | None = None,
    slots: int = 1,
    seed: int | None = 0,
    max_tokens: int = 512,
    temperature: float = 0.0,
    cache: Path | None = None,
    **settings: Any,
) -> LocalChat:
    """A LangChain chat model for a GGUF file, or for known weights by name (`smollm2`), served in this process.

    Weights of a known name are checked against their pinned hash, remembered in the folder `cache`. Further settings go to `ChatOpenAI`.
    """
    file = find_weights(str(path)) if str(path) in KNOWN_WEIGHTS else Path(path).expanduser()
    known = check_weights(file, cache=cache)
    server = shared_server(file, ServerOptions(window, threads, slots, seed))
    return LocalChat.serving(
        server, name=known.name if known else None, max_tokens=max_tokens, temperature=temperature, seed=seed, **settings
    )


class LocalChat(ChatOpenAI):
    """A chat model on a `LocalServer`. `abilities` says what can be asked of it; `profile` is LangChain's view of the same."""

    server: Any = Field(exclude=True)
    abilities: Abilities = Field(default_factory=Abilities)

    @classmethod
    def serving(cls, server: LocalServer, *, name: str | None = None, **settings: Any) -> Self:
        """The model of a running server. `name` is what it is called."""
        head = server.head
        able = abilities_by_size(head.parameters, takes_tools=head.takes_tools)
        called = name or server.path.stem
        profile = ModelProfile(
            name=f"{called} {head.parameters / 1e6:.0f}M",
            open_weights=True,
            max_input_tokens=server.window,
            max_output_tokens=min(server.window, settings.get("max_tokens") or server.window),
            text_inputs=True,
            image_inputs=False,
            tool_calling=able.tools,
            tool_choice=able.tools,
            structured_output=True,
        )
        fields: dict[str, Any] = {
            "server": server,
            "abilities": able,
            "model": called,
            "base_url": server.base_url,
            "api_key": SecretStr(server.api_key),
            "http_client": openai.DefaultHttpxClient(trust_env=False),  # a proxy of the machine is not for loopback
            "http_async_client": openai.DefaultAsyncHttpxClient(trust_env=False),
            "default_headers": _CLOSE_EACH,
            "openai_proxy": None,
            "use_responses_api": False,
            "max_retries": 0,
            "timeout": _TIMEOUT,
            "stream_usage": True,
            "stream_chunk_timeout": None,
            "profile": {**profile, **(settings.pop("profile", None) or {})},
        }
        return cls(**{**fields, **settings})

    @property
    def _llm_type(self) -> str:
        return "llama.cpp"

    def get_token_ids(self, text: str) -> list[int]:
        """The ids of a text in the model's own vocabulary."""
        return cast("LocalServer", self.server).tokenize(text)

    def get_num_tokens_from_messages(self, messages: Sequence[BaseMessage], tools: Any = None, **kwargs: Any) -> int:
        """What these messages take of the window, with the tools, counted by the model's own template and vocabulary."""
        bound = getattr(self.bind_tools(tools), "kwargs", {}) if tools else {}
        payload = self._get_request_payload(list(messages), **bound)
        return cast("LocalServer", self.server).count_messages(payload["messages"], payload.get("tools"))

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Tools for a model that can use them. Raises ModelTooWeak for another one."""
        if tools:
            require(self, "tools")
        return super().bind_tools(tools, **kwargs)

    def with_structured_output(
        self, schema: Any = None, *, method: str = "json_schema", include_raw: bool = False, strict: bool | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Answers in a schema, held to it while they are written. `method` may be any that LangChain knows; all go this way.

        An answer that is cut (AnswerCut), also where a text in it fills its bound, or that does not validate raises
        OutputParserException, or is `parsing_error` with `include_raw`.
        """
        if method not in ("json_schema", "function_calling", "json_mode"):
            raise InputError(f"no structured output by {method!r}.", hint="Use json_schema.")
        form: dict[str, Any] = {"type": "json_object"}
        if schema is not None:
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": _json_schema(schema)}}
        kwargs.pop("tools", None)
        named = {"kwargs": {"method": "json_schema"}, "schema": schema}
        model = self.bind(response_format=form, ls_structured_output_format=named, **kwargs)
        bounds = _bounded(_json_schema(schema)) if schema is not None else None
        parser = RunnableLambda(lambda message: _parsed(message, schema, bounds))
        if not include_raw:
            return model | parser
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=model) | parsed.with_fallbacks([failed], exception_key="parsing_error")

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        """As it comes, until it only repeats itself: the connection is closed then, and the server stops."""
        heard = _Listener()
        for piece in super()._stream(*args, **kwargs):
            yield piece
            if heard.repeats(piece):
                yield _STOPPED
                return

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        heard = _Listener()
        async for piece in super()._astream(*args, **kwargs):
            yield piece
            if heard.repeats(piece):
                yield _STOPPED
                return

    def _get_request_payload(self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        """What is sent. A response format goes as a grammar of llguidance, which keeps ranges and wastes no spaces, unlike llama.cpp's."""
        if self.server.closed:
            hint = "Make the model again."
            raise ModelUnavailable(f"the local server of {self.model_name} was closed.", model=self.model_name, hint=hint)
        schema = _schema_in(kwargs.pop("response_format", None))
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if not cast("LocalServer", self.server).head.takes_tools:
            payload["messages"] = _calls_as_text(payload["messages"])
        if schema is not None:
            form = json.dumps({**_bounded(schema), "x-guidance": {"whitespace_flexible": False}})
            payload["extra_body"] = {**(payload.get("extra_body") or {}), "grammar": f"%llguidance {{}}\nstart: %json {form}"}
        return payload


_STOPPED = ChatGenerationChunk(message=AIMessageChunk(content="", response_metadata={"finish_reason": REPEATED}))
_EVERY = 64


class _Listener:
    """Hears an answer piece by piece, and looks now and then whether it only repeats itself."""

    def __init__(self) -> None:
        self._text = ""
        self._looked = 0

    def repeats(self, piece: ChatGenerationChunk) -> bool:
        self._text += piece.text
        if len(self._text) - self._looked < _EVERY:
            return False
        self._looked = len(self._text)
        return repetition(self._text) is not None


def _bounded(schema: Any) -> Any:
    """The schema with an end to every text, list and number that has none: small models loop, and what is cut is no JSON."""
    if isinstance(schema, list):
        return [_bounded(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {
        key: {name: _bounded(part) for name, part in value.items()}
        if key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(value, Mapping)
        else value
        if key in ("enum", "const", "default", "examples", "required")
        else _bounded(value)
        for key, value in schema.items()
    }
    if "enum" in inner or "const" in inner or "format" in inner:
        return inner
    usual = _BOUNDS.get(str(inner.get("type")), {})
    taken = {key.removeprefix("exclusive").lower() for key in inner}
    return {**{key: value for key, value in usual.items() if key.lower() not in taken}, **inner}


def _calls_as_text(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tool calls and results of an earlier model as text: a template without a place for them would leave them out."""
    names = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()}
    told: list[dict[str, Any]] = []
    for message in messages:
        if message.get("tool_calls"):
            calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message["tool_calls"]]
            told.append({"role": "assistant", "content": "\n".join([message.get("content") or "", *calls]).strip()})
        elif message["role"] == "tool":
            told.append({"role": "user", "content": f"Result of {names.get(message.get('tool_call_id'), 'a tool')}: {message['content']}"})
        else:
            told.append(message)
    return told


def _json_schema(schema: Any) -> dict[str, Any]:
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return schema.model_json_schema()
    return convert_to_json_schema(schema)


def _schema_in(form: Any) -> dict[str, Any] | None:
    """The schema in a response format, in whichever form it was given."""
    if form is None:
        return None
    if not isinstance(form, Mapping):
        return _json_schema(form)
    if form.get("type") == "text":
        return None
    if form.get("type") == "json_object":
        return {"type": "object"}
    if form.get("type") == "json_schema":
        return dict(form["json_schema"]["schema"])
    return _json_schema(dict(form))


class AnswerCut(OutputParserException):
    """An answer in a schema that ended where its room did."""

    flaw = "was cut where its room ended"


_CODE = 32
"""Texts shorter than this may well be as long as they were asked for."""


def filled_text(value: Any, schema: Any, place: str = "") -> str | None:
    """The place of a text in an answer that is as long as its schema allows; None when there is none.

    Bounds of a few characters do not count: a country code fills its two.
    """
    if not isinstance(schema, Mapping):
        return None
    if isinstance(value, str):
        most = schema.get("maxLength")
        return place or "it" if isinstance(most, int) and len(value) >= max(most, _CODE) and "enum" not in schema else None
    parts: list[tuple[Any, Any, str]] = []
    if isinstance(value, Mapping) and isinstance(inner := schema.get("properties"), Mapping):
        parts = [(value[name], part, f"{place}.{name}".lstrip(".")) for name, part in inner.items() if name in value]
    elif isinstance(value, list):
        parts = [(one, schema.get("items"), f"{place}[{number}]") for number, one in enumerate(value)]
    return next((found for part in parts if (found := filled_text(*part)) is not None), None)


def _parsed(message: AIMessage, schema: Any, bounds: Any = None) -> Any:
    if message.response_metadata.get("finish_reason") == "length":
        raise AnswerCut("the answer was cut before its end: raise max_tokens or the window.", llm_output=message.text)
    try:
        value = json.loads(message.text)
        place = filled_text(value, bounds)
        parsed = schema.model_validate(value) if isinstance(schema, type) and issubclass(schema, BaseModel) else value
    except (ValueError, ValidationError) as error:
        raise OutputParserException(f"the answer is not what was asked for: {error}", llm_output=message.text) from error
    if place is not None:
        raise AnswerCut(f"the answer was cut: {place} is as long as it may be.", llm_output=message.text)
    return parsed
