"""`holdfast sessions` and `holdfast session ...`, for a person and for a program (W4, W5, O1)."""

from __future__ import annotations

import html.parser
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from holdfast.app.commands.sessions import app as sessions_app
from holdfast.app.commands.sessions import session_app
from holdfast.errors import Damaged, HoldfastError, InputError, Locked, OutputInvalid, RevisionConflict
from holdfast.session.output import Finding, StageOutput
from holdfast.session.state import Session, SessionError, StageRecord
from holdfast.session.store import SessionStore
from holdfast.workflow import control
from holdfast.workflow.run_settings import file_sessions

REFERENCE = Path(__file__).parents[2] / "fixtures" / "session" / "reference_state.json"
HOSTILE = '<script>alert(1)</script> [bold]x[/bold] \x1b[31m $title "quoted" & more'


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionStore:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return file_sessions(tmp_path / "home" / "sessions")


def stage_output(stage: str, summary: str = "Two stores answer in 20 ms.") -> StageOutput:
    findings = (Finding("Cold start takes 2.4 s", "doc-12", True), Finding("It is quick", "doc-13", False))
    return StageOutput(stage, summary, findings, "high", ("Look twice",), ("raw:sha256-3f1c",))


def file_of(store: SessionStore, workflow_id: str) -> Path:
    found = store.file(workflow_id)
    assert found is not None
    return found


@pytest.fixture
def halted(store: SessionStore) -> SessionStore:
    schema = {"type": "object", "required": ["p50"], "properties": {"p50": {"type": "number"}}}
    made = store.create(
        Session(
            "lat-1",
            task="Which store has the lowest latency?",
            workflow={"id": "lat", "stages": [{"name": "plan"}, {"name": "search", "output_schema": schema}, {"name": "write"}]},
        )
    )
    evicted = ({"name": "memory: k1", "tokens": 311},)
    state = store.commit(
        replace(
            made,
            status="running",
            current_stage="search",
            completed_stages=("plan",),
            stage_outputs={"plan": stage_output("plan")},
            stages={"plan": StageRecord("completed", 1, seconds=2.3, tokens=1520, model="small", evicted=evicted)},
        ),
        expect=1,
    )
    store.checkpoint(state, "after-plan")
    error = SessionError(
        "search", "malformed_output", "does not fit", ("key_findings[0].source: is missing",), f'{{"summary": "{HOSTILE}"}}'
    )
    store.commit(replace(state, status="halted", error=error), expect=2)
    return store


def run(app: typer.Typer, *arguments: str, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, input=stdin)
    assert result.exit_code == 0, result.output
    return result.output


def value(app: typer.Typer, *arguments: str, stdin: str | None = None) -> Any:
    return json.loads(run(app, *arguments, "--json", stdin=stdin))


# The list


def test_the_list_says_how_far_each_session_came(halted: SessionStore) -> None:
    other = halted.create(Session("alone", task="t", status="running"))
    output = run(sessions_app)
    line = next(line for line in output.splitlines() if line.startswith("lat-1"))
    for part in ("halted", "search", "1/3", "does not fit"):
        assert part in line
    assert "interrupted" in output, "it says that it runs, and nobody runs it"
    with halted.lease("alone"):
        assert "running" in run(sessions_app)
    (file_of(halted, "alone")).write_text("{broken")
    shown = {row["workflow_id"]: row for row in value(sessions_app)["sessions"]}
    assert shown["alone"]["status"] == "damaged"
    assert "line 1" in shown["alone"]["problem"]
    assert [row["workflow_id"] for row in value(sessions_app, "--status", "halted")["sessions"]] == ["lat-1"]
    assert len(value(sessions_app, "--last", "1")["sessions"]) == 1
    assert other.revision == 1


def test_an_empty_list_says_how_to_begin(store: SessionStore) -> None:
    assert "holdfast run" in run(sessions_app)
    assert value(sessions_app) == {"sessions": []}
    with pytest.raises(InputError, match="not a status"):
        run(sessions_app, "--status", "odd")


# The story


