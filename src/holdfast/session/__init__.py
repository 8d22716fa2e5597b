"""Session state, the contract of a stage's output, and the stores that keep both.

May import `tokens`, `search`, `extract` and what is below them; never `context`, `memory` or `knowledge`.
Start with `store.py`, the promises; then `state.py` and `output.py`, the values; then `files.py`, the store that is the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.session.files import FileSessionStore
    from holdfast.session.opening import open_sessions
    from holdfast.session.output import OUTPUT_SCHEMA, Finding, StageOutput, output_json, output_schema, parse_output
    from holdfast.session.state import Session, SessionError, StageRecord, parse_session, session_json
    from holdfast.session.store import CheckpointBrief, Held, Owner, RawData, SessionBrief, SessionStore, Touched

__all__ = [
    "OUTPUT_SCHEMA",
    "CheckpointBrief",
    "FileSessionStore",
    "Finding",
    "Held",
    "Owner",
    "RawData",
    "Session",
    "SessionBrief",
    "SessionError",
    "SessionStore",
    "StageOutput",
    "StageRecord",
    "Touched",
    "open_sessions",
    "output_json",
    "output_schema",
    "parse_output",
    "parse_session",
    "session_json",
]

_WHERE = {
    "files": ("FileSessionStore",),
    "opening": ("open_sessions",),
    "output": ("OUTPUT_SCHEMA", "Finding", "StageOutput", "output_json", "output_schema", "parse_output"),
    "state": ("Session", "SessionError", "StageRecord", "parse_session", "session_json"),
    "store": ("CheckpointBrief", "Held", "Owner", "RawData", "SessionBrief", "SessionStore", "Touched"),
}
__getattr__, __dir__ = exports(__name__, _WHERE)
