"""The planner without a model: it splits a task into questions by its grammar: what is compared, on what, what else is asked (W18).

English first; comparisons, lists and questions of other European languages and of Chinese and Japanese are known by their marks. A
question is made of the task's own words and a small fixed frame ("What is said about ...?"), so nothing comes in that nobody asked.
`TaskQuestion` is the form in which a planner hands questions on; one that is a model writes the same form, where only `text` is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from holdfast.errors import InputError
from holdfast.offline.sources import check_spelling, texts, whole_number
from holdfast.session.output import StageOutput
from holdfast.text.language import alternatives, guess_language, read_lists
from holdfast.text.normalise import one_line
from holdfast.text.sentences import split_sentences
from holdfast.validation import counted
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.definition import Stage

Kind = Literal["aspect", "plain", "choice", "context", "topic"]
"""aspect: one side of one thing that is compared; choice: which of several; context: what it is for; plain: a question as it was asked;
topic: something that is only named."""
_KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """One question that sources can answer.

    `topic` is what belongs together in a report, and `item` the one of several compared things that the question is about. `asks` is what
    is looked for, in words of the task; without it the question itself.
    """

    id: str
    text: str
    kind: Kind = "plain"
    topic: str = ""
    item: str = ""
    asks: str = ""

    @property
    def query(self) -> str:
        """What is looked up to answer it."""
        return self.asks or self.text


def questions_json(questions: Iterable[TaskQuestion]) -> list[dict[str, Any]]:
    """The questions as a planner's `data` has them, what is empty left out."""
    listed = []
    for one in questions:
        value: dict[str, Any] = {"id": one.id, "text": one.text, "kind": one.kind}
        value |= {name: getattr(one, name) for name in ("topic", "item", "asks") if getattr(one, name)}
        listed.append(value)
    return listed


def questions_given(outputs: Sequence[StageOutput]) -> list[TaskQuestion]:
    """The questions in the outputs that a stage was given: those of the last one that has any."""
    for output in reversed(outputs):
        data = output.data if isinstance(output.data, Mapping) else {}
        listed = data.get("questions")
        if isinstance(listed, (list, tuple)):
            found = [question for n, value in enumerate(listed, 1) if (question := _read(value, n)) is not None]
            if found:
                return found
    return []


def questions_listed(stage: Stage) -> list[TaskQuestion]:
    """The questions that the workflow itself lists in a stage (`questions: [...]`), as they stand; ConfigError if they are no texts."""
    value = stage.settings.get("questions")
    asked = [one_line(text) for text in texts(stage, "questions", value)] if value is not None else []
    return [TaskQuestion(f"q{number}", text, topic=text) for number, text in enumerate(dict.fromkeys(asked), 1)]


def questions_of(request: StageRequest) -> list[TaskQuestion]:
    """What a stage is to answer: the questions that it lists, those of a planner among the given outputs, or else the task, split."""
    return questions_listed(request.stage) or questions_given(request.given) or split_task(request.task)


def _read(value: object, number: int) -> TaskQuestion | None:
    """A question from JSON. A bare text is one too; what is no text at all is passed over: it cannot be asked."""
    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("text"), str) or not value["text"].strip():
        return None
    text = value["text"].strip()
    kind = value.get("kind") if value.get("kind") in _KINDS else "plain"
    topic, item, asks = (given if isinstance(given := value.get(name), str) else "" for name in ("topic", "item", "asks"))
    return TaskQuestion(str(value.get("id") or f"q{number}"), text, kind, topic or text, item, asks)  # type: ignore[arg-type]


_WORDS = {name: f"(?:{alternatives(entry)})" for name, entry in read_lists("holdfast.offline", "task_words").items()}
AND = _WORDS["and"]
_SPLIT = re.compile(
    rf"\s*[,;]\s+(?:{AND}\s+|as well as\s+|nor\s+)?|\s+(?:as well as|along with|{AND}|against)\s+"
    r"|\s*[、，；]\s*|\s*(?:和|与|以及|及|或者|或|または|および|と)\s*",
    re.IGNORECASE,
)
_ARTICLE = re.compile(rf"^{_WORDS['article']}\s+", re.IGNORECASE)
_EDGES = " \t\n.,;:!?…。？！，、\"'“”"
_BRACKETED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_GAPS = re.compile(r"[\s\0]{2,}|\0")  # the pattern above tries every blank of a gap as its beginning


