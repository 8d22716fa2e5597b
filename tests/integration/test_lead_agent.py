"""A1, A13, A14, S16, S17, T5: the lead agent and conversations with it, on a scripted model."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from tests.unit.agents.bench import configured, lead, look, make, scripted, whole

import holdfast
from holdfast import build
from holdfast.agents.threads import with_window
from holdfast.clock import stamp
from holdfast.context.call_log import CallLog
from holdfast.errors import ConfigError, InputError, LimitExceeded, Locked, ModelError
from holdfast.events import Bus
from holdfast.talk import ApprovalNeeded, Decision, Ended, Token, ToolCalled, ToolFinished, as_dict
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import call, delay, raises, repeat, reply


def ended(events: list[Any]) -> Ended:
    end = events[-1]
    assert isinstance(end, Ended)
    return end


@tool
def explode(how: str) -> str:
    """Fails."""
    raise RuntimeError(f"{how}: api_key=sk-proj-9fK2mQ7xT4vB8nL1cR6wZ3yD5hJ0pS")


def test_the_middlewares_are_in_their_order(tmp_path: Path) -> None:
    """S16"""
    with lead(tmp_path, scripted(["ok"]), {"sandbox": {"approve": ["look"]}}) as agent:
        names = [type(one).__name__ for one in agent.assembled.middlewares]
    order = ["ThreadDataMiddleware", "MemoryMiddleware", "SummarizationMiddleware", "TitleMiddleware", "ClarificationMiddleware"]
    assert [name for name in names if name in order] == order
    assert names.index("AccountingMiddleware") < names.index("SummarizationMiddleware"), "a summary is charged to the run"
    assert names.index("ToolOutputMiddleware") < names.index("ToolErrorMiddleware"), "what went wrong is bounded too"
    assert names.index("BrokenCallsMiddleware") < names.index("ApprovalMiddleware"), "nobody is asked about half of a call (A10)"
    assert names[-6:] == [*order[-3:], "PlainTextMiddleware", "WholeCallsMiddleware", "TracingMiddleware"], (
        "spans are of what is really sent (O2)"
    )


def test_a_tool_that_the_reference_denies_is_neither_offered_nor_run(tmp_path: Path) -> None:
    """C2, A10: `denied_tools` of its AllowlistProvider, whoever offers the tool."""
    provider = {"use": "deerflow.guardrails.builtin:AllowlistProvider", "config": {"denied_tools": ["look", "task", "write_todos"]}}
    todos = {"todos": [{"content": "pack", "status": "pending"}]}
    model = scripted([[call("look", {"what": "here"}), call("write_todos", todos)], "ok"])
    with lead(tmp_path, model, {"guardrails": {"enabled": True, "provider": provider}}) as agent:
        agent.conversation("t").ask("Hello")
    assert not {"look", "task"} & set(model.requests[0].tool_names)
    said = [message.text for message in model.requests[1].messages if isinstance(message, ToolMessage)]
    assert len(said) == 2 and "the configuration forbids this tool" in said[-1]


def test_the_prompt_has_base_skills_memory_and_date(tmp_path: Path) -> None:
    """A1, A12, M12"""
    skill = tmp_path / "skills" / "tidy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: tidy\ndescription: Tidies up folders.\n---\nDo it.\n")
    model = scripted(["ok"])
    with lead(tmp_path, model) as agent:
        agent.parts.memory.add("User likes short answers")
        agent.conversation("t").ask("Hello")
    system = model.requests[0].system
    assert system.startswith("You are Holdfast")
    for part in ("<skills>", "tidy", "<memory>", "likes short answers", "Today is ", "general-purpose"):
        assert part in system
    assert {"look", "task", "ask_clarification", "write_todos"} <= set(model.requests[0].tool_names)
    assert not {"search_history", "read_history"} & set(model.requests[0].tool_names), "nothing has left the window yet"


def test_between_two_compactions_the_prefix_of_every_request_stays_the_same(tmp_path: Path) -> None:
    """S19: also when something is learned, a list is written and a title is made meanwhile."""
    todos = {"todos": [{"content": "pack", "status": "pending"}]}
    model = scripted(lambda r: [call("write_todos", todos)] if r.last.text.endswith("Question 2") else "ok")
    with lead(tmp_path, model) as agent:
        for number in range(6):
            agent.conversation("t").ask(f"Question {number}")
            agent.parts.memory.add(f"User has the number {number}")
    forms = [[message.model_dump_json(exclude={"usage_metadata"}) for message in request.messages] for request in model.requests]
    assert len(forms) == 7
    for before, after in pairwise(forms):
        assert after[: len(before)] == before
    assert "has the number 4" in forms[-1][-1], "what was learned rides on the newest message"


def test_a_tool_that_fails_tells_the_model_and_never_ends_the_run(tmp_path: Path) -> None:
    """A1"""
    model = scripted([[call("explode", {"how": "loudly"}), call("look", {"what": "x"}), call("nothing_such")], "I see."])
    with lead(tmp_path, model, tools=[look, explode]) as agent:
        assert agent.conversation("t").ask("Go") == "I see."
    told = [message for message in model.requests[1].messages if isinstance(message, ToolMessage)]
    assert [message.status for message in told] == ["error", "success", "error"]
    assert "RuntimeError: loudly" in told[0].text
    assert "9fK2mQ7x" not in told[0].text, "no secret on the way"


def test_a_tool_that_fails_does_not_end_a_sync_run_of_the_graph_itself(tmp_path: Path) -> None:
    """A1"""
    model = scripted([[call("explode", {"how": "loudly"})], "I see."])
    with lead(tmp_path, model, tools=[explode]) as agent:
        given: Any = {"messages": [{"role": "user", "content": "Go"}]}
        config: Any = {"configurable": {"thread_id": "t"}}
        done = agent.graph.invoke(given, config, durability="sync")
    assert [message.text for message in done["messages"]][-1] == "I see."


def test_a_model_that_repeats_itself_is_warned_and_then_stopped(tmp_path: Path) -> None:
    """A1"""
    model = scripted([repeat([call("look", {"what": "the same"})])])
    with lead(tmp_path, model) as agent:
        end = ended(list(agent.conversation("t").send("Go")))
        messages = agent.conversation("t").messages
    assert end.reason == "loop"
    assert "look was called 5 times" in end.text
    assert len(model.requests) == 5
    warned = [message for message in messages if isinstance(message, ToolMessage) and "same arguments" in message.text]
    assert len(warned) == 3


def test_a_turn_without_end_is_stopped_with_everything_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A1: our own limit, not LangGraph's of 9,999 steps."""
    monkeypatch.setattr("holdfast.agents.conversation.MOST_CALLS", 8)
    model = scripted(lambda request: [call("look", {"what": str(len(request.messages))})])
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        assert ended(list(talk.send("Go"))).reason == "turn_capped"
        assert len(talk.messages) >= 16
        model.script._every = lambda request: "fine"
        assert talk.ask("Enough") == "fine"
    assert whole(model.requests[-1].messages[1:])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_tokens_calls_and_results_are_streamed(tmp_path: Path, asynchronous: bool) -> None:
    """A14"""
    model = scripted([reply("Let me see. ", call("look", {"what": "x"}, id="c1")), "It is as it was."])
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")

        async def heard() -> list[Any]:
            return [event async for event in talk.asend("Look")]

        events = asyncio.run(heard()) if asynchronous else list(talk.send("Look"))
    assert "".join(event.text for event in events if isinstance(event, Token)) == "Let me see. It is as it was."
    assert sum(isinstance(event, Token) for event in events) > 4, "piece by piece"
    assert [event for event in events if isinstance(event, ToolCalled)] == [ToolCalled("c1", "look", {"what": "x"})]
    done = next(event for event in events if isinstance(event, ToolFinished))
    assert (done.id, done.status) == ("c1", "success")
    assert ended(events).reason == "completed"
    assert as_dict(events[-1])["type"] == "ended"


