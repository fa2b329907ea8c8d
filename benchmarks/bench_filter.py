"""Backward time and kept memory of single convolutions, filtered against PyTorch's own.

    python benchmarks/bench_filter.py [--rounds 20] [--calls 6] [--threads 2] [--device cpu]

Channels last; the variants take turns in one process, with several calls a turn; medians. The first
call of a turn finds the caches full of another variant's maps, and is reported separately. `full`
is the layer's whole backward pass, from the gradient of its output to that of its input and kernel;
`chained` is that of a layer between filtered ones, which takes and returns gradients in patches.
The allocator keeps freed memory. Takes a minute or three. With `--device cuda` the results are
written beside those of the processor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from fresh import keep_memory
from pocketune.filtering import FilteredConv2d, PooledMap
from pocketune.filtering.patches import Patches
from report import table, write

CASES = {  # batch, in, out, height, width, kernel, groups
    "dense 3x3, 64 to 64": (8, 64, 64, 56, 56, 3, 1),
    "dense 3x3, 128 to 128": (8, 128, 128, 28, 28, 3, 1),
    "dense 3x3, 192 to 64": (1, 192, 64, 120, 160, 3, 1),
    "1x1, 160 to 960": (8, 160, 960, 7, 7, 1, 1),
    "1x1, 24 to 144": (8, 24, 144, 56, 56, 1, 1),
    "depthwise 3x3, 960": (8, 960, 960, 7, 7, 3, 960),
    "depthwise 3x3, 576": (8, 576, 576, 14, 14, 3, 576),
    "depthwise 3x3, 144": (8, 144, 144, 56, 56, 3, 144),
}
PATCHES = (2, 4, 7)


def backward(conv: nn.Module, x: Tensor, g: Tensor) -> Callable[[], object]:
    """The backward pass alone, as often as it is called."""
    y = conv(x)
    wanted = [x, conv.weight]
    return lambda: torch.autograd.grad(y, wanted, g, retain_graph=True)


def chained(conv: FilteredConv2d, x: Tensor) -> Callable[[], object]:
    """The same between two filtered layers, behind a ReLU: from patches to patches."""
    count = (-(-x.shape[2] // conv.patch), -(-x.shape[3] // conv.patch))
    patches = Patches((conv.patch, conv.patch), (0, 0), count)
    carrier = channels_last(x.new_zeros(*x.shape[:2], *count)).requires_grad_()
    before = PooledMap(x.detach(), carrier, patches).activated(nn.ReLU())
    conv.passes_pooled = True
    y = conv(before).carrier
    g = channels_last(torch.randn_like(y))
    return lambda: torch.autograd.grad(y, [carrier, conv.weight], g, retain_graph=True)


def milliseconds(run: Callable[[], object]) -> float:
    synchronize()
    start = time.perf_counter()
    run()
    synchronize()
    return 1000 * (time.perf_counter() - start)


def synchronize() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def measure(case: tuple[int, ...], rounds: int, calls: int, device: str) -> list[list[str]]:
    batch, inputs, outputs, height, width, kernel, groups = case
    options = {"padding": kernel // 2, "groups": groups, "bias": False}
    exact = nn.Conv2d(inputs, outputs, kernel, **options, device=device)
    exact.to(memory_format=torch.channels_last)
    x = torch.randn(batch, inputs, height, width, device=device)
    x = channels_last(x).requires_grad_()
    g = channels_last(torch.randn(batch, outputs, height, width, device=device))
    variants = {("exact", 1): backward(exact, x, g)}
    for patch in PATCHES:
        conv = FilteredConv2d.from_convolution(exact, patch=patch)
        variants["full", patch] = backward(conv, x, g)
        variants["chained", patch] = chained(FilteredConv2d.from_convolution(exact, patch=patch), x)
    times: dict[tuple[str, int], list[list[float]]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            times[name].append([milliseconds(run) for _ in range(calls)])
    first = {name: median(turn[0] for turn in turns) for name, turns in times.items()}
    took = {name: median(ms for turn in turns for ms in turn[1:]) for name, turns in times.items()}
    rows = []
    for patch in PATCHES:
        names = [("full", patch), ("chained", patch)]
        ratios = [ms["exact", 1] / ms[name] for ms in (took, first) for name in names]
        kept = -(-height // patch) * -(-width // patch) / (height * width)
        rows.append(
            [
                str(patch),
                f"{took['exact', 1]:.2f}",
                f"{took['full', patch]:.2f}",
                f"{took['chained', patch]:.2f}",
                *(f"{ratio:.1f}" for ratio in ratios),
                f"{kept:.1%}",
            ]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=6, help="of each turn, at least 2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.calls < 2:
        parser.error("--calls must be at least 2: the first call of a turn is reported separately")
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = []
    for name, case in CASES.items():
        batch, _, _, height, width, *_ = case
        shape = f"{batch} x {height} x {width}"
        measured = measure(case, options.rounds, options.calls, options.device)
        rows += [[name, shape, *row] for row in measured]
        print(*rows[-len(PATCHES) :], sep="\n", flush=True)
    header = [
        "convolution",
        "batch and map",
        "patch",
        "exact, ms",
        "full, ms",
        "chained, ms",
        "full, times as fast",
        "chained, times as fast",
        "full, first call",
        "chained, first call",
        "kept of the input",
    ]
    title = "Backward pass of a convolution with filtered gradients"
    if options.device == "cpu":
        write("filter", title, f"{options.threads} threads.\n\n{table(header, rows)}")
    else:
        write("filter_cuda", title, f"{torch.cuda.get_device_name()}.\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