def list_parts(text: str) -> list[str]:
    """The members of a list, without articles and marks around them. A text that is no list is one member.

    >>> list_parts("throughput, tail latency, and the cost of a licence")
    ['throughput', 'tail latency', 'cost of a licence']
    """
    # What stands in brackets belongs to its member, commas and all.
    held: list[str] = []

    def hold(match: re.Match[str]) -> str:
        held.append(match.group())
        return f"\x00{len(held) - 1}\x00"

    parts = _SPLIT.split(_BRACKETED.sub(hold, _GAPS.sub(" ", text)))
    cleaned = (re.sub("\x00(\\d+)\x00", lambda match: held[int(match.group(1))], _bare(part)) for part in parts if part)
    return list(dict.fromkeys(part for part in cleaned if part.strip()))


def _bare(part: str) -> str:
    return _ARTICLE.sub("", part.strip(_EDGES)).strip(_EDGES)


def is_question(text: str) -> bool:
    """Whether a text asks something: it begins with a question word, or ends with the mark.

    >>> is_question("My cat is called Pixel."), is_question("what is my cat called")
    (False, True)
    """
    return (
        _QUESTION.search(text.strip()) is not None
        or re.match(rf"{_WORDS['foreign_question_word']}\b", text.strip(), re.IGNORECASE) is not None
    )


def is_request(text: str) -> bool:
    """Whether a sentence wants to be told or given something, as a question or as an order, and so tells nothing itself.

    >>> is_request("tell me who gives the training"), is_request("When I was in Graz I lost my key."), is_request("Ann gives the training.")
    (True, False, False)
    """
    bare = _OPENING.sub("", text.strip())
    if re.search(r"[?？]\s*$", bare) or _REQUEST.search(bare):
        return True
    return is_question(bare) and not _CLAUSE.match(bare)


def looks_like_names(parts: list[str]) -> bool:
    """Whether all members are names: each begins with a capital or has a figure in it, and is short."""
    return len(parts) > 1 and all(len(part.split()) <= 4 and (part[:1].isupper() or any(c.isdigit() for c in part)) for part in parts)


MOST_QUESTIONS = 40

_COMPARE = re.compile(rf"\b{_WORDS['compare']}\b[:\s]+|(?:比较|比較|对比)(?:一下)?", re.IGNORECASE)
_ON = re.compile(rf"\s*(?::|[,;]?\s+{_WORDS['compared_on']}\s)\s*|的|(?:に関して|について)", re.IGNORECASE)
_AS = re.compile(rf"\s+{_WORDS['as']}\s+(?=\S)", re.IGNORECASE)
_WH = _WORDS["question_word"]
_NEXT_QUESTION = re.compile(
    rf"[,;]\s*(?:and\s+|but\s+|or\s+)?(?={_WH}\b)|\s+(?:and|but)\s+(?=(?:what|which|who|when|where|why|how)\b)"
    rf"|[,;]?\s+(?:und|et|y|e|och|og|en|и)\s+(?={_WORDS['foreign_question_word']}\b)",
    re.IGNORECASE,
)
_NEXT_FOREIGN = re.compile(rf"[,;]\s*(?:{AND}\s+)?(?={_WORDS['foreign_asking']}\b)", re.IGNORECASE)
_FOREIGN = re.compile(rf"^¿?\s*{_WORDS['foreign_question_word']}\b", re.IGNORECASE)
_WHOLE = re.compile(rf"(?:who|when|where|why|{_WORDS['foreign_asking']})\s+\S", re.IGNORECASE)
_BARE = re.compile(rf"\b(?:{_WH}|{_WORDS['foreign_question_word']}|{AND}|much|many|long|often)\b", re.IGNORECASE)
_OPENING = re.compile(rf"^(?:(?:{_WORDS['opening']})\b[\s,.!:-]*(?=\w))*(?=\S)", re.IGNORECASE)
_REQUEST = re.compile(rf"^{_WORDS['request']}\b|{_WORDS['request_wide']}|{_WORDS['asking_wide']}", re.IGNORECASE)
_CLAUSE = re.compile(rf"{_WORDS['clause']}\b", re.IGNORECASE)
_QUESTION = re.compile(rf"^{_WH}\b|[?？]\s*$", re.IGNORECASE)
_NAME = re.compile(r"\b(?:[A-Z]+-\d[\w-]*|[A-Z][\w-]*\d[\w-]*|[A-Z]\w+(?:\s[A-Z0-9][\w-]*)*)")
_CHOICE = re.compile(
    r"^(?:which|what|who)\b(?P<rest>.*?)(?:[:,]\s+|\s+(?:of|among|between|from)\s+)(?P<items>[^:?]+)$"
    r"|^(?:is|are|does|do|should we (?:use|take|choose)|should i (?:use|take|choose))\s+(?P<either>[^:?]+?\s+or\s+[^:?]+?)"
    r"(?P<after>\s+(?:better|faster|cheaper|safer|for|in|as|at|when)\b.*)?$",
    re.IGNORECASE,
)
_SUPERLATIVE, _EACH, _BACK, _CHOOSING = (
    re.compile(rf"\b{_WORDS[name]}\b", re.IGNORECASE) for name in ("superlative", "each", "back", "choosing")
)
_OF_LIST = re.compile(
    r"^(?P<head>.*?\b(?:the|its|their|die|der|das|les|los|las|le|la|el))\s+(?P<list>[^,;:?]+?(?:,\s[^?:]+?)?,?\s+"
    + AND
    + r"\s+[^?:]+?)\s+(?P<tail>(?:of|in|for|from|von|für|de|du|des|del)\s.+)$",
    re.IGNORECASE,
)
_ORDER = re.compile(rf"^(?:please\s+)?{_WORDS['order']}\s+", re.IGNORECASE)
_NEXT_ORDER = re.compile(rf"[;,]\s+(?:and\s+|then\s+)*(?={_ORDER.pattern[1:]})", re.IGNORECASE)
_MARK = re.compile(r"[?？]\W*$")
_LONG_GAP = re.compile(r"[^\S\n]{200,}")  # the patterns here try every blank of a gap as its beginning
_AFTER_MARK = re.compile(r"(?<=[?？])\s+")
_NUMBER = re.compile(r"^\(?(?:\d{1,2}|[a-zA-Z])[.)]\s+")
_WIDE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")


