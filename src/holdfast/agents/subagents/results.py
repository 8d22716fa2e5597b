"""What a sub-agent gives back. A failure is a result as well, never an exception in the parent (A4)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["completed", "failed", "timed_out", "cancelled", "turn_capped", "token_capped"]
NO_RESPONSE = "No response"


@dataclass(frozen=True)
class SubagentResult:
    """How a sub-agent ended, and its work up to then: its last words and the files it made."""

    id: str
    thread: str
    status: Status
    output: str = NO_RESPONSE
    artifacts: tuple[str, ...] = ()
    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    reason: str = ""
    """Why it failed; empty otherwise."""

    @property
    def done(self) -> bool:
        """Whether it ended by itself with an answer."""
        return self.status == "completed"

    @property
    def capped(self) -> bool:
        """Whether a limit of turns or tokens ended it; its work up to then is here."""
        return self.status in ("turn_capped", "token_capped")

    def text(self) -> str:
        """What the parent's model reads."""
        head = self._head()
        partial = f"Its work up to then:\n{self.output}" if head and self.output != NO_RESPONSE else self.output
        files = "Files: " + ", ".join(self.artifacts) if self.artifacts else ""
        return "\n\n".join(part for part in (head, partial, files) if part)

    def _head(self) -> str:
        match self.status:
            case "failed":
                return f"The sub-agent failed: {self.reason}"
            case "timed_out":
                return f"The sub-agent was stopped after {self.seconds:.0f} seconds."
            case "cancelled":
                return "The sub-agent was cancelled."
            case "turn_capped":
                return f"The sub-agent was stopped after {self.turns} turns, before it was done."
            case "token_capped":
                return f"The sub-agent was stopped after {self.tokens} tokens, before it was done."
            case "completed":
                return ""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "artifacts": list(self.artifacts)}
