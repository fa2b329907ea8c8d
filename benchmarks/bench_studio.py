"""Time and memory of a training step in a browser tab, against the same kit in Python.

    make studio
    python benchmarks/bench_studio.py [--rounds 15] [--width 0.35] [--sizes 96 128] [--no-times]

MobileNetV2, batch 8, the whole step: frozen part, gradients, Adam. Headless Chromium runs the
page's engine in a worker, with one and with two threads of WebAssembly; Python is held to one and
to two cores. All four are open at once and take turns, one step each after one that is not timed,
and the medians are compared: nothing else may use the machine meanwhile. The heap is the runtime's
WebAssembly memory after steps and a validation. It does not depend on what else runs, and
`--no-times` gives it alone.

Last come the time from an empty page to the first prediction, by a classifier of ten photos, and
the bytes that the page loads.

Chromium is looked for at /usr/bin/chromium, or where the variable CHROMIUM says.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import pocketune
from bench_step import CLASSES, adapted, kit_step
from pocketune.kit.bundled import kit_path
from pocketune.studio import SITE
from report import table, write

METHODS = ("last", "blocks", "mobiletl")
BATCH = 8
THREADS = (1, 2)
WEB = Path(__file__).parents[1] / "web"
HEADER = ["method", "px", "heap MB", "browser, 1 thread", "2 threads", "Python, 1 core", "2 cores"]


class Child:
    """A process that answers each line of JSON with another one."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = self.answer()

    def ask(self, question: object) -> Any:
        """The answer to a question."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        """The next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a process of the benchmark has failed; its message is above")
        return json.loads(line)

    def close(self) -> None:
        """Let the process end."""
        self.process.communicate()


def work(kit: str, cores: int) -> None:
    """Make a step for every line on standard input; answer with its milliseconds."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    step = kit_step(kit)  # imports the runtime, which counts the cores
    rng = np.random.default_rng(0)
    size = pocketune.Kit.open(kit).manifest.size
    images = rng.integers(0, 256, (BATCH, size, size, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, BATCH)
    for _ in range(2):
        step(images, labels)
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        step(images, labels)  # fills the caches, as the step before does in training
        start = time.perf_counter()
        step(images, labels)
        print(json.dumps((time.perf_counter() - start) * 1e3), flush=True)


def measure(browser: Child, kit: Path, rounds: int) -> tuple[float, list[float]]:
    """Megabytes of the heap, and milliseconds in the browser and in Python by threads."""
    pages = {threads: browser.ask({"open": str(kit), "threads": threads}) for threads in THREADS}
    heap = max(browser.ask({"step": page})[2] for page in pages.values()) / 1e6
    times: dict[tuple[str, int], list[float]] = {}
    python = {
        cores: Child([sys.executable, __file__, "--worker", str(kit), str(cores)], WEB)
        for cores in (THREADS if rounds else ())
    }
    for _ in range(rounds):
        for threads, page in pages.items():
            browser.ask({"step": page})
            frozen, trained, _ = browser.ask({"step": page})
            times.setdefault(("browser", threads), []).append(frozen + trained)
        for cores, process in python.items():
            times.setdefault(("python", cores), []).append(process.ask("step"))
    for process in python.values():
        process.close()
    for page in pages.values():
        browser.ask({"close": page})
    return heap, [median(times[key]) for key in sorted(times)]


def loaded_bytes() -> list[list[object]]:
    """What the page loads until it trains, as it is sent and compressed."""
    names = [
        "index.html",
        "styles.css",
        "main.js",
        *(path.name for path in SITE.glob("worker-wasm-*.js")),
    ]
    runtime = ["ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm.gz"]
    rows: list[list[object]] = []
    total = [0, 0]
    for what, files in (
        ("page and worker", [SITE / name for name in names]),
        ("runtime", [SITE / name for name in runtime]),
        ("kit `last`", [Path(kit_path("last"))]),
    ):
        sent = sum(path.stat().st_size for path in files)
        small = sum(compressed(path) for path in files)
        total = [total[0] + sent, total[1] + small]
        rows.append([what, f"{sent / 1e3:,.0f}", f"{small / 1e3:,.0f}"])
    return [*rows, ["all", *(f"{each / 1e3:,.0f}" for each in total)]]


def compressed(path: Path) -> int:
    data = path.read_bytes()
    return len(data) if path.suffix in (".gz", ".zip") else len(gzip.compress(data, 9))


def report(
    rows: list[list[object]], firsts: list[float], browser: str, options: argparse.Namespace
) -> None:
    """Write the tables; rows are short if times are not asked for."""
    text = table(HEADER[: len(rows[0])], rows)
    if firsts:
        text += (
            "\n\nTimes of a step are medians in ms.\n\nFrom an empty page to the first prediction, "
            f"by a classifier of ten photos: {median(firsts):.1f} s, in a page of the benchmark\n"
            "that has the engine but not the studio's main.js."
        )
    text += "\n\n" + table(["loaded once", "kB", "kB compressed"], loaded_bytes())
    title = (
        f"A training step of MobileNetV2 {options.width:g} in Chromium {browser.split('.')[0]}, "
        f"batch {BATCH}"
    )
    name = "studio" if options.width == 0.35 else f"studio-w{options.width:g}"
    write(name, title, text)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2], int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--width", type=float, default=0.35)
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 128, 224])
    parser.add_argument("--no-times", action="store_true")
    options = parser.parse_args()
    if not (SITE / "main.js").is_file():
        sys.exit("the page is not built: run make studio first")
    rounds = 0 if options.no_times else options.rounds
    rows: list[list[object]] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        closing(Child(["npm", "run", "--silent", "bench"], WEB)) as browser,
    ):
        for method in METHODS:
            for size in options.sizes:
                kit = Path(scratch) / f"{method}-{size}.zip"
                network = adapted("mobilenet_v2", method, options.width)
                pocketune.compile(network, kit, batch=BATCH, size=size)
                heap, times = measure(browser, kit, rounds)
                rows.append([method, size, f"{heap:.1f}", *(f"{each:.0f}" for each in times)])
                print(*rows[-1], flush=True)
        question = {"first": str(kit_path("last")), "threads": THREADS[-1]}
        firsts = [browser.ask(question) / 1e3 for _ in range(3 if rounds else 0)]
    report(rows, firsts, browser.first, options)


if __name__ == "__main__":
    main()
