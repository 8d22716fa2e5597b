"""Long-term memory around a session: what is retrieved before it starts, and which summaries and findings are stored when it is done (W9).

A derived record is as trusted as its least trusted source, and nothing below the trust that the settings state reaches a stage (K1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.clock import stamp
from holdfast.errors import InputError
from holdfast.knowledge.records import TRUST_LEVELS, Hit, Record, Trust, agreed, least_trusted
from holdfast.knowledge.store import AddReport
from holdfast.memory.instructions import find_planted
from holdfast.session.output import Finding, StageOutput, legacy_output
from holdfast.session.state import Session
from holdfast.text.normalise import strip_invisible
from holdfast.workflow.definition import Workflow
from holdfast.workflow.run_settings import seconds_worked
from holdfast.workflow.transitions import given_stages

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore


@dataclass(frozen=True)
class Stored:
    """What a session left in long-term memory."""

    findings: AddReport = field(default_factory=AddReport)
    summaries: AddReport = field(default_factory=AddReport)

    @property
    def count(self) -> int:
        """All of it, also what was there already."""
        return sum(one.added + one.updated + one.unchanged for one in (self.findings, self.summaries))


class TrustedKnowledge:
    """A knowledge store in which only that is found which is trusted far enough to stand in a prompt. All else is as in the store.

    `held` has the ids of records that fitted a question and were not trusted.
    """

    def __init__(self, store: KnowledgeStore, min_trust: Trust) -> None:
        self._store = store
        self._least = TRUST_LEVELS.index(min_trust)
        self.held: set[str] = set()

    def search(self, query: str, *, top_k: int = 10, **settings: Any) -> list[Hit]:
        """As `KnowledgeStore.search`. Looks further where what was found is not trusted."""
        return _chosen(self._store, query, self._trusts, top_k=top_k, **settings)

    def _trusts(self, hit: Hit) -> bool:
        trusted = TRUST_LEVELS.index(prompt_trust(hit)) >= self._least
        if not trusted:
            self.held.add(hit.record.id)
        return trusted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def prompt_trust(hit: Hit) -> Trust:
    """As its least trusted record; what reads as an order or hides something is of low trust, unless a person typed it or agreed to it."""
    return least_trusted("low" if why_held(record) else record.trust for record in hit.records)


def why_held(record: Record) -> str:
    """Why a record stays out of prompts until a person agrees to it (`agree`): in words, or nothing."""
    if record.trust == "high":
        return ""
    found = find_planted(record.text)
    return found.why if found else "is of low trust" if record.trust == "low" else ""


def agree(store: KnowledgeStore, ids: Iterable[str], *, now: datetime) -> list[Record]:
    """Let records stand in prompts: a person has read them. InputError if there is none of an id; then nothing is changed."""
    chosen = []
    for id in ids:
        record = store.get(id)
        if record is None:
            raise InputError(f"there is no record {id!r}.", hint="`holdfast knowledge review` lists what waits.")
        chosen.append(agreed(record, now))
    store.add(chosen)
    return chosen


_FURTHEST = 64
_UNTAGGED = "general"


def _chosen(store: KnowledgeStore, query: str, keeps: Callable[[Hit], bool], *, top_k: int, **settings: Any) -> list[Hit]:
    """The best hits that are kept. Looks further where the first ones are not."""
    wanted = top_k
    while True:
        found = store.search(query, top_k=wanted, **settings)
        kept = [hit for hit in found if keeps(hit)]
        if len(kept) >= top_k or len(found) < wanted or wanted >= _FURTHEST * top_k:
            return kept[:top_k]
        wanted *= 4


def _is_of_another(record: Record, workflow: str) -> bool:
    """Whether another workflow left this record behind. Records from before that was noted are told by the id of their session."""
    if "stage" not in record.extra:
        return False  # a person put it there
    made_by = record.extra.get("workflow")
    return made_by != workflow if made_by else not (record.session or "").startswith(f"{workflow}-")


@dataclass(frozen=True)
class SessionKnowledge:
    """The knowledge store as one session uses it."""

    store: KnowledgeStore
    parameters: Mapping[str, Any]
    top_k: int
    short_seconds: float | None = None
    """A session whose stages took at most so long stores nothing."""

    def retrieve(self, session: Session, *, now: datetime) -> tuple[Mapping[str, Any], ...]:
        """What is known about the task and the parameters, best first, as plain values for the session file.

        A workflow that names no topic is given what people put there and what itself found, never what an unrelated one did.
        """
        words = [session.task, *(f"{key} {value}" for key, value in self.parameters.items() if isinstance(value, str | int | float))]
        query = " ".join(words).strip()
        if not query or self.top_k < 1:
            return ()
        own = str(session.workflow.get("id") or "") if session.topic_tag == _UNTAGGED and session.workflow else ""
        found = _chosen(
            self.store,
            query,
            lambda hit: not own or not any(_is_of_another(record, own) for record in hit.records),
            top_k=self.top_k,
            tags=(session.topic_tag,),
            now=now,
        )
        return tuple(_plain(hit) for hit in found)

    def store_findings(self, workflow: Workflow, session: Session) -> Stored:
        """Keep summaries and findings, durably. Doing it twice, as after a kill, keeps each once, and so does a further run."""
        if self.short_seconds is not None and seconds_worked(session) <= self.short_seconds:
            return Stored()
        records = records_of(workflow, session)
        found = {(one.text, one.source) for one in records if one.kind == "finding"}
        known = {
            (one.text, one.source)
            for one in (self.store.records(tags=(session.topic_tag,)) if found else ())
            if one.kind == "finding" and one.session != session.workflow_id and (one.text, one.source) in found
        }
        new = [one for one in records if one.kind == "finding" and (one.text, one.source) not in known]
        summaries = [one for one in records if one.kind != "finding"]
        return Stored(*(self.store.add(some) if some else AddReport() for some in (new, summaries)))


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


def records_of(workflow: Workflow, session: Session) -> list[Record]:
    """What a session leaves behind: the summary of each stage, and each fact of each source once, in the order of the workflow.

    A finding that was not found in its source is no knowledge and is left out, and so is a summary that stands on nothing else, and what
    a stage found that is no longer part of the workflow.
    """
    trusted = _trust_of_sources(session)
    summaries: dict[str, Trust] = {}
    found: dict[tuple[str, str], Record] = {}
    for name in session.completed_stages:
        output = session.stage_outputs.get(name)
        if output is None or name not in workflow.by_name:  # it was taken out of the workflow since
            continue
        common: dict[str, Any] = {
            "tags": (session.topic_tag,),
            "session": session.workflow_id,
            "time": _ended(session, name),
            "extra": {"workflow": workflow.id, "stage": name, "confidence": output.confidence, "task": session.task[:500]},
        }
        summaries[name] = _summary_trust(workflow, session, output, trusted, summaries)
        # else it says nothing of what was found
        if output.summary != legacy_output(name, None).summary and not _is_baseless(output) and not _is_process_note(output):
            place = f"{session.workflow_id}/{name}"
            found[name, output.summary] = Record(
                strip_invisible(output.summary), source=place, kind="summary", trust=summaries[name], position=len(found), **common
            )
        for finding in output.key_findings:
            key = (finding.fact, finding.source)
            if key not in found and finding.grounded is not False:
                trust = _trust(workflow, output, finding, trusted)
                found[key] = Record(
                    strip_invisible(finding.fact), source=finding.source, kind="finding", trust=trust, position=len(found), **common
                )
    return list(found.values())


def _is_process_note(output: StageOutput) -> bool:
    """Whether the summary is a stage's own count of what it did by extraction ("17 sentences from 3 documents"): that is no knowledge."""
    return isinstance(output.data, Mapping) and output.data.get("method") == "extraction"


