"""P3: the programs of the machine that tests rely on are there and do what they are for; without them the tests say so loudly."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.conftest import need_program


def test_bubblewrap_gives_a_small_file_system_of_its_own(bwrap: str) -> None:
    words = [
        bwrap,
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/bin",
        "/bin",
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
    ]
    done = subprocess.run(
        [*words, "--size", "65536", "--tmpfs", "/data", "--unshare-all", "/bin/sh", "-c", "ls /; df -k /data | tail -1"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "data" in done.stdout
    assert " 64 " in done.stdout


def test_the_browser_draws_a_page(chromium: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p id=a>before</p><script>document.getElementById('a').textContent = 'drawn'</script>")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    more = ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run([chromium, *flags, *more], capture_output=True, text=True, check=True, timeout=240)
    assert '<p id="a">drawn</p>' in done.stdout


def test_a_missing_program_is_a_loud_skip_and_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "false")
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed"):
        need_program("no-such-program", "nothing")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is not installed"):
        need_program("no-such-program", "nothing")
