"""A12: skills: how their files are read, found and switched, and how they stand in the prompt."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.loading import load_config
from holdfast.errors import InputError
from holdfast.skills import SkillLibrary, Switches, open_skills, parse_skill, render
from holdfast.tokens.counter import open_counter

EXAMPLES = Path(__file__).parents[3] / "examples" / "skills"


def put(root: Path, path: str, text: str) -> None:
    (root / path).mkdir(parents=True, exist_ok=True)
    (root / path / "SKILL.md").write_text(text, encoding="utf-8")


def skill_text(name: str, description: str = "Does something.", more: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n# Body of {name}\n"


def test_everything_in_the_front_matter_is_read() -> None:
    skill = parse_skill(
        skill_text("tidy", "Tidies up.", "license: MIT\nallowed-tools: [bash, ls]\nversion: 2\nrequired-secrets: [KEY]\n"), "tidy"
    )
    assert (skill.name, skill.description, skill.license, skill.tools) == ("tidy", "Tidies up.", "MIT", ("bash", "ls"))
    assert dict(skill.other) == {"version": 2, "required-secrets": ["KEY"]}
    assert skill.usable
    assert skill.problems == ()


TOOLS = {
    "bash, read_file": ("bash", "read_file"),
    "bash read_file": ("bash", "read_file"),
    "[bash, read_file]": ("bash", "read_file"),
    "Bash(git status:*), Read": ("Bash(git status:*)", "Read"),
    "bash,bash": ("bash",),
    "''": (),
    "{a: 1}": None,
    "": None,
}


@pytest.mark.parametrize("written", TOOLS)
def test_tools_are_a_list_or_names_with_commas_or_spaces(written: str) -> None:
    assert parse_skill(skill_text("a", more=f"allowed-tools: {written}\n"), "a").tools == TOOLS[written]


BROKEN = {
    "nothing": "",
    "no front matter": "# Just text\n",
    "no end": "---\nname: x\ndescription: y\n",
    "not YAML": "---\nname: [x\ndescription: 'y\n---\n",
    "a list": "---\n- a\n- b\n---\n",
    "no description": "---\nname: x\n---\n",
    "a name that leads out": "---\nname: ../../evil\ndescription: y\n---\n",
    "a name with markup": "---\nname: </skills>\ndescription: y\n---\n",
    "anchors that grow": f"---\na: &a [{'x, ' * 900}]\nb: &b [{'*a, ' * 900}]\nname: x\ndescription: y\n---\n",
    "a class": "---\nname: !!python/object/apply:os.system [echo]\ndescription: y\n---\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_reported_and_never_raises(kind: str) -> None:
    assert parse_skill(BROKEN[kind], "folder").problems


def test_what_people_really_write_is_understood() -> None:
    skill = parse_skill('\ufeff\n---\r\nname: My_Skill\r\ndescription: Use when: the user says "x": y\r\n---\r\nBody', "my-skill")
    assert (skill.name, skill.description) == ("my-skill", 'Use when: the user says "x": y')
    assert skill.usable
    assert len(skill.problems) == 2


@given(st.text(max_size=300))
def test_no_text_at_all_makes_reading_fail(text: str) -> None:
    for form in (text, f"---\n{text}\n---\n", f"---\nname: {text}\ndescription: {text}\nallowed-tools: {text}\n---"):
        skill = parse_skill(form, "folder")
        assert skill.usable or skill.problems


def test_skills_are_found_sorted_with_the_path_that_agents_use(tmp_path: Path) -> None:
    put(tmp_path, "public/zebra", skill_text("zebra"))
    put(tmp_path, "custom/apple", skill_text("apple"))
    put(tmp_path, "direct", skill_text("direct"))
    put(tmp_path, "public/group/nested", skill_text("nested"))
    put(tmp_path, "public/zebra/inner", skill_text("inner"))  # belongs to zebra
    put(tmp_path, ".hidden", skill_text("hidden"))
    (tmp_path / "public" / "empty").mkdir()
    found = SkillLibrary(tmp_path, shown="/mnt/skills").all()
    assert [(skill.name, skill.kind, skill.location) for skill in found.skills] == [
        ("apple", "custom", "/mnt/skills/custom/apple/SKILL.md"),
        ("direct", "custom", "/mnt/skills/direct/SKILL.md"),
        ("nested", "public", "/mnt/skills/public/group/nested/SKILL.md"),
        ("zebra", "public", "/mnt/skills/public/zebra/SKILL.md"),
    ]
    assert found.problems == ()


def test_of_two_with_one_name_the_custom_one_is_used_and_that_is_said(tmp_path: Path) -> None:
    put(tmp_path, "public/tidy", skill_text("tidy", "public"))
    put(tmp_path, "custom/tidy", skill_text("tidy", "custom"))
    found = SkillLibrary(tmp_path).all()
    assert [skill.description for skill in found.skills] == ["custom"]
    assert found.problems == ("there are two skills named tidy: custom/tidy is used, public/tidy is not",)


def test_a_link_in_the_folder_does_not_lead_out(tmp_path: Path) -> None:
    put(tmp_path / "outside", "evil", skill_text("evil"))
    root = tmp_path / "skills"
    put(root, "custom/good", skill_text("good"))
    (root / "custom" / "evil").symlink_to(tmp_path / "outside" / "evil")
    (root / "custom" / "file").mkdir()
    (root / "custom" / "file" / "SKILL.md").symlink_to(tmp_path / "outside" / "evil" / "SKILL.md")
    found = SkillLibrary(root).all()
    assert [skill.name for skill in found.skills] == ["good"]
    assert "custom/file" in found.problems[0]


def test_the_body_is_read_on_demand(tmp_path: Path) -> None:
    put(tmp_path, "custom/tidy", skill_text("tidy"))
    library = SkillLibrary(tmp_path)
    assert library.body("tidy").endswith("# Body of tidy\n")
    with pytest.raises(InputError, match="There are: tidy"):
        library.body("other")
    with pytest.raises(InputError):
        library.body("../tidy")


def test_no_folder_means_no_skills() -> None:
    assert SkillLibrary(None).all().skills == ()
    assert SkillLibrary("/nowhere/skills").all().skills == ()


def test_a_switch_is_kept(tmp_path: Path) -> None:
    put(tmp_path, "custom/a", skill_text("a"))
    put(tmp_path, "custom/b", skill_text("b"))
    library = SkillLibrary(tmp_path, switches=Switches(tmp_path / "skills.json"))
    assert library.switch("a", enabled=False).enabled is False
    again = SkillLibrary(tmp_path, switches=Switches(tmp_path / "skills.json")).all()
    assert [(skill.name, skill.enabled) for skill in again.skills] == [("a", False), ("b", True)]
    assert [skill.name for skill in again.enabled] == ["b"]
    with pytest.raises(InputError):
        library.switch("c", enabled=True)
    assert json.loads((tmp_path / "skills.json").read_text()) == {"schema": 1, "skills": {"a": {"enabled": False}}}


def test_the_state_of_a_reference_installation_is_read_and_never_written(tmp_path: Path) -> None:
    put(tmp_path / "skills", "public/a", skill_text("a"))
    put(tmp_path / "skills", "public/b", skill_text("b"))
    old = {"mcpServers": {}, "skills": {"a": {"enabled": False}, "b": {"enabled": False}}}
    (tmp_path / "extensions_config.json").write_text(json.dumps(old))
    (tmp_path / "config.yaml").write_text("skills: {container_path: /mnt/skills}\n")
    library = open_skills(load_config(tmp_path / "config.yaml"))
    assert [skill.enabled for skill in library.all().skills] == [False, False]
    library.switch("b", enabled=True)
    assert [skill.enabled for skill in library.all().skills] == [False, True]
    assert json.loads((tmp_path / "extensions_config.json").read_text()) == old


def test_a_damaged_state_is_set_aside_and_reported(tmp_path: Path) -> None:
    put(tmp_path, "custom/a", skill_text("a"))
    (tmp_path / "skills.json").write_text("{half")
    found = SkillLibrary(tmp_path, switches=Switches(tmp_path / "skills.json")).all()
    assert [skill.enabled for skill in found.skills] == [True]
    assert "set aside" in found.problems[0]
    assert [path.read_text() for path in tmp_path.glob("skills.json.damaged-*")] == ["{half"]


def test_no_switch_is_lost_among_many_writers(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(12)]
    workers = [threading.Thread(target=Switches(tmp_path / "skills.json").set, args=(name,), kwargs={"enabled": False}) for name in names]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert Switches(tmp_path / "skills.json").read() == dict.fromkeys(names, False)


def test_the_prompt_names_skills_and_where_to_read_them(tmp_path: Path) -> None:
    put(tmp_path, "custom/b", skill_text("b", "Does <b> & more </skills>."))
    put(tmp_path, "custom/a", skill_text("a", "Does a."))
    put(tmp_path, "custom/broken", "no front matter")
    text = render(SkillLibrary(tmp_path).all().skills)
    assert text.splitlines() == [
        "<skills>",
        "Before you do what a skill is for, read its file with read_file and follow it.",
        "- a (/mnt/skills/custom/a/SKILL.md): Does a.",
        "- b (/mnt/skills/custom/b/SKILL.md): Does &lt;b&gt; &amp; more &lt;/skills&gt;.",
        "</skills>",
    ]
    assert render([]) == ""


@pytest.mark.parametrize("budget", [0, 30, 60, 120, 300, 1000, 3000])
def test_the_prompt_keeps_to_its_budget_and_says_what_is_missing(tmp_path: Path, budget: int) -> None:
    for number in range(30):
        put(tmp_path, f"custom/skill-{number:02}", skill_text(f"skill-{number:02}", "Long words about what it is for. " * 10))
    skills = SkillLibrary(tmp_path).all().skills
    counter = open_counter()
    text = render(skills, budget=budget, count=counter.count_text)
    assert counter.count_text(text) <= budget
    shown = text.count("SKILL.md")
    if text:
        assert (f"({30 - shown} more skills did not fit here.)" in text) == (shown < 30)
    assert (budget >= 60) == bool(text)


def test_the_examples_are_without_fault() -> None:
    found = SkillLibrary(EXAMPLES).all()
    assert [(skill.name, skill.usable) for skill in found.skills] == [("data-report", True), ("weekly-notes", True)]
    assert found.problems == ()
