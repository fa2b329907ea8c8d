"""What the compiler writes about an adapted network."""

import numpy as np
import pytest

from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.manifest import graph_spec, parameter_specs
from pocketune.compiler.passes.blocked import DEPTHWISE
from pocketune.compiler.passes.liveness import Liveness
from pocketune.methods import Method, RepNet, TinyTL, TopBlocks, adapt
from pocketune.weights import create_network

OUTPUT = ("classifier.1.weight", "classifier.1.bias")


@pytest.mark.parametrize(
    ("method", "groups"),
    [
        (TopBlocks(blocks=1), {"main", "head"}),
        (RepNet(), {"branch", "head"}),
        (TinyTL(), {"main", "branch", "head"}),
    ],
    ids=["blocks", "repnet", "tinytl"],
)
def test_parameters_are_grouped(method: Method, groups: set[str]) -> None:
    network = adapt(create_network("mobilenet_v2", width=0.35, classes=3), method)
    specs = {spec.name: spec for spec in parameter_specs(network, OUTPUT)}
    trained = {name: p.shape for name, p in network.named_parameters() if p.requires_grad}
    assert {name: spec.shape for name, spec in specs.items()} == trained
    assert {spec.group for spec in specs.values()} == groups
    for name, spec in specs.items():
        assert (spec.group == "branch") == (".branch." in name)
        assert (spec.group == "head") == (name in OUTPUT)


def test_only_the_step_has_copies_in_blocks() -> None:
    """The runtime makes the blocks of another graph itself, from constant kernels."""
    b, shape = GraphBuilder(), (1, 64, 40, 40)
    kernel = b.constant(np.ones((64, 1, 3, 3), np.float32))
    kept = b.add("Neg", b.input("x", FLOAT, shape))
    conv = b.add("Conv", kept, kernel, hint=DEPTHWISE, group=64, pads=[1] * 4)
    b.emit(kept, "kept", FLOAT, shape)
    b.emit(conv, "y", FLOAT, shape)
    model = b.model("test")
    liveness = Liveness.of(model, {})
    features, step = (
        graph_spec(model, {}, liveness, optimized=optimized) for optimized in (True, False)
    )
    assert features.arena == 2 * 4 * 64 * 40**2
    assert step.arena == 3 * 4 * 64 * 40**2


@pytest.mark.parametrize(
    ("bias", "side", "largest"),
    [("none", 8, "kernel"), ("constant", 8, "kernel"), ("trained", 8, ""), ("trained", 1, "scale")],
)
def test_kernels_below_a_trained_bias_keep_their_layout(bias: str, side: int, largest: str) -> None:
    """The runtime converts a kernel when it opens a graph if kernel and bias are constants."""
    b = GraphBuilder()
    kernel, scale = np.ones((32, 32, side, side), np.float32), np.full((1, 32, 1, 1), 2, np.float32)
    inputs = [b.input("x", FLOAT, (1, 32, 8, 8)), b.constant(kernel)]
    if bias == "constant":
        inputs.append(b.constant(np.ones(32, np.float32)))
    if bias == "trained":
        inputs.append(b.input("bias", FLOAT, (32,)))
    scaled = b.add("Mul", b.add("Conv", *inputs), b.constant(scale))
    b.emit(scaled, "y", FLOAT, (1, 32, 9 - side, 9 - side))
    model = b.model("test")
    spec = graph_spec(model, {}, Liveness.of(model, {}), optimized=True)
    expected = {"kernel": kernel.nbytes, "scale": scale.nbytes, "": 0}[largest]
    assert expected <= spec.largest <= (expected and expected + 99)  # with its name and shape
    assert spec.weights > kernel.nbytes + scale.nbytes
