"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pocketune.errors import PocketuneError
from pocketune.options import Option, OptionField, flag, option

if TYPE_CHECKING:
    from pocketune.data import MaskOptions

NETWORK_PANEL = "Network"
METHOD_PANEL = "Training method"

# Copies of the library's names: reading them there would import numpy or torch.
PADDINGS = ("symmetric", "same")
NORMS = ("batch", "group")
NORMALIZATIONS = ("imagenet", "half", "unit", "pixels")
RANKINGS = ("l2", "weight")
CONVENTIONS = ("tinytl", "mobiletl", "mobiletl-stored", "repnet", "gradfilter")

LABELED = "Labeled photos, as for train."
NETWORK = "See [bold]pocketune networks[/bold]."


class Argument(Option):
    """An option that is given by position."""


argument = partial(option, kind=Argument)
of_network = partial(option, panel=NETWORK_PANEL)
of_method = partial(option, panel=METHOD_PANEL)


@dataclass(frozen=True, kw_only=True)
class ModelArgument:
    """The model to use: a run or a kit."""

    run: str | Path = option(
        "A run or a kit: a folder, or a .zip of it; or the name of a bundled kit.",
        kind=Argument,
        metavar="RUN",
    )


_ignore = partial(
    option,
    "Values or names of classes in masks that do not count; see [bold]train[/bold].",
    default=None,
    metavar="VALUES|none",
)
_class_names = partial(
    option,
    "Names of the values of masks; see [bold]train[/bold].",
    default=None,
    metavar="FILE|NAMES",
)


@dataclass(frozen=True, kw_only=True)
class MaskReading:
    """How the values of masks are read; `train` has these options as settings of a run."""

    ignore: str | None = _ignore(unset="255")
    class_names: str | None = _class_names(unset="those of the photos")

    @property
    def options(self) -> MaskOptions:
        """The same as the library takes them."""
        from pocketune.data import MaskOptions

        return MaskOptions(ignore=self.ignore, class_names=self.class_names)

    def check_photos(self, photos: str | Path | None) -> None:
        """Refuse these options without photos.

        Raises:
            PocketuneError: An option is set, and there are no photos.
        """
        for name, value in vars(self).items():
            if value is not None and photos is None:
                raise PocketuneError(f"{flag(name)} needs --photos: it is about their masks")


@dataclass(frozen=True, kw_only=True)
class RunMaskReading(MaskReading):
    """The same where a run has read masks in its training."""

    ignore: str | None = _ignore(unset="255; for a run, as in its training")
    class_names: str | None = _class_names(
        unset="those of the photos; for a run, as in its training"
    )


@dataclass(frozen=True, kw_only=True)
class NetworkArgument:
    """A network by its name."""

    network: str = argument(NETWORK, metavar="NETWORK")


@dataclass(frozen=True, kw_only=True)
class NetworkOrFileArgument:
    """A network by its name, or in a file."""

    network: str = argument(
        "A name of [bold]pocketune networks[/bold], or an .onnx file of a whole network.",
        metavar="NETWORK",
    )


@dataclass(frozen=True, kw_only=True)
class ClassesOption:
    """The classes of a network that is not trained."""

    classes: int | None = option(
        "Number of classes.",
        default=None,
        metavar="N",
        unset="1,000; 21 for classes of pixels; those of an .onnx file",
    )


@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """Whether the output is JSON."""

    json: bool = option("Print JSON.", default=False)


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """Options of `create_network` other than the name."""

    width: float | None = of_network(
        "Width multiplier.", default=None, metavar="FACTOR", unset="that of the weights, or 1"
    )
    weights: str | Path | None = option(
        "Pretrained weights: a .safetensors, .pth or 8-bit .npz file, [bold]imagenet[/bold] to "
        "download the published ones, or [bold]hf-hub:OWNER/NAME[/bold] for others from the hub.",
        default=None,
        metavar="FILE|imagenet",
        unset="random initialization",
        panel=NETWORK_PANEL,
    )
    padding: str | None = of_network(
        "Padding of strided convolutions; [bold]same[/bold] for weights from TensorFlow.",
        default=None,
        choices=PADDINGS,
        unset="that of the weights, or symmetric",
    )
    norm: str | None = of_network(
        "Norm of every layer; group norms take over scale and shift of weights with batch norms.",
        default=None,
        choices=NORMS,
        unset="that of the weights, or batch",
    )
    standardized: bool | None = of_network(
        "Standardize the kernels, as TinyTL's group-norm networks do.",
        default=None,
        unset="as the weights are",
    )


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """How a network takes its images."""

    normalization: str | None = of_network(
        "Normalization of the images that the weights were trained with: [bold]half[/bold] is -1 "
        "to 1, as Keras often has it, [bold]unit[/bold] is 0 to 1, [bold]pixels[/bold] 0 to 255.",
        default=None,
        choices=NORMALIZATIONS,
        unset="that of the weights or of the ONNX file, or imagenet",
    )


