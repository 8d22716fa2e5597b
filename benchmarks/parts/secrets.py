"""Secrets that are made up by a program, in sentences of six languages: cards that pass Luhn's check, IBANs with right check digits, PINs,
passwords, recovery codes, seed phrases of the BIP 39 list, social security numbers, and keys of services.

Nothing of them is real, and the same seed gives the same ones. No such text is kept in the repository: services look for them there.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from typing import Any

_WORDS = """
abandon ability absent acid actor adapt agent album anchor apple arctic army artist athlete autumn bamboo banner basket beach
bicycle blanket bridge bronze butter cabin cactus camera canvas carbon castle cherry circle citizen clinic coconut copper coral
cradle cricket crystal cushion dance dawn desert diamond dolphin dragon eagle elbow engine fabric falcon famous feather fiction
flame forest fossil galaxy garlic giant glove gospel guitar hammer harbor hobby hockey island jacket jungle kangaroo kitchen
ladder lemon lizard magnet maple marble mirror monkey napkin nephew oak ocean olive orbit oxygen paddle panther pepper piano
planet quantum rabbit ribbon river rocket saddle salmon silver spider sunset tiger tomato tunnel umbrella velvet violin walnut
whale window zebra
""".split()  # noqa: SIM905 - a list of a hundred quoted words is not better to read

_SAID: dict[str, dict[str, tuple[str, ...]]] = {
    "card": {
        "en": ("My card number is {s}, it expires 04/31.", "use {s} for the train tickets"),
        "de": ("Meine Kreditkarte ist {s}, gültig bis 04/31.", "nimm die {s} für die bahn"),
        "es": ("Mi tarjeta es la {s}, caduca 04/31.", "paga con la {s} porfa"),
        "fr": ("Ma carte c'est {s}, valable jusqu'en 04/31.", "prends la {s} pour le train"),
        "zh": ("我的信用卡是{s}，有效期04/31。", "买票用{s}这张"),
        "ja": ("カード番号は{s}、期限は04/31です。", "電車は{s}で払って"),
    },
    "iban": {
        "en": ("My IBAN is {s}.",),
        "de": ("Meine Bankverbindung lautet {s}.",),
        "es": ("Mi cuenta es {s}.",),
        "fr": ("Mon RIB : {s}",),
        "zh": ("我的银行账号是{s}。",),
        "ja": ("口座は{s}です。",),
    },
    "pin": {
        "en": ("My PIN is {s}.", "the code for the alarm is {s}"),
        "de": ("Meine PIN ist {s}.", "der türcode ist {s}"),
        "es": ("Mi PIN es {s}.", "el código del portal es {s}"),
        "fr": ("Mon code PIN est {s}.", "le code de l'alarme c'est {s}"),
        "zh": ("我的银行卡密码是{s}。", "门禁密码{s}"),
        "ja": ("暗証番号は{s}です。", "ロッカーの番号は{s}"),
    },
    "password": {
        "en": ("My password is {s}.", "I log in everywhere with {s}"),
        "de": ("Mein Passwort ist {s}.", "mein kennwort lautet {s}"),
        "es": ("Mi contraseña es {s}.", "la clave del wifi es {s}"),
        "fr": ("Mon mot de passe est {s}.", "le mdp du wifi c'est {s}"),
        "zh": ("我的密码是{s}。", "登录口令为{s}"),
        "ja": ("パスワードは{s}です。", "Wi-Fiのパスは{s}"),
    },
    "recovery": {
        "en": ("My recovery code is {s}.",),
        "de": ("Mein Wiederherstellungscode lautet {s}.",),
        "es": ("Mi código de recuperación es {s}.",),
        "fr": ("Mon code de récupération : {s}",),
        "zh": ("我的恢复码是{s}",),
        "ja": ("復旧コードは{s}です",),
    },
    "seed": {
        "en": ("My seed phrase is {s}.",),
        "de": ("Meine Wörter fürs Wallet: {s}",),
        "es": ("Mi frase semilla: {s}",),
        "fr": ("ma phrase de récupération {s}",),
        "zh": ("我的助记词是{s}",),
        "ja": ("シードフレーズは{s}です",),
    },
    "ssn": {
        "en": ("My SSN is {s}.",),
        "de": ("Meine amerikanische Sozialversicherungsnummer ist {s}.",),
        "es": ("Mi número de seguro social es {s}.",),
        "fr": ("mon numéro de sécurité sociale américain est {s}",),
        "zh": ("我的社会安全号是{s}",),
        "ja": ("社会保障番号は{s}です",),
    },
    "key": {
        "en": ("My API key is {s}",),
        "de": ("Mein API-Schlüssel: {s}",),
        "es": ("mi clave de API es {s}",),
        "fr": ("ma clé d'API : {s}",),
        "zh": ("我的API密钥是{s}",),
        "ja": ("APIキーは{s}です",),
    },
}


def luhn(digits: str) -> str:
    """The digits with the one that makes them pass Luhn's check."""
    total = sum(sum(divmod(int(digit) * (2 - place % 2), 10)) for place, digit in enumerate(reversed(digits)))
    return digits + str(-total % 10)


