"""MobileTL's training step against full fine-tuning, norms and biases (its table 6).

    python benchmarks/bench_mobiletl_step.py [--rounds 100] [--size 224] [--batch 8]

MobileNetV3-Small and MobileNetV2 1.0, 10 classes, random images: eager PyTorch in its two memory
formats, and compiled kits, MobileTL's with its frozen part in 8 bits. Measured as in
bench_step.py: one process for each configuration, a step each in turn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench_step import HEADER, arguments, measure
from report import table, write

NETWORKS = {"mobilenet_v3_small": "MobileNetV3-Small", "mobilenet_v2": "MobileNetV2 1.0"}
EAGER = ("eager, NCHW", "eager, channels-last")
CONFIGURATIONS = [
    *((method, how) for method in ("full", "norm", "bias", "blocks") for how in EAGER),
    *(("mobiletl", how) for how in EAGER),
    *((method, "kit") for method in ("full", "norm", "bias", "mobiletl")),
]


def main() -> None:
    options = arguments(__doc__, rounds=100)
    for network, name in NETWORKS.items():
        with tempfile.TemporaryDirectory() as scratch:
            rows = measure(network, CONFIGURATIONS, options, Path(scratch))
        title = f"A training step of {name}, batch {options.batch}, {options.size} px"
        write(f"mobiletl_step_{network}", title, table(HEADER, rows))


if __name__ == "__main__":
    main()
