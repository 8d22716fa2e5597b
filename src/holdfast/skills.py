"""The library of skills: finding them, switching them on and off, and the part of the prompt that names them (A12).

Skills are in `public/` and `custom/` below the folder of the skills, or in it directly. What is switched on is kept durably in
`{base}/skills.json`; what a reference installation says about its own is read too.

A `SKILL.md` has front matter in YAML between two lines of dashes, then the body in Markdown. Skills are written by many hands, so reading
is patient: what is wrong is named in `problems`, and as much as possible is used all the same. A skill without a usable name or description
is not shown to a model.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from html import escape
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from holdfast.durable.folder import Folder
from holdfast.durable.lock import Lock
from holdfast.durable.replace import read_json, replace_json, set_aside
from holdfast.errors import ConfigError, Damaged, HoldfastError, InputError, NotThere, OutsideRoot, StorageError
from holdfast.validation import counted

if TYPE_CHECKING:
    from holdfast.config.sections import Config


Kind = Literal["public", "custom"]
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?", re.ASCII)
_FENCE = re.compile(r"---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*(?:\r?\n|\Z)(.*)", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"[A-Za-z][\w-]*")
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
    from holdfast.config.reading import read_head

    try:
        values, why = read_head(found[1]), "it has no keys"
    except ConfigError as error:
        values, why = None, error.message.rstrip(".")
    if isinstance(values, dict):
        return values
    if not found[1].strip():
        return {}
    problems.append(f"the front matter was read line by line: {why}")
    return _line_by_line(found[1])


def _line_by_line(text: str) -> dict[str, Any]:
    """`key: value` as people write it, with colons and quotes in the value."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {key: value.strip().strip("\"'") for name, value in pairs if _KEY.fullmatch(key := name.rstrip(" \t"))}


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
        names = re.findall(r"[^\s,(]+(?:\([^)]{0,1000}\))?", value)
    elif isinstance(value, list):
        names = [str(name).strip() for name in value]
    else:
        problems.append("allowed-tools is neither a list nor names with commas; it is not used")
        return None
    return tuple(dict.fromkeys(name for name in names if name))


_SCHEMA = 1
REFERENCE_FILE = "extensions_config.json"


class Switches:
    """The enabled state by name. What nobody switched is on. Safe for many threads and processes.

    `reference` is a file of the reference's form (`{"skills": {NAME: {"enabled": false}}}`), which is read and never written; our own file
    comes first.
    """

    def __init__(self, path: str | PathLike[str], *, reference: str | PathLike[str] | None = None) -> None:
        self._path = Path(path)
        self._reference = Path(reference) if reference is not None else None
        self.problems: tuple[str, ...] = ()

    def read(self) -> dict[str, bool]:
        """All names that were switched at some time. A damaged file is set aside and named in `problems`; then everything is on."""
        return {**_states(self._foreign()), **_states(self._own())}

    def set(self, name: str, *, enabled: bool) -> None:
        """Switch a skill. On return it survives a power cut. What else the file says is kept."""
        with Lock(f"{self._path}.lock", timeout=10.0):
            document = dict(self._own())
            skills = dict(document.get("skills") or {})
            skills[name] = {**(skills[name] if isinstance(skills.get(name), Mapping) else {}), "enabled": enabled}
            document |= {"schema": _SCHEMA, "skills": dict(sorted(skills.items()))}
            replace_json(self._path, document)

    def _own(self) -> Mapping[str, Any]:
        try:
            value = read_json(self._path)
        except FileNotFoundError:
            return {}
        except Damaged as error:
            aside = set_aside(self._path)
            self.problems = (*self.problems, f"{error.message} It was set aside as {aside}; all skills are on.")
            return {}
        return value if isinstance(value, Mapping) else {}

    def _foreign(self) -> Mapping[str, Any]:
        if self._reference is None:
            return {}
        try:
            value = read_json(self._reference)
        except FileNotFoundError:
            return {}
        except StorageError as error:
            self.problems = (*self.problems, f"{self._reference.name} cannot be read: {error.message}")
            return {}
        return value if isinstance(value, Mapping) else {}


def _states(document: Mapping[str, Any]) -> dict[str, bool]:
    skills = document.get("skills")
    if not isinstance(skills, Mapping):
        return {}
    return {str(name): bool(state.get("enabled", True)) for name, state in skills.items() if isinstance(state, Mapping)}


_FILE = "SKILL.md"
_MOST_BYTES = 1024 * 1024
_DEEPEST = 3


@dataclass(frozen=True)
class Skills:
    """The skills that were found, by name, and what a person should know about them."""

    skills: tuple[Skill, ...]
    problems: tuple[str, ...] = ()

    @property
    def enabled(self) -> tuple[Skill, ...]:
        """Those that a model may be shown."""
        return tuple(skill for skill in self.skills if skill.enabled and skill.usable)


