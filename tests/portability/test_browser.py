"""The example page trains a kit in a browser without a window."""

import json
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from math import log
from pathlib import Path
from queue import Queue
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from pocketune.kit.bundled import bundled_kit, list_kits

from .web import EXAMPLE, needs_web

pytestmark = needs_web

CLASSES, PHOTOS = {"green": 1, "red": 0}, 16


@pytest.fixture(scope="module")
def browser() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"there is no browser here: none of {', '.join(names)} is installed")
    return found


class Handler(SimpleHTTPRequestHandler):
    """Serves files, and takes the page's answer."""

    extensions_map: ClassVar = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
    }
    answers: Queue[dict[str, Any]]

    def do_POST(self) -> None:
        self.answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """The folder's address, and what pages answer."""
    handler = type("Answered", (Handler,), {"answers": Queue()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.answers
    finally:
        server.shutdown()
        server.server_close()


def write_photos(folder: Path) -> list[str]:
    rng, names = np.random.default_rng(0), []
    for name, channel in CLASSES.items():
        (folder / name).mkdir(parents=True)
        for i in range(PHOTOS):
            pixels = rng.integers(0, 120, (40, 50, 3), np.uint8)
            pixels[..., channel] += 120
            names.append(f"{name}/{i}.png")
            Image.fromarray(pixels).save(folder / names[-1])
    return names


@pytest.mark.parametrize("kit", list_kits())
def test_the_page_trains_a_kit(kit: str, browser: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(EXAMPLE, site, ignore=shutil.ignore_patterns("node_modules", "kit"))
    (site / "node_modules").symlink_to(EXAMPLE / "node_modules")
    shutil.copy(Path(__file__).with_name("drive.html"), site)
    (site / "photos.json").write_text(json.dumps(write_photos(site / "photos")))
    with zipfile.ZipFile(bundled_kit(kit)) as archive:
        archive.extractall(site / "kit")
    with served(site) as (address, answers):
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu",
                   f"--user-data-dir={tmp_path / 'profile'}",
                   f"{address}/drive.html#wasm"]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            try:
                answer = answers.get(timeout=120)
            finally:
                run.terminate()
    assert "error" not in answer, answer
    assert answer["classes"] == sorted(CLASSES)
    assert answer["losses"][0] == pytest.approx(log(2), abs=0.05)  # the head starts from zeros
    assert answer["losses"][-1] < 0.8 * answer["losses"][0]
    assert answer["accuracy"] == 1
    assert answer["lines"][-1].startswith("epoch 5 of 5")
