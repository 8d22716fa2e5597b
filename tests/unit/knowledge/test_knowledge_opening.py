"""Which store a configuration, a path or an address means (K2, W1, P1, C3)."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast.config.loading import config_from_values, load_config
from holdfast.config.memory_sections import Knowledge
from holdfast.errors import ConfigError, InputError, NotWritable
from holdfast.knowledge.adapters import ADAPTERS, of_vector_store, open_knowledge, open_section, path_of
from holdfast.knowledge.base import BaseStore
from holdfast.knowledge.markdown import MarkdownStore
from holdfast.knowledge.mcp import McpStore
from holdfast.knowledge.records import Record
from holdfast.validation import load_dotted


def config(folder: Path, text: str) -> holdfast.Config:
    path = folder / "config.yaml"
    path.write_text(text)
    return load_config(path)


def test_a_folder_or_a_path_without_ending_is_markdown(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "new"):
        store = open_knowledge(path)
        assert isinstance(store, MarkdownStore)
        assert store.root == path


def test_an_address_is_an_mcp_server() -> None:
    with open_knowledge("http://user:pass@127.0.0.1:1/mcp?key=sekrit") as store:
        assert isinstance(store, McpStore)


def test_the_configured_adapter_is_opened_below_the_base(tmp_path: Path) -> None:
    loaded = config(tmp_path, "knowledge: {adapter: markdown}\n")
    store = open_knowledge(loaded)
    assert isinstance(store, MarkdownStore)
    assert store.root == tmp_path / ".holdfast" / "knowledge"
    given = open_knowledge(loaded, path="elsewhere")
    assert isinstance(given, MarkdownStore)
    assert given.root == tmp_path / ".holdfast" / "elsewhere"


def test_the_default_is_one_sqlite_file_in_the_base(tmp_path: Path) -> None:
    loaded = config(tmp_path, "")
    assert loaded.knowledge.adapter == "sqlite"
    assert path_of(loaded.knowledge, loaded.base) == tmp_path / ".holdfast" / "knowledge.db"


def test_the_harness_has_the_store(tmp_path: Path) -> None:
    harness = holdfast.build(config(tmp_path, "knowledge: {adapter: markdown}\n"))
    assert isinstance(harness.knowledge, holdfast.KnowledgeStore)
    assert harness.knowledge is harness.knowledge


@pytest.mark.parametrize(
    ("written", "adapter", "dsn", "path"),
    [
        ("{provider: pgvector, connection: 'postgresql://h/d', collection: c}", "postgres", "postgresql://h/d", None),
        ("{provider: postgresql}", "postgres", "postgresql://from-knowledge/x", None),
        ("{provider: sqlite, connection: /data/s.db}", "sqlite", "postgresql://from-knowledge/x", "/data/s.db"),
        ("{provider: markdown}", "markdown", "postgresql://from-knowledge/x", None),
    ],
)
def test_the_vector_store_of_a_session_is_its_knowledge_store(
    tmp_path: Path, written: str, adapter: str, dsn: str, path: str | None
) -> None:
    loaded = config(tmp_path, f"session:\n  vector_store: {written}\nknowledge: {{dsn: 'postgresql://from-knowledge/x'}}\n")
    section = of_vector_store(loaded).knowledge
    assert (section.adapter, section.dsn, section.path) == (adapter, dsn, path)
    assert loaded.knowledge.adapter == "sqlite"
    assert of_vector_store(loaded).base == loaded.base


def test_without_a_vector_store_nothing_changes(tmp_path: Path) -> None:
    loaded = config(tmp_path, "")
    assert of_vector_store(loaded) is loaded


def test_a_session_configuration_opens_its_own_store(tmp_path: Path) -> None:
    loaded = config(tmp_path, f"session:\n  vector_store: {{provider: markdown, connection: {tmp_path}/own}}\n")
    store = open_knowledge(loaded)
    assert isinstance(store, MarkdownStore)
    assert store.root == tmp_path / "own"


def test_settings_that_are_not_known_or_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="adapter"):
        open_knowledge(tmp_path, adaptr="markdown")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="adapter"):
        open_knowledge(tmp_path, adapter="redis")
    with pytest.raises(InputError, match="ftp"):
        open_knowledge("ftp://host/x")
    with pytest.raises(InputError, match="empty"):
        open_knowledge("")


def test_what_an_adapter_needs_and_lacks_is_named(tmp_path: Path) -> None:
    from holdfast.config.memory_sections import KnowledgeServer

    with pytest.raises(ConfigError, match=r"knowledge\.dsn"):
        open_section(Knowledge(adapter="postgres"))
    with pytest.raises(ConfigError, match=r"knowledge\.server"):
        open_section(Knowledge(adapter="mcp"))
    with pytest.raises(ConfigError, match="neither a command nor an address"):
        open_section(Knowledge(adapter="mcp", server=KnowledgeServer()))


def test_the_configuration_knows_the_adapters_that_there_are() -> None:
    """K2: one list of adapters; what config accepts is what can be opened."""
    for name in ADAPTERS:
        assert Knowledge(adapter=name).adapter == name
    with pytest.raises(ConfigError) as refused:
        config_from_values({"knowledge": {"adapter": "nothing"}})
    assert [name for name in ADAPTERS if name not in str(refused.value)] == []
    for path in ADAPTERS.values():
        assert issubclass(load_dotted(path, "the adapter"), BaseStore)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes nothing new although it may be written")
@pytest.mark.parametrize("place", ["/proc/nothing", "/proc/nothing.db"])
def test_a_place_where_nothing_can_be_made_is_a_typed_error(place: str) -> None:
    """C6"""
    with pytest.raises(NotWritable, match="nothing can be made in /proc"), open_knowledge(place) as store:
        store.add([Record("Tides come twice a day.")])