@dataclass
class _Plan:
    """What was understood so far: the things that are compared, what was last spoken of, and the questions."""

    english: bool
    items: list[str] = field(default_factory=list)
    spoken_of: str = ""
    made: list[tuple[str, Kind, str, str, str]] = field(default_factory=list)

    def add(self, text: str, kind: Kind, topic: str, item: str = "", asks: str = "") -> None:
        self.made.append((_sentence(text), kind, topic.strip(), item, asks or text))


def split_task(task: str, *, most: int = MOST_QUESTIONS) -> list[TaskQuestion]:
    """The questions that a task comes down to, in its order, at most `most`. The same task gives the same questions.

    >>> [question.text for question in split_task("Compare Ava and Bo on price.")]
    ['What is said about Ava and Bo together?', 'What is said about the price of Ava?', 'What is said about the price of Bo?']
    """
    plan = _Plan(english=guess_language(task) == "en" and not _WIDE.search(task))
    for sentence in _sentences(task):
        for clause in _clauses(sentence):
            _understand(clause, plan, asked=_MARK.search(sentence) is not None)
    asked = [n for n, one in enumerate(plan.made) if one[1] in ("plain", "choice")]
    if len(asked) > 1 and not plan.items:  # what stands before a list of questions only introduces them
        plan.made = [one for n, one in enumerate(plan.made) if one[1] != "topic" or n > asked[0]]
    unique: dict[str, TaskQuestion] = {}
    for text, kind, topic, item, asks in plan.made:
        if text not in unique and len(unique) < most:
            unique[text] = TaskQuestion(f"q{len(unique) + 1}", text, kind, topic, item, asks)
    return list(unique.values())


def _sentences(task: str) -> list[str]:
    """The sentences of a task, without the numbers of a list; the mark of a question ends one whatever follows."""
    written = _LONG_GAP.sub(" ", task.replace("\r\n", "\n"))
    units = (part for unit in split_sentences(written) for part in _AFTER_MARK.split(unit.text))
    return [_NUMBER.sub("", part.strip(" \t\n-*#")) for part in units if part.strip(" \t\n-*#>`|?？")]


def _clauses(sentence: str) -> Iterator[str]:
    """A sentence, cut where a further question begins."""
    for part in _NEXT_ORDER.split(sentence):
        if _COMPARE.search(part):
            yield part
        else:
            yield from _asked_clauses(part)


