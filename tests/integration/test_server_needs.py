"""O2, O3, O4, A6: what the library gives a server. Whose work an event tells of, the window of any call, sessions that others follow."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.bench import configured, is_subagent_call, lead, look, scripted
from tests.unit.workflow.support import Agent, Place, linear, output

from holdfast import build, errors, events
from holdfast.context.call_log import CallLog
from holdfast.errors import InputError, Locked, NotThere, StorageError
from holdfast.events import Bus, Event, LogSink, Scope, TokenCount, within
from holdfast.talk import Ended
from holdfast.testing.script import Request, call, delay
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.control import approve
from holdfast.workflow.events import SessionJournal
from holdfast.workflow.launcher import Launcher
from holdfast.workflow.run_settings import file_sessions


def test_an_event_knows_within_what_it_was_emitted() -> None:
    """O2: beside what its own fields say; two events with the same fields are the same event."""
    bus = Bus()
    with bus.collect() as seen:
        with within(thread="t1", run="r1"), within(subagent="s1"):
            bus.emit(TokenCount(tokens=1, window=2))
            bus.emit(events.UpdateStarted(thread="other"))
        bus.emit(TokenCount(tokens=1, window=2))
    assert [event.scope for event in seen] == [
        Scope(thread="t1", run="r1", subagent="s1"),
        Scope(thread="other", run="r1", subagent="s1"),
        Scope(),
    ]
    assert seen[0] == seen[2]
    told = events.envelope_of(seen[0], "7")
    assert told["scope"] == {"thread": "t1", "run": "r1", "subagent": "s1"}
    assert (told["id"], told["kind"], told["data"]) == ("7", "token_count", {"tokens": 1, "window": 2})
    assert told["at"].startswith("20")


def test_a_sink_that_says_what_it_wants_leaves_the_quiet_way_open() -> None:
    """S4, O4"""

    class Watcher:
        def __init__(self) -> None:
            self.watched: set[str] = set()

        def wants(self, kind: type[Event]) -> bool:
            return kind.kind() in self.watched

        def __call__(self, event: Event) -> None:
            """Nothing is done with it."""

    logging.getLogger("holdfast.SummarizationMiddleware").setLevel(logging.WARNING)
    watcher = Watcher()
    bus = Bus(LogSink(), watcher)
    try:
        assert not bus.wants(TokenCount)
        watcher.watched.add("token_count")
        assert bus.wants(TokenCount)
        assert Bus(print).wants(TokenCount), "who cannot say it is told everything"
    finally:
        logging.getLogger("holdfast.SummarizationMiddleware").setLevel(logging.NOTSET)


def test_events_of_window_memory_and_subagents_say_whose_they_are(tmp_path: Path) -> None:
    """A6, O2"""

    def answers(request: Request) -> Any:
        if is_subagent_call(request):
            return "found"
        return [call("task", {"description": "look around", "prompt": "look"})] if len(request.messages) == 2 else "Done."

    bus = Bus()
    with bus.collect() as seen, lead(tmp_path, scripted(answers), bus=bus) as agent:
        end = list(agent.conversation("t").send("My name is Ada and I like tea."))[-1]
        agent.parts.memory.flush()
    assert isinstance(end, Ended)
    counts = [event.scope for event in seen if isinstance(event, TokenCount)]
    assert {scope.thread for scope in counts if scope.subagent is None} == {"t"}
    assert {scope.run for scope in counts} == {end.run}
    started = next(event for event in seen if isinstance(event, events.TaskStarted))
    assert started.scope.run == end.run
    assert started.scope.thread and started.scope.thread.startswith("subagent-")
    assert started.scope.subagent and started.scope.agent == "general-purpose"
    assert [scope for scope in counts if scope.subagent == started.scope.subagent], "its own window too"
    learned = [event.scope.thread for event in seen if isinstance(event, events.FactsExtracted | events.MemoryPersisted)]
    assert learned and set(learned) == {"t"}


def test_the_events_of_a_stage_say_which_it_is(tmp_path: Path) -> None:
    """O2: also what an agent emits itself, in stages side by side."""
    bus = Bus()

    def speaking(request: StageRequest) -> object:
        bus.emit(TokenCount(tokens=1, window=2))
        return output(request.stage.name)

    place = Place(tmp_path, Agent({name: [speaking] for name in ("one", "two")}))
    workflow = linear("one", "two")
    workflow["stages"][0]["needs"] = workflow["stages"][1]["needs"] = []
    with bus.collect() as seen:
        place.run(workflow, bus=bus)
    scopes = {event.scope.stage: event.scope for event in seen if isinstance(event, TokenCount)}
    assert set(scopes) == {"one", "two"}
    assert {scope.session for scope in scopes.values()} == {"s1"}


def test_the_window_of_any_call_is_kept_with_the_origin_of_each_part(tmp_path: Path) -> None:
    """O4: over compactions and after a restart, without a word of the conversation."""
    skill = tmp_path / "skills" / "tidy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: tidy\ndescription: Tidies up folders.\n---\nDo it.\n")
    words = "The harbour of Rostock has four piers. " * 100
    for turns in (range(6), range(6, 12)):
        with lead(tmp_path, scripted(lambda request: "Noted.")) as agent:
            if turns[0] == 0:
                agent.parts.memory.add("User likes green tea")
            for number in turns:
                end = list(agent.conversation("t").send(f"{number}: {words}"))[-1]
            sent = agent.conversation("t").sent()
    calls = CallLog(tmp_path).calls("t")
    assert [one.number for one in calls] == list(range(1, 13))
    last = calls[-1]
    assert isinstance(end, Ended) and last.run == end.run
    assert sent is not None and last.tokens == sent.tokens
    assert [part.origin for part in last.parts] == [part.origin for part in sent.parts]
    origins = {part.origin for part in calls[0].parts}
    assert {"system", "skills", "memory", "date", "tools", "conversation"} <= origins
    assert {part.origin for part in last.parts} >= {"summary"}, "the window was compacted"
    assert any(one.left for one in calls)
    assert all(one.tokens <= one.cap <= one.window == 8_000 for one in calls)
    assert all(one.usage["input_tokens"] > 0 for one in calls)
    kept = (tmp_path / "threads" / "t" / "calls.ndjson").read_text()
    assert "Rostock" not in kept and "green tea" not in kept
    with pytest.raises(NotThere):
        CallLog(tmp_path).call("t", 99)


async def test_who_leaves_in_the_moment_a_turn_begins_leaves_no_turn_behind(tmp_path: Path) -> None:
    """A13: the caller is cancelled at every early moment; the thread is free at once, and nothing is answered in it."""
    with lead(tmp_path, scripted(lambda request: delay(60, "Too late."))) as agent:
        for ticks in range(12):
            talk = agent.conversation(f"t{ticks}")

            async def listen(talk: Any = talk) -> None:
                async for _ in talk.asend("Hello"):
                    pass

            task = asyncio.create_task(listen())
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            task.cancel()  # as a server does that wants to be rid of it
            await asyncio.gather(task, return_exceptions=True)
            while True:  # what was asked to stop is on its way
                try:
                    with talk._turns.alone():
                        break
                except Locked:
                    await asyncio.sleep(0.01)
        said = [message.text for number in range(12) for message in agent.conversation(f"t{number}").messages]
    assert "Too late." not in said


def test_a_session_is_created_without_being_run(tmp_path: Path) -> None:
    """W1, W6: somebody else may run it later."""
    agent, store = Agent(), file_sessions(tmp_path / "sessions")
    launcher = Launcher(config={}, store=store, agents={"x": agent})
    made = launcher.create(linear("one", "two"), parameters={"region": "eu"})
    assert (made.status, agent.ran, store.owner(made.workflow_id)) == ("ready", [], None)
    with pytest.raises(InputError):
        launcher.create({"id": "demo", "stages": [{"name": "a", "agent_type": "x"}]})
    done = Launcher(config={}, store=store, agents={"x": agent}).resume(made.workflow_id, as_started=True)
    assert (done.status, agent.ran) == ("completed", ["one", "two"])
    assert done.configuration["parameters"] == {"region": "eu"}


def test_what_is_not_there_is_told_apart_from_what_is_wrong(tmp_path: Path) -> None:
    """O3"""
    with build(configured(tmp_path)) as harness:
        for missing in (
            lambda: harness.sessions.load("no-such-session"),
            lambda: harness.memory.edit("fact_nothing", content="x"),
            lambda: harness.memory.forget("fact_nothing"),
            lambda: harness.memory.accept("held_nothing"),
            lambda: harness.skills.switch("nothing", enabled=True),
        ):
            with pytest.raises(NotThere):
                missing()


def test_errors_for_outside_name_no_path_and_no_secret(tmp_path: Path) -> None:
    """C3, O3"""
    secret = "sk-proj-9fK2mQ7xT4vB8nL1cR6wZ3yD5hJ0pS"  # noqa: S105 - made up
    for error in (
        StorageError(f"{tmp_path}/memory.json cannot be read.", path=tmp_path),
        Locked(f"{tmp_path}/turn.lock is held.", path=tmp_path),
        errors.InputError(f"the file {tmp_path}/a.yaml has no `id`: api_key={secret}"),
        errors.ModelUnavailable(f"there is no file {tmp_path / 'model.gguf'}."),
    ):
        assert str(tmp_path) not in error.public
        assert secret not in error.public
        assert error.public.strip()


def test_a_session_can_be_followed_by_somebody_else_while_it_runs(tmp_path: Path) -> None:
    """O4, W6: numbers only grow, also over a resume, and a reader goes on from where it was."""
    with build(configured(tmp_path)) as harness:
        workflow = linear("one", "two")
        workflow["stages"][0]["approve"] = True
        seen: list[Any] = []

        def watching(request: StageRequest) -> object:
            with build(configured(tmp_path)) as other:
                seen.extend(SessionJournal(other.sessions, request.session_id).read().events)
            return output(request.stage.name)

        agent = Agent({"two": [watching]})
        paused = harness.run_workflow(workflow, agents={"x": agent}, session_id="s1")
        assert paused.status == "paused"
        page = SessionJournal(harness.sessions, "s1").read()
        approve(harness.sessions, "s1")
        done = harness.resume("s1", agents={"x": agent}, as_started=True)
        assert done.status == "completed"
        later = SessionJournal(harness.sessions, "s1").read(page.place)
        everything = SessionJournal(harness.sessions, "s1").read().events
    assert everything == (*page.events, *later.events)
    assert [int(event["id"]) for event in everything] == list(range(1, len(everything) + 1))
    kinds = [event["kind"] for event in everything]
    assert kinds[0] == "session_started" and kinds[-1] == "session_ended"
    assert "stage_waiting" in kinds and "session_resumed" in kinds
    assert [event["kind"] for event in seen][-1] == "stage_started", "it was seen while the stage ran"
    assert all(event["scope"]["session"] == "s1" for event in everything)


async def test_a_subagent_stands_below_its_parent_in_a_trace(tmp_path: Path) -> None:
    """O2"""
    trace = pytest.importorskip("opentelemetry.trace")
    found: dict[str, Any] = {}

    def answers(request: Request) -> Any:
        found["subagent" if is_subagent_call(request) else "lead"] = trace.get_current_span()
        if is_subagent_call(request):
            return "found"
        return [call("task", {"description": "look around", "prompt": "look"})] if len(request.messages) == 2 else "Done."

    span = trace.NonRecordingSpan(trace.SpanContext(trace_id=7, span_id=8, is_remote=False))
    with lead(tmp_path, scripted(answers), tools=[look]) as agent, trace.use_span(span):
        events = [event async for event in agent.conversation("t").asend("Go")]
    assert isinstance(events[-1], Ended)
    assert found["lead"] is span
    assert found["subagent"] is span
