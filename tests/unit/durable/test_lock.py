"""M6, P3: the lock: one at a time among threads, processes and forked children; released by death; says who holds it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holdfast.durable.lock import Lock
from holdfast.errors import Locked, NotWritable, StorageError

HOLD = """
import sys
from holdfast.durable.lock import Lock
with Lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


def test_who_waits_too_long_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    held = []
    with Lock(path) as lock:
        held.append(lock.held)
        with pytest.raises(Locked) as caught:
            Lock(path, timeout=0.02).acquire()
    held.append(lock.held)
    assert held == [True, False]
    assert caught.value.owner is not None
    assert caught.value.owner.startswith(f"process {os.getpid()} on {socket.gethostname()}, since 20")
    assert caught.value.owner in str(caught.value)
    with Lock(path, timeout=0):
        pass
    assert Lock(path).owner() is None


def test_threads_that_share_an_object_take_turns(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "a.lock")
    count = 0

    def work() -> None:
        nonlocal count
        for _ in range(50):
            with lock:
                seen = count
                time.sleep(0)  # gives other threads a chance
                count = seen + 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == 200


def test_a_lock_is_not_reentrant_and_says_so_in_time(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "a.lock", timeout=0.02)
    with lock, pytest.raises(Locked):
        lock.acquire()
    lock.release()
    with lock:
        pass


def test_the_kernel_frees_the_lock_of_a_killed_process(tmp_path: Path) -> None:
    process = holder(tmp_path / "a.lock")
    with pytest.raises(Locked, match=f"process {process.pid} "):
        Lock(tmp_path / "a.lock", timeout=0.02).acquire()
    end(process)
    with Lock(tmp_path / "a.lock", timeout=240):
        pass


def test_without_a_timeout_the_kernel_wakes_the_one_who_waits(tmp_path: Path) -> None:
    process = holder(tmp_path / "a.lock")
    threading.Timer(0.05, end, [process]).start()
    with Lock(tmp_path / "a.lock", timeout=None) as lock:
        assert lock.held


def test_a_forked_child_neither_holds_the_lock_nor_keeps_it_alive(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    reader, writer = os.pipe()
    holder_of_the_lock = os.fork()
    if holder_of_the_lock == 0:  # takes the lock, leaves a child of its own behind, and dies
        lock = Lock(path)
        lock.acquire()
        if os.fork() == 0:
            os.write(writer, f"{os.getpid()} {lock.held}".encode())
            time.sleep(600)
        os._exit(0)
    os.close(writer)
    assert os.waitpid(holder_of_the_lock, 0)[1] == 0
    child, held = os.read(reader, 100).decode().split()
    os.close(reader)
    try:
        assert held == "False"
        with Lock(path, timeout=240):
            pass
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_without_flock_nothing_is_locked_by_a_guess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P3: the stated behaviour where there is no flock."""
    monkeypatch.setattr("holdfast.durable.lock.fcntl", None)
    lock = Lock(tmp_path / "a.lock")
    with pytest.raises(StorageError, match="no flock"):
        lock.acquire()
    assert not lock.held


def test_a_lock_file_that_was_removed_while_held_is_not_mistaken_for_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    first, second, waiting = Lock(path), Lock(path), Lock(path, timeout=None)
    first.acquire()
    thread = threading.Thread(target=waiting.acquire)
    thread.start()
    while sum(entry.is_symlink() and entry.resolve() == path for entry in Path("/proc/self/fd").iterdir()) < 2:
        time.sleep(0.001)  # until it has the file open and waits for the lock
    path.unlink()
    second.acquire()
    first.release()  # now the one that waited has the lock of a file that is gone
    thread.join(timeout=0.2)
    assert not waiting.held
    second.release()
    thread.join()
    with pytest.raises(Locked):
        Lock(path, timeout=0.02).acquire()
    waiting.release()


def test_a_lock_survives_garbage_in_its_file_and_the_file_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_bytes(b"\xff\0garbage")
    assert Lock(path).owner() is None
    with Lock(path):
        inode = path.stat().st_ino
    assert path.stat().st_ino == inode
    assert Lock(path).owner() is None  # what stands there is the name of one who left


def test_missing_folders_are_made_and_what_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with Lock(tmp_path / "deep" / "er" / "a.lock"):
        pass
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        Lock(tmp_path / "file" / "a.lock", timeout=0.02).acquire()
    (tmp_path / "link.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        Lock(tmp_path / "link.lock", timeout=0.02).acquire()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(NotWritable):
        Lock(tmp_path / "a.lock").acquire()


def test_a_lock_that_was_released_is_not_shared_with_a_child(tmp_path: Path) -> None:
    """P3: its descriptor is kept for the next time, by this process alone: what the parent locks then the child does not have."""
    path = tmp_path / "a.lock"
    with Lock(path):
        pass
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        try:
            with Lock(path, timeout=0):
                os._exit(1)
        except Locked:
            os._exit(0)
    os.read(ready[0], 1)
    with Lock(path):
        os.write(go[1], b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


TURNS = """
import os, sys, time
from holdfast.durable.lock import Lock
path, log, me, turns = *sys.argv[1:4], int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
print("waits", flush=True)
while True:
    with Lock(path, timeout=240):
        if os.path.getsize(log) >= turns:
            break
        time.sleep(0.005)
        with open(log, "a") as file:
            file.write(me)
"""


def test_eight_processes_that_write_all_the_time_all_get_their_turns(tmp_path: Path) -> None:
    """M6: nobody starves: of 160 turns each of eight has at least a fifth of its fair share, and none waits in vain."""
    path, log = tmp_path / "a.lock", tmp_path / "turns"
    log.touch()
    command = [sys.executable, "-c", TURNS, str(path), str(log)]
    running = [subprocess.Popen([*command, me, "160"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for me in "abcdefgh"]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    with Lock(path):  # all of them wait when it begins
        for process in running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
        for process in running:
            while not any(entry.resolve() == path for entry in Path(f"/proc/{process.pid}/fd").iterdir()):
                time.sleep(0.005)  # until it has the file open and waits for the lock
    for process in running:
        with process:
            process.communicate()
    assert [process.returncode for process in running] == [0] * 8
    turns = log.read_text()
    counts = {me: turns.count(me) for me in "abcdefgh"}
    assert min(counts.values()) >= 4, counts


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no folder here in which nobody can make one")
def test_where_no_folder_can_be_made_the_error_is_typed_and_names_the_place() -> None:
    """W15, P3"""
    with pytest.raises(NotWritable, match=r"/proc/none-here/a\.lock") as caught:
        Lock("/proc/none-here/a.lock").acquire()
    assert "HOLDFAST_HOME" in str(caught.value.hint)
