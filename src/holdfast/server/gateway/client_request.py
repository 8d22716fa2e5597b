"""What a client asks for, in one form whatever it speaks: whether it is new, which thread it goes on with, how the model is asked for it.

A message is a mapping in the form of OpenAI's chat API (the other wires are brought into it). Whatever a client did to their form, two
messages are the same when who said it, the text without the space around it, the tools called with their arguments, and the call that a
result answers are: by this a conversation is recognised from what it sends.

Two requests of one conversation share all messages but the newest, so the longest beginning that is known names the thread. Where it is the
thread's end, the request goes on there; where it is further up, somebody edited or asked again, and a branch begins. A client that drops
its oldest messages is known by the end of what it still has, if that is the end of one thread alone. In doubt it is a new thread: two
conversations are never mixed.

A client that asks the very same thing again because it never heard the answer gets that answer, and the model is asked once (O3). It is a
repeat when the client says so (the retry count of OpenAI's and Anthropic's clients, an `Idempotency-Key`), or when the first answer went
into a broken connection. Any other equal request is meant: somebody wants another answer, and it becomes a branch.

In the request to the model the client's system prompt stands first, its tools beside the agent's own, its parameters on the call. A call of
one of its tools ends the turn: the client runs it, and its next request brings the result.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, hook_config
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call

from holdfast.agents.middleware.broken_calls import broken_in
from holdfast.durable.database import open_database, transaction
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.server.gateway.gateway_core import Done

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
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that OpenAI's API does not have and many servers that speak it do."""
    limit_name: str | None = None
    """What it calls the most tokens of its answer; None where it says none. Older servers know `max_tokens` alone."""
    stream: bool = False
    thread: str | None = None
    """The thread that it names itself."""
    previous: str | None = None
    """The answer that it goes on from, by its id."""
    address: str = ""
    """Where this server is, as the client sees it."""
    memory: bool | None = None
    learn: bool | None = None
    whole_calls: bool = False
    """Its form has no way to say that a call did not arrive whole: the model is told, and sends it again."""

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
        again = broken_in(last) if client.whole_calls else {}  # answered by `BrokenCallsMiddleware`
        ours = [call for call in last.tool_calls if call["name"] not in client.tool_names or str(call["id"]) in again]
        if not ours:
            return {"jump_to": "end"}
        rest = {key: value for key, value in last.additional_kwargs.items() if key != "tool_calls"}
        return {"messages": [last.model_copy(update={"tool_calls": ours, "additional_kwargs": rest})]}


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
    if client.parameters or client.extra:
        changes["model_settings"] = {**request.model_settings, **_parameters(client, request.model)}
    return request.override(**changes) if changes else request


def _parameters(client: ClientRequest, model: object) -> dict[str, Any]:
    """The parameters as this model's class takes them; further ones in the body of OpenAI's protocol, or by name. InputError for the rest.

    LangChain's class says `max_completion_tokens`, which many servers that speak the protocol do not know and pass over: they are sent
    the limit under the name that the client gave it. Where a limit is configured both names are sent, so that the larger one never counts.
    """
    known, body = dict(client.parameters), dict(client.extra)
    if any(kind.__name__ == "BaseChatOpenAI" for kind in type(model).__mro__):
        if "max_tokens" in known and client.limit_name != "max_completion_tokens" and _is_of_others(model):
            body["max_tokens"] = known["max_tokens"]
            if getattr(model, "max_tokens", None) is None:
                del known["max_tokens"]
        return {**known, "extra_body": {**(getattr(model, "extra_body", None) or {}), **body}} if body else known
    return {**known, **_further(client, model)}


def _is_of_others(model: object) -> bool:
    """Whether a model of OpenAI's protocol is served by somebody else, and its class does not know what the limit is called there."""
    host = urlsplit(str(getattr(model, "openai_api_base", None) or "")).hostname or ""
    own = not host or host == "api.openai.com" or host.endswith((".api.openai.com", ".openai.azure.com"))
    named = getattr(model, "limit_name", "max_completion_tokens") != "max_completion_tokens"
    return not own and not named and not getattr(model, "use_responses_api", None)


