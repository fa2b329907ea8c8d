"""LBP-WHT: what a step of ViT-Ti keeps and computes.

    python benchmarks/bench_lbp_wht_costs.py

Bytes and FLOPs are counted by `account`, so that neither weights nor a quiet machine are needed.
"""

from __future__ import annotations

import argparse

from bench_lbp_wht import shown
from pocketune import create_network
from pocketune.accounting import account
from pocketune.methods import BiasAndLast, FullFineTune, LoRA, LowRankBackward, Method, adapt
from report import table, write

SIZE, BATCH = 224, 8
METHODS: tuple[Method, ...] = (
    FullFineTune(),
    *(FullFineTune() + LowRankBackward(*how) for how in ((8, 6), (16, 8), (16, 4))),
    LoRA(4),
    LoRA(4) + LowRankBackward(16, 8),
    LoRA(4) + LowRankBackward(16, 8, frozen=True),
    BiasAndLast(),
    BiasAndLast() + LowRankBackward(16, 8, frozen=True),
)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    network = create_network("vit_tiny", weights=None)
    rows = []
    for method in METHODS:
        report = account(adapt(network, method), batch=BATCH, size=SIZE)
        flops = [f"{x / 1e9:.1f}" for x in (report.flops.forward, report.flops.backward)]
        rows.append([shown(method), f"{report.kept_bytes / 1e6:.0f}", *flops])
    header = ("method", "kept, MB", "forward, GFLOPs", "backward, GFLOPs")
    text = f"Counted by `account` for vit_tiny, {SIZE} px, batch {BATCH}."
    write("lbp_wht_costs", "LBP-WHT: costs of a step", f"{text}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