def test_a_session_reads_like_a_story(halted: SessionStore) -> None:
    output = run(session_app, "show", "lat-1")
    for part in (
        "halted: 1 of 3 stages, now at search",
        "Which store has the lowest latency?",
        "1. plan",
        "Two stores answer in 20 ms.",
        "Cold start takes 2.4 s  [doc-12]",
        "It is quick  [doc-13]  NOT FOUND IN ITS SOURCE",
        "confidence high, 2.3 s, 1,520 tokens, small",
        "left out memory: k1 (311 tokens)",
        "3. write  pending",
        "Stopped at search (malformed_output): does not fit",
        "- key_findings[0].source: is missing",
        "Recovery points: after-plan (1 stage)",
        "holdfast session fix lat-1 search",
    ):
        assert part in output
    assert "<script>alert(1)</script> [bold]x[/bold]" in output, "text of the session is never markup"
    assert "\x1b" not in output, "and never commands the terminal"
    assert output.index("1. plan") < output.index("2. search") < output.index("3. write")


def test_the_story_as_a_value(halted: SessionStore) -> None:
    shown = value(session_app, "show", "lat-1")
    assert shown["session"]["workflow_id"] == "lat-1"
    assert shown["status"] == "halted"
    assert shown["checkpoints"][0]["name"] == "after-plan"
    assert shown["next"][-1].endswith("/home holdfast resume lat-1")
    assert value(session_app, "show", "lat-1", "--at", "after-plan")["session"]["status"] == "running"


def test_the_file_of_the_reference_is_told_too(store: SessionStore) -> None:
    path = file_of(store, "research-2026-04-19-001")
    path.parent.mkdir(parents=True)
    path.write_bytes(REFERENCE.read_bytes())
    output = run(session_app, "show", "research-2026-04-19-001")
    assert "ready: 2 stages completed, now at web_research" in output
    assert "Decomposed into 3 subtasks" in output
    assert "kept from an older file" in output
    assert path.read_bytes() == REFERENCE.read_bytes(), "looking changes nothing"


class _Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_page_needs_nothing_else_and_escapes_everything(halted: SessionStore, tmp_path: Path) -> None:
    found = halted.load("lat-1")
    odd = replace(
        stage_output("plan", HOSTILE), key_findings=(Finding(HOSTILE, HOSTILE),), data={HOSTILE: HOSTILE}, raw_data_refs=(HOSTILE,)
    )
    strange = replace(found, task=HOSTILE, topic_tag=HOSTILE, stage_outputs={"plan": odd}, retrieved=({"text": HOSTILE},))
    halted.commit(replace(strange, error=SessionError(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), HOSTILE, hint=HOSTILE)), expect=found.revision)
    page = tmp_path / "page.html"
    assert "Wrote" in run(session_app, "show", "lat-1", "--html", str(page))
    text = page.read_text()
    parsed = _Page()
    parsed.feed(text)
    assert "script" not in parsed.tags
    assert "b" not in parsed.tags
    assert not [one for one in parsed.attributes if one[0] in ("src", "href", "onclick", "onload")]
    assert "url(" not in text
    assert "@import" not in text
    assert parsed.words.count("<script>alert(1)</script>") >= 10
    assert "$title" in parsed.words, "text of the session is not a template"
    assert "\x1b" not in text


def test_the_page_is_drawn_by_a_browser(halted: SessionStore, tmp_path: Path, chromium: str) -> None:
    page = tmp_path / "page.html"
    run(session_app, "show", "lat-1", "--html", str(page))
    command = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        page.as_uri(),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert "Which store has the lowest latency?" in ended.stdout
    assert "Cold start takes 2.4 s" in ended.stdout


# Fixing


GOOD = {"summary": "Found it.", "key_findings": [{"fact": "a", "source": "b"}], "confidence": "high", "data": {"p50": 3}}


def test_a_corrected_output_goes_in_and_the_session_is_ready(halted: SessionStore, tmp_path: Path) -> None:
    """W4."""
    file = tmp_path / "out.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps({"stage_name": "search", **GOOD}).encode())
    assert "holdfast resume lat-1" in run(session_app, "fix", "lat-1", "search", "--file", str(file))
    found = halted.load("lat-1")
    assert (found.status, found.error, found.next_stage) == ("ready", None, "write")
    assert found.completed_stages == ("plan", "search")
    assert found.stage_outputs["search"].data == {"p50": 3}
    assert found.stages["search"].status == "completed"
    assert found.memory_snapshots[-1]["summary"] == "Found it."
    assert found.revision == 4


def test_standard_input_is_a_file_too(halted: SessionStore) -> None:
    shown = value(session_app, "fix", "lat-1", "search", "--file", "-", stdin=json.dumps(GOOD))
    assert shown["status"] == "ready"
    assert shown["output"]["stage_name"] == "search", "which stage it is was said already"


