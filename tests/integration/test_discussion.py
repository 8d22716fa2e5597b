"""W12: several roles talk in turns, and one stage output comes of it; what was said survives whatever happens."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration import panel_models
from tests.integration.panel_models import conclusion, said, speaker

from holdfast.agents.stages.stage_agents import stage_agents
from holdfast.config.loading import config_from_values
from holdfast.config.sections import Config
from holdfast.errors import ConfigError, LimitExceeded
from holdfast.harness import build
from holdfast.session.state import Session
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, call, raises, structured, tool_name
from holdfast.tokens.counter import open_counter
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.control import approve, reject
from holdfast.workflow.launcher import resume, run_workflow
from holdfast.workflow.run_settings import file_sessions

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "discussion" / "workflow.yaml"
ROLES = [
    {"name": "Optimist", "prompt": "You look at what can be gained. SECRET-OF-OPTIMIST"},
    {"name": "Sceptic", "prompt": "You look at what can go wrong. SECRET-OF-SCEPTIC"},
    {"name": "Accountant", "prompt": "You look at what it costs."},
]


def panel(**settings: Any) -> dict[str, Any]:
    stage = {"name": "panel", "agent_type": "discussion", "participants": ROLES, "max_turns": 6, "retry_seconds": 0, **settings}
    return {"id": "talk", "task": "Shall we move to Heron?", "stages": [stage]}


def values(tmp_path: Path, **sections: Any) -> Config:
    return config_from_values(sections, environ={"HOLDFAST_HOME": str(tmp_path / "base")})


def speaking(output: Mapping[str, Any] | None = None) -> Callable[[Request], Any]:
    """Everybody says who he is and which turn it is."""

    def answer(request: Request) -> Any:
        who = speaker(request)
        return structured(output or conclusion("panel")) if who == "output" else f"{who} says {said(request) + 1}."

    return answer


class Room:
    """A folder with sessions, and a model that all use."""

    def __init__(self, tmp_path: Path, script: Any, **sections: Any) -> None:
        self.config = values(tmp_path, **sections)
        self.model = ScriptedModel(script)
        self.store = file_sessions(tmp_path / "sessions")
        self.folder = tmp_path / "sessions"

    def run(self, workflow: dict[str, Any], agents: Mapping[str, Any] | None = None, **parts: Any) -> Session:
        found: Any = {**stage_agents(self.config, model=self.model), **(agents or {})}
        return run_workflow(workflow, config=self.config, store=self.store, agents=found, session_id="s1", **parts)

    def resume(self, **parts: Any) -> Session:
        return resume("s1", config=self.config, store=self.store, agents=stage_agents(self.config, model=self.model), **parts)

    @property
    def transcript(self) -> str:
        return (self.folder / "s1" / "stages" / "01-panel" / "transcript.md").read_text("utf-8")

    def asked(self) -> list[str]:
        return [speaker(request) for request in self.model.requests]


def turns(text: str) -> list[str]:
    return [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]


def test_roles_talk_in_their_order_and_end_in_one_output_under_the_schema(tmp_path: Path) -> None:
    """W3, W12: within the limit of turns, over a transcript that is a file and raw data."""
    schema = {"type": "object", "properties": {"move": {"type": "boolean"}}, "required": ["move"]}
    room = Room(tmp_path, speaking(conclusion("panel", data={"move": True})))
    session = room.run(panel(output_schema=schema, max_turns=4))
    assert session.status == "completed", session.error
    assert room.asked() == ["Optimist", "Sceptic", "Accountant", "Optimist", "output"]
    assert turns(room.transcript) == ["1. Optimist", "2. Sceptic", "3. Accountant", "4. Optimist"]
    assert "Optimist says 4." in room.transcript and "the limit of 4 turns" in room.transcript
    output = session.stage_outputs["panel"]
    assert output.data == {"move": True}
    about = output.extra["discussion"]
    assert (about["turns"], about["transcript"]) == (4, output.raw_data_refs[0])
    assert room.store.raw_get("s1", about["transcript"]).text() == room.transcript
    assert output.confidence == "medium", "the turn that a finding cites does not say so"


def test_each_has_a_prompt_a_model_and_an_account_of_its_own(tmp_path: Path) -> None:
    """W12, T5: nobody sees another's prompt; usage is charged to each participant."""
    panel_models.TOLD.clear()
    use = "tests.integration.panel_models:PanelModel"
    names = ("usual", "fast", "careful")
    config = values(tmp_path, models=[{"name": name, "use": use, "model": name, "pricing": {"input": 1, "output": 1}} for name in names])
    roles = [{**ROLES[0], "model": "fast"}, {**ROLES[1], "model": "careful"}, ROLES[2]]
    session = run_workflow(panel(participants=roles, max_turns=3), config=config, agents=stage_agents(config))
    assert session.status == "completed", session.error
    assert panel_models.TOLD == [("fast", "Optimist", 0), ("careful", "Sceptic", 1), ("usual", "Accountant", 2), ("usual", "output", 0)]
    charged = {entry["subagent"]: entry["model"] for entry in session.usage["entries"]}
    assert charged == {"Optimist": "fast", "Sceptic": "careful", "Accountant": "usual", None: "usual"}
    spent = session.stage_outputs["panel"].extra["discussion"]["participants"]
    assert {name: one["model"] for name, one in spent.items()} == {"Optimist": "fast", "Sceptic": "careful", "Accountant": "usual"}
    assert sum(one["tokens"] for one in spent.values()) < (session.stages["panel"].tokens or 0)


