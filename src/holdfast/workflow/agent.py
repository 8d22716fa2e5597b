"""The seam between the runner and what does the work of a stage, the registry of agent types, and the check of what they wrote (W12).

An agent is anything with `run(request)`, and a plain function that takes the request is enough; either returns the output, or a
StageResult with more than that.
What it may know is in the request; what it found goes back in the result. It never sees the session itself.

A stage names its agent by a short name, or by the path of any importable callable, `package.module:function`. The names of the registry
are dotted paths, imported when a stage uses them. Without a capable model the agents of `offline/` serve; with one, whoever builds the
run passes its own agents under the same names.

`ground_output` checks what an agent wrote by program, for outputs of models and of agents alike: each source resolves, and each fact is in
its source. What is not grounded is marked so and never removed: a person may know better. Each figure and each stretch in quotation marks
of a fact has to be in the source word for word, however alike the rest is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from holdfast.config.section import all_errors, raise_all
from holdfast.errors import ConfigError, InputError, NotImportable
from holdfast.extract.selection import Grounding, Passage, SourceText, ground
from holdfast.session.output import CONFIDENCES, Confidence, Finding, StageOutput, grounded
from holdfast.text.normalise import normalise
from holdfast.tokens.accounts import Usage
from holdfast.validation import counted, load_dotted, nearest
from holdfast.workflow.definition import READ_BY_NOBODY

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.session.output import StageOutput
    from holdfast.workflow.definition import Stage, Workflow


class RawAccess(Protocol):
    """The raw data of one session (W10): pages, tool output, whatever is too long to be passed on."""

    def put(self, data: bytes | str, *, source: str | None = None, media_type: str | None = None) -> str:
        """Keep it durably and return its reference, `raw:sha256-...`. The same data has the same reference."""

    def get(self, ref: str) -> bytes:
        """The data of a reference, or of a unique beginning of one. Raises InputError when there is none."""

    def text(self, ref: str) -> str:
        """The data of a reference as text; bytes that are no UTF-8 become U+FFFD."""


class StageJournal(Protocol):
    """What an agent notes while it works: records that survive a kill, and that it finds again when its stage is run again.

    For work that is too long to be begun anew: a discussion, a crawl. A stage that was completed and is run again finds them too, so a
    record should say what it belongs to.
    """

    def read(self) -> tuple[Mapping[str, Any], ...]:
        """All records of this stage, oldest first."""

    def append(self, record: Mapping[str, Any]) -> None:
        """Keep one more, as JSON. What was returned survives a power cut. Raises Cancelled when this attempt was given up."""


class _Notebook:
    """A journal that is kept in memory, for a request that is made by hand."""

    def __init__(self) -> None:
        self._records: list[Mapping[str, Any]] = []

    def read(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self._records)

    def append(self, record: Mapping[str, Any]) -> None:
        self._records.append(dict(record))


def _never() -> bool:
    return False


def _silent(_line: str) -> None:
    return None


def _free(_usage: object, _model: str, _who: str | None = None) -> None:
    return None


def _unknown(_who: str) -> int | None:
    return None


def _unseen(_name: str, _text: str) -> None:
    return None


class _MadeWhenAsked:
    """A field that holds a folder, or the function that makes one, which is called when the field is first looked at."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, request: object, owner: type | None = None) -> Path:
        if request is None:
            raise AttributeError(self._name)  # no default: the field must be given
        found: Path | Callable[[], Path] = vars(request)[self._name]
        if not isinstance(found, Path):
            found = vars(request)[self._name] = found()
        return found

    def __set__(self, request: object, folder: Path | Callable[[], Path]) -> None:
        vars(request)[self._name] = folder


