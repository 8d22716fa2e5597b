"""What happens to a session between two runs: what a person does to it from outside, and what `resume` checks before it goes on.

`approve` and `reject` decide about a stage that waits; `fix` puts an output in place of what a stage wrote; `cancel` asks whoever runs the
session, and where nobody does marks it (W4, W14, W19). Whatever is done is told on the bus, and in the session's journal.

Tools of a stage can wait for a person as in a conversation: `sandbox.approve` and `approve` of MCP servers (A10). Nobody may be at the
terminal while a workflow runs, so a stage that wants such a call stops there: it waits, the session is paused, and `holdfast session show`
has the whole call. When it is decided, the stage runs again and makes that very call, or is told that it may not. Question and answer are
in the stage's journal and survive everything. An answer is about one exact call: the same tool with the same arguments in this stage of
this session.

`resume` looks for hand edits of the session and for changes of the workflow (W6); nothing is written by that. `completed_stages` is what
counts. An output that stands in the file without being listed there was put in by a person and is taken as the stage's result; a stage
that a person took out of the list runs again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.errors import ApprovalWanted, ConfigError, InputError, InTheWay, WorkflowChanged
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.redaction import redact_text
from holdfast.session.editor import edit_session, fix_in_editor, fix_output
from holdfast.session.edits import EDITED, check_completed, output_invalid, output_problems
from holdfast.session.output import StageOutput, output_json
from holdfast.session.state import ASKS, Session, SessionError, StageRecord, spare_name
from holdfast.session.store import SessionStore
from holdfast.validation import nearest, some
from holdfast.workflow import events, transitions
from holdfast.workflow.agent import cited_texts, recheck_output
from holdfast.workflow.definition import Stage, Workflow
from holdfast.workflow.events import SessionJournal as Journal
from holdfast.workflow.run_settings import RunSettings
from holdfast.workflow.stage_request import SessionJournal
from holdfast.workflow.transitions import result_stages
from holdfast.workflow.workflow_file import parse_stage, parse_workflow

if TYPE_CHECKING:
    from holdfast.workflow.agent import StageJournal, StageRequest

_STEM = 90  # characters of a name that its forks begin with
_ASKED, _DECIDED, _MADE = "approval_asked", "approval_decided", "approved_call_made"


# Calls of a stage that wait for a person


def needs_approval(tool: str, names: Collection[str]) -> bool:
    """Whether a tool is one of those that wait for a person; a name may be a pattern."""
    return any(fnmatchcase(tool, name) for name in names)


@dataclass(frozen=True)
class AskedCall:
    """A call that a stage wants to make."""

    tool: str
    args: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The same for the same call."""
        said = json.dumps([self.tool, dict(self.args)], sort_keys=True, ensure_ascii=True, default=str)
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    @property
    def refused(self) -> str:
        """What the agent is told when it may not make it; the reason follows."""
        return "Not run: the user did not approve this call."


@dataclass(frozen=True)
class Answer:
    """What a person said to a call."""

    call: AskedCall
    approved: bool
    why: str = ""

    @property
    def said(self) -> str:
        """For the agent, where the call is not made."""
        return f"{self.call.refused} They said: {self.why}" if self.why else self.call.refused


@dataclass(frozen=True)
class StageApprovals:
    """Which calls of one attempt at a stage may be made."""

    request: StageRequest
    tools: Collection[str]

    def ask(self, tool: str, args: Mapping[str, Any]) -> Answer:
        """The answer to a call; a yes where the tool needs none. Raises ApprovalWanted, which ends the attempt, where there is none yet."""
        call = AskedCall(tool, dict(args))
        if not needs_approval(tool, self.tools):
            return Answer(call, approved=True)
        answer = answers(self.request.journal).get(call.id)
        if answer is not None:
            if answer.approved:
                self.request.journal.append({"kind": _MADE, "call": call.id})
            return answer
        self.request.journal.append({"kind": _ASKED, "call": call.id, "tool": tool, "args": json.loads(json.dumps(args, default=str))})
        name = self.request.stage.name
        raise ApprovalWanted(
            f"the stage {name!r} waits for a person to approve a call of {tool}.",
            session=self.request.session_id,
            stage=name,
            call=call.id,
            tool=tool,
            args=call.args,
        )

    def answered(self) -> tuple[Answer, ...]:
        """Calls that a person has answered since the stage stopped for them: what it asked for is not to be thought up anew."""
        records = self.request.journal.read()
        made = {record.get("call") for record in records if record.get("kind") == _MADE}
        return tuple(answer for answer in answers(self.request.journal).values() if answer.call.id not in made)


