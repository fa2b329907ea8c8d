"""What a manifest says about a frozen part in 8 bits."""

from collections.abc import Iterator
from dataclasses import dataclass

from pocketune.kit.schema import Fields

BITS = (8, 32)


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """A frozen part whose weights are stored as int8, per channel, and what that costs.

    Attributes:
        activations: Bits that the frozen part computes with: 8, or 32 where there were no images
            to calibrate on and only the weights are rounded.
        images: Held-out images that the errors were measured on.
        error: Norm of the features' error as a share of the features' norm; None where it was
            not measured.
        accuracy: Accuracy of the nearest class centroid, None without labels.
        float_accuracy: The same with a frozen part in float32.
        layers: Layers that can compute with integers.
        float_layers: How many of them stay in float32, since the error would be too large.
    """

    activations: int
    images: int = 0
    error: float | None = None
    accuracy: float | None = None
    float_accuracy: float | None = None
    layers: int = 0
    float_layers: int = 0

    def __str__(self) -> str:
        if self.activations == 32:
            return "weights in 8 bits"
        parts = ["weights and activations in 8 bits"]
        if self.float_layers:
            parts.append(f"{self.float_layers} of {self.layers} layers in 32")
        if self.error is not None:
            parts.append(f"features off by {self.error:.1%}")
        if self.accuracy is not None and self.float_accuracy is not None:
            parts.append(
                f"nearest-centroid accuracy {self.accuracy:.1%} (float32 {self.float_accuracy:.1%})"
            )
        return ", ".join(parts)


def read_quantization(fields: Fields | None) -> Quantization | None:
    """The object of a manifest, null for a frozen part in float32.

    Raises:
        FieldError: A field is missing, unknown or of another type.
    """
    if fields is None:
        return None
    read = Quantization(
        activations=fields.integer("activations"),
        images=fields.integer("images"),
        error=fields.optional_number("error"),
        accuracy=fields.optional_number("accuracy"),
        float_accuracy=fields.optional_number("float_accuracy"),
        layers=fields.integer("layers"),
        float_layers=fields.integer("float_layers"),
    )
    fields.finish()
    return read


def problems(quantization: Quantization) -> Iterator[str]:
    """Sentences about what cannot be."""
    q = quantization
    if q.activations not in BITS:
        yield f"has a quantization to {q.activations} bits, which must be 8 or 32"
    if q.float_layers > q.layers:
        yield f"keeps {q.float_layers} layers in float32 of only {q.layers}"
    for name in ("error", "accuracy", "float_accuracy"):
        value = getattr(q, name)
        if value is not None and value < 0:
            yield f"has a quantization with {name} {value}, below 0"