@dataclass(frozen=True, kw_only=True)
class StageRequest:
    """All that an agent is given for one attempt at a stage."""

    session_id: str
    stage: Stage
    task: str
    system_prompt: str
    prompt: str
    """The task, the given outputs and the retrieved memories as one text that fits `budget`, system prompt included."""
    given: tuple[StageOutput, ...] = ()
    """The outputs that are in the prompt, in the order of the workflow: what was left out for want of room is not here."""
    provisional: frozenset[str] = frozenset()
    """The names of those whose confidence is low: they are to be checked, not built upon."""
    retrieved: tuple[Mapping[str, Any], ...] = ()
    """The memories that are in the prompt: `text`, `source`, `tags`, `score` and more, as in the session file."""
    feedback: str | None = None
    """Why the last answer was not accepted, or why it is to be looked at again. It is in `prompt` too."""
    attempt: int = 1
    raw: RawAccess
    journal: StageJournal = field(default_factory=_Notebook)
    knowledge: KnowledgeStore | None = None
    folder: _MadeWhenAsked = _MadeWhenAsked()
    """Where the agent may write files: a path. It exists, from when it is first asked for: most agents write no files."""
    home: Path | None = None
    """The folder of the workflow file, where paths in it are looked for first; None when it came as values."""
    budget: int | None = None
    """The tokens that system prompt and prompt may take together, where that is limited."""
    model: str | None = None
    """The name of the model in the configuration, where one is asked for."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    cancelled: Callable[[], bool] = _never
    """Whether to stop. Whoever loops asks; raising `Cancelled` or returning anything are both right then."""
    emit: Callable[[str], None] = _silent
    """Say in one line what is being done, for the log and the progress display."""
    show: Callable[[str, str], None] = _unseen
    """Keep a text for people beside `context.md` and `output.md`: `show("transcript", markdown)`. The newest of a name counts."""
    charge: Callable[..., None] = _free
    """Account for one call of a model at once: `charge(usage, model)`. Raises LimitExceeded when nothing is left for another one.

    A third value says for whom, where several work in one stage; it is charged to them as to sub-agents.
    An agent that makes one call may leave it to the result's `usage` instead; it must not do both.
    """
    charged: Callable[[str], int | None] = _unknown
    """The tokens that this stage of the session was charged for somebody so far, also in runs before; None where nobody counts."""

    def __getattr__(self, name: str) -> Any:
        """What is not there: the error names what was probably meant."""
        known = [one.name for one in fields(self)]
        near = _MEANT.get(name) or next(iter(get_close_matches(name, known, 1)), None)
        meant = f" Did you mean {near!r}?" if near else f" It has {', '.join(known)}."
        raise AttributeError(f"a StageRequest has no {name!r}.{meant}", name=name, obj=self)


_MEANT = {"inputs": "given", "input": "given", "outputs": "given", "results": "given", "params": "parameters", "config": "parameters"}


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """What an agent gives back. `output` is a StageOutput, a mapping in the same form, or text that holds it as JSON."""

    output: object
    usage: Usage | None = None
    model: str | None = None
    add_stages: tuple[Mapping[str, Any], ...] = ()
    """Stages to run after this one, in the form of the workflow file (W13). Allowed up to the workflow's `max_added_stages`."""


def as_result(found: object) -> StageResult:
    """What an agent returned as a result: what is none is the output, whether it fits or not."""
    if inspect.iscoroutine(found):
        found.close()  # nobody will wait for it
    return found if isinstance(found, StageResult) else StageResult(output=found)


@runtime_checkable
class StageAgent(Protocol):
    """Does the work of a stage."""

    def run(self, request: StageRequest) -> object:
        """Work the stage out, and return a StageResult or its `output` alone.

        Called in a thread of its own; may be called again with `feedback`, and again after a crash.

        Raises what it likes: the runner retries, then halts or skips as the stage says. Where it loops it must ask `request.cancelled()`.
        An agent may also have `check(stage)`, which is called before anything runs and raises ConfigError for settings that it cannot use,
        and `check_sources(stage, home)`, called before a new session runs, for what cannot be read. `home` is the folder of the workflow.
        """


AgentSource = StageAgent | type[StageAgent] | Callable[[StageRequest], object] | str
"""An agent, a class of agents, a function of the request, or the dotted path of one of these."""
Agents = Mapping[str, AgentSource]

OFFLINE_AGENTS: Mapping[str, str] = {
    "planner": "holdfast.offline.planner:Planner",
    "researcher": "holdfast.offline.researcher:Researcher",
    "synthesizer": "holdfast.offline.synthesizer:Synthesizer",
    "writer": "holdfast.offline.writer:Writer",
    "coder": "holdfast.offline.panel:Coder",
    "llm": "holdfast.offline.panel:Plain",
    "discussion": "holdfast.offline.panel:Panel",
}
"""The agents that work without a model (W18)."""

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class FunctionAgent:
    """A plain function as an agent. What it returns is the output, unless it is a StageResult already."""

    function: Callable[[StageRequest], object]

    def run(self, request: StageRequest) -> StageResult:
        return as_result(self.function(request))


