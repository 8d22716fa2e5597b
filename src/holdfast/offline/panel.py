"""Stages that only a model could do in full, without one (W12): discussions, in which each role finds its sentences, the plain stage, code.

Without a capable model nobody can talk. Each participant then stands for a question, the words of its role, and what answers it is
selected from what the stage was given, word for word and with its source; the output says so (W18). In a plain stage the
system prompt is the question. The coder runs code that was given to it, in the sandbox that was given to it, and writes none itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from holdfast.durable.folder import open_outside
from holdfast.extract.selection import SourceText, select
from holdfast.offline.documents import Library, SourceDocument, closing_units, tainted_units
from holdfast.offline.sources import check_sources, gather, library_of_outputs, mapping, stand_ins, texts, whole_number, wrong
from holdfast.session.output import CONFIDENCES, Finding, StageOutput, data_problems
from holdfast.text.normalise import inert, one_line
from holdfast.validation import counted
from holdfast.workflow.agent import StageRequest, StageResult, ground_output
from holdfast.workflow.definition import Stage

MAX_TURNS = 12
MAX_TOKENS = 60_000
_MOST = 20
_LONGEST_NAME = 40
_RESERVED = ("moderator", "nobody", "task")
_STATEMENT = 150  # tokens of what one participant finds
_KEYS = {"participants": ("name", "prompt", "system_prompt", "model", "tools"), "moderator": ("prompt", "system_prompt", "model")}


@dataclass(frozen=True)
class Participant:
    """One role of a discussion. Without a model of its own it has that of the stage; `tools` are the names of those it may use."""

    name: str
    prompt: str
    model: str | None = None
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Moderator:
    """Who says whose turn it is, and when enough was said."""

    prompt: str = ""
    model: str | None = None


@dataclass(frozen=True)
class Discussion:
    """What a stage of the type `discussion` says. Without a moderator the participants speak in their order."""

    participants: tuple[Participant, ...]
    moderator: Moderator | None = None
    max_turns: int = MAX_TURNS
    max_tokens: int = MAX_TOKENS

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.participants)

    def after(self, name: str | None) -> Participant:
        """Who is next when the participants speak in their order."""
        place = self.names.index(name) + 1 if name in self.names else 0
        return self.participants[place % len(self.participants)]

    def models(self) -> list[tuple[str, str]]:
        """The models that are named, each with the key that names it."""
        named = [(f"participants[{number}].model", one.model) for number, one in enumerate(self.participants)]
        named.append(("moderator.model", self.moderator.model if self.moderator is not None else None))
        return [(key, model) for key, model in named if model is not None]


def read_discussion(stage: Stage) -> Discussion:
    """The discussion that a stage describes. ConfigError names the key that does not fit."""
    listed = stage.settings.get("participants")
    if not isinstance(listed, list | tuple) or len(listed) < 2:
        raise wrong(stage, "participants", "a discussion needs at least two participants.", _FORM)
    if len(listed) > _MOST:
        raise wrong(stage, "participants", f"it has {counted(len(listed), 'participant')}; at most {_MOST} can talk with each other.")
    participants = tuple(_participant(stage, number, value) for number, value in enumerate(listed))
    names = [one.name.casefold() for one in participants]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise wrong(stage, f"participants[{number}].name", f"another participant is called {participants[number].name!r} already.")
    turns = whole_number(stage, "max_turns", MAX_TURNS)
    return Discussion(participants, _moderator(stage), turns, whole_number(stage, "max_tokens", MAX_TOKENS))


_FORM = "Write `participants: [{name: Optimist, prompt: ...}, {name: Sceptic, prompt: ...}]`."


def _participant(stage: Stage, number: int, value: object) -> Participant:
    key = f"participants[{number}]"
    said = mapping(stage, key, value, _KEYS["participants"])
    name = said.get("name")
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or one_line(name) != name.strip():
        raise wrong(stage, f"{key}.name", f"every participant has a name of at most {_LONGEST_NAME} characters.", _FORM)
    if name.strip().casefold() in _RESERVED:
        raise wrong(stage, f"{key}.name", f"{name.strip()!r} has a meaning of its own in a discussion.", "Give it another name.")
    prompt = _text(stage, key, said, "prompt") or _text(stage, key, said, "system_prompt")
    if not prompt:
        raise wrong(stage, f"{key}.prompt", f"the participant {name.strip()} has no prompt.", "Say who it is and what it looks at.")
    tools = said.get("tools")
    if tools is not None and not (isinstance(tools, list | tuple) and all(isinstance(one, str) for one in tools)):
        raise wrong(stage, f"{key}.tools", "is a list of names of tools.")
    return Participant(name.strip(), prompt, _text(stage, key, said, "model") or None, None if tools is None else tuple(tools))


def _moderator(stage: Stage) -> Moderator | None:
    value = stage.settings.get("moderator")
    if value in (None, False):
        return None
    if value is True:
        return Moderator()
    said = mapping(stage, "moderator", value, _KEYS["moderator"])
    prompt = _text(stage, "moderator", said, "prompt") or _text(stage, "moderator", said, "system_prompt")
    return Moderator(prompt, _text(stage, "moderator", said, "model") or None)


def _text(stage: Stage, key: str, said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong(stage, f"{key}.{name}", f"is {value!r:.60}; it must be a text.")
    return value.strip()


class Panel:
    """The discussion without a model: for each role the sentences that speak to it."""

    def check(self, stage: Stage) -> None:
        """ConfigError for settings that do not fit, and for what only a model can do where none is configured."""
        discussion = read_discussion(stage)
        for key, model in discussion.models():
            raise wrong(
                stage, key, f"there is no model named {model!r}: none is configured.", "Configure it in `models`, or take the name out."
            )
        if stage.output_schema is not None and data_problems(_data(discussion, {}), stage.output_schema, stage=stage.name):
            raise wrong(
                stage, "output_schema", "only a model can write data in this form, and none is configured.", "Configure one in `models`."
            )

    def run(self, request: StageRequest) -> StageResult:
        discussion = read_discussion(request.stage)
        said: dict[str, list[Finding]] = {}
        found: dict[tuple[str, str], Finding] = {}
        for participant in discussion.participants:
            asked = f"{participant.prompt} {request.task}"
            library = readings(request, asked)
            texts = [SourceText(document.id, without_orders(document)) for document in library]
            refs = {document.id: document.ref for document in library}
            for passage in select(texts, budget=_STATEMENT, question=asked).passages:
                if passage.text.strip("#- \n"):
                    ref = refs[passage.source]
                    one = Finding(one_line(passage.text), passage.source, extra={"raw": ref} if ref else {})
                    said.setdefault(participant.name, []).append(one)
                    found.setdefault((one.fact, one.source), one)
        library = readings(request, request.task)
        output = ground_output(_output(request, discussion, said, found, _kept(request, discussion, said)), library.text_of)[0]
        return StageResult(output=output)


def _kept(request: StageRequest, discussion: Discussion, said: Mapping[str, list[Finding]]) -> str:
    lines = [f"# Discussion: {request.stage.name}", inert(request.task), "There is no model, so nobody spoke. What speaks to each role:"]
    for name in discussion.names:
        facts = "\n".join(f"- {one.fact} [{one_line(one.source)}]" for one in said.get(name, ())) or "(nothing was found)"
        lines += [f"## {name}", facts]
    text = "\n\n".join(lines) + "\n"
    request.show("transcript", text)
    return request.raw.put(text, source=f"transcript of {request.stage.name}", media_type="text/markdown")


def _output(
    request: StageRequest,
    discussion: Discussion,
    said: Mapping[str, list[Finding]],
    found: Mapping[tuple[str, str], Finding],
    transcript: str,
) -> StageOutput:
    given = [output.confidence for output in request.given if output.key_findings]
    about = ", ".join(f"{name} ({len(said.get(name, ()))})" for name in discussion.names)
    summary = f"Sentences that speak to each role, word for word: {about}. Without a model nobody discussed them; nothing was generated."
    return StageOutput(
        request.stage.name,
        summary if found else "There was nothing to select from. Nothing was generated.",
        tuple(found.values()),
        max((*given, "medium"), key=CONFIDENCES.index) if found else "low",
        ("Weigh what was found for the different roles.",) if found else ("Give this stage sources, or outputs to read.",),
        tuple(dict.fromkeys((transcript, *(str(one.extra["raw"]) for one in found.values() if "raw" in one.extra)))),
        _data(discussion, said),
    )


def _data(discussion: Discussion, said: Mapping[str, list[Finding]]) -> dict[str, Any]:
    return {"method": "extraction", "statements": {name: [one.fact for one in said.get(name, ())] for name in discussion.names}}


_TOKENS = 400


class Plain:
    """Selects the sentences that answer the system prompt and the task. Settings: `max_tokens` of what is selected (400), `sources`.

    It reads the findings and raw data of the outputs that it was given, the retrieved memories, and its own `sources`.
    """

    def check_sources(self, stage: Stage, home: Path | None) -> None:
        """ConfigError for sources that cannot be read."""
        check_sources(stage, home)

    def run(self, request: StageRequest) -> StageResult:
        budget = whole_number(request.stage, "max_tokens", _TOKENS)
        asked = " ".join(part.strip() for part in (request.system_prompt, request.task) if part.strip())
        library = readings(request, asked)
        question = asked or None
        extract = select([SourceText(document.id, without_orders(document)) for document in library], budget=budget, question=question)
        findings = tuple(
            Finding(" ".join(passage.text.split()), passage.source) for passage in extract.passages if passage.text.strip("#- \n")
        )
        refs = {
            document.id: document.ref or request.raw.put(document.text, source=document.id, media_type="text/markdown")
            for document in library
        }
        used = dict.fromkeys(finding.source for finding in findings)
        left = sum(one.units for one in extract.left_out)
        given = [output.confidence for output in request.given if output.key_findings]
        output = StageOutput(
            request.stage.name,
            _summary(len(findings), len(library), left),
            tuple(Finding(one.fact, one.source, extra={"raw": refs[one.source]}) for one in findings),
            max((*given, "medium"), key=CONFIDENCES.index) if findings else "low",
            () if findings else ("Give this stage sources, or outputs to read.",),
            tuple(dict.fromkeys(refs[name] for name in used)),
            {"method": "extraction", "text": extract.text},
        )
        return StageResult(output=ground_output(output, library.text_of)[0])


def _summary(found: int, texts: int, left: int) -> str:
    if not found:
        return "There was nothing to select from. Nothing was generated."
    selected = f"Selected for what was asked, word for word: {counted(found, 'sentence')} of {counted(texts, 'text')}"
    return f"{selected}; left out: {left:,}. Nothing was generated."


def readings(request: StageRequest, asked: str) -> Library:
    """All that the stage may read: raw data of the given outputs, findings whose raw data is not at hand, memories, its own sources."""
    library = library_of_outputs(request)
    for document in stand_ins(request.given, library):
        library.add(document)
    for document in gather(request, [asked] if asked else []):
        if library.get(document.id) is None:
            library.add(document)
    return library


def without_orders(document: SourceDocument) -> str:
    """The text without what gives orders to an assistant, and without the end of a letter."""
    bad = tainted_units(document) | closing_units(document)
    text = document.text
    for n in sorted(bad, reverse=True):
        passage = document.units[n].passage
        text = text[: passage.start] + text[passage.end :]
    return text


_LONGEST = 4000  # characters of an output's tail that are handed on as findings; all of it is raw data
_LINES = 20
_FENCE = re.compile(r"^```(?P<language>[\w+-]*)[ \t]*\n(?P<code>.*?)\n```[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run of code did: its exit code, what it printed, and whether it was stopped for taking too long."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False


class RunCode(Protocol):
    """A way to run code safely. What it cannot run safely it refuses with a SandboxError."""

    def __call__(self, code: str, *, language: str, folder: Path, request: StageRequest) -> Ran: ...


@dataclass
class Coder:
    """Runs the `code` of the stage's settings, or of the given outputs. Settings: `code`, or `script` (a path), and `language` (python).

    Without a sandbox nothing is run, and the output says so.
    """

    sandbox: RunCode | None = None

    def run(self, request: StageRequest) -> StageResult:
        found = _code(request)
        if found is None:
            return StageResult(
                output=_idle(request, "There is no code to run: the stage has neither `code` nor `script`, and no given output holds any.")
            )
        code, language, origin = found
        if self.sandbox is None:
            return StageResult(output=_idle(request, "There is code to run, and no sandbox to run it in. Nothing was run.", code))
        request.emit(f"running {origin} ({language})")
        ran = self.sandbox(code, language=language, folder=request.folder, request=request)
        return StageResult(output=_run_output(request, code, language, origin, ran))


def _code(request: StageRequest) -> tuple[str, str, str] | None:
    """The code, its language, and where it is from."""
    language = str(request.stage.settings.get("language", "python"))
    if "code" in request.stage.settings:
        return "\n".join(texts(request.stage, "code", request.stage.settings["code"])), language, "the stage's code"
    if "script" in request.stage.settings:
        name = texts(request.stage, "script", request.stage.settings["script"])[0]
        return _script(request, name), language, name
    for output in reversed(request.given):
        data: Mapping[str, Any] = output.data if isinstance(output.data, Mapping) else {}
        if isinstance(data.get("code"), str) and data["code"].strip():
            return data["code"], str(data.get("language", language)), f"the code of stage {output.stage_name}"
        fenced = _FENCE.search(output.summary)
        if fenced:
            return fenced["code"], fenced["language"] or language, f"the code in the summary of stage {output.stage_name}"
    return None


def _script(request: StageRequest, name: str) -> str:
    path = Path(name).expanduser()
    home = request.home
    places = [*([Path(home) / path] if home is not None else []), path]
    for place in places:
        try:
            with open_outside(place) as file:
                return file.read().decode("utf-8")
        except (FileNotFoundError, IsADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise wrong(request.stage, "script", f"the script {name!r} cannot be read: {error}.") from error
    raise wrong(request.stage, "script", f"there is no script {name!r}.", "Give the path of a file.")


def _idle(request: StageRequest, why: str, code: str | None = None) -> StageOutput:
    data: dict[str, Any] = {"method": "extraction", "ran": False}
    if code is not None:
        data["code"] = code
    advice = "Configure a sandbox for this run, or a model that writes code."
    return StageOutput(request.stage.name, why, confidence="low", next_stage_recommendations=(advice,), data=data)


def _run_output(request: StageRequest, code: str, language: str, origin: str, ran: Ran) -> StageOutput:
    printed = request.raw.put(ran.stdout, source="stdout", media_type="text/plain")
    errors = [request.raw.put(ran.stderr, source="stderr", media_type="text/plain")] if ran.stderr else []
    well = ran.exit_code == 0 and not ran.timed_out
    lines = [line.strip() for line in ran.stdout[-_LONGEST:].splitlines() if line.strip()][-_LINES:]
    ended = "was stopped because it took too long" if ran.timed_out else f"ended with exit code {ran.exit_code}"
    return StageOutput(
        request.stage.name,
        f"Ran {origin} ({language}), which {ended} and printed {counted(len(ran.stdout.splitlines()), 'line')}. "
        "The code was given; nothing was generated.",
        tuple(Finding(line, printed, True) for line in lines),
        "high" if well else "low",
        ()
        if well
        else (f"Mend the code: {ran.stderr.strip().splitlines()[-1][:300]}" if ran.stderr.strip() else "Find out why the code failed.",),
        (printed, *errors),
        {
            "method": "extraction",
            "ran": True,
            "code": code,
            "exit_code": ran.exit_code,
            "stdout": ran.stdout[-_LONGEST:],
            "stderr": ran.stderr[-_LONGEST:],
        },
    )
