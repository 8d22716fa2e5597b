"""Long-term memory around a session: what is retrieved before it starts, and which findings are stored when it is done (W9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.clock import stamp
from holdfast.knowledge.records import TRUST_LEVELS, Record, Trust, least_trusted
from holdfast.knowledge.store import AddReport
from holdfast.session.output import Finding, StageOutput
from holdfast.session.state import Session
from holdfast.workflow.definition import Workflow
from holdfast.workflow.run_settings import seconds_worked

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore

ANY_TOPIC = "general"
"""The tag of workflows without a topic: it is stored, and what is looked up is not limited to it."""


@dataclass(frozen=True)
class SessionKnowledge:
    """The knowledge store as one session uses it."""

    store: KnowledgeStore
    parameters: Mapping[str, Any]
    top_k: int
    short_seconds: float | None = None
    """A session whose stages took at most so long stores nothing."""

    def retrieve(self, session: Session, *, now: datetime) -> tuple[Mapping[str, Any], ...]:
        """What is known about the task and the parameters, best first, as plain values for the session file."""
        words = [session.task, *(f"{key} {value}" for key, value in self.parameters.items() if isinstance(value, str | int | float))]
        query = " ".join(words).strip()
        if not query or self.top_k < 1:
            return ()
        tags = () if session.topic_tag == ANY_TOPIC else (session.topic_tag,)
        return tuple(_plain(hit) for hit in self.store.search(query, top_k=self.top_k, tags=tags, now=now))

    def store_findings(self, workflow: Workflow, session: Session) -> AddReport:
        """Keep the findings, durably. Their ids come from their content, so doing it twice, as after a kill, keeps each once."""
        if self.short_seconds is not None and seconds_worked(session) <= self.short_seconds:
            return AddReport()
        return self.store.add(findings_of(workflow, session))


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


def findings_of(workflow: Workflow, session: Session) -> list[Record]:
    """The findings of a session as records: each fact of each source once, in the order of the workflow."""
    trusted = _trust_of_sources(session)
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
                trust=_trust(workflow, output, finding, trusted),
                position=len(found),
                extra={"stage": name, "confidence": output.confidence, "task": session.task[:500]},
            )
    return list(found.values())


def _trust(workflow: Workflow, output: StageOutput, finding: Finding, trusted: Mapping[str, Trust]) -> Trust:
    """A finding is as trusted as its least trusted source, and never more than the word of an agent, or of a person who approved it (K1).

    A doubtful one is of low trust whatever its source. One whose sources nobody has rated is the word of who found it.
    """
    if output.confidence == "low" or finding.grounded is False:
        return "low"
    stage = workflow.by_name.get(output.stage_name)
    own: Trust = "high" if stage is not None and stage.approve else "medium"
    return least_trusted([own, *(trusted[name] for name in _cited(finding) if name in trusted)])


def _cited(finding: Finding) -> Iterator[str]:
    """All names under which a finding's sources may be known: with and without their section, and as raw data."""
    others = [one for one in finding.extra.get("also") or () if isinstance(one, Mapping)]
    for source in (finding.source, finding.extra.get("raw"), *(one.get(key) for one in others for key in ("source", "raw"))):
        if isinstance(source, str) and source:
            yield source
            yield source.partition("#")[0]


def _trust_of_sources(session: Session) -> dict[str, Trust]:
    """How far each source is trusted, where the session knows: of retrieved memories, and of the documents that stages list."""
    rated: dict[str, list[Trust]] = {}
    listed: list[Mapping[str, Any]] = [{**memory, "ref": memory.get("source")} for memory in session.retrieved]
    for output in session.stage_outputs.values():
        documents = output.data.get("documents") if isinstance(output.data, Mapping) else None
        listed += [one for one in documents if isinstance(one, Mapping)] if isinstance(documents, list | tuple) else []
    for one in listed:
        for name in (one.get("id"), one.get("ref")):
            if isinstance(name, str) and one.get("trust") in TRUST_LEVELS:
                rated.setdefault(name, []).append(one["trust"])
    return {name: least_trusted(trusts) for name, trusts in rated.items()}


def _ended(session: Session, stage: str) -> datetime | None:
    """When the stage ended, as the file says it: the same in every run, so that the record's id is too."""
    record = session.stages.get(stage)
    try:
        moment = datetime.fromisoformat(record.ended_at) if record is not None and record.ended_at else None
    except ValueError:  # a person wrote something else there
        return None
    return moment if moment is not None and moment.tzinfo is not None else None