def _asked_clauses(sentence: str) -> Iterator[str]:
    start = 0
    places = list(_NEXT_QUESTION.finditer(sentence))
    if not _QUESTION.match(sentence) and _FOREIGN.match(sentence):  # else such a word begins a clause of the one question
        places = sorted({match.end(): match for match in (*places, *_NEXT_FOREIGN.finditer(sentence))}.values(), key=lambda one: one.end())
    for match in places:
        piece = sentence[start : match.start()].strip()
        # "which X, is Y" is one question: what comes first must be able to stand alone.
        # A bare "and why?" asks about the same and stays with it.
        stands = _MARK.search(sentence) is None or is_question(piece.lstrip("¿ ")) or _ORDER.match(piece) is not None
        if stands and (len(piece.split()) >= 3 or _WHOLE.match(piece)) and re.search(r"\w", _BARE.sub("", sentence[match.end() :])):
            yield piece
            start = match.end()
    rest = sentence[start:].strip()
    if rest:
        yield rest


def _understand(clause: str, plan: _Plan, *, asked: bool = False) -> None:
    """What a clause asks; `asked` if the sentence that it is cut from ends with the mark of a question."""
    bare = clause.rstrip(" .!?？。")
    if not bare:
        return
    if _comparison(bare, plan) or _choice(bare, plan) or _for_each(bare, plan):
        return
    asked = asked or _QUESTION.search(clause) is not None
    order = None if asked else _ORDER.match(bare)
    subject = bare[order.end() :] if order else bare
    if order and _QUESTION.match(subject):  # "Find out when the mill was built"
        asked = True
    for part in _enumerated(subject, plan):
        if asked:
            _ask(part, plan)
        else:
            plan.add(_about(part, plan), "topic", part, asks=part)
            plan.spoken_of = part


def _comparison(bare: str, plan: _Plan) -> bool:
    """ "Compare A, B and C as D on x, y and z"."""
    match = _COMPARE.search(bare)
    if match is None:
        return False
    body = bare[match.end() :]
    cut = _ON.search(body)
    things, aspects = (body[: cut.start()], body[cut.end() :]) if cut else (body, "")
    for_what = _AS.search(things)
    named, purpose = (things[: for_what.start()], things[for_what.end() :]) if for_what else (things, "")
    items = list_parts(named)
    if len(items) < 2 and not (cut and items):
        return False
    if not aspects and not looks_like_names(items):
        inside = re.split(r"\s+(?:of|von|de|di)\s+", named, maxsplit=1)  # "compare the price and noise of A and B"
        if len(inside) == 2 and len(list_parts(inside[1])) > 1:
            items, aspects = list_parts(inside[1]), inside[0]
    plan.items = items
    if purpose:
        plan.add(_about(purpose, plan), "context", purpose, asks=purpose)
    if plan.english and len(items) > 1:
        listed = f"{', '.join(items[:-1])} and {items[-1]}"
        plan.add(f"What is said about {listed} together", "choice", listed, asks=" ".join(items))
    for aspect in list_parts(aspects) or [purpose or ""]:
        for item in items:
            plan.add(_about(aspect, plan, item), "aspect", aspect or item, item, aspect or item)
    plan.spoken_of = ", ".join(items)
    return True


def _choice(bare: str, plan: _Plan) -> bool:
    """ "Which X should we use for Y: A, B or C?", "Is A or B better for Y?": what it is for, what is said of several, and of each."""
    match = _CHOICE.match(bare)
    items = list_parts(match.group("items") or match.group("either")) if match else []
    if match is None or not looks_like_names(items):
        return False
    plan.items = items
    rest = (match.group("rest") or match.group("after") or "").strip(" ,:")
    for_what = _AS.search(f" {rest}")
    purpose = f" {rest}"[for_what.end() :].strip() if for_what else ""
    if purpose:
        plan.add(_about(purpose, plan), "context", purpose, asks=purpose)
    plan.add(bare, "choice", bare, asks=" ".join(items))
    core = _CHOOSING.sub(" ", rest).strip() or rest
    for item in items:
        plan.add(f"{item}: {rest}" if rest else item, "aspect", rest or item, item, core or item)
    plan.spoken_of = rest or bare
    return True


def _for_each(bare: str, plan: _Plan) -> bool:
    """A question about every one of the compared things: "which defects does each have, and when were they fixed?"."""
    if not plan.items:
        return False
    each = _EACH.search(bare)
    if each is not None:
        core = _frame_free(bare[: each.start()] + " " + bare[each.end() :])
        for item in plan.items:
            plan.add(bare[: each.start()] + item + bare[each.end() :], "aspect", core, item, core)
        plan.spoken_of = core
        return True
    if _QUESTION.match(bare) and _BACK.search(bare) and not any(item in bare for item in plan.items):
        core = plan.spoken_of if plan.spoken_of != ", ".join(plan.items) else ""
        for item in plan.items:
            plan.add(
                f"{item}{', ' + core if core else ''}: {bare[:1].lower()}{bare[1:]}", "aspect", core or bare, item, f"{core} {bare}".strip()
            )
        return True
    return False


