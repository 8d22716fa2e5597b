"""O2: OpenTelemetry spans by the GenAI names: what stands below what, no words without leave, nothing where nobody traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.unit.agents.bench import is_subagent_call, lead, look, scripted

from holdfast.config.loading import config_from_values
from holdfast.harness import build
from holdfast.testing.script import Request, call
from holdfast.tracing import CAPTURE, below_request, span, tracing

SECRET = "sk-proj-Zq8vN2xW4yT6uR1pL9kJ3hG5fD7sA0bC"  # noqa: S105 - made up


class Trace:
    """The spans that have ended, as a tree."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def spans(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[Any]:
        return [one for one in self.spans if one.name == name]

    def path(self, found: Any) -> list[str]:
        """The names from the root down to a span."""
        by_id = {one.context.span_id: one for one in self.spans}
        names = [found.name]
        while found.parent is not None and found.parent.span_id in by_id:
            found = by_id[found.parent.span_id]
            names.insert(0, found.name)
        return names


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trace]:
    """Somebody traces, in this test alone."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.delenv(CAPTURE, raising=False)
    yield Trace(exporter)
    provider.shutdown()


def delegating(request: Request) -> Any:
    if is_subagent_call(request):
        return [call("look", {"what": "piers"})] if len(request.messages) == 2 else "There are four."
    if request.last.type == "tool":
        return "Four piers."
    return [call("task", {"description": "count piers", "prompt": f"Count them with {SECRET}."}, id="call-1")]


def test_a_sub_agent_stands_below_the_call_that_started_it(tmp_path: Path, traced: Trace) -> None:
    """O2, A6: lead > chat, execute_tool task > the sub-agent > its own calls; all in one trace."""
    with lead(tmp_path, scripted(delegating), tools=[look]) as agent:
        agent.conversation("t-1").ask("How many piers?")
    (inner,) = traced.named("execute_tool look")
    assert traced.path(inner) == ["invoke_agent lead", "execute_tool task", "invoke_agent general-purpose", "execute_tool look"]
    assert len({one.context.trace_id for one in traced.spans if one.name != "update_memory user"}) == 1, "memory learns in its own time"
    (root,) = traced.named("invoke_agent lead")
    about = dict(root.attributes)
    assert about["gen_ai.operation.name"] == "invoke_agent" and about["session.id"] == about["gen_ai.conversation.id"] == "t-1"
    assert about["openinference.span.kind"] == "AGENT" and about["holdfast.reason"] == "completed"
    chats = [one for one in traced.spans if one.name.startswith("chat ")]
    assert len(chats) == 4 and {traced.path(one)[-2] for one in chats} == {"invoke_agent lead", "invoke_agent general-purpose"}
    said = dict(chats[0].attributes)
    assert said["gen_ai.usage.input_tokens"] > 0 and said["llm.token_count.prompt"] == said["gen_ai.usage.input_tokens"]
    assert said["gen_ai.request.model"] and said["gen_ai.provider.name"] and said["openinference.span.kind"] == "LLM"
    tool = dict(inner.attributes)
    assert tool["gen_ai.tool.name"] == "look" and tool["openinference.span.kind"] == "TOOL" and tool["gen_ai.tool.call.id"]
    everything = json.dumps([dict(one.attributes) for one in traced.spans], default=str)
    assert "piers?" not in everything and SECRET not in everything


def test_words_are_in_spans_with_leave_alone_and_without_secrets(tmp_path: Path, traced: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """O2, M10"""
    monkeypatch.setenv(CAPTURE, "true")
    with lead(tmp_path, scripted(delegating), tools=[look]) as agent:
        agent.conversation("t-1").ask("How many piers?")
    chats = [dict(one.attributes) for one in traced.spans if one.name.startswith("chat ")]
    asked = next(json.loads(one["gen_ai.input.messages"]) for one in chats if "How many" in one["gen_ai.input.messages"])
    assert asked[0] == {"role": "user", "parts": [{"type": "text", "content": asked[0]["parts"][0]["content"]}]}
    assert any("Four piers." in one["gen_ai.output.messages"] for one in chats)
    (task,) = traced.named("execute_tool task")
    assert "Count them" in task.attributes["gen_ai.tool.call.arguments"] and "There are four" in task.attributes["gen_ai.tool.call.result"]
    assert SECRET not in json.dumps([dict(one.attributes) for one in traced.spans], default=str)


def test_a_compaction_and_what_is_learned_have_spans(tmp_path: Path, traced: Trace) -> None:
    """O2, S2, M4: how many messages left, tokens before and after, how; memory's update and search."""
    model = scripted(lambda request: "Noted.", profile={"max_input_tokens": 4_000})
    with lead(tmp_path, model, {"memory": {"enabled": True, "extractor": "rules"}}) as agent:
        talk = agent.conversation("t-1")
        talk.ask("I live in Rostock. " + "The harbour has four piers and a crane. " * 40)
        for _ in range(6):
            talk.ask("Go on about the harbour. " + "The harbour has four piers and a crane. " * 40)
        agent.parts.memory.flush()
        agent.parts.memory.search("where does the user live")
    made = traced.named("holdfast.compaction")
    about = dict(made[0].attributes)
    assert about["holdfast.compaction.tokens_before"] > about["holdfast.compaction.tokens_after"] > 0
    assert about["holdfast.compaction.messages"] > 0 and about["holdfast.compaction.how"] in ("model", "extract", "reference")
    assert traced.path(made[0])[0] == "invoke_agent lead"
    assert traced.named("update_memory user") and traced.named("search_memory user")[0].attributes["openinference.span.kind"] == "RETRIEVER"


