"""OpenVINO computes every graph, on processors of Intel and ARM."""

import io

import pytest

from .cases import NAMES, case

openvino = pytest.importorskip("openvino", reason="install the extra `portability`")


@pytest.mark.parametrize("name", NAMES)
def test_every_graph(name: str) -> None:
    made, core = case(name), openvino.Core()
    for graph, model in made.models.items():
        read = core.read_model(io.BytesIO(model.SerializeToString()))
        read.reshape({key: array.shape for key, array in made.feeds[graph].items()})
        compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        values = compiled(made.feeds[graph])
        made.check(graph, {name: values[name] for name in made.expected[graph]})
