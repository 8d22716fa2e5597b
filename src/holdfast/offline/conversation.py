"""A conversation without any model: what is known is looked up and shown word for word, and the answer says so.

Keeps the protocol `Talk`, so that `holdfast chat` and the API work on a bare machine. What the user says is kept in the archive and
learned from by the rules, like in any conversation. Needs no LangChain.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock, IdSource, RandomIds, SystemClock, stamp
from holdfast.context.archive import FileArchive
from holdfast.context.records import MessageRecord, records_of
from holdfast.context.view import PlainMessage
from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.knowledge.adapters import open_knowledge
from holdfast.memory.facts import Turn, turns_of, without_uploads
from holdfast.memory.rendering import best_first
from holdfast.memory.screening import BY_WORDING, states, tells_secret
from holdfast.memory.service import MemoryService
from holdfast.offline.documents import Library, SourceDocument, bare_text
from holdfast.offline.planner import is_question, is_request
from holdfast.offline.researcher import AnswerUnit, Retrieval, orders_told
from holdfast.offline.sources import LARGEST, document_of, document_of_text, record_document
from holdfast.sandbox.local import open_sandbox
from holdfast.sandbox.uploads import MarkItDown, Upload, Uploads
from holdfast.talk import Approval, Content, Decision, Ended, Talk, ThreadInfo, Token, TurnEvent, marks_of_origin
from holdfast.text.file_formats import CONVERTED
from holdfast.text.normalise import one_line
from holdfast.text.words import terms
from holdfast.validation import check_kind, check_thread, thread_folder

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.context.call_log import Manifest
    from holdfast.context.window import Prepared
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.sandbox.commands import Sandbox


NOTE = "(No model is configured: this was looked up, word for word, and nothing was written.)"
"""The last line of every answer that was looked up; it is a token of its own."""
_NOT_ASKED = "(No model is configured, so none was asked.)"
NOTES = frozenset((NOTE, _NOT_ASKED))
"""The lines that say how an answer came about."""
_NO_FACT = "That reads like a secret, so it does not become a fact. `holdfast memory forget --text WORDS` takes it out of the history too."
_FORGETTING = (
    "Nothing was forgotten: I only look things up. /memory undo takes back what was learned last; `holdfast memory forget ID` or\n"
    "`holdfast memory forget --text WORDS` removes something for good, also from conversations and records."
)
_FORGETS = re.compile(
    r"(?:please |bitte |no,? )?(?:(?:forget|delete|erase|undo|unlearn|vergiss|l[öo]sche?|oublie[sz]?|efface[sz]?|olvida|borra"
    r"|dimentica|cancella|esque[çc]a|apaga)\b.{0,40}|忘れて.{0,12}|忘(?:了|记|掉).{0,12})",
    re.IGNORECASE,
)
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
_GREETING = re.compile(
    r"(?:(?:hello|hi|hey|hallo|good (?:morning|day|evening)|guten (?:tag|morgen|abend)|bonjour|salut|hola|buenos d[íi]as|ciao"
    r"|buongiorno|ol[áa]|servus|moin|there|all|everybody|everyone|zusammen)\b[\s,.!:–-]*)+",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"(?:i|i['’](?:m|ve|d|ll)|ich|je|j['’]\w+|yo|io|eu|we|wir|nous|nosotr[oa]s|noi|n[óo]s)\s+\S+"
    r"|(?:call me|nenne? mich|appelle[sz]?[- ]moi|ll[áa]mame|chiamami|chama-me|me llamo|mi chiamo|chamo-me|soy|sono|sou)\s+\S",
    re.IGNORECASE,
)
_GIVEN = "what you gave"
_SPOKEN: Mapping[str, Any] = {"spoken": True}
_FOUND: Mapping[str, Any] = {"found": True}
_LATER = (_FOUND, _SPOKEN)
"""Mark what was said in a conversation, which answers only after documents, and what a run found in a document, which names that one."""
_MOST, _LOOKED_AT = 5, 8
_SEARCH_WORDS = 8
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
        self.new_run: Callable[[], str] = partial(self._ids.new, "run")
        self._config, self._opened = config, ExitStack()
        self._not_asked = ""
        self._passed_over: Mapping[str, int] = {}
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

    def send(self, text: Content, *, pasted: bool = False, typed: int = 0) -> Iterator[TurnEvent]:
        """Say something; the events are those of a conversation with a model."""
        check_kind("text", text, (str, list, tuple), "text, or a list of blocks in LangChain's form")
        said = text if isinstance(text, str) else "\n".join(str(block.get("text", "")) for block in text)
        if not said.strip():
            raise InputError("there is nothing in the message.", hint="Write at least one word.")
        return self._answered(said, marks_of_origin(pasted, typed))

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
        self._passed_over = {}
        if given:
            retrieval = Retrieval(Library([SourceDocument(_GIVEN, given)]))
            found = retrieval.answers(asked, _MOST)
            if found:
                self._passed_over = retrieval.tainted
                return found
        facts = best_first(self.memory.document(self.agent_name).facts)[:_FACTS]
        library = Library([SourceDocument(f"{_MEMORY}{fact.id}", fact.content) for fact in facts])
        for document in (*self._uploaded(), *self._said(asked), *self._records(asked)):
            library.add(document)
        own = _OF_THE_USER.search(asked) is not None
        retrieval = Retrieval(library)
        found = retrieval.answers(asked, _MOST)
        documents = {one.id: one for one in library if one.extra is not _SPOKEN and not one.id.startswith(_MEMORY)}
        self._passed_over = {_cited(documents[id]): count for id, count in retrieval.tainted.items() if id in documents}
        enough = [answer for answer in found if answer.score >= _ENOUGH or (own and answer.document.id.startswith(_MEMORY))]
        return _documents_first(enough)

    def history(self) -> list[MessageRecord]:
        """Everything that was said."""
        return self.archive.messages(self.thread)

    @property
    def title(self) -> str:
        """What the user called it; else the first words of the conversation."""
        if given := self.archive.title(self.thread):
            return given
        first = next((record.text for record in self.history() if record.role == "human"), "")
        words = without_uploads(first).split()
        return " ".join(words[: self._config.title.max_words])[: self._config.title.max_chars]

    @title.setter
    def title(self, title: str) -> None:
        self.archive.set_title(self.thread, title)

    def wait_for_title(self, timeout: float | None = None) -> str:
        """The title, at once."""
        return self.title

    # files: what is asked is looked for in them too

    def upload(self, paths: Sequence[Path]) -> Sequence[Upload]:
        """Copy files into the thread. Of one that cannot be looked in `problem` says why."""
        self.archive.stats(self.thread)  # says if it was closed
        with closing(open_sandbox(self._config, self.thread)) as sandbox:
            most = self._config.server.max_upload_bytes
            uploads = Uploads(self.thread, sandbox.files, base=self._config.base, converter=MarkItDown(), most_bytes=most)
            taken = uploads.take_all(paths)
            return [replace(one, problem=one.problem or _read_upload(sandbox, one)[1]) for one in taken]

    def files(self) -> str:
        """The files of the thread, as a tree for a person."""
        with closing(open_sandbox(self._config, self.thread)) as sandbox:
            return sandbox.files.ls("/mnt/user-data", depth=3).text

    def _uploaded(self) -> Iterator[SourceDocument]:
        if not Path(self._config.base, "threads", thread_folder(self.thread), "user-data").is_dir():  # looking makes nothing
            return
        with closing(open_sandbox(self._config, self.thread)) as sandbox:
            for one in Uploads(self.thread, sandbox.files, base=self._config.base).list():
                document, _ = _read_upload(sandbox, one)
                if document is not None:
                    yield document

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
        last = (
            next((number for number, record in enumerate(said, 1) if at in (record.id, f"#{number}")), None)
            if at is not None
            else len(said)
        )
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

    def close(self) -> None:
        """Learn from what was said, and let go of what was opened here."""
        self._opened.close()

    def _answered(self, question: str, origin: Mapping[str, Any]) -> Iterator[TurnEvent]:
        answer = self._composed(question)
        marks = {**origin, **({"agent": self.agent_name} if self.agent_name else {})}  # a conversation keeps its agent
        asked = PlainMessage("human", question, self._ids.new("message"), additional_kwargs={"holdfast": marks} if marks else {})
        replied = PlainMessage("ai", answer, self._ids.new("message"), additional_kwargs={"holdfast": {"extracted": True}})
        self.archive.add(self.thread, records_of([asked, replied]))
        self.memory.enqueue(self.thread, turns_of([asked], time=stamp(self._clock.now())), self.agent_name)
        for line in answer.splitlines(keepends=True):
            yield Token(line)
        yield Ended("completed", answer)

    def _composed(self, message: str) -> str:
        question = without_uploads(message)
        if _SMALL_TALK.fullmatch(one_line(question).strip(" .!?,")):
            return _WELCOME if _PARTING.search(question) else _ABOUT
        if _ABOUT_THE_USER.search(question):
            return self._known_of_the_user()
        if _FORGETS.fullmatch(one_line(question).strip(" .!")):
            return "\n".join((_FORGETTING, _NOT_ASKED))
        secret = _reads_secret(question)
        if secret and not (is_question(_parted(question)[0]) or (secret == BY_WORDING and _is_search(question))):
            return "\n".join((_NO_FACT, _NOT_ASKED))
        if _tells_of_the_user(question):
            return "\n".join((_KEPT, _NOT_ASKED))
        found = self.findings(question)
        asked = is_question(question)
        nothing = _NOTHING if asked else _KEPT
        passed = self._passed_over
        aside = f"(Passed over: {orders_told(sum(passed.values()))}, in {', '.join(passed)}.)" if passed else ""
        notes = [note for note in (_NO_FACT if secret else "", aside, self._not_asked, NOTE if found or asked else _NOT_ASKED) if note]
        return "\n".join([*(f"- {one.fact} [{_cited(one.document)}]" for one in found), *([] if found else [nothing]), *notes])

    def _known_of_the_user(self) -> str:
        facts = best_first(self.memory.document(self.agent_name).facts)[:_TOLD]
        if not facts:
            return "\n".join(("Nothing is known about you yet: tell me, and /memory shows what was remembered.", NOTE))
        return "\n".join(
            [
                *(f"- {one_line(fact.content)} [{_MEMORY.strip(': ')}]" for fact in facts),
                "/memory shows all of it, with where it was said.",
                NOTE,
            ]
        )

    def _said(self, question: str) -> Iterator[SourceDocument]:
        """What the user and the agents told, here first, then in the other conversations; never what was only looked up or asked for."""
        others = [name for name in self.archive.threads() if name != self.thread and not name.startswith("subagent-")]
        for thread in [self.thread, *sorted(others, key=lambda name: self.archive.stats(name).last, reverse=True)[:_OTHERS]]:
            for hit in self.archive.search(thread, question, top_k=3):
                record = hit.record
                if record.role in ("human", "ai") and not record.marks.get("extracted"):
                    yield from _told(SourceDocument(f"{thread} #{record.seq}", without_uploads(record.text), extra=_SPOKEN), question)

    def _records(self, question: str) -> list[SourceDocument]:
        self._not_asked = ""
        try:
            found = [hit for hit in self._knowledge().search(question, top_k=_LOOKED_AT) if hit.record.kind != "summary"]
            marks = {"turn": _SPOKEN, "finding": _FOUND}
            documents = [replace(one := record_document(hit), extra=marks.get(hit.record.kind, one.extra)) for hit in found]
            return [told for one in documents for told in (_told(one, question) if one.extra is _SPOKEN else (one,))]
        except (HoldfastError, ImportError, sqlite3.Error) as error:  # no reason not to answer from the rest; the answer says so
            self._not_asked = f"(The knowledge store was not asked: {error})"
            return []


def _read_upload(sandbox: Sandbox, upload: Upload) -> tuple[SourceDocument | None, str | None]:
    """An uploaded file as a document, or None and the reason."""
    suffix = PurePosixPath(upload.path).suffix.lower()
    try:
        data = sandbox.files.read_bytes(upload.markdown or upload.path, limit=LARGEST)
        if upload.markdown is not None and suffix in CONVERTED:
            return document_of_text(data, suffix, upload.name), None
        return document_of(data, PurePosixPath(upload.markdown or upload.path).suffix.lower(), upload.name), None
    except HoldfastError as error:
        return None, f"not looked in: {error}"


def speaks_of_user(text: str) -> bool:
    """Whether whoever wrote a text is spoken of in it ("I", "my")."""
    return _OF_THE_USER.search(text) is not None


def _tells_of_the_user(message: str) -> bool:
    """Whether a message tells something of whoever writes it ("Hi, I'm Clara") and asks for nothing: it is kept, and nothing answers it."""
    bare = _GREETING.sub("", message.strip(), count=1).lstrip(" ,")
    if is_request(bare):
        return False
    return _TELLS.match(bare) is not None or (_OF_THE_USER.match(bare) is not None and len(bare.split()) > 3)


def _told(turn: SourceDocument, question: str) -> Iterator[SourceDocument]:
    """A turn of a conversation without the sentences that ask or order something, and those that say no more than the question does."""
    asked = set(terms(question))
    kept = [unit.passage.text for unit in turn.units if not (is_request(bare_text(unit)) or asked.issuperset(terms(unit.passage.text)))]
    if kept:
        yield replace(turn, text="\n\n".join(kept)) if len(kept) < len(turn.units) else turn


def _documents_first(found: Sequence[AnswerUnit]) -> list[AnswerUnit]:
    """What documents and facts say, then what was only said in a conversation; of what several say the document is named."""
    named = [min((one, *one.also), key=_rank) for one in found]
    return sorted(named, key=lambda one: one.document.extra is _SPOKEN)


def _rank(answer: AnswerUnit) -> int:
    return next((place for place, mark in enumerate(_LATER, 1) if answer.document.extra is mark), 0)


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


def _reads_secret(message: str) -> str | None:
    return tells_secret(message, [Turn("said", "user", message)])


def _is_search(message: str) -> bool:
    """Whether a message is a few words to look for ("the weight of the box") and states nothing."""
    said = message.strip()
    return "\n" not in said and 1 < len(said.split()) <= _SEARCH_WORDS and not states(said) and not _tells_of_the_user(said)


def _needs_model() -> InputError:
    return InputError("this needs a model, and none is configured.", hint=_HINT)
