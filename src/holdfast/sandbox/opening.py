"""From the configuration to the sandbox of a thread: the class that `sandbox.use` names, with its mounts and limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError
from holdfast.imports import load_dotted
from holdfast.sandbox.bubblewrap import unavailable_because
from holdfast.sandbox.commands import CommandLimits, Sandbox
from holdfast.sandbox.files import FileLimits
from holdfast.sandbox.mounts import open_mount, open_mounts
from holdfast.sandbox.paths import Root

if TYPE_CHECKING:
    from holdfast.config.sections import Config

_LOCAL = "holdfast.sandbox.local:LocalSandbox"


def open_sandbox(config: Config, thread: str, **parts: Any) -> Sandbox:
    """The sandbox of a thread. The folder of the skills, if there is one, is shown read-only under `skills.container_path`.

    A class of the user's own is called as `LocalSandbox` is: with the thread and the keywords of `sandbox_arguments`. ConfigError if it
    cannot be loaded: commands never run in another place than the one that was asked for.
    """
    path = config.sandbox.use or _LOCAL
    key, hint = "sandbox.use", f"Leave it out, or write {_LOCAL}."
    make = load_dotted(path, "the sandbox", file=config.file, key=key, hint=hint)
    try:
        made: Sandbox = make(thread, **sandbox_arguments(config), **parts)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path} cannot be used as a sandbox: {error}.", file=config.file, key=key, hint=hint) from error
    return made


def commands_available(config: Config) -> bool:
    """Whether bash is to be offered: in bubblewrap where that works, on the host where the user allows it (A10).

    A sandbox of the user's own is taken at its word.
    """
    own = config.sandbox.use not in (None, _LOCAL)
    return own or config.sandbox.allow_host_bash or unavailable_because() is None


def skills_folder(config: Config) -> Path | None:
    """The folder of the skills: `skills.path`, else `skills/` beside the configuration or in the base directory. None if there is none."""
    places = [config.beside(config.skills.path)] if config.skills.path else [config.beside("skills"), config.in_base("skills")]
    return next((place for place in places if place.is_dir()), None)


def sandbox_arguments(config: Config) -> dict[str, Any]:
    """What the configuration says about a sandbox, as keywords: base, mounts, environment, network, allow_host_bash and the limits."""
    settings = config.sandbox
    usual = CommandLimits()
    return {
        "base": config.base,
        "mounts": _roots(config),
        "environment": dict(settings.environment),
        "network": settings.network,
        "allow_host_bash": settings.allow_host_bash,
        "limits": CommandLimits(
            seconds=settings.timeout_seconds,
            memory_bytes=settings.memory_mb * 1024 * 1024 if settings.memory_mb is not None else None,
            shown_chars=settings.bash_output_max_chars or usual.kept_bytes,
        ),
        "file_limits": FileLimits(
            read_chars=settings.read_file_output_max_chars or FileLimits().edit_bytes,
            list_chars=settings.ls_output_max_chars or FileLimits().edit_bytes,
        ),
    }


def _roots(config: Config) -> tuple[Root, ...]:
    roots = open_mounts(config.sandbox.mounts, beside=config.beside("."))
    skills = skills_folder(config)
    if skills is not None:
        shown = open_mount(skills, config.skills.container_path, read_only=True, key="skills")
        if any(root.virtual == shown.virtual for root in roots):
            shown.folder.close()
            raise ConfigError(f"{shown.virtual} is where the skills are.", key="sandbox.mounts", hint="Choose another container_path.")
        roots = (*roots, shown)
    return roots
