"""A conversation without any model: what is known is looked up and shown word for word, and the answer says so.

Keeps the protocol `Talk`, so that `holdfast chat` and the API work on a bare machine. What the user says is kept in the archive and
learned from by the rules, like in any conversation. Needs no LangChain.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.context.archive import FileArchive
from holdfast.context.records import MessageRecord, records_of
from holdfast.context.view import PlainMessage
from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.ids import IdSource, RandomIds, check_thread
from holdfast.knowledge.adapters import open_knowledge
from holdfast.memory.facts import turns_of
from holdfast.memory.rendering import best_first
from holdfast.memory.service import MemoryService
from holdfast.offline.documents import Library, SourceDocument
from holdfast.offline.planner import is_question
from holdfast.offline.retrieval import AnswerUnit, Retrieval
from holdfast.offline.sources import record_document
from holdfast.talk import Approval, Content, Decision, Ended, Talk, ThreadInfo, Token, TurnEvent
from holdfast.text.normalise import one_line

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.context.call_log import Manifest
    from holdfast.context.window import Prepared
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.sandbox.uploads import Upload

_NOTE = "(No model is configured: this was looked up, word for word, and nothing was written.)"
_KEPT = "That is kept and can be found again. Ask a question, and I look for sentences that answer it."
_NOTHING = "Nothing that is known here answers this. What you said is kept and can be found again."
_ABOUT = (
    "I look things up: in what you give me, in memory, in earlier talks and in the knowledge store. Answers are sentences of these.\n"
    "`holdfast knowledge import FOLDER` gives me documents to look in; /help lists what else works here.\n"
    "No model is configured, so nothing is written or reasoned: `holdfast models list` says how to give me one."
)
_SMALL_TALK = re.compile(
    r"(?:(?:hello|hi|hey|hallo|good (?:morning|day|evening)|guten (?:tag|morgen|abend)|bonjour|salut|hola|ciao|thanks?(?: you)?|danke|merci"
    r"|who are you|what (?:are you|can you do|do you do)|how are you|what is this|help|wer bist du|was kannst du|qui es[- ]tu"
    r"|thank you(?: very much)?|many thanks|vielen dank|gracias|bye|goodbye|good night|tsch[üu]ss|au revoir|adi[óo]s"
    r"|there|again|you|and)[\s,.!?]*)+",
    re.IGNORECASE,
)
_PARTING = re.compile(r"thank|danke?\b|merci|gracias|bye|good night|tsch|revoir|adi", re.IGNORECASE)
_WELCOME = "You are welcome. What was said is kept; /quit ends."
_ABOUT_THE_USER = re.compile(
    r"\b(?:know|remember|learn(?:ed|t)?|stored?|got) (?:\w+ )?(?:about|of|on) me\b|\bwho am i\W*$|\bwer bin ich\W*$"
    r"|\bwei(?:ß|ss)t du (?:\w+ )?über mich|\b(?:sais|savez|connais)\b.*\b(?:de|sur) moi\b|\bqui suis[- ]je\W*$"
    r"|\bsab(?:e|es)\b.*\bde m[íi]\b"
    r"|\bqui[ée]n soy\W*$|(?:知道|了解|记得)(?:关于)?我(?:的?(?:什么|哪些|多少)\w*)?\W*$"
    r"|我是谁\W*$|私について.{0,8}(?:知って|覚えて)|私は誰",
    re.IGNORECASE,
)
_TOLD = 20  # facts that are shown to who asks what is known of them
_OF_THE_USER = re.compile(r"\b(?:i|my|me|mine|ich|mein\w*|mir|mich|je|j['’]|mon|ma|mes|moi|yo|mi|mis|me|io|mio|mia)\b", re.IGNORECASE)
_GIVEN = "what you gave"
_MOST, _LOOKED_AT = 5, 8
_FACTS, _MEMORY = 200, "memory: "
_ENOUGH = 0.3  # the score below which a sentence is not worth showing, unless the user asks about themselves and it is a fact about them
_HINT = "`holdfast models list` says what there is."
_OTHERS = 20  # further conversations that are looked through, the newest first


class ExtractiveConversation:
    """One thread, answered by extraction. Deterministic: the same question over the same state gives the same answer."""

    def __init__(
        self,
        config: Config,
        thread: str | None = None,
        *,
        agent: str | None = None,
        memory: MemoryService | None = None,
        archive: FileArchive | None = None,
        knowledge: Callable[[], KnowledgeStore] | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        bus: Bus | None = None,
    ) -> None:
        """`knowledge` opens the records when they are first asked for. What is given stays the caller's to close."""
        self._clock, self._ids, self._bus = clock or SystemClock(), ids or RandomIds(), bus or process_bus
        self.thread = check_thread(thread) if thread is not None else self._ids.new("thread")
        self.agent_name, self.verbatim = agent, True
        self._config, self._opened = config, ExitStack()
        self._not_asked = ""
        self.archive = archive or self._opened.enter_context(closing(FileArchive(config.base, clock=self._clock)))
        self.memory = memory or self._opened.enter_context(
            closing(MemoryService.open(config, clock=self._clock, ids=self._ids, bus=self._bus))
        )
        self._knowledge = knowledge or cache(self._open_knowledge)

    def _open_knowledge(self) -> KnowledgeStore:
        return self._opened.enter_context(open_knowledge(self._config, clock=self._clock, bus=self._bus))

    @property
    def described(self) -> str:
        """With whom one talks, in a few words."""
        return "without a model: answers are looked up in memory, history and knowledge"

    def send(self, text: Content) -> Iterator[TurnEvent]:
        """Say something; the events are those of a conversation with a model."""
        said = text if isinstance(text, str) else "\n".join(str(block.get("text", "")) for block in text)
        if not said.strip():
            raise InputError("there is nothing in the message.", hint="Write at least one word.")
        return self._answered(said)

    async def asend(self, text: Content) -> AsyncIterator[TurnEvent]:
        """As `send`, for async callers."""
        for event in self.send(text):
            yield event

    def ask(self, text: str) -> str:
        """Say something and get the answer."""
        return "".join(event.text for event in self.send(text) if isinstance(event, Ended))

    def cancel(self) -> None:
        """There is nothing to stop: an answer is there at once."""

    @property
    def interrupted(self) -> bool:
        """Never: an answer is there at once."""
        return False

    def approvals(self) -> tuple[Approval, ...]:
        """None: nothing is called."""
        return ()

    def findings(self, question: str) -> list[AnswerUnit]:
        """The sentences that answer a question, at most five: from what was given with it, or else from all that is known."""
        asked, given = _parted(question)
        if given:
            found = Retrieval(Library([SourceDocument(_GIVEN, given)])).answers(asked, _MOST)
            if found:
                return found
        facts = best_first(self.memory.document(self.agent_name).facts)[:_FACTS]
        library = Library([SourceDocument(f"{_MEMORY}{fact.id}", fact.content) for fact in facts])
        for document in (*self._said(asked), *self._records(asked)):
            library.add(document)
        own = _OF_THE_USER.search(asked) is not None
        found = Retrieval(library).answers(asked, _MOST)
        return [answer for answer in found if answer.score >= _ENOUGH or (own and answer.document.id.startswith(_MEMORY))]

    def history(self) -> list[MessageRecord]:
        """Everything that was said."""
        return self.archive.messages(self.thread)

    @property
    def title(self) -> str:
        """What the user called it; else the first words of the conversation."""
        if given := self.archive.title(self.thread):
            return given
        first = next((record.text for record in self.history() if record.role == "human"), "")
        words = first.split()
        return " ".join(words[: self._config.title.max_words])[: self._config.title.max_chars]

    @title.setter
    def title(self, title: str) -> None:
        self.archive.set_title(self.thread, title)

    def wait_for_title(self, timeout: float | None = None) -> str:
        """The title, at once."""
        return self.title

    # what needs a model: InputError says so

    def decide(self, decisions: Mapping[str, Decision] | Decision) -> Iterator[TurnEvent]:
        """Nothing waits here for a decision."""
        raise InputError("no call waits for a decision.")

    def adecide(self, decisions: Mapping[str, Decision] | Decision) -> AsyncIterator[TurnEvent]:
        """Nothing waits here for a decision."""
        raise InputError("no call waits for a decision.")

    def resume(self) -> Iterator[TurnEvent]:
        """Nothing is ever broken off here."""
        raise _needs_model()

    def aresume(self) -> AsyncIterator[TurnEvent]:
        """Nothing is ever broken off here."""
        raise _needs_model()

    def compact(self, *, force: bool = True, keep: Any = None) -> Prepared:
        """There is no window here."""
        raise _needs_model()

    def branch(self, at: str | None = None, *, thread: str | None = None) -> Talk:
        """A conversation that begins as this one did, up to the message `at`, or to its end."""
        said = self.history()
        last = next((number for number, record in enumerate(said, 1) if record.id == at), None) if at is not None else len(said)
        if last is None:
            raise NotThere(f"there is no message {at!r} in this conversation.", hint="/history shows what was said.")
        new = self.other(thread)
        if new.history():
            raise InputError(f"there is a thread {new.thread!r} already.", hint="Choose another name.")
        self.archive.add(new.thread, said[:last])
        return new

    def other(self, thread: str | None = None) -> Talk:
        """Another conversation over the same memory and records. It lives as long as this one."""
        shared: dict[str, Any] = {"memory": self.memory, "archive": self.archive, "knowledge": self._knowledge, "bus": self._bus}
        return ExtractiveConversation(self._config, thread, agent=self.agent_name, clock=self._clock, ids=self._ids, **shared)

    def threads(self) -> list[ThreadInfo]:
        """All conversations that were kept, the one that was used last first."""
        named = [(self.archive.stats(thread).last or "", thread) for thread in self.archive.threads() if not thread.startswith("subagent-")]
        return [ThreadInfo(thread, updated=str(last)) for last, thread in sorted(named, reverse=True)]

    def sent(self) -> Manifest | None:
        """Nothing is ever sent from here."""
        raise _needs_model()

    @property
    def window(self) -> int:
        """There is no window here."""
        raise _needs_model()

    def subagents(self) -> Mapping[str, str]:
        """There are none without a model."""
        return {}

    def upload(self, paths: Sequence[Path]) -> list[Upload]:
        """Needs a model."""
        hint = "Pipe a text in (`holdfast chat -p QUESTION < FILE`), or take files in with `holdfast knowledge import`."
        raise InputError("files of a conversation need a model, and none is configured.", hint=hint)

    def files(self) -> str:
        """Needs a model."""
        raise _needs_model()

    def close(self) -> None:
        """Learn from what was said, and let go of what was opened here."""
        self._opened.close()

    def _answered(self, question: str) -> Iterator[TurnEvent]:
        answer = self._composed(question)
        asked = PlainMessage("human", question, self._ids.new("message"))
        replied = PlainMessage("ai", answer, self._ids.new("message"), additional_kwargs={"holdfast": {"extracted": True}})
        self.archive.add(self.thread, records_of([asked, replied]))
        self.memory.enqueue(self.thread, turns_of([asked], time=stamp(self._clock.now())), self.agent_name)
        for line in answer.splitlines(keepends=True):
            yield Token(line)
        yield Ended("completed", answer)

    def _composed(self, question: str) -> str:
        if _SMALL_TALK.fullmatch(one_line(question).strip(" .!?,")):
            return _WELCOME if _PARTING.search(question) else _ABOUT
        if _ABOUT_THE_USER.search(question):
            return self._known_of_the_user()
        if not is_question(question) and _OF_THE_USER.match(question.lstrip(" ,")) and len(question.split()) > 3:
            return "\n".join((_KEPT, _NOTE))
        found = self.findings(question)
        nothing = _NOTHING if is_question(question) else _KEPT
        notes = [note for note in (self._not_asked, _NOTE) if note]
        return "\n".join([*(f"- {one.fact} [{_cited(one.document)}]" for one in found), *([] if found else [nothing]), *notes])

    def _known_of_the_user(self) -> str:
        facts = best_first(self.memory.document(self.agent_name).facts)[:_TOLD]
        if not facts:
            return "\n".join(("Nothing is known about you yet: tell me, and /memory shows what was remembered.", _NOTE))
        return "\n".join(
            [
                *(f"- {one_line(fact.content)} [{_MEMORY.strip(': ')}]" for fact in facts),
                "/memory shows all of it, with where it was said.",
                _NOTE,
            ]
        )

    def _said(self, question: str) -> Iterator[SourceDocument]:
        """What the user and the agents said, here first, then in the other conversations; never what was only looked up."""
        others = [name for name in self.archive.threads() if name != self.thread and not name.startswith("subagent-")]
        for thread in [self.thread, *sorted(others, key=lambda name: self.archive.stats(name).last, reverse=True)[:_OTHERS]]:
            for hit in self.archive.search(thread, question, top_k=3):
                record = hit.record
                if record.role in ("human", "ai") and not record.marks.get("extracted") and record.text.strip() != question.strip():
                    yield SourceDocument(f"{thread} #{record.seq}", record.text)

    def _records(self, question: str) -> list[SourceDocument]:
        self._not_asked = ""
        try:
            found = self._knowledge().search(question, top_k=_LOOKED_AT)
            return [record_document(hit) for hit in found if hit.record.kind != "summary"]
        except (HoldfastError, ImportError, sqlite3.Error) as error:  # no reason not to answer from the rest; the answer says so
            self._not_asked = f"(The knowledge store was not asked: {error})"
            return []


def _cited(document: SourceDocument) -> str:
    """What an answer says where a sentence is from; the ids of facts are for programs."""
    return "memory" if document.id.startswith(_MEMORY) else document.name or document.id


def _parted(message: str) -> tuple[str, str]:
    """What is asked, and the text that was given with it: what follows the first paragraph, or what stands before a last question."""
    first, _, rest = message.strip().partition("\n")
    if not rest.strip():
        return message.strip(), ""
    last = message.strip().rpartition("\n")[2]
    return (
        (last, message.strip()[: -len(last)]) if last.rstrip().endswith("?") and not first.rstrip().endswith("?") else (first, rest.strip())
    )


def _needs_model() -> InputError:
    return InputError("this needs a model, and none is configured.", hint=_HINT)