def find_agents(workflow: Workflow, agents: Agents | None = None, *, kept: bool = False) -> dict[str, StageAgent]:
    """An agent for each agent type of the workflow. Raises ConfigError, with the line, for one that cannot be had: nothing has run then.

    All that is wrong is told at once, as with any file. The settings of a workflow that a session has `kept` were accepted.
    """
    found, errors = _agents_of(workflow, agents, kept=kept)
    raise_all(errors)
    return found


def checked_agents(workflow: Workflow, agents: Agents | None = None) -> dict[str, StageAgent]:
    """The agents of a workflow, which have also looked at what their stages are to read. ConfigError as above for what is not there."""
    found, errors = _agents_of(workflow, agents)
    raise_all([*errors, *_source_errors(workflow, found)])
    return found


def agent_errors(workflow: Workflow, agents: Agents | None = None) -> list[ConfigError]:
    """What is wrong with the agents of a workflow and with what they are to read."""
    found, errors = _agents_of(workflow, agents)
    return [*errors, *_source_errors(workflow, found)]


def _agents_of(workflow: Workflow, agents: Agents | None, *, kept: bool = False) -> tuple[dict[str, StageAgent], list[ConfigError]]:
    found: dict[str, StageAgent] = {}
    errors: list[ConfigError] = []
    for stage in workflow.stages:
        try:
            if stage.agent_type not in found:
                found[stage.agent_type] = _agent_of(stage, agents, workflow.file, workflow.home)
            errors += [] if kept else unread_settings(found[stage.agent_type], stage, workflow.file)
            _check(found[stage.agent_type], stage, workflow.file)
        except ConfigError as error:
            errors += all_errors(error)
    return found, errors


def unread_settings(agent: StageAgent, stage: Stage, file: str | None) -> list[ConfigError]:
    """The settings that read like a key of ours and that the agent does not have: a stage that hangs would ignore its `timeout`."""
    given = {key: meant for key in stage.settings if (meant := READ_BY_NOBODY.get(key.lower().replace("-", "_"))) is not None}
    own = _parameters(agent) if given else frozenset()
    message = "there is no key of this name in a stage, and its agent has no parameter of this name."
    return [
        ConfigError(
            message, file=file, line=stage.line_of(key), key=f"stages.{stage.name}.{key}", nearest=meant, hint=f"Did you mean `{meant}`?"
        )
        for key, meant in given.items()
        if key not in own
    ]


def _parameters(agent: StageAgent) -> frozenset[str]:
    """The names of the parameters of an agent: of its function, or of its class and what that runs."""
    found: set[str] = set()
    for one in (agent.function,) if isinstance(agent, FunctionAgent) else (type(agent), agent.run):
        with suppress(TypeError, ValueError):  # what is written in C may have no signature
            found.update(inspect.signature(one).parameters)
    return frozenset(found)


def _source_errors(workflow: Workflow, agents: Mapping[str, StageAgent]) -> list[ConfigError]:
    home = Path(workflow.file).parent if workflow.file else None
    errors: list[ConfigError] = []
    for stage in workflow.stages:
        check = getattr(agents.get(stage.agent_type), "check_sources", None)
        if callable(check):
            try:
                _checked(partial(check, stage, home), stage, workflow.file)
            except ConfigError as error:
                errors += all_errors(error)
    return errors


def find_agent(stage: Stage, agents: Agents | None = None, *, file: str | None = None, home: Path | None = None) -> StageAgent:
    """The agent that a stage names: one of those given, one of the registry, or whatever the dotted path says. It accepts the stage."""
    agent = _agent_of(stage, agents, file, home)
    _check(agent, stage, file)
    return agent


def _check(agent: StageAgent, stage: Stage, file: str | None) -> None:
    """Let the agent look at the stage's settings, if it wants to."""
    check = getattr(agent, "check", None)
    if callable(check):
        _checked(partial(check, stage), stage, file)


def _checked(check: Callable[[], None], stage: Stage, file: str | None) -> None:
    try:
        check()
    except ConfigError as error:
        for one in all_errors(error):
            key = (one.key or "").removeprefix(f"stages.{stage.name}.")
            one.file, one.line = one.file or file, one.line or stage.line_of(key)
        raise


