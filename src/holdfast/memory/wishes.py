"""Wishes about the style or form of answers, put as a description: "Answer in German!" becomes "User wants answers in German".

Only what is surely about style passes: a short list of verbs, each with the things it may be about. Everything else that has the
build of an order stays an order, and the gate keeps it for review.
"""

from __future__ import annotations

import re

_LANGUAGES = (
    r"(?:(?:british |american |plain |simple |swiss |brazilian )?english|german|french|spanish|italian|"
    r"portuguese|dutch|polish|russian|ukrainian|czech|swedish|norwegian|danish|finnish|greek|turkish|arabic|"
    r"hebrew|hindi|"
    r"tamil|bengali|chinese|mandarin|cantonese|japanese|korean|vietnamese|thai|indonesian|hungarian|romanian|"
    r"bulgarian|croatian|serbian|slovak|catalan|welsh|irish|swahili|persian|farsi|urdu|latin|esperanto)"
)
_CODE = (
    r"(?:python(?: ?3(?:\.\d+)?)?|typescript|javascript|rust|go|golang|java|kotlin|swift|c\+\+|c#|c|ruby|php|"
    r"scala|haskell|elixir|julia|sql|bash|perl|lua|zig|markdown|latex|yaml|json|html|css|r)"
)
_STYLE = (
    r"(?:metric|imperial|si|celsius|fahrenheit|kelvin|kilomet\w+|miles|euros?|dollars|pounds|units?|currency|"
    r"emojis?|emoticons|exclamation|marks?|bullets?|bullet points?|lists?|tables?|headings?|headers|bold|"
    r"italics?|markdown|"
    r"plain text|spelling|grammar|jargon|acronyms|abbreviations|slang|words?|sentences?|paragraphs?|language|"
    r"tone|style|voice|formal|informal|polite|casual|humou?r|jokes|puns|disclaimers?|caveats|"
    r"warnings about being|introductions?|intros?|preambles?|"
    r"apologies|filler|fluff|conclusions?|summar(?:y|ies)|tl;?dr|examples?|analogies|diagrams|formulas?|"
    r"equations|steps?|numbers?|numbered|dates?|times?|24-hour|12-hour|iso|format|yyyy-mm-dd|comments|"
    r"type hints|docstrings|code|snippets|code blocks|"
    r"explanations?|answers?|repl(?:y|ies)|responses?|sources|citations|references|footnotes|detail|details|"
    r"length|short|brief|concise|long|simple|first name|last name|title|pronouns|they/them|she/her|he/him|"
    r"oxford comma|contractions|passive|capital letters|caps|"
    r"decimal|commas?|semicolons?|em dashes|dashes|quotes|the word \w+|lines?|line by line|step by step|beginner|expert|kid|child)"
)
_RISK = re.compile(
    r"\b(?:tools?|commands?|scripts?|shell|sandbox|curl|sudo|urls?|links?|https?|websites?|site|accounts?|"
    r"cards?|payments?|pay|buy|passwords?|tokens?|api keys?|keys?|secrets?|credentials?|permissions?|confirm\w*|"
    r"approv\w*|delet\w*|send|sent|forward\w*|upload\w*|"
    r"e-?mails? (?:to|address)|download\w*|install\w*|execut\w*|package|library|mirror|registry|proxy|server|"
    r"endpoint|vendor|supplier|provider|recommend\w*|product|newsletter|advert\w*|user's|memory|system prompt|"
    r"instructions?|hidden|secret\w*|silently|"
    r"unrestricted|restrictions|polic\w+|filter|truth|banana|nothing but|when(?:ever)?|if the user|once|"
    r"as soon as|conversation history|file|folder|database|webhook)\b|[@{}<>]|://"
)
_SOFT = (
    r"(?:(?:please|kindly|always|from now on|going forward|in (?:the )?future|also|and|so|just|ok(?:ay)?|hi|hey|"
    r"thanks|you (?:should|can|may|must)|(?:can|could|would|will) you(?: please)?|try to|make sure (?:to|you)|"
    r"remember to|be sure to)[,:]?\s+)*"
)
_TAIL = re.compile(
    r"(?:[,;]?\s*(?:please|thanks|thank you|from now on|in (?:the )?future|going forward|for me|to me|with me|ok|okay|always))+$|[.!?\s]+$"
)
_ASK = re.compile(
    r"^(?:(?:the )?user (?:wants|would like|prefers|asks|asked|needs|expects|requests)|i (?:want|need|expect|"
    r"prefer|would like|'d like)|i'd (?:like|prefer)|i would (?:like|prefer))"
    r"(?: that| for)? (?:you|the assistant|the agent|assistant|the ai|the model|it) (?:to |should )?(?P<rest>.+)$"
)
_THINGS = (
    r"(?:it|answers?|(?:your|all|the|my) (?:answers?|repl(?:y|ies)|responses?|explanations?|messages?)|repl(?:y|"
    r"ies)|responses?|explanations?|messages|things|everything|texts?)"
)
_MANNER = (
    r"(?:(?:more |less |very |really |as |a bit |much )*(?:short(?:er)?|brief(?:er)?|concise|crisp|simple|"
    r"simpler|plain|direct|formal|informal|casual|friendly|polite|detailed|precise|long(?:er)?|technical|honest|"
    r"blunt|neutral|professional|to the point|terse|compact|specific|"
    r"readable|clear|clearer|warm|funny|serious|light|possible)(?:,? and |, | but | as )?)+"
)