def test_nobody_sees_the_prompt_of_another(tmp_path: Path) -> None:
    """W7, W12"""
    room = Room(tmp_path, speaking())
    room.run(panel())
    for request in room.model.requests:
        secrets = [name for name in ("OPTIMIST", "SCEPTIC") if f"SECRET-OF-{name}" in f"{request.system}{request.text}"]
        assert secrets == [name for name in ("OPTIMIST", "SCEPTIC") if name == speaker(request).upper()]


def test_a_moderator_says_who_speaks_and_when_it_is_over(tmp_path: Path) -> None:
    """W12: not before everybody was heard."""
    chosen = iter([("Accountant", False), ("Optimist", True), ("Sceptic", False), ("Accountant", False), ("Optimist", True)])

    def answer(request: Request) -> Any:
        if speaker(request) != "moderator":
            return speaking()(request)
        name, end = next(chosen)
        return structured({"next": name, "end": end, "why": "All was said."})

    room = Room(tmp_path, answer)
    session = room.run(panel(moderator={"prompt": "Be brief."}, max_turns=9))
    assert session.status == "completed", session.error
    assert turns(room.transcript) == ["1. Accountant", "2. Optimist", "3. Sceptic", "4. Accountant"]
    assert "the moderator saw nothing left to discuss (All was said)" in room.transcript
    assert "moderator" in {entry["subagent"] for entry in session.usage["entries"]}


@pytest.mark.parametrize("named", ["Nobody here", "", None, "The Sceptic"])
def test_a_moderator_that_names_nobody_is_replaced_by_the_order_and_that_is_said(tmp_path: Path, named: str | None) -> None:
    """W12"""

    def answer(request: Request) -> Any:
        choice = structured({"next": named, "end": False, "why": ""})
        return choice if speaker(request) == "moderator" else speaking()(request)

    room = Room(tmp_path, answer)
    session = room.run(panel(moderator=True, max_turns=3))
    note = "the moderator named nobody; next in turn"
    assert turns(room.transcript) == [f"1. Optimist ({note})", f"2. Sceptic ({note})", f"3. Accountant ({note})"]
    assert session.stage_outputs["panel"].extra["discussion"]["notes"] == [note]


def test_a_talk_ends_at_its_limit_of_tokens_and_when_nobody_has_anything_to_add(tmp_path: Path) -> None:
    """W12: who was never heard makes the output less sure."""
    sure = conclusion("panel", key_findings=[])
    room = Room(tmp_path / "tokens", speaking(sure))
    session = room.run(panel(max_tokens=1))
    assert (room.asked(), session.stage_outputs["panel"].confidence) == (["Optimist", "output"], "medium")
    assert session.stage_outputs["panel"].extra["discussion"]["never_spoke"] == ["Sceptic", "Accountant"]
    room = Room(tmp_path / "pass", lambda request: "PASS." if said(request) > 2 else speaking(sure)(request))
    session = room.run(panel(max_turns=50))
    assert len(turns(room.transcript)) == 6 and "nobody had anything to add" in room.transcript
    assert session.stage_outputs["panel"].confidence == "high"


