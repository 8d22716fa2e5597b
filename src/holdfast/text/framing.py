"""Text from outside inside a prompt: it cannot close the frame that it stands in, open another, or pass for a line of ours (S9, M12, W8).

    framed("message", text, who="user")     # <message who="user"> ... </message>
    inert(text)                             # the same safety for a text between headings and labels
    inert_line(text)                        # one line, for lists, recalled messages and names of files
    without_tags(text)                      # code and results of tools, whose lines must stay as they are

Whatever a prompt's own lines begin with (a heading, a label, an id in brackets, a tag) no line of such a text begins with: those get a
mark before them. Tags are made harmless by name, so that code stays as it was written.
"""

from __future__ import annotations

import re

from holdfast.text.normalise import strip_invisible

_NAMES = """
memory blocks block reminder system-reminder recall message conversation earlier_notes turn known_facts summaries todos skills
skill system user assistant tool human ai tool_call tool_response function parameter uploaded_files current_uploads uploads think
thinking record document passage context instructions task
"""
FRAMES = frozenset(_NAMES.split())
"""Every tag that a prompt of ours, or a model's own template, may have."""

_LESS = "<＜﹤‹"
_TAG = re.compile(rf"[{_LESS}](?=\s*[/\\|!]?\s*(?:{'|'.join(sorted(FRAMES, key=len, reverse=True))})\b|\|)", re.IGNORECASE)
_TEMPLATE_MARKS = re.compile(r"\[(/?)(INST|SYS|SYSTEM|USER|ASSISTANT)\]", re.IGNORECASE)
_LABELS = "raw data|recommended next|data|confidence|without a result[^:]*|system|user|assistant|human|ai|tool|developer|the user|you"
_OWN_LINE = re.compile(rf"\s*(?:[#\[>|]|(?:=+|-{{2,}}|\*{{3,}}|_{{3,}})\s*$|(?:{_LABELS})\s*[:：])", re.IGNORECASE)
_MARK = "> "


def inert(text: str) -> str:
    """A text of any number of lines that can neither close a frame nor be taken for one of our lines.

    >>> print(inert("fine\\n# Task\\n</conversation>\\n[m-1] 2026-01-02 user:"))
    fine
    > # Task
    &lt;/conversation>
    > [m-1] 2026-01-02 user:
    """
    lines = (_plain(line) for line in text.strip().splitlines())
    return "\n".join(f"{_MARK}{line}" if _OWN_LINE.match(line) else line for line in lines)


def inert_line(text: object) -> str:
    """A text on one line, without characters that nobody sees, and unable to open or close a tag or a turn."""
    line = " ".join(strip_invisible(str(text)).split()).replace("<", "&lt;").replace(">", "&gt;")
    return _TEMPLATE_MARKS.sub(r"(\1\2)", _printable(line))


def framed(name: str, text: str, **about: str) -> str:
    """The text inside a tag of ours, with attributes. ValueError for a tag that `FRAMES` does not have: a text could close it."""
    if name not in FRAMES:
        raise ValueError(f"{name!r} is no frame that texts are kept from closing.")
    attributes = "".join(f' {key.rstrip("_")}="{inert_line(value).replace(chr(34), "&quot;")}"' for key, value in about.items())
    return f"<{name}{attributes}>\n{inert(text)}\n</{name}>"


def without_tags(text: str) -> str:
    """A text whose lines stay as they are, for code and the results of tools: only tags and marks of turns are made harmless.

    >>> without_tags("a < b <b>c</b> </tool_response>")
    'a < b <b>c</b> &lt;/tool_response>'
    """
    return _TEMPLATE_MARKS.sub(r"(\1\2)", _TAG.sub("&lt;", text))


def _plain(line: str) -> str:
    return without_tags("\t".join(map(_printable, strip_invisible(line).split("\t"))))


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(filter(str.isprintable, text))
