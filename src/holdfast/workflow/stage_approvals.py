"""Tools of a stage that wait for a person, as in a conversation: `sandbox.approve` and `approve` of MCP servers (A10, W14).

Nobody may be at the terminal while a workflow runs, so a stage that wants such a call stops there: it waits, the session is paused, and
`holdfast session show` has the whole call. `holdfast approve` and `holdfast reject` decide; then the stage runs again and makes that very
call, or is told that it may not. Question and answer are in the stage's journal and survive everything. An answer is about one exact call:
the same tool with the same arguments in this stage of this session.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from holdfast.errors import ApprovalWanted
from holdfast.redaction import redact_text

if TYPE_CHECKING:
    from holdfast.workflow.agent import StageJournal, StageRequest

_ASKED, _DECIDED, _MADE = "approval_asked", "approval_decided", "approved_call_made"


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
