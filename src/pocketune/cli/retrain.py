"""``pocketune retrain``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pocketune.cli.author import author_half
from pocketune.cli.expand import expand
from pocketune.cli.options import Followed, NetworkOptions
from pocketune.cli.usage import refuse_beside_file

if TYPE_CHECKING:
    from torch import nn


TEACHES = 1000
"""Classes of a network that begins from published weights and follows a teacher: ImageNet's."""


@expand
def retrain(
    context: typer.Context,
    network: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NETWORK",
            help="What [bold]pocketune prune[/bold] has written; or one of [bold]pocketune "
            "networks[/bold], with --weights to begin from.",
        ),
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
    *,
    network_options: NetworkOptions,
    lite_residual: Annotated[
        bool,
        typer.Option(
            "--lite-residual",
            help="Put TinyTL's lite residual modules beside the blocks first; [bold]train --method "
            "tinytl[/bold] then starts from them.",
        ),
    ] = False,
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|imagenet",
            help="Weights of the whole network, which is followed beside the photos' labels; or "
            "alone, where they have other classes.",
            show_default="none",
        ),
    ] = None,
    follow: Annotated[
        Followed,
        typer.Option(
            help="What of the teacher: its predictions; or, after pruning, the maps behind its "
            "blocks, for which a few hundred photos of any kind are enough.",
        ),
    ] = "predictions",
    epochs: Annotated[int, typer.Option(metavar="N", help="Passes over the photos.")] = 10,
    lr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Highest learning rate.",
            show_default="0.01; 0.05 to follow blocks",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="Images of a step, a device.")] = 32,
    size: Annotated[int, typer.Option(metavar="PIXELS", help="Side of the images.")] = 160,
    seed: Annotated[int, typer.Option(metavar="N", help="Of order and crops.")] = 0,
    accelerator: Annotated[
        str, typer.Option(metavar="NAME", help="cpu, cuda or auto, as Lightning Fabric's.")
    ] = "auto",
    devices: Annotated[int, typer.Option(metavar="N", min=1, help="How many of them.")] = 1,
) -> None:
    """Train a network again, on one processor or several GPUs.

    After pruning, to win back what it has cost; or with TinyTL's lite residual modules in place,
    on the data that the network was pretrained on. The file that is written serves as --weights of
    every other command.
    """
    from pocketune.data import load_splits

    dataset = load_splits(photos).train
    with author_half("retraining"):
        from pocketune.methods import TinyTL
        from pocketune.networks import create_network, load_network
        from pocketune.networks.recorded import recorded_classes
        from pocketune.pruning.retraining import Recipe
        from pocketune.pruning.retraining import retrain as retrain_network

    student: nn.Module
    if Path(network).is_file():
        refuse_beside_file(context, network)
        student = load_network(network)
    else:
        weights = network_options.weights
        student = create_network(
            network,
            classes=(recorded_classes(weights) or TEACHES) if teacher else len(dataset.classes),
            **asdict(network_options),
        )
    whole = None
    if teacher is not None:
        options = student.config.to_dict()  # type: ignore[operator, union-attr]
        for changed in ("hidden", "branches"):
            options.pop(changed, None)
        options["classes"] = recorded_classes(teacher) or TEACHES
        whole = create_network(
            **options,
            weights=teacher,
            normalization=student.normalization,  # type: ignore[arg-type]
        )
    if lite_residual:
        student = TinyTL().insert_modules(student)
    losses = retrain_network(
        student,
        dataset,
        out,
        recipe=Recipe(epochs=epochs, lr=lr, batch=batch, size=size, follow=follow, seed=seed),
        teacher=whole,
        accelerator=accelerator,
        devices=devices,
    )
    if losses:
        print(f"mean loss of the last epoch {losses[-1]:.3f}")
    print(f"saved in {out}")
