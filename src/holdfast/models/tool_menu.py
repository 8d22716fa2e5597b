"""Tool calls for models that cannot make them: the model picks from a menu, held to it by a JSON schema (A15).

It must write one object, either `{"tool": ..., "arguments": ...}` or `{"answer": ...}`, and that becomes a real tool call or
a plain text. Earlier calls and results are told to it as text, because its chat template has no words for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.utils.json import parse_partial_json

from holdfast.errors import InputError
from holdfast.models.bounded import Bounded, bound_schema

_TEXT: Mapping[str, Any] = {"type": "string"}


@dataclass(frozen=True)
class ToolMenu:
    """The tools that may be called now, each with its bounded arguments, and the form of an answer where one is allowed."""

    calls: Mapping[str, Bounded]
    answer: Bounded | None
    answer_is_text: bool
    described: str

    @classmethod
    def of(cls, tools: Sequence[Mapping[str, Any]], choice: Any, budget: int, *, answer: Mapping[str, Any] | None = None) -> ToolMenu:
        """The menu for these tools (in OpenAI's form). `choice` is LangChain's tool_choice; `answer` a schema for answers.

        Raises InputError when a tool's arguments cannot be written within `budget` characters.
        """
        functions = {str(tool["function"]["name"]): tool["function"] for tool in tools if "function" in tool}
        wanted = _wanted(choice, tuple(functions))
        calls = {name: _arguments(functions[name], budget) for name in wanted.names}
        bounded = bound_schema(answer or _TEXT, budget - len('{"answer":}')) if wanted.answer else None
        return cls(calls, bounded, answer is None, "\n".join(map(_line, functions.values())))

    @property
    def schema(self) -> dict[str, Any]:
        """What the model's answer is held to."""
        branches = [_object({"tool": {"const": name}, "arguments": bounded.schema}) for name, bounded in self.calls.items()]
        if self.answer is not None:
            branches.append(_object({"answer": self.answer.schema}))
        return branches[0] if len(branches) == 1 else {"anyOf": branches}

    def told(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """The conversation as the model is shown it: the menu in the system message, calls and results as text."""
        menu = _prompt().replace("{tools}", self.described)
        shown = told_as_text(messages, in_json=True)
        if shown and isinstance(shown[0], SystemMessage):
            return [SystemMessage(f"{shown[0].text}\n\n{menu}"), *shown[1:]]
        return [SystemMessage(menu), *shown]

    def read(self, message: AIMessage, identity: str) -> AIMessage:
        """The model's object as a message: with a tool call, or with the answer as its text.

        A text that was cut is taken as far as it goes, as from any model; OutputParserException when a call or a value was.
        """
        chosen = _chosen(message.text, partly=self.answer_is_text)
        if isinstance(chosen, dict) and chosen.get("tool") in self.calls:
            arguments = self.calls[chosen["tool"]].restore(chosen.get("arguments", {}))
            made = tool_call(name=chosen["tool"], args=arguments, id=identity)
            return message.model_copy(update={"content": "", "tool_calls": [made]})
        if isinstance(chosen, dict) and "answer" in chosen and self.answer is not None:
            value = self.answer.restore(chosen["answer"])
            return message.model_copy(update={"content": str(value) if self.answer_is_text else json.dumps(value, ensure_ascii=False)})
        raise OutputParserException(
            "the model did not finish its choice of a tool or an answer: raise max_tokens or the window.", llm_output=message.text
        )

    def instead_of(self, message: AIMessage, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """What to ask instead of a call that repeats, word for word, the one answered last: small models never stop by themselves.

        An answer where one is allowed, else one of the other tools; None when the call is a new one, or there is no other way.
        """
        last = messages[-1] if messages else None
        if not message.tool_calls or not isinstance(last, ToolMessage):
            return None
        asked = message.tool_calls[0]
        made = [call for said in messages if isinstance(said, AIMessage) for call in said.tool_calls if call["id"] == last.tool_call_id]
        if not made or (made[-1]["name"], made[-1]["args"]) != (asked["name"], asked["args"]):
            return None
        if self.answer is not None:
            return {**kwargs, "tool_choice": "none"}
        others = [tool for tool in kwargs["tools"] if tool.get("function", {}).get("name") != asked["name"]]
        return {**kwargs, "tools": others} if others and len(self.calls) > 1 else None


def _chosen(written: str, *, partly: bool) -> Any:
    try:
        return json.loads(written)
    except ValueError:
        if not partly:
            return None
    try:
        seen = parse_partial_json(written)
    except ValueError:
        return None
    return {"answer": seen["answer"]} if isinstance(seen, dict) and isinstance(seen.get("answer"), str) else None


@dataclass(frozen=True)
class _Wanted:
    names: tuple[str, ...]
    answer: bool


def _wanted(choice: Any, names: tuple[str, ...]) -> _Wanted:
    if isinstance(choice, Mapping):
        choice = choice.get("function", choice).get("name")
    if choice in names:
        return _Wanted((choice,), answer=False)
    if choice in ("any", "required", True):
        return _Wanted(names, answer=False)
    if choice == "none":
        return _Wanted((), answer=True)
    if choice in (None, "auto", False):
        return _Wanted(names, answer=True)
    raise InputError(f"tool_choice {choice!r} is not one of the tools.", hint=f"Use auto, any, none, or one of {', '.join(names)}.")


def _arguments(function: Mapping[str, Any], budget: int) -> Bounded:
    name = str(function["name"])
    frame = len(f'{{"tool":{json.dumps(name)},"arguments":}}')
    try:
        return bound_schema(function.get("parameters") or {"type": "object", "additionalProperties": False}, budget - frame)
    except InputError as error:
        raise InputError(f"the tool {name} cannot be called by this model: {error.message}", hint=error.hint) from error


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _line(function: Mapping[str, Any]) -> str:
    """A tool as the model is shown it: the very object that it would write, and what it is for."""
    properties = (function.get("parameters") or {}).get("properties", {})
    arguments = ", ".join(f"{json.dumps(name)}: ..." for name in properties)
    purpose = " ".join(str(function.get("description", "")).split())
    return f'{{"tool": {json.dumps(function["name"])}, "arguments": {{{arguments}}}}} {purpose}'


@cache
def _prompt() -> str:
    return resources.files("holdfast.models").joinpath("prompts/tool_choice.txt").read_text(encoding="utf-8").strip()


def told_as_text(messages: Sequence[BaseMessage], *, in_json: bool = False) -> list[BaseMessage]:
    """The same conversation without tool calls and tool results: they become text, and neighbours of one role are joined.

    With `in_json` the model's own turns are shown in the form that it has to write now.
    """
    names = {made["id"]: made["name"] for message in messages if isinstance(message, AIMessage) for made in message.tool_calls}
    shown: list[BaseMessage] = []
    for message in messages:
        told = _told(message, names, in_json)
        if told is None:
            continue
        last = shown[-1] if shown else None
        plain = isinstance(told.content, str) and last is not None and isinstance(last.content, str)
        if plain and last is not None and type(last) is type(told):
            shown[-1] = type(told)(content=f"{last.content}\n\n{told.content}")
        else:
            shown.append(told)
    return shown


def _told(message: BaseMessage, names: Mapping[str | None, str], in_json: bool) -> BaseMessage | None:
    if isinstance(message, ToolMessage):
        return HumanMessage(f"Result of {names.get(message.tool_call_id, 'a tool')}: {message.text}")
    if isinstance(message, AIMessage):
        turns = [json.dumps({"tool": made["name"], "arguments": made["args"]}, ensure_ascii=False) for made in message.tool_calls]
        if message.text:
            turns.insert(0, json.dumps({"answer": message.text}, ensure_ascii=False) if in_json and not turns else message.text)
        return AIMessage("\n".join(turns)) if turns else None
    if isinstance(message, SystemMessage):
        return SystemMessage(message.text)
    return message