def _agent_of(stage: Stage, agents: Agents | None, file: str | None, home: Path | None) -> StageAgent:
    name = stage.agent_type
    given = agents or {}
    source: object = given.get(name, OFFLINE_AGENTS.get(name, name))
    if isinstance(source, str) and _PATH.fullmatch(source) is None:
        known = sorted({*given, *OFFLINE_AGENTS})
        near = nearest(source, known)
        hint = f"Did you mean `{near}`?" if near else f"There are {', '.join(known)}, and any `package.module:function`."
        raise _error(f"there is no agent type {name!r}.", stage, file, nearest=near, hint=hint)
    if isinstance(source, str):
        source = _loaded(source, stage, file, home)
    return _as_agent(source, stage, file)


def _loaded(path: str, stage: Stage, file: str | None, home: Path | None) -> object:
    """What is at this path: in a module that is installed, or beside the workflow file."""
    try:
        return load_dotted(path, "the agent", file=file, line=stage.line_of("agent_type"), key=_key(stage), beside=home)
    except NotImportable as error:
        if home is not None and error.missing is not None and error.missing == path.partition(":")[0].partition(".")[0]:
            error.hint = f"Is {error.missing} installed, or beside the workflow file in {home.absolute()}?"
        raise


def _as_agent(source: object, stage: Stage, file: str | None) -> StageAgent:
    if inspect.isclass(source):
        try:
            source = source()
        except TypeError as error:
            raise _error(f"the agent class {source!r:.80} cannot be made without arguments: {error}.", stage, file) from error
    work = source.run if isinstance(source, StageAgent) else source
    if inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(getattr(work, "__call__", None)):  # noqa: B004 - is it `async`?
        raise _error("an agent is an ordinary function, not an `async` one.", stage, file, hint="Wrap it: `asyncio.run(work(request))`.")
    if isinstance(source, StageAgent):
        return source
    if callable(source):
        return FunctionAgent(source)
    raise _error(f"{source!r:.80} is no agent.", stage, file, hint="It needs a method `run(request)`, or to be a function of the request.")


def _error(message: str, stage: Stage, file: str | None, *, nearest: str | None = None, hint: str | None = None) -> ConfigError:
    return ConfigError(message, file=file, line=stage.line_of("agent_type"), key=_key(stage), nearest=nearest, hint=hint)


def _key(stage: Stage) -> str:
    return f"stages.{stage.name}.agent_type"


Resolve = Callable[[str], str | None]
"""The text that a source stands for, or None if there is no such source."""
Kind = Literal["exact", "normalised", "near", "absent", "other figure", "other quote", "no source"]

