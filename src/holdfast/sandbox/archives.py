"""Unpacking zip and tar files that strangers made, beneath one folder and within limits.

Names go through the same gate as every path from outside; links, devices and pipes are never made. Sizes are counted while unpacking:
what a header says is not believed.
"""

from __future__ import annotations

import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO

from holdfast.durable.beneath import check_path
from holdfast.durable.folder import Folder
from holdfast.errors import HoldfastError, InputError

_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)


@dataclass(frozen=True)
class ArchiveLimits:
    """How much may come out of one archive. `ratio` is how many times its own size."""

    files: int = 5_000
    file_bytes: int = 100 * 1024 * 1024
    bytes: int = 512 * 1024 * 1024
    ratio: int = 200


@dataclass(frozen=True)
class Unpacked:
    """What came out, relative to the folder, and what was left in with the reason."""

    files: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Member:
    name: str
    refusal: str | None
    open: Callable[[], IO[bytes] | None]


def is_archive(name: str) -> bool:
    """Whether the name is that of an archive that can be unpacked."""
    return name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"))


def unpack(archive: BinaryIO, folder: Folder, *, limits: ArchiveLimits | None = None) -> Unpacked:
    """Unpack into the folder. Members that would lead out, or are not plain files, are left in and named.

    InputError if it is no archive, is damaged, or holds more than the limits allow; what came out until then stays.
    """
    bounds = limits or ArchiveLimits()
    size = archive.seek(0, 2)
    archive.seek(0)
    allowed = min(bounds.bytes, max(size * bounds.ratio, 1024 * 1024))
    files: list[str] = []
    refused: list[tuple[str, str]] = []
    try:
        for number, member in enumerate(_members(archive)):
            if number >= bounds.files:
                raise InputError(f"the archive has more than {bounds.files} members.", hint="Unpack it in parts.")
            reason = member.refusal or _name_refusal(member.name)
            if reason:
                refused.append((member.name[:200], reason))
                continue
            source = member.open()
            if source is None:
                continue
            with source:
                data = source.read(min(bounds.file_bytes, allowed) + 1)
            if len(data) > min(bounds.file_bytes, allowed):
                raise InputError(f"{member.name[:200]!r} unpacks to more than is allowed.", hint="Unpack it with bash, if it is yours.")
            allowed -= len(data)
            folder.write(member.name, data)
            files.append("/".join(check_path(member.name)))
    except HoldfastError:
        raise
    except _BROKEN as error:
        raise InputError(f"the archive cannot be read: {error}.", hint="Check that it is whole and not encrypted.") from error
    return Unpacked(tuple(files), tuple(refused))


def _name_refusal(name: str) -> str | None:
    try:
        return None if check_path(name) else "it has no name"
    except HoldfastError as error:
        return error.message


def _members(archive: BinaryIO) -> Iterator[_Member]:
    if zipfile.is_zipfile(archive):
        archive.seek(0)
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if not info.filename.endswith("/"):  # `is_dir` fails on an empty name
                    yield _Member(info.filename, _zip_refusal(info), lambda info=info: packed.open(info))  # type: ignore[misc]  # bound now
        return
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r:*") as packed_tar:
        for entry in packed_tar:
            if not entry.isdir():
                refusal = None if entry.isreg() else "it is a link or a device"
                yield _Member(entry.name, refusal, lambda entry=entry: packed_tar.extractfile(entry))  # type: ignore[misc]  # bound now


def _zip_refusal(info: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "it is a link or a device"
    return "it is encrypted" if info.flag_bits & 1 else None
