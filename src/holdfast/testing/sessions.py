"""A session store in memory, for tests: every promise of `SessionStore` but survival."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.clock import Clock
from holdfast.session.store import SessionStore
from holdfast.session.stored import Views
from holdfast.storage.backend import Put
from holdfast.storage.in_memory import MemoryBackend


class MemorySessionStore(SessionStore):
    """Keeps sessions in this process and forgets them at its end. Safe for many threads.

    `edit` changes the readable document as a person with an editor would; `stage_texts` shows the Markdown of the stages.
    """

    def __init__(self, *, backend: MemoryBackend | None = None, clock: Clock | None = None) -> None:
        kept = backend or MemoryBackend(clock=clock)
        super().__init__(kept, views=Views(kept, "sessions"), clock=clock)

    def edit(self, workflow_id: str, how: Callable[[bytes], bytes]) -> None:
        """Put other bytes in the place of the document, past every check."""
        self.backend.write(Put(f"sessions/{workflow_id}.json", how(self.document(workflow_id))))

    def stage_texts(self, workflow_id: str) -> dict[str, str]:
        """The stages' Markdown by its path, such as `01-plan/context.md`."""
        assert self.views is not None  # noqa: S101 - made above
        return self.views.texts(workflow_id)
