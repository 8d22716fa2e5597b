"""A10: what a command in the sandbox tries, and does not get. Each probe prints ESCAPED where it succeeds; none may.

Where the walls are down a probe still does no harm: it writes back what it has read, and kills only what this file has started.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.sandbox.commands import Cancel, CommandLimits
from holdfast.sandbox.local import LocalSandbox
from holdfast.sandbox.searching import grep

SECRET = "secret-of-the-host-51c2"  # noqa: S105 - a canary
MIB = 1024 * 1024
NAP = f"9{os.getpid():07}"  # seconds of a sleep by which our own processes are told from all others


@dataclass(frozen=True)
class World:
    """A sandbox, and a host around it with something to find: files, a process, servers, a secret in the environment."""

    place: Path
    sandbox: LocalSandbox
    victim: subprocess.Popen[bytes]
    words: dict[str, str]

    def fill(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace(f"@{word}@", value)
        return text


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if shutil.which("bwrap") is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("bwrap is not installed (Debian package bubblewrap)")
        pytest.skip("bwrap is not installed (Debian package bubblewrap)")
    place = tmp_path_factory.mktemp("host")
    (place / "canary").write_text(SECRET)
    (place / "canary").chmod(0o644)
    abstract = f"holdfast-{secrets.token_hex(8)}"
    tcp, udp, local, hidden = (
        socket.socket(),
        socket.socket(type=socket.SOCK_DGRAM),
        socket.socket(socket.AF_UNIX),
        socket.socket(socket.AF_UNIX),
    )
    for server, address in ((tcp, ("127.0.0.1", 0)), (udp, ("127.0.0.1", 0)), (local, str(place / "socket")), (hidden, f"\0{abstract}")):
        server.bind(address)
    for server in (tcp, local, hidden):
        server.listen(64)
    udp.setblocking(False)
    victim = subprocess.Popen(["sleep", "1000"])
    os.environ["HOLDFAST_PROBE_SECRET"] = SECRET
    words = {
        "place": str(place),
        "tcp": str(tcp.getsockname()[1]),
        "udp": str(udp.getsockname()[1]),
        "abstract": abstract,
        "victim": str(victim.pid),
        "parent": str(os.getpid()),
        "secret": SECRET,
    }
    limits = CommandLimits(seconds=120.0, memory_bytes=512 * MIB, processes=128, file_bytes=64 * MIB, temp_bytes=32 * MIB)
    try:
        with LocalSandbox(
            "probe", base=place / "base", limits=limits, environment={"ALLOWED": f"allowed-{secrets.token_hex(8)}"}
        ) as sandbox:
            yield World(place, sandbox, victim, words)
        with pytest.raises(BlockingIOError):
            udp.recv(100)  # no packet of a probe has arrived
    finally:
        del os.environ["HOLDFAST_PROBE_SECRET"]
        victim.kill()
        victim.wait()
        for server in (tcp, udp, local, hidden):
            server.close()


def python(code: str) -> str:
    """A probe in Python: ESCAPED if the code gets to its end."""
    body = "\n".join(f"    {line}" for line in code.strip().splitlines())
    program = f"try:\n{body}\n    print('ESCAPED')\nexcept (OSError, AssertionError) as error:\n    print('refused', error)"
    return f"/usr/bin/python3 - <<'END'\n{program}\nEND"


CALL = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nassert libc.syscall({}) >= 0, os.strerror(ctypes.get_errno())"
PROBES: dict[str, str] = {
    # files of the host
    "host file": "grep -q @secret@ @place@/canary && echo ESCAPED",
    "host folder": "ls @place@ 2>/dev/null | grep -q . && echo ESCAPED",
    "shadow": "cat /etc/shadow 2>/dev/null | grep -q . && echo ESCAPED",
    "sudoers": "cat /etc/sudoers 2>/dev/null | grep -q . && echo ESCAPED",
    "home of root": "ls -A /root 2>/dev/null | grep -q . && echo ESCAPED",
    "homes": "ls -A /home /var/lib /opt /srv /run 2>/dev/null | grep -v '^/.*:$' | grep -q . && echo ESCAPED",
    "accounts of the host": "test $(wc -l < /etc/passwd) -gt 2 && echo ESCAPED",
    "another thread": "ls /mnt/user-data/.. | grep -v '^user-data$' | grep -q . && echo ESCAPED",
    "above the thread": "ls -d ../../../threads ../../t2 /mnt/user-data/../../base 2>/dev/null | grep -q . && echo ESCAPED",
    "host root by proc": "ls /proc/1/root/@place@ 2>/dev/null | grep -q . && echo ESCAPED",
    "host root by cwd of pid 1": "cat /proc/1/cwd/@place@/canary 2>/dev/null | grep -q . && echo ESCAPED",
    "file handles": python(CALL.format("304, -100, 0, 0")),
    "disk": "for d in /dev/vda /dev/sda /dev/nvme0n1 /dev/mem /dev/kmsg /dev/fuse /dev/kvm; do test -e $d && echo ESCAPED; done",
    "kernel memory": "head -c 1 /proc/kcore 2>/dev/null | grep -q . && echo ESCAPED",
    # writing
    "write to /usr": "touch /usr/escaped 2>/dev/null && echo ESCAPED",
    "write to /usr/local/bin": "touch /usr/local/bin/escaped 2>/dev/null && echo ESCAPED",
    "write to /etc": "touch /etc/escaped 2>/dev/null && echo ESCAPED",
    "change an account": "echo x >> /etc/passwd 2>/dev/null && echo ESCAPED",
    "write to the root": "touch /escaped /mnt/escaped /mnt/user-data/escaped /dev/escaped 2>/dev/null && echo ESCAPED",
    "replace the workspace": "cd /; mv /mnt/user-data/workspace /mnt/user-data/old 2>/dev/null && echo ESCAPED",
    "remount": "mount -o remount,rw /usr 2>/dev/null && echo ESCAPED",
    "mount": "mount -t tmpfs none /tmp 2>/dev/null && echo ESCAPED",
    "bind mount": "mount --bind /proc /tmp 2>/dev/null && echo ESCAPED",
    "core pattern": 'f=/proc/sys/kernel/core_pattern; v=$(cat $f); (echo "$v" > $f) 2>/dev/null && echo ESCAPED',
    "kernel settings": (
        "cd /proc/sys; for f in kernel/threads-max vm/overcommit_memory fs/suid_dumpable kernel/printk; do v=$(cat $f); "
        '(echo "$v" > $f) 2>/dev/null && echo ESCAPED; done'
    ),
    "sysrq": "(echo h > /proc/sysrq-trigger) 2>/dev/null && echo ESCAPED",
    "control groups": "ls /sys/fs/cgroup 2>/dev/null | grep -q . && echo ESCAPED",
    "hard link to the system": "ln /usr/bin/env ./env 2>/dev/null && echo ESCAPED",
    "hard link to an account file": "ln /etc/passwd ./passwd 2>/dev/null && echo ESCAPED",
    "hard link between mounts": "touch x; ln x /mnt/user-data/outputs/x 2>/dev/null && echo ESCAPED",
    # processes
    "processes of the host": "test $(ls -d /proc/[0-9]* | wc -l) -gt 12 && echo ESCAPED",
    "the victim": "grep -qs 1000 /proc/@victim@/cmdline && echo ESCAPED",
    "kill the victim": "kill -9 @victim@ 2>/dev/null && echo ESCAPED",
    "signal the parent": "kill -0 @parent@ 2>/dev/null && echo ESCAPED",
    "trace the victim": python(CALL.format("101, 16, @victim@, 0, 0")),
    "trace the first process": python(CALL.format("101, 16, 1, 0, 0")),
    "memory of the first process": "head -c 1 /proc/1/mem 2>/dev/null | grep -q . && echo ESCAPED",
    "priority": "nice -n -10 true 2>&1 | grep -q . || (nice -n -10 sh -c 'test $(nice) -lt 0' && echo ESCAPED)",
    "shared memory of the host": "ls /dev/shm | grep -q . && echo ESCAPED",
    "queues of the host": "test $(ipcs -m 2>/dev/null | grep -c 0x) -gt 0 && echo ESCAPED",
    "keyring": python(CALL.format("250, 0, -4, 0")),
    # privileges
    "who am I": "test $(id -u) -eq 0 && echo ESCAPED",
    "capabilities": "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -qv 0000000000000000 && echo ESCAPED",
    "new privileges": "grep -q 'NoNewPrivs:.0' /proc/self/status && echo ESCAPED",
    "no filter": "grep -q 'Seccomp:.0' /proc/self/status && echo ESCAPED",
    "become root": python("import os\nos.setuid(0)"),
    "become the first user": python("import os\nos.setresuid(1000, 1000, 1000)"),
    "groups": python("import os\nos.setgroups([0])"),
    "setuid program": "su -c true root </dev/null 2>/dev/null && echo ESCAPED; sudo -n true 2>/dev/null && echo ESCAPED; true",
    "make a setuid program": "cp /usr/bin/id ./id && chmod u+s ./id && ./id | grep -q 'euid=0' && echo ESCAPED",
    "leave a setuid program": (
        "cp /usr/bin/id ./id; for m in u+s g+s 4755 2755; do chmod $m ./id && echo ESCAPED; done 2>/dev/null; test -u ./id && echo ESCAPED"
    ),
    "leave a setuid file by opening it": python("import os\nos.close(os.open('held', os.O_CREAT | os.O_WRONLY, 0o4755))"),
    "leave a setuid file without a name": python("import os\nos.close(os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755))"),
    "leave a setuid file by openat2": python(
        "import ctypes, struct\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "how = ctypes.create_string_buffer(struct.pack('=QQQ', 0x41, 0o4755, 0))\n"
        "assert libc.syscall(437, -100, b'held2', how, 24) >= 0"
    ),
    "folder of a group": python("import os\nos.mkdir('team'); os.chmod('team', 0o2775)"),
    "device node": "mknod ./disk b 8 0 2>/dev/null && echo ESCAPED",
    "user namespace": "unshare -Ur true 2>/dev/null && echo ESCAPED",
    "user namespace by clone": python(CALL.format("56, 0x10000011, 0, 0, 0, 0")),
    "network namespace": "unshare -n true 2>/dev/null && echo ESCAPED",
    "enter a namespace": "nsenter -t 1 -m true 2>/dev/null && echo ESCAPED",
    "chroot": "chroot / true 2>/dev/null && echo ESCAPED",
    "bpf": python(CALL.format("321, 0, 0, 0")),
    "performance events": python(CALL.format("298, 0, 0, -1, -1, 0")),
    "io_uring": python(CALL.format("425, 8, ctypes.create_string_buffer(256)")),
    "kernel module": python(CALL.format("175, 0, 0, 0")),
    "host name": "hostname $(hostname) 2>/dev/null && echo ESCAPED",
    "clock": 'date -s "$(date)" 2>/dev/null >/dev/null && echo ESCAPED',
    "kernel log": "dmesg 2>/dev/null | grep -q . && echo ESCAPED",
    "reboot": python(CALL.format("169, 0xfee1dead, 672274793, 0x89abcdef, 0")),
    # memory that no process owns
    "memory file": python(CALL.format('319, b"x", 0')),
    "secret memory": python(CALL.format("447, 0")),
    "shared segment": python(CALL.format("29, 0, 1 << 20, 0o1600")),
    # network
    "socket to the hypervisor": python("import socket\nsocket.socket(40, socket.SOCK_STREAM)"),
    "raw packets": python("import socket\nsocket.socket(17, socket.SOCK_DGRAM)"),
    "crypto of the kernel": python("import socket\nsocket.socket(38, socket.SOCK_SEQPACKET)"),
    "pair of a strange kind": python("import socket\nsocket.socketpair(30, socket.SOCK_STREAM)"),
    "tcp to the host": "(exec 3<>/dev/tcp/127.0.0.1/@tcp@) 2>/dev/null && echo ESCAPED",
    "udp to the host": "(echo x > /dev/udp/127.0.0.1/@udp@) 2>/dev/null; true",
    "tcp to the world": "(exec 3<>/dev/tcp/1.1.1.1/53) 2>/dev/null && echo ESCAPED",
    "metadata of a cloud": "(exec 3<>/dev/tcp/169.254.169.254/80) 2>/dev/null && echo ESCAPED",
    "names": "getent hosts example.org >/dev/null 2>&1 && echo ESCAPED",
    "interfaces": (
        "test $(ls /sys/class/net 2>/dev/null | wc -l) -gt 1 && echo ESCAPED; grep -c : /proc/net/dev | grep -qv '^1$' && echo ESCAPED"
    ),
    "unix socket": python("import socket\nsocket.socket(socket.AF_UNIX).connect('@place@/socket')"),
    "abstract socket": python("import socket\nsocket.socket(socket.AF_UNIX).connect('\\0@abstract@')"),
    "raw socket": python("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"),
    "packet socket": python("import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    "docker": "ls /var/run/docker.sock /run/docker.sock 2>/dev/null | grep -q . && echo ESCAPED",
    # what is handed down
    "environment": "env | grep -q @secret@ && echo ESCAPED",
    "environment of all": "cat /proc/*/environ 2>/dev/null | grep -qa @secret@ && echo ESCAPED",
    "names in the environment": (
        "env | cut -d= -f1 | grep -vE '^(PATH|HOME|LANG|TMPDIR|ALLOWED|PWD|OLDPWD|SHLVL|_)$' | grep -q . && echo ESCAPED"
    ),
    "command line of all": "all=$(cat /proc/*/cmdline | tr '\\0' ' '); [[ $all == *\"$ALLOWED\"* ]] && echo ESCAPED; test -n \"$ALLOWED\"",
    "descriptors": "ls /proc/self/fd | grep -vE '^[0-3]$' | grep -q . && echo ESCAPED",
    "descriptors of all": "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -E '@place@|/base/' | grep -q . && echo ESCAPED",
    "input": "read -t 1 line && echo ESCAPED",
    "terminal": "(echo x > /dev/tty) 2>/dev/null && echo ESCAPED",
    "type into a terminal": python("import fcntl\nfor n in (0, 1, 2):\n    fcntl.ioctl(n, 0x5412, b'x')"),
    "session": "test $(ps -o sid= -p $$ 2>/dev/null | tr -d ' ') = @parent@ && echo ESCAPED",
    "core dump": "ulimit -c unlimited 2>/dev/null && echo ESCAPED; ulimit -c | grep -qv '^0$' && echo ESCAPED",
    "raise the limits": "for l in u v f n; do ulimit -$l unlimited 2>/dev/null && echo ESCAPED; done",
}


@pytest.mark.parametrize("probe", PROBES)
def test_a_command_does_not_get(world: World, probe: str) -> None:
    if "libc.syscall" in PROBES[probe] and platform.machine() != "x86_64":
        pytest.skip("the numbers of the system calls are those of x86_64")
    ended = world.sandbox.run(world.fill(PROBES[probe]))
    assert "ESCAPED" not in ended.output, ended.output
    assert "SyntaxError" not in ended.output
    assert ended.ending == "exited"
    assert world.victim.poll() is None


ON_THE_HOST = ["host file", "host folder", "tcp to the host", "unix socket", "abstract socket", "the victim", "processes of the host"]


@pytest.mark.parametrize("probe", ON_THE_HOST)
def test_the_same_probe_succeeds_where_there_is_no_boundary(world: World, tmp_path: Path, probe: str) -> None:
    """A probe that never succeeds proves nothing."""
    with LocalSandbox("host", base=tmp_path, allow_host_bash=True, bubblewrap="/nowhere/bwrap") as host:
        ended = host.run(world.fill(PROBES[probe]))
    assert ended.boundary == "none"
    assert "ESCAPED" in ended.output


LEADS_OUT = ["@place@/canary", "/etc/shadow", "/root", "/proc/1/environ", "/proc/self/root@place@/canary"]


@pytest.mark.parametrize("target", LEADS_OUT)
def test_a_link_that_a_command_leaves_behind_does_not_lead_the_file_tools_out(world: World, target: str) -> None:
    world.sandbox.run(world.fill(f"rm -f trap; ln -s {target} trap; mkdir -p deep; ln -sfn / deep/root"))
    for path in ("trap", "trap/canary", world.fill("deep/root@place@/canary")):
        with pytest.raises((HoldfastError, FileNotFoundError)):
            world.sandbox.files.read(path)
    assert grep(world.sandbox.files, SECRET).lines == ()
    world.sandbox.files.write("trap", "mine")
    assert (world.place / "canary").read_text() == SECRET


FILL_SOCKETS = """
import socket, time
def pairs():
    server = socket.create_server(("127.0.0.1", 0))
    for _ in range(250):
        if LOCAL:
            yield socket.socketpair()
        else:
            one = socket.create_connection(server.getsockname())
            yield one, server.accept()[0]
