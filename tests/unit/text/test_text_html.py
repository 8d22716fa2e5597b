"""A10, W18: the one reader of HTML: Markdown of what a person would see, and nothing of what is hidden from one."""

from __future__ import annotations

import pytest

from holdfast.text.html import decode_text, read_html


def test_headings_items_rows_code_and_paragraphs() -> None:
    page = (
        "<html><head><title> A\n page </title></head><body><h2>Noise &amp; price</h2><p>It makes\n <b>48 dB</b>.</p>"
        "<ul><li>one<li>two<ol><li>inner</ol></ul><table><tr><th>a<td>1<tr><td>b<td>2</table><pre>x = 1\n  y</pre></body>"
    )
    got = read_html(page)
    assert got.title == "A page"
    assert got.text == ("## Noise & price\n\nIt makes 48 dB.\n\n- one\n- two\n  1. inner\n\n| a | 1 |\n| b | 2 |\n\n```\nx = 1\n  y\n```\n")


def test_links_emphasis_and_quotations_are_kept_on_request() -> None:
    page = "<blockquote>See <a href='/t'>the <i>tables</i></a>, <a href='javascript:x()'>not</a> this.</blockquote>"
    assert read_html(page, marks=True).text == "> See [the *tables*](/t), not this.\n"
    assert read_html(page).text == "See the tables, not this.\n"


@pytest.mark.parametrize(
    "page",
    [
        "<p style='display:none'>HIDDEN</p>seen",
        "<p style='DISPLAY: /* no */ none'>HIDDEN</p>seen",
        "<p style='visibility:hidden'>HIDDEN</p>seen",
        "<p style='color:red; font-size: 0px'>HIDDEN</p>seen",
        "<p hidden>HIDDEN<p>seen",
        "<p aria-hidden='true'>HIDDEN</p>seen",
        "<p = hidden>HIDDEN</p>seen",
        "<div hidden/>HIDDEN</div>seen",
        "<div hidden><p>HIDDEN</div>seen",
        "<span hidden><div></span>HIDDEN</div></span>seen",
        "<div hidden><table><tr><td></div>HIDDEN</td></tr></table></div>seen",
        "<!-- HIDDEN -->seen<!-- HIDDEN",
        "<script>HIDDEN</script ><style>HIDDEN</style>seen<noscript>HIDDEN</noscript>",
        "<template><p>HIDDEN</template>seen<svg><text>HIDDEN</text></svg>",
        "<dialog>HIDDEN</dialog>seen",
        "<nav>HIDDEN</nav><p>seen</p><footer>HIDDEN</footer>",
        "seen<p title='never closed>HIDDEN",
        "<head><title>HIDDEN</title></head>seen",
        "<div>" * 300 + "<p hidden>HIDDEN</p>" + "</div>" * 300 + "seen",
    ],
)
def test_what_a_person_does_not_see_is_not_in_the_text(page: str) -> None:
    got = read_html(page).text
    assert "HIDDEN" not in got
    assert "seen" in got


@pytest.mark.parametrize(
    "page",
    [
        "<p style='font-size:0.9em'>seen</p>",
        "<a title='5' x\"y\">seen</a>",
        "a < b, seen",
        "<b><p>x</b>seen</p>",
        "<header><h1>seen</h1></header>",
    ],
)
def test_what_a_person_sees_is_in_the_text(page: str) -> None:
    assert "seen" in read_html(page).text


def test_the_main_part_is_taken_where_it_carries_the_text() -> None:
    page = "<body><div>teaser</div><main><p>The tide is at six, and the boat leaves.</p></main></body>"
    assert read_html(page, main_only=True).text == "The tide is at six, and the boat leaves.\n"
    assert "teaser" in read_html(page).text
    small = f"<body><div>{'long text ' * 20}</div><article>ad</article></body>"
    assert "long text" in read_html(small, main_only=True).text


def test_bytes_are_read_in_the_character_set_that_the_sender_or_the_page_names() -> None:
    assert read_html("<p>wörter".encode("latin-1"), charset="latin-1").text == "wörter\n"
    assert read_html('<meta charset="iso-8859-1"><p>wörter'.encode("latin-1")).text == "wörter\n"
    assert read_html("<p>wörter".encode(), charset="no-such-set").text == "wörter\n"
    assert read_html(b"\xef\xbb\xbf<p>x").text == "x\n"


