"""What happens, as OpenTelemetry spans by the GenAI names (O2): `invoke_workflow` > `invoke_agent` > `chat`, `execute_tool`, and so on.

    with span("chat", "gpt-5", "LLM", {"gen_ai.request.model": "gpt-5"}) as traced:
        ...
        traced.set({"gen_ai.usage.output_tokens": 7})

Through OpenTelemetry's API alone: where no SDK is set up nothing is made, and it costs next to nothing. Whose work a span tells of is the
scope of the event bus. Texts are in spans only with `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true`, and without secrets.
`set_up_tracing` sets up the SDK's exporter for a program of ours, by the standard `OTEL_*` variables.
"""

from __future__ import annotations

import contextvars
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from holdfast.events import current_scope
from holdfast.redaction import redact_text

Kind = Literal["LLM", "TOOL", "AGENT", "CHAIN", "RETRIEVER"]
"""OpenInference's name of the kind, by which Phoenix draws it."""
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_NOTHING = frozenset({"ProxyTracerProvider", "NoOpTracerProvider"})
_NO_ERROR = frozenset({"CancelledError", "GeneratorExit", "GraphInterrupt", "GraphBubbleUp", "ParentCommand"})
"""How work is left off rather than failed."""
_LONGEST = 20_000


class Traced:
    """A span while it lasts; this one is nobody's, and does nothing."""

    recording = False

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes. Those that are None are left out."""

    def __enter__(self) -> Traced:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """It is over."""


_SILENT = Traced()


class _Recorded(Traced):
    """A span of OpenTelemetry. `current`: what begins inside of it stands below it."""

    recording = True

    def __init__(self, made: Any, current: bool) -> None:
        self._span, self._current = made, current
        self._token: Any = None

    def set(self, attributes: Mapping[str, Any]) -> None:
        self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def __enter__(self) -> Traced:
        if self._current:
            api = sys.modules["opentelemetry.trace"]
            self._token = sys.modules["opentelemetry.context"].attach(api.set_span_in_context(self._span))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._token is not None:
            sys.modules["opentelemetry.context"].detach(self._token)
        if error is not None and type(error).__name__ not in _NO_ERROR:
            api = sys.modules["opentelemetry.trace"]
            self._span.set_attribute("error.type", type(error).__qualname__)
            self._span.set_status(api.Status(api.StatusCode.ERROR, redact_text(str(error))[:1_000]))
        self._span.end()


@dataclass(frozen=True)
class Finished:
    """A span that is over, for who counts: the same facts as in a trace."""

    operation: str
    attributes: Mapping[str, Any]
    seconds: float
    error: str | None


_watchers: list[Callable[[Finished], None]] = []


def watch_spans(watcher: Callable[[Finished], None]) -> Callable[[], None]:
    """Call it with every span that ends, in the thread in which it ends, whether anybody traces or not. Gives what ends that."""
    _watchers.append(watcher)
    return lambda: _watchers.remove(watcher)


class _Watched(Traced):
    """A span that somebody counts, around the one that is traced."""

    recording = True

    def __init__(self, inner: Traced, operation: str, attributes: Mapping[str, Any]) -> None:
        self._inner, self._operation, self._found = inner, operation, dict(attributes)
        self._began = 0.0

    def set(self, attributes: Mapping[str, Any]) -> None:
        self._inner.set(attributes)
        self._found.update(attributes)

    def __enter__(self) -> Traced:
        self._began = time.perf_counter()
        self._inner.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._inner.__exit__(kind, error, trace)
        done = Finished(
            self._operation, self._found, time.perf_counter() - self._began, type(error).__name__ if error is not None else None
        )
        for watcher in tuple(_watchers):
            watcher(done)


_tracers: dict[int, tuple[Any, Any]] = {}


def _tracer() -> Any:
    """The tracer of the provider that is set; None where nobody traces."""
    api: Any = sys.modules.get("opentelemetry.trace")  # who traces has imported it
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if type(provider).__name__ in _NOTHING:
        return None
    held = _tracers.get(id(provider))
    if held is None or held[0] is not provider:
        _tracers.clear()
        held = _tracers[id(provider)] = (provider, provider.get_tracer("holdfast"))
    return held[1]


def span(operation: str, target: str, kind: Kind, attributes: Mapping[str, Any] | None = None, *, current: bool = True) -> Traced:
    """A span `{operation} {target}`, to be entered. Not `current`, it may be left in another thread than it was entered in."""
    tracer = _tracer()
    if tracer is None and not _watchers:
        return _SILENT
    scope = current_scope()
    named = {
        "gen_ai.operation.name": operation,
        "openinference.span.kind": kind,
        "session.id": scope.thread or scope.session,
        "gen_ai.conversation.id": scope.thread,
        "gen_ai.agent.name": scope.agent,
        "holdfast.run": scope.run,
        "holdfast.session": scope.session,
        "holdfast.stage": scope.stage,
        "holdfast.subagent": scope.subagent,
        **(attributes or {}),
    }
    found = {name: value for name, value in named.items() if value is not None}
    made = _SILENT if tracer is None else _Recorded(tracer.start_span(f"{operation} {target}".strip(), attributes=found), current)
    return _Watched(made, operation, found) if _watchers else made


def tracing() -> bool:
    """Whether anybody records or counts spans: who has to work something out for one asks first."""
    return bool(_watchers) or _tracer() is not None


def recording() -> bool:
    """Whether anybody records spans, and does not only count them."""
    return _tracer() is not None


def captures() -> bool:
    """Whether texts may be in spans."""
    return os.environ.get(CAPTURE, "").strip().lower() == "true"


def shown(text: str) -> str:
    """A text as it may stand in a span."""
    return redact_text(text)[:_LONGEST]


def asked_about(question: str) -> dict[str, Any]:
    """What was looked for, where it may be told."""
    return {"gen_ai.retrieval.query.text": shown(question)} if captures() and _tracer() is not None else {}


def bare_context() -> contextvars.Context:
    """An empty context, but for the span that is current here: what runs in it stands below that one in a trace."""
    empty = contextvars.Context()
    context: Any = sys.modules.get("opentelemetry.context")
    if context is not None:
        empty.run(context.attach, context.get_current())
    return empty


@contextmanager
def below_request(headers: Sequence[tuple[bytes, bytes]]) -> Iterator[None]:
    """Inside of the block spans stand below the one that a request names in its `traceparent` (W3C)."""
    carried = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in (b"traceparent", b"tracestate")}
    if "traceparent" not in carried or _tracer() is None:
        yield
        return
    from opentelemetry import context
    from opentelemetry.propagate import extract

    token = context.attach(extract(carried))
    try:
        yield
    finally:
        context.detach(token)


def set_up_tracing(environ: Mapping[str, str] | None = None) -> bool:
    """Send spans to where the standard variables say, if they say so and nobody has set up another way. Gives whether they are sent now."""
    env = os.environ if environ is None else environ
    if not any(env.get(name) for name in _ENDPOINTS) or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if env.get("OTEL_TRACES_EXPORTER", "otlp") == "none" or _tracer() is not None:
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _exporter(next((env[name] for name in _PROTOCOLS if env.get(name)), "http/protobuf"))
    except ModuleNotFoundError as error:
        logging.getLogger("holdfast.tracing").warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but %s is not installed: nothing is traced. `pip install 'holdfast[tracing]'`.", error.name
        )
        return False
    provider = TracerProvider(resource=Resource.create({"service.name": env.get("OTEL_SERVICE_NAME") or "holdfast"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)  # flushed and closed by the SDK when the process ends
    return True


def _exporter(protocol: str) -> Any:
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        return OverGrpc()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
