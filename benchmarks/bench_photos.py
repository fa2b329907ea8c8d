"""What many photos cost: memory and time until the first step; and how decoding keeps up.

    python benchmarks/bench_photos.py [--few 2500] [--many 100000] [--rounds 2] [--steps 20000]

Tiny JPEGs, hard links of 64, lie in ten class folders, in a .zip, in a CSV and, with masks, in two
folders. Each set is opened, and trained on for eight steps of the bundled kit `last`, in a fresh
process: with nothing to validate and a classifier that is drawn at random, so that the time until
the first step is that of finding the photos. The processor's time counts, because other programs
use the machine too. For masks, which are all decoded to know their classes, only the opening is
measured. Then a run of many steps shows whether memory stays the same.

The third table is of `last` and `blocks` at 224 px on ordinary photos: the processor's time of a
step with the photos that it waits for, of the same step on a batch that is there, and of decoding
alone. One core is as fast as it can be if the first is the sum of the others; with more cores than
the runtime uses, the wall time of both is the same.

The last is of large photos: what decoding takes, measured and counted from the header.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from report import table, write

CLASSES, STEPS, SIZE = 10, 8, 224
KINDS = ("folder", "csv", "zip", "masks")
LARGE = [
    ("JPEG", "RGB", {}),
    ("JPEG", "RGB", {"progressive": True}),
    ("JPEG", "RGB", {"progressive": True, "subsampling": 0}),
    ("JPEG", "CMYK", {}),
    ("PNG", "RGB", {}),
    ("PNG", "RGBA", {}),
    ("PNG", "P", {}),
    ("PNG", "I;16", {}),
    ("WEBP", "RGB", {"method": 0}),
    ("WEBP", "RGBA", {"method": 0}),
    ("GIF", "P", {}),
    ("BMP", "RGB", {}),
    ("TIFF", "RGB", {}),
    ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    ("AVIF", "RGB", {"speed": 10}),
    ("AVIF", "RGBA", {"speed": 10}),
]
LARGE_SIZE = 4000, 3000


def jpeg(rng: np.random.Generator, size: tuple[int, int]) -> bytes:
    coarse = rng.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize(size).save(file, "JPEG")
    return file.getvalue()


def make_sets(folder: Path, count: int) -> dict[str, Path]:
    """So many photos in each of the layouts."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    originals = [folder / f"{number}.jpg" for number in range(64)]
    for path in originals:
        path.write_bytes(jpeg(rng, (64, 48)))
    mask = folder / "mask.png"
    Image.fromarray(rng.integers(0, 3, (48, 64), dtype=np.uint8)).save(mask)
    tree, masked = folder / "folder", folder / "masks"
    places = [f"class_{number:02d}" for number in range(CLASSES)]
    for place in (*(tree / each for each in places), masked / "images", masked / "masks"):
        place.mkdir(parents=True)
    rows = ["file,label"]
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for number in range(count):
            original, place = originals[number % 64], places[number % CLASSES]
            name = f"{place}/IMG_{number:06d}.jpg"
            os.link(original, tree / name)
            os.link(original, masked / "images" / f"{number:06d}.jpg")
            if number % 50_000 == 0:  # a file can have 65,000 links
                mask = Path(shutil.copy(mask, folder / f"mask{number}.png"))
            os.link(mask, masked / "masks" / f"{number:06d}.png")
            rows.append(f"{tree.name}/{name},{place}")
            archive.write(original, name)
    (folder / "photos.csv").write_text("\n".join(rows))
    return {
        "folder": tree,
        "csv": folder / "photos.csv",
        "zip": folder / "photos.zip",
        "masks": masked,
    }


def work_open(photos: str, _scratch: str) -> dict[str, float]:
    """Open and divide photos with masks."""
    from pocketune.data import load_splits
    from pocketune.device.memory.process import process_memory, reclaim

    reclaim()
    before, began = process_memory().current, time.process_time()
    splits = load_splits(photos, val_fraction=0.0)
    seconds = time.process_time() - began
    reclaim()
    held = process_memory().current - before
    assert len(splits.train)
    return {"seconds": seconds, "held": held, "peak": process_memory().peak}


def work_train(photos: str, scratch: str) -> dict[str, float]:
    """Train for a few steps; the time is that of the whole process until the first."""
    from pocketune.device.engine.onnx import OnnxEngine
    from pocketune.device.memory.process import process_memory
    from pocketune.device.train import train
    from pocketune.device.train.progress import Silent

    first: list[tuple[float, int]] = []

    class Engine(OnnxEngine):
        def gradients(self, *batch):
            first.append((time.process_time(), process_memory().current))
            return super().gradients(*batch)

    result = train(
        "last",
        photos,
        f"{scratch}/run",
        steps=STEPS,
        val_fraction=0.0,
        head_start="random",
        cache="off",
        engine=Engine,
        progress=Silent(),
    )
    seconds, held = first[0]
    return {"seconds": seconds, "held": held, "peak": result.peak_memory}


