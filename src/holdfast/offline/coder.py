"""The coder without a model: it runs code that was given to it, in the sandbox that was given to it, and writes none itself (W12, W18)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from holdfast.amounts import counted
from holdfast.errors import ConfigError
from holdfast.offline.stage_settings import texts
from holdfast.session.output import Finding, StageOutput
from holdfast.workflow.agent import StageRequest, StageResult

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
        return StageResult(output=_output(request, code, language, origin, ran))


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
            return place.read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the script {name!r} cannot be read: {error}.",
                line=request.stage.line_of("script"),
                key=f"stages.{request.stage.name}.script",
            ) from error
    raise ConfigError(
        f"there is no script {name!r}.",
        line=request.stage.line_of("script"),
        key=f"stages.{request.stage.name}.script",
        hint="Give the path of a file.",
    )


def _idle(request: StageRequest, why: str, code: str | None = None) -> StageOutput:
    data: dict[str, Any] = {"method": "extraction", "ran": False}
    if code is not None:
        data["code"] = code
    advice = "Configure a sandbox for this run, or a model that writes code."
    return StageOutput(request.stage.name, why, confidence="low", next_stage_recommendations=(advice,), data=data)


def _output(request: StageRequest, code: str, language: str, origin: str, ran: Ran) -> StageOutput:
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
