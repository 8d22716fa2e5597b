"""Whatever stands in a file, the result is a Config or a ConfigError, and a secret never shows (C2, C3, C4)."""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tests.conftest import Effort

from holdfast.config.checks import effective_settings
from holdfast.config.loading import config_from_values, example_text, read_config
from holdfast.config.migration import mapped, upgrade_text
from holdfast.config.reading import read_yaml
from holdfast.config.section import Section, all_errors, nested
from holdfast.config.sections import Config
from holdfast.errors import ConfigError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "config"
SECRET = "hunter2hunter2"  # noqa: S105 - it is meant to be found


def seeds() -> list[str]:
    return [example_text(), *(path.read_text() for path in sorted(FIXTURES.glob("*.yaml")))]


def known_names() -> list[str]:
    names: set[str] = set()

    def visit(section: type[Section]) -> None:
        for name in section.model_fields:
            names.add(name)
            if (inner := nested(section, name)) is not None:
                visit(inner.section)

    visit(Config)
    return sorted(names | {"stages", "config_version", "channels", "log_level", "token_counting", "backend_config"})


def use_everything(config: Config) -> None:
    """Read every attribute of every section, as a program would; only a ConfigError may come of it."""

    def visit(section: Section) -> None:
        for name in type(section).model_fields:
            try:
                value = getattr(section, name)
            except ConfigError:
                continue
            items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
            for item in items:
                if isinstance(item, Section):
                    visit(item)

    visit(config)


def views(config: Config) -> str:
    return "\n".join(
        [
            str(config),
            repr(config.raw),
            json.dumps(config.model_dump()),
            config.model_dump_json(),
            "\n".join(map(str, config.warnings)),
            "\n".join(f"{setting.key} {setting.value} {setting.source}" for setting in effective_settings(config)),
        ]
    )


def load(read: Callable[[], Config]) -> str:
    """Load and use; everything that a person would see of it. Any exception but ConfigError comes out."""
    try:
        config = read()
    except ConfigError as error:
        assert all("\n" not in str(found) for found in all_errors(error))
        return "\n".join([*map(str, all_errors(error)), *traceback.format_exception(error)])
    use_everything(config)
    return views(config)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from(
        ["$A", "${B}", "$$", "x$A", "tokens", "messages", "fraction", "src.sandbox.local:LocalSandboxProvider", "postgresql://u:p@h/d", ""]
    ),
    st.text(max_size=8),
)
names = st.one_of(st.sampled_from(known_names()), st.text(max_size=6))
trees = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)), max_leaves=12
)


@pytest.mark.prove
def test_any_tree_of_values_gives_a_config_or_a_config_error(effort: Effort) -> None:
    @seed(effort.seed)
    @settings(max_examples=effort(150, 5000), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.dictionaries(st.one_of(st.sampled_from(sorted(Config.model_fields)), names), trees, max_size=5))
    def check(values: dict[str, Any]) -> None:
        load(lambda: config_from_values(values, environ={"A": "1"}))
        try:
            text = json.dumps(values)
            read_yaml(text)
        except ConfigError:
            return
        load(lambda: read_config(text, file="config.yaml", environ={"A": "1"}))

    check()


def mutated(text: str, chance: random.Random) -> str:
    """A valid file with a few random things done to it: what a slip of the hand does, and worse."""
    lines = text.splitlines()
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines)) if lines else 0
        what = chance.randrange(9)
        line = lines[at] if lines else ""
        if what == 0:
            lines[at : at + 1] = []
        elif what == 1:
            lines.insert(at, line)
        elif what == 2:
            lines[at : at + 1] = [" " * chance.randrange(5) + line.lstrip()]
        elif what == 3 and line:
            spot = chance.randrange(len(line))
            lines[at : at + 1] = [line[:spot] + chance.choice(list("{}[]:#&*!|>'\"%@`,-? \t$~\x00\ud800é中")) + line[spot:]]
        elif what == 4 and line:
            spot = chance.randrange(len(line))
            lines[at : at + 1] = [line[:spot] + line[spot + 1 :]]
        elif what == 5 and ":" in line:
            lines[at : at + 1] = [
                line.partition(":")[0]
                + ": "
                + chance.choice(["[]", "{}", "many", "$A", "-1", "1e999", "true", "null", "[[1]]", "*x", "&x y", "!z", "|"])
            ]
        elif what == 6:
            other = chance.randrange(len(lines)) if lines else 0
            if lines:
                lines[at], lines[other] = lines[other], lines[at]
        elif what == 7 and "#" in line:
            lines[at : at + 1] = [line.replace("# ", "", 1)]
        else:
            lines.insert(at, "<<: *base" if chance.random() < 0.5 else "---")
    return "\n".join(lines) + chance.choice(["", "\n"])