def test_stages_stand_below_their_workflow(tmp_path: Path, traced: Trace) -> None:
    """O2, W: invoke_workflow > retrieval and a stage each; a stage that fails says so."""
    workflow = {
        "id": "harbour",
        "task": "What do the notes say? Notes: The harbour of Rostock has four piers. Pier four was built in 1998.",
        "stages": [{"name": "plan", "agent_type": "planner"}, {"name": "write", "agent_type": "writer"}],
    }
    file = tmp_path / "w.yaml"
    file.write_text(json.dumps(workflow))
    settings = config_from_values({"knowledge": {"embedder": "none"}}, environ={"HOLDFAST_HOME": str(tmp_path / "home")}, cwd=tmp_path)
    with build(settings) as harness:
        session = harness.run_workflow(file)
    assert session.status == "completed"
    (root,) = traced.named("invoke_workflow harbour")
    assert (
        root.parent is None and root.attributes["gen_ai.workflow.name"] == "harbour" and root.attributes["holdfast.status"] == "completed"
    )
    assert root.attributes["session.id"] == session.workflow_id
    for stage in ("plan", "write"):
        (found,) = traced.named(f"invoke_agent {stage}")
        assert traced.path(found) == ["invoke_workflow harbour", f"invoke_agent {stage}"] and found.attributes["holdfast.stage"] == stage
    assert any(one.name.startswith("retrieval ") and traced.path(one)[0] == root.name for one in traced.spans)

    def fails(request: Any) -> Any:
        raise ValueError(f"broken: {SECRET}")

    with build(settings) as harness:
        harness.run_workflow(file, agents={"planner": fails}, session_id="second")
    broken = [one for one in traced.named("invoke_agent plan") if one.attributes.get("error.type") == "ValueError"]
    assert broken and not broken[0].status.is_ok and SECRET not in broken[0].status.description


def test_a_request_names_the_span_that_its_work_stands_below(traced: Trace) -> None:
    """O2: W3C `traceparent`; what is none is nobody's."""
    trace_id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with below_request([(b"host", b"x"), (b"traceparent", f"00-{trace_id}-{parent}-01".encode())]), span("chat", "m", "LLM"):
        pass
    with below_request([(b"traceparent", b"nonsense")]), span("chat", "m", "LLM"):
        pass
    first, second = traced.spans
    assert f"{first.context.trace_id:032x}" == trace_id and f"{first.parent.span_id:016x}" == parent
    assert second.parent is None


def test_where_nobody_traces_nothing_is_made() -> None:
    """O2: one and the same silent span, and OpenTelemetry is not even imported."""
    assert not tracing()
    assert span("chat", "a", "LLM") is span("execute_tool", "b", "TOOL", {"gen_ai.tool.name": "b"})
    code = "import sys, holdfast.harness; from holdfast.tracing import span; span('a', 'b', 'LLM'); print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_command_sends_its_spans_where_the_environment_says(tmp_path: Path) -> None:
    """O2: the standard variables alone; a real collector's door on loopback."""
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = tmp_path / "w.yaml"
    file.write_text(json.dumps({"id": "harbour", "task": "t", "stages": [{"name": "plan", "agent_type": "planner"}]}))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        "HOLDFAST_HOME": str(tmp_path / "home"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "NO_PROXY": "127.0.0.1",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.app.main", "run", str(file)],
            env=environment,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    assert {path for path, _ in got} == {"/v1/traces"}
    sent = b"".join(body for _, body in got)
    for word in (b"invoke_workflow harbour", b"invoke_agent plan", b"gen_ai.workflow.name", b"holdfast"):
        assert word in sent
