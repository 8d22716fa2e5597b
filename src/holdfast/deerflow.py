"""Taking over memory and configuration from an installation of the reference, without changing it (C6).

`plan` looks and decides, `apply` writes. A plan is a value: the command line shows it before anything happens. Memory goes where the
configuration that holds afterwards looks for it, is merged with what is there, and is an ordinary change that can be undone. It can be
done again: what is known already, and what was removed or changed here since, stays as it is. Nobody here typed what stands there, so it
passes the same gate as `memory import` (M10): secrets stay out, and what reads as an order waits for review.

The reference kept memory in three layouts over time, all of them found here: one `memory.json` with a file per agent below `agents/`;
the same once more per user below `users/`; and summaries in a JSON file with one Markdown file per fact below `agents/NAME/facts/`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from holdfast.agents.agent_settings import AGENT_FILES, check_agent_file
from holdfast.clock import Clock, stamp
from holdfast.config.loading import FILE_NAME, read_config, read_source
from holdfast.config.migration import upgrade_text
from holdfast.config.reading import read_yaml
from holdfast.config.sections import Config
from holdfast.durable.folder import open_outside
from holdfast.durable.replace import read_json, replace_json, replace_text
from holdfast.errors import ConfigError, Damaged, HoldfastError, InputError, NotTrusted
from holdfast.memory.document import Document, Summary, parse, source_of
from holdfast.memory.document_file import FILE_NAME as MEMORY_FILE
from holdfast.memory.document_file import Layout
from holdfast.memory.history import Held
from holdfast.memory.importing import judge_import, still_asked, wordless_facts
from holdfast.memory.memory_store import Edit, MemoryStore
from holdfast.memory.storage import FileMemoryStorage, keeps_files, open_storage
from holdfast.memory.updater import new_fact_id
from holdfast.validation import check_name, counted

_STATE_FOLDERS = (".deer-flow", "backend/.deer-flow", ".")
_DEFAULT_AGENT = "__default__"
_DEFAULT_USER = "default"
_EXTENSIONS = "extensions_config.json"
_NOT_OF_A_FACT = frozenset({"schemaVersion", "revision", "user_id", "agent_name", "source", "title", "categoryExtension", "scope"})


@dataclass(frozen=True)
class FileStep:
    """One file to be written: where it comes from, where it goes, what it holds."""

    kind: str
    source: Path
    target: Path
    text: str


@dataclass(frozen=True)
class MemoryStep:
    """What one scope is given: a user's folder (None: the base directory), an agent (None: all of them), and what was found for it."""

    user: str | None
    agent: str | None
    sources: tuple[Path, ...]
    found: Document
    home: Path
    where: str
    effect: Effect
    held: tuple[Held, ...] = ()
    """What waits for a person, as far as it is new."""
    refused: tuple[str, ...] = ()
    """What stays out, in words that repeat none of it."""
    older: tuple[tuple[str, Summary], ...] = ()
    """Summaries that a newer one of the same name took the place of, oldest first: they go into the history."""

    @property
    def scope(self) -> str:
        """Its name in the note of what was taken over."""
        return f"{self.user or ''}/{self.agent or ''}"


