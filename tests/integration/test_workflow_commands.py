"""O1, W4, W6, W14, W15, W19: `holdfast run`, `resume`, `cancel`, `approve` and `reject` as programs, with their exit codes and signals."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "holdfast"]
AGENT = "tests.integration.workflow_agents:"


class Desk:
    """A folder in which a person works with the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "AGENTS_BASE": str(folder)}
        self.environment.pop("HOLDFAST_HOME", None)
        (folder / "config.yaml").touch()  # so that everything is kept beside it, in this folder
        self.environment["HOLDFAST_CONFIG"] = str(folder / "config.yaml")

    def workflow(self, *agents: str, **settings: dict[str, Any]) -> Path:
        stages = [
            {"name": f"s{number}", "agent_type": AGENT + agent, "max_repairs": 0, "retries": 0, **settings.get(f"s{number}", {})}
            for number, agent in enumerate(agents, start=1)
        ]
        file = self.folder / "w.yaml"
        file.write_text(json.dumps({"id": "w", "task": "t", "stages": stages}), "utf-8")
        return file

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *words], cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=240)
        return process.returncode, out, err

    def saved(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / ".holdfast" / "sessions" / "s.json").read_text("utf-8"))
        return found

    def executions(self) -> list[str]:
        path = self.folder / "executions"
        return path.read_text("utf-8").split() if path.exists() else []

    def wait_for(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + 240
        while not condition():
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.01)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_damaged_recovery_point_is_told_by_show_and_doctor(tmp_path: Path) -> None:
    """W5, O1: before anybody needs it."""
    desk = Desk(tmp_path)
    assert desk.run("run", str(desk.workflow("quick", "quick", "quick")), "--id", "s")[0] == 0
    log = tmp_path / ".holdfast" / "sessions" / "s" / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if b"002-s2" in line)
    lines[place] = lines[place].replace(b"002-s2", b"002-s9", 1)
    log.write_bytes(b"".join(lines))
    code, out, _ = desk.run("doctor")
    assert (code, "the record after revision 3 is lost" in " ".join(out.split())) == (1, True), out
    assert desk.run("session", "restore", "s", "001-s1")[0] == 0
    code, out, _ = desk.run("session", "show", "s")
    assert (code, "a recovery point may be lost" in out) == (0, True)
    assert len(json.loads(desk.run("session", "show", "s", "--json")[1])["damage"]) == 1
    code, out, _ = desk.run("doctor")
    assert (code, "s: a recovery point may be lost" in " ".join(out.split())) == (1, True)


def test_a_mistyped_knowledge_store_is_not_made(tmp_path: Path) -> None:
    """O1: `run --knowledge PATH` says that there is none."""
    desk = Desk(tmp_path)
    code, _, err = desk.run("run", str(desk.workflow("quick")), "--knowledge", str(tmp_path / "typo" / "k.db"))
    assert (code, "there is no knowledge store at" in err, (tmp_path / "typo").exists()) == (2, True, False)


def test_a_run_shows_plain_lines_says_where_the_file_is_and_ends_with_0(desk: Desk) -> None:
    code, out, _ = desk.run("run", str(desk.workflow("quick", "quick")), "--id", "s", "--no-remember")
    assert code == 0
    assert "[1/2] s1 completed" in out and "confidence high" in out
    assert str(desk.folder / ".holdfast" / "sessions" / "s.json") in out
    assert "\x1b" not in out


def test_with_json_there_is_one_document_and_nothing_else(desk: Desk) -> None:
    code, out, _ = desk.run("run", str(desk.workflow("quick", "quick")), "--id", "s", "--no-remember", "--set", "n=3", "--json")
    told = json.loads(out)
    assert (code, told["status"], told["completed_stages"]) == (0, "completed", ["s1", "s2"])
    assert told["result"]["s2"]["summary"] == "s2 is done"
    assert desk.saved()["configuration"]["parameters"] == {"n": 3}


