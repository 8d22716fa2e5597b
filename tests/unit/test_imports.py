"""C2: a setting that names a class is loaded in one way, and one kind of error says what to change."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, NotImportable
from holdfast.validation import load_dotted


@pytest.mark.parametrize("path", ["collections:OrderedDict", "collections.OrderedDict"])
def test_both_spellings_lead_to_the_same_object(path: str) -> None:
    assert load_dotted(path, "the class") is collections.OrderedDict


def test_the_name_behind_the_colon_may_be_dotted() -> None:
    assert load_dotted("collections:OrderedDict.fromkeys", "the function")(["a"]) == {"a": None}


@pytest.mark.parametrize("path", ["", "plain", ":Name", "module:", ".module:Name", "."])
def test_a_text_that_is_no_path_is_refused_without_an_import(path: str) -> None:
    with pytest.raises(NotImportable, match="it is no path") as caught:
        load_dotted(path, "the class", key="tools[0].use")
    assert caught.value.path == path
    assert caught.value.key == "tools[0].use"


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(NotImportable, match="Is no_such_package installed") as caught:
        load_dotted("no_such_package.inner:Name", "the class")
    assert caught.value.missing == "no_such_package"


def test_a_near_miss_of_a_name_is_suggested() -> None:
    with pytest.raises(NotImportable, match="Did you mean `OrderedDict`") as caught:
        load_dotted("collections:OrderedDit", "the class", file="config.yaml", line=3, key="models[].use")
    assert caught.value.nearest == "OrderedDict"
    assert str(caught.value).startswith("config.yaml:3: models[].use: the class")


def test_a_module_that_raises_when_it_is_imported_is_a_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raises_at_import.py").write_text("raise RuntimeError('no network')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="RuntimeError: no network") as caught:
        load_dotted("raises_at_import:Name", "the class")
    assert isinstance(caught.value.__cause__, RuntimeError)
