"""Opening a path that can not lead out of a folder, by the kernel (`openat2`) or step by step. Works on descriptors only.

Checking a path and then opening it are two moments, and between them a folder can become a link. `openat2` with
RESOLVE_BENEATH makes them one. Where it does not exist every part is opened by itself without following links.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

from holdfast.errors import InputError, OutsideRoot

Mechanism = Literal["openat2", "walk"]
_SYSCALL = 437  # the same number on every architecture of Linux but alpha
_NO_MAGICLINKS, _BENEATH = 0x02, 0x08
_MAX_NAME, _MAX_PATH = 255, 4000
CLOEXEC = getattr(os, "O_CLOEXEC", 0)
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
DIRECTORY = getattr(os, "O_DIRECTORY", 0)


def check_path(path: str, *, existing: bool = False) -> tuple[str, ...]:
    """The parts of a relative path; none for the folder itself (`.`).

    OutsideRoot for what would lead out, InputError for what no file should be called. With `existing` it names something that may be there
    already, under whatever name it was given by somebody else: then control characters and bytes that are no text are names like others.
    """
    if not isinstance(path, str) or not path:
        raise InputError("a path is needed.", hint="Give one relative to the folder, or `.` for the folder itself.")
    if path.startswith("/"):
        raise OutsideRoot(f"{path!r} is an absolute path.", path=path, operation="open", hint="Give a path relative to the folder.")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise OutsideRoot(f"{path!r} goes up with `..`.", path=path, operation="open", hint="Give a path that only goes down.")
    for part in parts:
        _check_part(part, path, existing=existing)
    if len(os.fsencode(path)) > _MAX_PATH:
        raise InputError(f"a path of {len(os.fsencode(path))} bytes is too long.", hint=f"Keep it under {_MAX_PATH} bytes.")
    return parts


def _check_part(part: str, path: str, *, existing: bool) -> None:
    try:
        length = len(os.fsencode(part) if existing else part.encode("utf-8"))
    except UnicodeEncodeError:
        raise InputError(f"{path!r} is not valid text.", hint="Use names that can be written as UTF-8.") from None
    if length > _MAX_NAME:
        raise InputError(f"the name {part[:40]!r}... has {length} bytes.", hint=f"Keep names within {_MAX_NAME} bytes.")
    if "\0" in part or (not existing and _is_unseen(part)):
        raise InputError(f"{path!r} holds a blank name or a control character.", hint="Use names that can be seen.")


def _is_unseen(part: str) -> bool:
    return not part.strip() or any(ord(sign) < 32 or ord(sign) == 127 for sign in part)


def open_beneath(root: int, parts: Sequence[str], flags: int, mode: int, mechanism: Mechanism) -> int:
    """A descriptor for `parts` below the folder that `root` is open on. OutsideRoot if the way leads out.

    With `openat2` links that stay inside are followed; with `walk` every link is refused. Raises OSError for everything else.
    """
    shown = "/".join(parts) or "."
    try:
        if mechanism == "openat2":
            return _openat2(root, shown, flags | CLOEXEC, mode)
        return _walk(root, parts, flags | CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):
            raise OutsideRoot(
                f"{shown!r} goes through a link that leads out of the folder, or nowhere.", path=shown, operation="open"
            ) from error
        raise


def _openat2(root: int, path: str, flags: int, mode: int) -> int:
    libc, how_type = _library()
    how = how_type(flags, mode if flags & os.O_CREAT else 0, _BENEATH | _NO_MAGICLINKS)
    import ctypes

    for _ in range(100):
        handle = libc.syscall(_SYSCALL, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if handle >= 0:
            return int(handle)
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a folder on the way was renamed meanwhile
            break
    raise OSError(number, os.strerror(number), path)


@functools.cache
def _library() -> tuple[Any, Any]:
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    return libc, OpenHow


@functools.cache
def openat2_works() -> bool:
    """Whether the kernel has `openat2` and lets us use it (some containers filter it)."""
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError, AttributeError):
        root = os.open("/", os.O_RDONLY | DIRECTORY | CLOEXEC)
        try:
            drop(_openat2(root, ".", os.O_RDONLY | DIRECTORY | CLOEXEC, 0))
        finally:
            drop(root)
        return True
    return False


def drop(handle: int) -> None:
    """Close a descriptor through which nothing was written: there is nothing that an error could mean."""
    with suppress(OSError):
        os.close(handle)


def _walk(root: int, parts: Sequence[str], flags: int, mode: int) -> int:
    """Open part after part. A link in the way shows as ELOOP, or as ENOTDIR where a folder is asked for."""
    if not parts:
        return os.open(".", flags, dir_fd=root)
    here = os.dup(root)
    try:
        for part in parts[:-1]:
            below = _step(here, part, os.O_RDONLY | DIRECTORY | CLOEXEC, 0)
            drop(here)
            here = below
        return _step(here, parts[-1], flags, mode)
    finally:
        drop(here)


def _step(here: int, part: str, flags: int, mode: int) -> int:
    try:
        handle = os.open(part, flags | NOFOLLOW, mode, dir_fd=here)
    except NotADirectoryError:
        if _is_link(here, part):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from None
        raise
    if flags & getattr(os, "O_PATH", 0) and stat.S_ISLNK(os.fstat(handle).st_mode):  # O_PATH opens the link itself
        drop(handle)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part)
    return handle


def _is_link(here: int, part: str) -> bool:
    try:
        os.readlink(part, dir_fd=here)
    except OSError:
        return False
    return True
