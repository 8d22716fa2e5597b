"""A person changes a session: puts in a corrected output (W4), or edits the whole of it in an editor of their own.

What they give is checked before it takes the place of the old one, and never lost: an edit is made on a copy, which stays if it is refused.

`differences` tells what is different between two states of a session, place by place.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.errors import Damaged, HoldfastError, InputError, OutputInvalid, RevisionConflict
from holdfast.session.edits import check_outputs, check_spelling, fixed
from holdfast.session.parser import decode_session
from holdfast.session.renderer import session_json
from holdfast.session.state import Session
from holdfast.session.store import SessionStore, locked_by


def fix_output(
    store: SessionStore, id: str, stage: str, text: str, *, clock: Clock | None = None, done: Callable[[], None] = lambda: None
) -> Session:
    """Put a corrected output, as JSON text, in place of what a stage wrote, and commit. InputError says what is wrong with it.

    `done` is called when it is committed and the session is still held.
    """
    store.load(id)  # says that there is none before anything is made for it
    with store.hold(id, owner="fix"):
        session = store.load(id)
        changed = fixed(session, stage, text, at=stamp((clock or SystemClock()).now()))
        committed = store.commit(changed, expect=session.revision)
        done()
        return committed


def draft_of(session: Session, stage: str) -> str:
    """What a person starts from to correct a stage: what it wrote, as JSON; text that is none becomes the summary of an output."""
    said = session_json(session)
    error = said.get("error") or {}
    raw = error.get("raw_output") if error.get("stage") == stage else None
    raw = said.get("stage_outputs", {}).get(stage) if raw is None else raw
    if isinstance(raw, str):
        with suppress(ValueError):
            raw = json.loads(raw)
    if not isinstance(raw, dict):
        text = "" if raw is None else raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
        raw = {"summary": text, "key_findings": [], "confidence": "low", "recommendations": [], "raw_data_refs": []}
    return json.dumps(raw, ensure_ascii=False, indent=2) + "\n"


def fix_in_editor(store: SessionStore, id: str, stage: str, *, done: Callable[[], None] = lambda: None) -> Session:
    """Put in what the person made of a stage's output in their editor. On any error their text stays in the file that the message names."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-fix-"))
    copy = folder / f"{id}-{stage}.json"
    copy.write_text(draft_of(store.load(id), stage), "utf-8")
    try:
        _run_editor(copy)
        fixed_one = fix_output(store, id, stage, copy.read_text("utf-8"), done=done)
    except HoldfastError as error:
        error.hint = f"{error.hint or ''} Your text is kept in {copy}.".strip()
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return fixed_one


def edit_session(store: SessionStore, id: str) -> Session | None:
    """The session as it was saved in the editor, committed; None if nothing was changed.

    On any error the person's text stays in the file that the message names.
    """
    owner = store.owner(id)
    if owner is not None:
        raise locked_by(id, None, owner)
    session, original = _original(store, id)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-edit-"))
    copy = folder / f"{id}.json"
    copy.write_bytes(original)
    try:
        _run_editor(copy)
        edited = copy.read_bytes()
        done = None if edited == original else _commit(store, id, session, original, edited)
    except HoldfastError as error:
        error.hint = f"{error.hint or ''} Your text is kept in {copy}.".strip()
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return done


def _original(store: SessionStore, id: str) -> tuple[Session | None, bytes]:
    """What is edited. A session that cannot be read is edited as the text that it is."""
    try:
        session = store.load(id)
    except (Damaged, OutputInvalid, RevisionConflict):
        return None, store.document(id)
    return session, store.document(id)


def _commit(store: SessionStore, id: str, session: Session | None, original: bytes, edited: bytes) -> Session:
    wanted = decode_session(edited, "what you saved")
    if session is not None:
        check_spelling(edited, session, "what you saved")
    problems = check_outputs(wanted)
    if wanted.workflow_id != id:
        problems.append(f"workflow_id: must stay {id!r}; `holdfast session fork` makes a session of another id")
    if problems:
        raise InputError(f"what you saved does not fit: {'; '.join(problems[:8])}.")
    with store.hold(id, owner="edit"):
        if session is not None:
            return store.commit(replace(wanted, mark=session.mark), expect=session.revision)
        return store.put_document(wanted, instead_of=original)


def _run_editor(path: Path) -> None:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    command = shlex.split(named) if named else [found for found in (shutil.which("nano"), shutil.which("vi")) if found][:1]
    if not command:
        raise InputError("there is no editor.", hint="Set EDITOR, for example `export EDITOR=nano`.")
    try:
        ended = subprocess.run([*command, str(path)], check=False)  # noqa: S603 - the editor that the person chose
    except OSError as error:
        raise InputError(
            f"the editor {command[0]!r} could not be started: {error.strerror}.", hint="Set EDITOR to one that can."
        ) from error
    if ended.returncode != 0:
        raise InputError(f"the editor ended with code {ended.returncode}, so nothing was changed.")


_COUNTED = ("revision", "updated_at", "schema_version")  # always different, and nobody's question


@dataclass(frozen=True, slots=True)
class Difference:
    """One place: `stage_outputs.plan.summary`, what stood there before and what stands there after."""

    place: str
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


def differences(before: Session, after: Session) -> list[Difference]:
    """Every difference in the order of the file; a member that is wholly new or gone is one difference."""
    old, new = ({name: member for name, member in session_json(one).items() if name not in _COUNTED} for one in (before, after))
    return list(_compared(old, new, ""))


def _compared(old: Any, new: Any, place: str) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from _member(name in old, name in new, old.get(name), new.get(name), f"{place}.{name}" if place else name)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            was, there = index < len(old), index < len(new)
            yield from _member(was, there, old[index] if was else None, new[index] if there else None, f"{place}[{index}]")
    elif old != new:
        yield Difference(place, "changed", old, new)


def _member(was: bool, there: bool, old: Any, new: Any, place: str) -> Iterator[Difference]:
    if was and there:
        yield from _compared(old, new, place)
    else:
        yield Difference(place, "removed" if was else "added", old, new)
