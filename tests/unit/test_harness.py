"""P1, P2, C4, C6: one place that knows the concrete classes, with clock, ids, disk and bus as parameters."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.app.chat_commands import Slash, run_command
from holdfast.app.chat_screen import Screen
from holdfast.clock import stamp
from holdfast.config.loading import config_from_values
from holdfast.context.records import records_of
from holdfast.context.view import PlainMessage
from holdfast.errors import InputError, ModelNotConfigured, StorageError
from holdfast.events import Bus
from holdfast.knowledge.records import Record
from holdfast.talk import Talk
from holdfast.testing.clock import CountingIds, FakeClock
from holdfast.testing.models import ScriptedModel


def test_everything_works_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    harness = holdfast.build()
    assert harness.base == tmp_path / "data" / "holdfast"
    assert harness.window() == 8192
    assert harness.budget().window == 8192
    assert harness.counter.count_text("hello world") == 2
    assert not harness.base.exists(), "building writes nothing"
    assert harness.make_base().is_dir()


def test_the_window_of_a_configured_model_is_split(tmp_path: Path) -> None:
    """T3, T4"""
    config = config_from_values({"models": [{"name": "m", "use": "openai", "model": "gpt-4o", "max_input_tokens": 8000}]}, cwd=tmp_path)
    harness = holdfast.build(config, clock=FakeClock(), ids=CountingIds(), bus=Bus())
    assert harness.budget("m").as_dict()["memory"] == 500
    with pytest.raises(ModelNotConfigured, match="m"):
        harness.window("other")


def test_an_older_schema_is_one_warning(tmp_path: Path) -> None:
    """C4"""
    file = tmp_path / "config.yaml"
    file.write_text("memory:\n  token_counting: char\n")
    bus = Bus()
    with bus.collect() as seen:
        harness = holdfast.build(file, bus=bus)
    assert [type(event).__name__ for event in seen] == ["ConfigUpgraded"]
    assert harness.config.memory.token_counter.startswith("approx")


def test_a_base_directory_that_cannot_be_made_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C6"""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(StorageError, match="file"):
        holdfast.build().make_base()


@pytest.mark.parametrize(
    "use",
    [
        lambda harness: harness.memory.add("User likes tea"),
        lambda harness: harness.memory.document(),
        lambda harness: harness.sessions.list(),
        lambda harness: harness.archive.threads(),
        lambda harness: harness.knowledge.stats(),
    ],
)
def test_a_file_in_the_place_of_the_base_directory_is_named(tmp_path: Path, use: Callable[[holdfast.Harness], object]) -> None:
    """C6: not what was looked for below it."""
    home = tmp_path / "home"
    home.write_text("notes")
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(home)})
    with holdfast.build(config) as harness, pytest.raises(StorageError, match=f"{home} is in the way: it is not a folder"):
        use(harness)
    assert home.read_text() == "notes"