@pytest.mark.prove
def test_any_mutation_of_a_valid_file_gives_a_config_or_a_config_error(effort: Effort) -> None:
    chance = random.Random(effort.seed)
    originals = seeds()
    loaded = 0
    for number in range(effort(150, 4000)):
        text = mutated(chance.choice(originals), chance)
        try:
            load(lambda text=text: read_config(text, file="config.yaml", environ={"A": "1"}))  # type: ignore[misc]
            loaded += not is_refused(text)
        except Exception as error:  # noqa: BLE001 - every kind of exception is what is looked for
            effort.fail(f"{number}: {type(error).__name__}: {error!s:.80} for {text!r:.300}")
    assert loaded > 5, "the mutations must not be so wild that nothing is left to load"


def is_refused(text: str) -> bool:
    try:
        read_config(text, environ={})
    except ConfigError:
        return True
    return False


@pytest.mark.prove
def in_our_words(value: Any) -> Any:
    """The value with class paths of the reference as ours: an upgrade rewrites them (C4)."""
    if isinstance(value, dict):
        return {key: in_our_words(item) for key, item in value.items()}
    if isinstance(value, list):
        return [in_our_words(item) for item in value]
    return (mapped(value) or value) if isinstance(value, str) else value


def test_an_upgrade_never_changes_the_meaning_or_loses_a_comment(effort: Effort) -> None:
    chance = random.Random(effort.seed)
    originals = seeds()
    upgraded = 0
    for number in range(effort(100, 3000)):
        text = mutated(chance.choice(originals).replace("holdfast_version: 1", ""), chance)
        try:
            before = read_yaml(text).values
            result = upgrade_text(text)
        except ConfigError:
            continue
        upgraded += result.changed
        after = read_yaml(result.text).values or {}
        kept = {key: value for key, value in (before or {}).items() if key not in ("memory", "logging", "holdfast_version")}
        if any(in_our_words(after.get(key)) != in_our_words(value) for key, value in kept.items() if value == value):
            effort.fail(f"{number}: the meaning changed: {text!r:.300}")
        if any(line.strip() not in result.text for line in text.splitlines() if line.strip().startswith("#")):
            effort.fail(f"{number}: a comment is gone: {text!r:.300}")
        if upgrade_text(result.text).changed:
            effort.fail(f"{number}: a second upgrade changed something: {text!r:.300}")
    assert upgraded > 5


def planted(text: str, chance: random.Random) -> str:
    """The file with a secret put where secrets stand: under a name that says so, or inside an address."""
    name = chance.choice(["api_key", "password", "token", "client_secret", "X-Api-Key", "authorization", "openai_api_key", "ACCESS_TOKEN"])
    value = chance.choice([SECRET, f"'{SECRET}'", f"[{SECRET}]", f"{{deep: {SECRET}}}", f"${{NOT_SET:-{SECRET}}}", f'"{SECRET}"'])
    address = chance.choice(
        [
            f"postgresql://u:{SECRET}@h/d",
            f"https://x/?api_key={SECRET}&y=1",
            f"host=h password={SECRET}",
            f"redis://:{SECRET}@h:1/0",
            f"https://{SECRET}@h",
        ]
    )
    lines = text.splitlines()
    keyed = [index for index, line in enumerate(lines) if ":" in line and not line.lstrip().startswith("#")]
    at = chance.choice(keyed)
    line = lines[at]
    indent = len(line) - len(line.lstrip(" -"))
    what = chance.randrange(3)
    if what == 0:
        lines.insert(at + 1 if "- " in line else at, " " * indent + f"{name}: {value}")
    elif what == 1:
        lines[at] = line.partition(":")[0] + f": {address!r}"
    else:
        lines[at] = line.partition(":")[0] + f": {{{name}: {value}}}"
    return "\n".join(lines)


@pytest.mark.prove
def test_a_planted_secret_never_shows_in_a_view_or_an_error(effort: Effort) -> None:
    chance = random.Random(effort.seed)
    originals = seeds()
    shown = 0
    for number in range(effort(150, 4000)):
        text = planted(chance.choice(originals), chance)
        if chance.random() < 0.2:
            text = mutated(text, chance)
            if SECRET not in text:
                continue
        view = load(lambda text=text: read_config(text, file="config.yaml", environ={"A": "1"}))  # type: ignore[misc]
        shown += "***" in view
        if SECRET in view:
            line = next(line for line in view.splitlines() if SECRET in line)
            effort.fail(f"{number}: {line[max(0, line.index(SECRET) - 80) : line.index(SECRET) + 20]!r}")
    assert shown > 5


@pytest.mark.prove
def test_a_secret_from_the_environment_never_shows_either(effort: Effort) -> None:
    chance = random.Random(effort.seed)
    for number in range(effort(60, 1000)):
        lines = chance.choice(seeds()).splitlines()
        keyed = [index for index, line in enumerate(lines) if ":" in line and not line.lstrip().startswith("#")]
        for at in chance.sample(keyed, min(3, len(keyed))):
            lines[at] = lines[at].partition(":")[0] + ": " + chance.choice(["$S", "[$S]", "{type: $S, value: $S}", "x${S}y"])
        view = load(lambda lines=lines: read_config("\n".join(lines), file="config.yaml", environ={"S": SECRET}))  # type: ignore[misc]
        if SECRET in view:
            effort.fail(f"{number}: {lines}")
