"""What a person may type wrongly: each is a typed error that says what to change, and nothing has happened (O1)."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from holdfast.app.main import app
from holdfast.errors import InputError, ModelNotConfigured

Run = Callable[..., Result]


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.yaml").write_text("knowledge: {adapter: markdown}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    for name in ("HOLDFAST_CONFIG", "HOLDFAST_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(base: Path) -> Run:
    def call(*words: str, code: int = 0, input: str | None = None) -> Result:
        result = CliRunner().invoke(app, list(words), input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("knowledge search x -s typo/y.db", "no knowledge store at typo/y.db"),
        ("knowledge stats -s typo/y.db", "no knowledge store at"),
        ("knowledge export -s typo", "no knowledge store at"),
        ("knowledge forget --text x -s typo", "no knowledge store at"),
        ("memory add x --category banana", "no category 'banana'"),
        ("memory add x --category preferences", "Did you mean preference?"),
        ("chat -a nope -p hi", "no agent 'nope'"),
        ("chat -t x -r -p hi", "contradict"),
        ("chat -p ''", "nothing in the prompt"),
        ("resume s --accept-changes --as-started", "contradict"),
        ("backup typo --to other", "two places for one copy"),
    ],
)
def test_a_wrong_input_is_an_error_and_nothing_has_happened(words: str, says: str, run: Run, base: Path) -> None:
    """O1: no silent success."""
    with pytest.raises(InputError, match=says) as raised:
        run(*shlex.split(words))
    assert raised.value.exit_code == 2
    assert not (base / "typo").exists()
    assert not (base / "home" / "memory.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--config x.yaml doctor", "`holdfast doctor --config x.yaml`"),
        ("--json memory search tea", "`holdfast memory search --json tea`"),
        ("-c 'my x.yaml' memory show", "`holdfast memory show -c 'my x.yaml'`"),
        ("knowledge --config=x.yaml stats", "`holdfast knowledge stats --config=x.yaml`"),
    ],
)
def test_an_option_before_its_command_is_told_where_it_goes(words: str, says: str, run: Run) -> None:
    """O1: the whole command is there to be typed."""
    with pytest.raises(InputError, match=re.escape(says)) as raised:
        run(*shlex.split(words))
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("words", ["--colour doctor", "memory --colour show", "--config x.yaml"])
def test_an_option_that_no_command_has_is_only_refused(words: str, run: Run) -> None:
    """O1: no command is shown that would be refused as well."""
    assert "No such option" in run(*shlex.split(words), code=2).output


@pytest.mark.parametrize(
    ("words", "says", "example"),
    [
        ("chat hello there", "extra argument", 'Example: holdfast chat -p "'),
        ("run", "Missing argument 'FILE'", "Example: holdfast run workflow.yaml\n"),
        ("knowledge", "Commands:", "Example: holdfast knowledge search "),
        ("session s1", "No such command 's1'", "Example: holdfast session show "),
        ("knowledge search", "Missing argument 'WORDS'", "Example: holdfast knowledge search "),
        ("memory search tea --top abc", "Invalid value for '--top'", "Example: holdfast memory search which database"),
    ],
)
def test_a_command_line_that_does_not_fit_is_shown_one_that_does(words: str, says: str, example: str, run: Run) -> None:
    """O1: the example of the help stands below what is wrong."""
    shown = run(*shlex.split(words), code=2).output
    assert says in shown and shown.count("Example: ") == 1
    assert shown.index(says) < shown.index(example)


def test_an_argument_that_may_be_given_again_has_three_dots(run: Run) -> None:
    """O1"""
    assert "import [OPTIONS] PATH...\n" in run("knowledge", "import", code=2).output


def test_a_backup_takes_its_folder_with_and_without_the_option(run: Run, base: Path) -> None:
    """O1: the folder alone is as good as `--to FOLDER`."""
    run("memory", "add", "The staging server is heron")
    for words in (["b"], ["--to", "b"], []):
        made = Path(json.loads(run("backup", *words, "--json").stdout)["path"])
        assert made.parent.resolve() == (base / "b" if words else base)
        shutil.rmtree(made)


def test_a_model_that_nobody_has_is_named(run: Run) -> None:
    """O1: the name that was typed comes first, then how to get one."""
    with pytest.raises(ModelNotConfigured, match="there is no model named 'nope'"):
        run("models", "test", "nope")


def test_an_agent_with_a_folder_is_known(run: Run, base: Path) -> None:
    """A2: the line that the error shows makes it."""
    (base / "home" / "agents" / "coder").mkdir(parents=True)
    assert run("chat", "-a", "coder", "-p", "My cat is called Pixel.").stdout
    with pytest.raises(InputError, match="Did you mean coder"):
        run("chat", "-a", "codr", "-p", "hi")


@pytest.mark.parametrize("room", ["knowledge", "memory"])
def test_forgetting_without_a_terminal_needs_yes_and_says_how_much(room: str, run: Run) -> None:
    """M14, O1: what cannot be undone is asked for; where nobody can be asked, nothing is done."""
    run(room, "add", "The staging server is heron")
    run(room, "add", "The heron is grey")
    thing = "record" if room == "knowledge" else "fact"
    with pytest.raises(InputError, match=rf"2 {thing}s.*nothing was done. Say it with --yes"):
        run(room, "forget", "--text", "heron")
    exported = run(room, "export").stdout
    assert "staging" in exported
    ids = [one["id"] for one in (map(json.loads, exported.splitlines()) if room == "knowledge" else json.loads(exported)["facts"])]
    with pytest.raises(InputError, match=f"1 {thing}"):
        run(room, "forget", ids[0])
    run(room, "forget", ids[0], "--yes")
    run(room, "forget", "--text", "heron", "--yes")
    assert "heron" not in run(room, "export").stdout


def test_an_import_names_what_it_does_not_read_and_follows_no_link_out(run: Run, base: Path) -> None:
    """K1, O1: pages are read as pages, the rest is taken in, and whatever was left out is told by its name."""
    docs = base / "docs"
    (docs / "sub").mkdir(parents=True)
    (base / "secret.txt").write_text("The vault code is 5513.")
    (docs / "a.md").write_text("# Servers\nThe staging server is heron.")
    (docs / "p.html").write_text(
        "<html><head><title>Birds</title></head><body><h1>Herons</h1><p>The heron is <b>grey</b>.</p></body></html>"
    )
    (docs / "t.png").write_text("a,b\n1,2\n")
    (docs / "latin.txt").write_bytes(b"caf\xe9 noir")
    (docs / "out.txt").symlink_to(base / "secret.txt")
    (docs / "sub" / "in.md").symlink_to(docs / "a.md")
    result = run("knowledge", "import", "docs", "--json", code=1)
    told = json.loads(result.stdout)
    assert {one["file"] for one in told["faults"]} == {"latin.txt", "out.txt"}
    assert told["skipped"] == ["t.png"]
    kept = [json.loads(line) for line in run("knowledge", "export").stdout.splitlines()]
    assert {(one["source"], one["text"]) for one in kept} == {
        ("a.md#Servers", "The staging server is heron."),
        ("p.html#Herons", "The heron is grey."),
    }
    shown = run("knowledge", "import", "docs", code=1).stdout
    assert "1 file (t.png)" in shown
    assert "not followed" in shown


def test_an_import_takes_in_the_rest_of_a_folder_with_files_that_may_not_be_read(
    run: Run, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K1, O1: a file and a folder, each named; the exit code says that not everything is there."""
    docs = base / "docs"
    (docs / "closed").mkdir(parents=True)
    (docs / "a.md").write_text("The kestrel flies.")
    (docs / "b.md").write_text("Nobody reads this.")
    (docs / "closed" / "c.md").write_text("Nor this.")
    (docs / "b.md").chmod(0)
    (docs / "closed").chmod(0)
    if os.getuid() == 0:  # modes do not count for root: the calls that would be refused are refused here
        real_open, real_scan = os.open, os.scandir

        def open_(path: str, *args: int, **more: int | None) -> int:
            if Path(path).is_file() and not stat.S_IMODE(Path(path).stat().st_mode) & 0o400:
                raise PermissionError(13, "Permission denied", str(path))
            return real_open(path, *args, **more)  # type: ignore[arg-type]

        def scan(path: str) -> object:
            if not stat.S_IMODE(Path(path).stat().st_mode) & 0o400:
                raise PermissionError(13, "Permission denied", str(path))
            return real_scan(path)

        monkeypatch.setattr(os, "open", open_)
        monkeypatch.setattr(os, "scandir", scan)
    try:
        told = json.loads(run("knowledge", "import", "docs", "--json", code=1).stdout)
    finally:
        (docs / "closed").chmod(0o700)
    assert {one["file"] for one in told["faults"]} == {"b.md", "closed"}
    assert told["added"] == 1
