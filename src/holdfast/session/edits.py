"""Hand edits: what a person put into a session's file, or into a stage, found and checked (W4).

`compare` tells what a file is that is not what was last written there: an older rendering, a torn one, or a person's edit. `fixed` and
`check_outputs` check what goes into a session by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal

from holdfast.durable import strict_json
from holdfast.errors import Damaged, NotThere, OutputInvalid, RevisionConflict
from holdfast.session.document import decode_session, parse_session, render_session, session_json
from holdfast.session.output import StageOutput, addressed, output_json, parse_output
from holdfast.session.state import ASKS, RECORD_FIELDS, SESSION_FIELDS, Session, StageRecord, near
from holdfast.validation import json_line, near_miss

_RECENT = 50  # renderings that a power cut may have left half of
_NULS = re.compile(rb"\0+")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Edit:
    """A session as a person changed it in its file, with the revision that it has in the log. `session.mark` names these very bytes."""

    session: Session


def compare(data: bytes, current: Session, history: Callable[[], Iterable[Document]], path: str) -> Literal["same", "outdated"] | Edit:
    """What the bytes of a session's file are, beside the state in the log. `history` gives all states of the log, newest first.

    `same`: this state, whatever the spacing. `outdated`: an older rendering, or one that a power cut emptied or tore: to be written again.
    Damaged, with line and place, if it is an edit that cannot be read; OutputInvalid if an output in it does not fit its stage's schema;
    RevisionConflict if somebody edited an older state than the one in the log.
    """
    if not data.strip(b"\0 \t\r\n"):
        return "outdated"
    try:
        found = decode_session(data, path)
    except Damaged as error:
        if any(is_torn(data, one) for one in _renderings(current, history)):
            return "outdated"
        error.hint = f"{error.hint or ''} To drop the edit, move the file away: it is written again from the log.".strip()
        raise
    if found.workflow_id != current.workflow_id:
        raise Damaged(
            f"{path} holds the session {found.workflow_id!r}.",
            path=path,
            hint=f"Give the file its name back, or set workflow_id to {current.workflow_id!r} in it.",
        )
    if _meaning(found) == _meaning(current):
        return "same"
    if any(one.get("revision") == found.revision and _meaning(parse_session(one)) == _meaning(found) for one in history()):
        return "outdated"
    if found.revision < current.revision:
        raise RevisionConflict(
            f"{path} was edited at revision {found.revision}, and the session is at {current.revision} by now. To take the file as it is,"
            f" set its revision to {current.revision}; to drop the edit, remove the file: it is written again.",
            path=path,
            expected=current.revision,
            found=found.revision,
        )
    check_spelling(data, current, path)
    _check_edited_outputs(found, data)
    mark = blake2b(data, digest_size=16).hexdigest()
    found = edited(found, current, at=current.updated_at)
    return Edit(replace(found, revision=current.revision, updated_at=current.updated_at, mark=mark))


EDITED = "edited_at"
"""In the record of a stage: when a person changed its output by hand, or the last change before that."""


def edited(session: Session, before: Session, *, at: str) -> Session:
    """The session with a note at each stage whose output a person changed: what read it before may no longer fit."""
    both = before.stage_outputs.keys() & session.stage_outputs.keys()
    changed = [name for name in both if _said(before.stage_outputs[name]) != _said(session.stage_outputs[name])]
    records = {name: session.stages.get(name, StageRecord()) for name in changed}
    noted = {name: replace(record, extra={**record.extra, EDITED: at}) for name, record in records.items()}
    return replace(session, stages={**session.stages, **noted}) if noted else session


def _said(output: StageOutput) -> tuple[Any, ...]:
    """What a later stage reads of an output: not what somebody keeps beside it."""
    findings = [(one.fact, one.source) for one in output.key_findings]
    return output.summary, findings, output.confidence, output.next_stage_recommendations, output.data


def check_spelling(data: bytes, current: Session, path: str) -> None:
    """Damaged if a person wrote a key that is nearly one of ours: it would count no more. Every other key is theirs and is kept."""
    written, edited = session_json(current), strict_json.decode(data, path=path)
    places: list[tuple[list[str | int], Mapping[str, Any], Mapping[str, Any], tuple[str, ...]]] = [([], written, edited, SESSION_FIELDS)]
    before, after = written.get("stages") or {}, edited.get("stages") or {}
    records = [(name, record) for name, record in after.items() if isinstance(record, Mapping)]
    places += [(["stages", name], before.get(name) or {}, record, RECORD_FIELDS) for name, record in records]
    for place, known, given, fields in places:
        for key in sorted(given.keys() - known.keys() - set(fields)):
            if (meant := near_miss(key, {*known, *fields})) is not None:
                line = json_line(data.decode("utf-8-sig"), [*place, key])
                where = ".".join(map(str, [*place, key]))
                gone = f", and {meant} is gone" if meant in known and meant not in given else ""
                raise Damaged(
                    f"{path}, line {line}: {where} is not known{gone}.",
                    path=path,
                    hint=f"Did you mean `{meant}`? Nothing was changed.",
                )


def is_torn(data: bytes, whole: bytes) -> bool:
    """Whether these bytes are the beginning of a rendering, or one with holes: what a power cut leaves of a file that was not synced."""
    at = 0
    for piece in re.split(rb"(\0+)", data):
        if not _NULS.match(piece) and not whole.startswith(piece, at):
            return False
        at += len(piece)
    return True


def _renderings(current: Session, history: Callable[[], Iterable[Document]]) -> Iterator[bytes]:
    yield render_session(current)
    for document in islice(history(), _RECENT):
        yield render_session(parse_session(document))


def _meaning(session: Session) -> bytes:
    return strict_json.encode(session_json(session), readable=False)


def _check_edited_outputs(session: Session, data: bytes) -> None:
    text = data.decode("utf-8-sig")
    for stage in session.stage_outputs:
        problems = output_problems(session, stage, schema_of(session, stage))
        if problems:
            line = json_line(text, ["stage_outputs", stage])
            raise output_invalid(session, stage, [f"{problem} (line {line})" for problem in problems])


def check_completed(session: Session, data: bytes | None = None) -> None:
    """OutputInvalid if a stage is listed as completed that has no output, with the line in `data`, the file that was edited."""
    missing = [name for name in session.completed_stages if name not in session.stage_outputs]
    if not missing:
        return
    line = json_line(data.decode("utf-8-sig"), ["completed_stages"]) if data is not None else None
    strangers = [repr(name) for name in session.strange_stages()]
    raise OutputInvalid(
        f"completed_stages names {', '.join(map(repr, missing))}, but stage_outputs has no output of it{f' (line {line})' if line else ''}."
        + (f" {', '.join(strangers)}: no stage of the workflow." if strangers else ""),
        problems=tuple(f"stage_outputs.{name}: is missing" for name in missing),
        session=session.workflow_id,
        stage=missing[0],
        hint="Put its output in, or take it out of completed_stages to run it again. Nothing was changed.",
    )


def output_problems(session: Session, stage: str, schema: Mapping[str, Any] | None) -> list[str]:
    """What does not fit in the output of a stage, each with its place in it."""
    try:
        parse_output(output_json(session.stage_outputs[stage]), stage=stage, schema=schema)
    except OutputInvalid as error:
        return list(error.problems)
    return []


def output_invalid(session: Session, stage: str, problems: list[str]) -> OutputInvalid:
    """That an output in a session's file does not fit."""
    return OutputInvalid(
        f"stage_outputs.{stage} in the file of session {session.workflow_id} does not fit: {'; '.join(problems)}.",
        problems=problems,
        raw=output_json(session.stage_outputs[stage]),
        session=session.workflow_id,
        stage=stage,
        hint="Mend it in the file, then resume. Nothing was changed.",
    )


