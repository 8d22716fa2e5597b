"""O2, O4: a log for watchers loses no whole line to a kill, and a torn one hides no other."""

from __future__ import annotations

from pathlib import Path

from holdfast.durable.line_log import LineLog


def test_lines_are_read_from_any_place_on(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "deep" / "events.ndjson")
    assert log.read() == ([], 0)
    assert log.last() is None
    log.append({"n": 1})
    first, place = log.read()
    log.append({"n": 2, "text": "zwei\nlines é"})
    later, end = log.read(place)
    assert (first, later) == ([{"n": 1}], [{"n": 2, "text": "zwei\nlines é"}])
    assert end == log.size
    assert log.last() == later[-1]
    assert (tmp_path / "deep" / "events.ndjson").stat().st_mode & 0o777 == 0o600


def test_a_torn_line_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    log = LineLog(path)
    log.append({"n": 1})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "te')
    found, place = log.read()
    assert found == [{"n": 1}]
    assert log.last() == {"n": 1}
    log.append({"n": 3})
    assert log.read(place)[0] == [{"n": 3}]
    assert log.read()[0] == [{"n": 1}, {"n": 3}]


def test_the_older_half_goes_when_it_is_too_large(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "calls.ndjson", most_bytes=2_000)
    for number in range(500):
        log.append({"n": number, "text": "x" * 20})
        assert log.size < 2_200
    kept = [record["n"] for record in log.read()[0]]
    assert kept == list(range(kept[0], 500))
    assert len(kept) > 15
