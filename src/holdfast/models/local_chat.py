"""The chat model of a local server: LangChain's OpenAI client, with what a small model needs on top.

Answers in a schema are held to it by the runtime, with bounds so that they are never cut; tools are chosen from a menu where
the model cannot call them; tokens are counted by the model's own vocabulary. Start with `local_chat_model` in `local.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Self, TypeVar, cast
from uuid import uuid4

import openai
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import ContextOverflowError, OutputParserException
from langchain_core.language_models import LanguageModelInput, ModelProfile
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import add_usage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, SecretStr, ValidationError

from holdfast.errors import InputError, ModelUnavailable
from holdfast.models.abilities import Abilities, ToolWay, abilities_by_size, require
from holdfast.models.bounded import Bounded, bound_schema
from holdfast.models.held_stream import HeldStream
from holdfast.models.local import LocalServer
from holdfast.models.tool_menu import ToolMenu, told_as_text

_USUAL_CHARACTERS = 3  # in a token of English or JSON, on the low side; an answer cut all the same is asked for again, shorter
# An idle connection would belong to an event loop that may be gone when the next request comes.
_CLOSE_EACH = {"Connection": "close"}
_OURS = frozenset({"tools", "tool_choice", "response_format", "parallel_tool_calls", "strict"})
_Bound = TypeVar("_Bound")
_TIMEOUT = 1800.0  # a long prompt takes minutes on a small machine


@dataclass(frozen=True)
class _Asked:
    """One request as it is sent, and what is needed to read its answer."""

    messages: list[BaseMessage]
    kwargs: dict[str, Any]
    menu: ToolMenu | None = None
    bounded: Bounded | None = None
    strict: bool = False

    @property
    def rewrites(self) -> bool:
        """Whether `read` changes the answer, so that it cannot be streamed as it comes."""
        return self.menu is not None or (self.bounded is not None and self.bounded.changes)

    def read(self, message: AIMessage) -> AIMessage:
        if self.menu is not None:
            return self.menu.read(message, f"call_{uuid4().hex[:24]}")
        if self.bounded is None or not self.bounded.changes:
            return message
        try:
            value = self.bounded.restore(json.loads(message.text))
        except ValueError:
            return message
        return message.model_copy(update={"content": json.dumps(value, ensure_ascii=False)})


class LocalChat(ChatOpenAI):
    """A chat model on a `LocalServer`. `abilities` says what can be asked of it; `profile` is LangChain's view of the same."""

    server: Any = Field(exclude=True)
    abilities: Abilities = Field(default_factory=Abilities)

    @classmethod
    def serving(cls, server: LocalServer, *, name: str | None = None, tools: ToolWay | None = None, **settings: Any) -> Self:
        """The model of a running server. `name` is what it is called; `tools` overrides how it calls tools."""
        head = server.head
        able = abilities_by_size(head.parameters, takes_tools=head.takes_tools)
        if tools is not None:
            able = Abilities(able.summary, able.extraction, tools, able.json, able.parameters)
        called = name or server.path.stem
        profile = ModelProfile(
            name=f"{called} {head.parameters / 1e6:.0f}M",
            open_weights=True,
            max_input_tokens=server.window,
            max_output_tokens=min(server.window, settings.get("max_tokens") or server.window),
            text_inputs=True,
            image_inputs=False,
            tool_calling=able.tools == "native",
            tool_choice=able.tools != "none",
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
        """What these messages take of the window, counted by the model's own template and vocabulary, with the tools."""
        bound = {"tools": [convert_to_openai_tool(tool) for tool in tools]} if tools else {}
        asked = self._ask(list(messages), bound)
        payload = self._get_request_payload(asked.messages, **asked.kwargs)
        return cast("LocalServer", self.server).count_messages(payload["messages"])

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: Any = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        response_format: Any = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Tools for this model: native calls where it can make them, else one choice at a time from a menu."""
        require(self.abilities, "tools", model=self.model_name)
        if self.abilities.tools == "native":
            return super().bind_tools(
                tools,
                tool_choice=tool_choice,
                strict=strict,
                parallel_tool_calls=parallel_tool_calls,
                response_format=response_format,
                **kwargs,
            )
        asked = {"tool_choice": tool_choice, "response_format": response_format}
        kwargs |= {name: value for name, value in asked.items() if value is not None}
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def with_structured_output(
        self,
        schema: Any = None,
        *,
        method: str = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Answers in a schema, held to it while they are written. `method` may only be one that LangChain knows; all go this way.

        An answer that is cut or does not validate raises OutputParserException, or is `parsing_error` with `include_raw`.
        """
        if method not in ("json_schema", "function_calling", "json_mode"):
            raise InputError(f"no structured output by {method!r}.", hint="Use json_schema.")
        form: dict[str, Any] = {"type": "json_object"}
        if schema is not None:
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": _json_schema(schema)}}
        kwargs.pop("tools", None)
        named = {"kwargs": {"method": "json_schema"}, "schema": schema}
        model = self.bind(response_format=form, ls_structured_output_format=named, **kwargs)
        parser = RunnableLambda(lambda message: _parsed(message, schema))
        if not include_raw:
            return model | parser
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=model) | parsed.with_fallbacks([failed], exception_key="parsing_error")

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        asked = self._ask(messages, kwargs)
        with self._errors():
            result = super()._generate(asked.messages, stop, run_manager, **asked.kwargs)
        second = self._ask_again(asked, result, messages, kwargs)
        if second is None:
            return _read(asked, result)
        with self._errors():
            better = super()._generate(second.messages, stop, run_manager, **second.kwargs)
        return _read(second, better, spent=_message(result))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        asked = self._ask(messages, kwargs)
        with self._errors():
            result = await super()._agenerate(asked.messages, stop, run_manager, **asked.kwargs)
        second = self._ask_again(asked, result, messages, kwargs)
        if second is None:
            return _read(asked, result)
        with self._errors():
            better = await super()._agenerate(second.messages, stop, run_manager, **second.kwargs)
        return _read(second, better, spent=_message(result))

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        asked = self._ask(messages, kwargs, strictly=True)
        stream = HeldStream(asked.read, text_in_answer=asked.menu is not None and asked.menu.answer_is_text)
        with self._errors():
            for chunk in super()._stream(asked.messages, stop, run_manager, **asked.kwargs):
                if not asked.rewrites:
                    yield chunk
                elif (fresh := stream.feed(chunk)) is not None:
                    yield fresh
        if asked.rewrites:
            message = stream.message()
            if asked.menu is not None and (other := asked.menu.instead_of(message, messages, kwargs)) is not None:
                message = _message(self._generate(messages, stop, None, **other))
            yield from stream.finish(message)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        asked = self._ask(messages, kwargs, strictly=True)
        stream = HeldStream(asked.read, text_in_answer=asked.menu is not None and asked.menu.answer_is_text)
        with self._errors():
            async for chunk in super()._astream(asked.messages, stop, run_manager, **asked.kwargs):
                if not asked.rewrites:
                    yield chunk
                elif (fresh := stream.feed(chunk)) is not None:
                    yield fresh
        if asked.rewrites:
            message = stream.message()
            if asked.menu is not None and (other := asked.menu.instead_of(message, messages, kwargs)) is not None:
                message = _message(await self._agenerate(messages, stop, None, **other))
            for chunk in stream.finish(message):
                yield chunk

    def _ask(self, messages: list[BaseMessage], kwargs: Mapping[str, Any], *, strictly: bool = False) -> _Asked:
        """What is sent for this request. `strictly` bounds an answer so that it cannot be cut even at one character a token."""
        if self.server.closed:
            raise ModelUnavailable(
                f"the local server of {self.model_name} was closed.", model=self.model_name, hint="Make the model again."
            )
        rest = {key: value for key, value in kwargs.items() if key not in _OURS}
        tools, choice, schema = kwargs.get("tools"), kwargs.get("tool_choice"), _schema_in(kwargs.get("response_format"))
        if tools and self.abilities.tools == "native":
            return _Asked(messages, dict(kwargs))
        if tools:
            menu = self._within(rest, strictly, lambda budget: ToolMenu.of(tools, choice, budget, answer=schema))
            return _Asked(menu.told(messages), self._held_to(menu.schema, rest), menu=menu, strict=strictly)
        shown = messages if self.abilities.tools == "native" else told_as_text(messages)
        if schema is None:
            return _Asked(shown, rest)
        bounded = self._within(rest, strictly, lambda budget: bound_schema(schema, budget))
        return _Asked(shown, self._held_to(bounded.schema, rest), bounded=bounded, strict=strictly)

    def _ask_again(self, asked: _Asked, result: ChatResult, messages: list[BaseMessage], kwargs: Mapping[str, Any]) -> _Asked | None:
        """A second request where the first answer is of no use: it was cut, or calls once more what has just been answered."""
        if (asked.menu is None and asked.bounded is None) or asked.strict:
            return None
        try:
            answer = asked.read(_message(result))
        except OutputParserException:
            return self._ask(messages, kwargs, strictly=True)
        if asked.menu is None and _was_cut(result.generations[0].generation_info):
            return self._ask(messages, kwargs, strictly=True)
        other = asked.menu.instead_of(answer, messages, kwargs) if asked.menu is not None else None
        return self._ask(messages, other) if other is not None else None

    def _within(self, kwargs: Mapping[str, Any], strictly: bool, bound: Callable[[int], _Bound]) -> _Bound:
        tokens = int(kwargs.get("max_completion_tokens") or kwargs.get("max_tokens") or self.max_tokens or self.server.window // 2)
        if strictly:
            try:
                return bound(tokens)
            except InputError:
                pass  # the fixed words of the schema alone have more letters than that, but fewer tokens
        return bound(tokens * _USUAL_CHARACTERS)

    def _held_to(self, schema: Mapping[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        form = json.dumps({**schema, "x-guidance": {"whitespace_flexible": False}})
        extra = {**(self.extra_body or {}), **(kwargs.get("extra_body") or {}), "grammar": f"%llguidance {{}}\nstart: %json {form}"}
        return {**kwargs, "extra_body": extra}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """A request that is longer than the window gets LangChain's own error for that."""
        try:
            yield
        except openai.BadRequestError as error:
            body = error.body if isinstance(error.body, Mapping) else {}
            if body.get("type") != "exceed_context_size_error":
                raise
            needed, window = body.get("n_prompt_tokens", "more"), body.get("n_ctx", self.server.window)
            raise ContextOverflowError(f"the request has {needed} tokens and the window of {self.model_name} is {window}.") from error


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


def _parsed(message: AIMessage, schema: Any) -> Any:
    if _was_cut(message.response_metadata):
        raise OutputParserException("the answer was cut before its end: raise max_tokens or the window.", llm_output=message.text)
    try:
        value = json.loads(message.text)
        return schema.model_validate(value) if isinstance(schema, type) and issubclass(schema, BaseModel) else value
    except (ValueError, ValidationError) as error:
        raise OutputParserException(f"the answer is not what was asked for: {error}", llm_output=message.text) from error


def _message(result: ChatResult) -> AIMessage:
    return cast("AIMessage", result.generations[0].message)


def _was_cut(info: Mapping[str, Any] | None) -> bool:
    return (info or {}).get("finish_reason") == "length"


def _read(asked: _Asked, result: ChatResult, spent: AIMessage | None = None) -> ChatResult:
    """The result with its message read, charged with what an answer that was of no use has cost."""
    generation = result.generations[0]
    message = asked.read(_message(result))
    if spent is not None:
        message.usage_metadata = add_usage(message.usage_metadata, spent.usage_metadata)
    info = {**(generation.generation_info or {}), **({"finish_reason": "tool_calls"} if message.tool_calls else {})}
    return ChatResult(generations=[ChatGeneration(message=message, generation_info=info)], llm_output=result.llm_output)
