"""Whether a configuration that was merely found may ask for more than plain settings (C1).

One that is named (`--config`, `HOLDFAST_CONFIG`, a path given to `build`) counts whole. One that lies in the working directory or above it
counts whole once its user has agreed with `holdfast config trust`, as direnv does it: the agreement is kept for the path and the content,
and that of the skills and MCP servers beside it, in the user's own configuration directory, and is void for a file of another owner or one
that others may change. Without an agreement only plain settings count (`PLAIN`), and nothing that lies beside the file: neither
state nor skills nor MCP servers.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.config.memory_sections import Memory
from holdfast.config.migration import TARGETS
from holdfast.config.reading import KeyPath, references
from holdfast.config.section import Nested, Section, nested
from holdfast.config.tool_sections import SEARCH_KEYS
from holdfast.durable.disk import REAL
from holdfast.durable.replace import replace
from holdfast.errors import NotTrusted
from holdfast.validation import some

State = Literal["named", "trusted", "changed", "unknown", "foreign", "none"]
_SCHEMA = 1
_MOST_BYTES = 10_000
AGREE = "`holdfast config trust` agrees at once and shows to what (--revoke takes it back); --config FILE uses it this once."
NAME_IT = "Nobody but its owner should decide what runs: --config FILE uses it this once all the same."


@dataclass(frozen=True)
class Withheld:
    """Something that a file asks for and that does not count: a setting, or what lies beside the file (a name that ends with a slash)."""

    key: str
    line: int | None = None


@dataclass(frozen=True)
class Trust:
    """How far a configuration counts, why in words, and what of it does not."""

    state: State
    reason: str
    agreed: bool = False
    """Whether there is an agreement for the path, with whatever content."""
    withheld: tuple[Withheld, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all settings count."""
        return self.state in ("named", "trusted", "none")

    @property
    def beside(self) -> bool:
        """Whether what lies beside the file counts: skills, MCP servers."""
        return self.state in ("named", "trusted")

    @property
    def holds_state(self) -> bool:
        """Whether state is kept beside the file: also after an edit, else what is remembered would come and go with every change of it."""
        return self.state == "named" or self.agreed

    @property
    def hint(self) -> str:
        return NAME_IT if self.state == "foreign" else AGREE

    def told(self, file: Path | None) -> str | None:
        """One line for a person about what does not count, or None when everything does."""
        if not self.withheld:
            return None
        keys = list(dict.fromkeys(one.key for one in self.withheld))
        return f"{file or 'the working directory'} {self.reason}, so this is left out: {some(keys, 6)}. {self.hint}"

    def check(self, file: Path | None, *keys: str) -> None:
        """Raise NotTrusted when something at or below these keys is asked for and does not count."""
        for one in self.withheld:
            if any(one.key == key or one.key.startswith((f"{key}.", f"{key}[")) for key in keys):
                message = f"does not count, and this command needs it, so it ends here: the file {self.reason}."
                raise NotTrusted(message, file=file, line=one.line, key=one.key, hint=self.hint)


NAMED = Trust("named", "was named")
NOT_THERE = Trust("none", "has no configuration that is trusted")


@dataclass(frozen=True)
class Agreement:
    """What a user agreed to: the configuration at this path with this content, and when."""

    path: Path
    digest: str
    time: str


