"""The compared form of a text, and what hides in a text (M10)."""

from __future__ import annotations

import pytest

from holdfast.text.normalise import find_invisible, find_mixed_script, normalise, normalise_with_offsets, strip_invisible


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("  Hello\n\tWorld ", "hello world"),
        ("“Quotes” and ‘single’ – dash—dash…", "\"quotes\" and 'single' - dash-dash..."),
        ("ＦＵＬＬ　width", "full width"),
        ("ﬁle STRASSE straße", "file strasse strasse"),
        ("cafe\u0301", "café"),
        ("pass\u200bword\u202e", "password"),
        ("ｶﾞｷﾞ", "ガギ"),
        ("", ""),
    ],
)
def test_texts_that_look_alike_are_compared_alike(text: str, plain: str) -> None:
    assert normalise(text) == plain


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a\u200bb", "zero width"),
        ("\ufeffstart", "zero width"),
        ("a\u202eb", "bidi"),
        ("a\u2066b\u2069", "bidi"),
        ("hi\U000e0049\U000e0047", "tag"),
        ("a\u3164b", "filler"),
        ("plain\ufe0f text", "variation selector"),
        ("soft\u00adhyphen", "soft hyphen"),
        ("bell\x07", "control"),
        ("esc\x1b[31m", "control"),
        ("a\u200db", "zero width"),
    ],
)
def test_characters_that_draw_nothing_are_reported_with_their_place(text: str, kind: str) -> None:
    found = find_invisible(text)
    assert {invisible.kind for invisible in found} == {kind}
    assert all(text[invisible.position] == invisible.character for invisible in found)
    assert found[0].name.startswith("U+")
    assert find_invisible(strip_invisible(text)) == []


@pytest.mark.parametrize("text", ["👨‍👩‍👧‍👦 ❤️ 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "می‌خواهم", "क्‍ष", "line\nbreak\ttab\r\n", "naïve café", "日本語"])
def test_emoji_and_scripts_that_need_joiners_are_no_disguise(text: str) -> None:
    assert find_invisible(text) == []
    assert strip_invisible(text) == text


def test_stripping_leaves_everything_else_as_it_is() -> None:
    assert strip_invisible("A\u200b “b”\u202e  C\n") == "A “b”  C\n"


def test_a_match_in_the_compared_form_leads_back_to_the_original() -> None:
    text = "He  said:\n“It costs\u200b ½ of ＡＢＣ”."
    form = normalise_with_offsets(text)
    assert form.text == normalise(text)
    at = form.text.index("of abc")
    start, end = form.original(at, at + len("of abc"))
    assert text[start:end] == "of ＡＢＣ"


def test_letters_of_another_script_in_a_latin_word_are_noticed() -> None:
    assert [word.text for word in find_mixed_script("Log in to раypal and gооgle")] == ["раypal", "gооgle"]
    assert [word.text for word in find_mixed_script("Please open the аррӏе site now")] == ["аррӏе"]


@pytest.mark.parametrize("text", ["Привет, мир", "5 µm and Δx", "The Greek word λόγος", "naïve", "Москва is big", "plain"])
def test_honest_use_of_other_scripts_is_no_mixture(text: str) -> None:
    assert find_mixed_script(text) == []
