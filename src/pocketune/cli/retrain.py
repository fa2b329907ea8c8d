"""``pocketune retrain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pocketune.cli.author import author_half


def retrain(
    network: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What [bold]pocketune prune[/bold] has written."),
    ],
    photos: Annotated[
        str,
        typer.Option(metavar="PHOTOS", help="Labelled photos, as of train.", show_default=False),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The .safetensors file to write; the same command goes on after a stop.",
            show_default=False,
        ),
    ],
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|imagenet",
            help="Weights of the unpruned network, whose predictions are followed as well; or "
            "alone, where the photos have other classes.",
            show_default="none",
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(metavar="N", help="Passes over the photos.")] = 10,
    lr: Annotated[float, typer.Option(metavar="RATE", help="Highest learning rate.")] = 0.01,
    batch: Annotated[int, typer.Option(metavar="N", help="Images of a step, a device.")] = 32,
    size: Annotated[int, typer.Option(metavar="PIXELS", help="Side of the images.")] = 160,
    seed: Annotated[int, typer.Option(metavar="N", help="Of order and crops.")] = 0,
    accelerator: Annotated[
        str, typer.Option(metavar="NAME", help="cpu, cuda or auto, as Lightning Fabric's.")
    ] = "auto",
    devices: Annotated[int, typer.Option(metavar="N", help="How many of them.")] = 1,
) -> None:
    """Train all of a pruned network again, on one processor or several GPUs."""
    from pocketune.data import load_splits

    dataset = load_splits(photos).train
    with author_half("retraining"):
        from pocketune.networks import create_network, load_network
        from pocketune.pruning.retraining import Recipe
        from pocketune.pruning.retraining import retrain as retrain_network

    pruned = load_network(network)
    unpruned = None
    if teacher is not None:
        options = {**pruned.config.to_dict(), "hidden": None}  # type: ignore[operator, union-attr]
        unpruned = create_network(
            **options,
            weights=teacher,
            normalization=pruned.normalization,  # type: ignore[arg-type]
        )
    recipe = Recipe(epochs=epochs, lr=lr, batch=batch, size=size, seed=seed)
    losses = retrain_network(
        pruned,
        dataset,
        out,
        recipe=recipe,
        teacher=unpruned,
        accelerator=accelerator,
        devices=devices,
    )
    if losses:
        print(f"mean loss of the last epoch {losses[-1]:.3f}")
    print(f"saved in {out}")
