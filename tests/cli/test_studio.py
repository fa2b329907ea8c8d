"""`pocketune studio` with a page that is made for the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from pocketune.studio import site as studio_site

from .conftest import Run, environment


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>studio</title>")
    monkeypatch.setattr(studio_site.collect_site, "__defaults__", (None, folder))
    return folder


def test_export_writes_the_page_and_the_kits(run: Run, page: Path, kit: Path) -> None:
    result = run("studio", "--export", "site", "--kit", kit, "--kit", "last")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("wrote site (6 files, ")
    listing = json.loads(Path("site/site.json").read_text())
    assert [each["name"] for each in listing["kits"]] == ["attributes", "blocks", "last", "tiny"]
    assert all(Path("site", each["path"]).is_file() for each in listing["kits"])


def test_a_kit_is_checked_before_it_is_offered(run: Run, page: Path) -> None:
    Path("broken.zip").write_bytes(b"no kit")
    result = run("studio", "--export", "site", "--kit", "broken.zip")
    assert result.exit_code == 1
    assert result.stderr == "error: broken.zip is damaged: it is not a whole .zip; copy it again\n"
    assert not Path("site").exists()


def test_a_bundled_kit_that_the_page_does_not_train_is_refused(run: Run, page: Path) -> None:
    result = run("studio", "--export", "site", "--kit", "masks")
    assert result.exit_code == 1
    assert "is for masks, which the page does not train" in " ".join(result.stderr.split())


SERVE = """
import sys
from pocketune.studio import site
site.collect_site.__defaults__ = (None, site.Path(sys.argv.pop(1)))
from pocketune.__main__ import main
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="a process is stopped otherwise")
def test_it_serves_until_it_is_stopped(page: Path) -> None:
    command = [sys.executable, "-c", SERVE, str(page), "studio", "--port", "0", "--no-open"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        url = said.removeprefix("the studio is at ").strip()
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor).open(url) as answer:
            assert answer.read() == (page / "index.html").read_bytes()
        process.send_signal(signal.SIGINT)
        try:
            rest, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    assert rest.endswith("closed\n")
