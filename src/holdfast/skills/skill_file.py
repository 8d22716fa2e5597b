"""Reading a `SKILL.md`: front matter in YAML between two lines of dashes, then the body in Markdown (A12).

Skills are written by many hands, so reading is patient: what is wrong is named in `problems`, and as much as possible is used all the same.
A skill without a usable name or description is not shown to a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

Kind = Literal["public", "custom"]
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?", re.ASCII)
_FENCE = re.compile(r"---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*(?:\r?\n|\Z)(.*)", re.DOTALL | re.MULTILINE)
_LONGEST_DESCRIPTION = 1024
_OURS = frozenset({"name", "description", "license", "allowed-tools", "allowed_tools"})


@dataclass(frozen=True)
class Skill:
    """A skill as its file describes it. `tools` is None when the file does not say which tools it may use.

    `location` is the path of its SKILL.md as agents see it, `folder` its path below the folder of the skills. `problems` says in
    sentences what is wrong with the file; with `usable` False it is listed for people and not shown to a model.
    """

    name: str
    description: str
    folder: str
    kind: Kind = "custom"
    location: str = ""
    tools: tuple[str, ...] | None = None
    license: str | None = None
    other: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    enabled: bool = True
    usable: bool = True
    problems: tuple[str, ...] = ()


def parse_skill(text: str, folder: str, kind: Kind = "custom") -> Skill:
    """The skill that the text describes. Never raises: what is wrong is in `problems`.

    >>> parse_skill("---\\nname: tidy\\ndescription: Tidies up.\\nallowed-tools: bash, ls\\n---\\nDo it.", "tidy").tools
    ('bash', 'ls')
    """
    problems: list[str] = []
    values = _front_matter(text, problems)
    own = folder.rsplit("/", 1)[-1]
    name = _name(values.get("name"), own, problems)
    description = _description(values.get("description"), problems)
    tools = _tools(values.get("allowed-tools", values.get("allowed_tools")), problems)
    terms = values.get("license")
    return Skill(
        name=name,
        description=description,
        folder=folder,
        kind=kind,
        tools=tools,
        license=str(terms) if terms is not None else None,
        other=MappingProxyType({key: value for key, value in values.items() if key not in _OURS}),
        usable=bool(description) and _NAME.fullmatch(name) is not None,
        problems=tuple(problems),
    )


def located(skill: Skill, shown: str) -> Skill:
    """The skill with the path of its file as agents see it, below `shown`."""
    return replace(skill, location=f"{shown.rstrip('/')}/{skill.folder}/SKILL.md")


def _front_matter(text: str, problems: list[str]) -> dict[str, Any]:
    found = _FENCE.match(text.removeprefix("\ufeff").lstrip())
    if found is None:
        problems.append("there is no front matter between two lines of `---` at the beginning")
        return {}
    values = _yaml(found[1])
    if values is None:
        problems.append("the front matter is not YAML; it was read line by line")
        values = _line_by_line(found[1])
    return values


def _yaml(text: str) -> dict[str, Any] | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if text.count("&") and re.search(r"^\s*[\w-]+:\s*&", text, re.MULTILINE):
        return None  # anchors have no place here, and nested ones grow without end
    try:
        values = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError):
        return None
    if values is None:
        return {}
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else None


def _line_by_line(text: str) -> dict[str, Any]:
    """`key: value` as people write it, with colons and quotes in the value."""
    pairs = re.findall(r"^([A-Za-z][\w-]*)[ \t]*:[ \t]*(.*?)[ \t]*\r?$", text, re.MULTILINE)
    return {key: value.strip("\"'") for key, value in pairs}


def _name(value: Any, folder: str, problems: list[str]) -> str:
    if value is None:
        problems.append("there is no name; that of the folder is used")
        value = folder
    name = str(value).strip()
    if _NAME.fullmatch(name) is None:
        lowered = re.sub(r"[\s_]+", "-", name.lower())
        if _NAME.fullmatch(lowered) is None:
            problems.append(f"the name {name[:80]!r} is not usable: 1 to 64 lower-case letters, digits and hyphens")
            return name[:80]
        problems.append(f"the name {name!r} is read as {lowered!r}")
        name = lowered
    if name != folder:
        problems.append(f"the folder is called {folder!r} and the skill {name!r}")
    return name


def _description(value: Any, problems: list[str]) -> str:
    text = " ".join(str(value).split()) if value is not None else ""
    if not text:
        problems.append("there is no description, so no model can know when to use it")
    if len(text) > _LONGEST_DESCRIPTION:
        problems.append(f"the description is longer than {_LONGEST_DESCRIPTION} characters and was cut")
        text = text[: _LONGEST_DESCRIPTION - 3] + "..."
    return text


def _tools(value: Any, problems: list[str]) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        # a comma or a space between two names; in brackets, as in `Bash(git status:*)`, both belong to the name
        names = re.findall(r"[^\s,(]+(?:\([^)]*\))?", value)
    elif isinstance(value, list):
        names = [str(name).strip() for name in value]
    else:
        problems.append("allowed-tools is neither a list nor names with commas; it is not used")
        return None
    return tuple(dict.fromkeys(name for name in names if name))