def work_step(kit: str, photos: str) -> dict[str, float]:
    """The processor's and wall time of a step with and without waiting for photos."""
    from pocketune.data import Loader, load_splits
    from pocketune.device.engine.onnx import OnnxEngine
    from pocketune.device.train.optimizer import Adam
    from pocketune.kit.bundled import kit_path
    from pocketune.kit.kit import Kit

    opened = Kit.open(kit_path(kit))
    splits = load_splits(photos, val_fraction=0.0)
    task, batch = opened.manifest.task, opened.manifest.batch
    state = task.new_head(opened.state(), CLASSES, np.random.default_rng(0))
    engine = OnnxEngine(opened, state)
    optimizer = Adam(engine.parameters)
    loader = Loader(splits.train, size=opened.manifest.size, batch=batch, train=True)
    rng = np.random.default_rng(0)

    def step(batch) -> None:
        optimizer.step(engine.gradients(batch.images, batch.labels, rng).values, lr=1e-4)

    def timed(action) -> tuple[float, float]:
        began = time.process_time(), time.perf_counter()
        action()
        return time.process_time() - began[0], time.perf_counter() - began[1]

    def epoch(number: int, use) -> None:
        for each in loader.epoch(number):
            use(each)

    kept = next(loader.epoch(0))
    step(kept)
    found: dict[str, list[tuple[float, float]]] = {"both": [], "step": [], "decode": []}
    steps = len(loader)
    for number in range(7):
        found["both"].append(timed(lambda n=number: epoch(n, step)))
        found["step"].append(timed(lambda: [step(kept) for _ in range(steps)]))
        found["decode"].append(timed(lambda n=number: epoch(n, lambda _: None)))
    return {
        f"{name} {kind}": median(each[place] for each in times) / steps
        for name, times in found.items()
        for place, kind in enumerate(("cpu", "wall"))
    }


def work_draw(number: str, folder: str) -> dict[str, float]:
    """Save a large photo, and a small one of its kind."""
    kind, mode, options = LARGE[int(number)]
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (30, 40, 4), dtype=np.uint8)).resize(LARGE_SIZE)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image)[..., 0].astype(np.uint16) * 257)
    image = image.convert(mode)
    image.save(Path(folder) / number, kind, **options)
    image.resize((640, 480), 0).save(Path(folder) / f"{number}.small", kind, **options)
    return {}


