"""Small ONNX files, as exporters write them."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

SIZE, CLASSES = 32, 7
HEAD = {"w": np.ones((3, 2), np.float32), "zero": np.float32(0), "one": np.float32(1)}


def exported(
    network: nn.Module, path: Path, *, opset: int = 17, batch: str | None = "n", size: int = SIZE
) -> Path:
    """A file of PyTorch's exporter, with the norms as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter without onnxscript is deprecated
        torch.onnx.export(
            network.eval(),
            (torch.zeros(1, 3, size, size),),
            path,
            dynamo=False,
            opset_version=opset,
            input_names=["images"],
            dynamic_axes=None if batch is None else {"images": {0: batch}},
        )
    return path


def dynamo_exported(
    network: nn.Module, path: Path, *, opset: int, images: int | None = 2, size: int = SIZE
) -> Path:
    """A file of PyTorch's other exporter, with a dynamic batch; fixed if `images` is None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            (torch.zeros(images or 1, 3, size, size),),
            path,
            dynamo=True,
            opset_version=opset,
            verbose=False,
            dynamic_shapes=None if images is None else ({0: "batch"},),
        )
    return path


def folded(path: Path, out: Path) -> Path:
    """The file with every batch norm folded into the convolution before it."""
    model = onnx.load(path)
    graph = model.graph
    tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    made = {node.output[0]: node for node in graph.node}
    for norm in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        conv = made[norm.input[0]]
        scale, bias, mean, variance = (tensors[name] for name in norm.input[1:])
        (eps,) = (a.f for a in norm.attribute if a.name == "epsilon")
        factor = scale / np.sqrt(variance + eps)
        kernel = tensors[conv.input[1]] * factor[:, None, None, None]
        name = f"{conv.input[1]}/folded"
        conv.input[1:] = [name, f"{name}/bias"]
        for key, value in ((name, kernel), (f"{name}/bias", bias - mean * factor)):
            graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), key))
        conv.output[0] = norm.output[0]
        graph.node.remove(norm)
    onnx.save(model, out)
    return out


def written(
    path: Path,
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    *,
    shape: tuple[int | str, ...] = ("n", 3, 8, 8),
    outputs: tuple[str, ...] = ("y",),
    opset: int = 18,
    element: int = TensorProto.FLOAT,
) -> Path:
    """A file of these nodes, from the images `x`."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (None, None)) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def drawn(network: nn.Module) -> nn.Module:
    """With norms that are not the identity."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            for tensor in (module.running_mean, module.bias, module.weight):
                nn.init.normal_(tensor, 1.0 if tensor is module.weight else 0.0, 0.1)
    return network


def head(given: str) -> list[onnx.NodeProto]:
    """Nodes of a classifier of maps, whose constants are `HEAD`."""
    return [
        helper.make_node("GlobalAveragePool", [given], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w"], ["y"]),
    ]


def images(count: int = 3) -> torch.Tensor:
    """Normalized images (count, 3, SIZE, SIZE)."""
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare outputs, by the largest of them."""
    torch.testing.assert_close(
        found, expected, rtol=1e-3, atol=1e-4 * float(expected.detach().abs().max())
    )