@dataclass(frozen=True, kw_only=True)
class ShapeOptions:
    """Options of `create_network` for where a network ends, and what classifies pixels."""

    first_blocks: int | None = of_network(
        "Keep so many blocks and classify their features, for less memory and time; wide networks "
        "lose no accuracy by ending one stage early.",
        default=None,
        metavar="N",
        unset="all, and the feature fusion",
        at_least=1,
    )
    backbone: str | None = of_network(
        "Backbone of a network that classifies pixels, such as deeplabv3.",
        default=None,
        metavar="NAME",
        unset="that of the weights, or the published one",
    )
    head_channels: int | None = of_network(
        "Channels of its decode head.",
        default=None,
        metavar="N",
        unset="that of the weights, or the published number",
        at_least=1,
    )
    output_stride: int | None = of_network(
        "Side of the image over the side of its last feature map: 4, 8, 16 or 32.",
        default=None,
        metavar="N",
        unset="that of the weights, or the published one",
        at_least=1,
    )


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """Arguments of `parse_method`."""

    method: str = of_method(
        "Fine-tuning method: see [bold]pocketune methods[/bold]. Combine several as a+b.",
        default="blocks",
        metavar="NAME",
    )
    blocks: int | None = of_method(
        "Number of blocks to train, from the last one, for methods that train blocks.",
        default=None,
        metavar="K",
        unset="3",
    )
    method_option: list[str] | None = option(
        "Option of the method; can be repeated.",
        default=None,
        metavar="NAME=VALUE",
        panel=METHOD_PANEL,
    )


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The images of a training step and the precision of its frozen layers."""

    size: int = of_method("Image height and width.", default=224, metavar="PIXELS")
    batch: int = of_method("Batch size.", default=8, metavar="N")
    frozen_bits: int | None = of_method(
        "Precision of the frozen layers, 8 or 32 bits; the 8-bit layers of a kit are calibrated "
        "on the photos.",
        default=None,
        metavar="BITS",
        unset="chosen by the method",
    )


@dataclass(frozen=True, kw_only=True)
class KitStepOptions(StepOptions):
    """The properties of a step that a kit fixes: arguments of `build_kit`."""

    label_smoothing: float = of_method(
        "Amount of label smoothing.", default=0.0, metavar="FRACTION"
    )
    loss_stride: int | None = of_method(
        "For masks: take the loss at every Nth row and column, which takes less memory.",
        default=None,
        metavar="N",
        unset="1, every pixel",
        at_least=1,
    )


@dataclass(frozen=True, kw_only=True)
class HardwareOptions:
    """The hardware that a whole network is trained on."""

    accelerator: str = option(
        "Accelerator for Lightning Fabric: cpu, cuda or auto.", default="auto", metavar="NAME"
    )
    devices: int = option("Number of devices.", default=1, metavar="N", at_least=1)


def written(path: Path) -> str:
    """What a command that is about to write a file or a kit does to the path, in a word."""
    return "replaced" if os.path.exists(path) else "wrote"  # noqa: PTH110 - raises nothing


FIXED_IN_A_KIT = (NETWORK_PANEL, METHOD_PANEL)


def check_network_given(options: dict[str, OptionField]) -> None:
    """Check that options of a network and its method are given with a network.

    Raises:
        click.BadParameter: They are not; exit code 2.
    """
    for each in options.values():
        if each.option.panel in FIXED_IN_A_KIT and "network" not in options:
            raise click.BadParameter("needs --network", param_hint=shown_name(each))


def shown_name(each: OptionField) -> str:
    """The name on the command line, such as `--val-fraction` or, for an argument, `PHOTOS`."""
    if isinstance(each.option, Argument):
        return each.option.metavar or each.name.upper()
    return flag(each.name)
