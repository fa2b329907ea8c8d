"""Where the memory of a training run lies, by cause.

    python benchmarks/bench_memory_causes.py [--kits NAME=KIT ...]

Each kit is trained for a few steps by `pocketune train` on generated photos of 640 x 480, in a
fresh process, which adds up its own memory after the last step. The causes are all of it: what is
resident then, and next to it the peak of the run. By default, MobileNetV2 1.0 is compiled for five
methods, with random weights; 8-bit frozen parts are calibrated on the photos.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CLASSES, PHOTOS, STEPS = 12, 96, 12
CAMERA = 640, 480

ROWS = {
    "MobileTL, 8-bit frozen part, batch 8, 224 px": ("mobiletl", 8, 224, 8),
    "blocks, batch 8, 224 px": ("blocks", 8, 224, 32),
    "last, 8-bit frozen part, batch 8, 224 px": ("last", 8, 224, 8),
    "bias, batch 1, 160 px": ("bias", 1, 160, 32),
    "everything, batch 8, 224 px": ("full", 8, 224, 32),
}
"""Method, batch, side and bits of the frozen part, by the heading of the column."""

CAUSES = {
    "imports": "Python, numpy, ONNX Runtime and our modules, imported",
    "libraries": "pages of libraries, equal to their files",
    "parameters": "trained parameters and statistics",
    "optimizer": "Adam's two moments",
    "arena": "the runtime's arena: activations, gradients, packed weights",
    "blocks": "graphs, photos and other blocks of the allocator in use",
    "rest": "free blocks of the allocator, weights outside it, stacks",
}


def build_kit(method: str, batch: int, size: int, frozen_bits: int, photos: str, out: str) -> None:
    import pocketune
    from pocketune.authoring import build_kit as build
    from pocketune.data import load_splits

    build(
        out,
        network="mobilenet_v2",
        method=pocketune.create_method(method),
        size=size,
        batch=batch,
        frozen_bits=frozen_bits,
        photos=load_splits(photos, val_fraction=0.0).train,
    )


def work(arguments: list[str]) -> None:
    """Run `pocketune` with these arguments, and print the causes when a training ends."""
    import ctypes

    import pocketune.cli.train  # noqa: F401 - as the command does, before memory is measured
    from arena import resident_arena
    from pocketune.__main__ import main as run_command
    from pocketune.device.memory.graphs import arena_region
    from pocketune.device.train import loop, run

    names = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"]
    names += ["uordblks", "fordblks", "keepcost"]  # of mallinfo2 in <malloc.h>

    class Info(ctypes.Structure):
        _fields_ = tuple((name, ctypes.c_size_t) for name in names)

    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Info
    check, finish, start = run.check_budget, loop.Loop._finish, {}

    def checked(*positional, **named):
        start.update(anonymous=resident()["anonymous"], blocks=libc.mallinfo2().uordblks)
        return check(*positional, **named)

    def finished(self, *positional):
        found, engine = resident(), self._state.engine
        blocks = libc.mallinfo2().uordblks - start["blocks"]
        parts = {
            "imports": start["anonymous"],
            "libraries": found["file"],
            "parameters": total({**engine.parameters, **engine.statistics}),
            "optimizer": total(self._state.optimizer.state()),
            "arena": resident_arena(arena_region(self._run.kit.manifest)),
        }
        parts["blocks"] = blocks - parts["parameters"] - parts["optimizer"]
        parts["rest"] = found["anonymous"] + found["file"] - sum(parts.values())
        print("CAUSES", json.dumps(parts), flush=True)
        return finish(self, *positional)

    run.check_budget, loop.Loop._finish = checked, finished
    sys.argv = ["pocketune", *arguments]
    run_command()


def total(arrays: dict) -> int:
    return sum(array.nbytes for array in arrays.values())


def resident() -> dict[str, int]:
    """Resident bytes, anonymous ones and those of files."""
    found = dict.fromkeys(("anonymous", "file"), 0)
    with open("/proc/self/smaps") as smaps:  # noqa: PTH123 - a path would keep all lines
        for line in smaps:
            key, _, rest = line.partition(":")
            if key == "Rss":
                rss = int(rest.split()[0]) * 1024
            elif key == "Anonymous":
                anonymous = int(rest.split()[0]) * 1024
                found["anonymous"] += anonymous
                found["file"] += rss - anonymous
    return found


def measure(kit: str, photos: str, out: str) -> dict[str, float]:
    arguments = ["train", photos, "--kit", kit, "--out", out, "--steps", str(STEPS)]
    done = subprocess.run(
        [sys.executable, __file__, "--work", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("CAUSES")]
    result = json.loads((Path(out) / "result.json").read_text())
    parts = {**json.loads(line.removeprefix("CAUSES")), "peak": result["peak_memory"]}
    return {**parts, "predicted": result["predicted_memory"]}


def publish(columns: dict[str, dict[str, float]]) -> None:
    from report import table, write

    rows = []
    for cause, text in {**CAUSES, "peak": "**peak of the run**", "predicted": "predicted"}.items():
        rows.append([text, *(f"{found[cause] / 1e6:.1f}" for found in columns.values())])
    note = (
        "MobileNetV2 1.0, by `pocketune train` with Adam on photos of 640 x 480 and 12 classes: MB "
        "after the last step, which the peak exceeds by what validation, the classifier and the "
        "record of the run took at other times."
    )
    title = "Where the memory of a training run lies"
    write("memory_causes", title, f"{note}\n\n{table(['MB', *columns], rows)}")


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2:])
        return
    if sys.argv[1:2] == ["--build"]:
        build_kit(*json.loads(sys.argv[2]))
        return
    import argparse  # here, because the imports of a training process are measured
    import tempfile

    from data import write_photos

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kits", nargs="+", metavar="NAME=KIT", help="kits that exist")
    kits = dict(each.split("=", 1) for each in parser.parse_args().kits or ())
    with tempfile.TemporaryDirectory() as scratch:
        photos = str(write_photos(Path(scratch) / "photos", CLASSES, PHOTOS, CAMERA, grain=40))
        columns = {}
        for name in kits or ROWS:
            kit = kits.get(name) or f"{scratch}/{ROWS[name][0]}"
            if not kits:
                fields = json.dumps([*ROWS[name], photos, kit])
                subprocess.run([sys.executable, __file__, "--build", fields], check=True)
            columns[name] = measure(kit, photos, f"{scratch}/run-{len(columns)}")
            publish(columns)


if __name__ == "__main__":
    main()