def fingerprint(source: bytes | None, servers: Path | None, skills: Path | None = None) -> str:
    """One number for all that is agreed to together: config.yaml, the file with MCP servers and the skills, where there are any."""
    parts = [hashlib.sha256(source).digest() if source is not None else b"-", _digest(servers) if servers is not None else b"-"]
    if skills is not None and skills.is_dir():
        parts += [os.fsencode(path.relative_to(skills)) + b"\0" + _digest(path) for path in _files(skills)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, in one order; what links lead to counts as what they are."""
    for here, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(here, name) for name in sorted([*names, *(one for one in folders if Path(here, one).is_symlink())]))


def _digest(path: Path) -> bytes:
    """What an ordinary file holds, as a number; `-` for anything else, which nobody reads then."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe must not keep us waiting
        with open(handle, "rb") as file:  # noqa: PTH123 - of a descriptor
            return hashlib.file_digest(file, "sha256").digest() if stat.S_ISREG(os.fstat(handle).st_mode) else b"-"
    except (OSError, ValueError):
        return b"-"


def judge(file: Path, source: bytes | None, servers: Path | None, skills: Path | None, environ: Mapping[str, str] | None = None) -> Trust:
    """How far a configuration counts that was found at this path with this content, this file of MCP servers and these skills."""
    why = stranger(file) or (stranger(servers) if servers is not None and servers.exists() else None)
    if why is not None:
        return Trust("foreign", why)
    known = agreement(file, environ)
    if known is None:
        return Trust("unknown", "was found and is not trusted")
    if known.digest != fingerprint(source, servers, skills):
        return Trust("changed", "has changed since it was trusted, or what belongs to it has", agreed=True)
    return Trust("trusted", f"is trusted since {known.time[:10]}", agreed=True)


def is_agreed(file: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Whether state is kept beside a file that was found, whatever is in it now."""
    return stranger(file) is None and agreement(file, environ) is not None


def stranger(file: Path) -> str | None:
    """Why a file cannot be trusted, whatever is in it: somebody else owns it or its folder, or may change it. None where it can."""
    if not hasattr(os, "geteuid"):  # another system: the content alone decides
        return None
    me = os.geteuid()
    for path, follow, what, owners in (
        (file, False, "", {me}),
        (file, True, "", {me}),
        (file.parent, True, "its folder ", {me, 0}),
    ):
        try:
            facts = path.stat() if follow else path.lstat()
        except OSError:
            continue  # what is not there cannot be another's
        if facts.st_uid not in owners:
            return f"{'is in a folder of' if what else 'belongs to'} another user ({facts.st_uid})"
        by_group = facts.st_mode & stat.S_IWGRP and not _own_group(facts.st_gid)
        if not stat.S_ISLNK(facts.st_mode) and (facts.st_mode & stat.S_IWOTH or by_group):
            return f"is in a folder that others may write to ({path})" if what else "may be changed by others"
    return None


def _own_group(group: int) -> bool:
    """Whether the group is the one that many systems make for each user alone, so that its right to write gives nothing away."""
    import grp
    import pwd

    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        entry = grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == name and set(entry.gr_mem) <= {name}


def agreements_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """Where agreements are kept: `holdfast/trusted` in `XDG_CONFIG_HOME`, else in `~/.config`. None without a home."""
    environ = os.environ if environ is None else environ
    said = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not said.is_absolute():
        try:
            home = Path(environ.get("HOME") or Path.home())
        except RuntimeError:  # a user without an entry in the list of users, in a container
            return None
        if not home.is_absolute():
            return None
        said = home / ".config"
    return said / "holdfast" / "trusted"


def _place(file: Path) -> Path:
    """The one spelling of a path: links in the folders are followed, the file's own name stays."""
    return Path(os.path.realpath(file.absolute().parent)) / file.name


def _record(file: Path, folder: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(_place(file))).hexdigest()[:40]}.json"


def agreement(file: Path, environ: Mapping[str, str] | None = None) -> Agreement | None:
    """What was agreed to at this path, or None."""
    folder = agreements_folder(environ)
    found = _read(_record(file, folder)) if folder is not None else None
    return found if found is not None and found.path == _place(file) else None


def _read(record: Path) -> Agreement | None:
    """The agreement in a file. One that somebody else could have written is none."""
    if stranger(record) is not None:
        return None
    try:
        with record.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
        if found["schema"] != _SCHEMA:
            return None
        return Agreement(Path(found["path"]), str(found["sha256"]), str(found["time"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def agreements(environ: Mapping[str, str] | None = None) -> Iterator[Agreement]:
    """All agreements of this user, by path."""
    folder = agreements_folder(environ)
    found = [_read(record) for record in folder.glob("*.json")] if folder is not None and folder.is_dir() else []
    yield from sorted((one for one in found if one is not None), key=lambda one: one.path)


def agree(
    file: Path,
    source: bytes | None,
    servers: Path | None,
    skills: Path | None = None,
    *,
    time: str,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Keep, durably and for this user alone, that the configuration at this path counts as it stands. Raises NotTrusted where it cannot."""
    folder = agreements_folder(environ)
    if folder is None:
        raise NotTrusted("there is no home directory to keep an agreement in.", file=file, hint="Set HOME or XDG_CONFIG_HOME.")
    for one in (file, servers):
        if one is not None and (one is file or one.exists()) and (why := stranger(one)) is not None:
            raise NotTrusted(f"cannot be trusted: it {why}.", file=one, hint=NAME_IT)
    record = {"schema": _SCHEMA, "path": str(_place(file)), "sha256": fingerprint(source, servers, skills), "time": time}
    replace(_record(file, folder), json.dumps(record, indent=1).encode(), mode=0o600)


def revoke(file: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Take an agreement back. Whether there was one."""
    folder = agreements_folder(environ)
    if folder is None or not (record := _record(file, folder)).exists():
        return False
    REAL.unlink(str(record))
    REAL.sync_folder(str(folder))
    return True


_OUR_TOOLS = frozenset(
    {path for path in TARGETS.values() if path.startswith("holdfast.agents.tools:")}
    | {f"holdfast.agents.tools:{name}" for name in ("web_fetch", "web_search", *(f"{engine}_web_search" for engine in SEARCH_KEYS))}
)
_MAX_FACTS: int = Memory.model_fields["max_facts"].default

Passes = Callable[[Any], bool]


def _any(value: Any) -> bool:
    return True


def _one_of(*words: str) -> Passes:
    return lambda value: value in words


def _keys(section: str, names: str) -> dict[str, Passes]:
    return {f"{section}.{name}": _any for name in names.split()}


PLAIN: Mapping[str, Passes] = {
    "config_version": _any,
    "holdfast_version": _any,
    **_keys("summarization", "enabled trigger keep trim_tokens_to_summarize summary_role"),
    **_keys("summarization.recall", "enabled share floor knowledge"),
    "summarization.token_counter": _one_of("exact", "approximate"),
    **_keys("memory", "enabled injection_enabled injection debounce_seconds max_injection_tokens inherit extractor"),
    "memory.max_facts": lambda value: value >= _MAX_FACTS,  # fewer would make room by forgetting
    "memory.token_counter": _one_of("exact", "approximate"),
    **_keys("memory.working_memory", "max_tokens eviction_policy"),
    **_keys("memory.long_term_memory", "retrieval_top_k rerank"),
    **_keys("subagents", "timeout_seconds max_turns max_concurrent max_tokens"),
    **_keys("subagents.agents.*", "thinking timeout_seconds max_turns max_tokens"),
    **_keys("sandbox", "approve timeout_seconds bash_output_max_chars read_file_output_max_chars ls_output_max_chars"),
    **_keys("session", "checkpoint_interval"),
    **_keys("session.short", "max_stages max_seconds"),
    **_keys("session.long", "after_stages after_seconds"),
    **_keys("session.limits", "tokens cost"),
    **_keys("knowledge", "rerank top_k"),
    "knowledge.adapter": _one_of("sqlite", "markdown"),
    "knowledge.embedder.use": _one_of("auto", "minilm", "none"),
    "mcp.extensions": _one_of(""),  # no file at all
    **_keys("server", "port max_upload_bytes shutdown_seconds request_seconds gateway_memory"),
    **_keys("logging", "level format"),
    **_keys("title", "enabled max_words max_chars"),
    "tools.*.name": _any,
    "tools.*.group": _any,
    "tools.*.use": lambda value: value in _OUR_TOOLS,
    "tool_groups.*.name": _any,
    **_keys("limits", "tokens cost"),
    **_keys("limits.run", "tokens cost"),
    **_keys("limits.session", "tokens cost"),
}
"""Which settings count in a file that was merely found and that nobody has agreed to.

It is a list of what may pass, so that a setting which is added later waits for trust until somebody puts it here. Plain is what can neither
run nor reach, read, pay for, hand over or remove anything: sizes, times, switches between our own ways of working. A value that is the
default asks for nothing. Everything that names something (a class, a command, a path, an address, a model, a variable of the environment,
words for a model to obey) is not plain, nor is a number that makes what is kept about the user smaller.
"""
"""Every plain setting, `*` for any name or number in its path, and which values of it are."""


def plain_part(section: Section, values: Mapping[str, Any], path: KeyPath = ()) -> tuple[dict[str, Any], list[KeyPath]]:
    """The plain settings of a file, and the paths of the others. `section` is what was read from `values`.

    A list counts whole or not at all, and so does each entry of a mapping by names.
    """
    kept: dict[str, Any] = {}
    withheld: list[KeyPath] = []
    for name, value in values.items():
        here = (*path, name)
        if name not in type(section).model_fields:
            if section.strange == "passed on":
                withheld.append(here)
            continue  # of no effect anyway
        inner, read = nested(type(section), name), section.written(name)
        if read is None or inner is None:
            passes = read == type(section).model_fields[name].get_default(call_default_factory=True) or _is_plain(here, read)
            part, others = (value, []) if passes else (None, [here])
        else:
            part, others = _nested(inner, read, value, here)
        withheld += others
        if part or not others:
            kept[name] = part
    return kept, withheld


def _nested(inner: Nested, read: Any, value: Any, here: KeyPath) -> tuple[Any, list[KeyPath]]:
    if inner.kind == "one":
        return plain_part(read, value, here) if isinstance(value, Mapping) else (value, [])
    if inner.kind == "mapping":
        entries = {key: plain_part(item, value[key], (*here, key)) for key, item in read.items()}
        return {key: part for key, (part, others) in entries.items() if not others}, [(*here, k) for k, (_, o) in entries.items() if o]
    items = [plain_part(item, value[index], (*here, index)) for index, item in enumerate(read)]
    return ([], [here]) if any(others for _, others in items) else (value, [])


def _is_plain(path: KeyPath, read: Any) -> bool:
    """Whether this value may pass. One from the environment never is: it is not known yet what it says, and asking is telling."""
    for pattern, passes in PLAIN.items():
        parts = pattern.split(".")
        if len(parts) == len(path) and all(part in ("*", where) for part, where in zip(parts, path, strict=True)):
            return not any(references(read)) and passes(read)
    return False
