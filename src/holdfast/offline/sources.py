"""Bringing together what a stage may read: the folder, records and raw data that its `sources` name, or what was retrieved for it.

Files are read by `text/file_formats.py`, PDF and Office files by the converter that uploads use. What is not read is kept by name and
reason in `Library.not_read`, so that terminal and report can say it.
What does not fit in the settings of a stage is a ConfigError with line and key (`wrong`).
"""

from __future__ import annotations

import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.config.section import all_errors, raise_all
from holdfast.durable.folder import open_outside
from holdfast.errors import ConfigError, HoldfastError, InputError
from holdfast.knowledge.records import Hit
from holdfast.offline.documents import Library, SourceDocument
from holdfast.sandbox.uploads import MarkItDown
from holdfast.session.output import StageOutput
from holdfast.text.file_formats import CONVERTED, READ, read_text
from holdfast.text.tables import with_heads
from holdfast.validation import counted, near_miss, nearest, some
from holdfast.workflow.agent import RawAccess, StageRequest
from holdfast.workflow.definition import Stage


def whole_number(stage: Stage, key: str, default: int, *, least: int = 1) -> int:
    """A setting that is a whole number of at least `least`."""
    value = stage.settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise wrong(stage, key, f"is {value!r}; it must be a whole number of at least {least}.")
    return value