def iban(country: str, account: str) -> str:
    """An IBAN with its two check digits."""
    number = int("".join(str(int(c, 36)) for c in f"{account}{country}00"))
    return f"{country}{98 - number % 97:02d}{account}"


def _card(dice: random.Random) -> str:
    prefix, length = dice.choice((("4", 16), ("52", 16), ("37", 15), ("3530", 16)))
    number = luhn(prefix + "".join(dice.choices(string.digits, k=length - 1 - len(prefix))))
    mark = dice.choice(("", " ", "-"))
    return mark.join(number[n : n + 4] for n in range(0, len(number), 4))


def _iban(dice: random.Random) -> str:
    country, length = dice.choice((("DE", 18), ("FR", 23), ("ES", 20), ("NL", 14), ("CH", 17)))
    bank = "".join(dice.choices(string.ascii_uppercase, k=4)) if country == "NL" else ""
    whole = iban(country, bank + "".join(dice.choices(string.digits, k=length - len(bank))))
    return whole if dice.random() < 0.5 else " ".join(whole[n : n + 4] for n in range(0, len(whole), 4))


def _password(dice: random.Random) -> str:
    word = dice.choice(_WORDS)
    return dice.choice((word, f"{word.title()}{dice.randint(10, 9999)}", f"{word}-{dice.choice(_WORDS)}!{dice.randint(1, 99)}"))


def _recovery(dice: random.Random) -> str:
    alphabet = string.ascii_uppercase + string.digits
    return "-".join("".join(dice.choices(alphabet, k=4)) + str(dice.randint(0, 9)) for _ in range(dice.choice((2, 3, 4))))


def _key(dice: random.Random) -> str:
    if dice.random() < 0.25:
        return "AKIA" + "".join(dice.choices(string.ascii_uppercase + "234567", k=16))
    return dice.choice(("sk-", "ghp_", "hf_")) + "".join(dice.choices(string.ascii_letters + string.digits, k=40))


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "card": _card,
    "iban": _iban,
    "pin": lambda dice: f"{dice.randint(0, 999999):0{dice.choice((4, 6))}d}",
    "password": _password,
    "recovery": _recovery,
    "seed": lambda dice: " ".join(dice.sample(_WORDS, dice.choice((12, 24)))),
    "ssn": lambda dice: f"{dice.randint(100, 665)}-{dice.randint(10, 99)}-{dice.randint(1000, 9999)}",
    "key": _key,
}


def generated_secrets(seed: int = 15) -> Iterator[dict[str, Any]]:
    """Lines in the form of the corpus: every way of saying every kind in every language, each with a secret of its own."""
    dice = random.Random(seed)
    for group, languages in _SAID.items():
        for language, forms in languages.items():
            for number, form in enumerate(forms):
                secret = _MAKERS[group](dice)
                messages = [{"role": "user", "text": form.replace("{s}", secret)}]
                yield {
                    "id": f"generated-{group}-{language}-{number}",
                    "language": language,
                    "group": group,
                    "messages": messages,
                    "secret": secret,
                }
