"""The description of a kit: `manifest.json`."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from pocketune.errors import PocketuneError
from pocketune.kit.names import KIT_FILES
from pocketune.schema import FieldError, Positive, Shape, parse_object, read_object
from pocketune.tasks import Task

SCHEMA = 6
"""Version of the manifest's fields; a reader refuses all others."""

Group = Literal["main", "decode_head", "branch", "head"]
"""Where a parameter belongs: to the network itself, to a decode head that has random values, to a
side branch that a method adds, or to the layer that is replaced for other classes."""

_FEATURES_BYTES, _PREDICT_BYTES = 4 << 20, 16 << 20
MOST_ELEMENTS = 1 << 30
"""Most elements of a tensor, a batch of images or of features."""


class KitError(PocketuneError):
    """A kit is missing, damaged or of another version, or something else is not a kit."""


@dataclass(frozen=True)
class TensorSpec:
    """Name and shape of a float32 tensor that is an input of the graphs."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class ParameterSpec(TensorSpec):
    """A tensor that is trained, and where it belongs."""

    group: Group = "main"


WorkKind = Literal[
    "blocked",
    "blocked_depthwise",
    "dense",
    "depthwise",
    "elementwise",
    "integer",
    "integer_depthwise",
    "matrix",
    "move",
]
"""Operators that a processor executes at one speed: convolutions in the runtime's blocked layout,
plain ones and those with integers, matrix products, operators that compute element by element, and
operators that only move elements."""


@dataclass(frozen=True)
class Work:
    """What the operators of one kind do in one run of a graph.

    Attributes:
        calls: Number of operators that are executed.
        flops: Floating point or integer operations.
        bytes: Bytes of the tensors that they read and write.
    """

    calls: int
    flops: int
    bytes: int


PACKED_WEIGHTS = 4_000_000
"""Most bytes of constants in a step for which the runtime may keep a second copy.

It packs the kernels of products and of transposed convolutions. A backward pass reads a frozen
kernel in both layouts, so that both stay in memory: 22 of 115 MB while ResNet-34 at half width
trains its biases. Without the copies that step takes 12 % longer.
"""


@dataclass(frozen=True)
class GraphSpec:
    """The cost of a graph.

    Attributes:
        memory: Peak bytes of live tensors, for one image (`features`) or one micro-batch.
        flops: Floating point operations, for one image (`features`) or one micro-batch.
        nodes: Number of nodes.
        weights: Bytes of the constants in the file.
        largest: Bytes of the largest constant that the runtime copies to another layout when it
            opens the graph; 0 if it copies none.
        work: What a run does, by the kinds of `WorkKind`, for one image (`features`) or one
            micro-batch.
        arena: Bytes of the runtime's arena after a run, with the gaps between tensors, for one
            image (`features`) or one batch.
    """

    memory: int
    flops: int
    nodes: int
    weights: int
    largest: int
    work: dict[str, Work]
    arena: int

    @property
    def packs(self) -> bool:
        """Whether the runtime may keep copies of a step's constants, which are in its arena."""
        return self.weights <= PACKED_WEIGHTS


