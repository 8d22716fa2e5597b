"""What a person does to a session from outside: approve, reject, fix and cancel (W4, W14, W19); and the result of a session (W2).

`approve` and `reject` decide about a stage that waits; `fix` puts an output in place of what a stage wrote; `cancel` asks whoever runs the
session, and where nobody does marks it. Whatever is done is told on the bus, and in the session's journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.errors import InputError
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.session.editor import fix_in_editor, fix_output
from holdfast.session.output import StageOutput, output_json
from holdfast.session.state import ASKS, Session, SessionError
from holdfast.session.store import SessionStore
from holdfast.workflow import events, transitions
from holdfast.workflow.journal import SessionJournal as Journal
from holdfast.workflow.resume_checks import stored_workflow, with_added_stages
from holdfast.workflow.stage_approvals import decide
from holdfast.workflow.stage_request import SessionJournal
from holdfast.workflow.transitions import result_stages


def waiting_stages(session: Session) -> tuple[str, ...]:
    """The stages that wait for a person, because of their output or of a call that they want to make."""
    return tuple(name for name, record in session.stages.items() if record.status == "waiting")


def asked_calls(session: Session) -> dict[str, Mapping[str, Any]]:
    """The calls that wait for a person, by the stages that want to make them."""
    found = {name: session.stages[name].extra.get(ASKS) for name in waiting_stages(session)}
    return {name: call for name, call in found.items() if isinstance(call, Mapping)}


def _answered(store: SessionStore, session: Session, stage: str, call: Mapping[str, Any], *, approved: bool, why: str = "") -> Session:
    """Keep an answer where the stage finds it, then let the stage be run again."""
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
    with store.hold(session_id, owner="approve"):
        session = store.load(session_id)
        name = _waiting(session, stage)
        if (call := asked_calls(session).get(name)) is not None:
            done = _answered(store, session, name, call, approved=True)
        else:
            workflow = with_added_stages(stored_workflow(session), session)
            agreed = transitions.approved(session, workflow, name)
            rest = waiting_stages(agreed)
            done = store.commit(replace(agreed, status="paused" if rest else "ready"), expect=session.revision)
        _tell(store, bus, events.StageApproved(session=session_id, stage=name))
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
    with store.hold(session_id, owner="reject"):
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
    """Put a corrected output, as JSON text, in place of what a stage wrote; without one, what the person makes of it in their editor."""

    def tell() -> None:
        _tell(store, bus, events.OutputFixed(session=session_id, stage=stage))

    return fix_in_editor(store, session_id, stage, done=tell) if text is None else fix_output(store, session_id, stage, text, done=tell)


def _waiting(session: Session, stage: str | None) -> str:
    waiting = waiting_stages(session)
    if not waiting:
        raise InputError(f"no stage of session {session.workflow_id} waits for a person; it is {session.status}.")
    if stage is None and len(waiting) == 1:
        return waiting[0]
    if stage is None:
        raise InputError(f"several stages wait: {', '.join(waiting)}.", hint="Name one of them.")
    if stage not in waiting:
        raise InputError(f"the stage {stage!r} does not wait.", hint=f"Waiting: {', '.join(waiting)}.")
    return stage


_LOOK = 0.05


def cancel(store: SessionStore, session_id: str, *, wait: float = 10.0, clock: Clock | None = None, bus: Bus = process_bus) -> Session:
    """Stop a session, and return it as it is then. One that is completed or cancelled already is an InputError.

    A process that runs it notices within a tenth of a second; after `wait` seconds the answer is the session as it still is.
    """
    clock = clock or SystemClock()
    session = store.load(session_id)
    if store.owner(session_id) is None:
        if session.status in ("completed", "cancelled"):
            raise InputError(f"the session {session_id} is {session.status}: there is nothing to stop.")
        with store.hold(session_id, owner="cancel"):
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
