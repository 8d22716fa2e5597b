"""How a session ended, as an error for those who want one, and its result for those who want that (W2)."""

from __future__ import annotations

from holdfast.errors import Cancelled, HoldfastError, OutputInvalid, StageFailed, WorkflowError
from holdfast.session.output import StageOutput
from holdfast.session.state import Session
from holdfast.workflow.planning import result_stages
from holdfast.workflow.reopening import stored_workflow, with_added_stages

_GO_ON = "`holdfast resume` goes on with it."


def failure_of(session: Session) -> HoldfastError | None:
    """The error that a session which is not completed stands for."""
    if session.status == "completed":
        return None
    name, error = session.workflow_id, session.error
    if session.status == "cancelled":
        return Cancelled(f"the session {name} was cancelled.", session=name, stage=session.current_stage, hint=_GO_ON)
    if error is None:
        waits = f"waits for a person to approve {session.current_stage}" if session.status == "paused" else f"is {session.status}"
        return WorkflowError(f"the session {name} {waits}.", session=name, stage=session.current_stage)
    if error.kind == "malformed_output":
        return OutputInvalid(error.message, problems=error.problems, raw=error.raw_output, session=name, stage=error.stage, hint=error.hint)
    return StageFailed(error.message, session=name, stage=error.stage, hint=error.hint)


def result_of(session: Session) -> dict[str, StageOutput]:
    """The result of a session: the outputs of the stages that nobody depends on, as far as they are there."""
    workflow = with_added_stages(stored_workflow(session), session)
    return {name: session.stage_outputs[name] for name in result_stages(workflow) if name in session.stage_outputs}
