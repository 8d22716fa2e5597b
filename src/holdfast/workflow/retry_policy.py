"""The verdict on an attempt at a stage: accept its output, ask again, retry after a back-off, or fail (W4, W11, W19). Pure.

What is said in a verdict goes into the session, into events and the log: secrets are taken out of it here (C3).
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.clock import Backoff
from holdfast.errors import (
    BudgetError,
    Cancelled,
    ConfigError,
    DiskFull,
    HoldfastError,
    InputError,
    LimitExceeded,
    ModelNotConfigured,
    ModelTooWeak,
    NotWritable,
    OutputInvalid,
    RevisionConflict,
    SyncFailed,
    WriteFailed,
)
from holdfast.redaction import redact_text
from holdfast.session.output import StageOutput, addressed, parse_output
from holdfast.session.state import SessionError
from holdfast.workflow.agent import StageResult
from holdfast.workflow.definition import Stage

LONGEST_PAUSE = 60.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_HOPELESS = (ConfigError, InputError, BudgetError, ModelNotConfigured, ModelTooWeak, Cancelled)
"""Trying again would fail in the same way."""
_LONGEST_RAW = 200_000
_LONGEST_TRACEBACK = 20_000
_PACKAGE = Path(__file__).parents[1]


class TimedOut(Exception):
    """A stage took longer than its `timeout_seconds`."""


@dataclass(frozen=True)
class Tries:
    """What a stage may still do: retries after failures, repairs of its output, one second look."""

    retries: int
    repairs: int
    failures: int = 0
    looked_again: bool = False

    @classmethod
    def of(cls, stage: Stage) -> Tries:
        return cls(stage.retries, stage.max_repairs)


@dataclass(frozen=True)
class Accept:
    """The output is good. `provisional` when its confidence is low."""

    output: StageOutput
    provisional: bool = False


@dataclass(frozen=True)
class AskAgain:
    """Ask the agent again at once, with this note: a repair, or a second look."""

    note: str
    tries: Tries
    problem: str | None = None
    """What was wrong with the output, for a repair."""


@dataclass(frozen=True)
class RetryLater:
    """Wait, then try the same again."""

    seconds: float
    tries: Tries
    kind: str
    message: str


@dataclass(frozen=True)
class Fail:
    """Give up. `output` is there when it fits and only its confidence is too low."""

    error: SessionError
    output: StageOutput | None = None


Verdict = Accept | AskAgain | RetryLater | Fail


def stops_the_run(error: BaseException | None) -> BaseException | None:
    """The error with which the whole run stops at once, if this is one: a write that failed, or a limit that is reached (W15, T5)."""
    if isinstance(error, WriteFailed | SyncFailed | RevisionConflict | LimitExceeded):
        return error
    if isinstance(error, OSError) and error.errno in _FULL:
        return DiskFull(f"there is no space left: {error}.", path=error.filename, operation="write", hint="Free some space, then resume.")
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return NotWritable(f"the file system cannot be written: {error}.", path=error.filename, operation="write")
    return None


def verdict_on(stage: Stage, tries: Tries, result: StageResult | None, error: BaseException | None) -> Verdict:
    """The verdict on one attempt: exactly one of `result` and `error` is given."""
    if error is None and result is not None:
        try:
            return _weighed(stage, tries, parse_output(addressed(result.output, stage.name), stage=stage.name, schema=stage.output_schema))
        except OutputInvalid as invalid:
            error = invalid
    if isinstance(error, OutputInvalid):
        return _malformed(stage, tries, error)
    return _failed(stage, tries, error or RuntimeError("the agent returned nothing"))


def _weighed(stage: Stage, tries: Tries, output: StageOutput) -> Verdict:
    if output.confidence != "low" or stage.on_low_confidence == "continue":
        return Accept(output, provisional=output.confidence == "low")
    if stage.on_low_confidence == "recheck":
        if tries.looked_again:
            return Accept(output, provisional=True)
        note = f"Your last answer had a low confidence. Look again, check it, and answer anew. It said: {output.summary}"
        return AskAgain(note, replace(tries, looked_again=True))
    error = SessionError(
        stage.name,
        "low_confidence",
        f"the stage {stage.name!r} has a low confidence in its result, and `on_low_confidence: halt` is set.",
        hint="Look at its output in this file. `holdfast resume` goes on with it, `holdfast session fix` puts a better one in.",
    )
    return Fail(error, output)


def _malformed(stage: Stage, tries: Tries, error: OutputInvalid) -> Verdict:
    if tries.repairs > 0:
        listed = "\n".join(f"- {problem}" for problem in error.problems) or f"- {error.message}"
        note = f"Your last answer was not accepted. Answer again in the form that is asked for. What was wrong:\n{listed}"
        return AskAgain(note, replace(tries, repairs=tries.repairs - 1), redact_text(error.message))
    hint = "`holdfast session fix` puts a corrected output in; editing this file works as well. Then `holdfast resume`."
    raw = error.raw if not isinstance(error.raw, str) else error.raw[:_LONGEST_RAW]
    problems = tuple(redact_text(problem) for problem in error.problems)
    return Fail(SessionError(stage.name, "malformed_output", redact_text(error.message), problems, _plain(raw), hint=hint))


def told(error: BaseException) -> str:
    """What an exception says, with its class unless it is one of ours."""
    text = redact_text(str(error).strip())
    if text and isinstance(error, TimedOut | HoldfastError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Where an agent's exception came from, as Python prints it, from the first frame that is not in this package."""
    frames = error.__traceback__
    while frames is not None and Path(frames.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames or error.__traceback__)
    return redact_text("".join(lines).rstrip()[-_LONGEST_TRACEBACK:])


def _failed(stage: Stage, tries: Tries, error: BaseException) -> Verdict:
    kind = "timeout" if isinstance(error, TimedOut) else "stage_failed"
    message = told(error)
    hopeless = isinstance(error, _HOPELESS) or getattr(error, "retryable", None) is False
    if tries.retries > 0 and not hopeless:
        pause = _backoff(stage, tries.failures + 1, error)
        return RetryLater(pause, replace(tries, retries=tries.retries - 1, failures=tries.failures + 1), kind, message)
    after = f" after {tries.failures + 1} tries" if tries.failures else ""
    hint = "Mend the cause, then `holdfast resume` runs the stage again."
    return Fail(SessionError(stage.name, kind, f"the stage {stage.name!r} failed{after}: {message}", hint=hint))


def _backoff(stage: Stage, failures: int, error: BaseException) -> float:
    """Twice as long each time; longer if the other side said how long, as a rate limit does."""
    asked = getattr(error, "retry_after", None)
    wanted = float(asked) if isinstance(asked, int | float) and not isinstance(asked, bool) and asked > 0 else 0.0
    return min(LONGEST_PAUSE, max(Backoff(stage.retry_seconds, LONGEST_PAUSE).pause(failures), wanted))


def _plain(value: object) -> object:
    """The raw output as JSON can hold it."""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return repr(value)[:_LONGEST_RAW]