def answers(journal: StageJournal) -> dict[str, Answer]:
    """All answers in a stage's journal by the ids of their calls; the newest counts."""
    asked: dict[str, AskedCall] = {}
    found: dict[str, Answer] = {}
    for record in journal.read():
        id = str(record.get("call"))
        if record.get("kind") == _ASKED:
            asked[id] = AskedCall(str(record.get("tool")), record.get("args") or {})
        elif record.get("kind") == _DECIDED and id in asked:
            found[id] = Answer(asked[id], bool(record.get("approved")), str(record.get("why") or ""))
    return found


def decide(journal: StageJournal, call: str, *, approved: bool, why: str = "") -> None:
    """Keep what a person said to a call."""
    journal.append({"kind": _DECIDED, "call": call, "approved": approved, "why": why})


def asked_record(error: ApprovalWanted) -> dict[str, Any]:
    """The call as the session shows it: whole, without secrets."""
    return {"call": error.call, "tool": error.tool, "args": {name: _shown(value) for name, value in error.arguments.items()}}


def _shown(value: Any) -> str:
    return redact_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


WORKFLOW_FILE = "workflow_file"
"""Where a session keeps the path of the file that it was started from."""


# What resume checks


def stored_workflow(session: Session) -> Workflow:
    """The definition that the session keeps. Raises InputError when it keeps none, as files of other programs do."""
    if not session.workflow:
        raise InputError(
            f"the session {session.workflow_id} does not hold its workflow.",
            hint="Give the workflow file: `holdfast resume ID --workflow FILE`.",
        )
    file = session.extra.get(WORKFLOW_FILE)
    found = parse_workflow(session.workflow, file=f"session {session.workflow_id}, workflow", kept=True)
    return replace(found, home=Path(file).parent if isinstance(file, str) else None)


def check_unchanged(session: Session, workflow: Workflow) -> None:
    """Raises WorkflowChanged when this is not the workflow that the session was started with."""
    if not session.workflow_hash or session.workflow_hash == workflow.hash:
        return
    changes = _differences(session, workflow)
    raise WorkflowChanged(
        f"the workflow of session {session.workflow_id} has changed since it was started: {changes}.",
        session=session.workflow_id,
        hint="`accept_changes=True` goes on with it as it is now, `as_started=True` with the one that the session keeps.",
    )


def _differences(session: Session, workflow: Workflow) -> str:
    try:
        old = stored_workflow(session)
    except (InputError, ConfigError):
        return "the one that it keeps cannot be read"
    before, now = old.by_name, workflow.by_name
    parts = [f"{name} is gone" for name in before if name not in now]
    parts += [f"{name} is new" for name in now if name not in before]
    parts += [f"{name} is different" for name in now if name in before and before[name].document() != now[name].document()]
    if not parts and [*before] != [*now]:
        parts.append("the order of the stages is another")
    return some(parts, 5) or "its settings are others"


def with_added_stages(workflow: Workflow, session: Session) -> Workflow:
    """The workflow with the stages that were added to it while it ran."""
    waiting: dict[str, list[Stage]] = {}
    for name, record in session.stages.items():
        definition = record.extra.get("definition")
        if record.added_by is not None and isinstance(definition, Mapping) and name not in workflow.by_name:
            waiting.setdefault(record.added_by, []).append(parse_stage(definition, where=f"session {session.workflow_id}, stages.{name}"))
    while waiting:
        known = next((parent for parent in waiting if parent in workflow.by_name), None)
        if known is None:
            return workflow  # who added them is no longer part of the workflow, so they are not either
        workflow = workflow.with_added(waiting.pop(known), known)
    return workflow


def reopened(session: Session, workflow: Workflow, *, accept_changes: bool = False) -> Session:
    """The session, checked, with its failed and interrupted stages to be run again. Raises what a person has to mend."""
    _check_names(session, workflow, accept_changes=accept_changes)
    for name in session.completed_stages:
        if name in workflow.by_name:
            _check_output(session, workflow.by_name[name])
    for stage in workflow.stages:
        record = transitions.record_of(session, stage.name)
        if stage.name in session.completed_stages or record.status in ("skipped", "waiting"):
            continue
        if stage.name in session.stage_outputs and record.status != "completed":
            _check_output(session, stage)
            session = _taken(session, workflow, stage, record)
        elif record.status != "pending":
            session = transitions.with_record(session, stage.name, status="pending", ended_at=None, seconds=None)
    return replace(session, error=None)


