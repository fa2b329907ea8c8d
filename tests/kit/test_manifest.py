"""The manifest: round trip and everything that a reader refuses."""

import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest

from pocketune.kit.manifest import SCHEMA, KitError, Manifest, MaskSpec, Quantization, TensorSpec

from ..device.tiny_kit import TinyKit

QUANTIZED = asdict(Quantization(activations=8, images=9, error=0.07, layers=2))

TASK = TinyKit().manifest().to_dict()["task"]


def edited(**changes: object) -> bytes:
    return json.dumps({**json.loads(TinyKit().manifest().to_json()), **changes}).encode()


@pytest.mark.parametrize("frozen_part", [True, False])
def test_json_round_trip(frozen_part: bool) -> None:
    manifest = TinyKit(frozen_part=frozen_part, classes=("Äpfel", "梨")).manifest()
    text = manifest.to_json()
    assert Manifest.from_json(text) == manifest
    assert Manifest.from_json(text).to_json() == text
    assert "梨" in text.decode()


def test_integers_are_numbers_too() -> None:
    assert Manifest.from_json(edited(mean=[0, 1, 0])).mean == (0.0, 1.0, 0.0)


def test_newer_schema() -> None:
    text = edited(schema=SCHEMA + 1, something_new=1)
    with pytest.raises(
        KitError, match=rf"k/manifest.json needs a newer pocketune .*schema is {SCHEMA + 1}"
    ):
        Manifest.from_json(text, "k/manifest.json")


def test_older_schema() -> None:
    message = f"k/manifest.json was written by an older .*schema is {SCHEMA - 1}.*build the kit aga"
    with pytest.raises(KitError, match=message):
        Manifest.from_json(edited(schema=SCHEMA - 1), "k/manifest.json")


@pytest.mark.parametrize(
    "quantization",
    [
        Quantization(activations=32),
        Quantization(activations=8, images=9, error=0.07, layers=4, float_layers=1),
        Quantization(activations=8, images=9, error=0.0, accuracy=0.8, float_accuracy=1.0),
    ],
)
def test_quantization_round_trip(quantization: Quantization) -> None:
    manifest = replace(TinyKit().manifest(), quantization=quantization)
    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize("name", sorted(json.loads(TinyKit().manifest().to_json())))
def test_missing_field(name: str) -> None:
    values = json.loads(TinyKit().manifest().to_json())
    del values[name]
    with pytest.raises(KitError, match=f"lacks the field '{name}'"):
        Manifest.from_json(json.dumps(values).encode())


@pytest.mark.parametrize("name", sorted(json.loads(TinyKit().manifest().to_json())))
@pytest.mark.parametrize("value", [True, "", -1, [None], {"a": [1]}, [[1]]])
def test_wrong_type(name: str, value: object) -> None:
    if (name, value) in (("network", {"a": [1]}), ("method", {"a": [1]})):
        return  # free-form objects
    with pytest.raises(KitError, match=name):
        Manifest.from_json(edited(**{name: value}))


