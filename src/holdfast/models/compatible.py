"""Chat models of servers that speak the OpenAI protocol with something of their own: reasoning, signatures, tags, odd tool calls.

`CompatibleChat` keeps what such a server sends beside the protocol (its reasoning, and whatever rides on a tool call) and sends it back,
because many refuse the next request without it. The classes below it differ only in where a server has its reasoning and in what it does
not take. They stand in for the reference's model classes, which `use:` may name (`config/migration.py` has the table).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast
from uuid import uuid4

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata, subtract_usage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import model_validator

from holdfast.text.normalise import without_tags

_KEPT = "reasoning_content"
"""Where LangChain looks for reasoning that a server sent beside the answer, in `additional_kwargs`."""
_CALLS = "tool_call_extras"
_USUAL = frozenset({"id", "type", "function", "index", "custom"})
_THINK = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


class CompatibleChat(ChatOpenAI):
    """Any server with the OpenAI protocol. Its reasoning is in `additional_kwargs["reasoning_content"]` and goes back with the history."""

    address: ClassVar[str | None] = None
    """Where the provider is, when `base_url` says nothing."""
    key_variable: ClassVar[str | None] = None
    """Which environment variable has its key. Without one no key of another provider is ever sent to it."""
    reasoning_fields: ClassVar[tuple[str, ...]] = ("reasoning_content", "reasoning")
    """Where an answer has its reasoning; the first that is there counts."""
    sent_as: ClassVar[str] = "reasoning_content"
    """What the reasoning of an earlier answer is called in a request."""
    limit_name: ClassVar[str] = "max_completion_tokens"
    structured_by: ClassVar[str | None] = None
    """How a schema is asked for, where the server does not take it as OpenAI does."""

    @model_validator(mode="before")
    @classmethod
    def _own_address_and_key(cls, values: dict[str, Any]) -> dict[str, Any]:
        given = dict(values)
        if not any(given.get(name) for name in ("base_url", "openai_api_base")):
            given |= {"base_url": cls.address} if cls.address else {}
        if cls.address is not None and not any(given.get(name) for name in ("api_key", "openai_api_key")):
            key = os.environ.get(cls.key_variable or "", "").strip()
            if not key:
                raise ValueError(f"it needs a key: `api_key`, or the variable {cls.key_variable}")
            given["api_key"] = key
        return given

    # what is sent

    def _get_request_payload(self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        messages = self._given(self._convert_input(input_).to_messages())
        payload: dict[str, Any] = super()._get_request_payload(messages, stop=stop, **kwargs)
        if self.limit_name != "max_completion_tokens" and "max_completion_tokens" in payload:
            payload[self.limit_name] = payload.pop("max_completion_tokens")
        for said, message in zip(payload.get("messages") or (), messages, strict=False):
            said["content"] = _plain_text(said.get("content"))
            if isinstance(message, AIMessage):
                self._send_back(said, message)
        self._adapt(payload)
        return payload

    def _given(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """The messages in a form that the server takes."""
        return list(messages)

    def _send_back(self, said: dict[str, Any], message: AIMessage) -> None:
        """Put what the server sent beside an earlier answer on that answer again."""
        if (reasoning := message.additional_kwargs.get(_KEPT)) is not None:
            said[self.sent_as] = reasoning
        extras = message.additional_kwargs.get(_CALLS)
        for call in said.get("tool_calls") or ():
            more = extras.get(call.get("id")) if isinstance(extras, Mapping) else None
            call.update(more if isinstance(more, Mapping) else {})

    def _adapt(self, payload: dict[str, Any]) -> None:
        """Change what else the server does not take as it is."""

    def with_structured_output(self, schema: Any = None, **given: Any) -> Any:
        """As LangChain's, by the method that the server knows unless another is asked for."""
        if self.structured_by is not None:
            given.setdefault("method", self.structured_by)
        return super().with_structured_output(schema, **given)

    # what comes back

    def _create_chat_result(self, response: Any, generation_info: dict[str, Any] | None = None) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        choices = (response if isinstance(response, dict) else response.model_dump(warnings=False)).get("choices") or ()
        for generation, choice in zip(result.generations, choices, strict=False):
            if isinstance(generation.message, AIMessage):
                self._keep(generation.message, choice.get("message") or {})
                self._mend(generation.message)
        return result

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        made = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        choices = chunk.get("choices") or (chunk.get("chunk") or {}).get("choices") or ()
        if made is not None and choices and isinstance(made.message, AIMessageChunk):
            self._keep(made.message, choices[0].get("delta") or {})
        return made

    def _keep(self, message: AIMessage, said: Mapping[str, Any]) -> None:
        """Keep what is beside the answer, whole or a piece of it."""
        reasoning = next((said[name] for name in self.reasoning_fields if said.get(name) is not None), None)
        if reasoning is not None and (text := _text_of(reasoning)):
            message.additional_kwargs[_KEPT] = text
        extras = {
            str(call["id"]): more
            for call in said.get("tool_calls") or ()
            if call.get("id") and (more := {name: value for name, value in call.items() if name not in _USUAL and value is not None})
        }
        if extras:
            message.additional_kwargs[_CALLS] = extras

    def _mend(self, message: AIMessage) -> None:
        """Put right what the server writes into a whole answer."""