def _check_names(session: Session, workflow: Workflow, *, accept_changes: bool) -> None:
    check_completed(session)
    if not accept_changes:
        check_stages_known(session, workflow)


def check_stages_known(session: Session, workflow: Workflow) -> None:
    """WorkflowChanged if the session says that a stage is completed which the workflow does not have."""
    strangers = [name for name in session.completed_stages if name not in workflow.by_name]
    if strangers:
        near = nearest(strangers[0], workflow.by_name)
        hint = f"Did you mean `{near}`? " if near else ""
        raise WorkflowChanged(
            f"the session {session.workflow_id} has completed a stage that the workflow does not have: {', '.join(strangers)}.",
            session=session.workflow_id,
            hint=f"{hint}`accept_changes=True` goes on without it.",
        )


def _check_output(session: Session, stage: Stage) -> None:
    problems = output_problems(session, stage.name, stage.output_schema)
    if problems:
        raise output_invalid(session, stage.name, problems)


def _taken(session: Session, workflow: Workflow, stage: Stage, record: StageRecord) -> Session:
    """A result that a person put in, or agreed to by resuming: it counts as completed."""
    output = session.stage_outputs[stage.name]
    low = output.confidence == "low"
    changes: dict[str, Any] = {"ended_at": record.ended_at or session.updated_at or None, "provisional": low}
    return transitions.approved(transitions.with_record(session, stage.name, **changes), workflow, stage.name)


# What a person does


def waiting_stages(session: Session) -> tuple[str, ...]:
    """The stages that wait for a person, because of their output or of a call that they want to make."""
    return tuple(name for name, record in session.stages.items() if record.status == "waiting")


def asked_calls(session: Session) -> dict[str, Mapping[str, Any]]:
    """The calls that wait for a person, by the stages that want to make them."""
    found = {name: session.stages[name].extra.get(ASKS) for name in waiting_stages(session)}
    return {name: call for name, call in found.items() if isinstance(call, Mapping)}


def _answered(store: SessionStore, session: Session, stage: str, call: Mapping[str, Any], *, approved: bool, why: str = "") -> Session:
    """Keep an answer where the stage finds it, then let the stage be run again."""
    store.check_edit(session)
    decide(SessionJournal(store, session.workflow_id, stage, lambda: False), str(call.get("call")), approved=approved, why=why)
    changed = transitions.answered(session, stage)
    return store.commit(replace(changed, status="paused" if waiting_stages(changed) else "ready"), expect=session.revision)


def _tell(store: SessionStore, bus: Bus, event: events.WorkflowEvent) -> None:
    """Say what was done. For who holds the session: its journal has one writer at a time."""
    with Journal(store, event.session).kept(bus):
        bus.emit(event)


def approve(store: SessionStore, session_id: str, stage: str | None = None, *, bus: Bus = process_bus) -> Session:
    """Agree with the output of a stage, or with the call that it wants to make. It is on disk; `resume` goes on from there.

    Without a name it is about the only one that waits.
    """
    store.load(session_id)
    with store.lease(session_id, owner="approve"):
        session = store.load(session_id)
        name, point = _waiting(session, stage), None
        if (call := asked_calls(session).get(name)) is not None:
            done = _answered(store, session, name, call, approved=True)
        else:
            workflow = with_added_stages(stored_workflow(session), session)
            agreed = transitions.approved(session, workflow, name)
            rest = waiting_stages(agreed)
            agreed = replace(agreed, status="paused" if rest else "ready")
            points = RunSettings().as_started(session.configuration).recovery_points  # it is completed only now
            point = points.due(agreed, len(session.completed_stages))
            done = store.commit(agreed, expect=session.revision, point=point)
        _tell(store, bus, events.StageApproved(session=session_id, stage=name))
        if point is not None:
            _tell(store, bus, events.CheckpointWritten(session=session_id, name=point))
        return done


