"""Words, stems, stop words and character pairs: the terms that indexing and questions share (K3, M13)."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from holdfast.text.language import STOP_WORDS, dominant_script, guess_language, script_of
from holdfast.text.words import is_stop_word, stem, terms, terms_with_offsets, tokenise

LANGUAGES = [
    ("en", "We decided to use the new solution because it is faster"),
    ("de", "Wir haben uns gestern für die neue Lösung entschieden"),
    ("fr", "Nous avons décidé d'utiliser la nouvelle solution"),
    ("es", "Hemos decidido usar la nueva solución"),
    ("it", "Abbiamo deciso di usare la nuova soluzione"),
    ("pt", "Decidimos usar a nova solução para os nossos clientes"),
    ("nl", "We hebben besloten om de nieuwe oplossing te gebruiken"),
    ("sv", "Vi bestämde oss för att använda den nya lösningen"),
    ("da", "Vi har besluttet at bruge den nye løsning af dem"),
    ("no", "Vi har bestemt oss for å bruke den nye løsningen"),
    ("fi", "Olemme päättäneet käyttää uutta ratkaisua koska se on nopea"),
    ("ru", "Мы решили использовать новое решение"),
    ("zh", "我们决定使用新的解决方案"),
    ("ja", "新しい解決策を使うことにしました"),
    ("ko", "우리는 새로운 해결책을 사용하기로 했습니다"),
    ("el", "Αποφασίσαμε να χρησιμοποιήσουμε τη νέα λύση"),
]


@pytest.mark.parametrize(("language", "text"), LANGUAGES)
def test_the_language_of_a_sentence_is_guessed(language: str, text: str) -> None:
    assert guess_language(text) == language


@pytest.mark.parametrize("text", ["", "Docker port 8080", "war hero", "parse_url(x)", "die hard fan", "12345", "!!!", "Rust"])
def test_english_is_the_answer_where_nothing_tells(text: str) -> None:
    assert guess_language(text) == "en"


def test_scripts_are_told_apart() -> None:
    assert [script_of(c) for c in "aж漢あカ한α1"] == ["latin", "cyrillic", "han", "hiragana", "katakana", "hangul", "greek", "other"]
    assert dominant_script("Привет Bob") == "cyrillic"
    assert dominant_script("123") == "other"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ann.lee+x@example.org", ["ann.lee+x@example.org"]),
        ("https://example.com/a?b=c&d=1.", ["https://example.com/a?b=c&d=1"]),
        ("Python 3.11.7, v2.0.1-rc1", ["Python", "3.11.7", "v2.0.1-rc1"]),
        ("see src/app/main.py and /etc/hosts", ["see", "src/app/main.py", "and", "/etc/hosts"]),
        ("C:\\Users\\me\\x.txt", ["C:\\Users\\me\\x.txt"]),
        ("snake_case camelCase kebab-case", ["snake_case", "camelCase", "kebab-case"]),
        ("C++ and C# on .NET", ["C++", "and", "C#", "on", ".NET"]),
        ("1,234.56 and 10%", ["1,234.56", "and", "10"]),
        ("don't O'Brien's", ["don't", "O'Brien's"]),
        ("and/or his/her", ["and", "or", "his", "her"]),
        ("2024-03-15 15/03/2024", ["2024-03-15", "15/03/2024"]),
        ("東京タワーはGPT-4より高い", ["東京タワーは", "GPT-4", "より高い"]),
        ("U.S. e.g.", ["U.S", "e.g"]),
    ],
)
def test_words_that_belong_together_stay_whole(text: str, wanted: list[str]) -> None:
    found = tokenise(text)
    assert [word.text for word in found] == wanted
    assert all(text[word.start : word.end] == word.text for word in found)


@pytest.mark.parametrize(
    ("asked", "written", "shared"),
    [
        ("databases", "database", "databas"),
        ("connected", "connections", "connect"),
        ("PostgreSQL's", "postgresql", "postgresql"),
        ("parseUrl", "the URL", "url"),
        ("max_tokens", "tokens", "token"),
        ("e-mail", "email", "email"),
        ("3.11", "3.11.7", "3.11"),
        ("v2.0.1", "2.0.1", "2.0.1"),
        ("1,000", "1000", "1000"),
        ("café", "cafe", "cafe"),
        ("U.S.", "US", "us"),
        ("example.org", "ann@example.org", "exampl"),
        ("words.py", "src/words.py", "word"),
        ("ＡＢＣ", "abc", "abc"),
    ],
)
def test_a_question_meets_what_was_written_in_another_form(asked: str, written: str, shared: str) -> None:
    assert shared in terms(asked, "en")
    assert shared in terms(written, "en")


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("de", "Häuser", "Haus"),
        ("fr", "chevaux", "cheval"),
        ("es", "bibliotecas", "biblioteca"),
        ("it", "biblioteche", "biblioteca"),
        ("pt", "bibliotecas", "biblioteca"),
        ("nl", "boeken", "boek"),
        ("sv", "bilarna", "bilar"),
        ("da", "bilerne", "biler"),
        ("no", "bilene", "biler"),
        ("fi", "taloissa", "talossa"),
        ("ru", "машины", "машина"),
    ],
)
def test_each_language_has_its_stems(language: str, one: str, other: str) -> None:
    assert stem(one, language) == stem(other, language)


@pytest.mark.parametrize("language", sorted(STOP_WORDS))
def test_stop_words_of_each_language_are_no_terms(language: str) -> None:
    words = sorted(STOP_WORDS[language])
    assert 60 <= len(words) <= 320
    assert all(is_stop_word(word.title(), language) for word in words)
    assert terms(" ".join(word for word in words if "'" not in word), language) == []


def test_an_acronym_is_not_the_stop_word_it_looks_like() -> None:
    assert terms("WHO and IT in the US", "en") == ["who", "it", "us"]


def test_elision_is_taken_off_in_french() -> None:
    assert terms("l'homme d'aujourd'hui", "fr")[0] == stem("homme", "fr")


def test_scripts_without_spaces_become_pairs_of_characters() -> None:
    assert terms("上海办公室") == ["上海", "海办", "办公", "公室"]
    assert "検索" in terms("全文検索について")
    assert terms("我们") == []
    assert terms("猫") == ["猫"]


def test_a_korean_question_meets_a_word_with_another_ending() -> None:
    assert set(terms("데이터베이스를")) & set(terms("데이터베이스가")) >= {"데이", "베이"}


def test_terms_know_where_they_came_from() -> None:
    text = "Ask about parse_url in 東京都庁 today"
    found = terms_with_offsets(text)
    assert [term.key for term in found] == terms(text)
    assert {text[term.start : term.end] for term in found} >= {"parse_url", "東京", "都庁", "today"}


def test_stems_may_be_asked_for_from_many_threads() -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        wrong.extend(word for n in range(300) if stem(word := f"connection{number}x{n}s", "en") != f"connection{number}x{n}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_room_does_without_heavy_imports() -> None:
    code = (
        "import sys, holdfast.text.words, holdfast.text.dates, holdfast.text.likeness, holdfast.redaction, holdfast.extract.selection;"
        "print([m for m in ('numpy', 'langchain', 'langchain_core', 'pydantic') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
