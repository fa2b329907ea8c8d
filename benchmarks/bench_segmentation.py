"""A training step of a network that classifies pixels: a compiled kit against eager PyTorch.

    python benchmarks/bench_segmentation.py [--rounds 5] [--size 256] [--batch 4]

DeepLabV3 over MobileNetV2 0.35 and 1.0, 10 classes, random images and masks. Measured as in
bench_step.py: one process for each configuration, a step each in turn, on one core. The loss is
taken at every pixel, of logits that are resized within the step. `decode head` trains it and
nothing below, `1 block` the last block too; the five layers filtered are its pyramid and the
convolution after it, with docs/gradient-filtering.md's patches.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bench_step import HEADER, arguments, measure
from report import table, write

WIDTHS = (0.35, 1.0)
METHODS = ("last", "decode head", "1 block", "2 blocks", "5 layers, filtered", "full")
STEPS = ("kit", "eager, NCHW", "eager, channels-last")
CONFIGURATIONS = [(method, how) for method in METHODS for how in STEPS]


def main() -> None:
    options = arguments(__doc__, rounds=5, batch=4, size=256)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    parts = []
    for options.width in WIDTHS:
        with tempfile.TemporaryDirectory() as scratch:
            rows = measure("deeplabv3", CONFIGURATIONS, options, Path(scratch))
        parts.append(f"MobileNetV2 {options.width}:\n\n{table(HEADER, rows)}")
    title = f"A training step of DeepLabV3, batch {options.batch}, {options.size} px, one core"
    write("segmentation", title, "\n\n".join(parts))


if __name__ == "__main__":
    main()