def work_large(number: str, folder: str) -> dict[str, float]:
    """Peak of decoding a large photo, beyond what the process takes."""
    from pocketune.data import center_crop, open_image
    from pocketune.data.images.cost import view_bytes
    from pocketune.data.images.pillow_headers import header_of

    def decode(name: str) -> int:
        with (Path(folder) / name).open("rb") as file, open_image(file) as opened:
            counted = view_bytes(header_of(opened), SIZE)
            center_crop(opened, SIZE)
            return counted

    def status(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

    decode(f"{number}.small")  # the decoder's code is in memory
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    counted = decode(number)
    return {"measured": status("VmHWM") - before, "counted": counted}


def work_long(photos: str, scratch: str, steps: str) -> dict[str, float]:
    """Resident bytes in the course of many steps on many photos, and open files."""
    from pocketune.device.engine.onnx import OnnxEngine
    from pocketune.device.memory.process import process_memory
    from pocketune.device.train import train
    from pocketune.device.train.progress import Silent

    seen: dict[str, float] = {}
    marks = [int(steps) * part // 20 for part in (1, 2, 5, 10, 20)]

    class Engine(OnnxEngine):
        made = 0

        def gradients(self, *batch):
            self.made += 1
            if self.made in marks:
                seen[f"{self.made}"] = process_memory().current
                seen[f"files {self.made}"] = len([*Path("/proc/self/fd").iterdir()])
            return super().gradients(*batch)

    options = {"val_fraction": 0.0, "head_start": "random", "cache": "off", "engine": Engine}
    result = train("last", photos, f"{scratch}/run", steps=int(steps), progress=Silent(), **options)
    return {**seen, "peak": result.peak_memory}


WORK = {
    "long": work_long,
    "open": work_open,
    "train": work_train,
    "step": work_step,
    "draw": work_draw,
    "large": work_large,
}


def worker(what: str, *arguments: str, cores: int | None = None) -> dict[str, float]:
    """The result of a fresh process."""
    command = [sys.executable, __file__, "--worker", what, *arguments]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    if cores is not None:
        command[:0] = ["taskset", "-c", ",".join(map(str, range(cores)))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    print(what, *arguments[:1], done.stdout.strip(), file=sys.stderr, flush=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def in_turn(
    kind: str, sets: Sequence[Mapping[str, Path]], rounds: int, scratch: str
) -> dict[str, list[float]]:
    """What a worker tells, as medians: for each set one, and the sets take turns."""
    runs: list[list[dict[str, float]]] = [[] for _ in sets]
    for _ in range(rounds):
        for found, paths in zip(runs, sets, strict=True):
            what = "open" if kind == "masks" else "train"
            with tempfile.TemporaryDirectory(dir=scratch) as out:
                found.append(worker(what, str(paths[kind]), out))
    return {name: [median(each[name] for each in found) for found in runs] for name in runs[0][0]}


def many_photos(few: int, many: int, rounds: int, kinds: list[str], long: int) -> tuple[str, str]:
    """A table of few photos and of many, and one of a long run on the many."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        sets = [make_sets(Path(scratch) / str(count), count) for count in (few, many)]
        for kind in kinds:
            told = in_turn(kind, sets, rounds, scratch)
            held, peak, seconds = told["held"], told["peak"], told["seconds"]
            rows.append(
                [
                    kind,
                    *(f"{value / 1e6:.1f}" for value in peak),
                    f"{(peak[1] - peak[0]) / 1e6:+.1f}",
                    f"{(held[1] - held[0]) / 1e6:+.1f}",
                    *(f"{value:.2f}" for value in seconds),
                    f"{(seconds[1] - seconds[0]) / (many - few) * 1e6:.0f}",
                ]
            )
        flat = long_run(str(sets[1]["folder"]), scratch, long)
    header = ["photos in", f"peak MB, {few:,}", f"peak MB, {many:,}", "more at the peak"]
    header += ["more at the first step", f"CPU s, {few:,}", f"CPU s, {many:,}", "µs a photo"]
    return table(header, rows), flat


def long_run(photos: str, scratch: str, steps: int) -> str:
    """A table of resident bytes."""
    found = worker("long", photos, scratch, str(steps))
    marks = [name for name in found if name.isdecimal()]
    rows = [[f"{int(n):,}", f"{found[n] / 1e6:.2f}", found[f"files {n}"]] for n in marks]
    return table(["step", "resident MB", "open files"], rows)


def steps() -> str:
    """A table of the steps of each kit, on one core and on all."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        rng, folder = np.random.default_rng(0), Path(scratch)
        for number in range(80):
            path = folder / f"class_{number % CLASSES:02d}" / f"{number}.jpg"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(jpeg(rng, (640, 480)))
        for kit in ("last", "blocks"):
            for cores in sorted({1, len(os.sched_getaffinity(0))}):
                found = worker("step", kit, scratch, cores=cores)
                cpu = {name: found[f"{name} cpu"] for name in ("both", "step", "decode")}
                rows.append(
                    [
                        kit,
                        cores,
                        *(f"{1000 * value:.1f}" for value in cpu.values()),
                        f"{(cpu['step'] + cpu['decode']) / cpu['both']:.2f}",
                        *(f"{1000 * found[f'{name} wall']:.1f}" for name in ("both", "step")),
                        f"{found['step wall'] / found['both wall']:.2f}",
                    ]
                )
    header = ["kit", "cores", "step and decoding, CPU ms", "step", "decoding", "their sum to both"]
    header += ["step and decoding, wall ms", "step, wall ms", "ratio"]
    return table(header, rows)


def large_photos() -> str:
    """A table of what decoding takes."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, (kind, mode, options) in enumerate(LARGE):
            worker("draw", str(number), scratch)
            found = worker("large", str(number), scratch)
            named = ", ".join(f"{name} {value}" for name, value in options.items())
            measured, counted = (found[name] / 1e6 for name in ("measured", "counted"))
            rows.append([kind, mode, named, f"{measured:.1f}", f"{counted:.1f}"])
    return table(["format", "mode", "saved with", "measured MB", "counted MB"], rows)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(WORK[sys.argv[2]](*sys.argv[3:])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=2_500)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--steps", type=int, default=20_000, help="of the long run")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    width, height = LARGE_SIZE
    many, flat = many_photos(
        options.few, options.many, options.rounds, options.kinds, options.steps
    )
    write(
        "photos",
        "Photos: many of them, and large ones",
        f"{options.many:,} photos against {options.few:,}, {STEPS} steps of the bundled kit "
        "`last` in a fresh process (for masks, opening the photos alone); medians of "
        f"{options.rounds} interleaved runs. The peak is that of the whole process.\n\n"
        f"{many}\n\nA run of {options.steps:,} steps on the folder of {options.many:,}:\n\n{flat}"
        "\n\n"
        "A step of a batch with the photos that it waits for, alone, and their decoding alone; "
        "photos of 640 x 480. Wall times suffer from other programs on the machine.\n\n"
        f"{steps()}\n\n"
        f"Decoding a photo of {width} x {height} pixels for {SIZE} px, beyond what the process "
        f"takes already, and what the prediction counts for any part of it.\n\n{large_photos()}",
    )


if __name__ == "__main__":
    main()