def _is_baseless(output: StageOutput) -> bool:
    """Whether the summary of an output stands on nothing: none of its findings was found in its source, or it has figures of its own."""
    return "not_in_sources" in output.extra or bool(output.key_findings and all(one.grounded is False for one in output.key_findings))


def _trust(workflow: Workflow, output: StageOutput, finding: Finding, trusted: Mapping[str, Trust]) -> Trust:
    """A finding is as trusted as its least trusted source, and never more than the word of an agent, or of a person who approved it (K1).

    A doubtful one is of low trust whatever its source. One whose sources nobody has rated is the word of who found it.
    """
    if output.confidence == "low" or finding.grounded is False or _reads_ill(finding.fact):
        return "low"
    return least_trusted([_own(workflow, output), *(trusted[name] for name in _cited(finding) if name in trusted)])


def _reads_ill(text: str) -> bool:
    """Whether a text that was found speaks to the assistant, or hides something: role markers, characters that nobody sees (K1)."""
    return find_planted(text) is not None


def _summary_trust(
    workflow: Workflow, session: Session, output: StageOutput, trusted: Mapping[str, Trust], earlier: Mapping[str, Trust]
) -> Trust:
    """A summary is made from all that its stage was given and found, and is as trusted as the least of that."""
    if _reads_ill(output.summary):
        return "low"
    findings = [_trust(workflow, output, finding, trusted) for finding in output.key_findings]
    given = [earlier[name] for name in given_stages(workflow, session, output.stage_name) if name in earlier]
    rated = [trust for memory in (*session.retrieved, output.extra) if (trust := memory.get("trust")) in TRUST_LEVELS]
    doubt: list[Trust] = ["low"] if output.confidence == "low" else []
    return least_trusted([_own(workflow, output), *findings, *given, *rated, *doubt])


def _own(workflow: Workflow, output: StageOutput) -> Trust:
    stage = workflow.by_name.get(output.stage_name)
    return "high" if stage is not None and stage.approve else "medium"


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
        listed += [{**finding.extra, "ref": finding.source} for finding in output.key_findings]
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