class SkillLibrary:
    """The skills in a folder. Each call looks anew, so that a skill which was just put there is found.

    Nothing outside of the folder is read, whatever links are in it.
    """

    def __init__(self, folder: str | PathLike[str] | None, *, shown: str = "/mnt/skills", switches: Switches | None = None) -> None:
        self.folder = Path(folder) if folder is not None else None
        self._shown, self._switches = shown, switches

    def all(self) -> Skills:
        """All skills, sorted by name. Of two with one name the custom one is used, and that is said."""
        problems: list[str] = []
        states = self._switches.read() if self._switches is not None else {}
        chosen: dict[str, Skill] = {}
        for skill in self._found(problems):
            other = chosen.get(skill.name)
            if other is not None:
                first, second = (other, skill) if (other.kind, skill.kind) == ("custom", "public") else (skill, other)
                if other.kind == skill.kind:
                    first, second = other, skill
                problems.append(f"there are two skills named {skill.name}: {first.folder} is used, {second.folder} is not")
                skill = first
            chosen[skill.name] = located(replace(skill, enabled=states.get(skill.name, True)), self._shown)
        if self._switches is not None:
            problems.extend(self._switches.problems)
        return Skills(tuple(chosen[name] for name in sorted(chosen)), tuple(problems))

    def get(self, name: str) -> Skill:
        """The skill of this name. InputError, naming those that there are."""
        skills = {skill.name: skill for skill in self.all().skills}
        if name not in skills:
            known = ", ".join(skills) or "none"
            raise NotThere(f"there is no skill {name!r}.", hint=f"There are: {known}.")
        return skills[name]

    def body(self, name: str) -> str:
        """The whole SKILL.md of a skill."""
        skill = self.get(name)
        assert self.folder is not None  # noqa: S101 - a skill was found in it
        with Folder(self.folder) as folder:
            return folder.read_bytes(f"{skill.folder}/{_FILE}", limit=_MOST_BYTES).decode("utf-8", "replace")

    def switch(self, name: str, *, enabled: bool) -> Skill:
        """Switch a skill on or off, durably."""
        skill = self.get(name)
        if self._switches is None:
            raise InputError("the state of skills is not kept here.", hint="Open the library with `open_skills(config)`.")
        self._switches.set(skill.name, enabled=enabled)
        return replace(skill, enabled=enabled)

    def _found(self, problems: list[str]) -> Iterator[Skill]:
        if self.folder is None or not self.folder.is_dir():
            return
        with Folder(self.folder) as folder:
            for path in sorted(_places(folder)):
                kind: Kind = "public" if path.startswith("public/") else "custom"
                try:
                    text = folder.read_bytes(f"{path}/{_FILE}", limit=_MOST_BYTES).decode("utf-8", "replace")
                except (HoldfastError, FileNotFoundError) as error:
                    problems.append(f"{path}: its {_FILE} cannot be read: {error}")
                    continue
                skill = parse_skill(text, path, kind)
                problems.extend(f"{path}: {problem}" for problem in skill.problems)
                yield skill


def _places(folder: Folder) -> Iterator[str]:
    """The folders with a SKILL.md. What is inside of a skill is its own and not looked through."""
    pending = [(".", 0)]
    while pending:
        path, depth = pending.pop()
        with suppress(FileNotFoundError, OutsideRoot, StorageError):  # removed or swapped meanwhile, or not for us to read
            entries = folder.list(path)
            if path != "." and any(entry.path.rsplit("/", 1)[-1] == _FILE for entry in entries):
                yield path
            elif depth < _DEEPEST:
                folders = [entry.path for entry in entries if entry.kind == "folder"]
                pending += [(path, depth + 1) for path in folders if not path.rsplit("/", 1)[-1].startswith(".")]


def open_skills(config: Config) -> SkillLibrary:
    """The skills of a configuration (`Config.skills_in_use`)."""
    switches = Switches(config.in_base("skills.json"), reference=config.found_beside(REFERENCE_FILE))
    return SkillLibrary(config.skills_in_use(), shown=config.skills.container_path, switches=switches)


_HEAD = "Before you do what a skill is for, read its file with read_file and follow it."


def render(skills: Iterable[Skill], *, budget: int | None = None, count: Callable[[str], int] | None = None) -> str:
    """`<skills>` with one line for each that is enabled, by name; nothing at all when there is none.

    Within `budget` tokens descriptions are shortened first, then left out; a last line says how many skills did not fit. Text from files is
    escaped: it cannot close the block.
    """
    chosen = sorted((skill for skill in skills if skill.enabled and skill.usable), key=lambda skill: skill.name)
    if not chosen:
        return ""
    if budget is None:
        return _block(chosen, None, 0)
    measure = count or _approximate
    for longest in (None, 200, 80, 0):
        text = _block(chosen, longest, 0)
        if measure(text) <= budget:
            return text
    sizes = range(1, len(chosen) + 1)  # the most skills that fit by name alone
    most = bisect_right(sizes, budget, key=lambda size: measure(_block(chosen[:size], 0, len(chosen) - size)))
    return _block(chosen[:most], 0, len(chosen) - most) if most else ""


def _block(skills: list[Skill], longest: int | None, left_out: int) -> str:
    lines = [_line(skill, longest) for skill in skills]
    if left_out:
        lines.append(f"({counted(left_out, 'more skill')} did not fit here.)")
    return "\n".join(["<skills>", _HEAD, *lines, "</skills>"])


def _line(skill: Skill, longest: int | None) -> str:
    text = skill.description
    if longest is not None and len(text) > longest:
        text = text[: max(longest - 3, 0)].rstrip() + "..." if longest else ""
    said = f": {escape(text, quote=False)}" if text else ""
    return f"- {escape(skill.name, quote=False)} ({escape(skill.location, quote=False)}){said}"


def _approximate(text: str) -> int:
    from holdfast.tokens.counter import open_counter

    return open_counter().count_text(text)