def test_what_waits_for_approval_still_does_when_it_was_corrected(halted: SessionStore) -> None:
    """W14: the command that says yes is named."""
    session = halted.load("lat-1")
    waits = {**session.stages, "search": StageRecord(status="waiting")}
    halted.commit(replace(session, status="paused", error=None, stages=waits), expect=session.revision)
    said = run(session_app, "fix", "lat-1", "search", "--file", "-", stdin=json.dumps(GOOD))
    assert "waits for your approval" in said and "holdfast approve lat-1 search" in said and "resume" not in said
    assert halted.load("lat-1").status == "paused"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(GOOD | {"data": {"p50": "3"}}), "data.p50: '3' is not of type 'number'"),
        (json.dumps({name: member for name, member in GOOD.items() if name != "data"}), "data: is missing"),
        (json.dumps(GOOD | {"confidence": "sure"}), "confidence"),
        (json.dumps(GOOD | {"stage_name": "plan"}), "stage_name"),
        ("not json", "is not JSON"),
    ],
)
def test_an_output_that_does_not_fit_stays_out(halted: SessionStore, text: str, said: str) -> None:
    before = halted.load("lat-1")
    with pytest.raises(OutputInvalid, match="does not fit") as caught:
        run(session_app, "fix", "lat-1", "search", "--file", "-", stdin=text)
    assert said in str(caught.value)
    assert halted.load("lat-1") == before


def test_fixing_what_is_not_there_or_is_being_run_is_refused(halted: SessionStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="search"):
        run(session_app, "fix", "lat-1", "serch", "--file", "-", stdin=json.dumps(GOOD))
    with pytest.raises(InputError, match="lat-1"):
        run(session_app, "fix", "lat-2", "search", "--file", "-", stdin=json.dumps(GOOD))
    assert not (file_of(halted, "lat-2").parent / "lat-2").exists()
    with pytest.raises(InputError, match="could not read"):
        run(session_app, "fix", "lat-1", "search", "--file", str(tmp_path / "none.json"))
    with halted.lease("lat-1", owner="worker-1"), pytest.raises(Locked, match="worker-1"):
        run(session_app, "fix", "lat-1", "search", "--file", "-", stdin=json.dumps(GOOD))


# Editing


def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    script = tmp_path / "editor.py"
    script.write_text(f"import sys, pathlib\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text()\n{code}\npath.write_text(text)\n")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")


def read_fares(store: SessionStore) -> None:
    """A session of two stages, both completed: the second has read the first."""
    made = store.create(Session("fares", task="Fares", workflow={"id": "f", "stages": [{"name": "research"}, {"name": "report"}]}))
    at = "2026-05-01T10:00:00.000Z"
    outputs = {name: StageOutput(name, "A car pays 6.50 euros.") for name in ("research", "report")}
    records = {name: StageRecord("completed", 1, started_at=at, ended_at=at) for name in outputs}
    store.commit(replace(made, status="completed", completed_stages=tuple(outputs), stage_outputs=outputs, stages=records), expect=1)


