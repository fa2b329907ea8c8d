"""The engine that runs a kit's graphs on ONNX Runtime."""

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray, State
from pocketune.device.cache.code import Features
from pocketune.device.engine.accumulate import add_parts
from pocketune.device.engine.base import Gradients, draw_masks, no_embeddings
from pocketune.device.engine.session import RUNTIME, Graph
from pocketune.kit.kit import Kit, check_state, checked_state
from pocketune.kit.names import FEATURES, PREDICT, STEP
from pocketune.tasks import Labels

Images = NDArray[np.uint8] | Features


class OnnxEngine:
    """An `Engine` that computes a kit's gradients and predictions on ONNX Runtime.

    The graphs read the arrays of `parameters` and `statistics` in place, so the next call uses
    the values that were written into them. Gradients are views of the runtime's memory; release
    them before the next step, or the gradients of both steps are in memory.

    A graph is opened when it is first used. Either the step or the prediction is open, never both:
    a run alternates between training and validation, opening a graph again takes a fraction of a
    second, and two open graphs would take the memory of both.

    In place of pixels, every method but `prepare` takes the `Features` that were kept
    of its result.

    Args:
        kit: An opened kit.
        state: Initial parameters and statistics, as `Kit.state` returns them; they are
            copied. The number of classes may differ from the kit's.

    Raises:
        KitError: The state does not fit the kit.
    """

    runtime = RUNTIME

    def __init__(self, kit: Kit, state: Mapping[str, FloatArray]) -> None:
        self._kit = kit
        self._take(state)
        self._open: tuple[str, Graph] | None = None

    def gradients(self, images: Images, labels: Labels, rng: np.random.Generator) -> Gradients:
        """Loss and gradients of a batch; see `Engine.gradients`.

        Raises:
            ValueError: The images or labels do not have the shapes of the kit's step.
        """
        manifest, batch = self._kit.manifest, self._kit.manifest.batch
        pixels = (manifest.size, manifest.size, 3)
        source = images.code.shape if isinstance(images, Features) else pixels
        expected = (
            (batch, *source),
            (batch, *manifest.task.label_shape(manifest.size, self._classes)),
        )
        if (images.shape, labels.shape) != expected:
            raise ValueError(f"a batch has shapes {images.shape}, {labels.shape}, not {expected}")
        if manifest.micro_batches == 1:
            return self._gradients(images, labels, rng)
        weight = partial(manifest.task.loss_weight, inputs=self.inputs)
        return add_parts(self._gradients, images, labels, rng, manifest.micro_batch, weight)

    def predict(self, images: Images) -> FloatArray:
        """Outputs (N, ...) for pixels (N, S, S, 3), computed a few at a time."""
        return self._evaluate("logits", images)

    def embed(self, images: Images) -> FloatArray:
        """Inputs (N, D) of the output layer for pixels (N, S, S, 3); see `Engine.embed`."""
        if self._kit.manifest.embeddings is None:
            raise no_embeddings()
        return self._evaluate("embeddings", images)

    def prepare(self, images: NDArray[np.uint8]) -> NDArray[Any]:
        """The part of a prediction that does not depend on any trained value.

        Args:
            images: (N, S, S, 3) pixels.

        Returns:
            The features of the frozen part (N, ...); the images if there is no frozen part.
        """
        return self._start_values(images)

    def complete(self, prepared: NDArray[Any]) -> FloatArray:
        """Outputs (N, ...) from the result of `prepare`."""
        return self._predicted(prepared, "logits")["logits"]

    def complete_with_embeddings(self, prepared: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Outputs (N, ...) and embeddings (N, D) from the result of `prepare`."""
        if self._kit.manifest.embeddings is None:
            raise no_embeddings()
        found = self._predicted(prepared)
        return found["logits"], found["embeddings"]

    def state(self) -> State:
        """Copies of all parameters and statistics."""
        return {name: values.copy() for name, values in self._arrays().items()}

    def load(self, state: Mapping[str, FloatArray]) -> None:
        """Write all parameters and statistics, in place.

        Raises:
            KitError: A tensor is missing or of another shape; then nothing is written.
        """
        check_state(state, self._kit.manifest.shapes(self._classes), "the saved state")
        for name, array in self._arrays().items():
            np.copyto(array, state[name])

    def swap(self, state: Mapping[str, FloatArray]) -> None:
        """Replace all parameters and statistics, also by those for other classes.

        The arrays of `parameters` and `statistics` are new ones. No graph is opened again.

        Raises:
            KitError: The state does not fit the kit; then nothing is replaced.
        """
        self._take(state)
        if self._open is not None:
            self._open[1].bind(self._arrays())

    def release(self) -> None:
        """Close all graphs; the next call opens them again."""
        self._open = None
        self.__dict__.pop("_features_graph", None)

    def _take(self, state: Mapping[str, FloatArray]) -> None:
        manifest, classes = self._kit.manifest, self._kit.manifest.task.count(state)
        values = checked_state(state, manifest.shapes(classes), "the state")
        self._classes = classes
        self.parameters: State = {spec.name: values[spec.name] for spec in manifest.parameters}
        self.statistics: State = {spec.name: values[spec.name] for spec in manifest.statistics}
        self.inputs: State = manifest.task.step_inputs(classes)

    def _arrays(self) -> State:
        return {**self.parameters, **self.statistics}

    def _gradients(self, images: Images, labels: Labels, rng: np.random.Generator) -> Gradients:
        """Loss and gradients of a micro-batch, by one run of the graph."""
        manifest, step = self._kit.manifest, self._graph(STEP)
        outputs = step.run(
            {
                self._start: self._start_values(images),
                "labels": labels,
                **self.inputs,
                **draw_masks(manifest.masks, rng),
            }
        )
        for name in ("loss", *manifest.task.step_metrics):
            step.check(name, outputs[name].shape, ())
        for name, values in self.parameters.items():
            step.check(f"grad.{name}", outputs[f"grad.{name}"].shape, values.shape)
        for name, values in self.statistics.items():
            step.check(f"new.{name}", outputs[f"new.{name}"].shape, values.shape)
            np.copyto(values, outputs[f"new.{name}"])
        return Gradients(
            loss=float(outputs["loss"]),
            metrics={name: outputs[name].item() for name in manifest.task.step_metrics},
            values={name: cast("FloatArray", outputs[f"grad.{name}"]) for name in self.parameters},
        )

    def _evaluate(self, output: str, images: Images) -> FloatArray:
        """An output of the prediction for any number of images."""
        values = np.empty((len(images), *self._shape(output)), np.float32)
        for part in self._parts(len(images)):
            values[part] = self._run_predict(self._start_values(images[part]), output)[output]
        return values

    def _predicted(self, prepared: NDArray[Any], only: str | None = None) -> dict[str, FloatArray]:
        """All outputs of the prediction, or one, from what depends on no trained value."""
        if len(prepared) <= self._kit.manifest.predictions_at_once:
            return self._run_predict(prepared, only)
        slices = self._parts(len(prepared))
        parts = [self._run_predict(prepared[each], only) for each in slices]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _run_predict(self, prepared: NDArray[Any], only: str | None) -> dict[str, FloatArray]:
        """Outputs of the prediction for a few images, by one run of the graph."""
        graph = self._graph(PREDICT)
        found = graph.run({self._start: prepared}, only=only)
        for name, values in found.items():
            graph.check(name, values.shape, (len(prepared), *self._shape(name)))
        return found

    def _parts(self, images: int) -> Iterator[slice]:
        """The images that are predicted at once."""
        size = self._kit.manifest.predictions_at_once
        return (slice(start, start + size) for start in range(0, images, size))

    def _shape(self, output: str) -> tuple[int, ...]:
        """The shape of an output of the prediction, for an image."""
        manifest = self._kit.manifest
        if output == "embeddings":
            return (manifest.embeddings or 0,)
        return manifest.task.output_shape(manifest.size, self._classes)

    @property
    def _start(self) -> str:
        """Name of the input of `step.onnx` and `predict.onnx` that depends on the images."""
        return "images" if self._kit.manifest.features is None else "features"

    def _start_values(self, images: Images) -> NDArray[Any]:
        """The images, or their features if the kit has a frozen part."""
        if isinstance(images, Features):
            return images.decoded()
        manifest = self._kit.manifest
        if manifest.features is None:
            return np.ascontiguousarray(images)
        features = np.empty((len(images), *manifest.features), np.float32)
        for start in range(0, len(images), manifest.images_at_once):
            part = slice(start, start + manifest.images_at_once)
            found = self._features_graph.run({"images": images[part]})["features"]
            self._features_graph.check("features", found.shape, features[part].shape)
            features[part] = found
        return features

    def _graph(self, name: str) -> Graph:
        """The graph of a training step or that of a prediction; the other one is closed."""
        if self._open is None or self._open[0] != name:
            self._open = None  # close the other graph first
            self._open = name, self._open_step() if name == STEP else self._open_predict()
        return self._open[1]

    @cached_property
    def _features_graph(self) -> Graph:
        return Graph(self._kit, FEATURES, bound={}, inputs=["images"], outputs=["features"])

    def _open_step(self) -> Graph:
        masks = [spec.name for spec in self._kit.manifest.masks]
        gradients = [f"grad.{name}" for name in self.parameters]
        statistics = [f"new.{name}" for name in self.statistics]
        return Graph(
            self._kit,
            STEP,
            bound=self._arrays(),
            inputs=[self._start, "labels", *self.inputs, *masks],
            outputs=["loss", *self._kit.manifest.task.step_metrics, *gradients, *statistics],
        )

    def _open_predict(self) -> Graph:
        outputs = ["logits", *(["embeddings"] if self._kit.manifest.embeddings else [])]
        return Graph(
            self._kit, PREDICT, bound=self._arrays(), inputs=[self._start], outputs=outputs
        )
