"""What the compiler writes about an adapted network."""

import pytest

from pocketune.compiler.manifest import parameter_specs
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