def test_an_edit_of_an_output_says_which_stages_had_read_it(store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W4: `completed_stages` decides what runs again, so the person is told that what was written after it is of before the edit."""
    read_fares(store)
    assert "read_before_edit" in value(session_app, "show", "fares") and "was edited" not in run(session_app, "show", "fares")
    editor(tmp_path, monkeypatch, "text = text.replace('6.50', '9.99', 1)")
    assert "report read research before it was edited: take it out of `completed_stages`" in run(session_app, "edit", "fares")
    assert "report read research before it was edited" in run(session_app, "show", "fares")
    assert value(session_app, "show", "fares")["read_before_edit"] == {"research": ["report"]}


def test_an_edit_in_the_file_itself_is_told_as_well(store: SessionStore) -> None:
    """W4"""
    read_fares(store)
    file = file_of(store, "fares")
    file.write_text(file.read_text().replace("6.50", "9.99", 1))
    assert "report read research before it was edited" in run(session_app, "show", "fares")
    store.commit(found := store.load("fares"), expect=found.revision)
    assert control.read_before_edit(store.load("fares")) == {"research": ("report",)}
    again = store.load("fares")
    late = {**again.stages, "report": replace(again.stages["report"], ended_at="2099-05-01T10:00:00.000Z")}
    assert control.read_before_edit(replace(again, stages=late)) == {}, "it has read the edited output since"


def kept_text(error: HoldfastError) -> str:
    return Path(str(error).rpartition("kept in ")[2].rstrip(".")).read_text()


def test_an_edit_is_checked_and_committed(halted: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor(tmp_path, monkeypatch, "text = text.replace('20 ms', '21 ms').replace('halted', 'ready')")
    assert "revision 4" in run(session_app, "edit", "lat-1")
    found = halted.load("lat-1")
    assert "21 ms" in found.stage_outputs["plan"].summary
    assert found.status == "ready"
    editor(tmp_path, monkeypatch, "pass")
    assert value(session_app, "edit", "lat-1") == {"session": "lat-1", "changed": False}
    assert halted.load("lat-1") == found


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("text = text.replace('\"task\":', 'task:')", "line 3"),
        ("text = text.replace('\"high\"', '\"sure\"')", "stage_outputs.plan.confidence"),
        ("text = text.replace('lat-1', 'lat-9')", "workflow_id"),
    ],
)
def test_an_edit_that_does_not_fit_changes_nothing_and_keeps_the_text(
    halted: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    before = halted.load("lat-1")
    editor(tmp_path, monkeypatch, code + "\ntext = text.replace('lowest', 'very lowest')")
    with pytest.raises(HoldfastError) as caught:
        run(session_app, "edit", "lat-1")
    assert said in str(caught.value)
    assert "very lowest" in kept_text(caught.value)
    assert halted.load("lat-1") == before


def test_somebody_who_wrote_meanwhile_is_not_overwritten(halted: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(file_of(halted, "lat-1"))
    meanwhile = f"other = pathlib.Path({file!r}); other.write_text(other.read_text().replace('does not fit', 'does really not fit'))"
    editor(tmp_path, monkeypatch, f"{meanwhile}\ntext = text.replace('lowest', 'very lowest')")
    with pytest.raises(RevisionConflict) as caught:
        run(session_app, "edit", "lat-1")
    assert "very lowest" in kept_text(caught.value)
    found = halted.load("lat-1")
    assert found.error is not None
    assert found.error.message == "does really not fit"


def test_a_damaged_session_is_mended_in_the_editor(halted: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(halted, "lat-1")
    path.write_text(path.read_text().replace('"topic_tag": "general",', '"topic_tag": "general"'))
    with pytest.raises(Damaged, match="lacks a comma"):
        run(session_app, "show", "lat-1")
    editor(tmp_path, monkeypatch, "text = text.replace('\"general\"', '\"general\",')")
    run(session_app, "edit", "lat-1")
    assert halted.load("lat-1").revision == 4


def test_an_editor_that_fails_or_is_not_there(halted: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file_of(halted, "lat-1").read_bytes()
    editor(tmp_path, monkeypatch, "sys.exit(3)")
    with pytest.raises(InputError, match="code 3"):
        run(session_app, "edit", "lat-1")
    monkeypatch.setenv("EDITOR", "no-such-editor-anywhere")
    with pytest.raises(InputError, match="could not be started"):
        run(session_app, "edit", "lat-1")
    with halted.lease("lat-1", owner="worker-1"), pytest.raises(Locked, match="worker-1"):
        run(session_app, "edit", "lat-1")
    assert file_of(halted, "lat-1").read_bytes() == before


# Recovery points, forks, exports


def test_the_difference_between_two_states(halted: SessionStore) -> None:
    output = run(session_app, "diff", "lat-1", "after-plan")
    assert "status changed" in output
    assert "- running" in output
    assert "+ halted" in output
    shown = value(session_app, "diff", "lat-1", "after-plan", "current")["differences"]
    assert {"place": "status", "kind": "changed", "before": "running", "after": "halted"} in shown
    assert value(session_app, "diff", "lat-1", "current", "current")["differences"] == []
    assert "no difference" in run(session_app, "diff", "lat-1", "after-plan", "after-plan")
    with pytest.raises(InputError, match="after-plan"):
        run(session_app, "diff", "lat-1", "after-plann")


def test_a_fork_and_a_restore(halted: SessionStore) -> None:
    """W5."""
    assert value(session_app, "fork", "lat-1")["session"] == "lat-1-fork-001"
    shown = value(session_app, "fork", "lat-1", "--from", "after-plan", "--as", "again")
    assert shown["lineage"]["checkpoint"] == "after-plan"
    assert halted.load("again").status == "ready"
    assert "lat-1-fork-002" in run(session_app, "fork", "lat-1")
    assert "before-restore-001" in run(session_app, "restore", "lat-1", "after-plan")
    assert halted.load("lat-1").error is None
    assert value(session_app, "restore", "lat-1", "before-restore-001")["status"] == "halted"
    with pytest.raises(InputError, match="no recovery point"):
        run(session_app, "restore", "lat-1", "never")
    with halted.lease("lat-1", owner="worker-1"), pytest.raises(Locked, match="worker-1"):
        run(session_app, "restore", "lat-1", "after-plan")


@pytest.mark.parametrize("option", ["--id", "--as"])
def test_a_fork_has_the_id_that_was_given(option: str, halted: SessionStore) -> None:
    """W5, O1: `--id` as in `run`; `--as` is still taken."""
    shown = value(session_app, "fork", "lat-1", option, "second-try")
    assert shown["session"] == "second-try"
    assert halted.load("second-try").lineage is not None
    with pytest.raises(InputError, match="second-try"):
        run(session_app, "fork", "lat-1", option, "second-try")


def test_a_session_is_exported_as_json_and_as_markdown(halted: SessionStore, tmp_path: Path) -> None:
    assert json.loads(run(session_app, "export", "lat-1"))["workflow_id"] == "lat-1"
    run(session_app, "export", "lat-1", "--to", str(tmp_path / "out.json"))
    assert (tmp_path / "out.json").read_bytes() == file_of(halted, "lat-1").read_bytes()
    text = run(session_app, "export", "lat-1", "--markdown")
    assert text.startswith("# lat-1\n")
    assert "- Cold start takes 2.4 s [doc-12]" in text
    run(session_app, "export", "lat-1", "--markdown", "--to", str(tmp_path / "out.md"))
    assert (tmp_path / "out.md").read_text() == text
    assert value(session_app, "export", "lat-1")["text"].startswith("{")


def test_every_command_has_help_with_an_example() -> None:
    for command in ("show", "fix", "edit", "diff", "fork", "restore", "export"):
        text = run(session_app, command, "--help")
        assert "Example" in text
        assert "--json" in text
        assert "--config" in text
    assert "Example" in run(sessions_app, "--help")


def test_the_program_lists_the_commands_and_ends_with_the_right_code(store: SessionStore) -> None:
    command = [sys.executable, "-m", "holdfast.app.main"]
    ended = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert "sessions" in ended.stdout
    ended = subprocess.run(
        [*command, "session", "show", "none", "--json"], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert ended.returncode == 2
    assert json.loads(ended.stdout)["error"][0]["kind"] == "NotThere"


def test_a_pipe_where_a_session_is_expected_keeps_nobody_waiting(store: SessionStore, tmp_path: Path) -> None:
    """W2, O1: it is damaged, and every other session is listed."""
    store.create(Session("good", "A task", status="completed"))
    os.mkfifo(tmp_path / "home" / "sessions" / "x.json")
    program = [sys.executable, "-m", "holdfast.app.main"]
    for words in (["session", "show", "x"], ["doctor"], ["sessions"]):
        ended = subprocess.run([*program, *words], capture_output=True, text=True, check=False, timeout=240)
        assert "Traceback" not in ended.stderr
    assert "good" in ended.stdout


def test_restore_without_a_checkpoint_lists_those_that_exist(halted: SessionStore) -> None:
    """W5: who is told to go back need not know the names; it works for a file that cannot be read too."""
    (file_of(halted, "lat-1")).write_text("{broken")
    with pytest.raises(Damaged) as told:
        run(session_app, "show", "lat-1")
    assert "`holdfast session edit lat-1`" in str(told.value)
    assert "`holdfast session restore lat-1 CHECKPOINT`" in str(told.value)
    output = run(session_app, "restore", "lat-1")
    assert "after-plan" in output
    assert "session restore lat-1 after-plan" in output
    assert [one["name"] for one in value(session_app, "restore", "lat-1")["checkpoints"]] == ["after-plan"]
    assert file_of(halted, "lat-1").read_text() == "{broken", "listing changes nothing"
    assert "is back at after-plan" in run(session_app, "restore", "lat-1", "after-plan")


def test_a_session_without_recovery_points_says_so(store: SessionStore) -> None:
    store.create(Session("alone", task="t"))
    assert "no recovery points" in run(session_app, "restore", "alone")


def test_a_long_task_is_wrapped_also_into_a_pipe(store: SessionStore) -> None:
    store.create(Session("long", task="Which of the stores has the lowest latency at night? " * 12))
    assert max(len(line) for line in run(session_app, "show", "long").splitlines() if "latency" in line) <= 110
