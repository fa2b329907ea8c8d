"""``pocketune retrain``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pocketune.cli.author import author_half
from pocketune.cli.expand import expand
from pocketune.cli.options import Followed, NetworkOptions
from pocketune.cli.usage import refuse_beside_file


@expand
def retrain(
    context: typer.Context,
    network: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NETWORK",
            help="Output of [bold]pocketune prune[/bold]; or one of [bold]pocketune "
            "networks[/bold], with --weights to start from.",
        ),
    ],
    photos: Annotated[
        str,
        typer.Option(metavar="PHOTOS", help="Labeled photos, as for train.", show_default=False),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Output .safetensors file. Repeat the same command to resume after a stop.",
            show_default=False,
        ),
    ],
    *,
    network_options: NetworkOptions,
    lite_residual: Annotated[
        bool,
        typer.Option(
            "--lite-residual",
            help="Add TinyTL's lite residual modules first; [bold]train --method tinytl[/bold] "
            "then starts from them.",
        ),
    ] = False,
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|imagenet",
            help="Weights of the unpruned network to distil from, in addition to the labels, or "
            "instead of them if the photos have other classes.",
            show_default="none",
        ),
    ] = None,
    follow: Annotated[
        Followed,
        typer.Option(
            help="What to distil from the teacher: its predictions, or its block outputs, for "
            "which a few hundred photos of any kind are enough.",
        ),
    ] = "predictions",
    epochs: Annotated[int, typer.Option(metavar="N", help="Number of epochs.")] = 10,
    lr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Peak learning rate.",
            show_default="0.01; 0.05 with --follow blocks",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="Batch size per device.")] = 32,
    size: Annotated[int, typer.Option(metavar="PIXELS", help="Image height and width.")] = 160,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed.")] = 0,
    accelerator: Annotated[
        str,
        typer.Option(metavar="NAME", help="Accelerator for Lightning Fabric: cpu, cuda or auto."),
    ] = "auto",
    devices: Annotated[int, typer.Option(metavar="N", min=1, help="Number of devices.")] = 1,
) -> None:
    """Retrain a whole network, on the CPU or on several GPUs.

    Recovers accuracy after pruning; or pretrains TinyTL's lite residual modules, on the data that
    the network was pretrained on. The output file can be passed as --weights to the other commands.
    """
    from pocketune.data import load_splits

    dataset = load_splits(photos).train
    with author_half("retraining"):
        from pocketune.methods import TinyTL
        from pocketune.pruning import Recipe
        from pocketune.pruning import retrain as retrain_network
        from pocketune.pruning.objectives import load_teacher
        from pocketune.weights import create_network, load_network
        from pocketune.weights.saved import recorded_classes

    if Path(network).is_file():
        refuse_beside_file(context, network)
        student = load_network(network)
    else:
        weights = network_options.weights
        classes = recorded_classes(weights) if teacher else len(dataset.classes)
        student = create_network(network, classes=classes, **asdict(network_options))
    whole = None if teacher is None else load_teacher(teacher, student)
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