def check_outputs(session: Session) -> list[str]:
    """What does not fit the stages' own schemas, and stages that are listed as completed without an output, each with its place."""
    missing = [f"completed_stages: {name!r} has no output" for name in session.completed_stages if name not in session.stage_outputs]
    return missing + [
        f"stage_outputs.{stage}.{problem}"
        for stage in session.stage_outputs
        for problem in output_problems(session, stage, schema_of(session, stage))
    ]


def schema_of(session: Session, stage: str) -> Mapping[str, Any] | None:
    """The stage's own `output_schema`, from the definition that the session keeps."""
    stages = session.workflow.get("stages")
    defined = [one for one in stages if isinstance(one, Mapping)] if isinstance(stages, (list, tuple)) else []
    record = session.stages.get(stage)
    added = record.extra.get("definition") if record is not None else None
    for one in [*defined, *([{"name": stage, **added}] if isinstance(added, Mapping) else [])]:
        if one.get("name") == stage and isinstance(one.get("output_schema"), Mapping):
            found: Mapping[str, Any] = one["output_schema"]
            return found
    return None


def fixed(session: Session, stage: str, value: object, *, at: str) -> Session:
    """The session with this output for the stage, completed, ready to go on. Where its output waits for a person it still does.

    InputError if there is no such stage, OutputInvalid with every problem if the output does not fit.
    """
    names = session.stage_names()
    if stage not in names:
        raise NotThere(f"the session {session.workflow_id!r} has no stage {stage!r}.", hint=near(stage, names))
    output = parse_output(addressed(value, stage), stage=stage, schema=schema_of(session, stage))
    record = session.stages.get(stage, StageRecord())
    order = {name: number for number, name in enumerate(names)}
    waits = record.status == "waiting" and ASKS not in record.extra
    completed = {*session.completed_stages} if waits else {*session.completed_stages, stage}
    extra = {**record.extra, "fixed_at": at}
    done = replace(record, status="waiting" if waits else "completed", ended_at=at, provisional=output.confidence == "low", extra=extra)
    healed, gone = session.error is None or session.error.stage in (None, stage), session.removed_stages()
    rest = session.status == "paused" and any(one.status == "waiting" for name, one in session.stages.items() if name != stage)
    return replace(
        session,
        status="ready" if healed and not (waits or rest or session.status == "completed") else session.status,
        error=None if healed else session.error,
        next_stage=session.next_stage if waits else next((name for name in names if name not in completed and name not in gone), None),
        completed_stages=tuple(sorted(completed, key=lambda name: order.get(name, len(order)))),
        stage_outputs=_ordered({**session.stage_outputs, stage: output}, order),
        stages={**session.stages, stage: done},
        memory_snapshots=(
            *(shot for shot in session.memory_snapshots if shot.get("stage") != stage),
            {"stage": stage, "summary": output.summary, "at": at},
        ),
    )


def _ordered(outputs: dict[str, StageOutput], order: Mapping[str, int]) -> dict[str, StageOutput]:
    return dict(sorted(outputs.items(), key=lambda item: order.get(item[0], len(order))))