def test_the_parts_are_made_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P1"""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    harness = holdfast.build(config_from_values({}), clock=FakeClock(), ids=CountingIds())
    assert harness.archive.threads() == []
    harness.memory.add("User likes tea")
    assert (tmp_path / "home" / "memory.json").exists()
    assert "likes tea" in harness.memory.render_for()
    harness.close()


def test_what_was_opened_is_closed_also_after_an_error_and_another_harness_has_it(tmp_path: Path) -> None:
    """P1: one composition root, and it cleans up."""
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    with pytest.raises(RuntimeError, match="in the middle"), holdfast.build(config) as harness:
        harness.archive.threads()
        store = harness.knowledge
        store.add([Record("Tides come twice a day.")])
        raise RuntimeError("in the middle")
    with pytest.raises(StorageError, match="is closed"):
        store.stats()
    with holdfast.build(config) as again:
        assert again.knowledge.stats().records == 1


USES: dict[str, Callable[[holdfast.Harness], object]] = {
    "storage": lambda harness: harness.storage,
    "archive": lambda harness: harness.archive,
    "memory": lambda harness: harness.memory,
    "knowledge": lambda harness: harness.knowledge,
    "sessions": lambda harness: harness.sessions,
    "checkpoints": lambda harness: harness.checkpoints,
    "threads": lambda harness: harness.threads,
    "conversations": lambda harness: harness.conversations(),
    "open_knowledge": lambda harness: harness.open_knowledge(),
    "open_sessions": lambda harness: harness.open_sessions(),
    "conversation": lambda harness: harness.conversation("t", model=ScriptedModel(["Hello."])),
    "conversation without a model": lambda harness: harness.conversation("t"),
    "run_workflow": lambda harness: harness.run_workflow({"id": "w", "task": "t", "stages": [{"name": "plan"}]}),
    "resume": lambda harness: harness.resume("w-1"),
    "launcher": lambda harness: harness.launcher(),
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_harness_says_so_and_opens_nothing(tmp_path: Path, use: str) -> None:
    """P1: what is closed does not open again by itself."""
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    with holdfast.build(config) as harness:
        harness.memory.add("User likes tea")
    harness.close()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StorageError, match=r"is closed\. Open it again"):
        USES[use](harness)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_harness_prints_in_one_line_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("models: [{name: m, use: openai, model: gpt-4o, api_key: sk-very-secret}]\n")
    with holdfast.build(file) as harness:
        assert repr(harness) == f"<Harness {harness.base}, {file}>"
    assert str(harness) == f"<Harness {harness.base}, {file}, closed>"


def test_what_a_harness_gave_is_closed_with_it(tmp_path: Path) -> None:
    """P1"""
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    with holdfast.build(config) as harness:
        memory, knowledge, sessions = harness.memory, harness.knowledge, harness.sessions
        memory.add("User likes tea")
        assert knowledge.search("tea") == []
        assert sessions.list() == []
    uses: list[Callable[[], object]] = [
        lambda: memory.add("User likes coffee"),
        lambda: memory.search("tea"),
        memory.render_for,
        memory.flush,
        lambda: knowledge.add([Record("Tides come twice a day.")]),
        lambda: knowledge.search("tides"),
        sessions.list,
        lambda: sessions.load("w-1"),
    ]
    for use in uses:
        with pytest.raises(StorageError, match=r"is closed\. Open it again"):
            pytest.fail(f"gave {use()!r}")
    memory.close()
    sessions.close()


def test_a_conversation_of_a_closed_harness_writes_nothing(tmp_path: Path) -> None:
    """P1, A14: the archive, the list of conversations and whoever talks say that they are closed, and no file changes."""
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    with holdfast.build(config) as harness:
        archive, threads, without = harness.archive, harness.threads, harness.conversation("a", model=None)
        with_model = harness.conversation("b", model=ScriptedModel(["Hello.", "Again."], profile={"max_input_tokens": 8000}))
        without.ask("I like tea.")
        with_model.ask("Hello?")
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"}
    uses: list[Callable[[], object]] = [
        lambda: archive.add("a", records_of([PlainMessage("human", "more", "m-1")])),
        lambda: archive.set_title("a", "Another"),
        lambda: threads.set_title("b", "Another", "user"),
        lambda: without.ask("I like coffee."),
        lambda: without.other("c").ask("I like coffee."),
        lambda: without.upload([Path(__file__)]),
        lambda: with_model.ask("And now?"),
        lambda: harness.note_used("a"),
    ]
    for use in uses:
        with pytest.raises(StorageError, match=r"is closed\. Open it again"):
            pytest.fail(f"gave {use()!r}")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"} == kept


def test_clock_ids_and_bus_reach_every_part(tmp_path: Path) -> None:
    """P1: nothing below chooses a clock or ids of its own."""
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    clock, bus = FakeClock(), Bus()
    with holdfast.build(config, clock=clock, ids=CountingIds(), bus=bus) as harness, bus.collect() as seen:
        fact = harness.memory.add("User likes tea")
        session = harness.run_workflow(
            {"id": "w", "task": "t", "stages": [{"name": "a", "agent_type": "f"}]}, agents={"f": lambda request: output(request.stage.name)}
        )
        talk = harness.conversation(model=ScriptedModel(["Hello."]))
        assert talk.ask("Hello?") == "Hello."
        (thread,) = talk.threads()
        assert talk.thread == thread.id
        assert thread.id.startswith("thread-0000"), "an id of the given source"
        now = stamp(clock.now())
        assert (fact.created, session.updated_at, thread.updated) == (now, now, now)
    assert "SessionStarted" in {type(event).__name__ for event in seen}


def output(stage: str) -> dict[str, Any]:
    return {"stage_name": stage, "summary": "s", "key_findings": [], "confidence": "high"}


def test_one_door_to_a_conversation_with_a_model_or_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A15: a weak model that happens to be there is not talked to unless it is named; both kinds keep the same protocol."""
    monkeypatch.setattr("holdfast.models.choice.servers", lambda places, wanted=None: [])
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    clock = FakeClock()
    with holdfast.build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "home")}), clock=clock) as harness:
        with pytest.raises(InputError, match="no conversation to resume"):
            harness.conversation(resume=True)
        without: Talk = harness.conversation("one")
        with_model: Talk = harness.conversation("two", model=ScriptedModel(["Hello."]))
        assert (without.described.partition(":")[0], with_model.described.partition(" with ")[0]) == ("without a model", "the lead agent")
        assert "No model is configured" in without.ask("Where is the key?")
        clock.advance(60)
        assert with_model.ask("Hello?") == "Hello."
        assert (without.interrupted, without.approvals(), dict(without.subagents())) == (False, (), {})
        for needs in (without.compact, without.sent, without.aresume):
            with pytest.raises(InputError, match="needs a model"):
                needs()
        assert harness.conversation(resume=True).thread == "two", "the one that was used last, of either kind"
        assert harness.conversation(resume=True, model=ScriptedModel([])).thread == "two"
        clock.advance(60)
        without.ask("And where is the door?")
        assert harness.conversation(resume=True).thread == "one"
        assert harness.conversation(resume=True, model=ScriptedModel([])).thread == "one"


