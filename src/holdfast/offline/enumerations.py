"""Lists inside a sentence: "A, B and C", "A oder B", "A、B和C"."""

from __future__ import annotations

import re

AND = r"(?:and|or|und|oder|sowie|et|ou|y|e|o|ed|od|och|eller|og|ja|tai|и|или|&|vs\.?|versus)"
_SPLIT = re.compile(
    rf"\s*[,;]\s+(?:{AND}\s+|as well as\s+|nor\s+)?|\s+(?:as well as|along with|{AND}|against)\s+"
    r"|\s*[、，；]\s*|\s*(?:和|与|以及|及|或者|或|または|および|と)\s*",
    re.IGNORECASE,
)
_ARTICLE = re.compile(
    r"^(?:the|a|an|its|their|our|der|die|das|den|dem|ein|eine|le|la|les|l'|un|une|el|los|las|il|lo|gli)\s+", re.IGNORECASE
)
_EDGES = " \t\n.,;:!?…。？！，、\"'“”"
_BRACKETED = re.compile(r"\([^()]*\)|\[[^\]]*\]")


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

    parts = _SPLIT.split(_BRACKETED.sub(hold, text))
    cleaned = (re.sub("\x00(\\d+)\x00", lambda match: held[int(match.group(1))], _bare(part)) for part in parts if part)
    return list(dict.fromkeys(part for part in cleaned if part))


def _bare(part: str) -> str:
    return _ARTICLE.sub("", part.strip(_EDGES)).strip(_EDGES)


def looks_like_names(parts: list[str]) -> bool:
    """Whether all members are names: each begins with a capital or has a figure in it, and is short."""
    return len(parts) > 1 and all(len(part.split()) <= 4 and (part[:1].isupper() or any(c.isdigit() for c in part)) for part in parts)
