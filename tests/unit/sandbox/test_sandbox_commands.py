"""A10, A11, P3: running commands: what comes back, where they may run, and what is said where they may not."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.loading import load_config
from holdfast.context.compaction import FileOutputs
from holdfast.errors import ConfigError, InputError, SandboxUnavailable
from holdfast.sandbox.bubblewrap import base_environment, filter_program, unavailable_because
from holdfast.sandbox.commands import Cancel, Capture, CommandLimits, CommandResult, Sandbox, shortened
from holdfast.sandbox.local import LocalSandbox, check_sandbox, commands_available, open_mount, open_sandbox, sandbox_arguments
from holdfast.sandbox.paths import OUTPUTS, WORKSPACE
from holdfast.skills import open_skills

NOWHERE = "/nowhere/bwrap"


@pytest.fixture
def sandbox(bwrap: str, tmp_path: Path) -> Iterator[LocalSandbox]:
    del bwrap
    with LocalSandbox("t1", base=tmp_path / "base", limits=CommandLimits(seconds=30, shown_chars=2000)) as opened:
        yield opened


def test_a_command_sees_the_files_that_the_tools_wrote_and_the_other_way_round(sandbox: LocalSandbox) -> None:
    sandbox.files.write("in.txt", "from a tool\n")
    ended = sandbox.run("cat in.txt; pwd; echo from a command > /mnt/user-data/outputs/out.txt; mkdir -p deep/er; echo x > deep/er/y")
    assert ended.output == f"from a tool\n{WORKSPACE}\n"
    assert (ended.exit_code, ended.ending, ended.boundary, ended.truncated_bytes) == (0, "exited", "bubblewrap", 0)
    assert ended.ok
    assert sandbox.files.read(f"{OUTPUTS}/out.txt").text == "from a command\n"
    sandbox.files.str_replace("deep/er/y", "x", "z")
    assert sandbox.run("cat deep/er/y; echo more >> deep/er/y").ok


def test_files_of_the_outputs_that_others_wrote_can_be_read_by_a_command(sandbox: LocalSandbox, tmp_path: Path) -> None:
    """A11: what was moved out of the window is at the path that the reference names, for tools and commands alike."""
    for moment in ("before", "after"):
        path = FileOutputs(tmp_path / "base").keep("t1", f"id-{moment}", f"moved {moment}")
        assert path.startswith(f"{OUTPUTS}/")
        assert sandbox.files.read(path).text == f"moved {moment}"
        assert sandbox.run(f"cat {path}").output == f"moved {moment}"


ENDS = {"true": 0, "exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143, "no-such-program": 127, "(": 2, "set -e; false; echo no": 1}


@pytest.mark.parametrize("command", ENDS)
def test_the_exit_code_is_told(sandbox: LocalSandbox, command: str) -> None:
    assert sandbox.run(command).exit_code == ENDS[command]


def test_both_streams_come_in_their_order(sandbox: LocalSandbox) -> None:
    assert sandbox.run("echo 1; echo 2 >&2; echo 3").output == "1\n2\n3\n"


def test_quotes_breaks_and_every_sign_reach_bash_as_they_are(sandbox: LocalSandbox) -> None:
    assert sandbox.run("cat <<'END'\n$HOME \"x\" 'y' \\ ü 漢\nEND\necho \"$0\"").output == "$HOME \"x\" 'y' \\ ü 漢\nbash\n"


@pytest.mark.parametrize("command", ["", "  \n", "echo \0", "x" * 100_001])
def test_what_is_no_command_is_refused(sandbox: LocalSandbox, command: str) -> None:
    with pytest.raises(InputError):
        sandbox.run(command)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_time_that_is_none_is_refused(sandbox: LocalSandbox, timeout: float) -> None:
    with pytest.raises(InputError):
        sandbox.run("true", timeout=timeout)


def test_a_call_can_shorten_the_time_and_not_lengthen_it(bwrap: str, tmp_path: Path) -> None:
    del bwrap
    with LocalSandbox("t1", base=tmp_path, limits=CommandLimits(seconds=0.3)) as short:
        assert short.run("sleep 60", timeout=1000).ending == "timed_out"


def test_long_output_is_shown_by_its_ends_and_kept_in_a_file(sandbox: LocalSandbox) -> None:
    ended = sandbox.run("seq 1 5000")
    assert ended.output.startswith("1\n2\n")
    assert ended.output.endswith("4999\n5000\n")
    assert len(ended.output) < 2100
    assert ended.saved is not None
    assert f"More of it is in {ended.saved}" in ended.text
    whole = sandbox.files.read_bytes(ended.saved, limit=100_000).decode()
    assert whole == "".join(f"{number}\n" for number in range(1, 5001))
    assert sandbox.run(f"tail -1 {ended.saved}").output == "5000\n"


def test_what_the_model_is_shown_says_what_is_out_of_the_ordinary() -> None:
    def shown(**facts: object) -> str:
        usual = {"exit_code": 0, "output": "", "truncated_bytes": 0, "seconds": 1.0, "ending": "exited", "boundary": "bubblewrap"}
        return CommandResult(**(usual | facts)).text  # type: ignore[arg-type]

    assert shown() == "(no output)"
    assert shown(output="a\n") == "a"
    assert shown(output="a\n", exit_code=2) == "a\n[Exit code 2.]"
    assert shown(exit_code=None, ending="timed_out") == "[Stopped because its time was up after 1.0 s.]"
    assert shown(output="a", truncated_bytes=9) == "a\n[9 bytes of the output are left out.]"


async def test_a_command_can_be_awaited(sandbox: LocalSandbox) -> None:
    many = await asyncio.gather(*(sandbox.arun(f"echo {number}") for number in range(4)))
    assert [ended.output for ended in many] == [f"{number}\n" for number in range(4)]


async def test_cancelling_the_task_stops_the_command(sandbox: LocalSandbox) -> None:
    task = asyncio.ensure_future(sandbox.arun("touch started; sleep 60; touch finished"))
    while not sandbox.files.exists("started"):
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not sandbox.files.exists("finished")


def test_a_cancel_that_is_set_before_stops_at_once(sandbox: LocalSandbox) -> None:
    cancel = Cancel()
    cancel.set()
    assert sandbox.run("sleep 60", cancel=cancel).ending == "cancelled"


def test_closing_stops_what_is_running(bwrap: str, tmp_path: Path) -> None:
    del bwrap
    sandbox = LocalSandbox("t1", base=tmp_path)
    ended: list[CommandResult] = []
    worker = threading.Thread(target=lambda: ended.append(sandbox.run("touch started; sleep 60")))
    worker.start()
    while not (tmp_path / "threads/t1/user-data/workspace/started").exists():
        time.sleep(0.02)
    sandbox.close()
    worker.join()
    assert ended[0].ending == "cancelled"


def test_mounts_are_seen_as_configured(bwrap: str, tmp_path: Path) -> None:
    del bwrap
    for name in ("data", "notes"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name).chmod(0o777)
        (tmp_path / name / "a.txt").write_text(name)
        (tmp_path / name / "a.txt").chmod(0o644)
    mounts = (open_mount(tmp_path / "data", "/mnt/data", read_only=True), open_mount(tmp_path / "notes", "/notes", read_only=False))
    with LocalSandbox("t1", base=tmp_path / "base", mounts=mounts) as sandbox:
        ended = sandbox.run("cat /mnt/data/a.txt /notes/a.txt; echo new > /notes/new.txt; echo x > /mnt/data/x")
    assert ended.output.startswith("datanotes")
    assert "Read-only file system" in ended.output
    assert (tmp_path / "notes" / "new.txt").read_text() == "new\n"
    assert not (tmp_path / "data" / "x").exists()


def test_the_environment_is_what_was_configured_and_nothing_else(bwrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del bwrap
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with LocalSandbox("t1", base=tmp_path, environment={"MODE": "test"}) as sandbox:
        names = {line.partition("=")[0] for line in sandbox.run("env").output.splitlines()}
    assert names - {"_", "PWD", "OLDPWD", "SHLVL"} == {*base_environment(), "MODE"}


def test_without_bubblewrap_commands_are_refused_and_files_work(tmp_path: Path) -> None:
    with LocalSandbox("t1", base=tmp_path, bubblewrap=NOWHERE) as sandbox:
        sandbox.files.write("a.txt", "a")
        assert sandbox.boundary is None
        with pytest.raises(SandboxUnavailable, match="apt install bubblewrap"):
            sandbox.run("true")


def test_other_platforms_say_that_there_is_no_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """P3: elsewhere than on Linux commands are off and the file tools go step by step."""
    with LocalSandbox("t1", base=tmp_path) as sandbox:
        monkeypatch.setattr("sys.platform", "darwin")
        assert unavailable_because() == "there is no bubblewrap for darwin."
        with pytest.raises(SandboxUnavailable, match="needs Linux"):
            sandbox.run("true")
        monkeypatch.undo()


def test_a_bubblewrap_that_does_not_work_is_not_used(tmp_path: Path) -> None:
    for name, script, reason in (
        ("old", "echo bubblewrap 0.4.1", "or newer is needed"),
        ("barred", 'test "$1" = --version && echo bubblewrap 0.9.0 || { echo "bwrap: No permissions" >&2; exit 1; }', "No permissions"),
        ("other", "echo hello", "or newer is needed"),
    ):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        assert reason in (unavailable_because(str(program)) or "")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalSandbox]:
    limits = CommandLimits(seconds=20, memory_bytes=300 * 1024 * 1024, processes=60)
    with LocalSandbox("t1", base=tmp_path / "base", allow_host_bash=True, bubblewrap=NOWHERE, limits=limits) as opened:
        yield opened


def test_on_the_host_a_command_says_that_there_is_no_boundary(host: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    host.files.write("a.txt", "a")
    ended = host.run('cat a.txt "$WORKSPACE/a.txt"; env | grep -c sk-secret')
    assert (ended.boundary, ended.output) == ("none", "aa0\n")
    assert host.boundary == "none"


def test_on_the_host_the_limits_hold_and_nothing_survives(host: LocalSandbox) -> None:
    assert host.run("sleep 60", timeout=0.3).ending == "timed_out"
    nap = f"8{os.getpid():07}"
    assert host.run(f"setsid sleep {nap} & (setsid nohup sleep {nap} >/dev/null 2>&1 &) ; exit 0").exit_code == 0
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _has(path, nap.encode())]
    assert left == []
    assert host.run("for i in $(seq 300); do sleep 30 & done; wait").ending == "killed_processes"
    assert len(host.run("seq 1 100000").output) < 30_000


def _has(path: Path, text: bytes) -> bool:
    try:
        return text in path.read_bytes()
    except OSError:
        return False


def test_the_configuration_says_what_a_sandbox_is(bwrap: str, tmp_path: Path) -> None:
    del bwrap
    (tmp_path / "shared").mkdir()
    (tmp_path / "skills" / "custom" / "tidy").mkdir(parents=True)
    (tmp_path / "skills" / "custom" / "tidy" / "SKILL.md").write_text("---\nname: tidy\ndescription: d\n---\nbody")
    (tmp_path / "config.yaml").write_text(
        "sandbox:\n  use: src.sandbox.local:LocalSandboxProvider\n  timeout_seconds: 7\n  memory_mb: 64\n  bash_output_max_chars: 500\n"
        "  environment: {COLOUR: $SHADE}\n  mounts:\n    - {host_path: shared, container_path: /mnt/shared}\n"
    )
    os.environ["SHADE"] = "blue"
    config = load_config(tmp_path / "config.yaml")
    try:
        sandbox = open_sandbox(config, "t1")
    finally:
        del os.environ["SHADE"]
    assert isinstance(sandbox, LocalSandbox)
    assert (sandbox.limits.seconds, sandbox.limits.memory_bytes, sandbox.limits.shown_chars) == (7, 64 * 1024 * 1024, 500)
    assert sandbox.run("echo $COLOUR; ls -d /mnt/shared; tail -1 /mnt/skills/custom/tidy/SKILL.md").output == "blue\n/mnt/shared\nbody"
    assert sandbox.files.read("/mnt/skills/custom/tidy/SKILL.md").text.endswith("body")
    assert config.skills_in_use() == open_skills(config).folder == tmp_path / "skills"
    sandbox.close()


@pytest.mark.parametrize("use", ["no.such:Thing", "holdfast.sandbox.local:Nothing", "os:getcwd", "nonsense"])
def test_a_sandbox_that_cannot_be_loaded_is_an_error_and_never_another_one(tmp_path: Path, use: str) -> None:
    (tmp_path / "config.yaml").write_text(f"sandbox: {{use: '{use}'}}\n")
    with pytest.raises(ConfigError, match=r"sandbox\.use"):
        open_sandbox(load_config(tmp_path / "config.yaml"), "t1")


class NoSandbox:
    """What has the name and not the methods."""

    def __init__(self, thread: str, **parts: object) -> None:
        self.thread = thread

    def run(self, command: str) -> str:
        return command


def test_a_sandbox_that_lacks_a_method_is_an_error_before_any_turn(tmp_path: Path) -> None:
    """A10: with the method's name."""
    (tmp_path / "config.yaml").write_text(f"sandbox: {{use: '{__name__}:NoSandbox'}}\n")
    config = load_config(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match="it has no arun, close"):
        check_sandbox(config)
    (tmp_path / "config.yaml").write_text("sandbox: {use: 'holdfast.sandbox.local:LocalSandbox'}\n")
    assert check_sandbox(load_config(tmp_path / "config.yaml")) is None