def _further(client: ClientRequest, model: object) -> dict[str, Any]:
    strange = next((name for name in sorted(client.extra) if not hasattr(model, name)), None)
    if strange is not None:
        raise InputError(f"`{strange}` cannot be passed on to the model {client.model!r}.", hint="Leave it out.")
    return dict(client.extra)


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


FILE = "gateway.db"
_SCHEMA = (
    """
    CREATE TABLE messages (
        thread TEXT NOT NULL, seq INTEGER NOT NULL, node BLOB NOT NULL, digest BLOB NOT NULL, pair BLOB NOT NULL, message TEXT NOT NULL,
        PRIMARY KEY (thread, seq)
    ) WITHOUT ROWID;
    CREATE INDEX messages_by_node ON messages (node);
    CREATE INDEX messages_by_pair ON messages (pair);
    CREATE TABLE responses (id TEXT PRIMARY KEY, thread TEXT NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
    """,
)
_MOST = 200


@dataclass(frozen=True)
class Row:
    """One message of a thread: its place, the name of the beginning up to it, and its id in the thread."""

    thread: str
    seq: int
    node: bytes
    digest: bytes
    message: str


class ThreadIndex:
    """The messages of all threads of the gateway. Safe for many threads and processes; what was written survives a power cut."""

    def __init__(self, base: str | PathLike[str]) -> None:
        self._db = open_database(Path(base) / FILE, migrations=_SCHEMA, threads=True)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def with_node(self, node: bytes) -> list[Row]:
        """The rows of all threads that begin so far in this way, the newest thread first."""
        return self._rows("node = ? ORDER BY thread DESC LIMIT ?", node, _MOST)

    def ending(self, digests: Sequence[bytes]) -> list[Row]:
        """The places where these messages follow each other, of all threads."""
        pair = pair_of(digests[-2] if len(digests) > 1 else b"", digests[-1])
        found = self._rows("pair = ? ORDER BY thread DESC LIMIT ?", pair, _MOST) if len(digests) > 1 else []
        return [row for row in found if self._digests(row.thread, row.seq, len(digests)) == list(digests)]

    def tip(self, thread: str) -> Row | None:
        """The newest message of a thread."""
        found = self._rows("thread = ? ORDER BY seq DESC LIMIT ?", thread, 1)
        return found[0] if found else None

    def row(self, thread: str, seq: int) -> Row | None:
        """One message."""
        found = self._rows("thread = ? AND seq = ?", thread, seq)
        return found[0] if found else None

    def all(self, thread: str) -> list[Row]:
        """All messages of a thread, in their order."""
        return self._rows("thread = ? ORDER BY seq", thread)

    def add(self, thread: str, after: Row | None, digests: Sequence[bytes], nodes: Sequence[bytes], messages: Sequence[str]) -> None:
        """These follow a row, or begin the thread. What stood there before is replaced."""
        seq, before = (after.seq, after.digest) if after is not None else (0, b"")
        rows = []
        for digest, node, message in zip(digests, nodes, messages, strict=True):
            seq += 1
            rows.append((thread, seq, node, digest, pair_of(before, digest), message))
            before = digest
        with self._lock, transaction(self._db) as db:
            db.execute("DELETE FROM messages WHERE thread = ? AND seq > ?", (thread, after.seq if after is not None else 0))
            db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", rows)

    def copy(self, row: Row, thread: str) -> None:
        """A new thread begins as another one up to a row."""
        with self._lock, transaction(self._db) as db:
            db.execute(
                "INSERT INTO messages SELECT ?, seq, node, digest, pair, message FROM messages WHERE thread = ? AND seq <= ?",
                (thread, row.thread, row.seq),
            )

    def note_response(self, id: str, thread: str, seq: int) -> None:
        """An answer has this id, and stands there."""
        with self._lock, transaction(self._db) as db:
            db.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?)", (id, thread, seq))

    def response(self, id: str) -> Row | None:
        """Where the answer of this id stands."""
        with self._lock:
            found = self._db.execute("SELECT thread, seq FROM responses WHERE id = ?", (id,)).fetchone()
        return self.row(*found) if found is not None else None

    def _rows(self, where: str, *values: object) -> list[Row]:
        with self._lock:
            found = self._db.execute(f"SELECT thread, seq, node, digest, message FROM messages WHERE {where}", values).fetchall()  # noqa: S608 - our own
        return [Row(*one) for one in found]

    def _digests(self, thread: str, seq: int, count: int) -> list[bytes]:
        with self._lock:
            found = self._db.execute(
                "SELECT digest FROM messages WHERE thread = ? AND seq <= ? ORDER BY seq DESC LIMIT ?", (thread, seq, count)
            ).fetchall()
        return [digest for (digest,) in reversed(found)]


