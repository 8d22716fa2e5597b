"""What a question asks for: a date, a number, a person, a place, a reason; and whether a sentence has such a thing.

Rules over words, in the larger European languages and in Chinese and Japanese. A question of no known kind wants nothing
special, and a sentence is then judged by its words alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from typing import Literal

from holdfast.text.dates import find_dates
from holdfast.text.language import guess_language
from holdfast.text.words import keys, tokenise

Wanted = Literal["date", "time", "number", "money", "duration", "measure", "share", "person", "place", "reason", "means"]

# A question word asks at the beginning of a clause; elsewhere it only joins ("the year when", "the man who").
_ASKED = r"(?:^|[,;:(]\s*|\b(?:and|or|but|since|by|until|till|from|for|at|in|on|to|tell me|know|say|says|und|et|y|e)\s+)"

_EUROPEAN: tuple[tuple[Wanted, str], ...] = (
    ("time", r"\b(?:what time|at what hour|what hour)\b"),
    ("duration", r"\b(?:how long|how soon|how quickly|(?:with)?in what time|how many (?:days|weeks|months|years|hours|minutes|seconds))\b"),
    ("date", r"\b(?:which|what) (?:year|month|day|date|century|season)\b"),
    ("date", _ASKED + r"(?:when|wann|quand|cuándo|quando|wanneer|när|hvornår|når|milloin|когда)\b"),
    ("money", r"\b(?:how expensive|(?:what|which) (?:\w+ )?(?:price|fee|cost|sum|salary|rent|fine|budget|fare))\b"),
    ("money", r"\b(?:what|how much)\b(?=.*\b(?:costs?|pay|paid|spen[dt]|charged?|earn\w*|price|fee|worth|raised?)\b)"),
    ("share", r"\b(?:(?:what|which) (?:percentage|percent|share|fraction|proportion|part)|how many percent)\b"),
    ("share", r"\bhow much(?= of\b)"),
    ("measure", r"\bhow (?=far|tall|high|deep|wide|heavy|large|big|fast|hot|cold|thick|old|warm|loud|strong)"),
    ("measure", r"\b(?:what|which) (?=temperature|speed|height|depth|weight|distance|length|size|age|width|capacity)"),
    ("measure", r"\bhow much(?=.*\b(?:weighs?|weighed|measures?|holds?|contains?)\b)"),
    ("number", r"\b(?:how many|how much|how often|(?:what|which) number|wie ?viele?|combien|cuánt[oa]s?|quant[iaeo]|hoeveel|hur många)\b"),
    ("number", r"\b(?:hvor mange|kuinka monta|сколько)\b"),
    ("person", _ASKED + r"(?:who|whom|whose|wer|wem|wen|qui|quién|chi|vem|hvem|кто)\b"),
    ("person", r"\b(?:which|what) (?:person|woman|man|author|engineer|doctor|director|artist)\b"),
    ("place", _ASKED + r"(?:where|wo|wohin|où|dónde|dove|onde|waar|hvor|missä|где|куда)\b"),
    ("place", r"\b(?:which|what) (?:city|town|country|room|street|building|place|village|floor|shelf|harbour|station)\b"),
    ("reason", r"\b(?:why|how come|warum|weshalb|pourquoi|por qué|perché|por que|waarom|varför|hvorfor|miksi|почему)\b"),
    ("reason", r"\bwhat (?:caused|led to|made|prompted|explains|(?:was|is) the (?:reason|cause))\b|\bfor what reason\b"),
    ("means", r"\b(?:how (?=do|does|did|can|could|is|are|was|were|should|would)|in what way|by what means|with what)\b"),
)
_EASTERN: tuple[tuple[Wanted, str], ...] = (
    ("time", r"几点|何時(?!間)"),
    ("duration", r"多久|多长时间|多少[天年]|几[天年]|どのくらいの期間|何日間|何年間|何週間|何[かヶ]月|何時間|何分"),
    ("date", r"是?什么时候|何时|哪一?年|哪一?天|几月|几号|哪个月|いつ|何年|何月|何日"),
    ("money", r"多少钱|什么价格|いくら|料金は|値段は"),
    ("share", r"百分之多少|什么比例|何パーセント|何割"),
    ("measure", r"多高|多远|多深|多重|多大|多快|多长|どれくらい|何度|何メートル|何キロ"),
    ("number", r"多少|几(?=[个名人台次本张家位碗])|何(?=[人個台回本枚件])|いくつ|どれだけ"),
    ("person", r"是?谁|哪位|誰|だれ"),
    ("place", r"哪里|哪儿|何处|什么地方|どこ"),
    ("reason", r"为什么|为何|是?什么原因|なぜ|どうして"),
    ("means", r"如何|怎么|怎样|どうやって|どのように|何をすれば"),
)
_ASKING = (*_EUROPEAN, *_EASTERN)

_NUMBER_WORD = (
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"
    r"|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion|dozen|half|twice|none|single)\b"
)
_EASTERN_NUMBER = r"[〇一二三四五六七八九十百千万億两]"
_UNIT = (
    r"(?:kilomet(?:er|re)s?|met(?:er|re)s?|km|cm|mm|m|miles?|feet|foot|ft|inch(?:es)?|degrees?|celsius|fahrenheit|kg|kilograms?|kilos?"
    r"|grams?|g|tons?|tonnes?|pounds?|lbs?|lit(?:er|re)s?|ml|hectares?|acres?|years?|knots?|km/h|mph|watts?|kwh?|[mgt]b|hz|decibels?"
    r"|stor(?:eys?|ies)|pages?)"
)
_SPAN = r"(?:seconds?|minutes?|hours?|days?|nights?|weeks?|fortnights?|months?|years?|decades?|centur(?:y|ies))"
_COIN = r"(?:dollars?|euros?|pounds?|yen|francs?|crowns?|cents?|pence|coins?|usd|eur|gbp|chf)"
_SPOT = (
    r"(?:room|street|road|building|floor|cellar|attic|shelf|drawer|cabinet|harbou?r|station|valley|village|town|city|basement|hall|garden"
    r"|kitchen|office|warehouse|library|bridge|square|folder|directory|yard|barn|coast|river|lake|hill|island|school|church|market|canteen"
    r"|museum|laundry|hospital|factory|mill|shop|house)"
)
_OFFERS: dict[Wanted, str] = {
    "time": r"\b\d{1,2}[:.h]\d{2}\b|\b\d{1,2} ?(?:am|pm|a\.m|p\.m|o'clock)\b|\b(?:noon|midnight|dawn|dusk|sunrise|sunset)\b"
    r"|[\d一二三四五六七八九十]+[点時时]|正午|中午",
    "duration": rf"(?:\d+|{_NUMBER_WORD}|\ban?)[ -](?:and a half )?(?:\w+ )?{_SPAN}\b"
    rf"|(?:\d|{_EASTERN_NUMBER}|半)+ ?(?:个?(?:小时|星期|月)|秒|分钟|分間|時間|天|日間|周|週間|年|[かヶ]月)",
    "number": rf"\d|{_NUMBER_WORD}|{_EASTERN_NUMBER}[个個名人台次本张張家位件回枚年月日天层階碗份只袋块元円]",
    "money": rf"[$€£¥₹]\s?\d|(?:\d[\d,. ]*|{_NUMBER_WORD} ?)(?:k |thousand |million |billion |\w+ )?{_COIN}\b"
    rf"|\b{_COIN} (?:\d|{_NUMBER_WORD})"
    rf"|(?:\d[\d,.]*|{_EASTERN_NUMBER}+)[万億亿]?(?:元|円|块|美元|欧元)|\bone euro\b|\bfree\b",
    "share": r"\d ?%|\bper ?cent\b|\b(?:half|thirds?|quarters?|fifths?|tenths?|one in \w+|majority)\b"
    rf"|百分之|{_EASTERN_NUMBER}[割成]|パーセント",
    "measure": rf"(?:\d[\d,.]*|{_NUMBER_WORD})[ -]?(?:\w+ )?{_UNIT}\b|\d ?(?:%|°)"
    rf"|(?:\d[\d,.]*|{_EASTERN_NUMBER}+)\s?(?:米|公里|千米|公斤|吨|度|层|メートル|キロ|センチ|トン|グラム|階|歳|岁)",
    "reason": r"\b(?:because|since|due to|owing to|so that|in order to|thanks to|reasons?|caus(?:e[ds]?|ing)|therefore|thus|hence"
    r"|result(?:ed)? (?:in|of|from)|led to|to (?:avoid|prevent|protect|keep|save|reduce|stop|make)|for fear|otherwise|blamed"
    r"|explain(?:s|ed)|after|would not|could no longer|weil|denn|car|parce|porque|perché)\b"
    r"|因为|由于|为了|以免|避免|导致|原因|所以|ため|から|ので|理由|原因|おかげ|せい|で、|れ、",
    "means": r"\b(?:by \w+ing|using|with (?:a|an|the|two|their|its)|through|via|first|then|press|click|run|set|turn|open|add|use|place|pass"
    r"|call|invoke|to \w+ (?:a|an|the))\b|通过|使用|利用|先|然后|请|によって|使って|用いて|まず|最初に",
    "place": r"\b(?:in|at|near|on|from|to|under|behind|beside|inside|outside|above|below|opposite|between|into|beneath|north|south|east"
    rf"|west)(?: of)? (?:the |an? |its |his |her |their |old )*(?:(?-i:[A-Z])\w+|\w*{_SPOT})\b|\bfloor of\b"
    r"|(?:在|位于)\S{1,12}(?:市|省|县|楼|室|街|路|区|村|镇|馆|库|里|中|内|旁|边|上)|(?:県|市|町|村|駅|室|館|階|丁目|区)(?:に|で|の)",
}
_KIN = (
    r"(?:son|daughter|brother|sister|father|mother|wife|husband|uncle|aunt|nephew|niece|cousin|teacher|engineer|architect|painter"
    r"|carpenter|professor|widow|farmer|nurse|captain|mayor|baker|student|apprentice|librarian|clerk|gardener|neighbou?r|colleague"
    r"|founder|owner|director|manager|driver|trainee|postwoman|team)"
)
_TITLE = r"(?:Dr|Mr|Mrs|Ms|Prof|Sir|Captain|Professor|Doctor)"
_PEOPLE = (
    re.compile(rf"(?<=[\w,;:)'’”] )(?:{_TITLE}\.? )?[A-Z][\w'’-]+(?: (?:[A-Z][\w'’.-]+|van|de|von|der|da|del))*"),
    re.compile(rf"^(?:{_TITLE}\.? [A-Z]\w+|[A-Z][\w'’-]+ [A-Z][\w'’-]+)"),
    re.compile(rf"\b(?:her|his|their|the|an?|my|our) (?:\w+ )?{_KIN}\b", re.IGNORECASE),
    re.compile(
        r"[\u4e00-\u9fff](?:先生|女士|教授|博士|老师|医生|经理|主任|师傅|药师|技师|师|院士|氏|さん|様)|(?:由|叫|名叫)[\u4e00-\u9fff]{2,4}"
    ),
    re.compile(r"[ァ-ヶー]{2,}・[ァ-ヶー]{2,}|(?:若者|人々|住民|村民|女工|たち)"),
)

_SETTING = re.compile(r"\b(?:of|in|at|on|for|from|with|by|during|after|before|to|into|under)\b", re.IGNORECASE)
_REFERENCE = date(2000, 6, 15)  # only whether there is a date counts here, not which


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled at first use: importing should cost nothing."""
    return re.compile(pattern, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Question:
    """A question's text, its terms with their weights, and the kinds of thing that an answer should hold."""

    text: str
    language: str
    terms: Mapping[str, float]
    wanted: frozenset[Wanted]


def understand(text: str, language: str | None = None) -> Question:
    """What a question asks for.

    >>> sorted(understand("How much did the bridge cost, and when was it opened?").wanted)
    ['date', 'money']
    """
    chosen = language or guess_language(text)
    wanted: set[Wanted] = set()
    rest = text
    for kind, pattern in _ASKING:
        match = _compiled(pattern).search(rest)
        if match:
            wanted.add(kind)
            rest = rest[: match.start()] + " " + rest[match.end() :]  # "how many days" wants a duration, not also a number
    if wanted & {"money", "share", "measure", "duration", "time"}:
        wanted.discard("number")
    return Question(text, chosen, _weighed_terms(rest, chosen) or _weighed_terms(text, chosen), frozenset(wanted))


def _weighed_terms(text: str, language: str) -> dict[str, float]:
    """The terms of a question and how much each counts: what follows a preposition is the setting, a name names the subject."""
    weighed: dict[str, float] = {}
    for n, piece in enumerate(_SETTING.split(text)):
        for word in tokenise(piece):
            named = word.text[:1].isupper() and word.text != word.text.upper()
            for key in keys(word, language):
                weighed.setdefault(key, (1.0 if n == 0 else 0.8) * (0.7 if named else 1.0))
    return weighed


@lru_cache(maxsize=16384)
def offers(text: str, wanted: Wanted) -> bool:
    """Whether a sentence holds a thing of the wanted kind."""
    if wanted == "date":
        return bool(find_dates(text, _REFERENCE))
    if wanted == "person":
        return any(pattern.search(text) for pattern in _PEOPLE)
    return _compiled(_OFFERS[wanted]).search(text) is not None