_ONE_PLACE = 1_000  # characters
_FIGURE = re.compile(r"(?<![\w.])[-−]?\d+(?:[.,:]\d+)*(?![\w]*[A-Za-z_]\d)")
_QUOTED = re.compile(r"[“„«\"]([^“”„«»\"]{8,}?)[”“»\"]")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check of one finding found: whether it stands, how it is in its source, and why not, in words."""

    finding: Finding
    grounded: bool
    kind: Kind
    why: str = ""
    passage: Passage | None = None
    """Where it stands in its source."""


@dataclass(frozen=True, slots=True)
class GroundingReport:
    """The verdicts on all findings of one output."""

    verdicts: tuple[Verdict, ...]

    @property
    def ungrounded(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if not verdict.grounded)

    @property
    def summary(self) -> str:
        """One line for a person."""
        total, bad = len(self.verdicts), len(self.ungrounded)
        return f"{total - bad} of {counted(total, 'finding')} can be found in the sources." if total else "There are no findings to check."


def ground_output(output: StageOutput, resolve: Resolve) -> tuple[StageOutput, GroundingReport]:
    """The output with `grounded` set on each finding, and the verdicts. One that is not grounded lowers the confidence by one step; if
    several are there and none of them is, it is low."""
    verdicts = tuple(ground_finding(finding, resolve) for finding in output.key_findings)
    marked = tuple(replace(verdict.finding, grounded=verdict.grounded) for verdict in verdicts)
    report = GroundingReport(verdicts)
    confidence = lowered(output.confidence) if report.ungrounded else output.confidence
    if len(report.ungrounded) == len(report.verdicts) > 1:
        confidence = "low"
    return replace(output, key_findings=marked, confidence=confidence), report


def cited_texts(outputs: Iterable[StageOutput], read: Callable[[str], str]) -> Resolve:
    """The texts of the documents that outputs list, by the names under which findings cite them; InputError where one is gone."""
    refs: dict[str, str] = {}
    for output in outputs:
        listed = output.data.get("documents") if isinstance(output.data, Mapping) else None
        for one in listed if isinstance(listed, (list, tuple)) else ():
            if isinstance(one, Mapping) and isinstance(one.get("id"), str) and isinstance(one.get("ref"), str):
                refs.setdefault(one["id"], one["ref"])

    def resolve(source: str) -> str | None:
        ref = refs.get(source) or refs.get(source.partition("#")[0]) or (source if source.startswith("raw:") else None)
        return read(ref) if ref is not None else None

    return cache(resolve)


def recheck_output(output: StageOutput, resolve: Resolve, before: StageOutput | None = None) -> StageOutput:
    """The output with those findings marked that a person put in or changed, and that their source does not have.

    What extraction found is word for word in its source, so each of its findings is looked up. Of what others wrote only that is which is
    not in the output `before` the person's change, as far as there is something to look it up in.
    """
    extracted = isinstance(output.data, Mapping) and output.data.get("method") == "extraction"
    known = before.key_findings if before is not None else ()
    was_checked = any(one.grounded is not None for one in known)

    def stands(finding: Finding) -> bool | None:
        if finding.grounded is False or finding in known or not (extracted or before is not None):
            return finding.grounded
        try:
            if resolve(finding.source) is not None:
                found = ground_finding(finding, resolve)
                return finding.grounded if found.grounded and not (extracted and found.kind == "near") else False
        except InputError:  # the text is gone
            return finding.grounded
        return False if was_checked or (extracted and finding.grounded is None) else finding.grounded

    return grounded(output, [stands(finding) for finding in output.key_findings])


def ground_finding(finding: Finding, resolve: Resolve) -> Verdict:
    """Whether one fact is in the source that it names."""
    text = resolve(finding.source)
    if text is None:
        return Verdict(finding, False, "no source", f"there is no source {finding.source!r}")
    found = _ground(finding.fact, SourceText(finding.source, text))
    if found.kind in ("exact", "normalised"):
        return Verdict(finding, True, found.kind, passage=found.passage)
    missing = _missing_figure(finding.fact, text)
    if missing:
        return Verdict(finding, False, "other figure", f"the figure {missing} is not in {finding.source}")
    quote = next((quoted for quoted in _QUOTED.findall(finding.fact) if normalise(quoted).strip(" .,;:") not in normalise(text)), None)
    if quote is not None:
        return Verdict(finding, False, "other quote", f"the words “{quote[:80]}” are not in {finding.source}")
    if found.kind == "near":
        return Verdict(finding, True, "near", passage=found.passage)
    return Verdict(finding, False, "absent", f"{finding.source} does not say so")


def _ground(fact: str, source: SourceText) -> Grounding:
    """As `ground`, but what is nearly there has to be in one place: a log whose lines end in no full stop is one sentence to a splitter,
    and a page full of words and figures would hold nearly anything."""
    found = ground(fact, [source])
    if found.kind != "near" or found.passage is None or len(found.passage.text) <= _ONE_PLACE:
        return found
    start, best = 0, Grounding("absent", 0.0)
    for line in source.text.splitlines(keepends=True):
        near = ground(fact, [SourceText(source.id, line)]) if len(line) <= _ONE_PLACE else best
        if near.score > best.score and near.passage is not None:
            here = near.passage
            best = replace(near, passage=replace(here, start=start + here.start, end=start + here.end))
        start += len(line)
    return best


def strange_figures(text: str, sources: str) -> list[str]:
    """The figures of a text that its sources do not have, if there are several and they are most of its figures; else none.

    One or two that are new may be sums and counts of its own.
    """
    there = {_plain(figure) for figure in _FIGURE.findall(normalise(sources))}
    said = list(dict.fromkeys(_FIGURE.findall(normalise(text))))
    new = [figure for figure in said if _plain(figure) not in there]
    return new if len(new) > 2 and 2 * len(new) > len(said) else []


def _missing_figure(fact: str, text: str) -> str | None:
    """A figure of the fact that the source does not have, thousands separators aside."""
    there = {_plain(figure) for figure in _FIGURE.findall(normalise(text))}
    return next((figure for figure in _FIGURE.findall(normalise(fact)) if _plain(figure) not in there), None)


def _plain(figure: str) -> str:
    return re.sub(r"(?<=\d),(?=\d{3}(?:\D|$))", "", figure).replace(",", ".").rstrip(".:")


def lowered(confidence: Confidence) -> Confidence:
    """One step less sure.

    >>> lowered("high"), lowered("low")
    ('medium', 'low')
    """
    return CONFIDENCES[min(CONFIDENCES.index(confidence) + 1, len(CONFIDENCES) - 1)]