def test_no_file_becomes_larger_than_what_a_thread_may_take(tmp_path: Path) -> None:
    """A9: the limit of one file goes along with `max_bytes`."""
    (tmp_path / "config.yaml").write_text("sandbox: {max_bytes: 100000}\n")
    assert sandbox_arguments(load_config(tmp_path / "config.yaml"))["limits"].file_bytes == 100_000


def test_bash_is_offered_where_it_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for setting, offered in (("{}", False), ("{allow_host_bash: true}", True), ("{use: 'my.own:Sandbox'}", True)):
        (tmp_path / "config.yaml").write_text(f"sandbox: {setting}\n")
        assert commands_available(load_config(tmp_path / "config.yaml")) is offered


def test_the_default_keeps_the_contract_of_the_seam(tmp_path: Path) -> None:
    with LocalSandbox("t1", base=tmp_path, bubblewrap=NOWHERE) as local:
        seam: Sandbox = local
        assert seam.thread == "t1"
        seam.close()


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 50))
def test_what_is_kept_of_the_output_adds_up(parts: list[bytes], size: int) -> None:
    capture, whole = Capture(size), b"".join(parts)
    for part in parts:
        capture.add(part)
    text = capture.text()
    assert capture.total == len(whole)
    assert capture.dropped == max(len(whole) - 2 * size, 0)
    if not capture.dropped:
        assert text == whole.decode("utf-8", "replace")
    else:
        assert text.startswith(whole[:size].decode("utf-8", "replace").rstrip("\ufffd"))
        assert text.endswith(whole[-size:].decode("utf-8", "replace").lstrip("\ufffd"))


@given(st.text(max_size=300), st.integers(0, 200))
def test_shortening_counts_what_it_leaves_out(text: str, room: int) -> None:
    short, left_out = shortened(text, room)
    kept = len(text.encode("utf-8", "replace")) - left_out
    assert len(short) <= max(room, 0) + 7
    assert kept >= 0
    assert (left_out == 0) == (len(text) <= room)


def test_the_filter_is_known_for_common_machines_and_absent_elsewhere() -> None:
    for machine in ("x86_64", "aarch64"):
        program = filter_program(machine)
        assert program is not None
        assert len(program) % 8 == 0
    assert filter_program("riscv64") is None
