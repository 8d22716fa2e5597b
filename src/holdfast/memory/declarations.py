"""Whether a text is built like a statement at all: it has a subject and speaks of something, and it speaks to nobody.

Orders have no end of wordings, so nothing is learned because it looks like no known order: a fact has to have the build of a statement.
English, and what tells a statement in the first person in some other languages.
"""

from __future__ import annotations

import re

from holdfast.memory.instructions import strip_lead_in
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_SUBJECTS = _words(
    """
    i i'm i've i'd i'll im ive we we're we've we'll we'd my our mine ours user user's users the a an he he's she she's
    they they're they've his her their its it it's this that that's these those there there's here's some most many
    several both all every each any no nobody none one two three four five six seven eight nine ten people everyone
    everybody someone somebody half me us
    """
)
_FINITE = re.compile(
    r"\b(?:is|isn't|are|aren't|was|wasn't|were|weren't|has|hasn't|have|haven't|had|does|doesn't|did|didn't|can|"
    r"can't|cannot|could|will|won't|would|should|must|may|might|"
    r"needs?|uses?|runs?|lives?|works?|starts?|ends?|takes?|costs?|means?|gets?|goes|comes?|calls?|sends?|"
    r"plays?|became|came|went|got|made|took|said|told|moved|stands?|stays?|belongs?|keeps?|matters?|"
    r"\w{3,}s (?:to|in|on|at|for|with|me|us))\b"
)
_INTERJECTION = re.compile(
    r"^(?:(?:no|nope|yes|yeah|ok|okay|well|so|and|but|also|oh|hi|hello|hey|sorry|thanks|thank you|actually|"
    r"anyway|besides|however|again|not quite|not really|not exactly|correction|wrong|fyi|btw|by the way|"
    r"honestly|personally|currently|usually|sometimes|often|generally|normally|recently|lately|nowadays|today|"
    r"tomorrow|yesterday|finally|originally|"
    r"at the moment|right now|these days|for now|in general|in fact|as (?:i|you) (?:said|know|mentioned)|"
    r"of course|unfortunately|luckily|sadly|update|note|fact|for context|context|"
    r"background)(?:\s*[,.:;!–—-]+\s*|\s+))+"
)
_CLAUSE = re.compile(
    r"(?:whatever|if|when|whenever|once|after|before|until|while|as soon as|unless|because|since|as|at|in|on|"
    r"during|for|from|with|without|by|upon|every time|each time|next time|the next time|given)\b"
)
_ONE_SELF = re.compile(
    "".join(
        rf"(?<!^{word} )"
        for word in ["if", "when", "once", "while", "whatever", "whenever", "after", "before", "because", "since", "as", "until"]
    )
    + r"\b(?:i|we|user|the user|they|my \w+|our \w+|user's \w+)\b(?:'\w+)?\s+\w"
)
_NOT_PLURAL = _words(
    "process pass press access address bypass dismiss discuss express focus guess toss miss assess compress "
    "cross bless confess always perhaps unless yes this thus plus"
)
_NOT_DOING = _words("bring ring sing ping string swing fling cling sting wring spring bling")
_YOU = re.compile(r"\b(?:you|your|yours|yourself|u|thou)\b(?:'\w+)?")
_HARMLESS_YOU = re.compile(
    r"\b(?:you (?:got|have|had|took) (?:that|it|this|me) (?:all )?wrong|you (?:misunderstood|misheard|forgot|"
    r"said|asked|know|see)|as you (?:know|said|can see|see)|thank you|told you|tell you|you are (?:wrong|"
    r"mistaken)|you're (?:wrong|mistaken)|you were wrong|you guys)\b"
)
_FOREIGN_SELF = re.compile(
    r"\b(?:ich|wir|je|nous|yo|nosotros|io|noi|eu|nós|ik|wij|jag|vi|jeg|я|мы|у меня|мне|мені)\b|\bj'|(?:^|"
    r"[，,。；、\s])(?:今天|现在|以前|去年|其实)?[我咱]|^(?:\w{0,4})我(?=[在是有住喜])|私(?!の代わり)|僕|俺|^(?:저|나|우리)|저는|나는"
)
_FOREIGN_OWN = re.compile(
    r"^(?:(?:der|die|das|le|la|les|il|lo|i|gli|o|a|os|as|el)\s+)?(?:mein\w*|unser\w*|mon|ma|mes|notre|nos|mi|"
    r"mis|nuestr\w+|mio|mia|miei|mie|nostr\w+|meu|minha|meus|minhas|nosso|nossa|mijn|ons|onze|мой|моя|моё|мои|"
    r"мою|моего|моей|наш\w*|"
    r"min|mitt|mina|moj\w*|mój|benim)\b"
)
_FOREIGN_VERB = re.compile(
    r"^(?:non |no |não |ya no |nie )?(?:\w{2,}o|soy|estoy|voy|sou|estou|ho|sono|sto|jestem|mam|\w+(?:am|em|im|ę|"
    r"ym))\s+\w|^(?:no )?(?:me (?:gusta|gustan|encanta|llamo)|mi (?:piace|piacciono|chiamo)|mam na imię)\b"
)
_FOREIGN_YOU = re.compile(
    r"\b(?:du|dir|dich|deine?[rnms]?|tu|toi|ton|tes|vous|votre|vos|tú|usted|ustedes|tus|voi|vostro|você|vocês|"
    r"teu|tua|jij|jouw|ты|тебя|тебе|вы|вас|твой)\b|[你您]|あなた|당신"
)
_FOREIGN_PLAIN = re.compile(
    r"(?:ます|です|ました|でした|ません|ている|ていた|だった|好きだ)[。.]?$|(?:습니다|입니다|어요|아요|예요|이에요)[.]?$"
)


