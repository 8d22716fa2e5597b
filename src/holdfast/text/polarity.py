"""Whether a text denies, and words that are each other's opposite: what turns a statement around."""

from __future__ import annotations

import re

_ENGLISH = (
    r"\b(?:not|no(?! ?\.? ?\d| longer)|no longer|never|none|nobody|nothing|nowhere|neither|cannot|without|hardly|barely|rarely|\w+n't)\b"
)
_NEGATIONS = {
    # A short text in another language is often taken for English, so that its plainest negations count here too.
    "en": _ENGLISH + r"|\b(?:nicht|kein|keine|keinen|niemals|jamais|nunca|jamás|não|niet|geen|inte|ikke|не|нет)\b",
    "de": r"\b(?:nicht|nichts|kein\w*|nie|niemals|niemand|ohne)\b",
    "fr": r"\b(?:ne|n')\s*\w+\s+(?:pas|plus|jamais|rien)\b|\b(?:aucune?|sans|jamais)\b",
    "es": r"\b(?:no|nunca|jamás|tampoco|nadie|nada|ningún|ninguna|ninguno|sin)\b",
    "it": r"\b(?:non|mai|nessun\w*|niente|nulla|senza)\b",
    "pt": r"\b(?:não|nunca|jamais|nenhum|nenhuma|ninguém|nada|sem)\b",
    "nl": r"\b(?:niet|niets|geen|nooit|niemand|zonder)\b",
    "sv": r"\b(?:inte|aldrig|ingen|inget|inga|utan)\b",
    "da": r"\b(?:ikke|aldrig|ingen|intet|uden)\b",
    "no": r"\b(?:ikke|ikkje|aldri|ingen|intet|uten)\b",
    "fi": r"\b(?:ei|en|et|emme|ette|eivät|älä|ilman)\b",
    "ru": r"\b(?:не|нет|никогда|никто|ничего|без)\b",
    "zh": r"[不没沒未](?![同过過断斷少仅僅论論久错錯])|[无無非](?=法|需|须|須|权|權|人)|并非|並非|從不|从不",
    "ja": r"ない|なかった|ません|なく|ず(?=に|、)|ぬ(?=。)",
    "ko": r"않|못(?=[했하합])|없|아니",
}
_PATTERNS = {language: re.compile(pattern, re.IGNORECASE) for language, pattern in _NEGATIONS.items()}

_OPPOSITES = (
    "like dislik", "love hate", "enabl disabl", "increas decreas", "rise fall", "rose fell", "grow shrink", "grew shrank",
    "allow forbid", "allow deni", "accept reject", "true fals", "open close", "start stop", "begin end", "before after", "more less",
    "more fewer", "most least", "max min", "maximum minimum", "left right", "high low", "higher lower", "hot cold", "win lose",
    "won lost", "buy sell", "bought sold", "pass fail", "success failur", "succeed fail", "includ exclud", "add remov", "prefer avoid",
    "alway never", "agre disagre", "support oppos", "approv reject", "light dark", "earli late", "earlier later", "north south",
    "east west", "marri singl", "morn even", "first last", "old new", "public privat", "async sync", "tab space", "gain lose",
    "safe unsaf", "happi unhappi", "possibl imposs", "legal illeg", "complet incomplet", "strong weak", "fast slow", "faster slower",
    "present absent", "guilti innoc", "aliv dead", "arriv depart", "import export", "encrypt unencrypt", "stabl unstabl",
    "know unknown", "visibl hidden", "optim pessim", "cheap expens",
)  # fmt: skip
_PAIRS = frozenset(frozenset(pair.split()) for pair in _OPPOSITES)


def count_negations(plain: str, language: str = "en") -> int:
    """How many words of a normalised text deny something. An even number turns nothing around."""
    pattern = _PATTERNS.get(language, _PATTERNS["en"])
    return sum(1 for _ in pattern.finditer(plain))


def without_negations(plain: str, language: str = "en") -> str:
    """A normalised text without the words that deny: what it speaks of, yes or no."""
    return _PATTERNS.get(language, _PATTERNS["en"]).sub("", plain)


def are_opposite(stem: str, other: str) -> bool:
    """Whether two English stems are each other's opposite."""
    return frozenset((stem, other)) in _PAIRS
