"""The page in a real browser without a window."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pocketune

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="session")  # before a run is made
def browser() -> str:
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"there is no browser here: none of {', '.join(_NAMES)} is installed")
    return found


def opened(browser: str, page: Path, *options: str) -> tuple[str, str]:
    """What the browser prints for a page: its document, and the messages of its console."""
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               f"--user-data-dir={page.parent / 'profile'}", "--enable-logging=stderr",
               *options, page.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(console)


@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_a_browser_shows_the_page_without_a_complaint(browser, run, tmp_path, scheme):
    page = pocketune.report(run, tmp_path / "page.html")
    shot = tmp_path / "shot.png"
    _, console = opened(
        browser, page, f"--screenshot={shot}", "--window-size=1200,2400",
        f"--blink-settings=preferredColorScheme={scheme}",
    )  # fmt: skip
    assert not console
    with Image.open(shot) as image:
        pixels = np.asarray(image.convert("RGB"), np.int64)
    assert pixels.shape == (2400, 1200, 3)
    paper = pixels[5, 5]
    assert (paper.mean() > 200) == (scheme == 1)
    # in both, there is a lot to see: letters, curves, bars and photos
    assert (np.abs(pixels - paper).sum(axis=2) > 60).mean() > 0.05
    chart = np.abs(pixels - [15, 143, 131] if scheme else pixels - [47, 184, 168]).sum(axis=2)
    assert (chart < 6).any()


def test_the_document_is_complete_after_loading(browser, run, tmp_path):
    page = pocketune.report(run, tmp_path / "page.html")
    document, console = opened(browser, page, "--dump-dom")
    assert not console
    assert document.count("<svg") == 8 and document.rstrip().endswith("</html>")
    assert "<script" not in document


def test_a_page_that_breaks_the_rules_is_noticed(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<script>console.error('x')</script>", encoding="utf-8")
    assert opened(browser, page, "--dump-dom")[1]
