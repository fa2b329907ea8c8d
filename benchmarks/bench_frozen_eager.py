"""The frozen part in eager PyTorch: float32, kernels of int8, and integers throughout.

    python benchmarks/bench_frozen_eager.py [--data FOLDER] [--batch 8] [--rounds 20] [--threads 1]

MobileNetV2 1.0 below its top three blocks, pretrained, on Flowers-12. The variants take turns in
one process; times are the fastest of all rounds. Ranges are calibrated on other images than those
that the error of the features is measured on.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import pocketune
from data import parse
from pocketune.data import Loader, load_splits
from pocketune.networks import normalize
from pretrained import weights_file
from report import table, write

CALIBRATION = 32


class Done(Exception):  # noqa: N818 - it is no error
    """Carries the features out of a network that need not run to its end."""


def frozen_part(network: nn.Module, end: str, x: Tensor) -> Tensor:
    """What comes in at module `end`."""

    def stop(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        raise Done(inputs[0])

    hook = network.get_submodule(end).register_forward_pre_hook(stop)
    try:
        network(x)
    except Done as done:
        features: Tensor = done.args[0]
        return features
    finally:
        hook.remove()
    raise AssertionError(f"the network has run without {end}")


def images(data: Path, network: nn.Module, size: int, count: int) -> Tensor:
    """Normalized photos, spread over the classes."""
    photos = load_splits(data / "classification" / "oxford_flowers_12cls_224.zip").train
    chosen = photos.subset(list(range(0, len(photos), len(photos) // count))[:count])
    (batch,) = Loader(chosen, size=size, batch=count, train=False).epoch(0)
    return normalize(network, batch.images).contiguous()


@torch.no_grad()
def measure(data: Path, size: int, batch: int, rounds: int) -> list[list[str]]:
    weights = weights_file(data, "mbv2-w1.0")
    network = pocketune.create_network("mobilenet_v2", weights=weights, padding="same", classes=12)
    photos = images(data, network, size, CALIBRATION + batch)
    fitted, x = photos[:CALIBRATION].split(8), photos[CALIBRATION:]
    pocketune.restore_batch_norm(network, fitted)
    method = pocketune.MobileTL(blocks=3)
    exact, rounded = (pocketune.adapt(network, method, frozen_bits=bits).eval() for bits in (32, 8))
    last = torch.channels_last
    variants = {
        "float32": (exact, x),
        "float32, channels last": (
            copy.deepcopy(exact).to(memory_format=last),
            x.contiguous(memory_format=last),
        ),
        "int8 kernels, dequantized": (rounded, x),
        "integers": (pocketune.calibrate(rounded, fitted), x),
    }
    end = pocketune.anatomy(network).blocks[-3].name
    features = {name: frozen_part(net, end, x) for name, (net, x) in variants.items()}
    fastest = dict.fromkeys(variants, float("inf"))
    for _ in range(rounds):
        for name, (net, x) in variants.items():
            start = time.perf_counter()
            frozen_part(net, end, x)
            fastest[name] = min(fastest[name], (time.perf_counter() - start) * 1e3)
    truth = features["float32"]
    return [
        [
            name,
            f"{milliseconds:.1f}",
            f"{fastest['float32'] / milliseconds:.2f}",
            f"{float((features[name] - truth).norm() / truth.norm()):.1%}",
        ]
        for name, milliseconds in fastest.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parse(parser)
    torch.set_num_threads(options.threads)
    rows = measure(options.data, options.size, options.batch, options.rounds)
    header = ["frozen part", "ms a batch", "times as fast", "features off by"]
    title = (
        f"The frozen part of MobileNetV2 1.0 in eager PyTorch, {options.size} px, batch "
        f"{options.batch}, {options.threads} thread(s)"
    )
    write("frozen_eager", title, table(header, rows))


if __name__ == "__main__":
    main()