def test_models_that_report_no_usage_are_counted_all_the_same(tmp_path: Path) -> None:
    """T5, W12"""
    room = Room(tmp_path, speaking())
    room.model.usage = False
    room.run(panel(max_tokens=1_500, max_turns=50))
    assert 2 < len(room.asked()) < 20


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        ({"participants": None}, "participants", "at least two participants"),
        ({"participants": [ROLES[0]]}, "participants", "at least two participants"),
        ({"participants": [ROLES[0], ROLES[0]]}, "participants[1].name", "another participant is called 'Optimist'"),
        ({"participants": [ROLES[0], {"name": "Sceptic"}]}, "participants[1].prompt", "Sceptic has no prompt"),
        ({"participants": [ROLES[0], {"prompt": "x"}]}, "participants[1].name", "has a name"),
        ({"participants": [ROLES[0], {"name": "Moderator", "prompt": "x"}]}, "participants[1].name", "a meaning of its own"),
        ({"participants": [ROLES[0], {**ROLES[1], "promt": "x"}]}, "participants[1].promt", "is not known"),
        ({"participants": [ROLES[0], {**ROLES[1], "model": "gpt-9"}]}, "participants[1].model", "gpt-9"),
        ({"moderator": {"model": "gpt-9"}}, "moderator.model", "gpt-9"),
        ({"moderator": "Anna"}, "moderator", "must be a mapping"),
        ({"model": "gpt-9"}, "model", "gpt-9"),
        ({"max_turns": 0}, "max_turns", "at least 1"),
        ({"max_tokens": "many"}, "max_tokens", "whole number"),
        ({"participants": [ROLES[0], {**ROLES[1], "tools": "read_source"}]}, "participants[1].tools", "list of names"),
    ],
)
def test_what_cannot_be_discussed_is_said_before_anything_runs(tmp_path: Path, settings: dict[str, Any], key: str, message: str) -> None:
    """W12: with the key and the line; no session is left behind."""
    models = [{"name": "usual", "use": "tests.integration.panel_models:PanelModel", "model": "usual"}]
    config = values(tmp_path, models=models)
    file = tmp_path / "workflow.yaml"
    file.write_text(json.dumps(panel(**settings)), "utf-8")
    with pytest.raises(ConfigError) as caught:
        run_workflow(file, config=config, agents=stage_agents(config))
    assert caught.value.key == f"stages.panel.{key}" and message in str(caught.value)
    assert caught.value.file == str(file) and caught.value.line
    assert not (tmp_path / "base").exists()


def test_a_participant_without_a_model_is_named_where_the_others_have_one(tmp_path: Path) -> None:
    """W12, A15: a configured model that is too weak for stages is nobody's model unless it is named."""
    use = "tests.integration.panel_models:PanelModel"
    config = values(
        tmp_path, models=[{"name": "weak", "use": "llama.cpp", "model": "smollm2"}, {"name": "good", "use": use, "model": "good"}]
    )
    agents = stage_agents(config)
    with pytest.raises(ConfigError, match="the participant Accountant has no model") as caught:
        roles = [{**ROLES[0], "model": "good"}, {**ROLES[1], "model": "good"}, ROLES[2]]
        run_workflow(panel(participants=roles), config=config, agents=agents)
    assert caught.value.key == "stages.panel.participants[2].model"
    panel_models.TOLD.clear()
    roles = [{**role, "model": "good"} for role in ROLES]
    session = run_workflow(panel(participants=roles, max_turns=3), config=config, agents=agents)
    assert session.status == "completed", session.error
    assert {name for name, _, _ in panel_models.TOLD} == {"good"}