class DeepSeekChat(CompatibleChat):
    """DeepSeek, and others that speak its dialect (Doubao, GLM, Kimi). While it thinks, every tool call goes back with its reasoning."""

    address = "https://api.deepseek.com/v1"
    key_variable = "DEEPSEEK_API_KEY"
    limit_name = "max_tokens"
    structured_by = "function_calling"

    def _adapt(self, payload: dict[str, Any]) -> None:
        thinking = (payload.get("extra_body") or {}).get("thinking") or payload.get("thinking")
        thinks = isinstance(thinking, Mapping) and thinking.get("type") == "enabled"
        for said in payload.get("messages") or ():
            if said.get("role") == "assistant" and said.get("tool_calls"):
                said["content"] = said.get("content") or ""  # null is refused
                if thinks:
                    said.setdefault("reasoning_content", "")


class MiMoChat(CompatibleChat):
    """Xiaomi MiMo."""

    address = "https://api.xiaomimimo.com/v1"
    key_variable = "MIMO_API_KEY"
    structured_by = "function_calling"


class StepFunChat(CompatibleChat):
    """StepFun."""

    address = "https://api.stepfun.com/v1"
    key_variable = "STEPFUN_API_KEY"
    limit_name = "max_tokens"
    structured_by = "function_calling"


class MiniMaxChat(CompatibleChat):
    """MiniMax: reasoning apart from the answer is asked for, goes back as it came, and names on the user's messages are refused."""

    address = "https://api.minimax.io/v1"
    key_variable = "MINIMAX_API_KEY"
    reasoning_fields = ("reasoning_details", "reasoning_content")
    structured_by = "function_calling"

    def _adapt(self, payload: dict[str, Any]) -> None:
        payload["extra_body"] = {"reasoning_split": True, **(payload.get("extra_body") or {})}
        for said in payload.get("messages") or ():
            if said.get("role") == "user":
                said.pop("name", None)

    def _send_back(self, said: dict[str, Any], message: AIMessage) -> None:
        super()._send_back(said, message)
        if (details := message.additional_kwargs.get("reasoning_details")) is not None:
            said.pop("reasoning_content", None)
            said["reasoning_details"] = details

    def _keep(self, message: AIMessage, said: Mapping[str, Any]) -> None:
        super()._keep(message, said)
        if isinstance(said.get("reasoning_details"), list):
            message.additional_kwargs["reasoning_details"] = said["reasoning_details"]

    def _mend(self, message: AIMessage) -> None:
        if isinstance(message.content, str) and (found := _THINK.findall(message.content)):
            message.content = _THINK.sub("", message.content)
            message.additional_kwargs.setdefault(_KEPT, "\n\n".join(part.strip() for part in found))


class VllmChat(CompatibleChat):
    """vLLM. `cumulative_stream_usage` is for servers that repeat the total in every piece of a stream, where the sum would be wrong."""

    address = "http://localhost:8000/v1"
    key_variable = "VLLM_API_KEY"
    reasoning_fields = ("reasoning", "reasoning_content")
    sent_as = "reasoning"

    cumulative_stream_usage: bool = False

    def _adapt(self, payload: dict[str, Any]) -> None:
        body = payload.get("extra_body") or {}
        template = body.get("chat_template_kwargs")
        if isinstance(template, Mapping) and "thinking" in template:  # its older name, which no template reads
            rest = {name: value for name, value in template.items() if name != "thinking"}
            payload["extra_body"] = {**body, "chat_template_kwargs": {"enable_thinking": template["thinking"], **rest}}

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        before: UsageMetadata | None = None
        for chunk in super()._stream(*args, **kwargs):
            before = self._counted_once(chunk, before)
            yield chunk

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        before: UsageMetadata | None = None
        async for chunk in super()._astream(*args, **kwargs):
            before = self._counted_once(chunk, before)
            yield chunk

    def _counted_once(self, chunk: ChatGenerationChunk, before: UsageMetadata | None) -> UsageMetadata | None:
        message = chunk.message
        if not self.cumulative_stream_usage or not isinstance(message, AIMessageChunk) or message.usage_metadata is None:
            return before
        total = message.usage_metadata
        message.usage_metadata = subtract_usage(total, before)
        return total


