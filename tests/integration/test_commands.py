"""O1, C5, T4: the commands as a person calls them: real processes, exit codes, one clear line for each mistake, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config.loading import load_config
from holdfast.skills import open_skills

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
SHARED = Path(__file__).parents[3] / "shared" / "reference"


def holdfast(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return subprocess.run(
        [HOLDFAST, *words], cwd=cwd, env={**keep, "HOME": str(cwd), **environ}, capture_output=True, text=True, check=False
    )


def test_help_lists_every_command_under_a_heading(tmp_path: Path) -> None:
    """O1"""
    done = holdfast("--help", cwd=tmp_path)
    assert done.returncode == 0
    for word in ("config", "doctor", "import", "budget", "models", "history", "Settings:", "Working memory:"):
        assert word in done.stdout


@pytest.mark.parametrize(
    "words",
    [["config", "check"], ["config", "init"], ["config", "upgrade"], ["budget"], ["doctor"], ["import", "deerflow"], ["skills", "list"]],
)
def test_every_command_has_an_example_and_json(words: list[str], tmp_path: Path) -> None:
    """O1"""
    shown = holdfast(*words, "--help", cwd=tmp_path).stdout
    assert "Example: holdfast" in shown
    assert "--json" in shown


def test_a_misspelt_command_is_answered_with_the_nearest(tmp_path: Path) -> None:
    done = holdfast("confg", cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean 'config'?" in done.stderr
    assert "Traceback" not in done.stderr


MISTAKES = {
    "broken": ("models: [\n  - name: x\n", "is not valid YAML"),
    "type": ("summarization:\n  enabled: true\n  trigger: {type: tokens, value: many}\n", "config.yaml:3"),
    "misspelt": ("memory:\n  max_fcats: 3\n", "Did you mean `max_facts`?"),
    "ours alone": ("server:\n  colour: red\n", "server.colour"),
    "no trigger": ("summarization:\n  enabled: true\n", "trigger"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_file_is_one_clear_line_and_exit_code_2(mistake: str, tmp_path: Path) -> None:
    """C2"""
    text, said = MISTAKES[mistake]
    (tmp_path / "config.yaml").write_text(text)
    done = holdfast("config", "check", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert said in done.stderr
    assert all(line.startswith("holdfast: ") for line in done.stderr.splitlines())
    told = json.loads(holdfast("config", "check", "--json", cwd=tmp_path).stdout)
    assert told["error"][0]["file"].endswith("config.yaml")


def test_check_shows_values_with_their_sources_and_no_secret(tmp_path: Path) -> None:
    """C3, C5"""
    (tmp_path / "config.yaml").write_text(
        "models:\n  - name: m\n    use: openai\n    model: x\n    api_key: sk-very-secret-1234567890\n    timeout: $WAIT\n"
    )
    named = {"HOLDFAST_CONFIG": str(tmp_path / "config.yaml")}
    done = holdfast("config", "check", cwd=tmp_path, WAIT="7", **named)
    assert "line 2" in done.stdout
    assert "environment WAIT" in done.stdout
    assert "very-secret" not in done.stdout
    told = json.loads(holdfast("config", "check", "--json", cwd=tmp_path, **named).stdout)
    sources = {setting["key"]: setting["source"] for setting in told["settings"]}
    assert sources["memory.max_facts"] == "default"
    assert "WAIT (not set)" in sources["models[0].timeout"]


def test_check_lists_what_differs_from_the_defaults_and_counts_the_rest(tmp_path: Path) -> None:
    """C5: a default that the file writes out is still one; `--all` and `--json` have everything."""
    holdfast("config", "init", cwd=tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text(file.read_text().replace("max_facts: 100", "max_facts: 70"))
    named = {"HOLDFAST_CONFIG": str(file)}
    told = holdfast("config", "check", cwd=tmp_path, **named).stdout
    assert "memory.max_facts" in told and "of them written in the file; --all shows them" in " ".join(told.split())
    assert "memory.debounce_seconds" not in told
    assert "memory.debounce_seconds" in holdfast("config", "check", "--all", cwd=tmp_path, **named).stdout
    settings = {one["key"]: one for one in json.loads(holdfast("config", "check", "--json", cwd=tmp_path, **named).stdout)["settings"]}
    assert (settings["memory.debounce_seconds"]["default"], settings["memory.max_facts"]["default"]) == (True, False)


def test_every_mistake_of_a_workflow_is_told_at_once_with_its_own_line(tmp_path: Path) -> None:
    """C2, W1: keys, types, agents and sources; a mistake inside `sources` has the line where it stands. Not more than twenty are told."""
    (tmp_path / "flow.yaml").write_text(
        "id: t\ntopci: x\ntask: What?\nstages:\n  - name: a\n    agent_type: planer\n  - name: b\n    retries: many\n"
        "  - name: c\n    agent_type: researcher\n    needs: [nobody]\n    sources:\n      foldr: x\n"
        "      folder: nowhere\n      globs: 3\n"
    )
    done = holdfast("run", "flow.yaml", cwd=tmp_path)
    told = [line.removeprefix("holdfast: flow.yaml:").split(": ")[:2] for line in done.stderr.splitlines()]
    assert (done.returncode, told) == (
        2,
        [
            ["2", "topci"],
            ["6", "stages.a.agent_type"],
            ["8", "stages[1].retries"],
            ["11", "stages[2].needs[0]"],
            ["13", "stages.c.sources.foldr"],
            ["14", "stages.c.sources.folder"],
            ["15", "stages.c.sources.globs"],
        ],
    )
    (tmp_path / "many.yaml").write_text("id: t\nstages:\n" + "".join(f"  - name: s{n}\n    retries: many\n" for n in range(60)))
    lines = holdfast("run", "many.yaml", cwd=tmp_path).stderr.splitlines()
    assert len(lines) == 21 and "40 more mistakes" in lines[-1]


def test_doctor_names_the_variable_without_which_the_model_cannot_be_used(tmp_path: Path) -> None:
    """C2, O1"""
    (tmp_path / "config.yaml").write_text(
        "models:\n  - name: m\n    use: langchain_openai:ChatOpenAI\n    model: x\n    api_key: $SOME_KEY\n"
    )
    named = {"HOLDFAST_CONFIG": str(tmp_path / "config.yaml")}

    def model(**environ: str) -> tuple[str, str]:
        told = json.loads(holdfast("doctor", "--json", cwd=tmp_path, **named, **environ).stdout)
        found = next(one for one in told if one["about"] == "model")
        return found["state"], found["text"]

    level, message = model()
    assert level == "note" and "SOME_KEY is not set" in message
    level, message = model(SOME_KEY="a-secret-value")
    assert level == "good" and "a-secret-value" not in message


def test_a_file_that_is_not_trusted_is_explained_once(tmp_path: Path) -> None:
    """C1, O1"""
    (tmp_path / "config.yaml").write_text("models:\n  - name: m\n    use: langchain_openai:ChatOpenAI\n    model: x\n    api_key: k\n")
    told = holdfast("chat", "-p", "hello", cwd=tmp_path).stderr
    assert told.count("holdfast config trust") == told.count("is not trusted") == 1
    assert "models: is needed for this" in told


def test_the_session_configuration_of_the_reference_is_explained(tmp_path: Path) -> None:
    """C5, W1"""
    file = SHARED / "deerflow_session.yaml"
    if not file.exists():
        file = tmp_path / "session.yaml"
        file.write_text(
            "session:\n  id: s-1\n  storage_backend: postgresql\n  vector_store:\n    provider: pgvector\n"
            "    connection: postgresql://user:pass@localhost:5432/deerflow\n  checkpoint_interval: 2\n"
        )
    done = holdfast("config", "check", "--config", str(file), cwd=tmp_path)
    assert done.returncode == 0
    assert "session.checkpoint_interval" in done.stdout
    assert "postgresql://user:***@localhost:5432/deerflow" in done.stdout
    assert "user:pass" not in done.stdout


def test_init_writes_a_file_that_loads_and_never_over_another(tmp_path: Path) -> None:
    """C1"""
    assert holdfast("config", "init", cwd=tmp_path).returncode == 0
    assert holdfast("config", "check", cwd=tmp_path).returncode == 0
    before = (tmp_path / "config.yaml").read_text()
    again = holdfast("config", "init", cwd=tmp_path)
    assert (again.returncode, (tmp_path / "config.yaml").read_text()) == (2, before)
    assert "--force" in again.stderr


def test_upgrade_keeps_comments_and_leaves_the_old_file(tmp_path: Path) -> None:
    """C4"""
    old = "# mine\nmemory:   # about me\n  enabled: true\n  token_counting: char  # cheap\n"
    (tmp_path / "config.yaml").write_text(old)
    assert holdfast("config", "upgrade", "--dry-run", cwd=tmp_path).stdout.startswith("# mine")
    assert (tmp_path / "config.yaml").read_text() == old
    assert holdfast("config", "upgrade", cwd=tmp_path).returncode == 0
    new = (tmp_path / "config.yaml").read_text()
    assert (tmp_path / "config.yaml.bak").read_text() == old
    for comment in ("# mine", "# about me", "# cheap"):
        assert comment in new
    assert "holdfast_version: 1" in new
    assert "already" in holdfast("config", "upgrade", cwd=tmp_path).stdout


def test_budget_prints_the_split_of_8000_tokens(tmp_path: Path) -> None:
    """T4"""
    told = json.loads(holdfast("budget", "--window", "8000", "--json", cwd=tmp_path).stdout)
    assert (told["system"], told["history"], told["tool_definitions"] + told["response"]) == (1500, 5000, 1500)
    assert (told["memory"], told["skills"], told["base"], told["instructions"]) == (500, 300, 500, 200)
    drawn = holdfast("budget", "--window", "8000", cwd=tmp_path).stdout
    assert "bbb" in drawn
    assert "62.5 %" in drawn
    assert "No conversation fits" in holdfast("budget", "--window", "5", cwd=tmp_path).stdout and "No conversation fits" not in drawn
    assert holdfast("budget", "--window", "0", cwd=tmp_path).returncode == 2
    unknown = holdfast("budget", "--model", "nobody", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "nobody" in unknown.stderr


def test_doctor_looks_at_everything_and_says_what_is_bad(tmp_path: Path) -> None:
    """O1: versions, model and why, base directory, sandbox, stores, disk."""
    told = json.loads(holdfast("doctor", "--json", cwd=tmp_path).stdout)
    assert {"versions", "packages", "configuration", "model", "base directory", "sandbox", "memory", "disk"} <= {
        one["about"] for one in told
    }
    (tmp_path / "blocked").write_text("a file, not a folder")
    bad = holdfast("doctor", "--json", cwd=tmp_path, HOLDFAST_HOME=str(tmp_path / "blocked"))
    assert bad.returncode == 1
    assert any(one["state"] == "bad" and one["about"] == "base directory" for one in json.loads(bad.stdout))


def test_a_base_directory_that_cannot_be_written_is_one_clear_message(tmp_path: Path) -> None:
    """C6"""
    old = tmp_path / "old"
    old.mkdir()
    (old / "memory.json").write_text('{"facts": []}')
    (tmp_path / "blocked").write_text("a file, not a folder")
    done = holdfast("import", "deerflow", str(old), cwd=tmp_path, HOLDFAST_HOME=str(tmp_path / "blocked" / "home"))
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "blocked" in done.stderr


def test_the_log_goes_to_standard_error_in_the_form_that_the_file_asks_for(tmp_path: Path) -> None:
    """O2, T3: a window that is not known is one warning."""
    models = "holdfast_version: 1\nmodels: [{name: m, use: openai, model: unheard-of}]\n"
    (tmp_path / "config.yaml").write_text(models + "logging: {format: json, level: warning}\n")
    named = {"HOLDFAST_CONFIG": str(tmp_path / "config.yaml")}
    done = holdfast("budget", "--json", cwd=tmp_path, **named)
    assert json.loads(done.stdout)["window"] == 8192
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["event"] == "window_unknown"
    (tmp_path / "config.yaml").write_text(models)
    assert holdfast("budget", cwd=tmp_path, **named).stderr.startswith("[Models] The window of model m is not known")


def test_skills_are_switched_off_and_on_and_stay_so(tmp_path: Path) -> None:
    """A12: the enabled state is kept, and agents go by it."""
    skill = tmp_path / "skills" / "tidy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    (tmp_path / "config.yaml").write_text("")
    skill.write_text("---\nname: tidy\ndescription: Tidies up.\n---\nDo it.\n")
    assert holdfast("config", "trust", cwd=tmp_path).returncode == 0

    def enabled() -> list[bool]:
        return [one["enabled"] for one in json.loads(holdfast("skills", "list", "--json", cwd=tmp_path).stdout)["skills"]]

    assert enabled() == [True]
    done = holdfast("skills", "disable", "tidy", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "tidy is off.\n")
    assert enabled() == [False]
    assert "off" in holdfast("skills", "list", cwd=tmp_path).stdout
    assert open_skills(load_config(tmp_path / "config.yaml", environ={})).all().enabled == ()
    assert holdfast("skills", "enable", "tidy", cwd=tmp_path).returncode == 0
    assert enabled() == [True]
    wrong = holdfast("skills", "enable", "tyde", cwd=tmp_path)
    assert (wrong.returncode, "tidy" in wrong.stderr, "Traceback" in wrong.stderr) == (2, True, False)


def test_doctor_names_every_mistake_of_the_configuration(tmp_path: Path) -> None:
    """C2, O1: as every other command does."""
    (tmp_path / "config.yaml").write_text("titel: {max_words: 5}\nmemory: {max_fact: 2}\ntitle: {max_words: xx}\n")
    told = json.loads(holdfast("doctor", "--json", cwd=tmp_path).stdout)
    bad = [one["text"] for one in told if one["about"] == "configuration"]
    assert [next(key for key in ("titel", "memory.max_fact", "title.max_words") if key in text) for text in bad] == [
        "titel",
        "memory.max_fact",
        "title.max_words",
    ]


def test_an_older_schema_is_said_once_by_every_command_and_by_load_config(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """C4"""
    file = tmp_path / "config.yaml"
    file.write_text("config_version: 33  # theirs\nmemory: {token_counting: char}\n")
    for words in (["budget"], ["memory", "show"], ["models", "list"], ["sessions"], ["doctor"], ["history", "list"]):
        done = holdfast(*words, cwd=tmp_path)
        assert done.stderr.count("has an older schema") == 1, words
        assert "holdfast config upgrade" in done.stderr
    checked = holdfast("config", "check", cwd=tmp_path)
    told = " ".join((checked.stdout + checked.stderr).split())
    assert told.count("is read as schema") == told.count("holdfast config upgrade") == 1, "the report tells it, and nothing else does"
    assert "is read as schema" in checked.stdout
    file.write_text(file.read_text() + "logging: {format: json}\n")
    assert json.loads(holdfast("sessions", "--json", cwd=tmp_path).stderr)["event"] == "config_upgraded"
    with caplog.at_level("WARNING", logger="holdfast"):
        for _ in range(2):
            load_config(file, environ={})
    assert [record.message.count("older schema") for record in caplog.records] == [1]
    assert holdfast("config", "upgrade", cwd=tmp_path).returncode == 0
    assert holdfast("budget", cwd=tmp_path).stderr.count("schema") == 0


def test_make_config_upgrade(tmp_path: Path) -> None:
    """C4: the verb that the reference's file names."""
    file = tmp_path / "my config.yaml"
    file.write_text("# mine\nconfig_version: 33\n")
    root = Path(__file__).parents[2]
    stamp = f"STAMP={tmp_path / 'stamp'}"  # what is installed is there; nothing is to be installed for this
    (tmp_path / "stamp").touch()
    done = subprocess.run(
        ["make", "-C", str(root), "-o", str(tmp_path / "stamp"), stamp, f"BIN={Path(HOLDFAST).parent}", "config-upgrade", f"CONFIG={file}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert file.read_text() == "# mine\nconfig_version: 33\nholdfast_version: 1\n"
    assert file.with_name("my config.yaml.bak").exists()


def test_what_is_known_of_a_user_is_the_same_in_every_folder(tmp_path: Path) -> None:
    """C6, O1: without a configuration it is in the user's data directory; `memory show` and `doctor` say so, and why."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    home = {"HOME": str(tmp_path / "ann")}
    assert holdfast("memory", "add", "The cat is called Pixel", cwd=one, **home).returncode == 0
    shown = holdfast("memory", "show", cwd=other, **home).stdout
    assert "The cat is called Pixel" in shown
    base = tmp_path / "ann" / ".local" / "share" / "holdfast"
    assert f"{base / 'memory.json'} (the user's data directory)" in shown
    assert f"{base} (the user's data directory)" in holdfast("doctor", cwd=other, **home).stdout
    assert not any(one.iterdir()), "nothing is left in the folder"
    assert {oct(path.stat().st_mode & 0o777) for path in base.rglob("*") if path.is_file()} == {"0o600"}
    assert {oct(path.stat().st_mode & 0o777) for path in [base, *base.rglob("*")] if path.is_dir()} == {"0o700"}
    (other / ".holdfast").mkdir()
    assert "The cat is called Pixel" in holdfast("memory", "show", cwd=other, **home).stdout, "anybody can put a folder there"
    assert holdfast("config", "trust", cwd=other, **home).returncode == 0
    told = json.loads(holdfast("memory", "show", "--json", cwd=other, **home).stdout)
    assert (told["base"], told["base_source"]) == (str(other / ".holdfast"), ".holdfast of the working directory")
    assert told["memory"]["facts"] == []


def test_a_new_configuration_says_where_state_is_from_now_on(tmp_path: Path) -> None:
    """C6: what is kept elsewhere would else seem to be gone."""
    home = {"HOME": str(tmp_path / "ann")}
    (tmp_path / "work").mkdir()
    assert holdfast("memory", "add", "The cat is called Pixel", cwd=tmp_path / "work", **home).returncode == 0
    told = " ".join(holdfast("config", "init", cwd=tmp_path / "work", **home).stdout.split())
    base = tmp_path / "ann" / ".local" / "share" / "holdfast"
    assert f"What was kept so far stays in {base}: to go on with it, set HOLDFAST_HOME to that." in told
    assert str(tmp_path / "work" / ".holdfast") in told