def test_without_any_model_each_role_finds_its_sentences_and_the_output_says_so(tmp_path: Path) -> None:
    """W12, W18: nothing is generated, every sentence has its source."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "heron.md").write_text("# Heron\n\nWhat can be gained is speed: Heron answers in 12 ms.\n\nHeron costs 400 euros a month.\n")
    with build(values(tmp_path)) as harness:
        session = harness.run_workflow(panel(sources={"folder": str(notes)}), remember=False)
    assert session.status == "completed", session.error
    output = session.stage_outputs["panel"]
    assert "nothing was generated" in output.summary
    assert output.data["method"] == "extraction"
    assert output.key_findings and all(finding.grounded for finding in output.key_findings)
    assert "Heron costs 400 euros a month." in output.data["statements"]["Accountant"]
    schema = {"type": "object", "required": ["move"]}
    for asked in ({"participants": [{**role, "model": "gpt-9"} for role in ROLES]}, {"output_schema": schema}):
        with build(values(tmp_path)) as harness, pytest.raises(ConfigError, match="none is configured"):
            harness.run_workflow(panel(**asked), remember=False)


# What happens in between


def test_a_failure_in_the_middle_goes_on_with_the_last_turn_that_was_said(tmp_path: Path) -> None:
    """W12, W19"""
    script = ["one", "two", raises("rate_limit"), "three", "four", structured(conclusion("panel"))]
    room = Room(tmp_path, script)
    session = room.run(panel(max_turns=4))
    assert session.status == "completed", session.error
    assert turns(room.transcript) == ["1. Optimist", "2. Sceptic", "3. Accountant", "4. Optimist"]
    assert room.asked() == ["Optimist", "Sceptic", "Accountant", "Accountant", "Optimist", "output"]


def test_it_is_cancelled_at_once_and_goes_on_from_the_last_turn(tmp_path: Path) -> None:
    """W12, W19: the run is over while the model still thinks, and what it says then is not kept."""
    stop, thinking, go_on = threading.Event(), threading.Event(), threading.Event()

    def answer(request: Request) -> Any:
        if said(request) == 2 and not thinking.is_set():
            thinking.set()
            stop.set()
            assert go_on.wait(240)
            return "Too late."
        return speaking()(request)

    room = Room(tmp_path, answer)
    session = room.run(panel(max_turns=4), stop=stop)
    assert session.status == "cancelled" and thinking.is_set() and not go_on.is_set()
    go_on.set()
    session = room.resume()
    assert session.status == "completed", session.error
    assert turns(room.transcript) == ["1. Optimist", "2. Sceptic", "3. Accountant", "4. Optimist"]
    assert "Too late" not in room.transcript
    assert room.asked().count("Optimist") == 2


def test_a_limit_of_the_session_keeps_what_was_said(tmp_path: Path) -> None:
    """T5, W12"""
    room = Room(tmp_path, speaking())
    small: Any = {"limits": {"session": {"tokens": 900}}}
    with pytest.raises(LimitExceeded):
        room.run(panel(max_turns=9), session_config=small)
    before = room.asked()
    large: Any = {"limits": {"session": {"tokens": 1_000_000}}}
    session = room.resume(session_config=large)
    assert session.status == "completed", session.error
    assert len(turns(room.transcript)) == 9
    assert room.asked()[len(before)] == ROLES[len(before) % 3]["name"], "the next one speaks, nobody again"
    assert room.asked().count("output") == 1


def test_a_malformed_conclusion_is_asked_for_again_and_nobody_speaks_again(tmp_path: Path) -> None:
    """W4, W12"""
    wrong = {**conclusion("panel"), "confidence": "certain"}
    room = Room(tmp_path, ["one", "two", structured(wrong), structured(conclusion("panel"))])
    session = room.run(panel(participants=ROLES[:2], max_turns=2))
    assert session.status == "completed", session.error
    assert room.asked() == ["Optimist", "Sceptic", "output", "output"]


def test_what_was_of_low_confidence_or_rejected_is_discussed_once_more(tmp_path: Path) -> None:
    """W11, W14, W12: everybody hears why, and has one more turn beyond the limit."""
    unsure = structured(conclusion("panel", confidence="low", key_findings=[]))
    sure = structured(conclusion("panel", key_findings=[]))
    room = Room(tmp_path, ["one", "two", unsure, "three", "four", sure, "five", "six", sure])
    stage = {"participants": ROLES[:2], "max_turns": 2, "on_low_confidence": "recheck", "approve": True}
    assert room.run(panel(**stage)).status == "paused"
    assert turns(room.transcript) == ["1. Optimist", "2. Sceptic", "To all", "3. Optimist", "4. Sceptic"]
    assert "low confidence" in room.model.requests[3].text
    reject(room.store, "s1", why="Nobody spoke of the price.")
    session = room.resume()
    assert session.status == "paused", session.error
    assert turns(room.transcript)[-3:] == ["To all", "5. Optimist", "6. Sceptic"]
    assert "Nobody spoke of the price." in room.model.requests[6].text
    approve(room.store, "s1")
    assert room.resume().status == "completed"


def test_a_changed_discussion_begins_anew(tmp_path: Path) -> None:
    """W6, W12"""
    room = Room(tmp_path, ["one", raises(KeyError("x")), "uno", "due", structured(conclusion("panel"))])
    assert room.run(panel(max_turns=2, retries=0)).status == "halted"
    session = room.resume(workflow=panel(max_turns=2, retries=0, system_prompt="In Italian."), accept_changes=True)
    assert session.status == "completed", session.error
    assert "uno" in room.transcript and "one\n" not in room.transcript


def test_participants_may_read_what_the_stage_was_given_where_they_are_allowed_to(tmp_path: Path) -> None:
    """W7, W12: what one has read can be cited; the next stage reads the transcript by its reference."""

    def keep(request: StageRequest) -> object:
        ref = request.raw.put("The licence of Heron costs 400 euros.", source="offer")
        return {**conclusion("keep", key_findings=[]), "raw_data_refs": [ref]}

    offered: dict[str, list[str]] = {}
    licence = "The licence of Heron costs 400 euros."

    def answer(request: Request) -> Any:
        who, names = speaker(request), [tool_name(tool) for tool in request.tools]
        ref = re.search(r"^Raw data: (raw:sha256-[0-9a-f]{64})", request.text, re.MULTILINE)
        assert ref is not None
        if who != "output":
            offered.setdefault(who, names)
            wants = who == "Sceptic" and request.last.type != "tool"
            return [call("find_quote", {"quote": licence})] if wants else f"{who} has spoken."
        if "find_quote" in names:
            return "Nothing more to read."
        stage, fact = ("panel", licence) if "'panel'" in str(request.tools) else ("after", "Sceptic has spoken.")
        return structured(conclusion(stage, key_findings=[{"fact": fact, "source": ref[1]}]))

    room = Room(tmp_path, answer)
    roles = [{**ROLES[0], "tools": []}, {**ROLES[1], "tools": ["find_quote"]}]
    workflow = panel(participants=roles, max_turns=2)
    after = {"name": "after", "agent_type": "llm", "inputs": ["panel"]}
    workflow["stages"] = [{"name": "keep", "agent_type": "keep"}, *workflow["stages"], after]
    session = room.run(workflow, {"keep": keep})
    assert session.status == "completed", session.error
    assert offered == {"Optimist": [], "Sceptic": ["find_quote"]}
    assert session.stage_outputs["panel"].key_findings[0].grounded is True
    assert session.stage_outputs["after"].key_findings[0].grounded is True


def test_a_long_talk_stays_in_the_window_of_each(tmp_path: Path) -> None:
    """S10, W12"""

    def long(request: Request) -> Any:
        return speaking()(request) + "It depends. " * 120 if speaker(request) != "output" else structured(conclusion("panel"))

    room = Room(tmp_path, long)
    room.model.profile = {"max_input_tokens": 3000}
    session = room.run(panel(max_turns=10))
    assert session.status == "completed", session.error
    counter = open_counter("exact")
    assert max(sum(counter.count_text(message.text) for message in request.messages) for request in room.model.requests) <= 3000


def test_what_was_said_can_be_forgotten(tmp_path: Path) -> None:
    """M14: also out of the notes of the talk."""
    room = Room(tmp_path, lambda request: structured(conclusion("panel")) if speaker(request) == "output" else "The vault code is 2222.")
    room.run(panel())
    assert any("2222" in path.read_text("utf-8", "replace") for path in room.folder.rglob("*.jsonl"))
    room.store.forget_text("The vault code is 2222.")
    assert not any("2222" in path.read_text("utf-8", "replace") for path in room.folder.rglob("*") if path.is_file())


# The example


def test_the_example_runs_with_a_model(tmp_path: Path) -> None:
    """W12: plan, research, panel under a moderator, report; the last stage is given the panel's output."""

    def answer(request: Request) -> Any:
        tools = str(request.tools)
        if "read_source" in tools or "search_sources" in tools:
            return "Enough." if speaker(request) == "output" else f"{speaker(request)} speaks."
        if speaker(request) == "moderator":
            return structured(
                {"next": ["Operator", "Engineer", "Buyer"][said(request) % 3], "end": said(request) > 3, "why": "All was said."}
            )
        if speaker(request) != "output":
            return f"{speaker(request)} speaks."
        stage = re.search(r"'enum': \['(\w+)'\]", tools)
        assert stage is not None
        data = {"plan": {"questions": [{"text": "Which queue survives a power cut?"}]}, "report": {"report": "# Harrow"}}.get(stage[1])
        return structured(conclusion(stage[1], key_findings=[], **({"data": data} if data else {})))

    config = values(tmp_path)
    session = run_workflow(EXAMPLE, config=config, agents=stage_agents(config, model=ScriptedModel(answer)), session_id="s1")
    assert session.status == "completed", session.error
    assert session.completed_stages == ("plan", "research", "panel", "report")
    about = session.stage_outputs["panel"].extra["discussion"]
    assert about["turns"] == 4 and about["ended"].startswith("the moderator")
    transcript = tmp_path / "base" / "sessions" / "s1" / "stages" / "03-panel" / "transcript.md"
    assert turns(transcript.read_text("utf-8")) == ["1. Operator", "2. Engineer", "3. Buyer", "4. Operator"]


def test_the_example_runs_without_a_model(tmp_path: Path) -> None:
    """W18"""
    with build(values(tmp_path)) as harness:
        session = harness.run_workflow(EXAMPLE, remember=False)
    assert session.status == "completed", session.error
    found = session.stage_outputs["panel"]
    assert set(found.data["statements"]) == {"Operator", "Engineer", "Buyer"}
    assert len(found.key_findings) > 6 and all(finding.grounded for finding in found.key_findings)
