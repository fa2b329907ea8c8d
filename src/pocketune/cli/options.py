"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

KIT_PANEL = "Make a kit from a network (needs PyTorch)"

# What the library has under these names; to ask it would import numpy, or torch.
Padding = Literal["symmetric", "same"]
Optimizer = Literal["adam", "adamw", "sgd"]
Loss = Literal["cross_entropy", "binary_cross_entropy"]
Engine = Literal["onnx", "torch"]
Device = Literal["cpu", "cuda"]
Importance = Literal["l2", "weight"]
Followed = Literal["predictions", "blocks"]
Convention = Literal["tinytl", "mobiletl", "repnet", "gradfilter"]
Row = Literal["block", "layer"]


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
