"""Arguments and options that several commands have; `expand` makes options of the dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import typer

NETWORK_PANEL = "Network"
METHOD_PANEL = "Training method"

# What the library has under these names; to ask it would import numpy, or torch.
Padding = Literal["symmetric", "same"]
Optimizer = Literal["adam", "adamw", "sgd"]
Loss = Literal["cross_entropy", "binary_cross_entropy"]
Engine = Literal["onnx", "torch"]
Device = Literal["cpu", "cuda"]
Importance = Literal["l2", "weight"]
Followed = Literal["predictions", "blocks"]
Convention = Literal["tinytl", "mobiletl", "mobiletl-stored", "repnet", "gradfilter"]
Row = Literal["block", "layer"]


Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run folder; or a kit: a folder, a .zip or the name of a bundled one.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_network_option = partial(typer.Option, rich_help_panel=NETWORK_PANEL)
_method_option = partial(typer.Option, rich_help_panel=METHOD_PANEL)

MethodOption = Annotated[
    list[str] | None,
    _method_option(
        metavar="NAME=VALUE",
        help="Option of the method; can be repeated.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class NetworkOptions:
    """How a network is created, but for its name: arguments of ``create_network``."""

    width: Annotated[float, _network_option(help="Width multiplier.")] = 1.0
    weights: Annotated[
        str | None,
        _network_option(
            metavar="FILE|imagenet",
            help="Pretrained weights: a .safetensors, .pth or 8-bit .npz file, or "
            "[bold]imagenet[/bold] to download the published ones.",
            show_default="random initialization",
        ),
    ] = None
    padding: Annotated[
        Padding,
        _network_option(
            help="Padding of strided convolutions; [bold]same[/bold] for weights from TensorFlow."
        ),
    ] = "symmetric"


@dataclass(frozen=True)
class MethodOptions:
    """What is trained; ``parse_method`` makes a method of it."""

    method: Annotated[
        str,
        _method_option(
            metavar="NAME",
            help="Fine-tuning method: see [bold]pocketune methods[/bold]. Combine several as a+b.",
        ),
    ] = "blocks"
    blocks: Annotated[
        int | None,
        _method_option(
            metavar="K",
            help="Number of blocks to train, from the last one, for methods that train blocks.",
            show_default="3",
        ),
    ] = None
    method_option: MethodOption = None


@dataclass(frozen=True)
class StepOptions:
    """What a training step takes."""

    size: Annotated[int, _method_option(metavar="PIXELS", help="Image height and width.")] = 224
    batch: Annotated[int, _method_option(metavar="N", help="Batch size.")] = 8
    frozen_bits: Annotated[
        int | None,
        _method_option(
            metavar="BITS",
            help="Precision of the frozen layers, 8 or 32 bits; the 8-bit layers of a kit are "
            "calibrated on the photos.",
            show_default="chosen by the method",
        ),
    ] = None


@dataclass(frozen=True)
class KitStepOptions(StepOptions):
    """What a kit fixes of its step: arguments of ``build_kit``."""

    label_smoothing: Annotated[
        float,
        _method_option(metavar="FRACTION", help="Amount of label smoothing."),
    ] = 0.0
