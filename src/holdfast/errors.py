"""Every error that Holdfast raises on purpose.

    HoldfastError
    ├── ConfigError              a setting is wrong; knows file, line, key and what would fit
    │   ├── WrongValue           an argument that LangChain's classes have too (also a ValueError)
    │   ├── WrongType            the same, of a kind that does not fit (also a TypeError)
    │   ├── MissingVariable      an environment variable that a setting names is not set
    │   ├── NotTrusted           a file that was merely found asks for more than its user has agreed to
    │   └── NotImportable        a setting names a class or function that cannot be imported
    ├── ExtraMissing             a part needs packages that an extra of this distribution installs (also an ImportError)
    ├── InputError               a name, argument or file given by a person is not usable
    │   ├── NotThere             what it names does not exist
    │   └── InTheWay             things stand so that it cannot be done: it is there already, or nothing waits for it
    ├── StorageError             files and databases; knows the path and the operation
    │   ├── WriteFailed          nothing new is visible, the old content stands
    │   │   ├── DiskFull         no space, no inodes or over quota
    │   │   └── NotWritable      no permission, or a read-only file system
    │   ├── SyncFailed           fsync failed: what was written may be gone, the file is given up
    │   ├── Damaged              stored bytes do not check out
    │   ├── OutsideRoot          a path would lead out of its folder
    │   ├── Locked               somebody else holds it, and who
    │   ├── RevisionConflict     somebody else wrote first
    │   └── StoreUnavailable     a database or server cannot be reached; nothing was written
    ├── BudgetError              the fixed parts of a prompt do not fit the window
    ├── SummaryError             the summarizer failed, or answered what cannot be a summary
    ├── LimitExceeded            tokens or cost of a run or session are used up
    ├── ModelError               anything about a language model
    │   ├── ModelNotConfigured   a name that is not in `models`, or no model at all
    │   ├── ModelUnavailable     it is configured, but cannot be loaded or reached
    │   ├── ModelTooWeak         its profile says that it cannot do what is asked
    │   ├── ExtractionFailed     it gave no answer that fits the schema, not even when it was shown what was wrong
    │   └── CallFailed           a call failed; knows the kind, the status, and whether asking again may help
    │       ├── CallUnavailable  the provider was not reached, or would not serve us (also a ModelUnavailable)
    │       └── ContextOverflow  the request is larger than the model's window
    ├── WorkflowError            a session cannot go on; knows the session and the stage
    │   ├── OutputInvalid        what a stage returned does not fit; knows each problem and the raw output
    │   ├── StageFailed          a stage raised, timed out or used up its retries
    │   ├── WorkflowChanged      the definition is not the one that the session was started with
    │   ├── ApprovalWanted       a stage wants to make a call that waits for a person; knows the whole call
    │   └── Cancelled            somebody asked it to stop; it can be resumed
    ├── SandboxError             a command or a file tool could not be run as asked
    │   ├── SandboxUnavailable   there is no safe way to run commands here
    │   └── QuotaExceeded        the files of a thread would take more room than they may (also an InputError)
    └── WebError                 a page or a search could not be had
        └── AddressRefused       the address is not one that may be asked

Each says what happened, where, and what would mend it, and carries those parts as attributes. Secrets never appear in
them. `exit_code` is what the command line ends with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import ClassVar, Literal


class HoldfastError(Exception):
    """The root of all errors raised on purpose. `hint` says what would mend it, in one sentence."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        from holdfast.redaction import redact_text  # when an error is shown, not when the package is imported

        return redact_text(f"{self.message} {self.hint}" if self.hint else self.message)

    @property
    def public(self) -> str:
        """What happened, for somebody who is not on this machine: no paths of it, no secrets."""
        from holdfast.redaction import redact_text, without_paths

        return without_paths(redact_text(self.message))


class InputError(HoldfastError):
    """What a person gave (a name, an argument, a file) cannot be used. Says what would fit."""

    exit_code = 2


class NotThere(InputError):
    """What was named does not exist: a session, a fact, a record, a message. Says what there is, where that helps."""


class InTheWay(InputError):
    """What was asked for cannot be done as things stand: it is there already, or nothing waits for it. The request is well formed."""


class ExtraMissing(HoldfastError, ImportError):
    """A part needs a package that is not installed. `extra` is what to put between the brackets of `pip install 'holdfast[...]'`."""

    exit_code = 2

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {module}, which is not installed.", hint=f"Install it with `pip install 'holdfast[{extra}]'`."
        )
        self.module = module
        self.extra = extra