def declares(text: str) -> bool:
    """Whether every sentence of the text is built like a statement.

    >>> declares("User likes tea"), declares("Lower the alerts"), declares("If it rains, close the roof"), declares("Uses PostgreSQL 16")
    (True, False, False, True)
    """
    sentences = [unit.text for unit in split_sentences(strip_lead_in(text.strip()))]
    parts = [part for sentence in sentences for part in sentence.split("; ") if any(c.isalnum() for c in part)]
    return bool(parts) and all(_declares(part) for part in parts)


def speaks_to_somebody(text: str) -> bool:
    """Whether the text addresses its reader. What is learned about a user says nothing to anybody."""
    plain = _HARMLESS_YOU.sub(" ", normalise(strip_lead_in(text.strip())))
    return _YOU.search(plain) is not None or (_FOREIGN_YOU.search(plain) is not None and _SUBJECT_FREE.search(plain) is not None)


_SUBJECT_FREE = re.compile(
    r"[^\x00-\x7f]|\b(?:musst|sollst|darfst|kannst|bist|dois|es|peux|devez|pouvez|debes|puedes|devi|puoi|deve|"
    r"pode)\b"
)


def _declares(sentence: str) -> bool:
    plain = normalise(sentence).strip(" \"'()*-.!?…")
    bare = _INTERJECTION.sub("", plain)
    if not re.match(r"(?:i|we|they|user|the user)\b", bare) and any(
        _ORDER_SHAPE.match(tail) for tail in re.split(r"[,:]\s+|\s[–—-]\s", bare)[1:]
    ):
        return False  # "..., spread them": an order behind a statement
    if _CLAUSE.match(bare):
        _, comma, rest = bare.partition(", ")
        if comma:
            return _declares(rest) or (_has_head(rest) if rest else False)
        return _ONE_SELF.search(bare) is not None or _foreign(bare)
    return _has_head(bare) or _foreign(bare)


def _has_head(bare: str) -> bool:
    words = re.findall(r"[\w'&+#.-]+", bare)
    if not words:
        return False
    first = words[0]
    if (first in _SUBJECTS and words[:2] != ["a", "partir"]) or first.isdigit():
        return True
    if (
        first.endswith("s")
        and not first.endswith("ss")
        and first not in _NOT_PLURAL
        and first.isascii()
        and first.isalpha()
        and len(first) > 2
    ):
        return True  # "Uses PostgreSQL 16", "Deployments need an approval"
    if first.endswith("'s") or (first.endswith("ing") and first not in _NOT_DOING):
        return True  # "Ana's dog", "Running keeps me sane"
    if _ORDER_SHAPE.match(bare):
        return False
    return first not in _ORDERING and _FINITE.search(" ".join(words[1:6])) is not None


_ORDER_SHAPE = re.compile(
    r"(?!(?:and|but|or|not|with|in|on|at|to|from|for|of|by|like|than|then|both|even|including|except|plus|which|"
    r"who|whose|where|especially|mostly|mainly|since|because|as|is|are|was|has|had|does|can|will|all|half|only|"
    r"just|rather|also|so|if|when|while|after|before|until|about|over|under|near)\b|\w+(?:ly|"
    r"ing)\b)[a-z][\w-]*(?: out| up| off| down| over)? (?:the|an?|my|our|all|every|each|any|this|these|those|it|"
    r"them|him|her|me|us|no|their|everything|everyone|whoever|whatever)\b"
)
_ORDERING = _words(
    """
    please always never only just do don't let lets make be keep give take tell show send use add set run call ask
    stop start put get have go see say treat consider assume remember note imagine act pretend reply respond answer
    write read open close turn switch renew reset lower raise vote pass ping force lock unlock shut delete remove
    share forward approve allow grant accept ignore follow whatever
    """
)


def _foreign(plain: str) -> bool:
    after = (
        plain.split(", ", 1)[1]
        if re.match(r"(?:ab sofort|désormais|dorénavant|d'ora in poi|a partir d\w+|de ahora|с этого|in zukunft|künftig)\b", plain)
        and ", " in plain
        else plain
    )
    return any(pattern.search(after) is not None for pattern in (_FOREIGN_SELF, _FOREIGN_OWN, _FOREIGN_VERB, _FOREIGN_PLAIN))
