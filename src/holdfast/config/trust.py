"""Whether a configuration that was merely found may ask for more than plain settings (C1).

One that is named (`--config`, `HOLDFAST_CONFIG`, a path given to `build`) counts whole. One that lies in the working directory or above it
counts whole once its user has agreed with `holdfast config trust`, as direnv does it: the agreement is kept for the path and the content,
and that of the skills and MCP servers beside it, in the user's own configuration directory, and is void for a file of another owner or one
that others may change. Without an agreement only plain settings count (`plain_settings.py`), and nothing that lies beside the file: neither
state nor skills nor MCP servers.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.amounts import some
from holdfast.durable.disk import REAL
from holdfast.durable.replace import replace
from holdfast.errors import NotTrusted

State = Literal["named", "trusted", "changed", "unknown", "foreign", "none"]
_SCHEMA = 1
_MOST_BYTES = 10_000
AGREE = "`holdfast config trust` shows what it asks for and agrees; --config FILE uses it this once."
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
                message = f"does not count: the file {self.reason}."
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
        if not stat.S_ISLNK(facts.st_mode) and _others_may_write(facts):
            return f"is in a folder that others may write to ({path})" if what else "may be changed by others"
    return None


def _others_may_write(facts: os.stat_result) -> bool:
    return bool(facts.st_mode & stat.S_IWOTH) or bool(facts.st_mode & stat.S_IWGRP and not _own_group(facts.st_gid))


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
