"""The program at its edges: folders that may not be read, text that is no text, packages that are not there: never a traceback."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import need_program

_Done = subprocess.CompletedProcess[bytes]
_PROGRAM = [sys.executable, "-m", "holdfast.app.main"]


def _holdfast(*words: str | bytes, home: Path, stdin: bytes = b"", before: list[str] | None = None, **more: str) -> _Done:
    env = {**os.environ, "HOLDFAST_HOME": str(home), **more}
    return subprocess.run([*(before or ()), *_PROGRAM, *words], input=stdin, capture_output=True, env=env, cwd="/", timeout=120)


def _told(done: _Done) -> str:
    said = done.stderr.decode()
    assert "Traceback" not in said
    assert done.returncode != 0
    assert said.startswith("holdfast: ")
    return said


@pytest.fixture
def ordinary() -> list[str]:
    """What stands before a command so that modes count for it: root gives up the right to pass over them."""
    return [need_program("setpriv", "util-linux"), "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []


@pytest.mark.parametrize(
    "words",
    [
        ("memory", "show"),
        ("memory", "add", "User keeps bees"),
        ("memory", "search", "bees"),
        ("prune", "--dry-run"),
        ("history",),
        ("sessions",),
    ],
    ids=" ".join,
)
def test_a_base_directory_that_may_not_be_read_is_told_in_a_sentence(words: tuple[str, ...], tmp_path: Path, ordinary: list[str]) -> None:
    """O1, P3: PermissionError from any place is a message with the path and an exit code."""
    locked = tmp_path / "locked"
    (locked / "home").mkdir(parents=True)
    locked.chmod(0o000)
    try:
        said = _told(_holdfast(*words, home=locked / "home", before=ordinary))
        assert "locked" in said
    finally:
        locked.chmod(0o700)


def test_doctor_tells_of_a_base_directory_that_may_not_be_read(tmp_path: Path, ordinary: list[str]) -> None:
    """O1: the command that is there for such cases goes on and says which folder it is."""
    locked = tmp_path / "locked"
    (locked / "home").mkdir(parents=True)
    locked.chmod(0o000)
    try:
        done = _holdfast("doctor", "--json", home=locked / "home", before=ordinary)
        assert b"Traceback" not in done.stderr
        checks = {one["about"]: one for one in json.loads(done.stdout)}
        assert checks["base directory"]["state"] == "bad"
        assert "locked" in checks["base directory"]["text"]
        assert "sandbox" in checks, "it went on"
    finally:
        locked.chmod(0o700)


def test_a_word_that_is_not_utf_8_is_refused_by_its_number(tmp_path: Path) -> None:
    """O1: a word of the command that is no text is named; nothing is stored."""
    said = _told(_holdfast("memory", "add", b"caf\xe9 au lait", home=tmp_path))
    assert "word 3" in said
    assert "UTF-8" in said


def test_a_terminal_of_ascii_shows_what_it_can(tmp_path: Path) -> None:
    """O1: a letter that the terminal does not have is replaced there, and stays what it is in the file."""
    assert _holdfast("memory", "add", "User likes crème brûlée", home=tmp_path).returncode == 0
    done = _holdfast("memory", "show", home=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert b"cr?me" in done.stdout
    assert b"br?l?e" in done.stdout
    assert "crème brûlée" in (tmp_path / "memory.json").read_text(encoding="utf-8")


def test_the_traceback_is_shown_with_verbose_alone(tmp_path: Path) -> None:
    """O1: `--verbose`, anywhere in the command, shows where an error came from."""
    for words in (("--verbose", "backup", "--to", "/proc"), ("backup", "--to", "/proc", "--verbose")):
        assert b"Traceback" in _holdfast(*words, home=tmp_path).stderr
    assert "/proc" in _told(_holdfast("backup", "--to", "/proc", home=tmp_path))


def test_a_fault_of_the_program_itself_is_one_line_with_what_to_do(tmp_path: Path) -> None:
    """O1: also what nobody foresaw; as JSON where that was asked for."""
    (tmp_path / "sitecustomize.py").write_text(
        "import holdfast.app.output as o\ndef broken(path, *needs):\n    raise KeyError('x')\no.open_harness = broken\n"
    )
    done = _holdfast("sessions", "--json", home=tmp_path / "home", PYTHONPATH=str(tmp_path))
    said = _told(done)
    assert "KeyError" in said
    assert "--verbose" in said
    assert json.loads(done.stdout)["error"][0]["kind"] == "HoldfastError"


_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH that hides the packages of the extra `agents`."""
    folder = tmp_path / "bare"
    folder.mkdir()
    hidden = ("langchain", "langchain_core", "langchain_openai", "langgraph", "openai")
    (folder / "sitecustomize.py").write_text(_WITHOUT.format(packages=hidden))
    return folder


@pytest.mark.parametrize("words", [("compact", "x"), ("chat", "-p", "hi", "-m", "ollama:x"), ("models", "test", "smollm2")], ids=" ".join)
def test_without_an_extra_a_command_says_which_line_to_type(words: tuple[str, ...], bare: Path, tmp_path: Path) -> None:
    """P2: the extra is named, in the form that can be pasted."""
    assert "pip install 'holdfast[agents]'" in _told(_holdfast(*words, home=tmp_path / "home", PYTHONPATH=str(bare)))


