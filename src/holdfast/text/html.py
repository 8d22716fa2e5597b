"""HTML as Markdown: the one reader for fetched pages, uploaded files and folders of sources. Pure Python, no package needed.

What a reader of the page does not see is not in the text: scripts, comments, hidden elements, navigation. That is where instructions are
planted. Tags are read as browsers read them (implied and stray end tags, unclosed quotes), so that nothing can be visible here and hidden
there; the time is linear in the size, which `html.parser` of older Pythons does not promise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_RAW = _names("script style xmp iframe noembed noframes noscript textarea title")
"""Elements whose content is text up to their own end tag."""
_DROPPED = _names(
    "script style noscript template svg math canvas iframe object audio video form button input select textarea datalist nav footer aside "
    "xmp noembed noframes"
)
_CELLS = _names("td th caption")
_TABLE = _names("table thead tbody tfoot tr") | _CELLS
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = (
    _names(
        "p div section article main header footer aside nav ul ol li dl dt dd blockquote figure figcaption pre hr address details summary"
    )
    | _names("form fieldset center body html head title template button object dialog")
    | _TABLE
    | _HEADINGS.keys()
)
_IN_HEAD = _names("title meta link script style base noscript template head")
_CLOSES = {  # an opening tag ends an open one of the first, up to one of the second
    "li": (_names("li"), _names("ul ol table")),
    "dt": (_names("dt dd"), _names("dl table")),
    "dd": (_names("dt dd"), _names("dl table")),
    "tr": (_names("tr"), _names("table")),
    "td": (_CELLS, _names("tr table")),
    "th": (_CELLS, _names("tr table")),
}
_PARAGRAPH = (_names("p"), _names("button object table") | _CELLS)
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`"}
_DEPTH = 120  # what is nested deeper is left out
_MARKED_DEPTH = 6  # quotations and lists are marked so deep: a mark is repeated in every line

_NAME = re.compile(r"[a-zA-Z][^\s/>\0]*+")
_ATTRIBUTE = re.compile(r"""[\s/]*+(=[^\s/>=]*+|[^\s/>=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|(?!["'])([^\s>]*+)))?""")
_UNCLOSED = re.compile(r"""\s*+=\s*+["']""")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_CHARSETS = re.compile(  # of pages and mails; Python knows others that are no character sets, or take very long
    r"utf-?8|utf-?16(?:[lb]e)?|utf-?32(?:[lb]e)?|us-ascii|ascii|latin-?1|iso-?8859-(?:1[0-6]?|[2-9])|(?:windows-|cp)(?:125[0-8]|874|932|949|950)"
    r"|koi8-[rtu]|mac-?roman|shift-?jis|euc-(?:jp|kr)|iso-2022-(?:jp|kr)|gb2312|gbk|gb18030|big5(?:hkscs)?|tis-620"
)
_UNSEEN = re.compile(  # declarations, each between `;`, that leave nothing to see
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|(?:-[a-z]+-)?opacity\s*:\s*0*+(?:\.0*+)?%?|color\s*:\s*transparent"
    r"|font-size\s*:\s*(?:(?:0++(?:\.0*+)?|\.0++)[a-z%]*|0*[01](?:\.\d+)?(?:px|pt))|(?:max-)?(?:width|height)\s*:\s*0*[01]?(?:\.0+)?(?:px)?"
    r"|(?:text-indent|(?:margin-)?(?:left|top|right|bottom))\s*:\s*-\d{3,}[^;]*|clip\s*:\s*rect\(\s*[01][^;]*|clip-path\s*:\s*inset\(\s*(?:50|100)%[^;]*"
    r"|(?:transform|scale)\s*:\s*(?:scale\()?\s*0\)?)\s*(?:!\s*important\s*)?(?:;|$)",
    re.IGNORECASE,
)
_COLOUR = re.compile(r"(?:^|;)\s*color\s*:\s*([^;!]+)", re.IGNORECASE)
_GROUND = re.compile(r"(?:^|;)\s*background(?:-color)?\s*:\s*([^;!]+)", re.IGNORECASE)
_STYLE, _STYLE_END = re.compile(r"<style\b", re.IGNORECASE), re.compile(r"</style", re.IGNORECASE)
_SELECTOR = re.compile(r"([a-z][a-z0-9]*)?(?:([.#])([\w-]+))?", re.IGNORECASE)
_SAME_COLOUR = {"white": "#fff", "#ffffff": "#fff", "black": "#000", "#000000": "#000", "rgb(255,255,255)": "#fff", "rgb(0,0,0)": "#000"}
_ELEMENTS = 200_000  # a page that has more is cut there
_CSS_COMMENT = re.compile(r"/\*.*?(?:\*/|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """The title of a page, if it has one, and its text as Markdown."""

    title: str | None
    text: str


def read_html(data: bytes | str, *, charset: str | None = None, marks: bool = False, main_only: bool = False) -> HtmlPage:
    """The readable part of a page. Never raises, however broken the page is.

    `marks` keeps links, emphasis, inline code and quotations as Markdown; without them the words stand alone, to be quoted. `main_only`
    takes the `<article>` or `<main>` alone where that carries a good part of the text. `charset` is what the sender said, for bytes.
    """
    text = data if isinstance(data, str) else _decoded(data, charset)
    builder = _TreeBuilder()
    builder.read(text)
    writer = _MarkdownWriter(marks)
    writer.write(_main_part(builder.root) if main_only else builder.root)
    writer.end_block()
    title = " ".join("".join(builder.title).split())
    return HtmlPage(title or None, joined_blocks(writer.blocks))


def joined_blocks(blocks: list[str]) -> str:
    """Markdown blocks with a blank line between them, but not inside a list or a table."""
    pieces: list[str] = []
    for before, block in zip(["", *blocks], blocks, strict=False):
        together = _kind(before) is not None and _kind(before) == _kind(block)
        pieces.append(("\n" if together else "\n\n" if before else "") + block)
    return "".join(pieces) + "\n" if pieces else ""


def _kind(block: str) -> str | None:
    line = block.lstrip(" >")
    return "item" if re.match(r"- |\d{1,4}\. ", line) else "row" if line.startswith("| ") else None


def decode_text(data: bytes, charset: str | None = None) -> str:
    """The text of bytes in a character set that pages are written in; any other name is passed over. Never raises."""
    if data.startswith(b"\xef\xbb\xbf"):
        return data[3:].decode("utf-8", errors="replace")
    name = (charset or "").lower().replace("_", "-")
    try:
        return data.decode(name if _CHARSETS.fullmatch(name) else "utf-8", errors="replace")
    except LookupError:  # a name that pages use and this Python does not
        return data.decode("utf-8", errors="replace")


def _decoded(data: bytes, charset: str | None) -> str:
    if charset is None and (said := _CHARSET.search(data, 0, 4096)):
        charset = said[1].decode("ascii")
    return decode_text(data, charset)


def _unescaped(text: str) -> str:
    try:
        return unescape(text) if "&" in text else text
    except ValueError:  # a number with thousands of digits
        return text


@dataclass(slots=True)
class _Element:
    tag: str
    attributes: dict[str, str]
    hidden: bool
    children: list[_Element | str] = field(default_factory=list)
    has_heading: bool = False  # somewhere below

    def texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield from child.texts()


class _TreeBuilder:
    """Builds the tree of the elements that are seen: what is hidden never gets into it."""

    def __init__(self) -> None:
        self.root = _Element("", {}, hidden=False)
        self.title: list[str] = []
        self._open = [self.root]
        self._count: Counter[str] = Counter()  # how many of each are open
        self._beyond = 0  # elements open below the greatest depth
        self._unseen: frozenset[tuple[str, str]] = frozenset()
        self._left = _ELEMENTS

    def read(self, text: str) -> None:
        self._unseen = _unseen_selectors(text)
        at = 0
        while at < len(text) and self._left > 0:
            mark = text.find("<", at)
            if mark != at:
                self._text(_unescaped(text[at : mark if mark >= 0 else len(text)]))
                if mark < 0:
                    return
            at = self._markup(text, mark)

    def _markup(self, text: str, at: int) -> int:
        """Reads what begins with `<` at this place; where the text goes on behind it. What is never closed takes the rest with it."""
        if text.startswith("<!--", at):
            end = re.compile(r"--!?>").search(text, at + 2)
            return end.end() if end else len(text)
        closing = text.startswith("</", at)
        name = _NAME.match(text, at + 1 + closing)
        if name is None:
            if closing or text[at + 1 : at + 2] in ("!", "?"):
                end_mark = text.find(">", at)
                return end_mark + 1 if end_mark >= 0 else len(text)
            self._text("<")
            return at + 1
        attributes: dict[str, str] = {}
        at = name.end()
        while (found := _ATTRIBUTE.match(text, at)) is not None:
            at = found.end()
            if found.lastindex == 1 and _UNCLOSED.match(text, at):
                return len(text)
            attributes.setdefault(found[1].lower(), _unescaped(found[2] or found[3] or found[4] or ""))
        end_mark = text.find(">", at)
        if end_mark < 0:
            return len(text)
        tag = name[0].lower()
        if closing:
            self._end(tag)
            return end_mark + 1
        self._start(tag, attributes)
        return self._raw_text(text, tag, end_mark + 1) if tag in _RAW else end_mark + 1

    def _raw_text(self, text: str, tag: str, at: int) -> int:
        """The content of an element that holds no tags."""
        end = re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE).search(text, at)
        if tag == "title" and end is not None and not self.title and not self._open[-2].hidden:
            self.title.append(_unescaped(text[at : end.start()]))
        self._end(tag)
        if end is None:
            return len(text)
        mark = text.find(">", end.end())
        return mark + 1 if mark >= 0 else len(text)

    def _text(self, text: str) -> None:
        if self._open[-1].tag == "head" and text.strip():
            self._end("head")
        if not self._beyond and not self._open[-1].hidden and self._open[-1].tag != "head":
            self._open[-1].children.append(text)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._open[-1].tag == "head" and tag not in _IN_HEAD:
            self._end("head")
        if tag in _CLOSES:
            self._close(*_CLOSES[tag])
        elif tag in _BLOCKS:
            self._close(*_PARAGRAPH)
        self._left -= 1
        if tag in _VOID:
            if not self._beyond and not self._open[-1].hidden:
                self._open[-1].children.append(_Element(tag, {}, hidden=False))
        elif self._beyond or len(self._open) >= _DEPTH:
            self._beyond += 1
        else:
            parent = self._open[-1]
            element = _Element(tag, attributes, parent.hidden or tag in _DROPPED or _unseen(tag, attributes, self._unseen))
            if not element.hidden:
                parent.children.append(element)
                if tag in _HEADINGS:
                    self._note_heading()
            self._open.append(element)
            self._count[tag] += 1

    def _note_heading(self) -> None:
        for element in reversed(self._open):
            if element.has_heading:  # then those above it know as well
                return
            element.has_heading = True

    def _end(self, tag: str) -> None:
        """Closes the nearest open element of this name. A stray end tag of an inline element does not close the block around it."""
        if self._beyond:
            self._beyond -= 1
            return
        stops = frozenset() if tag in _TABLE else _TABLE if tag in _BLOCKS else _BLOCKS
        self._close(frozenset((tag,)), stops)

    def _close(self, wanted: frozenset[str], stops: frozenset[str]) -> None:
        if not any(self._count[tag] for tag in wanted):
            return
        for place in range(len(self._open) - 1, 0, -1):
            if self._open[place].tag in wanted:
                self._count.subtract(element.tag for element in self._open[place:])
                del self._open[place:]
                return
            if self._open[place].tag in stops:
                return


def _unseen(tag: str, attributes: dict[str, str], selectors: frozenset[tuple[str, str]]) -> bool:
    """Whether a reader of the page does not see this element: by its attributes, its style, or a simple rule of a style sheet."""
    if "hidden" in attributes or attributes.get("aria-hidden", "").lower() == "true" or (tag == "dialog" and "open" not in attributes):
        return True
    if "style" in attributes and _hides(attributes["style"]):
        return True
    if not selectors:
        return False
    names = [f".{name}" for name in attributes.get("class", "").split()] + [f"#{attributes['id']}" for _ in "x" if "id" in attributes]
    return not selectors.isdisjoint((kind, name) for kind in (tag, "") for name in (*names, ""))


def _hides(declarations: str) -> bool:
    """Whether these declarations leave nothing to see; also text in the colour of its ground."""
    plain = _CSS_COMMENT.sub("", declarations)
    if _UNSEEN.search(plain):
        return True
    colour, ground = _COLOUR.search(plain), _GROUND.search(plain)
    return colour is not None and ground is not None and _colour(colour[1]) == _colour(ground[1])


def _colour(text: str) -> str:
    name = "".join(text.lower().split())
    return _SAME_COLOUR.get(name, name)


def _unseen_selectors(text: str) -> frozenset[tuple[str, str]]:
    """Which elements the style sheets of a page hide, as (tag, `.class` or `#id`), either of which may be empty.

    Only rules with one simple selector count, and none inside `@media` and its like: those may be about paper.
    """
    found: set[tuple[str, str]] = set()
    for sheet in _style_sheets(text):
        depth, head, at_rule = 0, "", False
        for piece in re.split(r"([{}])", _CSS_COMMENT.sub("", sheet)):
            if piece == "{":
                depth += 1
                at_rule = at_rule or head.strip().startswith("@")
            elif piece == "}":
                depth = max(0, depth - 1)
                at_rule = at_rule and depth > 0
            elif depth == 0:
                head = piece.rpartition(";")[2]
            elif depth == 1 and not at_rule and _hides(piece):
                found |= {((one[1] or "").lower(), f"{one[2]}{one[3]}" if one[2] else "") for one in _simple(head)}
    return frozenset(found - {("", "")})


def _style_sheets(text: str) -> Iterator[str]:
    at = 0
    while (mark := _STYLE.search(text, at)) is not None and (begin := text.find(">", mark.end())) >= 0:
        end = _STYLE_END.search(text, begin)
        yield text[begin + 1 : end.start() if end else len(text)]
        if end is None:
            return
        at = end.end()


def _simple(head: str) -> Iterator[re.Match[str]]:
    for selector in head.split(","):
        if one := _SELECTOR.fullmatch(selector.strip()):
            yield one


def _main_part(root: _Element) -> _Element:
    """The largest `<article>`, else `<main>`, that holds at least three tenths of the text; else all of it."""
    order = [root]
    for element in order:  # parents before their children
        order += [child for child in element.children if isinstance(child, _Element)]
    lengths: dict[int, int] = {}
    for element in reversed(order):
        lengths[id(element)] = sum(len(child.strip()) if isinstance(child, str) else lengths[id(child)] for child in element.children)
    for tag in ("article", "main"):
        best = max((element for element in order if element.tag == tag), key=lambda element: lengths[id(element)], default=None)
        if best is not None and lengths[id(best)] >= 0.3 * lengths[id(root)]:
            return best
    return root


class _MarkdownWriter:
    """Writes elements as Markdown blocks."""

    def __init__(self, marks: bool) -> None:
        self.blocks: list[str] = []
        self._marks = marks
        self._line: list[str] = []
        self._prefix = ""
        self._quotes = 0  # how many are open
        self._lists: list[int | None] = []  # the open lists; of an ordered one the number of its last item

    def write(self, element: _Element) -> None:
        """The children of an element, one after the other."""
        for child in element.children:
            if isinstance(child, str):
                self._line.append(child)
            else:
                self._write(child)

    def end_block(self, prefix: str = "") -> None:
        """Ends what was being written; `prefix` begins the next block."""
        text = self._taken()
        if text:
            self.blocks.append(self._prefix + text)
        self._prefix = prefix

    def _taken(self) -> str:
        text = " ".join("".join(self._line).split())
        self._line.clear()
        return text

    def _write(self, element: _Element) -> None:
        tag = element.tag
        if tag == "br":
            self._line.append("\n")
        elif tag == "pre":
            self._preformatted(element)
        elif tag == "tr":
            self._row(element)
        elif tag in ("ul", "ol"):
            self._list(element)
        elif tag == "header" and not element.has_heading:
            return
        elif tag == "blockquote" and self._marks:
            self._quoted(element)
        elif tag in _BLOCKS:
            self.end_block(self._beginning(tag))
            self.write(element)
            self.end_block()
        elif self._marks and (tag in _MARKS or tag == "a"):
            self._inline(element)
        else:
            self.write(element)

    def _beginning(self, tag: str) -> str:
        if tag in _HEADINGS:
            return "#" * _HEADINGS[tag] + " "
        if tag != "li":
            return ""
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        return "  " * min(len(self._lists) - 1, _MARKED_DEPTH) + (f"{number + 1}. " if number is not None else "- ")

    def _list(self, element: _Element) -> None:
        self.end_block()
        self._lists.append(0 if element.tag == "ol" else None)
        self.write(element)
        self._lists.pop()
        self.end_block()

    def _preformatted(self, element: _Element) -> None:
        self.end_block()
        code = "".join(element.texts()).strip("\n")
        if code.strip():
            self.blocks.append(f"```\n{code}\n```")

    def _quoted(self, element: _Element) -> None:
        self.end_block()
        before = len(self.blocks)
        self._quotes += 1
        self.write(element)
        self.end_block()
        self._quotes -= 1
        if self._quotes >= _MARKED_DEPTH:
            return
        self.blocks[before:] = ["\n".join(f"> {line}" for line in block.split("\n")) for block in self.blocks[before:]]

    def _row(self, element: _Element) -> None:
        self.end_block()
        cells = [child for child in element.children if isinstance(child, _Element) and child.tag in _CELLS]
        texts = []
        for cell in cells:
            inner = _MarkdownWriter(self._marks)
            inner.write(cell)
            inner.end_block()
            texts.append(" ".join(" ".join(inner.blocks).split()))
        if any(texts):
            self.blocks.append(f"| {' | '.join(texts)} |")
            if self._marks and all(cell.tag == "th" for cell in cells):
                self.blocks.append(f"| {' | '.join('---' for _ in cells)} |")

    def _inline(self, element: _Element) -> None:
        before, written = len(self._line), len(self.blocks)
        self.write(element)
        text = "".join(self._line[before:]) if len(self.blocks) == written else ""
        if not text.strip():
            return
        head, tail = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        self._line[before:] = [head, self._marked(element, " ".join(text.split())), tail]

    def _marked(self, element: _Element, text: str) -> str:
        if element.tag != "a":
            return f"{_MARKS[element.tag]}{text}{_MARKS[element.tag]}"
        address = "".join(element.attributes.get("href", "").split())
        is_page = address and not re.match(r"#|javascript:|data:", address, re.IGNORECASE)
        return f"[{text}]({address})" if is_page else text