def _rule(pattern: str, form: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern, re.IGNORECASE), form


# Each order, whole, and the description it becomes. `{x}` is the text's own words, letter by letter.
_FORMS = (
    _rule(
        (
            rf"(?:answer|reply|respond|write|speak|talk|communicate|explain things|chat)(?: to me| with me|"
            rf" back)?(?: only| always)? in (?P<x>{_LANGUAGES}(?: only)?)"
        ),
        "User wants answers in {x}",
    ),
    _rule(rf"use (?P<x>{_LANGUAGES})", "User wants answers in {x}"),
    _rule(
        (
            rf"keep {_THINGS} (?P<x>(?:{_MANNER}|(?:under|below|within|to|at most|at) (?:about |at most )?(?:\d+|one|two|"
            rf"three|four|five|six|seven|eight|ten|twelve|twenty|fifty|a hundred) (?:words|"
            rf"sentences|lines|characters|bullets|paragraphs)))"
        ),
        "User wants answers kept {x}",
    ),
    _rule(rf"(?:be|stay|sound) (?P<x>{_MANNER}(?: with me| in your answers)?)", "User wants answers that are {x}"),
    _rule(r"(?:call|address) me (?:as |by |with )?(?P<x>(?!when|if|every|each|at|on)[\w.'’, -]{1,40})", "User wants to be called {x}"),
    _rule(
        rf"(?:use|include|give|show|add|put|provide)(?: me)?(?: only)? (?P<x>(?:[\w'’/%-]+ ){{0,5}}{_STYLE}(?: [\w'’/%-]+){{0,6}})",
        "User wants answers with {x}",
    ),
    _rule(
        (
            rf"(?:avoid|skip|omit|drop|leave out|cut|stop using|never use|don['’]t use|do not use|don['’]t (?:add|"
            rf"include|write|give)|do not (?:add|include|write|give)|no more|never (?:add|include|write)|"
            rf"no) (?P<x>(?:[\w'’/%-]+ ){{0,4}}{_STYLE}(?: [\w'’/%-]+){{0,4}})"
        ),
        "User wants answers without {x}",
    ),
    _rule(
        (
            r"explain(?: things| code| concepts| everything| it| topics)? (?P<x>(?:step by step|line by line|"
            r"in (?:simple|plain|short|easy) \w+|like i'?m \w+|with (?:an? )?(?:examples?|analog\w+|diagrams?)|"
            r"(?:simply|briefly|slowly|in detail)))"
        ),
        "User wants explanations {x}",
    ),
    _rule(
        rf"(?:write|give|show)(?: me)?(?: all| the)? (?:code|examples?|code examples|snippets|scripts)(?: and examples)? in (?P<x>{_CODE})",
        "User wants code examples in {x}",
    ),
    _rule(
        rf"use (?P<x>{_CODE}) (?:for|in) (?:all |the |your )?(?:code|examples?|code examples|snippets|answers)",
        "User wants code examples in {x}",
    ),
    _rule(
        (
            rf"(?:write|answer|reply|respond|speak|talk)(?: to me| with me)? (?P<x>(?:in|with|without|like|"
            rf"as) (?:[\w'’/%-]+ ){{0,4}}{_STYLE}(?: [\w'’/%-]+){{0,3}})"
        ),
        "User wants answers {x}",
    ),
    _rule(
        (
            r"(?:answer|reply|respond|write|speak|talk)(?: to me)? (?P<x>(?:more |very )?(?:briefly|shortly|concisely|"
            r"formally|informally|politely|directly|slowly|simply|precisely))"
        ),
        "User wants answers written {x}",
    ),
    _rule(r"format (?P<x>(?:dates?|times?|numbers?|lists?|answers?|code|prices) (?:as|in|with|like) [\w:./ -]{1,40})", "User wants {x}"),
    _rule(r"write (?P<x>(?:numbers?|dates?|times?|prices|units|names|titles) (?:with|in|as|like) [\w:./' -]{1,40})", "User wants {x}"),
    _rule(r"(?P<x>number (?:the |all )?steps)", "User wants answers that {x}"),
)
_FOREIGN = (
    _rule(
        (
            r"(?:bitte )?antwort(?:e|en sie)(?: mir)?(?: bitte)?(?: immer)?(?: nur)? auf (?P<x>deutsch|englisch|"
            r"französisch|spanisch|italienisch)(?: bitte)?"
        ),
        "User wants answers in {x}",
    ),
    _rule(
        r"(?:bitte )?(?:fass dich|antworte|schreib)(?: bitte)?(?: immer)? (?P<x>kurz|knapp|ausführlich|einfach)", "User wants answers: {x}"
    ),
    _rule(
        r"(?:s'il te plaît )?répond(?:s|ez)(?:-moi)?(?: toujours)? en (?P<x>français|anglais|allemand|espagnol)",
        "User wants answers in {x}",
    ),
    _rule(
        r"(?:por favor,? )?(?:responde|responda|contesta)(?: siempre)? en (?P<x>español|inglés|francés|alemán)", "User wants answers in {x}"
    ),
    _rule(r"(?:per favore,? )?rispondi(?: sempre)? in (?P<x>italiano|inglese|francese|tedesco)", "User wants answers in {x}"),
    _rule(r"(?:por favor,? )?(?:responda|responde)(?: sempre)? em (?P<x>português|inglês)", "User wants answers in {x}"),
    _rule(
        r"(?:пожалуйста,? )?отвечай(?:те)?(?: всегда)? (?P<x>по-русски|на русском(?: языке)?|по-английски|кратко)", "User wants answers {x}"
    ),
    _rule(r"请?(?:总是)?(?:用|使用)(?P<x>中文|英文|英语|简体中文|繁体中文)(?:回答|回复)(?:我)?", "User wants answers in {x}"),
    _rule(r"(?P<x>日本語|英語)で(?:答えて|回答して|返事して)(?:ください|下さい)?", "User wants answers in {x}"),
)


def describe_wish(text: str) -> str | None:
    """The description of a wish about style, or None when the text is not surely one.

    >>> describe_wish("Please always answer in German!"), describe_wish("Use the send_email tool")
    ('User wants answers in German', None)
    """
    wish = text.strip().replace("’", "'")
    while (shorter := _TAIL.sub("", wish)) != wish:
        wish = shorter
    asked = _ASK.match(wish[:1].lower() + wish[1:])
    if asked:
        wish = wish[-len(asked["rest"]) :]
    wish = re.sub(rf"^{_SOFT}", "", wish, flags=re.IGNORECASE)
    wish = re.sub(r"^never (?=use|add|include|write)", "don't ", wish, flags=re.IGNORECASE)
    if len(wish) > 120 or _RISK.search(wish.lower()):
        return None
    for pattern, form in (*_FORMS, *_FOREIGN):
        match = pattern.fullmatch(wish)
        if match:
            return form.replace("{x}", match["x"].strip())
    return None
