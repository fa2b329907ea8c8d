"""What an export in fewer bits gives, and the check that every one of them passes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pocketune.deployment.agreement import Agreement
from pocketune.deployment.original import Original
from pocketune.errors import PocketuneError, Remedy
from pocketune.files import make_folder_of, replacing
from pocketune.kit.manifest import Quantization

BOUND = 0.2
"""Largest error of the logits, as a share of their norm, of what is written. The quantizer goes for
half of it on the photos that it sees."""


@dataclass(frozen=True)
class Reduced:
    """An exported model in fewer bits.

    Attributes:
        path: The file.
        float_size: Bytes of the model in float32, where a frozen part keeps the 8-bit weights of
            its kit.
        agreement: With the run, on photos that did not calibrate it where there are others; None if
            there are no photos.
        on_training: Whether the photos of the agreement are those for training and calibration,
            because there are no others.
        layers: Layers and residual sums that could compute with integers.
        float_layers: Those that stay in float32, because integers would cost too much accuracy.
    """

    path: Path
    float_size: int
    agreement: Agreement | None
    on_training: bool = False
    layers: int = 0
    float_layers: int = 0


def write_export(
    out: Path,
    content: bytes,
    original: Original,
    measured: Agreement | None,
    precision: str,
    quantization: Quantization | None,
) -> Reduced:
    """Write or replace the file, if it predicts nearly what the model does; see `Reduced`.

    Raises:
        PocketuneError: The logits are off by more than `BOUND` of their norm, or the file cannot be
            written.
    """
    if measured is not None:
        require_agreement(measured.error, original.model.kit.path, precision)
    make_folder_of(out)
    with replacing(out) as file:
        file.write_bytes(content)
    return Reduced(
        out,
        original.graph.ByteSize(),
        measured,
        original.compares_on_training,
        layers=0 if quantization is None else quantization.layers,
        float_layers=0 if quantization is None else quantization.float_layers,
    )


def require_agreement(error: float, kit: Path, precision: str) -> None:
    """Check an error of the logits, as a share of their norm.

    Raises:
        PocketuneError: It is more than `BOUND`, or not a number.
    """
    if error <= BOUND:
        return
    message = (
        f"{kit} cannot be exported as {precision}: the logits would be off by "
        f"{error:.1%} of their norm, more than {BOUND:.0%}"
    )
    if precision != "int8":
        raise PocketuneError(f"{message}; export it in float32")
    remedy = Remedy("calibrate", "give more photos to calibrate it on, or export it in float32")
    raise PocketuneError(message, remedy=remedy)
