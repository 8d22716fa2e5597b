"""What a test of an agent needs: a scripted model, a clock whose hands you turn, a disk that crashes on demand.

Public, and used by our own tests; may import everything but `app`.
Start with `models.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.archive import MemoryArchive
    from holdfast.testing.clock import FakeClock
    from holdfast.testing.disk import FailingDisk, Fault, PowerCut, ShortWrite, SimulatedDisk
    from holdfast.testing.ids import CountingIds
    from holdfast.testing.models import (
        HOSTILE,
        Request,
        Script,
        ScriptedModel,
        ScriptExhausted,
        call,
        delay,
        hostile,
        raises,
        repeat,
        reply,
        structured,
    )
    from holdfast.testing.sessions import MemorySessionStore

__all__ = [
    "HOSTILE",
    "CountingIds",
    "FailingDisk",
    "FakeClock",
    "Fault",
    "MemoryArchive",
    "MemorySessionStore",
    "PowerCut",
    "Request",
    "Script",
    "ScriptExhausted",
    "ScriptedModel",
    "ShortWrite",
    "SimulatedDisk",
    "call",
    "delay",
    "hostile",
    "raises",
    "repeat",
    "reply",
    "structured",
]

_ELSEWHERE = {"FakeClock": "clock", "CountingIds": "ids", "MemoryArchive": "archive", "MemorySessionStore": "sessions"} | dict.fromkeys(
    ("FailingDisk", "Fault", "PowerCut", "ShortWrite", "SimulatedDisk"), "disk"
)


def __getattr__(name: str) -> Any:
    """Imports a part when it is first used: the clock and the ids need no LangChain."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"holdfast.testing.{_ELSEWHERE.get(name, 'models')}"), name)