class ConfigError(HoldfastError):
    """A setting is wrong. Says file, line and key, and what would fit."""

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | PathLike[str] | None = None,
        line: int | None = None,
        key: str | None = None,
        nearest: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.file = fspath(file) if file is not None else None
        self.line = line
        self.key = key
        self.nearest = nearest
        self.others: list[ConfigError] = []
        """What else is wrong in the same file, in the order of the lines."""

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        head = f"{where}: " if where else ""
        key = f"{self.key}: " if self.key else ""
        return f"{head}{key}{super().__str__()}"


class WrongValue(ConfigError, ValueError):
    """An argument has a value that cannot be: what LangChain's own class raises a ValueError for."""


class WrongType(ConfigError, TypeError):
    """An argument is of a kind that cannot be: what LangChain's own class raises a TypeError for."""


class MissingVariable(ConfigError):
    """A setting names an environment variable that is not set."""

    def __init__(self, variable: str, *, file: str | PathLike[str] | None = None, line: int | None = None, key: str | None = None) -> None:
        super().__init__(
            f"the environment variable {variable} is not set.",
            file=file,
            line=line,
            key=key,
            hint="Set it with `export` in the shell from which you start this.",
        )
        self.variable = variable


class NotTrusted(ConfigError):
    """What is to be done needs a setting of a file that was merely found, and its user has not agreed to that file."""


class NotImportable(ConfigError):
    """A dotted path of a setting leads to nothing that can be imported. `missing` is the module that was not found, if one was not."""

    def __init__(
        self,
        message: str,
        path: str,
        *,
        missing: str | None = None,
        file: str | PathLike[str] | None = None,
        line: int | None = None,
        key: str | None = None,
        nearest: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, file=file, line=line, key=key, nearest=nearest, hint=hint)
        self.path = path
        self.missing = missing


