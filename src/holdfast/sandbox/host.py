"""Commands on the host itself, where `sandbox.allow_host_bash` asks for it. This is no boundary.

The limits on time, memory and output hold, and the environment is the bare one. But the command is the user: it reads, writes and
reaches whatever the user can.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.bubblewrap import Bind, base_environment, limited
from holdfast.sandbox.commands import CommandLimits
from holdfast.sandbox.process_tree import marked
from holdfast.sandbox.running import Program

_MARK = "HOLDFAST_COMMAND"


def host_program(
    command: Sequence[str], *, binds: Sequence[Bind], environment: Mapping[str, str], limits: CommandLimits, folder: str
) -> Program:
    """What to start. The folders that would be mounted are named in the environment: `WORKSPACE`, `UPLOADS`, `OUTPUTS`.

    Processes that detach themselves are found again by a mark in their environment.
    """
    bash = shutil.which("bash")
    if bash is None:
        raise SandboxUnavailable("there is no bash on this machine.", hint="Install the package bash.")
    mark = secrets.token_hex(16)
    names = {bind.target.rsplit("/", 1)[-1].upper(): bind.source for bind in binds if bind.target.startswith("/mnt/user-data/")}
    around = {**base_environment(names), "HOME": folder, **environment, _MARK: mark}

    def sweep(process: int) -> None:
        with suppress(OSError):
            os.killpg(process, signal.SIGKILL)
        for other in marked(_MARK, mark):
            with suppress(OSError):
                os.kill(other, signal.SIGKILL)

    return Program(tuple(limited(command, limits, bash=bash, folder=folder, processes=False)), around, folder, sweep=sweep)