@pytest.mark.parametrize(
    ("memory", "images"), [(0, 8), (2**24, 8), (2**24 + 1, 7), (2**26, 2), (2**27, 1), (2**30, 1)]
)
def test_predictions_at_once_keep_their_tensors_within_16_mib(memory: int, images: int) -> None:
    """The memory of the graph is that of a micro-batch."""
    manifest = replace(TinyKit().manifest(), batch=8, micro_batch=8)
    predict = replace(manifest.graphs["predict"], memory=memory)
    graphs = {**manifest.graphs, "predict": predict}
    assert replace(manifest, graphs=graphs).predictions_at_once == images


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "'batch' must be a whole number of at least 1, not 0"),
        ({"batch": 8.0}, "'batch' must be a whole number of at least 1, not 8.0"),
        ({"task": {**TASK, "classes": []}}, "one or more different names"),
        ({"task": {**TASK, "classes": ["cat", "cat", "owl"]}}, "different names"),
        ({"task": {**TASK, "classes": ["cat", "dog"]}}, "has 2 classes but gives fc.weight"),
        ({"task": {**TASK, "name": "drawing"}}, "'task.name' must be one of classification, segm"),
        ({"task": {**TASK, "label_smoothing": 1}}, r"label_smoothing=1.0 must lie in \[0, 1\)"),
        ({"task": {"name": "classification"}}, "'task' lacks the field 'classes'"),
        ({"task": {**TASK, "head": ["x", "fc.bias"]}}, "names x as part of the head"),
        ({"mean": [0.5, 0.5]}, "'mean' must be a list of 3 values"),
        ({"std": [0.5, 0.5, 0]}, "standard deviation of 0"),
        ({"std": [0.5, 0.5, float("inf")]}, r"'std\[2\]' must be a finite number, not inf"),
        ({"features": [0]}, r"'features\[0\]' must be a whole number of at least 1"),
        (
            {"masks": [{"name": "n", "shape": [2], "keep": 0}]},
            "n has keep=0.0, which must",
        ),
        ({"statistics": [{"name": "w", "shape": [2], "dtype": "f"}]}, r"statistics\[0\]' has the"),
        ({"statistics": [{"name": "scale", "shape": []}]}, "names a tensor twice"),
        (
            {"parameters": [{"name": "w", "shape": [2], "group": "x"}]},
            "must be one of main, decode_head, branch, head, not",
        ),
        ({"micro_batch": 3}, "a batch of 4 images, no multiple of micro_batch=3"),
        ({"micro_batch": 2}, "statistics of a batch, and micro_batch=2 is only a part of one"),
        ({"graphs": {}}, "lists the graphs none where the kit has features, predict, step"),
        ({"files": {"../../passwd": "0"}}, "lists '../../passwd' under 'files'"),
        ({"files": {"step.onnx": 5}}, "files.step.onnx' must be a non-empty string"),
        (
            {"quantization": {**QUANTIZED, "activations": 4}},
            "must be one of 8, 32, not 4",
        ),
        ({"quantization": {**QUANTIZED, "float_layers": 3}}, "3 layers stay in float32 of only 2"),
        ({"quantization": {**QUANTIZED, "error": -1}}, "'quantization': error=-1.0 must not be"),
        (
            {"quantization": {**QUANTIZED, "error": "1"}},
            "'quantization.error' must be a finite",
        ),
        ({"quantization": {**QUANTIZED, "more": 1}}, "'quantization' has the unknown field 'more'"),
        ({"quantization": {"activations": 8}}, "'quantization' lacks the field 'images'"),
        ({"color": "red"}, "unknown field 'color'"),
    ],
)
def test_refuses(changes: dict[str, object], message: str) -> None:
    with pytest.raises(KitError, match=message) as caught:
        Manifest.from_json(edited(**changes), "k/manifest.json")
    assert "k/manifest.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_not_json(text: bytes) -> None:
    with pytest.raises(KitError, match="JSON"):
        Manifest.from_json(text)


def test_contradictions_are_found_without_a_file() -> None:
    manifest = TinyKit().manifest()
    with pytest.raises(KitError, match="names a tensor twice"):
        replace(manifest, statistics=(TensorSpec("scale", ()),))


def test_the_page_on_the_kit_lists_every_field() -> None:
    page = Path(__file__).parents[2] / "docs" / "kit.md"
    section = page.read_text(encoding="utf-8").split("## The manifest")[1].split("\n## ")[0]
    columns = [row.split("|")[1] for row in re.findall(r"^\| `.*$", section, re.M)]
    listed = [name for column in columns for name in re.findall(r"`(\w+)`", column)]
    assert sorted(listed) == sorted(field.name for field in fields(Manifest))
    assert f"version of these fields, {SCHEMA};" in section


def test_shapes_follow_the_number_of_classes() -> None:
    shapes = TinyKit().manifest().shapes(7)
    assert shapes == {
        "fc.weight": (7, 6),
        "fc.bias": (7,),
        "scale": (),
        "norm.running_mean": (6,),
    }


def test_a_mask_is_scaled_and_the_generator_decides_it() -> None:
    spec = MaskSpec("mask", (200, 50), 0.8)
    mask = spec.draw(np.random.default_rng(3))
    assert mask.shape == spec.shape
    assert mask.dtype == np.float32
    assert set(np.unique(mask)) == {np.float32(0), np.float32(1.25)}
    assert abs(float(mask.mean()) - 1) < 0.02
    assert np.array_equal(mask, spec.draw(np.random.default_rng(3)))


