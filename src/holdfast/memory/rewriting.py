"""A user's sentence put in the third person: "I use my own server" becomes "User uses their own server".

Names, numbers and everything that is not a pronoun or the verb after it stay letter by letter.
"""

from __future__ import annotations

import re

_IRREGULAR = {
    "am": "is", "'m": "is", "are": "is", "'re": "is", "have": "has", "'ve": "has", "do": "does", "go": "goes", "don't": "doesn't",
    "haven't": "hasn't", "aren't": "isn't", "was": "was", "were": "was", "can": "can", "can't": "can't", "cannot": "cannot",
    "could": "could", "couldn't": "couldn't", "will": "will", "won't": "won't", "'ll": "will", "would": "would", "'d": "would",
    "wouldn't": "wouldn't", "should": "should", "must": "must", "may": "may", "might": "might", "did": "did", "didn't": "didn't",
    "had": "had", "hadn't": "hadn't", "wasn't": "wasn't", "weren't": "wasn't",
}  # fmt: skip
_ADVERBS = (
    "always", "never", "also", "just", "really", "still", "already", "now", "usually", "often", "once", "currently", "mostly",
    "only", "actually", "generally", "sometimes", "normally", "recently", "almost", "definitely", "absolutely", "strongly", "much",
    "no", "longer", "typically", "rarely", "both", "all", "mainly", "primarily", "personally", "originally", "finally",
    "officially", "even", "regularly",
)  # fmt: skip
_PAST = frozenset(
    (
        "got", "went", "came", "grew", "bought", "sold", "left", "quit", "broke", "lost", "met", "said", "told", "thought", "made", "took",
        "gave", "found", "began", "wrote", "read", "ran", "saw", "did", "had", "knew", "felt", "kept", "held", "led", "became", "chose",
        "drove", "ate", "slept", "spoke", "taught", "won", "built", "sent", "spent", "understood", "forgot", "stood", "heard", "meant",
        "paid", "put", "set", "cut", "hit", "let", "shut", "cost", "split", "hurt", "drank", "sang", "swam", "flew", "rode", "rose", "fell",
    )
)  # fmt: skip
_SUBJECT = re.compile(
    r"(?P<who>\b(?:I|we|We|i)\b)(?P<glued>['’](?:m|ve|d|ll|re))?(?P<adverbs>(?:\s+(?:"
    + "|".join(_ADVERBS)
    + r"))*)(?:\s+(?P<verb>[A-Za-z][\w'’]*))?"
)
_POSSESSIVE = {
    "my": "their",
    "our": "their",
    "mine": "theirs",
    "ours": "theirs",
    "me": "them",
    "us": "them",
    "myself": "themselves",
    "ourselves": "themselves",
}


def third_person(sentence: str) -> str:
    """The sentence about "User", without the mark at its end.

    >>> third_person("I don't use my phone at work."), third_person("My sister's name is Ana."), third_person("We run Postgres 16.")
    ("User doesn't use their phone at work", "User's sister's name is Ana", 'User runs Postgres 16')
    """
    text = sentence.strip().rstrip(".!").strip()
    text = re.sub(r"^(?:My|my|Our|our)\b", "User's", text)
    seen = 0

    def subject(match: re.Match[str]) -> str:
        nonlocal seen
        seen += 1
        return _subject(match, "User" if seen == 1 and "User" not in text[: match.start()] else "they")

    text = _SUBJECT.sub(subject, text)
    text = re.sub(r"\b(?:my|our|mine|ours|me|us|myself|ourselves)\b", lambda m: _POSSESSIVE[m.group()], text)
    return text[:1].upper() + text[1:]


def _subject(match: re.Match[str], name: str) -> str:
    glued, adverbs, verb = (match["glued"] or "").replace("’", "'"), match["adverbs"] or "", (match["verb"] or "").replace("’", "'")
    plural = name == "they"
    if glued:
        first = {"'m": "are", "'re": "are", "'ve": "have"}.get(glued) if plural else None
        return f"{name} {first or _IRREGULAR[glued]}{adverbs}{' ' + verb if verb else ''}"
    if not verb:
        return f"{name}{adverbs}"
    return f"{name}{adverbs} {('are' if verb == 'am' else verb) if plural else _conjugated(verb)}"


def _conjugated(verb: str) -> str:
    lowered = verb.lower()
    if lowered in _IRREGULAR:
        return _IRREGULAR[lowered]
    if lowered in _PAST or (lowered.endswith(("ed", "ing")) and len(lowered) > 4) or not verb.isalpha() or not verb.islower():
        return "needs" if lowered == "need" else verb
    if re.search(r"(?:s|x|z|ch|sh|o)$", lowered):
        return verb + "es"
    return verb[:-1] + "ies" if re.search(r"[^aeiou]y$", lowered) else verb + "s"
