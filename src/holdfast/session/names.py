"""Names that become parts of paths: ids of sessions, names of recovery points, folders of stages. This is the only gate for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from holdfast.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


def check_session_id(workflow_id: object) -> str:
    """The id, or an InputError that says what is allowed. Letters keep their case.

    >>> check_session_id("research-2026-04-19-001")
    'research-2026-04-19-001'
    """
    if not isinstance(workflow_id, str) or _NAME.fullmatch(workflow_id) is None or workflow_id.lower().endswith(".json"):
        raise InputError(
            f"{_shown(workflow_id)} is not a usable id for a session.",
            hint="Use 1 to 128 ASCII letters, digits, dots, hyphens and underscores, a letter or digit first, and not .json at the end.",
        )
    return workflow_id


def is_session_id(name: str) -> bool:
    """Whether a session may have this id."""
    try:
        check_session_id(name)
    except InputError:
        return False
    return True


def check_checkpoint_name(name: object) -> str:
    """The name, or an InputError that says what is allowed."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InputError(
            f"{_shown(name)} is not a usable name for a recovery point.",
            hint="Use 1 to 128 ASCII letters, digits, dots, hyphens and underscores, a letter or digit first.",
        )
    return name


def id_stem(workflow_id: str) -> str:
    """The id of a workflow as the beginning of a session's id: what may not stand there becomes a hyphen.

    >>> id_stem("Latency benchmark!")
    'Latency-benchmark'
    """
    return _STRANGE.sub("-", workflow_id).strip("-._")[:100] or "session"


def stage_folder(number: int, stage: str) -> str:
    """The folder of a stage: `03-web_research`. What may not stand in a name becomes a hyphen.

    >>> stage_folder(3, "web research/../x")
    '03-web-research-..-x'
    """
    return f"{number:02d}-{_STRANGE.sub('-', stage)[:100]}"


def stage_files(number: int, stage: str, *, context: str | None = None, output: str | None = None) -> dict[str, str]:
    """What a stage was given and what it wrote, by the names of their files below `stages/` (W7)."""
    given = {"context": context, "output": output}
    folder = stage_folder(number, stage)
    return {f"{folder}/{name}.md": _storable(text) for name, text in given.items() if text is not None}


def _storable(text: str) -> str:
    """A text as every store can keep it: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def near(name: str, others: Iterable[str]) -> str:
    """A sentence that names what is like it, or what there is."""
    known = list(others)
    close = get_close_matches(name, known, n=3, cutoff=0.6) or known[:5]
    return f"There is: {', '.join(close)}." if close else "There is none yet."


def no_session(workflow_id: str, others: Iterable[str]) -> InputError:
    """That there is no such session, naming near ones."""
    return InputError(f"there is no session {workflow_id!r}.", hint=near(workflow_id, others))


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 160 else f"{shown[:157]}..."