def test_one_list_of_all_conversations_with_a_model_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A14, O1: what was said with a model, without one and by an agent of the user's own is in one list, and each can be opened."""
    monkeypatch.setattr("holdfast.models.choice.servers", lambda places, wanted=None: [])
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    clock = FakeClock()
    with holdfast.build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "home")}), clock=clock) as harness:
        assert harness.conversations() == []
        said = [PlainMessage("human", "We call the staging server heron, and it stands in a hall in Frankfurt am Main.", "m1")]
        harness.archive.add("of-my-own", records_of(said))
        harness.archive.add("subagent-7", records_of(said))
        clock.advance(60)
        with_model = harness.conversation("with", model=ScriptedModel(["Hello."]))
        with_model.ask("Hello?")
        clock.advance(60)
        without = harness.conversation("without")
        without.ask("Where is the key?")
        found = harness.conversations()
        assert [(info.id, info.messages, info.archived_only) for info in found] == [
            ("without", 2, True),
            ("with", 2, False),
            ("of-my-own", 1, True),
        ]
        assert found[0].title == "Where is the key?"
        assert found[2].title == "We call the staging server heron, and it stands in a hall …"
        assert [info.id for info in harness.conversations(last=1)] == ["without"]
        assert "subagent-7" in [info.id for info in harness.conversations(subagents=True)]
        out = io.StringIO()
        opened = run_command("/open of-my", Slash(harness, without, Screen(out=out)))
        assert opened.thread == "of-my-own", "a beginning that fits one of them is enough"
        assert run_command("/open without", Slash(harness, with_model, Screen(out=out))).thread == "without"
        run_command("/threads", Slash(harness, opened, Screen(out=out)))
        assert all(info.id in out.getvalue() for info in found)
        with_model.close()


def test_what_is_kept_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C6: files are 0600 and folders 0700, databases and the files of sessions too, whatever the umask says."""
    monkeypatch.setattr("holdfast.models.choice.servers", lambda places, wanted=None: [])
    before = os.umask(0o022)
    try:
        with holdfast.build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})) as harness:
            harness.memory.add("Likes tea")
            harness.knowledge.add([Record("The hotel costs 92 euros.")])
            harness.conversation("with", model=ScriptedModel(["Hello."])).ask("Hello?")
            harness.run_workflow({"id": "w", "task": "What is in it?", "stages": [{"name": "a", "agent_type": "writer"}]}, remember=False)
    finally:
        os.umask(before)
    modes = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in (tmp_path / "home").rglob("*") if not path.is_symlink()}
    assert any(path.suffix == ".db" for path in modes) and any("files" in path.parts for path in modes)
    assert {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


def test_what_is_given_in_a_wrong_form_is_a_typed_error_that_says_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P2: and the values of a configuration are taken as they are."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    with holdfast.build({"knowledge": {"adapter": "markdown"}}) as harness:
        store, memory = harness.knowledge, harness.memory
        strange: Any = Record("one heron")
        for wrong, words in (
            (lambda: holdfast.build(strange), "named by its path"),
            (lambda: store.add(strange), "added as a list"),
            (lambda: store.add("ab"), "added as a list"),  # type: ignore[arg-type]
            (lambda: memory.add(strange), "a fact is text"),
            (lambda: memory.add("User keeps geese", confidence="high"), "not a confidence"),  # type: ignore[arg-type]
        ):
            with pytest.raises(InputError, match=words):
                wrong()
        assert not list(store.records()) and not memory.document().facts