def reject(
    store: SessionStore, session_id: str, stage: str | None = None, *, why: str, clock: Clock | None = None, bus: Bus = process_bus
) -> Session:
    """Refuse the output of a stage, or the call that it wants to make; `resume` runs the stage again, and its agent is told why.

    Where an output is refused the session halts; a stage that may not make a call can go on without it.
    """
    if not why.strip():
        raise InputError("a rejection needs a reason.", hint="Say why: the stage is told when it runs again.")
    store.load(session_id)
    with store.lease(session_id, owner="reject"):
        session = store.load(session_id)
        name = _waiting(session, stage)
        if (call := asked_calls(session).get(name)) is not None:
            done = _answered(store, session, name, call, approved=False, why=why)
        else:
            done = _refused(store, session, name, why, stamp((clock or SystemClock()).now()))
        _tell(store, bus, events.StageRejected(session=session_id, stage=name, why=why))
        return done


def _refused(store: SessionStore, session: Session, name: str, why: str, at: str) -> Session:
    """The session without the output that a person did not accept."""
    outputs = {key: output for key, output in session.stage_outputs.items() if key != name}
    snapshots = tuple(shot for shot in session.memory_snapshots if shot.get("stage") != name)
    refused = transitions.noted(transitions.with_record(session, name, status="rejected"), name, kind="rejected", message=why, at=at)
    error = SessionError(
        name,
        "rejected",
        f"a person did not accept the output of stage {name!r}: {why}",
        raw_output=output_json(session.stage_outputs[name]) if name in session.stage_outputs else None,
        at=at,
        hint="`holdfast resume` runs the stage again with the reason; `holdfast session fix` puts an output in.",
    )
    changed = replace(refused, status="halted", error=error, stage_outputs=outputs, memory_snapshots=snapshots)
    return store.commit(changed, expect=session.revision)


def fix(store: SessionStore, session_id: str, stage: str, text: str | None, *, bus: Bus = process_bus) -> Session:
    """Put a corrected output, as JSON text, in place of what a stage wrote; without one, what the person makes of it in their editor.

    A stage whose output waits for a person still waits: it is `approve` that goes on. Where the stage was completed and says something
    else now, the stages that have read it are to be run again.
    """

    def tell() -> None:
        _tell(store, bus, events.OutputFixed(session=session_id, stage=stage))

    def then(before: Session, after: Session) -> Session:
        after = rechecked(store, after, before)
        said = stage in before.completed_stages and before.stage_outputs.get(stage) != after.stage_outputs[stage]
        return _to_run_again(after, readers_of(after, stage)) if said else after

    if text is None:
        return fix_in_editor(store, session_id, stage, done=tell, then=then)
    return fix_output(store, session_id, stage, text, done=tell, then=then)


def fork(store: SessionStore, session_id: str, new_id: str | None = None, *, checkpoint: str | None = None) -> Session:
    """A new session from the state of another, or from a recovery point of it. Without a name it is called `ID-fork-001` and so on."""
    store.load(session_id) if checkpoint is None else store.load_checkpoint(session_id, checkpoint)
    new = new_id or spare_name((brief.workflow_id for brief in store.list()), f"{session_id[:_STEM]}-fork")
    return store.fork(session_id, new, checkpoint=checkpoint)


def rechecked(store: SessionStore, session: Session, before: Session | None = None) -> Session:
    """The session with those findings marked that a person put in, by a correction of `before` or by an edit, and that no source has."""
    resolve = cited_texts(session.stage_outputs.values(), lambda ref: store.raw_get(session.workflow_id, ref).text())
    old = before.stage_outputs if before is not None else {}
    outputs = {
        name: recheck_output(output, resolve, old.get(name)) if old.get(name) != output else output
        for name, output in session.stage_outputs.items()
    }
    return replace(session, stage_outputs=outputs)


def readers_of(session: Session, stage: str) -> tuple[str, ...]:
    """The stages that read what a stage wrote, also through others, by the workflow that the session keeps."""
    workflow = with_added_stages(stored_workflow(session), session)
    found = {stage}
    reads = {one.name: frozenset(one.inputs) if one.inputs is not None else workflow.before(one.name) for one in workflow.stages}
    while more := {name for name, read in reads.items() if name not in found and found & read}:
        found |= more
    return tuple(name for name in reads if name in found and name != stage)


