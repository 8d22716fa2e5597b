"""What a client asks for, in one form whatever it speaks; and the middleware that puts it into the request to the model.

The client's system prompt stands first, its tools beside the agent's own, its parameters on the call. A call of one of its tools ends the
turn: the client runs it, and its next request brings the result.

A message is a mapping in the form of OpenAI's chat API (the other wires are brought into it). Whatever a client did to their form, two
messages are the same when who said it, the text without the space around it, the tools called with their arguments, and the call that a
result answers are: by this a conversation is recognised from what it sends.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, hook_config
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call

from holdfast.errors import InputError

ChatMessage = Mapping[str, Any]
_ROLES = {"human": "user", "ai": "assistant", "function": "tool"}


def text_of(content: Any) -> str:
    """The words of a content: a text, or the texts of its parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def calls_of(message: ChatMessage) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each call, the arguments in one order of their names."""
    found = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        found.append((str(call.get("id") or ""), str(function.get("name") or ""), _arguments(function.get("arguments"))))
    return found


def _arguments(said: Any) -> str:
    try:
        value = json.loads(said) if isinstance(said, str) else said
    except ValueError:
        return str(said)
    return json.dumps(value or {}, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _pictures(content: Any) -> Iterator[str]:
    for part in content if isinstance(content, Sequence) and not isinstance(content, str) else ():
        if isinstance(part, Mapping) and part.get("type") not in ("text", "input_text", "output_text", None):
            yield json.dumps(part, sort_keys=True, ensure_ascii=False, default=str)


def digest_of(message: ChatMessage) -> bytes:
    """The same for two messages that are the same, and for no others."""
    role = str(message.get("role", ""))
    content = message.get("content")
    said = [
        _ROLES.get(role, role),
        text_of(content).strip(),
        *(part for call in calls_of(message) for part in call),
        str(message.get("tool_call_id") or ""),
    ]
    pictures = [blake2b(one.encode("utf-8", "replace"), digest_size=16).hexdigest() for one in _pictures(content)]
    return _hashed(json.dumps([said, pictures], ensure_ascii=False))


@lru_cache(maxsize=50_000)
def _hashed(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def chain(digests: Sequence[bytes], start: bytes = b"") -> list[bytes]:
    """A name for each beginning of a conversation: that of the beginning before it, and the message."""
    found = []
    for digest in digests:
        start = blake2b(start + digest, digest_size=16).digest()
        found.append(start)
    return found


current: ContextVar[ClientRequest | None] = ContextVar("holdfast_client_request", default=None)
"""The request that is being answered."""


@dataclass(frozen=True)
class ClientRequest:
    """One request. `messages` are in the form of OpenAI's chat API, without system messages; those are `system`."""

    model: str
    messages: Sequence[ChatMessage]
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: Any = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    thread: str | None = None
    """The thread that it names itself."""
    previous: str | None = None
    """The answer that it goes on from, by its id."""
    memory: bool | None = None
    learn: bool | None = None

    @property
    def tool_names(self) -> frozenset[str]:
        """The client's own tools."""
        return frozenset(str((tool.get("function") or {}).get("name", "")) for tool in self.tools)


class ClientRequestMiddleware(AgentMiddleware[Any, Any, Any]):
    """Puts the request of a client into the model's. Outermost, so that the window counts all of it."""

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Change the request, and ask."""
        return handler(_asked(request))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]) -> Any:
        """As `wrap_model_call`, awaited."""
        return await handler(_asked(request))

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """A call of the client's tools ends the turn. Beside calls of ours it is dropped: the model asks again when it has seen ours."""
        client, messages = current.get(), state.get("messages") or ()
        last = messages[-1] if messages else None
        if client is None or not isinstance(last, AIMessage) or not last.tool_calls:
            return None
        theirs = [call for call in last.tool_calls if call["name"] in client.tool_names]
        if not theirs:
            return None
        ours = [call for call in last.tool_calls if call["name"] not in client.tool_names]
        if not ours:
            return {"jump_to": "end"}
        return {"messages": [last.model_copy(update={"tool_calls": ours, "additional_kwargs": _without_calls(last)})]}


def _without_calls(message: AIMessage) -> dict[str, Any]:
    return {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}


def _asked(request: ModelRequest[Any]) -> ModelRequest[Any]:
    client = current.get()
    if client is None:
        return request
    changes: dict[str, Any] = {}
    if client.system:
        own = request.system_message.text if request.system_message is not None else ""
        changes["system_message"] = SystemMessage(f"{own}\n\n{client.system}" if own else client.system)
    if client.tools:
        changes["tools"] = [*request.tools, *(dict(tool) for tool in client.tools)]
        if client.tool_choice is not None:
            changes["tool_choice"] = client.tool_choice
    if client.parameters:
        changes["model_settings"] = {**request.model_settings, **client.parameters}
    return request.override(**changes) if changes else request


def langchain_message(message: ChatMessage, id: str) -> BaseMessage:
    """A message of the client as LangChain's. InputError for a role that nobody has."""
    role, content = message.get("role"), message.get("content")
    if role == "user":
        return HumanMessage(_content(content), id=id)
    if role == "assistant":
        return _answer(message, id)
    if role in ("tool", "function"):
        return ToolMessage(text_of(content), tool_call_id=str(message.get("tool_call_id") or message.get("name") or ""), id=id)
    raise InputError(f"{str(role)[:40]!r} is not a role of a message.", hint="Use system, developer, user, assistant or tool.")


def _answer(message: ChatMessage, id: str) -> AIMessage:
    calls: list[Any] = []
    wrong: list[Any] = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        name, said, number = str(function.get("name") or ""), function.get("arguments"), str(call.get("id") or "")
        try:
            args = json.loads(said) if isinstance(said, str) and said.strip() else (said or {})
        except ValueError:
            args = None
        if isinstance(args, dict):
            calls.append({"name": name, "args": args, "id": number, "type": "tool_call"})
        else:
            wrong.append(invalid_tool_call(name=name, args=str(said), id=number, error="no JSON object"))
    return AIMessage(text_of(message.get("content")), tool_calls=calls, invalid_tool_calls=wrong, id=id)


def _content(content: Any) -> Any:
    """Text as text; texts and pictures as blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    blocks: list[Any] = []
    for part in content:
        if not isinstance(part, Mapping):
            raise InputError("a part of a message is no object.")
        if part.get("type") in ("text", "input_text", "output_text", None):
            blocks.append({"type": "text", "text": str(part.get("text") or "")})
        elif part.get("type") in ("image_url", "input_image", "image"):
            picture = part.get("image_url") or part.get("source") or {}
            address = picture.get("url") if isinstance(picture, Mapping) else picture
            blocks.append({"type": "image_url", "image_url": {"url": str(address or "")}})
        else:
            raise InputError(f"a part of the kind {str(part.get('type'))[:40]!r} cannot be passed on.", hint="Send text or images.")
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks
