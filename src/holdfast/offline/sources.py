"""Bringing together what a stage may read: the folder, records and raw data that its `sources` name, or what was retrieved for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, InputError
from holdfast.knowledge.records import Hit
from holdfast.offline.documents import Library, SourceDocument, readable
from holdfast.offline.planner import TaskQuestion
from holdfast.offline.stage_settings import mapping, texts, whole_number
from holdfast.session.output import StageOutput
from holdfast.workflow.agent import RawAccess, StageRequest

ENDINGS = (".md", ".markdown", ".txt", ".rst", ".html", ".htm", ".json", ".jsonl")
_LARGEST = 20_000_000  # bytes of one file: what is larger is no document that somebody wrote
_TOP_K = 20
_KEYS = ("folder", "globs", "knowledge", "raw", "top_k")


def gather(request: StageRequest, questions: Sequence[TaskQuestion]) -> Library:
    """Everything that the stage's `sources` name; without that setting, the memories and records that there are.

    A folder that is not absolute is looked for beside the workflow file, then where the program was started. ConfigError if a source
    that is named cannot be read.
    """
    named = mapping(request.stage, "sources", _KEYS)
    library = Library()
    sources: Mapping[str, Any] = named if named is not None else {"knowledge": request.knowledge is not None}
    if "folder" in sources:
        globs = texts(request.stage, "sources.globs", sources.get("globs", ["**/*"]))
        for folder in texts(request.stage, "sources.folder", sources["folder"]):
            for document in read_folder(_found(request, folder), globs, key=f"stages.{request.stage.name}.sources.folder"):
                library.add(document)
    if sources.get("raw"):
        _add_raw(request, sources["raw"], library)
    if sources.get("knowledge"):
        _add_records(request, questions, whole_number(request.stage, "sources.top_k", sources.get("top_k", _TOP_K)), library)
    for document in _memories(request.retrieved):
        library.add(document)
    return library


def _found(request: StageRequest, folder: str) -> Path:
    path = Path(folder).expanduser()
    home = request.home
    beside = [Path(home) / path] if home is not None else []
    return next((place for place in (*beside, path) if place.is_dir()), beside[0] if beside else path)


def _add_raw(request: StageRequest, wanted: object, library: Library) -> None:
    """Raw data of earlier stages: all that the given outputs refer to (`raw: true`), or the references that are listed."""
    listed = (
        [ref for output in request.given for ref in output.raw_data_refs] if wanted is True else texts(request.stage, "sources.raw", wanted)
    )
    for document in _raw_documents(request.raw, dict.fromkeys(listed), _names(request.given)):
        library.add(document)


def _add_records(request: StageRequest, questions: Sequence[TaskQuestion], top_k: int, library: Library) -> None:
    if request.knowledge is None:
        raise ConfigError(
            "there is no knowledge store in this run.",
            line=request.stage.line,
            key=f"stages.{request.stage.name}.sources.knowledge",
            hint="Set `knowledge` in the configuration, or name a `folder`.",
        )
    hits: dict[str, Hit] = {}
    for question in questions:
        if request.cancelled():
            return
        for hit in request.knowledge.search(f"{question.item} {question.text}".strip(), top_k=top_k):
            hits.setdefault(hit.record.id, hit)
    for name in sorted(hits):
        record = hits[name].record
        about = f"# {record.source}\n\n" if record.source else ""
        library.add(
            SourceDocument(
                record.id, f"{about}{hits[name].text}\n", trust=record.trust, extra={"source": record.source} if record.source else {}
            )
        )


def _memories(retrieved: Sequence[Mapping[str, Any]]) -> Iterator[SourceDocument]:
    """The memories of the session as documents, so that they are quoted like any other source."""
    for n, memory in enumerate(retrieved, 1):
        text = memory.get("text")
        if isinstance(text, str) and text.strip():
            yield SourceDocument(str(memory.get("id") or f"memory-{n}"), text, trust=str(memory.get("trust") or "low"))


def read_folder(folder: Path, globs: Sequence[str] = ("**/*",), *, key: str = "sources.folder") -> list[SourceDocument]:
    """The documents below a folder whose paths fit one of the patterns, by path. ConfigError if there is no such folder, or nothing in it.

    Links that lead out of the folder are not followed.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(
            f"the folder {str(folder)!r} {what}.", key=key, hint="Give the path of a folder with .md, .txt, .html or .json files."
        )
    root = folder.resolve()
    found: dict[str, SourceDocument] = {}
    for pattern in globs:
        if pattern.startswith(("/", "~")) or ".." in Path(pattern).parts:
            raise ConfigError(f"the pattern {pattern!r} leads out of the folder.", key="sources.globs", hint="Write it like `**/*.md`.")
        for path in root.glob(pattern):
            name = path.relative_to(root).as_posix()
            hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
            if (
                name not in found
                and not hidden
                and path.suffix.lower() in ENDINGS
                and path.is_file()
                and path.resolve().is_relative_to(root)
            ):
                found[name] = _document(path, name)
    documents = [found[name] for name in sorted(found) if found[name].text.strip()]
    if not documents:
        raise ConfigError(
            f"there is nothing to read in {str(folder)!r}.",
            key=key,
            hint=f"Put {', '.join(ENDINGS)} files there, or change `sources.globs`.",
        )
    return documents


def _document(path: Path, name: str) -> SourceDocument:
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{name} has more than {_LARGEST // 1_000_000} MB.", hint="Split it, or leave it out with `sources.globs`.")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}.") from error
    try:
        return SourceDocument(name, readable(data, path.suffix), trust="medium")  # like what is imported: a person named it
    except InputError as error:
        raise InputError(f"{name}: {error.message}", hint=error.hint) from error


def library_of_outputs(request: StageRequest) -> Library:
    """The documents that the given outputs refer to, under the names by which their findings cite them."""
    names = _names(request.given)
    refs = dict.fromkeys(ref for output in request.given for ref in output.raw_data_refs)
    return Library(_raw_documents(request.raw, refs, names))


def _names(outputs: Iterable[StageOutput]) -> dict[str, str]:
    """What the raw references are called in the outputs' own lists of documents."""
    names: dict[str, str] = {}
    for output in outputs:
        data = output.data if isinstance(output.data, Mapping) else {}
        for one in data.get("documents") or ():
            if isinstance(one, Mapping) and isinstance(one.get("ref"), str) and isinstance(one.get("id"), str):
                names.setdefault(one["ref"], one["id"])
    return names


def _raw_documents(raw: RawAccess, refs: Iterable[str], names: Mapping[str, str]) -> Iterator[SourceDocument]:
    taken: set[str] = set()
    for ref in refs:
        try:
            text = raw.text(ref)
        except InputError:
            continue  # the data is gone, or another agent's list was wrong: its findings stay, only without their surroundings
        name = names.get(ref, ref)
        if name not in taken and text.strip():
            taken.add(name)
            yield SourceDocument(name, text if ref in names else readable(text, ".md"), ref=ref)
