"""Networks of timm and methods: which adapt, and which of these compile.

    python benchmarks/bench_backbones.py [--networks NAME ...] [--methods NAME ...] [--fresh]
        [--seconds 600] [--adapt-only | --times]

Each network has random weights and four classes. It is adapted to each method, and the step is
compiled with a batch of two images of 64 pixels, or of the size that the network insists on; the
compiled step and PyTorch then train for five steps side by side, as for every kit. Each network
runs in a process of its own, for at most `--seconds`. Results are kept after each method, and a run
goes on where the one before has stopped. The script is skipped without timm.

With `--times`, a step of each kit and of eager PyTorch is measured instead, with a batch of eight
images of the network's own size, as in bench_step.py. That needs a machine which does nothing else.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_step
from report import keep, kept, table, write

if TYPE_CHECKING:
    from torch import nn

NETWORKS = (
    "mobilenetv3_small_050",
    "convnext_atto",
    "vit_tiny_patch16_224",
    "mobilenetv4_conv_small",
    "repvit_m0_9",
    "efficientnet_b0",
    "ghostnet_050",
    "fastvit_t8",
    "mobilevit_xxs",
    "deit_tiny_patch16_224",
    "levit_128s",
    "tf_efficientnet_lite0",
    "tf_efficientnetv2_b0",
    "mixnet_s",
    "mobileone_s0",
    "repvgg_a0",
    "edgenext_xx_small",
    "mobilevitv2_050",
    "convnextv2_atto",
    "densenet121",
    "inception_v3",
    "dla34",
    "hrnet_w18_small",
    "cspresnet50",
    "vgg11_bn",
    "xception41",
    "resnet18",
    "regnetx_002",
    "swin_tiny_patch4_window7_224",
    "efficientformer_l1",
    "mixer_s32_224",
    "poolformer_s12",
    "pvt_v2_b0",
    "tiny_vit_5m_224",
    "efficientvit_b0",
    "efficientvit_m0",
    "coatnet_nano_rw_224",
    "starnet_s1",
    "shvit_s1",
    "rexnet_100",
)
METHODS = {
    "blocks": {"blocks": 1},
    "last": {},
    "lora": {"rank": 2},
    "bias": {},
    "mobiletl": {"blocks": 1},
    "tinytl": {},
    "repnet": {},
    "full": {},
}
"""What is trained, and the options."""

TIMED = ("blocks", "lora", "bias", "full")
HOW = ("kit", "eager, channels-last")

RESULT = "backbones"
CLASSES, BATCH, SIZE = 4, 2, 64
KIT, ADAPTS, REFUSED, FAILED = "kit", "adapts", "no", "error"
"""The words of the table."""


def network(name: str) -> tuple[nn.Module, int]:
    """A network of timm, and the side of its images: the smaller of 64 pixels and its own."""
    import timm
    import torch

    torch.manual_seed(0)
    try:
        made = timm.create_model(name, num_classes=CLASSES, img_size=SIZE)
    except TypeError:  # it has no such option
        made = timm.create_model(name, num_classes=CLASSES)
    with torch.no_grad():
        try:
            made.eval()(torch.zeros(BATCH, 3, SIZE, SIZE))
        except (RuntimeError, AssertionError, ValueError):
            return made, made.pretrained_cfg["input_size"][-1]
    return made, SIZE


def cell(made: nn.Module, size: int, method: str, *, compiles: bool) -> dict[str, str]:
    """How far a network gets with a method, and what stops it."""
    import pocketune
    from pocketune.errors import PocketuneError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            adapted = pocketune.adapt(made, pocketune.create_method(method, **METHODS[method]))
        except PocketuneError as error:
            return {"got": REFUSED, "why": str(error)}
        if not compiles:
            return {"got": ADAPTS, "why": ""}
        try:
            with tempfile.TemporaryDirectory() as folder:
                pocketune.compile(adapted, Path(folder, "kit"), batch=BATCH, size=size)
        except PocketuneError as error:
            return {"got": ADAPTS, "why": re.sub(r"the kit /\S+/kit", "the kit", str(error))}
        except Exception as error:  # a fault of ours, which the table shows
            return {"got": FAILED, "why": f"{type(error).__name__}: {error}"}
    return {"got": KIT, "why": ""}


def try_one(name: str, methods: list[str], *, compiles: bool) -> None:
    """Fill the row of a network, as far as it is not there."""
    from pocketune.networks import anatomy

    made, size = network(name)
    known = kept(RESULT).get(name, {})
    blocks = Counter(block.kind for block in anatomy(made).blocks)
    row = {"blocks": ", ".join(f"{n} {kind}" for kind, n in blocks.items()), "size": size}
    row["cells"] = known.get("cells", {})
    for method in methods:
        before = row["cells"].get(method)
        if before is None or (compiles and before == {"got": ADAPTS, "why": ""}):
            row["cells"][method] = cell(made, size, method, compiles=compiles)
            keep(RESULT, {**kept(RESULT), name: row})
            print(name, method, row["cells"][method], flush=True)


def measure(name: str) -> list[list[object]]:
    """Rows of `bench_step.measure` for the methods of `TIMED`, as kits and in PyTorch."""
    import timm

    size = timm.get_pretrained_cfg(name).input_size[-1]
    options = argparse.Namespace(width=1.0, batch=8, size=size, rounds=7)
    configurations = [(method, how) for method in TIMED for how in HOW]
    with tempfile.TemporaryDirectory() as scratch:
        return bench_step.measure(bench_step.TIMM + name, configurations, options, Path(scratch))


def times(results: dict[str, dict[str, Any]]) -> str:
    """The table of steps, if some were measured."""
    header = ["network", *bench_step.HEADER]
    rows = [[name, *row] for name in sorted(results) for row in results[name].get("steps", [])]
    return f"\n\nSteps with a batch of 8:\n\n{table(header, rows)}" if rows else ""


def show() -> None:
    """Write the table, and the sentence of every refusal once."""
    from importlib.metadata import version

    results = kept(RESULT)
    rows, reasons = [], {}
    for name in sorted(results):
        cells = results[name]["cells"]
        words = []
        for method in METHODS:
            found = cells.get(method, {"got": "", "why": ""})
            note = ""
            if found["why"]:
                note = f" {reasons.setdefault(found['why'], len(reasons) + 1)}"
            words.append(found["got"] + note)
        rows.append([name, results[name]["blocks"], results[name]["size"], *words])
    listed = "\n".join(f"{number}. {why}" for why, number in reasons.items())
    found = [cell["got"] for row in results.values() for cell in row["cells"].values()]
    note = (
        f"timm {version('timm')}. Of {len(found)} pairs, {found.count(KIT)} compile to a kit that "
        f"trains as PyTorch does for five steps (`{KIT}`), {found.count(ADAPTS)} adapt without a "
        f"kit (`{ADAPTS}`), {found.count(REFUSED)} are refused by the method (`{REFUSED}`), and "
        f"{found.count(FAILED)} end in another error (`{FAILED}`). "
        "The number behind a word is that of the reason below; without one, compiling was not "
        "tried. An empty cell was not tried at all."
    )
    header = ["network", "its blocks", "px", *METHODS]
    write(
        RESULT,
        "Networks and methods",
        f"{note}\n\n{table(header, rows)}\n\n{listed}{times(results)}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seconds", type=float, default=600, help="for each network")
    parser.add_argument("--adapt-only", action="store_true", help="compile nothing")
    parser.add_argument("--times", action="store_true", help="measure steps instead")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if find_spec("timm") is None:
        print("skipped: timm is not installed (pip install timm)")
        return
    if options.one:
        try_one(options.one, options.methods, compiles=not options.adapt_only)
        return
    if options.fresh:
        keep(RESULT, {})
    if options.times:
        for name in options.networks:
            steps = measure(name)
            keep(RESULT, {**kept(RESULT), name: {**kept(RESULT)[name], "steps": steps}})
        show()
        return
    switch = ["--adapt-only"] if options.adapt_only else []
    for name in options.networks:
        command = [sys.executable, __file__, "--one", name, "--methods", *options.methods, *switch]
        try:
            subprocess.run(command, check=False, timeout=options.seconds)
        except subprocess.TimeoutExpired:
            print(name, f"has taken more than {options.seconds:.0f} seconds", flush=True)
    show()


if __name__ == "__main__":
    main()