held = []
for one, other in pairs():
    held.append((one, other))
    one.setblocking(False)
    try:
        while True:
            one.send(b"x" * 65536)
    except BlockingIOError:
        pass
time.sleep(60)
"""
SOCKETS = "for i in 1 2 3 4 5 6; do /usr/bin/python3 -c '" + FILL_SOCKETS.replace("LOCAL", "{local}") + "' & done; wait"
GREEDY: dict[str, tuple[str, str]] = {
    "fork bomb": ("bomb() { bomb | bomb & }; bomb; sleep 60", "timed_out"),
    "forks that wait": ("for i in $(seq 10000); do sleep 60 & done; wait", "timed_out"),
    "memory of one": ("/usr/bin/python3 -c 'b = bytearray(1024**3); import time; time.sleep(60)'", "killed_memory"),
    "memory of many": (
        "for i in 1 2 3 4 5 6 7 8; do /usr/bin/python3 -c 'b = b\"x\" * (100 * 1024**2); import time; time.sleep(60)' & done; wait",
        "killed_memory",
    ),
    "memory in local sockets": (SOCKETS.format(local=True), "killed_memory"),
    "memory in connections": (SOCKETS.format(local=False), "killed_memory"),
    "endless loop": ("while :; do :; done", "timed_out"),
    "endless output": ("yes", "timed_out"),
    "closed output": ("exec >&- 2>&-; sleep 60", "timed_out"),
    "stopped": ("kill -STOP $$", "timed_out"),
    "deaf": ("trap '' TERM INT HUP QUIT; sleep 60", "timed_out"),
}


@pytest.mark.parametrize("greedy", GREEDY)
def test_a_greedy_command_is_stopped_and_everybody_else_lives(world: World, greedy: str) -> None:
    command, ending = GREEDY[greedy]
    ended = world.sandbox.run(command, timeout=1.0 if ending == "timed_out" else None)
    assert ended.ending == ending
    assert ended.exit_code is None
    assert world.sandbox.run("echo well").output == "well\n"
    assert world.victim.poll() is None


SURVIVING = {
    "in the background": f"sleep {NAP} & disown",
    "nohup": f"nohup sleep {NAP} >/dev/null 2>&1 &",
    "setsid": f"setsid sleep {NAP} >/dev/null 2>&1 < /dev/null &",
    "double fork": f"( ( setsid sleep {NAP} >/dev/null 2>&1 & ) & )",
    "deaf and alone": f"setsid bash -c 'trap \"\" TERM HUP INT; exec >/dev/null 2>&1; sleep {NAP}' &",
}


def sleepers() -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if NAP.encode() in (folder / "cmdline").read_bytes() and b"bash" not in (folder / "comm").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("end", ["exit 0", "sleep 60"])
@pytest.mark.parametrize("way", SURVIVING)
def test_nothing_survives_the_end_of_a_command(world: World, way: str, end: str) -> None:
    ended = world.sandbox.run(f"{SURVIVING[way]}\n{end}", timeout=None if end == "exit 0" else 0.7)
    assert ended.ending == ("exited" if end == "exit 0" else "timed_out")
    assert sleepers() == []


def test_a_gigabyte_of_output_does_not_fill_our_memory(world: World) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = world.sandbox.run("head -c 1000000000 /dev/zero | tr '\\0' 'x'; echo; echo the end")
    assert ended.output.rstrip().endswith("the end")
    assert 999_900_000 < ended.truncated_bytes < 1_000_100_000
    assert len(ended.output) < 30_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    assert ended.saved is not None
    assert world.sandbox.files.stat(ended.saved).size < 5 * MIB


FILLING = {
    "one large file": "head -c 200000000 /dev/zero > big; test $(stat -c %s big) -gt 70000000 && echo ESCAPED; rm -f big",
    "temporary files": (
        "for i in 1 2 3; do head -c 30000000 /dev/zero > /tmp/$i; done 2>/dev/null; test $(du -sm /tmp | cut -f1) -gt 40 && echo ESCAPED"
    ),
    "shared memory": (
        "for i in 1 2 3; do head -c 30000000 /dev/zero > /dev/shm/$i; "
        "done 2>/dev/null; test $(du -sm /dev/shm | cut -f1) -gt 40 && echo ESCAPED"
    ),
    "memory of no process": python("import os\nos.memfd_create('x')"),
    "memory of the kernel's own": python("import ctypes\nassert ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600) >= 0"),
}


@pytest.mark.parametrize("way", FILLING)
def test_what_a_command_fills_is_bounded(world: World, way: str) -> None:
    assert "ESCAPED" not in world.sandbox.run(FILLING[way]).output


def test_a_command_ends_with_the_program_that_started_it(world: World, tmp_path: Path) -> None:
    """Killed without a chance to clean up, the program takes its commands with it."""
    code = f"from holdfast.sandbox.local import LocalSandbox; LocalSandbox('t', base={str(tmp_path)!r}).run('sleep {NAP}')"
    child = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 240
    while not sleepers() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sleepers()
    child.kill()
    child.wait()
    deadline = time.monotonic() + 240
    while sleepers() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sleepers() == []


def test_cancelling_from_another_thread_ends_all_processes(world: World) -> None:
    cancel = Cancel()
    timer = threading.Timer(0.3, cancel.set)
    timer.start()
    ended = world.sandbox.run(f"setsid sleep {NAP} & sleep 60", cancel=cancel)
    timer.join()
    assert ended.ending == "cancelled"
    assert sleepers() == []


AS_SOMEBODY = """
import json, os, sys, tempfile
from holdfast.sandbox.commands import CommandLimits
from holdfast.sandbox.local import LocalSandbox