def _frame_free(text: str) -> str:
    """A question without its question words: what it is about."""
    bare = re.sub(rf"^(?:(?:{_WH}|there|any)\s+)+|\b(?:does|do|did|have|has)\b", " ", text, flags=re.IGNORECASE)
    return re.sub(r"\s+", " ", bare).strip(" ,:")


def _enumerated(subject: str, plan: _Plan) -> list[str]:
    """ "The causes and effects of X": one for each, with what they are of."""
    if plan.items:
        return [subject]
    asked = _QUESTION.match(subject) or _FOREIGN.match(subject)
    match = _OF_LIST.match(subject) if "," in subject or re.search(rf"\s{AND}\s", subject) else None
    if match is None:
        listed = list_parts(subject)
        short = not asked and len(listed) > 2 and all(len(part.split()) <= 3 for part in listed) and not looks_like_names(listed)
        return listed if short else [subject]
    parts = list_parts(match.group("list"))
    if len(parts) < 2 or looks_like_names(parts) or max(len(part.split()) for part in parts) > 4:
        return [subject]
    return [f"{match.group('head')} {part} {match.group('tail')}" for part in parts]


def _ask(text: str, plan: _Plan) -> None:
    """A question as it was asked; one that points back keeps what it points to; one for the best asks for what decides it."""
    pointing = _BACK.search(text) is not None and plan.spoken_of and not plan.items
    asks = f"{plan.spoken_of} {text}" if pointing else text
    kind: Kind = "plain"
    if _SUPERLATIVE.search(text):
        kind = "choice"
    plan.add(f"{text} ({plan.spoken_of})" if pointing and _NAME.match(plan.spoken_of) else text, kind, text, asks=asks)
    if not pointing:
        named = _NAME.findall(text[1:])
        plan.spoken_of = ", ".join(dict.fromkeys(named)) if named else _frame_free(text)


def _about(aspect: str, plan: _Plan, item: str = "") -> str:
    """The fixed frame. Outside English only marks are used, which every language reads."""
    if not plan.english:
        return f"{item}: {aspect}" if item and aspect else item or aspect
    thing = f"the {aspect} of {item}" if item and aspect else item or aspect
    return f"What is said about {thing}"


def _sentence(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip(" ,;:")
    if not text.endswith(("?", "？")):
        text = text.rstrip(".!。") + ("？" if _WIDE.search(text) else "?")
    return text[:1].upper() + text[1:]


class Planner:
    """Splits the task into questions. Settings: `questions`, which are taken as they are instead; `max_questions` (40)."""

    def check(self, stage: Stage) -> None:
        """ConfigError for questions that are none."""
        check_spelling(stage, ("questions", "max_questions"))
        questions_listed(stage)

    def run(self, request: StageRequest) -> StageResult:
        most = whole_number(request.stage, "max_questions", MOST_QUESTIONS)
        listed = questions_listed(request.stage)
        questions = listed or split_task(request.task, most=most)
        if not questions:
            raise InputError("the task holds no words to ask about.", hint='Say what to find out: "Compare A and B on price."')
        request.emit(counted(len(questions), "question"))
        return StageResult(output=_output(request.stage.name, questions, listed=bool(listed)))


def _output(stage: str, questions: list[TaskQuestion], *, listed: bool) -> StageOutput:
    things = list(dict.fromkeys(one.item for one in questions if one.item))
    topics = list(dict.fromkeys(one.topic for one in questions if one.kind == "aspect"))
    compared = (
        f" It compares {counted(len(things), 'thing')} ({', '.join(things)}) in {counted(len(topics), 'respect')}."
        if len(things) > 1
        else ""
    )
    count = "one question" if len(questions) == 1 else f"{len(questions)} questions"
    made = f"The workflow asks {count}" if listed else f"The task was split into {count} by its own words"
    return StageOutput(
        stage,
        f"{made}; nothing was generated.{compared}",
        confidence="high" if len(things) > 1 or len(questions) > 1 else "medium",
        next_stage_recommendations=tuple(f"Find out: {one.text}" for one in questions),
        data={"questions": questions_json(questions), "method": "extraction"},
    )