def texts(stage: Stage, key: str, value: Any) -> list[str]:
    """A setting that is a text or a list of texts."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not all(isinstance(one, str) and one.strip() for one in listed):
        raise wrong(stage, key, f"is {value!r:.60}; it must be a text or a list of texts.")
    return list(listed)


def mapping(stage: Stage, key: str, value: object, known: tuple[str, ...]) -> Mapping[str, Any]:
    """A setting that is a mapping with some of the known keys."""
    if not isinstance(value, Mapping):
        raise wrong(stage, key, f"is {value!r:.60}; it must be a mapping with {', '.join(known)}.")
    raise_all(_unknown(stage, f"{key}.{name}", known) for name in value if name not in known)
    return value


def _unknown(stage: Stage, key: str, known: tuple[str, ...]) -> ConfigError:
    near = nearest(key.rpartition(".")[2], known)
    hint = f"Did you mean `{near}`?" if near else f"There are {', '.join(known)}."
    return wrong(stage, key, "is not known.", hint, near=near)


def check_spelling(stage: Stage, known: tuple[str, ...]) -> None:
    """ConfigError for a setting that is nearly one of the known ones: it would be left unread."""
    raise_all(_unknown(stage, str(name), known) for name in stage.settings if name not in known and near_miss(str(name), known) is not None)


def wrong(stage: Stage, key: str, message: str, hint: str | None = None, *, near: str | None = None) -> ConfigError:
    """That a setting of a stage cannot be used."""
    return ConfigError(message, line=stage.line_of(key), key=f"stages.{stage.name}.{key}", nearest=near, hint=hint)


LARGEST = 20_000_000  # bytes of one file: what is larger is no document that somebody wrote
_TOP_K = 20
_KEYS = ("folder", "globs", "knowledge", "raw", "top_k")
_KINDS = ", ".join(READ)


def check_sources(stage: Stage, home: Path | None) -> None:
    """ConfigError for `sources` that cannot be read: found before any stage runs. `home` is the folder of the workflow file."""
    value = stage.settings.get("sources")
    named: Mapping[str, Any] = value if isinstance(value, Mapping) else {}

    def raw() -> None:
        if named.get("raw") not in (None, True, False):
            texts(stage, "sources.raw", named["raw"])

    def folders() -> None:
        for folder in texts(stage, "sources.folder", named["folder"]) if "folder" in named else ():
            _checked_folder(_found(home, folder), f"stages.{stage.name}.sources.folder")

    errors: list[ConfigError] = []
    for check in (
        lambda: check_spelling(stage, ("sources", "questions", "max_findings", "max_questions", "max_tokens")),
        lambda: _named(stage),
        lambda: _globs(stage, named),
        raw,
        lambda: whole_number(stage, "sources.top_k", named.get("top_k", _TOP_K)),
        folders,
    ):
        try:
            check()
        except ConfigError as error:
            errors += all_errors(error)
    raise_all(errors)


def gather(request: StageRequest, questions: Sequence[str]) -> Library:
    """Everything that the stage's `sources` name; without that setting, the memories and records that there are.

    A folder that is not absolute is looked for beside the workflow file, then where the program was started. ConfigError if a source
    that is named cannot be read.
    """
    named = _named(request.stage)
    library = Library()
    sources: Mapping[str, Any] = named if named is not None else {"knowledge": request.knowledge is not None}
    if "folder" in sources:
        globs = _globs(request.stage, sources)
        for folder in texts(request.stage, "sources.folder", sources["folder"]):
            read_folder(_found(request.home, folder), globs, key=f"stages.{request.stage.name}.sources.folder", library=library)
    if sources.get("raw"):
        _add_raw(request, sources["raw"], library)
    if sources.get("knowledge"):
        _add_records(request, questions, whole_number(request.stage, "sources.top_k", sources.get("top_k", _TOP_K)), library)
    if held := len(getattr(request.knowledge, "held", ())):
        library.not_read["knowledge"] = f"{counted(held, 'record')} held back, `holdfast knowledge review` lists them"
    for document in _memories(request.retrieved, library):
        library.add(document)
    if library.not_read:
        request.emit(f"not read: {some((f'{name} ({why})' for name, why in library.not_read.items()), 10, '; ')}")
    return library


def _named(stage: Stage) -> Mapping[str, Any] | None:
    value = stage.settings.get("sources")
    return None if value is None else mapping(stage, "sources", value, _KEYS)


def _globs(stage: Stage, sources: Mapping[str, Any]) -> list[str]:
    return _inside(texts(stage, "sources.globs", sources.get("globs", ["**/*"])))


def _inside(globs: Sequence[str]) -> list[str]:
    for pattern in globs:
        if pattern.startswith(("/", "~")) or ".." in Path(pattern).parts:
            raise ConfigError(f"the pattern {pattern!r} leads out of the folder.", key="sources.globs", hint="Write it like `**/*.md`.")
    return list(globs)


def _found(home: Path | None, folder: str) -> Path:
    path = Path(folder).expanduser()
    beside = [Path(home) / path] if home is not None else []
    return next((place for place in (*beside, path) if place.is_dir()), beside[0] if beside else path)


def _checked_folder(folder: Path, key: str) -> Path:
    if folder.is_dir():
        try:
            os.scandir(folder).close()
        except OSError as error:
            hint = "Let the user who runs this read it."
            raise ConfigError(f"the folder {str(folder)!r} cannot be read: {error.strerror}.", key=key, hint=hint) from error
        return folder
    what = "is a file" if folder.exists() else "does not exist"
    raise ConfigError(f"the folder {str(folder)!r} {what}.", key=key, hint="Give the path of a folder with documents.")


def read_folder(
    folder: Path, globs: Sequence[str] = ("**/*",), *, key: str = "sources.folder", library: Library | None = None
) -> list[SourceDocument]:
    """The documents below a folder whose paths fit one of the patterns, by path; they go into the library, if there is one.

    Links that lead out of the folder are not followed. ConfigError if there is no such folder, or nothing in it that can be read.
    """
    root = _checked_folder(folder, key).resolve()
    library = library if library is not None else Library()
    paths = {path.relative_to(root).as_posix(): path for pattern in _inside(globs) for path in root.glob(pattern)}
    found: list[SourceDocument] = []
    library.not_read |= _closed_folders(root)
    for name in sorted(paths):
        path = paths[name]
        if any(part.startswith(".") for part in Path(name).parts) or not path.is_file():
            continue
        try:
            document = _document(path, name, root)
        except (HoldfastError, OSError) as error:
            library.not_read[name] = error.message if isinstance(error, HoldfastError) else str(error.strerror or error)
            continue
        library.add(document)
        found.append(document)
    if not found:
        unread = "".join(f" {name}: {why}" for name, why in list(library.not_read.items())[:3])
        hint = f"Put {_KINDS}, PDF or Office files there, or change `sources.globs`."
        raise ConfigError(f"there is nothing to read in {str(folder)!r}.{unread}", key=key, hint=hint)
    return found


def _closed_folders(root: Path) -> dict[str, str]:
    """The folders below one that may not be looked into, with the reason; hidden ones are none of ours."""
    refused: list[OSError] = []
    for _, folders, _ in os.walk(root, onerror=refused.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
    return {os.path.relpath(os.fsdecode(error.filename), root): f"the folder cannot be read: {error.strerror}" for error in refused}


def read_document(path: Path, name: str) -> SourceDocument:
    """One file as a document; InputError says why it cannot be read."""
    return _document(path, name, path.resolve().parent)


def _document(path: Path, name: str, root: Path) -> SourceDocument:
    suffix = path.suffix.lower()
    if not path.resolve().is_relative_to(root):
        raise InputError("the link leads out of the folder")
    if path.stat().st_size > LARGEST:
        raise InputError(f"it has more than {LARGEST // 1_000_000} MB")
    with open_outside(path) as file:
        return document_of(file.read(LARGEST), suffix, name)


def document_of(data: bytes, suffix: str, name: str) -> SourceDocument:
    """The content of a file of this ending as a document; InputError says why it is none."""
    if suffix in CONVERTED:
        text, problem = MarkItDown().convert(data, suffix)
        if text is None:
            raise InputError(problem or "it cannot be converted")
        return document_of_text(text, suffix, name)
    if suffix and suffix not in READ:
        raise InputError(f"files of the kind {suffix} are not read")
    if b"\0" in data[:4096] and not data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise InputError("it is no text")
    return document_of_text(data, suffix, name)


def document_of_text(data: bytes | str, suffix: str, name: str) -> SourceDocument:
    """A document of a text, or of what a converter made of a file of this ending."""
    read = read_text(data, suffix)
    if not read.text.strip():
        raise InputError("there is no text in it")
    # Like what is imported: a person named it.
    return SourceDocument(name, read.text, trust="medium", name=read.title, stated=read.dated, author=read.author)


def _add_raw(request: StageRequest, wanted: object, library: Library) -> None:
    """Raw data of earlier stages: all that the given outputs refer to (`raw: true`), or the references that are listed."""
    listed = (
        [ref for output in request.given for ref in output.raw_data_refs] if wanted is True else texts(request.stage, "sources.raw", wanted)
    )
    for document in _raw_documents(request.raw, dict.fromkeys(listed), _described(request.given)):
        library.add(document)


def _add_records(request: StageRequest, questions: Sequence[str], top_k: int, library: Library) -> None:
    if request.knowledge is None:
        hint = "Set `knowledge` in the configuration, or name a `folder`."
        raise wrong(request.stage, "sources.knowledge", "there is no knowledge store in this run.", hint)
    hits: dict[str, Hit] = {}
    for question in questions:
        if request.cancelled():
            return
        for hit in request.knowledge.search(question, top_k=top_k):
            hits.setdefault(hit.record.id, hit)
    for name in sorted(hits):
        source = hits[name].record.source
        if hits[name].record.kind != "summary" and (not source or library.get(source) is None):
            library.add(record_document(hits[name]))


def record_document(hit: Hit) -> SourceDocument:
    """A record that was found, as a document."""
    source = hit.record.source or ""
    extra = {"source": source}
    if hit.record.kind == "document":  # who wrote it is data about it, and the rows of its tables stand with their heads
        text, author = with_heads("\n".join(one.text for one in hit.records)), hit.record.speaker or ""
        return SourceDocument(hit.record.id, f"{text}\n", trust=hit.record.trust, name=source, extra=extra, author=author)
    return SourceDocument(hit.record.id, f"{hit.text}\n", trust=hit.record.trust, name=source, extra=extra)


def _memories(retrieved: Sequence[Mapping[str, Any]], library: Library) -> Iterator[SourceDocument]:
    """The memories of the session as documents, so that they are quoted like any other source.

    What an earlier run found in a document that is here now is no second source: the document itself says what holds today. Summaries are
    our own words about sources and never one.
    """
    for n, memory in enumerate(retrieved, 1):
        text, id, source = memory.get("text"), str(memory.get("id") or f"memory-{n}"), str(memory.get("source") or "")
        if not isinstance(text, str) or not text.strip() or memory.get("kind") == "summary":
            continue
        if library.get(id) is None and (not source or library.get(source) is None):
            yield SourceDocument(id, text, trust=str(memory.get("trust") or "low"), extra={"source": source})


def library_of_outputs(request: StageRequest) -> Library:
    """The documents that the given outputs refer to, under the names by which their findings cite them."""
    refs = dict.fromkeys(ref for output in request.given for ref in output.raw_data_refs)
    return Library(_raw_documents(request.raw, refs, _described(request.given)))


def _described(outputs: Iterable[StageOutput]) -> dict[str, Mapping[str, Any]]:
    """What the outputs' own lists of documents say about each raw reference."""
    found: dict[str, Mapping[str, Any]] = {}
    for output in outputs:
        data = output.data if isinstance(output.data, Mapping) else {}
        for one in data.get("documents") or ():
            if isinstance(one, Mapping) and isinstance(one.get("ref"), str) and isinstance(one.get("id"), str):
                found.setdefault(one["ref"], one)
    return found


def _raw_documents(raw: RawAccess, refs: Iterable[str], described: Mapping[str, Mapping[str, Any]]) -> Iterator[SourceDocument]:
    taken: set[str] = set()
    for ref in refs:
        try:
            text = raw.text(ref)
        except InputError:
            continue  # the data is gone, or another agent's list was wrong: its findings stay, only without their surroundings
        about = described.get(ref, {})
        name = str(about.get("id", ref))
        if name not in taken and text.strip():
            taken.add(name)
            title, dated = (str(about.get(key) or "") for key in ("title", "dated"))
            yield SourceDocument(name, text if about else read_text(text, ".md").text, ref=ref, name=title, stated=dated)


def stand_ins(outputs: Iterable[StageOutput], library: Library) -> list[SourceDocument]:
    """For each source of a finding whose text is not at hand: a document of what was found in it."""
    facts: dict[str, list[str]] = {}
    for output in outputs:
        for finding in output.key_findings:
            if library.get(finding.source) is None:
                facts.setdefault(finding.source, []).append(finding.fact)
    return [SourceDocument(source, "\n\n".join(said) + "\n") for source, said in facts.items()]
