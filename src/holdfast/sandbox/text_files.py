"""Bytes as text: which encoding a file is in, whether it is text at all, and back again in the same form."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

SAMPLE = 65_536
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is the beginning of this one
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL = frozenset(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}


@dataclass(frozen=True)
class TextForm:
    """How a text is written down: its encoding and the mark at its beginning."""

    encoding: str = "utf-8"
    mark: bytes = b""


def detect(sample: bytes) -> TextForm | None:
    """The form of a file that begins with `sample`; None if it is not text.

    >>> detect("naïve".encode()).encoding, detect("naïve".encode("cp1252")).encoding, detect(b"\\x7fELF\\x02\\x00\\x00")
    ('utf-8', 'cp1252', None)
    """
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return TextForm(encoding, mark)
    if looks_binary(sample):
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # a letter cut off by the end of the sample is no error
    except UnicodeDecodeError:
        return TextForm(_single_byte(sample))
    return TextForm()


def _single_byte(sample: bytes) -> str:
    try:
        sample.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def looks_binary(sample: bytes) -> bool:
    """Whether there is a NUL byte or more control characters than any text has."""
    if b"\0" in sample:
        return True
    return sum(byte in _CONTROL for byte in sample[:8192]) > len(sample[:8192]) // 50


def to_text(data: bytes, form: TextForm) -> str:
    """The whole content as text. What does not decode becomes the replacement sign."""
    return data[len(form.mark) :].decode(form.encoding, "replace")


def from_text(text: str, form: TextForm) -> bytes:
    """The text in the form it was read in; in UTF-8 if it now holds what that form has no sign for."""
    try:
        return form.mark + text.encode(form.encoding)
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