@dataclass(frozen=True)
class MaskSpec:
    """A dropout mask: an input of the graph that the device draws once a step.

    Attributes:
        name: The graph input's name.
        shape: Shape of the mask, the batch included.
        keep: Probability that an element is kept, above 0 and up to 1.
    """

    name: str
    shape: Shape
    keep: float

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise KitError(f"{self.name} has keep={self.keep}, which must be above 0 and up to 1")

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """A mask of 0 and `1 / keep`; every engine draws its masks here, so that all agree."""
        kept = rng.random(self.shape, dtype=np.float32) < self.keep
        mask: NDArray[np.float32] = kept * np.float32(1 / self.keep)
        return mask


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """A frozen part with int8 weights, one scale per channel, and its error.

    Attributes:
        activations: Bits that the frozen part computes with: 8, or 32 if there were no images for
            calibration and only the weights are rounded.
        images: Number of held-out images that the errors were measured on.
        error: Norm of the features' error relative to the features' norm; None if it was not
            measured.
        accuracy: Accuracy of the nearest class centroid; None without labels.
        float_accuracy: The same with a frozen part in float32.
        layers: Number of layers that can compute with integers.
        float_layers: Number of these that stay in float32, because the error would be too large.
    """

    activations: Literal[8, 32]
    images: int = 0
    error: float | None = None
    accuracy: float | None = None
    float_accuracy: float | None = None
    layers: int = 0
    float_layers: int = 0

    def __post_init__(self) -> None:
        if self.float_layers > self.layers:
            raise KitError(f"{self.float_layers} layers stay in float32 of only {self.layers}")
        for name in ("error", "accuracy", "float_accuracy"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise KitError(f"{name}={value} must not be below 0")

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


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a kit that is not in its graphs.

    Attributes:
        schema: Version of these fields.
        version: The pocketune that wrote the kit.
        network: Configuration of the network, from which the author half can create it again.
        method: The method and its options.
        task: What the network learns, and which parameters are reinitialized for other classes.
        size: Height and width of the input, in pixels.
        mean: Mean of the red, green and blue pixels, on [0, 1]. The graphs already apply it.
        std: Standard deviation of the same. The graphs already apply it.
        batch: Images in a training step.
        micro_batch: Images that the graph of a step computes at once; a step adds the gradients of
            `batch / micro_batch` of them.
        features: Shape of one image's features; None for a kit without `features.onnx`.
        embeddings: Size of the output layer's input, the second output of `predict.onnx`; None
            if that layer does not read one vector for each image.
        parameters: The trained parameters.
        statistics: The running statistics that training updates.
        masks: The dropout masks that the step takes.
        graphs: The cost of each graph, by `features`, `step` and `predict`.
        files: SHA-256 of every file of the kit, in hexadecimal.
        quantization: Quantization of the frozen part; None if its weights are stored in float32.

    Raises:
        KitError: The fields contradict each other.
    """

    version: str
    network: dict[str, Any]
    method: dict[str, Any]
    task: Task
    size: Positive
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    batch: Positive
    micro_batch: Positive
    features: Shape | None
    embeddings: Positive | None
    parameters: tuple[ParameterSpec, ...]
    statistics: tuple[TensorSpec, ...]
    masks: tuple[MaskSpec, ...]
    graphs: dict[str, GraphSpec]
    files: dict[str, str] = field(default_factory=dict)
    quantization: Quantization | None = None
    schema: Positive = SCHEMA

    def __post_init__(self) -> None:
        problem = next(_problems(self), None)
        if problem:
            raise KitError(f"the manifest {problem}")

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return {**asdict(self), "task": self.task.to_dict()}

    def to_json(self) -> bytes:
        """The content of the file; equal manifests give equal bytes."""
        return (json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, text: bytes, where: str = "manifest.json") -> "Manifest":
        """Read a manifest.

        Args:
            text: The file's bytes.
            where: The file's place, for messages.

        Raises:
            KitError: The manifest is of another schema, or a field is missing, unknown, of the
                wrong type, or contradicts another.
        """
        try:
            data = parse_object(text, where)
            _check_schema(data.get("schema"), where)
            return read_object(cls, data, where)
        except FieldError as error:
            raise KitError(f"{error}; build the kit again or copy it again") from error

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return self.task.classes

    @property
    def trained_parameters(self) -> int:
        """Number of trained values, for the classes of the kit."""
        return sum(math.prod(spec.shape) for spec in self.parameters)

    @property
    def method_name(self) -> str:
        """Name of the method; those of a sum with a `+` between."""
        return "+".join(str(term.get("name")) for term in terms_of(self.method))

    @property
    def frozen_bits(self) -> int:
        """Bits of the weights of the frozen part: 8 or 32."""
        return 32 if self.quantization is None else 8

    @property
    def computes_integers(self) -> bool:
        """Whether layers of the frozen part compute with integers of 8 bits."""
        return self.quantization is not None and self.quantization.activations == 8

    @property
    def micro_batches(self) -> int:
        """How often a training step runs its graph."""
        return self.batch // self.micro_batch

    @property
    def images_at_once(self) -> int:
        """Number of images that `features.onnx` processes at once.

        Its temporary tensors are the largest of a step on photos and must not grow with the batch.
        For small images, a call for each would cost more than its arithmetic. The number is
        therefore the largest that keeps the live tensors within 4 MiB.
        """
        if "features" not in self.graphs:
            return 1
        fitting = _FEATURES_BYTES // max(1, self.graphs["features"].memory)
        return min(self.micro_batch, max(1, fitting))

    @property
    def predictions_at_once(self) -> int:
        """Number of images that `predict.onnx` processes at once.

        A prediction needs no other images, even where a step does. The number is the largest that
        keeps the live tensors within 16 MiB, so that fewer images take little longer.
        """
        fitting = self.micro_batch * _PREDICT_BYTES // max(1, self.graphs["predict"].memory)
        return min(self.micro_batch, max(1, fitting))

    def shapes(self, classes: int) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter and statistic for `classes` classes."""
        specs = (*self.parameters, *self.statistics)
        return self.task.shapes({spec.name: spec.shape for spec in specs}, classes)


def _check_schema(schema: object, where: str) -> None:
    """Refuse another schema; the reader refuses a value that is not a number."""
    if type(schema) is not int or schema == SCHEMA:
        return
    if schema > SCHEMA:
        raise KitError(
            f"{where} needs a newer pocketune (its schema is {schema}, this version reads "
            f"{SCHEMA}); upgrade with: pip install --upgrade pocketune"
        )
    raise KitError(
        f"{where} was written by an older pocketune (its schema is {schema}, this version reads "
        f"{SCHEMA}); build the kit again from its network"
    )


def _problems(manifest: Manifest) -> Iterator[str]:
    """Sentences about fields that contradict each other; the first one is shown."""
    m = manifest
    names = [spec.name for spec in (*m.parameters, *m.statistics)]
    names += [spec.name for spec in m.masks]
    shapes = {spec.name: spec.shape for spec in m.parameters}
    if len(set(names)) < len(names):
        yield "names a tensor twice"
    if min(m.std) <= 0:
        yield f"has a standard deviation of {min(m.std)}, which must be above 0"
    for name in m.task.head:
        if name not in shapes:
            yield f"names {name} as part of the head, which is not among the parameters"
        elif shapes[name][:1] != (len(m.classes),):
            yield f"has {len(m.classes)} classes but gives {name} the shape {shapes[name]}"
    graphs = {"step", "predict"} if m.features is None else {"features", "step", "predict"}
    if m.batch % m.micro_batch:
        yield f"has a batch of {m.batch} images, no multiple of micro_batch={m.micro_batch}"
    if m.micro_batch < m.batch and m.statistics:
        yield f"has statistics of a batch, and micro_batch={m.micro_batch} is only a part of one"
    if set(m.graphs) != graphs:
        yield f"lists the graphs {_listed(m.graphs)} where the kit has {_listed(graphs)}"
    for name, shape in _tensors(m):
        if math.prod(shape) > MOST_ELEMENTS:
            yield f"gives {name} the shape {shape}, which is more than {MOST_ELEMENTS:,} elements"
    unknown = set(m.files) - set(KIT_FILES)
    if unknown:
        yield f"lists {min(unknown)!r} under 'files', which are {_listed(KIT_FILES)}"


def _tensors(manifest: Manifest) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor that a run makes."""
    m = manifest
    for tensor in (*m.parameters, *m.statistics):
        yield tensor.name, tensor.shape
    for mask in m.masks:
        yield mask.name, mask.shape
    yield "a batch of images", (m.batch, m.size, m.size, 3)
    yield "a batch of features", (m.batch, *(m.features or ()))
    yield "the output", (m.batch, *m.task.output_shape(m.size))
    yield "the embeddings", (m.batch, m.embeddings or 1)


def terms_of(method: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The methods of a sum; any other method alone."""
    terms = method.get("methods")
    known = isinstance(terms, list) and terms and all(isinstance(term, dict) for term in terms)
    return cast("list[Mapping[str, Any]]", terms) if known else [method]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