@pytest.mark.parametrize("name", ["SummarizationMiddleware", "MemoryMiddleware", "make_lead_agent"])
def test_without_an_extra_an_import_says_which_line_to_type(name: str, bare: Path) -> None:
    """P1, P2: an ImportError, as Python programs expect, that names the extra."""
    code = f"try:\n    from holdfast import {name}\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(bare)}, check=True
    )
    assert done.stdout.startswith("ExtraMissing ")
    assert "pip install 'holdfast[agents]'" in done.stdout


def test_everything_that_is_kept_is_for_its_owner_alone(tmp_path: Path) -> None:
    """O7, P3: files 0600 and folders 0700, the databases and what SQLite puts beside them too, whatever the umask."""
    home = tmp_path / "home"
    before = os.umask(0o022)
    try:
        assert _holdfast("memory", "add", "User keeps bees", home=home).returncode == 0
        assert _holdfast("knowledge", "add", "The hive stands in the orchard.", home=home).returncode == 0
        assert _holdfast("chat", "-p", "I prefer honey.", home=home).returncode == 0
    finally:
        os.umask(before)
    found = {place.relative_to(home): stat.S_IMODE(place.stat().st_mode) for place in home.rglob("*")}
    assert any(name.suffix == ".db" for name in found)
    assert {str(name): oct(mode) for name, mode in found.items() if mode & 0o077} == {}
    copied = tmp_path / "copies"
    assert _holdfast("backup", "--to", str(copied), home=home).returncode == 0
    assert {str(place): oct(place.stat().st_mode) for place in copied.rglob("*") if place.stat().st_mode & 0o077} == {}


def test_doctor_says_when_others_may_read_the_base_directory(tmp_path: Path) -> None:
    """O7: an existing folder with wider rights is told, and how to close it."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    done = _holdfast("doctor", "--json", home=home)
    texts = [one["text"] for one in json.loads(done.stdout) if one["about"] == "base directory"]
    assert any("chmod -R go-rwx" in text for text in texts), texts


def test_doctor_and_chat_tell_of_a_damaged_knowledge_database(tmp_path: Path) -> None:
    """K1, O1: noise over the database is told by name; chat does not say that nothing is known."""
    assert _holdfast("knowledge", "add", "The hive stands in the orchard.", home=tmp_path).returncode == 0
    database = next(tmp_path.glob("knowledge*.db"))
    database.write_bytes(os.urandom(4096) + database.read_bytes()[4096:])
    done = _holdfast("doctor", "--json", home=tmp_path)
    assert done.returncode == 1
    assert [database.name in one["text"] for one in json.loads(done.stdout) if one["state"] == "bad"] == [True]
    asked = _holdfast("chat", "-p", "Where does the hive stand?", home=tmp_path)
    assert database.name in asked.stderr.decode() + asked.stdout.decode()
    assert b"Traceback" not in asked.stderr


def test_doctor_names_the_file_that_was_set_aside_and_not_its_lock(tmp_path: Path) -> None:
    """M6, O1"""
    assert _holdfast("memory", "add", "User keeps bees", home=tmp_path).returncode == 0
    (tmp_path / "memory.json").write_text("{")
    assert _holdfast("memory", "show", home=tmp_path).returncode == 0
    told = [one["text"] for one in json.loads(_holdfast("doctor", "--json", home=tmp_path).stdout) if one["about"] == "damaged files"]
    assert len(told) == 1
    assert told[0].startswith("1 ")
    assert not told[0].endswith(".lock")


def test_an_index_of_the_archive_that_is_damaged_is_made_again_without_a_word(tmp_path: Path) -> None:
    """S9: whatever happens to the throw-away index, the archive is searched."""
    assert _holdfast("chat", "-t", "t1", "-p", "My parrot is called Coco.", home=tmp_path).returncode == 0
    assert b"Coco" in _holdfast("history", "t1", "search", "parrot", home=tmp_path).stdout
    (index,) = tmp_path.glob("threads/*/archive.sqlite")
    whole = index.read_bytes()
    for cut in (1, 20, 4096, len(whole) - 10):
        index.write_bytes(whole[:-cut])
        done = _holdfast("history", "t1", "search", "parrot", home=tmp_path)
        assert (done.returncode, b"Coco" in done.stdout, done.stderr) == (0, True, b"")


@pytest.mark.parametrize("words", [(), ("memory",), ("memory", "add"), ("run",), ("session", "report")], ids=" ".join)
def test_h_is_help_everywhere(words: tuple[str, ...], tmp_path: Path) -> None:
    """O1"""
    short, long = _holdfast(*words, "-h", home=tmp_path), _holdfast(*words, "--help", home=tmp_path)
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert b"-h, --help" in short.stdout


def test_the_report_of_a_run_is_found(tmp_path: Path) -> None:
    """O1, W18: its path is printed whole, and a command prints it."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "hive.md").write_text("# Hive\n\nThe hive stands in the orchard behind the barn.\n")
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        f"id: bees\ntask: Where does the hive stand?\nstages:\n- {{name: plan, agent_type: planner}}\n"
        f"- {{name: find, agent_type: researcher, sources: {{folder: {tmp_path / 'notes'}}}}}\n"
        "- {name: sort, agent_type: synthesizer}\n- {name: report, agent_type: writer}\n"
    )
    ran = _holdfast("run", str(flow), "--id", "b1", home=tmp_path / "home")
    assert ran.returncode == 0, ran.stderr
    place = tmp_path / "home" / "sessions" / "b1" / "files" / "04-report" / "report.md"
    assert f"Report: {place}" in ran.stdout.decode()
    assert ran.stdout.decode().count(str(place)) == 1, "once is enough"
    assert place.is_file()
    printed = _holdfast("session", "report", "b1", home=tmp_path / "home")
    assert printed.stdout.decode().strip() == place.read_text(encoding="utf-8").strip()
    said = json.loads(_holdfast("session", "report", "b1", "--json", home=tmp_path / "home").stdout)
    assert said["file"] == str(place)


