"""LBP-WHT on a small vision transformer: accuracy, what is kept, and FLOPs of the backward pass.

    python benchmarks/bench_lbp_wht.py [--data FOLDER] [--epochs 8] [--photos 400] [--seeds 1]

A small transformer is transferred from five classes of CIFAR-10 to the other five (see
`cifar_transformer`), with Adam, in PyTorch, at one rate for whole networks and another for parts of
them, neither of them searched. Scores are those of the last step. The script is skipped if the data
are missing.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

from cifar_transformer import BATCH, SIDE, TESTED, Data, accuracy, pretrained, train, transfer
from data import parse
from pocketune.accounting import account
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    LoRA,
    LowRankBackward,
    Method,
    adapt,
)
from report import spread, table, write

METHODS: tuple[tuple[Method, float], ...] = (
    (LastLayer(), 3e-3),
    (BiasAndLast(), 3e-3),
    (LoRA(4), 3e-3),
    (LoRA(4) + LowRankBackward(8, 6, frozen=True), 3e-3),
    (FullFineTune(), 1e-3),
    *((FullFineTune() + LowRankBackward(8, rank), 1e-3) for rank in (1, 3, 6)),
)
"""Methods and their rates."""


def row(
    method: Method, rate: float, start: nn.Module, options: argparse.Namespace, data: Data
) -> list[str]:
    """Accuracy over the seeds, and the costs of a step."""
    adapted = adapt(start, method)
    report = account(adapted, batch=BATCH, size=SIDE)
    scores = []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        network = adapt(start, method)
        train(network, data[0], options.epochs, rate)
        scores.append(accuracy(network, data[1]))
    print(method, scores, flush=True)
    return [
        str(method).replace(", frozen=False", "").replace(", train_down=True", ""),
        spread(scores),
        f"{rate:g}",
        f"{report.kept_bytes / 1e6:.1f}",
        f"{report.flops.backward / 1e9:.2f}",
    ]


def main() -> None:
    """Pretrain, transfer by every method, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8, help="of the transfer")
    parser.add_argument("--pretraining", type=int, default=8, help="epochs of the pretraining")
    parser.add_argument("--photos", type=int, default=400, help="of a class to pretrain with")
    parser.add_argument("--transfer", type=int, default=100, help="of a class to transfer with")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each method")
    options = parse(parser)
    network, reached = pretrained(options.data, options.photos, options.pretraining)
    data = transfer(options.data, options.transfer)
    rows = [row(*method, network, options, data) for method in METHODS]
    header = ("method", "top-1, %", "rate", "kept, MB", "backward, GFLOPs")
    text = (
        f"Pretrained on {options.photos} photos of each of the first five classes for "
        f"{options.pretraining} epochs, {reached:.1f} % on their test photos; transferred to "
        f"{options.transfer} photos of each of the others for {options.epochs} epochs, batch "
        f"{BATCH}; {TESTED} test photos of each class."
    )
    write("lbp_wht", "LBP-WHT on a small transformer", f"{text}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
