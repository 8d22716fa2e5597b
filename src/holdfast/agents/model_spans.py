"""Spans for calls of models and tools (O2): what was asked, what it used, and with leave the words. Needs nothing but LangChain's core."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from holdfast.models.abilities import model_name_of
from holdfast.tokens.usage import Usage
from holdfast.tracing import Traced, captures, recording, shown, span, tracing

_ROLES = {"human": "user", "ai": "assistant"}


@contextmanager
def asked(model: Any, messages: Sequence[BaseMessage], system: str = "", *, purpose: str = "answer") -> Iterator[list[Any]]:
    """A span around a call of a model. What it answered is put into the list."""
    if not tracing():
        yield []
        return
    name = model_name_of(model)
    about: dict[str, Any] = {
        "gen_ai.provider.name": provider_of(model) if recording() else None,  # it asks the model's class, and no figure names it
        "gen_ai.request.model": name,
        "llm.model_name": name,
        "holdfast.purpose": purpose,
    }
    if captures():
        about["gen_ai.input.messages"] = shown(json.dumps([_plain(one) for one in messages], ensure_ascii=False))
        about["gen_ai.system_instructions"] = (
            shown(json.dumps([{"type": "text", "content": system}], ensure_ascii=False)) if system else None
        )
    with span("chat", name, "LLM", about) as traced:
        heard: list[Any] = []
        yield heard
        if heard and isinstance(heard[-1], AIMessage):
            traced.set(_answered(heard[-1]))


@contextmanager
def tool_run(name: str, call: str, args: Any) -> Iterator[Traced]:
    """A span around a tool."""
    about = {"gen_ai.tool.name": name, "gen_ai.tool.call.id": call, "tool.name": name}
    if tracing() and captures():
        about["gen_ai.tool.call.arguments"] = shown(json.dumps(args, ensure_ascii=False, default=str))
    with span("execute_tool", name, "TOOL", about) as traced:
        yield traced


def told_result(traced: Traced, result: ToolMessage) -> None:
    """What a tool gave: whether it failed, and with leave its words."""
    failed = result.status == "error"
    traced.set({"error.type": "tool_error" if failed else None, "gen_ai.tool.call.result": shown(result.text) if captures() else None})


def provider_of(model: Any) -> str:
    """Who runs a model, as far as its class says."""
    try:
        found = model._get_ls_params().get("ls_provider")
    except (AttributeError, TypeError, ValueError, NotImplementedError):
        found = None
    return str(found or type(model).__name__)


def _answered(answer: AIMessage) -> dict[str, Any]:
    usage, about = Usage.read(answer), answer.response_metadata
    finish = about.get("finish_reason") or about.get("stop_reason") or ("tool_calls" if answer.tool_calls else "stop")
    found: dict[str, Any] = {
        "gen_ai.response.model": about.get("model_name") or about.get("model"),
        "gen_ai.response.id": about.get("id") if isinstance(about.get("id"), str) else None,
        "gen_ai.response.finish_reasons": [str(finish)],
    }
    if usage is not None:
        found |= {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read or None,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write or None,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning or None,
            "llm.token_count.prompt": usage.input_tokens,
            "llm.token_count.completion": usage.output_tokens,
            "llm.token_count.total": usage.total,
        }
    if captures():
        found["gen_ai.output.messages"] = shown(json.dumps([{**_plain(answer), "finish_reason": str(finish)}], ensure_ascii=False))
    return found


def _plain(message: BaseMessage) -> dict[str, Any]:
    """A message in the form of the convention."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.text}] if message.text else []
    if isinstance(message, AIMessage):
        parts += [{"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]} for call in message.tool_calls]
    if isinstance(message, ToolMessage):
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}]
    return {"role": _ROLES.get(message.type, message.type), "parts": parts}