def outdated_stages(session: Session) -> tuple[str, ...]:
    """Stages that are to be run again, because a person corrected what they have read."""
    return tuple(name for name, one in session.stages.items() if one.status == "completed" and name not in session.completed_stages)


def read_before_edit(session: Session) -> dict[str, tuple[str, ...]]:
    """The stages whose output a person edited, each with the completed stages that read it before and stay as they are."""
    found: dict[str, tuple[str, ...]] = {}
    for stage, record in session.stages.items():
        at = record.extra.get(EDITED)
        if not isinstance(at, str) or stage not in session.completed_stages or not session.workflow:
            continue
        done = {name: session.stages[name].ended_at or "" for name in session.completed_stages if name in session.stages}
        readers = tuple(name for name in readers_of(session, stage) if name in done and done[name] <= at)
        found |= {stage: readers} if readers else {}
    return found


def told_of_edits(session: Session) -> list[str]:
    """What a person should know about the stages that they edited, a sentence each."""
    name = session.workflow_id
    return [
        f"{', '.join(readers)} read {stage} before it was edited: take {'it' if len(readers) == 1 else 'them'} out of `completed_stages` "
        f"(`holdfast session edit {name}`) and resume. `holdfast session fix {name} {stage}` would have seen to it."
        for stage, readers in read_before_edit(session).items()
    ]


def edit(store: SessionStore, session_id: str) -> Session | None:
    """The session as a person saved it in their editor; None if they changed nothing. What no source has of it is marked.

    Completed stages stay completed: `read_before_edit` says what has read an output that was edited.
    """
    return edit_session(store, session_id, then=lambda before, after: rechecked(store, after, before))


def _to_run_again(session: Session, stages: Collection[str]) -> Session:
    """What a person has yet to look at goes too: it was made from what is no longer said."""
    waiting = {*stages}.intersection(waiting_stages(session))
    again = waiting.union({*stages}.intersection(session.completed_stages))
    if not again:
        return session
    for name in waiting:
        session = transitions.with_record(transitions.answered(session, name), name, status="completed")
    completed = tuple(name for name in session.completed_stages if name not in again)
    return replace(
        session,
        status="ready" if session.status in ("completed", "paused") and not waiting_stages(session) else session.status,
        completed_stages=completed,
        next_stage=next((name for name in session.stage_names() if name not in completed and name not in session.removed_stages()), None),
        memory_snapshots=tuple(shot for shot in session.memory_snapshots if shot.get("stage") not in again),
    )


def _waiting(session: Session, stage: str | None) -> str:
    waiting = waiting_stages(session)
    if not waiting:
        raise InTheWay(f"no stage of session {session.workflow_id} waits for a person; it is {session.status}.")
    if stage is None and len(waiting) == 1:
        return waiting[0]
    if stage is None:
        raise InputError(f"several stages wait: {', '.join(waiting)}.", hint="Name one of them.")
    if stage not in waiting:
        raise InTheWay(f"the stage {stage!r} does not wait.", hint=f"Waiting: {', '.join(waiting)}.")
    return stage


_LOOK = 0.05


def cancel(store: SessionStore, session_id: str, *, wait: float = 10.0, clock: Clock | None = None, bus: Bus = process_bus) -> Session:
    """Stop a session, and return it as it is then. One that is completed or cancelled already is InTheWay.

    A process that runs it notices within a tenth of a second; after `wait` seconds the answer is the session as it still is.
    """
    clock = clock or SystemClock()
    session = store.load(session_id)
    if store.owner(session_id) is None:
        if session.status in ("completed", "cancelled"):
            raise InTheWay(f"the session {session_id} is {session.status}: there is nothing to stop.")
        with store.lease(session_id, owner="cancel"):
            session = store.load(session_id)
            done = store.commit(replace(session, status="cancelled"), expect=session.revision)
            _tell(store, bus, events.SessionCancelled(session=session_id))
            return done
    store.request_cancel(session_id)
    until = clock.monotonic() + wait
    while store.owner(session_id) is not None and clock.monotonic() < until:
        clock.sleep(_LOOK)
    return store.load(session_id)


def result_of(session: Session) -> dict[str, StageOutput]:
    """The result of a session: the outputs of the stages that nobody depends on, as far as they are there."""
    workflow = with_added_stages(stored_workflow(session), session)
    return {name: session.stage_outputs[name] for name in result_stages(workflow) if name in session.stage_outputs}
