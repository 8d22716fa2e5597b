"""A10: the files of a thread take no more room than `sandbox.max_bytes`, while a command runs as before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.loading import load_config
from holdfast.errors import InputError, QuotaExceeded
from holdfast.sandbox.commands import CommandLimits
from holdfast.sandbox.files import FileLimits
from holdfast.sandbox.local import LocalSandbox, sandbox_arguments
from holdfast.sandbox.uploads import Uploads

MIB = 1024 * 1024
LIMIT = 8 * MIB


@pytest.fixture(params=["bubblewrap", "host"])
def sandbox(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    """With a boundary and without: `/bin/false` is a bubblewrap that does not work."""
    host: dict[str, Any] = {"allow_host_bash": True, "bubblewrap": "/bin/false"} if request.param == "host" else {}
    limits = CommandLimits(seconds=60.0)
    with LocalSandbox("t1", base=tmp_path, limits=limits, file_limits=FileLimits(total_bytes=LIMIT), **host) as opened:
        if opened.boundary is None:
            pytest.skip("there is no bubblewrap here")
        yield opened


WRITERS: dict[str, str] = {
    "one file": "cat /dev/zero > big",
    "many files": "i=0; while true; do head -c 100000 /dev/zero > f$i; i=$((i+1)); done",
    "appended by many": "for n in 1 2 3 4; do (while true; do head -c 50000 /dev/zero >> f$n; done) & done; wait",
    "in a folder below": "mkdir -p a/b/c; cat /dev/zero > a/b/c/big",
    "in the outputs": 'cd "${OUTPUTS:-/mnt/user-data/outputs}"; cat /dev/zero > big',
    "without a name": "exec 3> gone; rm gone; cat /dev/zero >&3",
    "by another process": "(setsid cat /dev/zero > big &); sleep 60",
    "allocated": "i=0; while fallocate -l 1000000 f$i; do i=$((i+1)); done; sleep 60",
}


@pytest.mark.parametrize("how", WRITERS)
def test_a_command_that_writes_too_much_is_stopped_and_told(sandbox: LocalSandbox, how: str) -> None:
    """A10"""
    ended = sandbox.run(WRITERS[how])
    assert ended.ending == "killed_disk", ended.text
    assert "took more room than they may" in ended.text
    assert not ended.ok


def test_what_it_may_write_it_may_write(sandbox: LocalSandbox) -> None:
    """A10: up to the limit nothing is stopped, and a sparse file counts for what it takes."""
    ended = sandbox.run("head -c 6000000 /dev/zero > big; truncate -s 500M sparse; ls; ln big twice; sleep 0.5; echo done")
    assert (ended.ending, ended.output.split()[-1]) == ("exited", "done")
    assert 5 * MIB < sandbox._quota.used() < LIMIT


def test_where_there_is_no_room_left_a_command_can_remove_and_not_write(sandbox: LocalSandbox) -> None:
    """A10: how could room be made otherwise? And no command adds a little to the last one's too much."""
    sandbox.run("cat /dev/zero > big")
    before = sandbox._quota.used()
    assert before > LIMIT
    refused = sandbox.run("echo more > more; head -c 5000000 /dev/zero >> big; echo $?")
    assert "remove some to write again" in refused.text
    assert sandbox._quota.used() <= before + 4096
    assert sandbox.run("rm big more; ls").ok
    free = sandbox.run("head -c 1000000 /dev/zero > again; echo done")
    assert (free.output, free.note) == ("done\n", None)


def test_a_write_tool_is_refused_beyond_the_limit_and_works_again_when_room_is_made(tmp_path: Path) -> None:
    """A10"""
    with LocalSandbox("t1", base=tmp_path, file_limits=FileLimits(total_bytes=LIMIT)) as sandbox:
        files = sandbox.files
        files.write("a", b"x" * 5 * MIB)
        operations: list[Callable[[], object]] = [
            lambda: files.write("b", b"x" * 4 * MIB),
            lambda: files.append("a", b"x" * 4 * MIB),
            lambda: files.copy("a", "b"),
            lambda: files.copy("a", "/mnt/user-data/outputs/a"),
            lambda: files.str_replace("small", "y", "z" * 4 * MIB),
        ]
        files.write("small", "y")
        for operation in operations:
            with pytest.raises(QuotaExceeded, match="max_bytes"):
                operation()
        files.write("a", b"y" * 6 * MIB)  # in the place of what is there: no more than that
        files.write("a", b"y" * MIB)
        files.write("b", b"x" * 6 * MIB)
        files.delete("b")
        files.write("c", b"x" * 6 * MIB)
        assert isinstance(QuotaExceeded("x"), InputError)


def test_uploads_are_held_to_it_too(tmp_path: Path) -> None:
    """A10"""
    with LocalSandbox("t1", base=tmp_path, file_limits=FileLimits(total_bytes=LIMIT)) as sandbox:
        uploads = Uploads("t1", sandbox.files, base=tmp_path)
        with pytest.raises(QuotaExceeded):
            uploads.take("big.bin", b"x" * 9 * MIB)
        assert sandbox._quota.used() <= LIMIT


def test_a_mounted_folder_is_the_users_own_and_does_not_count(tmp_path: Path) -> None:
    """A10"""
    (tmp_path / "mine").mkdir()
    (tmp_path / "config.yaml").write_text(
        f"sandbox:\n  max_bytes: {LIMIT}\n  mounts:\n    - {{host_path: mine, container_path: /mnt/mine}}\n"
    )
    config = load_config(tmp_path / "config.yaml")
    with LocalSandbox("t1", **sandbox_arguments(config)) as sandbox:
        sandbox.files.write("/mnt/mine/large", b"x" * 9 * MIB)
        with pytest.raises(QuotaExceeded):
            sandbox.files.write("large", b"x" * 9 * MIB)


def test_the_limit_is_a_setting_and_can_be_none(tmp_path: Path) -> None:
    """A10, C2"""
    (tmp_path / "config.yaml").write_text("sandbox: {max_bytes: null}\n")
    assert sandbox_arguments(load_config(tmp_path / "config.yaml"))["file_limits"].total_bytes is None
    assert sandbox_arguments(load_config(None, environ={"HOLDFAST_HOME": str(tmp_path)}))["file_limits"].total_bytes == 10 * 1024**3
    with LocalSandbox("t1", base=tmp_path) as sandbox:
        sandbox.files.write("large", b"x" * 9 * MIB)
