"""What memory has to say in a conversation: what it learned, and what it asks before it keeps it (M10).

Something that loosens a check is asked about in the turn in which it was typed, without waiting for any model; the answer holds for
whatever is proposed of the same words later. What was learned meanwhile is told before the next message, with the way to take it back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.app.chat_screen import Screen, one_line
from holdfast.text.normalise import reveal

if TYPE_CHECKING:
    from holdfast.memory.history import Held
    from holdfast.talk import Talk


_TOLD, _WISHED = 2000, 480  # characters of what is told, and of what is wished for: more of them is a text about something
_MOMENT = 2.0  # seconds that learning by rules may take before the next message


@dataclass
class MemoryNews:
    """Tells and asks what concerns memory, for one conversation on a terminal."""

    screen: Screen
    _seen: set[str] = field(default_factory=set)
    _answers: list[tuple[str, bool]] = field(default_factory=list)

    def begin(self, talk: Talk) -> None:
        """From here on what is new counts."""
        self._seen = self._known(talk)

    def after_turn(self, talk: Talk, typed: str) -> None:
        """Ask about what was typed, then tell what was learned and ask about what waits."""
        if not talk.memory.settings.enabled:
            return
        self._ask_at_once(talk, typed)
        if talk.memory.learns_by_rules:
            talk.memory.flush(_MOMENT)
        from holdfast.memory.gate import ASKED  # its tables of patterns are made when somebody first learns something

        for held in talk.memory.review(talk.agent_name):
            if held.id not in self._seen and held.rule in ASKED:
                self._settle(talk, held)
        for change in talk.memory.history(talk.agent_name):
            if change.id in self._seen or change.by != "updater":
                continue
            for difference in change.differences:
                content = difference.after.get("content") if isinstance(difference.after, dict) else None
                if difference.kind == "fact" and content:
                    self.screen.note(f"remembered: {one_line(str(content))}; /memory undo")
        self._seen = self._known(talk)

    def _known(self, talk: Talk) -> set[str]:
        changes = {change.id for change in talk.memory.history(talk.agent_name)}
        return changes | {held.id for held in talk.memory.review(talk.agent_name)}

    def _ask_at_once(self, talk: Talk, typed: str) -> None:
        from holdfast.memory.facts import Turn
        from holdfast.memory.loosening import find_standing
        from holdfast.memory.pasted import own_words
        from holdfast.memory.spoken_secrets import tells_secret

        own = " ".join(own_words(typed).split())
        if len(own) <= _TOLD and tells_secret(own, [Turn("typed", "user", own)]):
            way = "`holdfast memory forget --text WORDS` takes it out of the history too"
            self.screen.note(f"this reads like a secret and is not remembered; {way}")
            return
        loosens = find_standing(own) if len(own) <= _WISHED else None
        if loosens is None:
            return
        wanted = self._asks(f"Remember “{own}”? It {loosens.why}.")
        self._answers.append((own, wanted))
        if wanted:
            fact = talk.memory.add(f"User said: “{own}”", talk.agent_name, category="preference")
            self.screen.note(f"remembered: {one_line(fact.content)}; /memory undo")

    def _settle(self, talk: Talk, held: Held) -> None:
        """What waits is as it was answered before, or is asked about now."""
        words = " ".join((held.fact.origin.quote or held.fact.content).split())
        known = next((wanted for said, wanted in self._answers if words in said or said in words), None)
        if known is None and self._asks(f"Remember “{held.fact.content}”? It {held.why}."):
            talk.memory.accept(held.id, talk.agent_name)
        elif known is not None or self._answered:
            talk.memory.reject(held.id, talk.agent_name)

    _answered: bool = False

    def _asks(self, question: str) -> bool:
        """Anything that is not clearly a yes is a no. Without an answer nothing is decided: it waits for review."""
        self.screen.line(reveal(question))
        try:
            typed = input("[y/N] ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            self._answered = False
            return False
        self._answered = True
        return typed in ("y", "yes", "j", "ja", "s", "si", "sí", "o", "oui", "是", "はい")