class MindIEChat(CompatibleChat):
    """Models on MindIE, whose template knows neither tool calls nor their results: both are text with tags, read out of whole answers."""

    disable_streaming: Any = True

    @model_validator(mode="before")
    @classmethod
    def _time_outs(cls, values: dict[str, Any]) -> dict[str, Any]:
        import httpx

        kinds = ("connect", "read", "write", "pool")
        given = {kind: values[f"{kind}_timeout"] for kind in kinds if values.get(f"{kind}_timeout") is not None}
        rest = {name: value for name, value in values.items() if name not in {f"{kind}_timeout" for kind in kinds}}
        if given:
            usual = rest.pop("timeout", None) or rest.pop("request_timeout", None)
            rest["timeout"] = httpx.Timeout(usual if isinstance(usual, int | float) else 300.0, **given)
        return rest

    def _given(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        return [_as_tags(cast("AnyMessage", message)) for message in messages]

    def _mend(self, message: AIMessage) -> None:
        if not isinstance(message.content, str):
            return
        text = message.content
        if "\n" not in text:  # the whole answer was escaped once too often
            text = text.replace("\\n", "\n")
        message.content, calls = _calls_in(text)
        message.tool_calls = [*message.tool_calls, *calls]


def _plain_text(content: Any) -> Any:
    """Text in parts as one text: several servers take nothing else. Parts of any other kind stay as they are."""
    if not isinstance(content, list) or not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


def _text_of(reasoning: Any) -> str:
    """Reasoning as text, whether it came as text, as a part or as a list of parts."""
    if isinstance(reasoning, str):
        return reasoning
    if isinstance(reasoning, Mapping):
        return next((_text_of(reasoning[name]) for name in ("text", "content", "reasoning", "summary") if reasoning.get(name)), "")
    return "".join(_text_of(part) for part in reasoning) if isinstance(reasoning, list) else ""


def _as_tags(message: AnyMessage) -> BaseMessage:
    """A message as text alone, with a tool call or a tool result in tags. Tags in a tool result are data and lose their bracket."""
    text = message.text
    if isinstance(message, ToolMessage):
        return HumanMessage(f"<tool_response>\n{without_tags(text)}\n</tool_response>")
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = []
        for call in message.tool_calls:
            args = {
                name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for name, value in call["args"].items()
            }
            given = "".join(f"<parameter={name}>{without_tags(value)}</parameter>\n" for name, value in args.items())
            calls.append(f"<tool_call>\n<function={call['name']}>\n{given}</function>\n</tool_call>")
        return AIMessage("\n".join([*([text] if text else []), *calls]))
    return message.model_copy(update={"content": text or " "})


def _calls_in(text: str) -> tuple[str, list[Any]]:
    """The text without its tool calls, and the calls. What only looks like one stays text."""
    calls: list[Any] = []

    def taken(match: re.Match[str]) -> str:
        function = re.search(r"<function=([^>\s]+)\s*>(.*)", match[1], re.DOTALL)
        if function is None:
            return match[0]
        found = re.findall(r"<parameter=([^>\s]+)\s*>(.*?)</parameter>", function[2], re.DOTALL)
        args = {name: _read(value.strip()) for name, value in found}
        calls.append({"name": function[1], "args": args, "id": f"call_{uuid4().hex[:12]}", "type": "tool_call"})
        return ""

    rest = re.sub(r"<tool_call>(.*?)</tool_call>", taken, text, flags=re.DOTALL)
    return (rest.strip() if calls else text), calls


def _read(value: str) -> Any:
    """A value as JSON where it is a number, true, false, null, a list or an object; else text."""
    if re.match(r"[\[{]|-?\d|true$|false$|null$", value):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
