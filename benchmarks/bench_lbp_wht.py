"""LBP-WHT on small vision transformers: accuracy, what is kept, and FLOPs of the backward pass.

    python benchmarks/bench_lbp_wht.py [--data FOLDER] [--networks small vit_tiny convnext_atto]
        [--epochs 8] [--photos 400] [--seeds 1]

Each network is pretrained on five classes of CIFAR-10 and transferred to the other five (see
`cifar_transformer`), with Adam, in PyTorch, at one rate for whole networks and another for parts of
them, neither of them searched. `small` is the transformer of that file, with images of 32 pixels;
the others are those of the registry from random weights, with images of 64 pixels. Scores are those
of the last step. The script is skipped if the data are missing.

Options set the size of the experiment. A minute of one core is enough to see it run:

    python benchmarks/bench_lbp_wht.py --networks vit_tiny --photos 20 --pretraining 1 --transfer 10
        --epochs 1
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from cifar_transformer import (
    BATCH,
    SIDE,
    TESTED,
    Data,
    Transformer,
    accuracy,
    pretrained,
    train,
    transfer,
)
from data import parse
from pocketune import create_network
from pocketune.accounting import account
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    LoRA,
    LowRankBackward,
    Method,
    TopBlocks,
    adapt,
)
from report import spread, table, write

WHOLE, PARTS = 1e-3, 3e-3
"""Rates."""


@dataclass(frozen=True)
class Chosen:
    """A network, and the patches and ranks that fit its grids.

    Attributes:
        make: Makes it for a number of classes.
        side: Of its images, in pixels.
        order: Side of a patch in tokens.
        ranks: Of the backward passes that are compared.
    """

    make: Callable[[int], nn.Module]
    side: int
    order: int
    ranks: tuple[int, ...]

    def methods(self) -> list[tuple[Method, float]]:
        """Methods and their rates."""
        ranks = [LowRankBackward(self.order, rank) for rank in self.ranks]
        frozen = LowRankBackward(self.order, self.ranks[-1], frozen=True)
        parts: list[Method] = [LastLayer(), BiasAndLast(), LoRA(4), LoRA(4) + frozen]
        parts += [TopBlocks(2), *(TopBlocks(2) + rank for rank in ranks)]
        whole: list[Method] = [FullFineTune(), *(FullFineTune() + rank for rank in ranks)]
        return [*((m, PARTS) for m in parts), *((m, WHOLE) for m in whole)]


def registered(name: str, classes: int) -> nn.Module:
    """A network of the registry with random weights."""
    return create_network(name, weights=None, classes=classes)


NETWORKS = {
    "small": Chosen(Transformer, SIDE, 8, (1, 3, 6)),
    "vit_tiny": Chosen(partial(registered, "vit_tiny"), 64, 4, (1, 2, 3)),
    "convnext_atto": Chosen(partial(registered, "convnext_atto"), 64, 4, (1, 2, 3)),
}


def row(
    method: Method,
    rate: float,
    start: nn.Module,
    options: argparse.Namespace,
    data: Data,
    side: int = SIDE,
) -> list[str]:
    """Accuracy over the seeds, and the costs of a step."""
    adapted = adapt(start, method)
    report = account(adapted, batch=BATCH, size=side)
    scores = []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        network = adapt(start, method)
        train(network, data[0], options.epochs, rate)
        scores.append(accuracy(network, data[1]))
    print(method, scores, flush=True)
    return [
        shown(method),
        spread(scores),
        f"{rate:g}",
        f"{report.kept_bytes / 1e6:.1f}",
        f"{report.flops.backward / 1e9:.2f}",
    ]


def shown(method: Method) -> str:
    """The method, without what it has by default."""
    return repr(method).replace(", frozen=False", "").replace(", train_down=True", "")


def transfers(name: str, options: argparse.Namespace) -> str:
    """Pretrain a network and transfer it by every method: a section with the table."""
    made = NETWORKS[name]
    network, reached = pretrained(
        options.data, options.photos, options.pretraining, made.make, made.side
    )
    data = transfer(options.data, options.transfer, options.tested, made.side)
    rows = [row(*method, network, options, data, made.side) for method in made.methods()]
    header = ("method", "top-1, %", "rate", "kept, MB", "backward, GFLOPs")
    text = (
        f"{made.side} px. Pretrained on {options.photos} photos of each of the first five classes "
        f"for {options.pretraining} epochs, {reached:.1f} % on their test photos; transferred to "
        f"{options.transfer} photos of each of the others for {options.epochs} epochs, batch "
        f"{BATCH}; {options.seeds} seeds, {options.tested} test photos of each class."
    )
    return f"## {name}\n\n{text}\n\n{table(header, rows)}"


def main() -> None:
    """Pretrain, transfer by every method, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["small"])
    parser.add_argument("--epochs", type=int, default=8, help="of the transfer")
    parser.add_argument("--pretraining", type=int, default=8, help="epochs of the pretraining")
    parser.add_argument("--photos", type=int, default=400, help="of a class to pretrain with")
    parser.add_argument("--transfer", type=int, default=100, help="of a class to transfer with")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each method")
    parser.add_argument("--tested", type=int, default=TESTED, help="test photos of a class")
    options = parse(parser)
    sections = [transfers(name, options) for name in options.networks]
    write("lbp_wht", "LBP-WHT on small networks", "\n\n".join(sections))


if __name__ == "__main__":
    main()