class StorageError(HoldfastError):
    """Files or databases did not do what was asked. Knows the path and the operation."""

    exit_code = 3

    def __init__(
        self, message: str, *, path: str | PathLike[str] | None = None, operation: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = fspath(path) if path is not None else None
        self.operation = operation

    @classmethod
    def closed(cls, what: str, path: str | PathLike[str] | None = None, *, operation: str | None = None) -> StorageError:
        """What everything says that was closed and is used again: it does not open again by itself."""
        return cls(f"{what} is closed.", path=path, operation=operation, hint="Open it again.")

    @property
    def public(self) -> str:
        """What kind of failure it was; the message itself is about files of this machine."""
        return f"{_PUBLIC.get(type(self).__name__, 'what is kept could not be read or written')}."


_PUBLIC = {
    "DiskFull": "the disk is full",
    "NotWritable": "the place where data is kept may not be written",
    "Damaged": "stored data is damaged",
    "OutsideRoot": "that path leads out of its folder",
    "Locked": "somebody else is at it right now",
    "RevisionConflict": "somebody else changed it meanwhile",
    "StoreUnavailable": "the place where data is kept cannot be reached",
}


class WriteFailed(StorageError):
    """A write did not happen. Nothing new is visible and the old content stands."""


class DiskFull(WriteFailed):
    """No space, no inodes, or over quota."""


class NotWritable(WriteFailed):
    """No permission, or a read-only file system."""


class SyncFailed(StorageError):
    """fsync failed: the kernel may have dropped what was written, so the file is given up and never synced again."""


class Damaged(StorageError):
    """Stored bytes do not check out. `position` is the byte where the damage begins."""

    def __init__(
        self, message: str, *, path: str | PathLike[str] | None = None, position: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, path=path, operation="read", hint=hint)
        self.position = position


class OutsideRoot(StorageError):
    """A path would lead out of the folder it belongs to."""

    exit_code = 2


class Locked(StorageError):
    """Somebody else holds it. `owner` says who, as far as is known."""

    def __init__(self, message: str, *, path: str | PathLike[str] | None = None, owner: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, path=path, operation="lock", hint=hint)
        self.owner = owner


class RevisionConflict(StorageError):
    """Somebody else wrote first. Read again, apply the change to what is there now, and write that."""

    def __init__(self, message: str, *, path: str | PathLike[str] | None = None, expected: object = None, found: object = None) -> None:
        super().__init__(message, path=path, operation="commit")
        self.expected = expected
        self.found = found


class StoreUnavailable(StorageError):
    """A database or server cannot be reached or refuses us. Nothing was written. Addresses in the message carry no password."""


class BudgetError(HoldfastError):
    """The fixed parts of a prompt do not fit the window. `needs` says what needs how many tokens."""

    def __init__(self, message: str, *, window: int, needs: Mapping[str, int], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.window = window
        self.needs = dict(needs)


class LimitExceeded(HoldfastError):
    """The tokens or the cost allowed to a run or a session are used up. Everything done so far is kept."""

    def __init__(self, message: str, *, account: str, kind: str, used: float, allowed: float) -> None:
        super().__init__(message, hint="Raise the limit, or start a new run.")
        self.account = account
        self.kind = kind
        self.used = used
        self.allowed = allowed


class ModelError(HoldfastError):
    """Something about a language model. `model` is its name in the configuration, where there is one."""

    def __init__(self, message: str, *, model: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.model = model


class ModelNotConfigured(ModelError):
    """The name is not in `models`, or there is no model at all."""

    exit_code = 2


class ModelUnavailable(ModelError):
    """The model is configured, but cannot be loaded or reached."""


class ModelTooWeak(ModelError):
    """The model's profile says that it cannot do what is asked of it."""


class ExtractionFailed(ModelError):
    """The model gave no answer that fits the schema, not even when it was shown what was wrong."""


FailureKind = Literal[
    "authentication",
    "permission",
    "not_found",
    "quota",
    "rate_limit",
    "server",
    "connection",
    "timeout",
    "overflow",
    "max_tokens",
    "invalid",
    "garbled",
    "broken_off",
    "unknown",
]
"""How a call of a model can fail."""


class CallFailed(ModelError):
    """A call of a model failed. `kind` says how; `status` is the HTTP status, if any; `retryable` is whether asking again may help, and
    `retry_after` after how many seconds, where the server said so."""

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        model: str | None = None,
        hint: str | None = None,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, model=model, hint=hint)
        self.kind = kind
        self.retry_after = retry_after
        self.status = status
        self.retryable = retryable


class CallUnavailable(CallFailed, ModelUnavailable):
    """The provider could not be reached, or would not serve us: key, permission, name, limits, time-out, its own failure."""


class ContextOverflow(CallFailed):
    """The request is larger than the model's window."""


class SummaryError(HoldfastError):
    """The summarizer failed, or answered something that cannot be a summary. `words` is how many came of one that its token limit cut."""

    def __init__(self, message: str, *, words: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.words = words


class WorkflowError(HoldfastError):
    """A session cannot go on. `session` and `stage` say where; what was done so far is on disk."""

    exit_code = 4

    def __init__(self, message: str, *, session: str | None = None, stage: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.session = session
        self.stage = stage


class OutputInvalid(WorkflowError):
    """What a stage returned does not fit its contract. `problems` names each place and what is wrong there, `raw` is what was returned."""

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[str] = (),
        raw: object = None,
        session: str | None = None,
        stage: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, session=session, stage=stage, hint=hint)
        self.problems = tuple(problems)
        self.raw = raw


class StageFailed(WorkflowError):
    """A stage raised, hung or used up its retries."""


class WorkflowChanged(WorkflowError):
    """The workflow definition is not the one that the session was started with."""

    exit_code = 2


class ApprovalWanted(WorkflowError):
    """A stage wants to make a call that waits for a person. `tool` and `arguments` are the call, `call` is its id."""

    exit_code = 5

    def __init__(self, message: str, *, call: str, tool: str, args: Mapping[str, object], session: str, stage: str) -> None:
        super().__init__(message, session=session, stage=stage, hint=f"`holdfast approve {session} {stage}`, or `holdfast reject`.")
        self.call = call
        self.tool = tool
        self.arguments = dict(args)


class Cancelled(WorkflowError):
    """Somebody asked it to stop. Everything done so far is kept, and it can be resumed."""

    exit_code = 130


class SandboxError(HoldfastError):
    """A command or a file tool could not be run as it was asked for."""


class SandboxUnavailable(SandboxError):
    """There is no safe way to run commands on this machine. Says what to install or allow."""


class QuotaExceeded(SandboxError, InputError):
    """The files of a thread would take more room than `sandbox.max_bytes` allows."""

    exit_code = 2


class WebError(HoldfastError):
    """A page or a search could not be had. `address` is where it was looked for, without passwords and keys."""

    def __init__(self, message: str, *, address: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.address = address


class AddressRefused(WebError):
    """The address is not one that may be asked: another scheme, or not a public host. Nothing was sent to it."""

    exit_code = 2
