"""Networks of timm and methods: which adapt, and which of these compile.

    python benchmarks/bench_backbones.py [--networks NAME ...] [--methods NAME ...] [--fresh]
        [--seconds 600] [--adapt-only | --times]

Each network has random weights and four classes. It is adapted to each method, and the step is
compiled with a batch of two images of 64 pixels, or of the size that the network insists on; the
compiled step and PyTorch then train for five steps side by side, as for every kit. Each network
runs in a process of its own, for at most `--seconds`. Results are kept after each method, and a run
goes on where the one before has stopped; `--fresh` forgets which of these pairs compile, but never
the steps below. The script is skipped without timm.

With `--times`, a step of each kit and of eager PyTorch is measured instead, with a batch of eight
images of 224 pixels, or of the size that the network insists on, as in bench_step.py. That needs a
core which does nothing else:

    taskset --cpu-list 0 python benchmarks/bench_backbones.py --times
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
from report import date_and_commit, keep, kept, table, write

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

TIMED = ("blocks", "bias", "full")
LAYOUT = "eager, channels-last"
NCHW = dict.fromkeys(("fastvit_t8", "poolformer_s12", "repvgg_a0"), "eager, NCHW")
"""Networks in whose backward pass PyTorch 2.13 crashes with channels last."""
ROUNDS = 5
TIMED_BATCH, TIMED_SIZE = 8, 224
"""Of the steps that are measured."""

RESULT = "backbones"
CLASSES, BATCH, SIZE = 4, 2, 64
KIT, ADAPTS, REFUSED, FAILED = "kit", "adapts", "no", "error"
"""The words of the table."""


def network(name: str, size: int = SIZE) -> tuple[nn.Module, int]:
    """A network of timm, and the side of its images: `size`, or its own if it insists on that."""
    import timm
    import torch

    torch.manual_seed(0)
    try:
        made = timm.create_model(name, num_classes=CLASSES, img_size=size)
    except TypeError:  # it has no such option
        made = timm.create_model(name, num_classes=CLASSES)
    with torch.no_grad():
        try:
            made.eval()(torch.zeros(BATCH, 3, size, size))
        except (RuntimeError, AssertionError, ValueError):
            return made, made.pretrained_cfg["input_size"][-1]
    return made, size


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


def forget_pairs(names: list[str], methods: list[str]) -> None:
    """Forget how far these networks get with these methods; measured steps stay."""
    results = kept(RESULT)
    for name in names:
        cells = results.get(name, {}).get("cells", {})
        for method in methods:
            cells.pop(method, None)
    keep(RESULT, results)


def try_one(name: str, methods: list[str], *, compiles: bool) -> None:
    """Fill the row of a network, as far as it is not there."""
    from pocketune.networks import anatomy

    made, size = network(name)
    known = kept(RESULT).get(name, {})
    blocks = Counter(block.kind for block in anatomy(made).blocks)
    row = {**known, "blocks": ", ".join(f"{n} {kind}" for kind, n in blocks.items()), "size": size}
    row.setdefault("cells", {})
    for method in methods:
        before = row["cells"].get(method)
        if before is None or (compiles and before == {"got": ADAPTS, "why": ""}):
            row["cells"][method] = cell(made, size, method, compiles=compiles)
            keep(RESULT, {**kept(RESULT), name: row})
            print(name, method, row["cells"][method], flush=True)


def measure(name: str) -> None:
    """Keep the rows of `bench_step.take_turns` for the methods of `TIMED` that compile."""
    from pocketune.device.machine import available_cores
    from pocketune.errors import PocketuneError
    from unchecked import skip_check

    skip_check()
    size = network(name, TIMED_SIZE)[1]
    options = argparse.Namespace(width=1.0, batch=TIMED_BATCH, size=size, rounds=ROUNDS)
    timm_name = bench_step.TIMM + name
    kits = {}
    with tempfile.TemporaryDirectory() as scratch:
        for method in TIMED:
            kit = Path(scratch, method)
            try:
                made = bench_step.adapted(timm_name, method, options.width)
                bench_step.build_kit(made, method, options.batch, size, kit)
            except PocketuneError as error:
                print(name, method, error, flush=True)
            else:
                kits[method] = kit
        hows = ("kit", NCHW.get(name, LAYOUT))
        configurations = [(method, how) for method in kits for how in hows]
        steps = bench_step.take_turns(timm_name, configurations, options, kits)
    for step in steps:
        print(name, *step, flush=True)
    row = {**kept(RESULT)[name], "steps": steps, "timed_size": size, "threads": available_cores()}
    row["measured"] = date_and_commit()
    keep(RESULT, {**kept(RESULT), name: row})


def times(results: dict[str, dict[str, Any]]) -> str:
    """The table of steps, if some were measured: a row for each network and method."""
    rows = []
    for name in sorted(results):
        steps = results[name].get("steps", [])
        for (method, _, *kit), (_, _, *eager) in zip(steps[::2], steps[1::2], strict=True):
            ratios = f"{int(eager[0]) / int(kit[0]):.1f}", f"{int(eager[-1]) / int(kit[-1]):.1f}"
            how = results[name]["timed_size"], results[name]["threads"]
            figures = kit[0], eager[0], ratios[0], kit[-1], eager[-1], ratios[1]
            rows.append([name, *how, method, *figures, results[name]["measured"]])
    if not rows:
        return ""
    columns = (
        "network, px, threads, method, kit ms, eager ms, ratio, kit MB, eager MB, ratio, measured"
    )
    note = (
        f"Steps with a batch of {TIMED_BATCH}, Adam included: milliseconds and the "
        "peak of a process that does nothing else, of a kit and of eager PyTorch, channels-last "
        f"(NCHW for {', '.join(NCHW)}, where PyTorch crashes otherwise). "
        "`blocks` are three. Ratios are PyTorch's figure over the kit's. The last column has the "
        "date and the commit of the measurement, which may be older than the table above."
    )
    return f"\n\n## Steps\n\n{note}\n\n{table(columns.split(', '), rows)}"


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
    parser.add_argument("--fresh", action="store_true", help="forget earlier pairs, not steps")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if find_spec("timm") is None:
        print("skipped: timm is not installed (pip install timm)")
        return
    if options.one and options.times:
        measure(options.one)
        return
    if options.one:
        try_one(options.one, options.methods, compiles=not options.adapt_only)
        return
    if options.fresh:
        forget_pairs(options.networks, options.methods)
    switch = [
        f"--{word}" for word in ("adapt-only", "times") if getattr(options, word.replace("-", "_"))
    ]
    for name in options.networks:
        command = [sys.executable, __file__, "--one", name, "--methods", *options.methods, *switch]
        try:
            subprocess.run(command, check=False, timeout=options.seconds)
        except subprocess.TimeoutExpired:
            print(name, f"has taken more than {options.seconds:.0f} seconds", flush=True)
    show()


if __name__ == "__main__":
    main()
