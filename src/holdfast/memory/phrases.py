"""The ways of saying things that the rules extractor knows: patterns over one English clause, each with a category and how sure it is.

Patterns are matched against a whole clause without its end mark, whatever its case; `(?-i:[A-Z])` asks for a capital letter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_I = (
    r"(?:i|we)(?:\s+(?:also|just|really|usually|mostly|mainly|currently|still|now|always|generally|often|only|"
    r"both|all|strongly|personally|much|actually|typically|definitely|absolutely|normally|primarily|already|"
    r"recently|finally))*"
)
_IM = r"(?:i['’]?m|i am|we['’]re|we are)(?:\s+(?:also|just|really|currently|still|now|actually|originally|officially|mainly))*"
_MY = r"(?:my|our)"


@dataclass(frozen=True)
class Phrase:
    """One way of saying one kind of thing. `value` in the pattern, where there is one, must say something of its own."""

    name: str
    category: str
    confidence: float
    pattern: re.Pattern[str]


def _said(name: str, category: str, confidence: float, pattern: str) -> Phrase:
    return Phrase(name, category, confidence, re.compile(pattern, re.IGNORECASE))


_PEOPLE = (
    r"(?:wife|husband|partner|spouse|girlfriend|boyfriend|fianc[ée]e?|son|daughter|kids?|child(?:ren)?|baby|"
    r"mother|mom|mum|father|dad|parents|brother|sister|siblings?|twins?|grandmother|grandfather|grandma|grandpa|"
    r"nephew|niece|uncle|aunt|cousin|family)"
)
_PETS = (
    r"(?:dog|cat|puppy|kitten|horse|pony|parrot|bird|rabbit|hamster|guinea pig|tortoise|turtle|goldfish|fish|"
    r"snake|lizard|ferret|pets?|chickens?|goats?)"
)
_JOBS = (
    r"(?:\w+[- ]){0,3}(?:engineer|developer|programmer|designer|teacher|nurse|doctor|dentist|lawyer|student|"
    r"researcher|scientist|manager|architect|analyst|consultant|writer|editor|journalist|photographer|"
    r"illustrator|artist|musician|chef|cook|baker|"
    r"accountant|administrator|admin|freelancer|founder|ceo|cto|director|professor|lecturer|librarian|"
    r"pharmacist|physicist|chemist|biologist|economist|electrician|plumber|carpenter|mechanic|pilot|driver|"
    r"farmer|translator|therapist|psychologist|"
    r"vet|veterinarian|notary|judge|paramedic|firefighter|police officer|salesperson|marketer|recruiter|owner|"
    r"contractor|technician|operator|maintainer|tester|lead|intern|apprentice|retiree|parent|mother|father|dad|"
    r"mom|mum|statistician|"
    r"mathematician|historian|philosopher|social worker|surgeon|midwife|tutor|coach|trainer|seamstress|tailor|"
    r"barista|waiter|waitress|florist|gardener|geologist|astronomer|linguist|actor|actress|singer|drummer|"
    r"guitarist|novelist|poet|undergraduate|phd)(?:\b.*)?"
)
_TRAITS = (
    r"(?:(?:a |an )?(?:vegan|vegetarian|pescatarian|diabetic|left-handed|right-handed|colou?r-?blind|deaf|blind|"
    r"dyslexic|pregnant|retired|unemployed|self-employed|married|single|divorced|engaged|widowed|"
    r"lactose intolerant|gluten intolerant|"
    r"coeliac|celiac|muslim|jewish|christian|hindu|buddhist|atheist|bilingual|shortsighted|introverted|"
    r"extroverted|night owl|morning person|early riser|introvert|extrovert|beginner|only child|member of .+|"
    r"fan of .+|big fan of .+|huge fan of .+)|"
    r"allergic to .+|\d{1,3}(?: years old)?|(?:based|located|living) in .+|(?:originally )?from [A-Z].+|"
    r"in (?:the )?[\w+:/-]+ time ?zone|responsible for .+|in charge of .+|on (?:parental|maternity|paternity|"
    r"sick) leave.*|fluent in .+|afraid of .+)"
)
PHRASES = (
    _said(
        "name",
        "identity",
        0.95,
        rf"{_MY} (?:(?:full|first|last|given|real|middle) )?(?:name|surname|nickname|pronouns) (?:is|are) (?P<value>.+)",
    ),
    _said("name", "identity", 0.9, r"(?:i['’]m|i am) (?P<value>(?-i:[A-Z])[\w'’-]+(?: (?-i:[A-Z])[\w'’-]+){0,2})"),
    _said("name", "identity", 0.9, r"(?:i['’]m|i am) (?P<value>(?-i:[A-Z])[\w'’-]+(?: (?-i:[A-Z])[\w'’-]+){0,2},? (?:an? |the |from ).+)"),
    _said("name", "identity", 0.9, r"(?:i go by|(?:people|friends|they|everyone|everybody)(?: at work| here)? calls? me) (?P<value>.+)"),
    _said("home", "identity", 0.95, rf"{_I} (?:live|lived|have lived|grew up|reside) (?:in|near|on|at|with) (?P<value>.+)"),
    _said("home", "identity", 0.95, rf"(?:{_I}|i['’]ve) (?:moved|relocated) (?:back )?(?:in)?to (?P<value>.+)"),
    _said("home", "identity", 0.9, rf"{_IM} (?:moving|relocating) to (?P<value>.+)"),
    _said("born", "identity", 0.95, rf"i was born (?:in|on) (?P<value>.+)|{_MY} (?:birthday|date of birth) (?:is|falls) (?P<value2>.+)"),
    _said("work", "identity", 0.95, rf"{_I} work (?:at|for|as|in|on|with|from|part|full|night|remotely|four|three|five|\d).*"),
    _said(
        "work", "identity", 0.95, r"(?:i|we)['’]ve been (?:working (?:at|for|as|in)|an? ).+|i have been (?:working (?:at|for|as|in)|an? ).+"
    ),
    _said(
        "work",
        "identity",
        0.95,
        rf"{_I} (?:run|own|teach|lead|manage|maintain|study|coach|volunteer|freelance|report to|head|founded|sell) (?P<value>.+)",
    ),
    _said(
        "work",
        "identity",
        0.9,
        (
            rf"(?:{_I}|i['’]ve) (?:started|joined|quit|left|got promoted|retired|got a) (?P<value>.*(?:\b(?:job|company|"
            rf"position|role|team|senior|as|at)\b|(?-i:[A-Z])\w+).*)"
        ),
    ),
    _said("work", "identity", 0.9, rf"{_IM} an? (?P<value>{_JOBS})"),
    _said(
        "work",
        "identity",
        0.85,
        rf"{_IM} (?:working|studying|employed|teaching|interning) (?P<value>(?:at|for|as|in|with)\b.+|\w+ (?:at|in) .+)",
    ),
    _said("trait", "identity", 0.95, rf"{_IM} (?P<value>{_TRAITS})"),
    _said(
        "trait",
        "identity",
        0.9,
        (
            r"i (?:have|suffer from|live with) (?P<value>(?:an? )?(?:dyslexia|adhd|asthma|diabetes|migraines?|autism|"
            r"epilepsy|arthritis|anxiety|depression|insomnia|celiac disease|\w+ allergy|allergies|fear of .+|"
            r"bad (?:back|knee)|.* citizenship).*)"
        ),
    ),
    _said(
        "language",
        "identity",
        0.95,
        (
            rf"{_I} speak (?P<value>(?!to|with|at|about|for|up).+)|(?:\w+ is my (?:native|first|second|third) language|"
            rf"my (?:mother tongue|native language) is \w+.*)"
        ),
    ),
    _said(
        "family",
        "identity",
        0.95,
        (
            rf"(?:{_I} (?:have|'ve got|got)|i['’]ve got) (?P<value>(?:an? |two |three |four |five |six |\d+ |"
            rf"no )(?:\w+[- ]){{0,3}}(?:{_PEOPLE}|{_PETS})s?\b.*)"
        ),
    ),
    _said(
        "family",
        "identity",
        0.95,
        (
            rf"{_MY} (?:\w+ )?(?:{_PEOPLE}|{_PETS})(?:['’]s (?:\w+ )?name)?(?: (?-i:[A-Z])\w+)? (?:is|are|has|have|was|"
            rf"lives?|works?|starts?|turned|turns) (?P<value>.+)"
        ),
    ),
    _said("family", "identity", 0.9, rf"{_I} keep (?P<value>(?:bees|chickens|goats|horses|sheep|.*{_PETS}).*)"),
    _said(
        "of me",
        "context",
        0.85,
        (
            rf"{_MY} (?!(?:question|problem|issue|point|idea|guess|bad|code|output|error|understanding|concern|next|"
            rf"first|last)\b)(?:[\w-]+ ){{1,3}}(?:is|are) (?:called |named )?(?P<value>.+)"
        ),
    ),
    _said("prefer", "preference", 0.95, rf"{_I} (?:prefer|favou?r) (?P<value>.+)"),
    _said("prefer", "preference", 0.9, r"i(?:['’]d| would) (?:rather|prefer) (?P<value>.+)"),
    _said("like", "preference", 0.9, rf"{_I} (?:like|love|enjoy|adore|appreciate) (?P<value>.+)"),
    _said(
        "dislike",
        "preference",
        0.9,
        (
            rf"{_I} (?:hate|dislike|detest|loathe|avoid|can['’]t stand|cannot stand|don['’]t like|do not like|"
            rf"don['’]t enjoy|don['’]t eat|don['’]t drink|never eat|never drink) (?P<value>.+)"
        ),
    ),
    _said("dislike", "preference", 0.9, rf"{_IM} not (?:a|an|much of a) (?:big )?fan of (?P<value>.+)"),
    _said("favourite", "preference", 0.95, rf"{_MY} favou?rite .+ (?:is|are) (?P<value>.+)"),
    _said(
        "habit",
        "preference",
        0.85,
        (
            r"(?:i|we) (?:always|usually|never|normally|rarely) (?P<value>(?!said|thought|knew|wondered|got|had|heard|"
            r"saw|wanted|asked|told)\w+ .+)"
        ),
    ),
    _said(
        "use",
        "knowledge",
        0.9,
        (
            rf"{_I} (?:use|run|deploy (?:to|with|on)|develop (?:in|with|on)|write (?:\w+ )?(?:in|with)|code in|"
            rf"program in|build with|host on|self-host|drive|own) (?P<value>.+)"
        ),
    ),
    _said(
        "use",
        "knowledge",
        0.9,
        rf"{_I} (?:don['’]t use|do not use|no longer use|stopped using|switched (?:from|to)|migrated (?:from|to)|moved from) (?P<value>.+)",
    ),
    _said("use", "knowledge", 0.9, rf"{_IM} (?:using|running|on) (?P<value>(?:(?-i:[A-Z])|v?\d|macos|ubuntu|python|node|linux).+)"),
    _said(
        "use",
        "knowledge",
        0.9,
        (
            rf"{_MY} (?:\w+ ){{1,3}}(?:runs? on|uses?|is written in|is built with|is hosted on|are written in|listens on|"
            rf"returns?|supports?) (?P<value>.+)"
        ),
    ),
    _said(
        "goal",
        "goal",
        0.9,
        (
            rf"{_I} (?:want|plan|intend|aim|hope|need|['’]d like|would like) to (?P<value>(?!know|ask|see if|see whether|"
            rf"see how|see what|understand why|understand what|thank|say|point|add|mention|be clear|clarify|check|"
            rf"confirm|make sure|do (?:this|that|it)|talk|go back|start over|continue|try again|try this|try that|"
            rf"fix this|fix that|use this|use that)\w+ .+)"
        ),
    ),
    _said(
        "goal",
        "goal",
        0.9,
        (
            r"i['’]d like to (?P<value>(?:learn|become|write|build|move|visit|get better|start|play|read|run|finish|"
            r"publish|improve|travel|retire|open|buy|study)\b.+)"
        ),
    ),
    _said("goal", "goal", 0.9, rf"{_MY} (?:\w+ )?(?:goal|plan|aim|dream|ambition|target)(?: for [\w ]+)? is (?P<value>.+)"),
    _said(
        "goal",
        "goal",
        0.9,
        (
            rf"{_IM} (?:training|saving|preparing|studying) for (?P<value>.+)|{_IM} (?:learning|trying to|planning to|"
            rf"hoping to|planning|organi[sz]ing|building|writing|renovating|working on) (?P<value2>.+)"
        ),
    ),
    _said(
        "decision",
        "decision",
        0.9,
        (
            rf"(?:{_I}|i['’]ve|we['’]ve|(?:i|we) have) (?:decided|chose|chosen|picked|settled|agreed|opted|selected|"
            rf"dropped|rejected|postponed|cancelled|canceled|adopted|signed up|accepted) (?P<value>.+)"
        ),
    ),
    _said(
        "decision",
        "decision",
        0.85,
        rf"{_IM} (?:going with|not going to (?:use|buy|move|take)|sticking with|moving to|switching to|migrating to) (?P<value>.+)",
    ),
    _said(
        "decision",
        "decision",
        0.85,
        r"we (?:will|won['’]t|['’]ll) (?:use|rewrite|migrate|drop|adopt|keep|release|ship|switch) (?P<value>.+)",
    ),
    _said(
        "no longer",
        "context",
        0.9,
        (
            rf"{_I} no longer (?P<value>.+)|{_I} (?:don['’]t|do not) (?P<value2>(?:live|work|use|drink|eat|smoke|"
            rf"drive) .*(?:any ?more))|{_IM} (?P<value3>not .+ any ?more)"
        ),
    ),
)
_Y = r"(?P<y>(?:[^,;.]|(?<=\d)[,.:](?=\d))+?)"
CORRECTIONS = (
    re.compile((
rf"^(?:(?:no|nope|actually|sorry|wait|correction|not quite|that['’]s (?:wrong|not right|incorrect)|"
rf"you got that wrong|wrong)[,.:!—-]*\s+)+(?:but\s+|it['’]s\s+that\s+)?(?P<claim>(?:i|we|my|our|the|it|"
rf"it['’]s|i['’]m|we['’]re)\b.+?),?\s+(?:and )?not\s+(?:in |at |on |an? |the |with )?{_Y}[.!]*$"
), re.IGNORECASE),
    re.compile((
rf"^(?P<claim>(?:i|we|my|our|the|i['’]m|we['’]re)\b.+?)(?:,\s+(?:and )?|\s+and\s+)not\s+(?:in |at |on |an? |"
rf"the |with )?{_Y}[.!]*$"
), re.IGNORECASE),
    re.compile((
r"^(?:no|nope|actually|correction|sorry|that['’]s (?:wrong|not right|incorrect)|not quite|"
r"you got that wrong|wrong)[,.:!—-]+\s+(?:it['’]s actually\s+|actually,?\s+)?(?P<claim>(?:i|we|my|our|the|"
r"i['’]m|we['’]re)\b.+)$"
), re.IGNORECASE),
    re.compile(r"^(?P<claim>(?:it['’]s|it is) spelled .+|(?:i|we) (?:meant|said) .+)$", re.IGNORECASE),
    re.compile(r"^(?:i['’]m|i am) not (?P<y>an? [\w -]+?),\s*(?P<claim>(?:i['’]m|i am) (?:an? )?.+)$", re.IGNORECASE),
)  # fmt: skip
