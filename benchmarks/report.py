"""Writing results, with the machine and the versions they were measured with."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("pocketune", "torch", "onnxruntime", "numpy", "pillow")


def machine() -> str:
    """Processor, cores, Python and package versions in one line."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":")[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    found = [f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}"]
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # pocketune may run from its source
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


def date_and_commit() -> str:
    """Today, and the commit that is measured where git knows it."""
    told = [str(date.today())]
    with suppress(OSError, subprocess.CalledProcessError):  # the source may be an archive
        command = ["git", "-C", str(RESULTS.parent), "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        told.append(f"commit {done.stdout.strip()}")
    return ", ".join(told)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def spread(scores: Sequence[float] | None) -> str:
    """Mean and standard deviation, with one place; nothing where nothing was measured."""
    if not scores:
        return ""
    return f"{mean(scores):.1f}" + (f" ± {stdev(scores):.1f}" if len(scores) > 1 else "")


def kept(name: str) -> dict[str, dict[str, Any]]:
    """What stands in a result's .json, to go on from."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def keep(name: str, results: dict[str, dict[str, Any]]) -> None:
    """Write it down."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")


def write(name: str, title: str, text: str) -> None:
    """Print a result and keep it under `benchmarks/results`."""
    content = f"# {title}\n\n{machine()}; {date.today()}.\n\n{text}\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(content)
    print(content)
