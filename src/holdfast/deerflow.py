"""Taking over memory and configuration from an installation of the reference, once, without changing it (C6).

`plan` looks and decides, `apply` writes. A plan is a value: the command line shows it before anything happens. Nothing of ours is ever
overwritten: where a target exists with other content the plan has a conflict, and a plan with conflicts is refused as a whole.

The reference kept memory in three layouts over time, all of them found here: one `memory.json` with a file per agent below `agents/`;
the same once more per user below `users/`; and summaries in a JSON file with one Markdown file per fact below `facts/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.clock import Clock, stamp
from holdfast.config.migration import upgrade_text
from holdfast.config.reading import read_yaml
from holdfast.durable.replace import read_json, replace_json, replace_text
from holdfast.errors import ConfigError, Damaged, HoldfastError, InputError
from holdfast.ids import check_name

_STATE_FOLDERS = (".deer-flow", "backend/.deer-flow", ".")
_DEFAULT_AGENT = "__default__"
_FACT_KEYS = ("id", "category", "confidence", "createdAt", "sourceError", "status", "updatedAt", "lastConfirmedAt", "confirmationCount")


@dataclass(frozen=True)
class Step:
    """One file to be written: where it comes from, where it goes, what it holds."""

    kind: str
    source: Path
    target: Path
    content: Any
    facts: int = 0


@dataclass(frozen=True)
class Plan:
    """What would be taken over, what is there already, what cannot be read, and what stands in the way."""

    source: Path
    base: Path
    steps: tuple[Step, ...] = ()
    same: tuple[Path, ...] = ()
    unreadable: tuple[tuple[Path, str], ...] = ()
    conflicts: tuple[Path, ...] = ()
    done_before: str | None = None
    notes: tuple[str, ...] = ()


@dataclass
class _Findings:
    steps: list[Step] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan(source: Path, *, base: Path, config_target: Path, keep_config: bool = False) -> Plan:
    """Look through an installation and decide what goes where; reads only. With `keep_config` a configuration of ours stays in use."""
    if not source.is_dir():
        raise InputError(f"{source} is not a folder.", hint="Give the folder of the installation, or its `.deer-flow` folder.")
    found = _Findings()
    _memory(source, base, found)
    _configuration(source, config_target, found, keep=keep_config)
    if not found.steps and not found.unreadable and not found.notes:
        raise InputError(
            f"{source} has neither a memory.json nor a config.yaml.", hint="Give the folder that holds `config.yaml` or `.deer-flow`."
        )
    new, same, conflicts = [], [], []
    for step in found.steps:
        if not step.target.exists():
            new.append(step)
        elif _same(step):
            same.append(step.target)
        else:
            conflicts.append(step.target)
    return Plan(
        source, base, tuple(new), tuple(same), tuple(found.unreadable), tuple(conflicts), _done_before(base, source), tuple(found.notes)
    )


def apply(plan: Plan, *, clock: Clock) -> None:
    """Write what was planned, each file durably, then the note that it was done. Refuses a plan with conflicts, before writing anything."""
    if plan.conflicts:
        listed = ", ".join(str(path) for path in plan.conflicts)
        raise InputError(
            f"There is something else already at {listed}.", hint="Move it away first, or use another HOLDFAST_HOME. Nothing was written."
        )
    if plan.done_before:
        raise InputError(f"This was taken over on {plan.done_before}.", hint=f"Remove {_note(plan.base)} to do it again.")
    for step in plan.steps:
        if step.kind == "config":
            replace_text(step.target, step.content)
        else:
            replace_json(step.target, step.content)
    record = {
        "schema": 1,
        "source": str(plan.source.resolve()),
        "when": stamp(clock.now()),
        "files": [str(step.source) for step in plan.steps],
    }
    replace_json(_note(plan.base), record)


def _note(base: Path) -> Path:
    return base / "imports" / "deerflow.json"


def _done_before(base: Path, source: Path) -> str | None:
    note = _note(base)
    if not note.exists():
        return None
    record = read_json(note)
    return str(record.get("when")) if isinstance(record, dict) and record.get("source") == str(source.resolve()) else None


def _same(step: Step) -> bool:
    try:
        return bool(step.target.read_text("utf-8") == step.content if step.kind == "config" else read_json(step.target) == step.content)
    except (HoldfastError, UnicodeDecodeError):
        return False


# Memory


def _memory(source: Path, base: Path, found: _Findings) -> None:
    folders = [source / name for name in _STATE_FOLDERS]
    scopes = [scope for folder in folders if folder.is_dir() for scope in _scopes(folder)]
    users = sorted({user for user, _, _ in scopes if user})
    only_user = users[0] if len(users) == 1 and not any(user is None for user, _, _ in scopes) else None
    taken: set[Path] = set()
    for user, agent, folder in scopes:
        home = base if user in (None, only_user) else base / "users" / user.lower()
        target = (home / "agents" / agent if agent else home) / "memory.json"
        if target in taken:
            continue
        document = _document(folder, found)
        if document is not None:
            taken.add(target)
            found.steps.append(Step("memory", folder, target, document, facts=len(document.get("facts", ()))))


def _scopes(folder: Path) -> Iterator[tuple[str | None, str | None, Path]]:
    """Every (user, agent, folder) below a state folder that holds memory."""
    yield from _agents(folder, None)
    users = folder / "users"
    for user in sorted(users.iterdir()) if users.is_dir() else ():
        if user.is_dir() and _usable(user.name):
            yield from _agents(user, user.name)


def _agents(folder: Path, user: str | None) -> Iterator[tuple[str | None, str | None, Path]]:
    if _holds_memory(folder):
        yield user, None, folder
    agents = folder / "agents"
    for agent in sorted(agents.iterdir()) if agents.is_dir() else ():
        if not _holds_memory(agent):
            continue
        if agent.name == _DEFAULT_AGENT:
            yield user, None, agent
        elif _usable(agent.name):
            yield user, check_name(agent.name), agent


def _usable(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) is not None


def _holds_memory(folder: Path) -> bool:
    return (folder / "memory.json").is_file() or (folder / "facts").is_dir()


def _document(folder: Path, found: _Findings) -> dict[str, Any] | None:
    file = folder / "memory.json"
    document: dict[str, Any] = {}
    if file.is_file():
        try:
            read = read_json(file)
        except Damaged as error:
            found.unreadable.append((file, error.message))
            return None
        if not isinstance(read, dict):
            found.unreadable.append((file, "it is not a memory document: the outermost value is not an object"))
            return None
        document = read
    facts = [fact for path in sorted((folder / "facts").rglob("*.md")) if (fact := _fact(path, found)) is not None]
    if facts:
        document["facts"] = [*document.get("facts", []), *facts]
    return document


def _fact(path: Path, found: _Findings) -> dict[str, Any] | None:
    """One fact from a Markdown file: YAML front matter, a heading, and the text."""
    try:
        text = path.read_text("utf-8-sig").replace("\r\n", "\n")
        match = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
        head = read_yaml(match.group(1), path).values if match else None
    except (UnicodeDecodeError, ConfigError) as error:
        found.unreadable.append((path, str(error)))
        return None
    if match is None or not isinstance(head, dict):
        found.unreadable.append((path, "it has no front matter"))
        return None
    if head.get("status", "active") != "active":
        return None
    body = re.sub(r"\A\s*#[^\n]*\n", "", match.group(2)).strip() or match.group(2).strip().lstrip("# ")
    origin = head.get("source")
    fact = {key: _plain(head[key]) for key in _FACT_KEYS if head.get(key) is not None}
    fact["content"] = body
    fact["source"] = origin.get("threadId", origin.get("type", "unknown")) if isinstance(origin, dict) else str(origin or "unknown")
    return fact


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else json.loads(json.dumps(value, default=str))


# Configuration


def _configuration(source: Path, target: Path, found: _Findings, *, keep: bool) -> None:
    places = [source / "config.yaml"]
    if source.name == ".deer-flow":  # the state folder was given: the configuration is beside it, or one above the backend
        places += [source.parent / "config.yaml", source.parent.parent / "config.yaml"]
    file = next((path for path in places if path.is_file()), None)
    if file is None:
        return
    if keep and file.resolve() != target.resolve():
        found.notes.append(f"{target} is in use and stays as it is; {file} was not taken over.")
        return
    if file.resolve() == target.resolve():
        found.notes.append(f"{file} works here unchanged.")
        return
    try:
        text = upgrade_text(file.read_bytes(), file).text
    except ConfigError as error:
        found.unreadable.append((file, str(error)))
        return
    found.steps.append(Step("config", file, target, text))
