"""What a model is asked follows from its trial; what it cannot do is done by extraction, and what is cut is no answer (A15, W9, W18)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from typer.testing import CliRunner

import holdfast
from holdfast.agents.middleware.model_calls import RepetitionMiddleware
from holdfast.app.commands.settings import models_app as app
from holdfast.models.abilities import FILE, TASKS, abilities_of
from holdfast.models.factory import create_chat_model, memory_model, settings_of, summary_model
from holdfast.models.local_model import filled_text
from holdfast.session.output import parse_output
from holdfast.testing.models import ScriptedModel
from holdfast.workflow.agent import ground_output
from holdfast.workflow.long_term_memory import records_of
from holdfast.workflow.workflow_file import parse_workflow

LOOP = "You can use these tools to search. " * 40
ALL = TASKS


@dataclass
class Small:
    """A server on loopback that answers like a small model. `say` gives the content and the reason for which it ended."""

    say: Callable[[dict[str, Any]], tuple[str, str]]
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def small() -> Iterator[Small]:
    made = Small(lambda request: (LOOP, "length"))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            made.requests.append(request)
            content, reason = made.say(request)
            if request.get("stream"):
                delta = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": reason}]}
                whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **delta}
                body = f"data: {json.dumps(whole)}\n\ndata: [DONE]\n\n"
                kind = "text/event-stream"
            else:
                choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": reason}
                body = json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
                kind = "application/json"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    made.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
    yield made
    http.shutdown()
    http.server_close()


@pytest.fixture
def file(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    for name in ("HOLDFAST_CONFIG", "HOLDFAST_MODEL"):
        monkeypatch.delenv(name, raising=False)
    model = {"name": "small", "use": "langchain_openai:ChatOpenAI", "model": "small", "base_url": small.url, "api_key": "none"}
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"models": [{**model, "max_input_tokens": 8000, "max_tokens": 2000}]}))
    return path


def test_a_trial_decides_what_a_model_is_asked_and_is_kept_for_its_settings(small: Small, file: Path, tmp_path: Path) -> None:
    """A15: it parrots and is cut, so it is asked for nothing; another temperature is another model; `can:` counts first."""
    config = holdfast.load_config(file)
    assert all(abilities_of(settings_of("small", config=config)).can(task) for task in ALL), "a guess, until it is tried"
    done = CliRunner().invoke(app, ["test", "small", "--config", str(file), "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["can"] == dict.fromkeys(ALL, False)
    assert (tmp_path / "home" / FILE).is_file()
    able = abilities_of(create_chat_model("small", config=config))
    assert [task for task in ALL if able.can(task)] == []
    assert summary_model(config) is None
    assert memory_model(config) is None
    shown = CliRunner().invoke(app, ["list", "--config", str(file), "--json"])
    assert json.loads(shown.stdout)["models"][0]["can"] == []
    assert json.loads(shown.stdout)["models"][0]["tried"] is True
    other = json.loads(file.read_text())
    other["models"][0]["temperature"] = 0.7
    file.write_text(json.dumps(other))
    assert abilities_of(settings_of("small", config=holdfast.load_config(file))).can("summary")
    del other["models"][0]["temperature"]
    other["models"][0]["can"] = {"summary": True}
    file.write_text(json.dumps(other))
    said = abilities_of(settings_of("small", config=holdfast.load_config(file)))
    assert said.can("summary")
    assert not said.can("extraction")


def test_a_server_that_fails_on_the_way_says_nothing_about_the_model(file: Path, tmp_path: Path) -> None:
    """A15: nothing is concluded, and nothing kept."""
    broken = json.loads(file.read_text())
    broken["models"][0]["base_url"] = "http://127.0.0.1:9/v1"
    broken["models"][0]["max_retries"] = 0
    file.write_text(json.dumps(broken))
    done = CliRunner().invoke(app, ["test", "small", "--config", str(file), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["kept"] is False
    assert not (tmp_path / "home" / FILE).exists()


_DOCUMENT = """# Trial of two queues

## Throughput

Osprey handled 41,000 messages a second in the trial. Harrow handled 18,500 messages a second in the same trial.

## Memory

Osprey used 5.8 GB of memory under full load. Harrow used 2.1 GB of memory under full load.
"""
_STAGES: list[dict[str, Any]] = [
    {"name": "plan", "agent_type": "planner"},
    {"name": "research", "agent_type": "researcher", "sources": {"folder": "docs"}},
    {"name": "report", "agent_type": "writer"},
]


def _run(file: Path, tmp_path: Path, *, config: bool, **more: Any) -> Any:
    (tmp_path / "docs").mkdir(exist_ok=True)
    (tmp_path / "docs" / "trial.md").write_text(_DOCUMENT)
    workflow = tmp_path / "w.yaml"
    task = "What is the throughput and the memory of Osprey and Harrow?"
    workflow.write_text(
        json.dumps({"id": "w", "task": task, "stages": [{**stage, "max_repairs": 0, "retries": 0, **more} for stage in _STAGES]})
    )
    with holdfast.build(holdfast.load_config(file) if config else holdfast.Config()) as harness:
        return harness.run_workflow(workflow, remember=False)


@pytest.mark.parametrize(
    "answers",
    [
        lambda request: (LOOP, "stop"),
        lambda request: ('{"summary": "The text compares the message queue systems Osprey, Harr', "length"),
    ],
    ids=["repeats itself", "is cut"],
)
def test_what_a_small_model_cannot_do_is_done_by_extraction_and_the_output_says_so(
    answers: Callable[[dict[str, Any]], tuple[str, str]], small: Small, file: Path, tmp_path: Path
) -> None:
    """A15, W18: every stage is there as without a model, no fragment of the model's is in the session."""
    small.say = answers
    session = _run(file, tmp_path, config=True)
    assert session.status == "completed", session.error
    assert small.requests, "it was asked"
    for name, output in session.stage_outputs.items():
        assert "small: the answer" in output.extra["without_model"], name
    report = session.stage_outputs["report"].data["report"] if isinstance(session.stage_outputs["report"].data, dict) else ""
    everything = json.dumps([report, *(finding.fact for output in session.stage_outputs.values() for finding in output.key_findings)])
    assert "5.8 GB" in everything
    assert 'Osprey, Harr"' not in everything
    assert "You can use these tools" not in everything