@pytest.mark.parametrize("keep", [0, -0.5, 1.01, float("nan")])
def test_a_mask_keeps_some_elements_and_not_more_than_all(keep: float) -> None:
    with pytest.raises(KitError, match=f"mask has keep={keep}, which must be above 0 and up to 1"):
        MaskSpec("mask", (2,), keep)


def test_a_mask_that_keeps_everything_is_of_ones() -> None:
    assert MaskSpec("mask", (3, 2), 1.0).draw(np.random.default_rng(0)).tolist() == [[1, 1]] * 3


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"activations": 32}, "weights in 8 bits"),
        ({"activations": 8}, "weights and activations in 8 bits"),
        (
            {"activations": 8, "layers": 9, "float_layers": 2},
            "weights and activations in 8 bits, 2 of 9 layers in 32",
        ),
        (
            {"activations": 8, "error": 0.071, "accuracy": 0.9},
            "weights and activations in 8 bits, features off by 7.1%",
        ),
        (
            {"activations": 8, "error": 0.0, "accuracy": 0.9, "float_accuracy": 0.925},
            "weights and activations in 8 bits, features off by 0.0%, "
            "nearest-centroid accuracy 90.0% (float32 92.5%)",
        ),
    ],
)
def test_a_quantization_in_words(facts: dict, text: str) -> None:
    assert str(Quantization(**facts)) == text


@pytest.mark.parametrize("name", ["error", "accuracy", "float_accuracy"])
def test_figures_of_a_quantization_are_not_negative(name: str) -> None:
    Quantization(activations=8, **{name: 0.0})
    with pytest.raises(KitError, match=f"{name}=-0.1 must not be below 0"):
        Quantization(activations=8, **{name: -0.1})


class TestImagesAtOnce:
    """The frozen part takes as many images as keep its tensors within 4 MiB."""

    @staticmethod
    def at_once(memory: int, batch: int = 8) -> int:
        manifest = replace(TinyKit().manifest(), batch=batch, micro_batch=batch)
        features = replace(manifest.graphs["features"], memory=memory)
        graphs = {**manifest.graphs, "features": features}
        return replace(manifest, graphs=graphs).images_at_once

    @pytest.mark.parametrize(
        ("memory", "images"),
        [(0, 8), (1, 8), (2**19, 8), (2**19 + 1, 7), (2**21, 2), (2**22, 1), (2**30, 1)],
    )
    def test_it_is_the_largest_number_that_fits(self, memory: int, images: int) -> None:
        assert self.at_once(memory) == images

    def test_it_is_never_more_than_the_batch(self) -> None:
        assert self.at_once(1, batch=3) == 3

    def test_without_a_frozen_part_it_is_one(self) -> None:
        assert TinyKit(frozen_part=False).manifest().images_at_once == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"std": (0.2, 0.0, 0.2)}, "standard deviation of 0.0, which must be above 0"),
        ({"files": {"virus.exe": "0"}}, "lists 'virus.exe' under 'files'"),
        ({"graphs": {}}, "lists the graphs none where the kit has features, predict, step"),
        ({"features": None}, "lists the graphs features, predict, step where .* predict, step$"),
        ({"parameters": ()}, "names fc.weight as part of the head, which is not among"),
    ],
)
def test_a_contradiction_is_a_sentence(changes: dict[str, object], message: str) -> None:
    with pytest.raises(KitError, match=f"the manifest .*{message}"):
        replace(TinyKit().manifest(), **changes)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ({"name": "blocks", "blocks": 3}, "blocks"),
        ({"name": "sum", "methods": [{"name": "blocks"}, {"name": "signed"}]}, "blocks+signed"),
        ({"name": "sum", "methods": "blocks"}, "sum"),
    ],
)
def test_the_name_of_a_sum_is_that_of_its_methods(method: dict[str, object], name: str) -> None:
    assert Manifest.from_json(edited(method=method)).method_name == name