@dataclass(frozen=True)
class Effect:
    """What a step does to a document, in numbers: facts that are new, changed there, known, and not wanted back; summaries filled in."""

    document: Document
    added: int = 0
    changed: int = 0
    known: int = 0
    left_out: int = 0
    summaries: int = 0

    def __str__(self) -> str:
        parts = [
            counted(self.added, "new fact") if self.added else "no new facts",
            counted(self.summaries, "summary", "summaries") if self.summaries else "",
            f"{self.changed} changed there" if self.changed else "",
            f"{self.known} known already" if self.known else "",
            f"{self.left_out} removed or changed here stay so" if self.left_out else "",
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Plan:
    """What would be taken over, what cannot be read, and what else a person should know. `config` is the one that holds afterwards."""

    source: Path
    config: Config
    files: tuple[FileStep, ...] = ()
    memory: tuple[MemoryStep, ...] = ()
    unreadable: tuple[tuple[Path, str], ...] = ()
    notes: tuple[str, ...] = ()
    taken: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass
class _Findings:
    files: list[FileStep] = field(default_factory=list)
    memory: list[MemoryStep] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    again: bool = False


def plan(source: Path, *, ours: Config, target: Path, again: bool = False) -> Plan:
    """Look through an installation and decide what goes where; reads only.

    `ours` is the configuration in use; where it has no file, the installation's is written to `target`. With `again` also facts come back
    that were taken over before and removed here since.
    """
    if not source.is_dir():
        raise InputError(f"{source} is not a folder.", hint="Give the folder of the installation, or its `.deer-flow` folder.")
    source, found = source.resolve(), _Findings(again=again)
    file = _config_file(source)
    _check_trusted(file, ours)
    config, theirs = _configuration(file, ours, target, found)
    _companions(file, config, found)
    taken = {} if again else _taken(config.base, source)
    _memory(source, config, theirs, taken, found)
    if not (found.files or found.memory or found.unreadable or found.notes):
        raise InputError(
            f"{source} has neither a memory.json nor a config.yaml.", hint="Give the folder that holds `config.yaml` or `.deer-flow`."
        )
    return Plan(source, config, tuple(found.files), tuple(found.memory), tuple(found.unreadable), tuple(found.notes), taken)


def apply(plan: Plan, *, clock: Clock) -> Plan:
    """Write what was planned, each part durably, then the note of what was taken over. Gives the plan with what was really done."""
    for step in plan.files:
        step.target.parent.mkdir(parents=True, exist_ok=True)
        replace_text(step.target, step.text)
    done = tuple(_applied(step, plan, clock) for step in plan.memory)
    _write_note(plan, done, clock)
    return replace(plan, memory=done)


def _applied(step: MemoryStep, plan: Plan, clock: Clock) -> MemoryStep:
    effects: list[Effect] = []

    taken, held, why = dict(plan.taken.get(step.scope, {})), list[Held](), f"taken over from {plan.source}"
    with closing(_store(plan.config, step.home, step.user)) as store:

        def edit(current: Document) -> Edit:
            effects.append(merged(current, step.found, taken))
            held[:] = still_asked(step.held, current, effects[-1].document, store.held(step.agent))
            return Edit(effects[-1].document, "import", why, held=tuple(held))

        before = store.own(step.agent) or Document()
        for name, older in step.older:
            if not before.slot(name).text:
                store.change(step.agent, lambda current, name=name, older=older: Edit(current.with_summary(name, older), "import", why))  # type: ignore[misc]
                taken[name] = _digest(older.text)
        store.change(step.agent, edit)
    return replace(step, effect=effects[-1], held=tuple(held))


def merged(current: Document, found: Document, taken: Mapping[str, str]) -> Effect:
    """What a document becomes with what was found, and in what way. `taken` says by id what was taken over before, as a digest.

    A fact that is known by its words stays once. One that was taken over before is left as it is here, gone or changed, unless it is still
    as it was taken and has changed there since.
    """
    said = {fact.content.casefold() for fact in current.facts}
    facts, counts = {fact.id: fact for fact in current.facts}, Counter[str]()
    for fact in found.facts:
        held, before = current.fact(fact.id), taken.get(fact.id)
        if fact.content.casefold() in said:
            counts["known"] += 1
        elif before is None:
            id = fact.id if fact.id not in facts else f"{fact.id}-imported"
            facts[id] = replace(fact, id=id)
            counts["added"] += 1
            said.add(fact.content.casefold())
        elif held is not None and _digest(held.content) == before:
            facts[fact.id] = fact
            counts["changed"] += 1
        else:
            counts["left_out"] += 1
    document = replace(current, facts=tuple(facts.values()), extra={**found.extra, **current.extra})
    for name, there in found.summaries().items():
        here = current.slot(name)
        if there.text != here.text and (not here.text or _digest(here.text) == taken.get(name)):
            document = document.with_summary(name, there)
            counts["summaries"] += 1
    document = replace(document, user_extra={**found.user_extra, **document.user_extra})
    return Effect(replace(document, history_extra={**found.history_extra, **document.history_extra}), **counts)


def _store(config: Config, home: Path, user: str | None) -> MemoryStore:
    """Where a scope is kept: as the configuration says, below `home`. A further user's memory is in files, also beside a database."""
    if user is None and not keeps_files(config):
        return open_storage(config)
    return FileMemoryStorage(_layout(config, home))


def _layout(config: Config, home: Path) -> Layout:
    """The layout that the configuration has with `home` as base directory; never a file beside it, which is the installation's own."""
    path = config.memory.storage_path
    if home != config.base and Path(path).expanduser().is_absolute():
        path = MEMORY_FILE
    return Layout.below(home, path, inherit=config.memory.inherit)


# The note of what was taken over


def _note(base: Path) -> Path:
    return base / "imports" / "deerflow.json"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _sources(base: Path) -> dict[str, Any]:
    """What the note says of each installation. The first form had one installation, and not what was taken over."""
    note = _note(base)
    record = read_json(note) if note.exists() else {}
    sources = record.get("sources") if isinstance(record, dict) else None
    return dict(sources) if isinstance(sources, dict) else {}


def _taken(base: Path, source: Path) -> dict[str, dict[str, str]]:
    scopes = _sources(base).get(str(source.resolve()), {}).get("scopes")
    return {str(name): dict(scope) for name, scope in scopes.items()} if isinstance(scopes, dict) else {}


def _taken_elsewhere(base: Path, document: Document, scope: str) -> dict[str, str]:
    """What of a document was taken over from another folder in the very same words: an installation that was moved since is the same."""
    wanted = {(fact.id, _digest(fact.content)) for fact in document.facts}
    scopes = (_taken(base, Path(source)).get(scope, {}) for source in _sources(base))
    return {id: digest for known in scopes for id, digest in known.items() if (id, digest) in wanted}


def _write_note(plan: Plan, done: tuple[MemoryStep, ...], clock: Clock) -> None:
    scopes: dict[str, dict[str, str]] = {name: dict(scope) for name, scope in _taken(plan.config.base, plan.source).items()}
    for step in done:
        facts = {fact.id: _digest(fact.content) for fact in step.found.facts}
        slots = {name: _digest(summary.text) for name, summary in step.found.summaries().items()}
        asked = {_held_key(one): _digest(one.fact.content) for one in step.held}
        scopes[step.scope] = {**scopes.get(step.scope, {}), **facts, **slots, **asked}
    entry = {"when": stamp(clock.now()), "files": [str(step.target) for step in plan.files], "scopes": scopes}
    sources = {**_sources(plan.config.base), str(plan.source.resolve()): entry}
    replace_json(_note(plan.config.base), {"schema": 2, "sources": sources})


# Memory


@dataclass(frozen=True)
class _Scope:
    """Where something was found: whose it is, the folder of the scope, and the JSON file, which may have another name."""

    user: str | None
    agent: str | None
    folder: Path
    file: Path

    @property
    def holds_memory(self) -> bool:
        """Whether there is more in the folder than what an agent is."""
        return self.file.is_file() or (self.folder / "facts").is_dir()


@dataclass(frozen=True)
class _Joined:
    """What the places of one scope say together, with the newest summaries; the others, oldest first; and what is no fact."""

    newest: Document
    older: tuple[Document, ...] = ()
    wordless: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _newest(joined: _Joined | None) -> Document:
    return joined.newest if joined is not None else Document()


def _memory(source: Path, config: Config, theirs: Path | None, taken: dict[str, dict[str, str]], found: _Findings) -> None:
    roots = _roots(source, theirs)
    scopes = list({scope.file.resolve(): scope for root in roots for scope in _scopes(root, theirs, found)}.values())
    users = sorted({scope.user for scope in scopes if scope.user})
    only = users[0] if len(users) == 1 and all(scope.user or scope.agent for scope in scopes) else None
    grouped: dict[tuple[str | None, str | None], list[_Scope]] = {}
    for scope in scopes:
        user = None if scope.user in (None, _DEFAULT_USER, only) else scope.user
        if scope.agent is not None:
            _agent_files(scope, _home(config, user) / "agents" / scope.agent, found)
        if scope.holds_memory:
            grouped.setdefault((user, scope.agent), []).append(scope)
    for words in (folder / name for root in roots for folder in (root, *sorted(root.glob("users/*"))) for name in ("USER.md", "SOUL.md")):
        if words.is_file():
            found.notes.append(f"{words} is not read here: put what is to hold into memory, or into agents/NAME/{words.name}.")
    read = {key: _joined(group, found) for key, group in grouped.items()}
    for (user, agent), document in read.items():
        if document is None:
            continue
        group = grouped[user, agent]
        if agent is not None and not any(scope.file.is_file() for scope in group):  # facts alone: the summaries are the user's
            document = replace(document, newest=replace(document.newest, slots=dict(_newest(read.get((user, None))).slots)))
        _add_step(user, agent, group, document, config, taken, found)


def _add_step(
    user: str | None,
    agent: str | None,
    group: list[_Scope],
    joined: _Joined,
    config: Config,
    taken: dict[str, dict[str, str]],
    found: _Findings,
) -> None:
    home = _home(config, user)
    files = tuple(scope.file if scope.file.is_file() else scope.folder for scope in group)
    if agent is None and keeps_files(config) and _layout(config, home).shared.resolve() in {file.resolve() for file in files}:
        file = _layout(config, home).shared
        found.notes.append(f"{file} is where the configuration keeps memory: it is used as it is.")
        more = [path for path in files if path.resolve() != file.resolve()]
        hint = "taking it in would change the installation: take over in another folder, or set `memory.storage_path: memory.json`"
        found.unreadable.extend((path, hint) for path in more)
        return
    with closing(_store(config, home, user)) as store:
        where, current, waiting, now = store.where(agent), store.own(agent) or Document(), store.held(agent), stamp(store.clock.now())
        read, *older = (
            judge_import(document, now=now, new_id=lambda: new_fact_id(store.ids)) for document in (joined.newest, *joined.older)
        )
    step = MemoryStep(
        user,
        agent,
        files,
        read.document,
        home,
        where,
        Effect(current),
        older=tuple(pair for one in older for pair in one.document.summaries().items()),
    )
    known = taken.get(step.scope, {})
    if not found.again:
        known = taken[step.scope] = {**_taken_elsewhere(config.base, read.document, step.scope), **known}
    effect = merged(current, read.document, known)
    asked = [one for one in read.held if known.get(_held_key(one)) != _digest(one.fact.content)]
    held = still_asked(asked, current, effect.document, waiting)
    found.memory.append(replace(step, effect=effect, held=held, refused=(*joined.wordless, *read.left_out)))
    found.notes.extend(joined.notes)


def _home(config: Config, user: str | None) -> Path:
    """The base directory of a user; of the one who is all users, the configuration's."""
    return config.base if user is None else config.base / "users" / user


def _agent_files(scope: _Scope, target: Path, found: _Findings) -> None:
    """An agent's settings and its own words, where they are read here. They choose among what the configuration has; none is replaced."""
    for name in AGENT_FILES:
        source, text = scope.folder / name, ""
        if not source.is_file() or source.is_symlink() or (target / name).resolve() == source.resolve():
            continue
        try:
            text = _content(source)
            idle = check_agent_file(text.encode(), source) if name.endswith(".yaml") else ()
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            found.unreadable.append((source, error.message if isinstance(error, ConfigError) else str(error)))
            continue
        if idle:
            found.notes.append(f"{source}: {', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect here.")
        if not (target / name).exists():
            found.files.append(FileStep("agent", source, target / name, text))
        elif (target / name).read_text("utf-8", "replace") != text:
            found.notes.append(f"{target / name} stays as it is; {source} says something else.")


def _held_key(held: Held) -> str:
    """Under which what was asked about is in the note: whoever has rejected it is not asked again."""
    return f"asked/{held.slot or ''}/{_digest(held.fact.content)}"


def _roots(source: Path, theirs: Path | None) -> list[Path]:
    """The folders that may hold memory: the usual ones, and the one that the installation's configuration names."""
    folders = [source / name for name in _STATE_FOLDERS]
    if theirs is not None:
        folders += [folder / theirs for folder in folders] if not theirs.is_absolute() else [theirs]
        folders += [folder.parent for folder in folders[len(_STATE_FOLDERS) :] if folder.is_file()]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _scopes(root: Path, theirs: Path | None, found: _Findings) -> Iterator[_Scope]:
    """Every scope below a state folder that holds memory."""
    name = theirs.name if theirs is not None and (root / theirs.name).is_file() else MEMORY_FILE
    yield from _agents(root, None, name, found)
    users = root / "users"
    for user in sorted(users.iterdir()) if users.is_dir() else ():
        if re.fullmatch(r"[A-Za-z0-9_-]{1,128}", user.name):
            yield from _agents(user, user.name, MEMORY_FILE, found)
        elif user.is_dir():
            found.unreadable.append((user, "this cannot be the name of a user"))


def _agents(folder: Path, user: str | None, name: str, found: _Findings) -> Iterator[_Scope]:
    if (folder / name).is_file() or (folder / "facts").is_dir():
        yield _Scope(user, None, folder, folder / name)
    agents = folder / "agents"
    for agent in sorted(agents.iterdir()) if agents.is_dir() else ():
        if not ((agent / "facts").is_dir() or any((agent / name).is_file() for name in (MEMORY_FILE, *AGENT_FILES))):
            continue
        if agent.name == _DEFAULT_AGENT:
            yield _Scope(user, None, agent, agent / MEMORY_FILE)
            continue
        try:
            yield _Scope(user, check_name(agent.name), agent, agent / MEMORY_FILE)
        except InputError as error:
            found.unreadable.append((agent, error.message))


def _joined(group: list[_Scope], found: _Findings) -> _Joined | None:
    """What the places of one scope say together; None when nothing of it can be read.

    Of two summaries of one name the newer one counts. Where the times say nothing, what was found later: the folder of a user is newer
    than the file of all.
    """
    wordless: list[str] = []
    read = [document for scope in group if (document := _document(scope, found, wordless)) is not None]
    if not read:
        return None
    whole, older, notes = Document(), list[tuple[str, Document]](), list[str]()
    for document in read:
        for name, there in document.summaries().items():
            here = whole.slot(name)
            if here.text and here.text != there.text:
                first, second = sorted((here, there), key=lambda summary: summary.updated)
                older.append((first.updated, Document().with_summary(name, first)))
                notes.append(
                    f"Of two summaries {name} the newer one counts ({second.updated or 'without a time'}); the other is in the history."
                )
                there = second
            whole = whole.with_summary(name, there)
        whole = whole.joined(document)
    return _Joined(whole, tuple(one for _, one in sorted(older, key=lambda pair: pair[0])), tuple(wordless), tuple(notes))


def _document(scope: _Scope, found: _Findings, wordless: list[str]) -> Document | None:
    value: Any = {}
    try:
        if scope.file.is_file():
            value = read_json(scope.file)
        if not isinstance(value, dict):
            raise Damaged("it is not a memory document: the outermost value is not an object", path=str(scope.file))
        facts = value.get("facts") if isinstance(value.get("facts"), list) else ()
        strange = wordless_facts(value)
        wordless += [f"fact {place + 1} of {scope.file} {why}" for place, why in strange.items()]
        facts = [fact for place, fact in enumerate(facts or ()) if place not in strange]
        known = [{**fact, "source": source_of(fact.get("source"))} if isinstance(fact, dict) else fact for fact in facts]
        files = sorted((scope.folder / "facts").rglob("*.md"))
        markdown = [fact for path in files if (fact := _fact(path, found)) is not None]
        return parse({**value, "facts": [*known, *markdown]}, path=str(scope.file))
    except HoldfastError as error:
        found.unreadable.append((scope.file, error.message))
        return None


def _content(path: Path) -> str:
    with open_outside(path) as file:
        return file.read().decode("utf-8-sig")


def _fact(path: Path, found: _Findings) -> dict[str, Any] | None:
    """One fact from a Markdown file: YAML front matter, a heading, and the text."""
    try:
        text = _content(path).replace("\r\n", "\n")
        match = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
        head = read_yaml(match.group(1), path).values if match else None
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        found.unreadable.append((path, str(error)))
        return None
    if match is None or not isinstance(head, dict):
        found.unreadable.append((path, "it has no front matter"))
        return None
    if head.get("status", "active") != "active":
        return None
    body = re.sub(r"\A\s*#[^\n]*\n", "", match.group(2)).strip() or match.group(2).strip().lstrip("# ")
    fact = {key: _plain(value) for key, value in head.items() if key not in _NOT_OF_A_FACT and value not in (None, [])}
    category = head.get("categoryExtension") or head.get("category")
    return {**fact, **({"category": str(category)} if category else {}), "content": body, "source": source_of(head.get("source"))}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else json.loads(json.dumps(value, default=str))


# Configuration


def _config_file(source: Path) -> Path | None:
    places = [source / FILE_NAME]
    if source.name == ".deer-flow":  # the state folder was given: the configuration is beside it, or one above the backend
        places += [source.parent / FILE_NAME, source.parent.parent / FILE_NAME]
    return next((path for path in places if path.is_file()), None)


def _check_trusted(file: Path | None, ours: Config) -> None:
    """NotTrusted if the installation's own configuration is in use and does not count whole: to trust it later would move the memory."""
    if file is not None and ours.file is not None and file.resolve() == ours.file.resolve() and not ours.trust.whole:
        message = f"the file {ours.trust.reason}. Trusted, it keeps memory in another place than now, so trust it first."
        raise NotTrusted(message, file=file, hint=ours.trust.hint)


def _configuration(file: Path | None, ours: Config, target: Path, found: _Findings) -> tuple[Config, Path | None]:
    """The configuration that holds afterwards, and where the installation's own says that memory is."""
    if file is None:
        return ours, None
    if ours.file is not None and file.resolve() == ours.file.resolve():
        found.notes.append(f"{file} works here unchanged.")
        return ours, _storage_path(ours, file, found)
    try:
        text = upgrade_text(read_source(file), file).text
        config = read_config(text, file=target)
    except (ConfigError, OSError) as error:
        found.unreadable.append((file, str(error)))
        return ours, None
    theirs = _storage_path(config, file, found)
    if ours.file is not None:
        before = any(str(ours.file) in entry.get("files", ()) for entry in _sources(ours.base).values())
        said = "was taken over before" if before else f"is in use, and {file} is not taken over"
        found.notes.append(f"{ours.file} {said}; it stays as it is.")
        return ours, theirs
    place = read_yaml(text, file).places.get(("memory", "storage_path"))
    if theirs is not None and theirs.is_absolute() and place is not None:
        text = f"{text[: place.start]}{MEMORY_FILE}{text[place.end :]}"
        config = read_config(text, file=target)
        found.notes.append(f"memory.storage_path was {theirs}, a place of the installation; here it is {MEMORY_FILE}.")
    found.files.append(FileStep("config", file, target, text))
    return config, theirs


def _storage_path(config: Config, file: Path, found: _Findings) -> Path | None:
    """The memory that a configuration of the installation names. The newest form has it as a folder in a section of its own."""
    try:
        backend = config.raw.get("memory") or {}
        backend = backend.get("backend_config") if isinstance(backend, dict) else None
        folder = backend.get("storage_path") if isinstance(backend, dict) else None
        return Path(folder if isinstance(folder, str) and folder and "$" not in folder else config.memory.storage_path).expanduser()
    except ConfigError as error:  # a variable that is not set here
        found.unreadable.append((file, str(error)))
        return None


def _companions(file: Path | None, config: Config, found: _Findings) -> None:
    """What lies beside the installation's configuration: MCP servers come along, skills are named."""
    if file is None or config.file is None or config.file.parent.resolve() == file.parent.resolve():
        return
    servers, target = file.with_name(_EXTENSIONS), config.file.with_name(_EXTENSIONS)
    if servers.is_file() and not target.exists():
        found.files.append(FileStep("extensions", servers, target, _content(servers)))
    skills = file.with_name("skills")
    if skills.is_dir() and config.skills.path is None and not config.file.with_name("skills").exists():
        found.notes.append(f"Skills stay where they are: set `skills.path: {skills.resolve()}` to use them.")