def test_a_halt_ends_with_4_and_says_what_to_do_and_a_resume_goes_on(desk: Desk) -> None:
    code, out, _ = desk.run("run", str(desk.workflow("quick", "malformed", "quick")), "--id", "s", "--no-remember")
    assert code == 4
    assert "confidence: is missing" in out
    assert "holdfast session fix s s2" in out and "holdfast resume s" in out
    assert desk.saved()["error"]["raw_output"]["summary"] == "Half of it"
    (desk.folder / "go").touch()
    code, out, _ = desk.run("resume", "s", "--no-remember")
    assert code == 0
    assert desk.executions() == ["s1", "s2", "s3"]


def test_the_commands_that_are_printed_work_when_they_are_pasted(desk: Desk) -> None:
    """O1, W4: with the options and the base directory that were given, names with spaces included, through a real shell."""
    (desk.folder / "my config.yaml").write_text("title: {enabled: false}\n")
    (desk.folder / "my session.yaml").write_text("session: {path: 'kept here'}\n")
    home = str(desk.folder / "a home")
    given = ("--config", "my config.yaml", "--session-config", "my session.yaml", "--no-remember")
    pasting = {**desk.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    desk.environment["HOLDFAST_HOME"] = home

    def pasted(line: str) -> tuple[int, str]:
        done = subprocess.run(["bash", "-c", line], cwd=desk.folder, env=pasting, text=True, capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, out, _ = desk.run("run", str(desk.workflow("quick", "malformed", "quick")), "--id", "s", *given)
    assert code == 4
    fix, resume = [line.strip() for line in out.splitlines() if " session fix " in line or " resume " in line]
    assert (fix.count("HOLDFAST_HOME"), "--session-config" in fix, "--no-remember" in resume) == (1, True, True)
    draft = Path(shlex.split(fix)[shlex.split(fix).index("--file") + 1])
    code, told = pasted(fix)
    assert code == 4 and "confidence" in told, "the draft is what the stage wrote: it is refused until it is mended"
    draft.write_text(json.dumps({**json.loads(draft.read_text()), "confidence": "high"}))
    code, told = pasted(fix)
    assert code == 0 and "Go on with" in told, told
    assert not draft.exists()
    shown = pasted(resume.replace(" resume ", " session show ").replace(" --no-remember", ""))
    assert " resume s " in shown[1] and "--session-config 'my session.yaml'" in shown[1]
    code, told = pasted(resume)
    assert code == 0 and desk.executions() == ["s1", "s3"], told


def test_an_output_can_be_mended_in_an_editor(desk: Desk) -> None:
    """W4: `session fix` without a file opens what the stage wrote."""
    assert desk.run("run", str(desk.workflow("malformed")), "--id", "s", "--no-remember")[0] == 4
    editor = desk.folder / "editor"
    editor.write_text('#!/bin/sh\nsed -i \'s/"summary"/"confidence": "high", "summary"/\' "$1"\n')
    editor.chmod(0o755)
    desk.environment["EDITOR"] = str(editor)
    code, _, err = desk.run("session", "fix", "s", "s1")
    assert code == 0, err
    assert desk.saved()["stage_outputs"]["s1"]["confidence"] == "high"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_session_cleanly_and_it_can_be_resumed(desk: Desk, number: int) -> None:
    process = desk.start("run", str(desk.workflow("quick", "endless")), "--id", "s", "--no-remember")
    desk.wait_for(lambda: "s2" in desk.executions())
    process.send_signal(number)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "holdfast resume s" in out
    assert (desk.saved()["status"], desk.saved()["completed_stages"]) == ("cancelled", ["s1"])
    (desk.folder / "go").touch()
    assert desk.run("resume", "s", "--no-remember")[0] == 0
    assert desk.executions() == ["s1", "s2", "s2", "s2"]


def test_a_session_is_cancelled_from_another_terminal(desk: Desk) -> None:
    process = desk.start("run", str(desk.workflow("quick", "endless")), "--id", "s", "--no-remember")
    desk.wait_for(lambda: "s2" in desk.executions())
    code, out, err = desk.run("resume", "s", "--no-remember")
    assert code == 3 and str(process.pid) in err, "the one who runs it is named"
    code, out, _ = desk.run("cancel", "s", "--wait", "60")
    assert (code, out.strip()) == (0, "Session s is cancelled.")
    process.communicate(timeout=240)
    assert process.returncode == 130
    code, _, err = desk.run("cancel", "s")
    assert code == 2 and "nothing to stop" in err


def test_a_person_rejects_and_approves(desk: Desk) -> None:
    file = desk.workflow("quick", "quick", s1={"approve": True})
    code, out, _ = desk.run("run", str(file), "--id", "s", "--no-remember")
    assert code == 5
    assert "holdfast approve s s1" in out
    assert desk.run("reject", "s", "--why", "Too short")[0] == 0
    assert desk.saved()["error"]["kind"] == "rejected"
    assert desk.run("resume", "s", "--no-remember")[0] == 5
    assert desk.run("approve", "s", "--no-remember")[0] == 0
    assert desk.executions() == ["s1", "s1", "s2"]


def test_a_mistake_in_the_file_is_one_clear_line_and_2(desk: Desk) -> None:
    file = desk.folder / "w.yaml"
    file.write_text("id: w\ntask: t\nstages:\n  - name: a\n    agent_type: plannner\n", "utf-8")
    code, _, err = desk.run("run", str(file))
    assert code == 2
    assert "planner" in err and "Traceback" not in err
    assert not (desk.folder / ".holdfast").exists()


def test_a_changed_file_is_refused_until_it_is_accepted(desk: Desk) -> None:
    file = desk.workflow("quick", "malformed")
    desk.run("run", str(file), "--id", "s", "--no-remember")
    (desk.folder / "go").touch()
    desk.workflow("quick", "malformed", "quick")
    code, _, err = desk.run("resume", "s", "--no-remember")
    assert code == 2 and "--accept-changes" in err
    assert desk.run("resume", "s", "--no-remember", "--accept-changes")[0] == 0
    assert desk.executions() == ["s1", "s2", "s3"]


def in_a_box(bwrap: str, desk: Desk, *, size: int, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell script on a small disk of its own, as somebody who is not root."""
    source = str(Path(holdfast.__file__).parents[1])
    box = [bwrap, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--size", str(size), "--tmpfs", str(desk.folder)]
    box += ["--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--chdir", str(desk.folder)]
    box += [
        "--setenv",
        "PYTHONPATH",
        f"{source}:{ROOT}",
        "--setenv",
        "AGENTS_BASE",
        str(desk.folder),
        "--setenv",
        "PYTHONDONTWRITEBYTECODE",
        "1",
        "--setenv",
        "HOLDFAST_HOME",
        str(desk.folder / ".holdfast"),
    ]
    return subprocess.run([*box, "sh", "-c", script], capture_output=True, text=True, check=False, timeout=200)


STORY = """
mkdir -m 700 .holdfast  # everything is kept in it
printf '%s' '{workflow}' > w.yaml
{program} run w.yaml --id s --no-remember >run.out 2>/dev/shm/err; echo "run $?"
cat /dev/shm/err
{look}
{mend}
{program} resume s --no-remember >/dev/null; echo "resume $?"
{look}
"""


@pytest.mark.parametrize(
    ("agent", "mend", "word"),
    [("filling", "rm stuffing", "space"), ("forbidding", "chmod 700 .holdfast/sessions", "permission")],
)
def test_a_write_that_fails_in_the_middle_ends_with_3_and_the_old_state_stands(
    bwrap: str, desk: Desk, agent: str, mend: str, word: str
) -> None:
    stages = [{"name": name, "agent_type": AGENT + kind} for name, kind in (("s1", "quick"), ("s2", agent), ("s3", "quick"))]
    workflow = json.dumps({"id": "w", "task": "t", "stages": stages})
    code = 'import holdfast; s = holdfast.build().sessions.load("s"); print(s.status, *s.completed_stages)'  # the file may be late
    look = f"{sys.executable} -c '{code}'"
    script = STORY.replace("{workflow}", workflow).replace("{program}", " ".join(PROGRAM)).replace("{look}", look).replace("{mend}", mend)
    done = in_a_box(bwrap, desk, size=3_000_000, script=script)
    told = done.stdout.splitlines()
    assert told[0] == "run 3", done.stdout + done.stderr
    assert word in told[1].lower()
    assert told[2].split()[1] == "s1", "what was committed stands; how much that is depends on when the readable file was due"
    assert told[3:] == ["resume 0", "completed s1 s2 s3"]
