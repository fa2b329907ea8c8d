"""The manifest of a kit, from the network, its method and its graphs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx
from torch import nn

import pocketune
from pocketune.compiler.capture.trace import running_statistics, trained_parameters
from pocketune.compiler.graphs import Graphs
from pocketune.compiler.passes.arena import arena_bytes, integer_scratch
from pocketune.compiler.passes.blocked import arena_in_blocks, padded_liveness
from pocketune.compiler.passes.liveness import Liveness, fused
from pocketune.compiler.passes.sizes import graph_flops
from pocketune.compiler.passes.work import graph_work
from pocketune.compiler.settings import CompileSettings
from pocketune.kit.manifest import (
    GraphSpec,
    Group,
    Manifest,
    MaskSpec,
    ParameterSpec,
    Quantization,
    TensorSpec,
)
from pocketune.methods import method_to_dict
from pocketune.networks import about, name_of
from pocketune.networks.anatomy.anatomy import in_decode_head
from pocketune.networks.anatomy.modules import main_modules

_FEW = 0.01
"""Share of constants that may be copied to another layout without being counted."""


def describe(
    network: nn.Module,
    graphs: Graphs,
    settings: CompileSettings,
    *,
    masks: tuple[MaskSpec, ...],
    quantization: Quantization | None,
) -> Manifest:
    """The manifest of a kit of these graphs, which are not changed."""
    return Manifest(
        version=pocketune.__version__,
        network=_network(network),
        method=_method(network),
        task=settings.task,
        size=settings.size,
        mean=about(network).normalization.mean,
        std=about(network).normalization.std,
        batch=settings.batch,
        micro_batch=settings.batch,
        features=graphs.features_shape,
        embeddings=graphs.embeddings,
        parameters=tuple(parameter_specs(network, settings.task.head)),
        statistics=tuple(
            TensorSpec(name, tuple(tensor.shape))
            for name, tensor in running_statistics(network).items()
        ),
        masks=masks,
        graphs={
            name: graph_spec(model, sizes, Liveness.of(model, sizes), optimized=name != "step")
            for name, model, sizes in graphs.sized(settings)
        },
        quantization=quantization,
    )


def with_quantized_features(
    manifest: Manifest, features: onnx.ModelProto, quantization: Quantization
) -> Manifest:
    """The manifest with a frozen part that computes with integers; its FLOPs stay the same."""
    sizes = {"N": 1}
    liveness = fused(features, sizes)
    spec = graph_spec(features, sizes, liveness, optimized=True)
    spec = replace(spec, flops=manifest.graphs["features"].flops)
    quantized = replace(
        manifest, graphs={**manifest.graphs, "features": spec}, quantization=quantization
    )
    # The images that are processed at once share the scratch of a convolution.
    scratch = integer_scratch(features, liveness) // quantized.images_at_once
    spec = replace(spec, arena=arena_bytes(liveness, features.graph.node) + scratch)
    return replace(quantized, graphs={**quantized.graphs, "features": spec})


def graph_spec(
    model: onnx.ModelProto, sizes: Mapping[str, int], liveness: Liveness, *, optimized: bool
) -> GraphSpec:
    """The manifest's entry for a graph with these lifetimes; the rest is as in `graph_work`.

    The arena of a graph that is executed as written, the step, is the larger one of the graph and
    of its copy with blocked convolutions. The runtime itself brings the others into blocks.
    """
    nodes = model.graph.node
    return GraphSpec(
        memory=liveness.peak(nodes),
        flops=graph_flops(model, sizes),
        nodes=len(nodes),
        weights=sum(tensor.ByteSize() for tensor in model.graph.initializer),
        largest=_largest_copied(model.graph),
        work=graph_work(model, sizes, optimized=optimized),
        arena=arena_bytes(padded_liveness(model, liveness), nodes)
        if optimized
        else arena_in_blocks(model, liveness),
    )


def _largest_copied(graph: onnx.GraphProto) -> int:
    """Bytes of the largest constant that is copied to another layout when a graph is opened.

    The runtime leaves the kernels of convolutions as they are if the bias is not a constant, as a
    trained one. The result is 0 if nearly all constants are such kernels.
    """
    sizes = {tensor.name: tensor.ByteSize() for tensor in graph.initializer}
    kernels = {
        node.input[1]
        for node in graph.node
        if node.op_type == "Conv" and len(node.input) == 3 and node.input[2] not in sizes
    }
    copied = [size for name, size in sizes.items() if name not in kernels]
    return max(copied, default=0) if sum(copied) > _FEW * sum(sizes.values()) else 0


def _network(network: nn.Module) -> dict[str, Any]:
    """The config that rebuilds a network of ours; for a foreign network, only its name."""
    config = about(network).config
    return config.to_dict() if config is not None else {"name": name_of(network)}


def _method(network: nn.Module) -> dict[str, Any]:
    method = about(network).method
    return method_to_dict(method) if method is not None else {"name": "custom"}


def parameter_specs(network: nn.Module, head: Sequence[str]) -> Iterator[ParameterSpec]:
    """The trained parameters, each with its group."""
    main = {
        f"{path}.{name}" if path else name
        for path, module in main_modules(network)
        for name, _ in module.named_parameters(recurse=False)
    }
    random = about(network).random_decode_head
    for name, tensor in trained_parameters(network).items():
        group: Group = "branch"
        if name in head:
            group = "head"
        elif name in main:
            group = "decode_head" if random and in_decode_head(name) else "main"
        yield ParameterSpec(name, tuple(tensor.shape), group)