def test_a_question_ends_the_turn_and_the_answer_continues_it(tmp_path: Path) -> None:
    """A13"""
    ask = call("ask_clarification", {"question": "Which city?", "options": ["Ghent", "Bruges"]})
    model = scripted([[call("look", {"what": "map"}), ask], "To Ghent, then."])
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        events = list(talk.send("Book a train"))
        assert ended(events).reason == "clarification"
        assert ended(events).text == "Which city?\n1. Ghent\n2. Bruges"
        asked = len(model.requests)
        assert asked == 1, "the model is not asked again before the user has answered"
        assert talk.ask("Ghent") == "To Ghent, then."
    sent = model.requests[1]
    assert whole(sent.messages[1:])
    assert sent.last.text == "Ghent"


class TestApproval:
    """A10, A13: approve, reject, edit, after a restart as well."""

    def script(self) -> Any:
        return scripted(
            lambda r: (
                [call("look", {"what": "door"}, id="c1"), call("make", {"name": "a"}, id="c2")]
                if r.last.type == "human"
                else str(r.last.content)
            )
        )

    def settings(self) -> dict[str, Any]:
        return {"sandbox": {"approve": ["look"]}}

    def waiting(self, base: Path) -> str:
        with lead(base, self.script(), self.settings(), [look, make]) as agent:
            events = list(agent.conversation("t").send("Look at the door"))
            assert ended(events).reason == "approval"
            asked = next(event for event in events if isinstance(event, ApprovalNeeded)).approvals
            assert [(one.tool, one.args) for one in asked] == [("look", {"what": "door"})]
            return asked[0].id

    @pytest.mark.parametrize(
        ("decision", "result"),
        [
            (Decision("approve"), "Seen for door: it is as it was."),
            (Decision("reject", "not now"), "Not run: the user did not approve this call. They said: not now"),
            (
                Decision("edit", args={"what": "window"}),
                "[The user changed the arguments before this ran. It ran with these, and not with those of the call: "
                '{"what": "window"}]\nSeen for window: it is as it was.',
            ),
            (Decision("edit", args={"what": "door"}), "Seen for door: it is as it was."),
        ],
    )
    def test_it_is_decided_after_a_restart(self, tmp_path: Path, decision: Decision, result: str) -> None:
        id = self.waiting(tmp_path)
        with lead(tmp_path, self.script(), self.settings(), [look, make]) as agent:
            talk = agent.conversation("t")
            assert talk.interrupted
            assert [one.id for one in talk.approvals()] == [id]
            events = list(talk.decide({id: decision}))
            assert ended(events).reason == "completed"
            messages = talk.messages
            assert whole(messages)
            assert next(m.text for m in messages if isinstance(m, ToolMessage) and m.name == "look") == result
            assert talk.state["artifacts"] == ["a"], "what did not have to wait was done meanwhile, once"

    def test_who_only_reads_the_thread_meanwhile_is_warned_of_nothing(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A14: calls that wait, or were cut off by a death, belong to a node that the reader need not run."""
        self.waiting(tmp_path)
        with lead(tmp_path, self.script(), self.settings(), [look, make]) as agent:
            read, known = agent.parts.threads.window("t"), agent.conversation("t").messages
        assert [message.id for message in read] == [message.id for message in known]
        assert "pending sends" not in caplog.text

    def test_a_new_message_instead_is_a_no(self, tmp_path: Path) -> None:
        self.waiting(tmp_path)
        model = self.script()
        with lead(tmp_path, model, self.settings(), [look, make]) as agent:
            model.script._every = lambda request: "As you like."
            talk = agent.conversation("t")
            assert talk.ask("Forget it") == "As you like."
            assert not talk.interrupted
        sent = model.requests[0].messages[1:]
        assert whole(sent)
        assert {m.tool_call_id: m.text for m in sent if isinstance(m, ToolMessage)} == {
            "c1": "Not run: the user wrote a new message instead of approving this.",
            "c2": "Made a.",
        }

    def test_decisions_are_checked(self, tmp_path: Path) -> None:
        self.waiting(tmp_path)
        with lead(tmp_path, self.script(), self.settings(), [look, make]) as agent:
            with pytest.raises(InputError, match="waits"):
                list(agent.conversation("t").decide({"other": Decision("approve")}))
            with pytest.raises(InputError):
                Decision("maybe")  # type: ignore[arg-type]
            with pytest.raises(InputError, match="no call"):
                list(agent.conversation("new").decide(Decision("approve")))


def test_cancelling_keeps_the_conversation_and_what_was_half_said(tmp_path: Path) -> None:
    """A14"""
    model = scripted([delay(0, "one two three four five six seven", pace=60), "Yes."])
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        seen = []
        for event in talk.send("Count"):
            seen.append(event)
            if len(seen) == 1:
                talk.cancel()
        assert ended(seen).reason == "cancelled"
        half = talk.messages[-1]
        assert isinstance(half, AIMessage)
        assert half.text
        assert half.text != "one two three four five six seven"
        assert talk.ask("Are you there?") == "Yes."
        assert half.text in model.requests[1].text


def test_messages_of_stopped_turns_have_the_time_at_which_they_were_said(tmp_path: Path) -> None:
    """A14, O1: no call was noted for them, and nothing of them is archived yet."""
    model = scripted([delay(0, "one two three four", pace=60), delay(0, "five six seven eight", pace=60)])
    begun = stamp(datetime.now(UTC))
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        between = []
        for text in ("Count", "Count on"):
            for event in talk.send(text):
                if isinstance(event, Token):
                    talk.cancel()
            time.sleep(0.01)
            between.append(stamp(datetime.now(UTC)))
            time.sleep(0.01)
        agent.parts.threads.note("t")  # it was used later
        said = talk.history()
        whole = with_window(agent.parts.threads, agent.parts.archive, "t", CallLog(agent.parts.config.base)).messages("t")
    for records in (said, whole):
        first, half, second, rest = (record.time for record in records)
        assert begun <= first <= half <= between[0] <= second <= rest <= between[1], [record.time for record in records]


def test_one_turn_at_a_time_in_a_thread(tmp_path: Path) -> None:
    """A14"""
    model = scripted([delay(600, "never"), "Yes."])
    with lead(tmp_path, model) as agent:
        first = agent.conversation("t")
        started = threading.Thread(target=lambda: list(first.send("a")))
        started.start()
        while not model.requests:
            time.sleep(0.01)
        with pytest.raises(Locked):
            list(agent.conversation("t").send("b"))
        first.cancel()
        started.join()
        assert agent.conversation("t").ask("b") == "Yes."


@pytest.mark.parametrize("thread", ["t", "anna@example.com", "tenant/42/7"])
def test_conversations_survive_a_restart_and_are_listed_branched_and_deleted(tmp_path: Path, thread: str) -> None:
    """A14, S16: also under an id that is no file name."""

    def fresh() -> Any:
        return scripted(lambda request: f"answer to {request.last.text}")

    with lead(tmp_path, fresh()) as agent:
        for number in range(3):
            agent.conversation(thread).ask(f"Question {number} about the office move")
        agent.conversation("other").ask("Something else")
    model = fresh()
    with lead(tmp_path, model) as agent:
        talk = agent.conversation(thread)
        assert [info.id for info in agent.parts.threads.all()] == ["other", thread]
        assert talk.title.startswith("Question 0 about the")
        assert [record.text for record in talk.history()][-1] == "answer to Question 2 about the office move"
        at = talk.history()[1].id
        new = talk.branch(at)
        assert [message.text for message in new.messages] == [
            "Question 0 about the office move",
            "answer to Question 0 about the office move",
        ]
        new.ask("Another way")
        assert len(talk.messages) == 6, "the old one is as it was"
        assert "Question 1" not in model.requests[-1].text
        assert agent.parts.threads.find(new.thread).parent == thread  # type: ignore[union-attr]
        with pytest.raises(InputError, match="no message"):
            talk.branch("nothing")
        assert agent.parts.threads.delete(thread) == [thread]
        assert agent.conversation(thread).messages == []
        assert thread not in [info.id for info in agent.parts.threads.all()]
        assert sorted(path.name for path in (tmp_path / "threads").iterdir()) == sorted(["other", new.thread])


def test_a_branch_from_before_a_compaction_begins_with_the_words_as_they_were(tmp_path: Path) -> None:
    """A14, S9, S17"""
    model = scripted(lambda request: f"answer {len(request.messages)}")
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        for number in range(8):
            talk.ask(f"Question {number}")
        done = talk.compact(keep=("messages", 2))
        assert done.changed
        assert len(talk.messages) < 8
        said = talk.history()
        assert [record.text for record in said if record.role == "human"] == [f"Question {number}" for number in range(8)]
        new = talk.branch(said[3].id)
        assert [message.text for message in new.messages][::2] == ["Question 0", "Question 1"]
        assert new.ask("Go on").startswith("answer")


def test_limits_stop_the_run_with_everything_kept(tmp_path: Path) -> None:
    """T5"""
    model = scripted([[call("look", {"what": "x"})], "never", "again"])
    with lead(tmp_path, model, {"limits": {"tokens": 300}}) as agent:
        talk = agent.conversation("t")
        with pytest.raises(LimitExceeded, match="of 300 tokens"):
            list(talk.send("Go"))
        assert [message.type for message in talk.messages] == ["human", "ai", "tool"]
        assert len(model.requests) == 1
        assert agent.parts.accounts.total(session="t").tokens > 300


def test_accounts_are_kept_by_run_and_sub_agent(tmp_path: Path) -> None:
    """T5"""
    model = scripted(
        lambda r: (
            "sub"
            if r.system.startswith("You are a sub")
            else [call("task", {"description": "d", "prompt": "p"})]
            if r.last.type == "human"
            else "ok"
        )
    )
    with lead(tmp_path, model) as agent:
        end = ended(list(agent.conversation("t").send("Go")))
        accounts = agent.parts.accounts
        by = accounts.by("subagent", run=end.run)
    assert len(by) == 2
    assert end.tokens == sum(tally.tokens for tally in by.values())


def test_a_failing_model_is_a_typed_error_and_the_turn_can_be_resumed(tmp_path: Path) -> None:
    """A1, A14"""
    model = scripted([raises("unauthorized"), "Here I am."])
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        with pytest.raises(ModelError):
            list(talk.send("Hello"))
        assert talk.interrupted
        assert ended(list(talk.resume())).text == "Here I am."
        assert [message.type for message in talk.messages] == ["human", "ai"]


def test_a_better_title_comes_from_the_light_model_without_holding_up_the_answer(tmp_path: Path) -> None:
    """A13"""
    clock = FakeClock(holds=True)
    light = scripted([delay(60, '"Moving the office."')], model_name="light", clock=clock)
    with lead(tmp_path, scripted(["ok", "fine"]), {"title": {"model_name": "light"}}, models={"light": light}) as agent:
        talk = agent.conversation("t")
        talk.ask("Please plan the move of the office to Mill Lane")
        assert talk.title == "Please plan the move of the ...", "at once, from the user's words"
        while not clock.waiting:
            time.sleep(0.01)
        clock.advance(60)
        assert talk.wait_for_title(240) == "Moving the office"
        talk.title = "My own"
        talk.ask("more")
        assert talk.title == "My own"
    assert len(light.requests) == 1


def test_what_was_said_is_learned_while_the_process_lives(tmp_path: Path) -> None:
    """M8"""
    with lead(tmp_path, scripted(["ok"]), {"memory": {"debounce_seconds": 0}}) as agent:
        agent.conversation("t").ask("I live in Ghent.")
        end = time.monotonic() + 240
        while "Ghent" not in agent.parts.memory.render_for() and time.monotonic() < end:
            time.sleep(0.01)
        assert "Ghent" in agent.parts.memory.render_for()


def test_what_was_pasted_is_not_learned_as_the_users_own_words(tmp_path: Path) -> None:
    """M10: who knows that a text was pasted says so with it, and it stays known until it is learned from."""
    with lead(tmp_path, scripted(["ok", "ok"]), {"memory": {"debounce_seconds": 0}}) as agent:
        talk = agent.conversation("t")
        list(talk.send("I live in Ghent.", pasted=True))
        list(talk.send("I live in Bruges."))
        agent.parts.memory.flush()
        assert "Bruges" in agent.parts.memory.render_for()
        assert "Ghent" not in agent.parts.memory.render_for()


def test_todos_survive_a_compaction(tmp_path: Path) -> None:
    """A13, S19"""
    todos = [{"content": "pack </todos> boxes", "status": "pending"}, {"content": "call the firm", "status": "completed"}]
    model = scripted([[call("write_todos", {"todos": todos})], "noted", *["ok"] * 8])
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        for number in range(5):
            talk.ask(f"Question {number}")
        assert talk.state["todos"] == todos
        assert "<todos>" not in model.requests[-1].system
        talk.compact(keep=("messages", 2))
        talk.ask("And now?")
        talk.ask("And then?")
    assert "[ ] pack &lt;/todos&gt; boxes" in model.requests[-2].system
    assert "call the firm" not in model.requests[-2].system
    assert model.requests[-1].system == model.requests[-2].system


def test_an_agent_has_settings_of_its_own(tmp_path: Path) -> None:
    """A1, M3"""
    folder = tmp_path / "agents" / "coder"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("description: Codes.\ntools: [look]\nsubagents: false\nmemory: true\n")
    (folder / "SOUL.md").write_text("You write short code. {braces} stay.\n")
    model = scripted(["ok"])
    with lead(tmp_path, model, tools=[look, make], agent="Coder") as agent:
        agent.parts.memory.add("User likes tabs", agent="coder")
        agent.conversation("t").ask("Hello")
        assert agent.parts.threads.find("t").agent == "coder"  # type: ignore[union-attr]
    system, names = model.requests[0].system, model.requests[0].tool_names
    assert "You are coder" in system
    assert "You write short code. {braces} stay." in system
    assert "likes tabs" in system
    assert "look" in names
    assert not {"make", "task"} & set(names)
    (folder / "config.yaml").write_text("toolz: [look]\n")
    with pytest.raises(ConfigError, match="tools"):
        holdfast.make_lead_agent(configured(tmp_path), agent="coder", model=model, tools=[])
    with pytest.raises(InputError):
        holdfast.make_lead_agent(configured(tmp_path), agent="../x", model=model, tools=[])


def test_forgotten_text_is_in_no_checkpoint(tmp_path: Path) -> None:
    """M14"""
    model = scripted(lambda request: [call("look", {"what": "Zanzibar-77"})] if request.last.type == "human" else "I will not tell.")
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        talk.ask("The word is Zanzibar-77, keep it")
        assert agent.parts.checkpoints.forget_text("Zanzibar-77") == ["t"]
        assert not any("Zanzibar" in message.text for message in talk.messages)
        talk.ask("Hello")
        assert "The word is" not in model.requests[-1].text
    assert b"The word is Zanzibar-77" not in b"".join(path.read_bytes() for path in tmp_path.glob("checkpoints.db*"))


def test_nothing_in_a_checkpoint_can_name_code_to_run(tmp_path: Path) -> None:
    """A14"""
    import ormsgpack

    evil = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "system", f"touch {tmp_path}/was-here"))))
    with lead(tmp_path, scripted(["ok"])) as agent:
        serde: Any = agent.parts.checkpoints.serde
        assert serde.loads_typed(("msgpack", evil)) != 0
        assert not (tmp_path / "was-here").exists()
        with pytest.raises((TypeError, ValueError, NotImplementedError)):
            serde.loads_typed(("pickle", b"cos\nsystem\n(S'true'\ntR."))
        agent.conversation("t").ask("Hello")
    with sqlite3.connect(tmp_path / "checkpoints.db") as database:
        kinds = {kind for (kind,) in database.execute("SELECT type FROM checkpoints UNION SELECT type FROM writes")}
    database.close()
    assert kinds <= {"msgpack", "null", "bytes", "empty"}


def test_a_message_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    with lead(tmp_path, scripted(["ok"])) as agent, pytest.raises(InputError):
        agent.conversation("t").send("  ")


def test_the_harness_makes_it_too(tmp_path: Path) -> None:
    """P1"""
    harness = holdfast.build(configured(tmp_path), bus=Bus())
    with harness.lead_agent(model=scripted(["ok"]), tools=[]) as agent:
        assert agent.conversation().ask("Hello") == "ok"


def test_without_any_model_it_answers_from_what_is_known_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A15, W18"""
    monkeypatch.setattr("holdfast.models.choice.servers", lambda places, wanted=None: [])
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    config = configured(tmp_path)
    with build(config, bus=Bus()) as harness:
        first = harness.conversation("one")
        assert "Nothing that is known" in first.ask("Where is the key?")
        first.ask("I live in Ghent. The key of the office is under the blue pot.")
    with build(config, bus=Bus()) as harness:
        second = harness.conversation("two")
        events = list(second.send("Where is the key of the office?"))
        assert second.title == "Where is the key of the"
    answer = ended(events).text
    assert "The key of the office is under the blue pot." in answer
    assert "[one #" in answer
    assert "No model is configured" in answer
    assert "".join(event.text for event in events if isinstance(event, Token)) == answer
    with build(config, bus=Bus()) as harness:
        assert "Ghent" in harness.conversation("three").ask("Where do I live?")
