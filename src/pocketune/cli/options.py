"""Arguments and options that several commands have."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

KIT_PANEL = "Make a kit from a network (needs PyTorch)"


class Padding(str, Enum):
    """How strided convolutions pad."""

    symmetric = "symmetric"
    same = "same"


Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Folder of a run; or a kit, a folder or .zip, or the name of a bundled one.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Width = Annotated[
    float, typer.Option(help="Multiplier of every layer's channels.", rich_help_panel=KIT_PANEL)
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|imagenet",
        help="Pretrained weights: a .safetensors, .pth or 8-bit .npz file, or "
        "[bold]imagenet[/bold] to download the published ones.",
        show_default="random values",
        rich_help_panel=KIT_PANEL,
    ),
]
Padded = Annotated[
    Padding,
    typer.Option(
        help="[bold]same[/bold] for weights that come from TensorFlow.", rich_help_panel=KIT_PANEL
    ),
]
Method = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What is trained: see [bold]pocketune methods[/bold]. Several: a+b.",
        rich_help_panel=KIT_PANEL,
    ),
]
Blocks = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        help="For methods that train blocks: how many, from the last one.",
        show_default="3",
        rich_help_panel=KIT_PANEL,
    ),
]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--method-option",
        metavar="NAME=VALUE",
        help="An option of the method; may be given several times.",
        show_default=False,
        rich_help_panel=KIT_PANEL,
    ),
]
Size = Annotated[
    int,
    typer.Option(metavar="PIXELS", help="Side of the images.", rich_help_panel=KIT_PANEL),
]
Batch = Annotated[
    int, typer.Option(metavar="N", help="Images of a training step.", rich_help_panel=KIT_PANEL)
]
Smoothing = Annotated[
    float,
    typer.Option(
        "--label-smoothing",
        metavar="SHARE",
        help="Share of the target that is spread over all classes.",
        rich_help_panel=KIT_PANEL,
    ),
]
FrozenBits = Annotated[
    int | None,
    typer.Option(
        "--frozen-bits",
        metavar="BITS",
        help="What the part that is not trained is stored and, calibrated on the photos, computed "
        "in: 8 or 32.",
        show_default="as the method asks",
        rich_help_panel=KIT_PANEL,
    ),
]
