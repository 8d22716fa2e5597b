"""Long-term memory around a session: what is looked up before it starts, and what is kept of it when it is done (W9)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.clock import stamp
from holdfast.session.output import Finding
from holdfast.session.state import Session
from holdfast.workflow.definition import Workflow

if TYPE_CHECKING:
    from holdfast.knowledge.records import Record, Trust
    from holdfast.knowledge.store import AddReport, KnowledgeStore

ANY_TOPIC = "general"
"""The tag of workflows without a topic: it is stored, and what is looked up is not limited to it."""


def look_up(
    knowledge: KnowledgeStore, session: Session, parameters: Mapping[str, Any], *, top_k: int, now: datetime
) -> tuple[Mapping[str, Any], ...]:
    """What is known about the task and the parameters, best first, as plain values for the session file."""
    words = [session.task, *(f"{key} {value}" for key, value in parameters.items() if isinstance(value, str | int | float))]
    query = " ".join(words).strip()
    if not query or top_k < 1:
        return ()
    tags = () if session.topic_tag == ANY_TOPIC else (session.topic_tag,)
    return tuple(_plain(hit) for hit in knowledge.search(query, top_k=top_k, tags=tags, now=now))


def _plain(hit: Any) -> dict[str, Any]:
    record = hit.record
    found = {
        "id": record.id,
        "text": record.text,
        "tags": list(record.tags),
        "source": record.source,
        "session": record.session,
        "speaker": record.speaker,
        "time": stamp(record.time) if record.time is not None else None,
        "kind": record.kind,
        "trust": record.trust,
        "score": round(float(hit.score), 6),
        "why": str(hit.why),
    }
    return {key: value for key, value in found.items() if value not in (None, [])}


def store_findings(knowledge: KnowledgeStore, workflow: Workflow, session: Session) -> AddReport:
    """Keep the findings, durably. Their ids come from their content, so doing it twice, as after a kill, keeps each once."""
    return knowledge.add(findings_of(workflow, session))


def findings_of(workflow: Workflow, session: Session) -> list[Record]:
    """The findings of a session as records: each fact of each source once, in the order of the workflow."""
    from holdfast.knowledge.records import Record

    found: dict[tuple[str, str], Record] = {}
    for name in session.completed_stages:
        output = session.stage_outputs.get(name)
        for finding in output.key_findings if output is not None else ():
            key = (finding.fact, finding.source)
            if output is None or key in found:
                continue
            found[key] = Record(
                finding.fact,
                tags=(session.topic_tag,),
                session=session.workflow_id,
                source=finding.source,
                time=_ended(session, name),
                kind="finding",
                trust=_trust(workflow, session, name, finding),
                position=len(found),
                extra={"stage": name, "confidence": output.confidence, "task": session.task[:500]},
            )
    return list(found.values())


def _ended(session: Session, stage: str) -> datetime | None:
    """When the stage ended, as the file says it: the same in every run, so that the record's id is too."""
    record = session.stages.get(stage)
    try:
        moment = datetime.fromisoformat(record.ended_at) if record is not None and record.ended_at else None
    except ValueError:  # a person wrote something else there
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def _trust(workflow: Workflow, session: Session, name: str, finding: Finding) -> Trust:
    """A doubtful finding is of low trust, one that a person approved of high trust, any other is the word of an agent."""
    if session.stage_outputs[name].confidence == "low" or finding.grounded is False:
        return "low"
    stage = workflow.by_name.get(name)
    return "high" if stage is not None and stage.approve else "medium"