@pytest.mark.parametrize(
    "piece", ["<a ", "<!--", "<a x='", "</", "<![CDATA[", "&#", "<script>", "</a ", "<div>", "<td>", "<ul><li>", "<b><div>"]
)
def test_broken_markup_without_end_is_read_to_the_end(piece: str) -> None:
    """`html.parser` of older Pythons needs minutes for the first of these; nothing here goes back over what it has read."""
    assert isinstance(read_html(piece * 50_000, marks=True, main_only=True).text, str)


@pytest.mark.parametrize(
    "page",
    [
        "<style" * 500_000,
        '<p style="opacity:' + "0" * 2_900_000 + 'x">x',
        '<p style="font-size:' + "0" * 2_900_000 + '!">x',
        "<article>" * 110 + "<article>x</article>" * 140_000,
        "<header>" * 110 + "<i>x</i>" * 180_000 + "<h1>t</h1>",
    ],
    ids=["style tags", "zeros of opacity", "zeros of a size", "articles", "headers"],
)
def test_no_page_of_the_size_that_is_fetched_is_read_over_and_over(page: str) -> None:
    """A10: each took minutes, or a hundred passes over the page, before. (The test then runs into its limit, or nearly.)"""
    assert isinstance(read_html(page, marks=True, main_only=True).text, str)


@pytest.mark.parametrize("page", ["<blockquote>" * 110 + "<pre>" + "x\n" * 50_000, "<ul>" * 99 + "<li>x" * 50_000], ids=["quotes", "lists"])
def test_marks_of_deep_nesting_do_not_multiply_a_page(page: str) -> None:
    """A10: a mark for every level in every line made 300 MB of 3."""
    assert len(read_html(page, marks=True).text) < 10 * len(page)


def test_quotes_and_lists_of_a_usual_depth_are_marked() -> None:
    assert read_html("<blockquote>a<blockquote>b</blockquote></blockquote>", marks=True).text == "> a\n\n> > b\n"
    assert read_html("<ul><li>a<ul><li>b<ul><li>c</ul></ul></ul>", marks=True).text == "- a\n  - b\n    - c\n"


def test_a_number_that_is_no_character_stays_as_it_is() -> None:
    assert read_html("<p>&#" + "1" * 6000 + ";").text.startswith("&#1111")


HIDING = [
    'style="opacity:0"',
    'style="opacity: 0.0;"',
    'style="color:#fff;background:white"',
    'style="color: #FFFFFF; background-color: #fff"',
    'style="position:absolute;left:-9999px"',
    'style="text-indent:-5000px"',
    'style="font-size:1px"',
    'style="width:1px;height:1px;overflow:hidden"',
    'style="clip:rect(0,0,0,0)"',
    'style="clip-path: inset(50%)"',
    'style="transform: scale(0)"',
    'style="color:transparent"',
    'style="DISPLAY:/**/NONE"',
    'class="gone"',
    'class="a gone b"',
    'id="ghost"',
    'class="far"',
]
SEEN = [
    'style="opacity:0.9"',
    'style="opacity:.5"',
    'style="color:#fff;background:#000"',
    'style="left:-5px"',
    'style="font-size:10px"',
    'style="width:100px"',
    'style="height:12px"',
    'style="width:10%"',
    'class="kept"',
    'class="paper"',
    'id="other"',
    'style="background:white"',
    'style="font-size:1em"',
    'style="width:0x"',
]
SHEET = (
    "<head><style>/* .kept{display:none} */ .gone, #ghost { display : none !important } p.far{position:absolute;left:-4000px}"
    " @media print { .paper { display:none } } .kept{color:red} nav a.kept{display:none} .kept:hover{opacity:0}</style></head>"
)


@pytest.mark.parametrize("attributes", HIDING)
def test_text_that_style_hides_is_not_in_the_text(attributes: str) -> None:
    """A10: what a reader of the page does not see does not reach a model."""
    assert read_html(f"{SHEET}<p {attributes}>planted</p><p>seen</p>").text == "seen\n"


@pytest.mark.parametrize("attributes", SEEN)
def test_text_that_style_shows_is_in_the_text(attributes: str) -> None:
    """A10: and nothing that he sees is lost."""
    assert "shown" in read_html(f"{SHEET}<p {attributes}>shown</p>").text


@pytest.mark.parametrize("charset", ["punycode", "idna", "rot13", "unicode_escape", "hex", "nonsense", "undefined", "windows-874"])
def test_only_character_sets_of_pages_are_decoded(charset: str) -> None:
    """A10: Python's other codecs are no character sets, and some take very long."""
    assert decode_text("Grüße".encode(), charset) == "Grüße"
    assert decode_text("Grüße".encode("latin-1"), "ISO-8859-1") == "Grüße"
    assert decode_text("日本".encode("shift_jis"), "Shift_JIS") == "日本"