def test_a_model_that_failed_its_trial_is_not_asked_by_a_stage(small: Small, file: Path, tmp_path: Path) -> None:
    """A15: not even once."""
    CliRunner().invoke(app, ["test", "small", "--config", str(file)])
    small.requests.clear()
    with holdfast.build(holdfast.load_config(file)) as harness:
        assert set(harness.stage_agents()) <= {"coder", "discussion"}
    session = _run(file, tmp_path, config=True, model="small")
    assert session.status == "completed", session.error
    assert small.requests == []


def test_a_report_that_has_no_room_is_not_asked_for(small: Small, file: Path, tmp_path: Path) -> None:
    """A15: five hundred tokens are no report, whoever writes them."""
    settings = json.loads(file.read_text())
    settings["models"][0]["max_tokens"] = 500
    file.write_text(json.dumps(settings))
    session = _run(file, tmp_path, config=True)
    assert "a report needs 1,000" in session.stage_outputs["report"].extra["without_model"]


def test_a_cut_answer_of_a_provider_is_told_and_not_accepted() -> None:
    """A15, W4: where no extraction was asked for, the stage halts with what to change."""
    message = AIMessage('{"summary": "half', response_metadata={"finish_reason": "length"})
    from holdfast.agents.stages.stage_agents import stage_agents

    agents = stage_agents(holdfast.Config(), model=ScriptedModel([message, message]))
    stage = {"name": "a", "agent_type": "llm", "max_repairs": 0, "retries": 0}
    session = holdfast.run_workflow({"id": "w", "task": "t", "stages": [stage]}, agents=agents, config={})
    assert session.status == "halted"
    assert "was cut at the limit of its tokens" in str(session.error)


def test_a_text_that_fills_its_bound_is_found() -> None:
    """A15: the grammar closes the quotation marks; what it closed is no answer."""
    item = {"type": "object", "properties": {"fact": {"type": "string", "maxLength": 40}}}
    schema = {"type": "object", "properties": {"list": {"type": "array", "items": item}, "word": {"type": "string"}}}
    assert (
        filled_text({"list": [{"fact": "short"}, {"fact": "Osprey used 5.8 GB of memory under full l"[:40]}], "word": "x" * 500}, schema)
        == "list[1].fact"
    )
    assert filled_text({"list": [{"fact": "short"}], "word": "x"}, schema) is None
    assert filled_text("DE", {"type": "string", "maxLength": 2}) is None, "a code is as long as it is asked for"


def _session_with(findings: list[dict[str, Any]], confidence: str = "high", summary: str = "Osprey is best.") -> Any:
    output = parse_output({"stage_name": "a", "summary": summary, "key_findings": findings, "confidence": confidence}, stage="a")
    checked, _ = ground_output(output, {"s": "Osprey used 5.8 GB of memory."}.get)
    workflow = parse_workflow({"id": "w", "task": "t", "stages": [{"name": "a"}]})
    session = holdfast.run_workflow(workflow, agents={"llm": lambda request: checked}, config={}, session_id=None)
    return checked, workflow, session


def test_what_is_not_in_its_source_is_neither_stored_nor_sure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W9, A15: most findings invented makes low confidence, and a summary that stands on nothing is no knowledge."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    invented = [
        {"fact": "Osprey costs 900 euros.", "source": "s"},
        {"fact": "Harrow is from 1999.", "source": "https://www.britannica.com/un"},
    ]
    checked, workflow, session = _session_with(invented)
    assert checked.confidence == "low"
    assert records_of(workflow, session) == []
    checked, workflow, session = _session_with([{"fact": "Osprey used 5.8 GB of memory.", "source": "s"}])
    assert checked.confidence == "high"
    assert {record.kind for record in records_of(workflow, session)} == {"summary", "finding"}


def test_the_lead_agent_keeps_an_answer_that_repeats_itself_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A15: neither the user nor the next call reads it again."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    model = ScriptedModel([LOOP, "Fine."], profile={"max_input_tokens": 16_000})
    with holdfast.build(holdfast.Config()) as harness:
        talk = harness.conversation("t", model=model)
        first = talk.ask("What can you do?")
        talk.close()
    assert first.count("You can use these tools") == 1
    assert "over and over" in first


def test_an_answer_that_repeats_itself_is_cut_also_where_the_history_was_just_compacted(tmp_path: Path) -> None:
    """A15, S4: the step that replaces the history keeps the short answer, in what is shown and in what is stored."""
    model = ScriptedModel([LOOP] * 8, profile={"max_input_tokens": 4_000})
    compacting = holdfast.SummarizationMiddleware(
        model, summarizer=ScriptedModel(["Parts."] * 8), trigger=("messages", 8), keep=("messages", 2)
    )
    agent = create_agent(model, middleware=[RepetitionMiddleware(), compacting], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    lengths = []
    for number in range(8):
        messages = agent.invoke({"messages": [HumanMessage(f"Part {number}.")]}, config)["messages"]
        lengths.append(len(messages))
        assert {message.text.count("You can use these tools") for message in messages if message.type == "ai"} == {1}
    assert lengths != sorted(lengths), "it was compacted"