@pytest.mark.parametrize("words", [("chat", "-q", "-t", "t"), ("chat", "-q", "-p", "look:"), ("knowledge", "add", "-")], ids=" ".join)
@pytest.mark.parametrize(("encoding", "from_"), [("latin-1", "ISO-8859-1"), ("utf-16", "UTF-16")])
def test_piped_bytes_that_are_not_utf8_are_refused_and_nothing_is_stored(
    words: tuple[str, ...], encoding: str, from_: str, tmp_path: Path
) -> None:
    """O1, A14: no letter is replaced without a word."""
    said = _told(_holdfast(*words, home=tmp_path / "home", stdin="Grüße aus Köln".encode(encoding)))
    assert "is not UTF-8 text" in said
    assert f"iconv -f {from_} -t UTF-8" in said
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not (b"Gr" in stored or "\ufffd".encode() in stored)


def test_piped_text_may_begin_with_a_byte_order_mark_and_have_the_line_ends_of_windows(tmp_path: Path) -> None:
    done = _holdfast("knowledge", "add", "-", "--json", home=tmp_path / "home", stdin="\ufeffGrüße\r\naus Köln\r\n".encode())
    assert json.loads(done.stdout)["record"]["text"] == "Grüße\naus Köln"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["doctor", "sessions", "chat -p hello", "memory show", "run nothing.yaml"])
def test_a_closed_standard_stream_ends_no_command(tmp_path: Path, words: str, closed: str) -> None:
    """O1: as cron and daemons start it; what went wrong keeps its exit code."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m holdfast.app.main {words} {closed}"],
        capture_output=True,
        text=True,
        env={**kept, "HOLDFAST_HOME": str(tmp_path / "base")},
        cwd=tmp_path,
        timeout=240,
        check=False,
    )
    assert "this should not happen" not in done.stderr + done.stdout
    assert done.returncode == (2 if words.startswith("run") else 0), done.stderr


def program(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env = {**kept, "HOLDFAST_HOME": str(home / "base")}
    command = [sys.executable, "-m", "holdfast.app.main", *words]
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, env=env, cwd=home, timeout=240, check=False)


def test_a_dash_is_standard_output_and_what_is_not_there_is_not_asked_about(tmp_path: Path) -> None:
    """O1, K9, M14, S17."""
    program(tmp_path, "memory", "add", "Likes tea")
    added = json.loads(program(tmp_path, "knowledge", "add", "The heron is grey.", "--json").stdout)
    assert "Likes tea" in program(tmp_path, "memory", "export", "-").stdout
    assert "The heron is grey." in program(tmp_path, "knowledge", "export", "-").stdout
    assert not (tmp_path / "-").exists()
    absent = program(tmp_path, "knowledge", "forget", "nosuch")
    assert (absent.returncode, absent.stdout, "there is no record 'nosuch'" in absent.stderr) == (2, "", True)
    one = program(tmp_path, "knowledge", "forget", "--text", "heron")
    assert "Forget 1 record that holds 'heron'?" in one.stderr, (one.stderr, added)
    assert "there is no conversation 'nosuch'" in program(tmp_path, "compact", "nosuch").stderr
    program(tmp_path, "chat", "-p", "The boat is blue.", "-t", "a")
    program(tmp_path, "chat", "-p", "The mast is tall.", "-t", "a")
    assert "there is no model here" in program(tmp_path, "compact", "a").stderr
    two = program(tmp_path, "history", "a", "2").stdout
    assert ("mast" in two, "boat" in two) == (True, False)
    quiet = program(tmp_path, "chat", "-q", "-p", "What is blue?")
    assert "keywords alone" not in quiet.stderr


def test_an_export_makes_no_folder(tmp_path: Path) -> None:
    """O1."""
    told = program(tmp_path, "session", "export", "any", "--to", str(tmp_path / "none/x.json"))
    assert (told.returncode, "there is no folder" in told.stderr, (tmp_path / "none").exists()) == (2, True, False), told.stderr