asked = json.load(sys.stdin)
os.environ["HOLDFAST_PROBE_SECRET"] = asked["secret"]
limits = CommandLimits(seconds=30.0, memory_bytes=512 * 2**20, processes=128)
with tempfile.TemporaryDirectory() as place:
    with open(f"{place}/canary", "w") as file:
        file.write(asked["secret"])
    with LocalSandbox("t", base=f"{place}/base", environment={"ALLOWED": "allowed-5a1d"}, limits=limits) as sandbox:
        answers = {name: sandbox.run(command.replace("@place@", place)).output for name, command in asked["probes"].items()}
        sockets = sandbox.run(asked["sockets"])
        bomb = sandbox.run("bomb() { bomb | bomb & }; bomb; sleep 60", timeout=2.0)
        after = sandbox.run("echo well > said; cat said")
    print(json.dumps({"answers": answers, "bomb": bomb.ending, "sockets": sockets.ending, "after": after.output, "user": os.geteuid()}))
"""


def usable_by_others() -> str | None:
    """A Python of our version that a user without any rights can start."""
    for program in (sys.executable, "/usr/bin/python3"):
        version = "import sys; print(sys.version_info[:2])"
        try:
            told = subprocess.run(
                [program, "-c", version], capture_output=True, text=True, user=4321, group=4321, extra_groups=[], check=False, cwd="/"
            )
        except OSError:
            continue
        if told.stdout.strip() == str(sys.version_info[:2]):
            return program
    return None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser can become somebody else")
def test_an_ordinary_user_gets_the_same_walls(world: World) -> None:
    """The other way of setting up the sandbox: with a user namespace, by a user without any rights."""
    program = usable_by_others()
    if program is None:
        pytest.skip("no Python here can be started by another user")
    words = {**world.words, "place": "@place@"}
    probes = {name: World(world.place, world.sandbox, world.victim, words).fill(command) for name, command in PROBES.items()}
    ended = subprocess.run(
        [program, "-B", "-c", AS_SOMEBODY],
        input=json.dumps({"secret": SECRET, "probes": probes, "sockets": SOCKETS.format(local=True)}),
        text=True,
        capture_output=True,
        env={"PYTHONPATH": f"{Path(__file__).parents[2] / 'src'}:{sysconfig.get_path('purelib')}", "PATH": os.environ["PATH"]},
        user=4321,
        group=4321,
        extra_groups=[],
        check=False,
        cwd="/",
    )
    assert ended.returncode == 0, ended.stderr[-1000:]
    told = json.loads(ended.stdout)
    assert told["user"] == 4321
    assert {name for name, output in told["answers"].items() if "ESCAPED" in output} == set()
    assert len(told["answers"]) == len(PROBES)
    assert told["bomb"] == "timed_out"
    assert told["sockets"] == "killed_memory"
    assert told["after"] == "well\n"


def test_ordinary_sockets_and_shared_memory_still_work(world: World) -> None:
    """A10: what programs need is there: local sockets, pairs, loopback names, memory shared by way of a bounded folder."""
    code = "import socket, multiprocessing.shared_memory as m\n"
    code += "[socket.socket(f).close() for f in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)]\n"
    code += "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()\n"
    code += "a, b = socket.socketpair()\na.send(b'x')\nassert b.recv(1) == b'x'\n"
    code += "s = m.SharedMemory(create=True, size=4096)\ns.buf[0] = 7\ns.close()\ns.unlink()\nprint('WELL')"
    assert "WELL" in world.sandbox.run(python(code)).output


def test_there_are_at_least_forty_probes() -> None:
    assert len(PROBES) + len(GREEDY) + len(SURVIVING) + len(FILLING) + len(LEADS_OUT) >= 40
