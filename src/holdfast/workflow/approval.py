"""A person decides about a stage that waits: agrees, and the session can go on; or does not, and says why (W14)."""

from __future__ import annotations

from dataclasses import replace

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.errors import InputError
from holdfast.session.output import output_json
from holdfast.session.state import Session, SessionError
from holdfast.session.store import SessionStore
from holdfast.workflow import marking
from holdfast.workflow.reopening import stored_workflow, with_added_stages


def waiting_stages(session: Session) -> tuple[str, ...]:
    """The stages whose outputs wait for a person."""
    return tuple(name for name, record in session.stages.items() if record.status == "waiting")


def approve(store: SessionStore, session_id: str, stage: str | None = None) -> Session:
    """Agree with the output of a stage, or of the only one that waits. It is on disk; `resume` goes on from there."""
    store.load(session_id)
    with store.hold(session_id, owner="approve"):
        session = store.load(session_id)
        name = _waiting(session, stage)
        workflow = with_added_stages(stored_workflow(session), session)
        agreed = marking.approved(session, workflow, name)
        rest = waiting_stages(agreed)
        return store.commit(replace(agreed, status="paused" if rest else "ready"), expect=session.revision)


def reject(store: SessionStore, session_id: str, stage: str | None = None, *, why: str, clock: Clock | None = None) -> Session:
    """Refuse the output of a stage. The session halts; `resume` runs the stage again, and its agent is told why."""
    if not why.strip():
        raise InputError("a rejection needs a reason.", hint="Say why: the stage is told when it runs again.")
    store.load(session_id)
    with store.hold(session_id, owner="reject"):
        session = store.load(session_id)
        name = _waiting(session, stage)
        at = stamp((clock or SystemClock()).now())
        outputs = {key: output for key, output in session.stage_outputs.items() if key != name}
        snapshots = tuple(shot for shot in session.memory_snapshots if shot.get("stage") != name)
        refused = marking.noted(marking.with_record(session, name, status="rejected"), name, kind="rejected", message=why, at=at)
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