def pair_of(before: bytes, digest: bytes) -> bytes:
    """A message and the one before it, as one name."""
    return before + digest


KEPT_SECONDS = 60.0
_MOST_ANSWERS = 256
_HEADERS = ("x-holdfast-thread", "x-holdfast-memory", "x-holdfast-learn", "idempotency-key")


@dataclass
class _Entry:
    """One answer, or the work on it. `unheard`: nobody was there any more when it was ready."""

    work: asyncio.Future[Done]
    at: float
    unheard: bool = False


class Repeats:
    """The newest answers. Used on the server's loop alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    async def answered(self, key: str, again: bool, ask: Callable[[], Awaitable[Done]]) -> Done:
        """The answer to a request: that of its first try, if it is a repeat of one, else a new one. Leaving does not stop the work."""
        held = self._held(key, again)
        if held is None:
            held = self._put(key, asyncio.ensure_future(ask()))
        try:
            return await asyncio.shield(held.work)
        except asyncio.CancelledError:
            held.unheard = True
            raise

    def heard(self, key: str) -> Done | None:
        """The answer that is ready for a repeat of a request that was streamed."""
        held = self._held(key, True)
        return held.work.result() if held is not None and held.work.done() and held.work.exception() is None else None

    def keep(self, key: str, done: Done) -> None:
        """An answer that was streamed to its end."""
        work: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        work.set_result(done)
        self._put(key, work)

    def unheard(self, key: str) -> None:
        """The client had gone when its answer was ready."""
        if (held := self._entries.get(key)) is not None:
            held.unheard = True

    def _held(self, key: str, again: bool) -> _Entry | None:
        found = self._entries.get(key)
        if found is None or self._clock() - found.at > KEPT_SECONDS or not (again or found.unheard):
            return None
        if found.work.done() and (found.work.cancelled() or found.work.exception() is not None):
            return None  # it failed: the repeat is a new try
        found.unheard = False
        return found

    def _put(self, key: str, work: asyncio.Future[Done]) -> _Entry:
        entry = self._entries[key] = _Entry(work, self._clock())
        self._entries.move_to_end(key)
        work.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # who waits for it hears of it
        work.add_done_callback(lambda done: setattr(entry, "at", self._clock()))
        while len(self._entries) > _MOST_ANSWERS:
            self._entries.popitem(last=False)
        return entry


def key_of(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """What makes two requests the same."""
    said = [path, {name: headers.get(name) for name in _HEADERS}, dict(body)]
    return blake2b(json.dumps(said, sort_keys=True, ensure_ascii=False).encode("utf-8", "replace"), digest_size=20).hexdigest()


def is_again(headers: Mapping[str, str]) -> bool:
    """Whether the client says that this is a repeat."""
    count = headers.get("x-stainless-retry-count", "")
    return "idempotency-key" in headers or (count.isdecimal() and len(count) < 4 and int(count) > 0)
