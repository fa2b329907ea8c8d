"""What a kit's manifest tells of the network, its method and its graphs."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

import pocketune
from pocketune.compiler.capture.trace import running_statistics, trained_parameters
from pocketune.compiler.cost import graph_flops
from pocketune.compiler.graphs import Graphs
from pocketune.compiler.settings import CompileSettings
from pocketune.kit.manifest import ClassifierSpec, Manifest, NoiseSpec, Quantization, TensorSpec
from pocketune.methods import method_to_dict
from pocketune.networks import about


def describe(
    network: nn.Module,
    graphs: Graphs,
    settings: CompileSettings,
    *,
    memory: dict[str, int],
    noise: tuple[NoiseSpec, ...],
    classifier: ClassifierSpec,
    quantization: Quantization | None,
) -> Manifest:
    """The manifest of a kit of these graphs, which are left as they are.

    `memory` is as `optimize` tells; everything else is as of `compile` and `Manifest`.
    """
    return Manifest(
        version=pocketune.__version__,
        network=_network(network),
        method=_method(network),
        classes=settings.classes,
        size=settings.size,
        mean=about(network).normalization.mean,
        std=about(network).normalization.std,
        batch=settings.batch,
        label_smoothing=settings.label_smoothing,
        features=graphs.features_shape,
        parameters=_specs(trained_parameters(network)),
        statistics=_specs(running_statistics(network)),
        noise=noise,
        classifier=classifier,
        memory=memory,
        flops={name: graph_flops(model, sizes) for name, model, sizes in graphs.sized(settings)},
        loss=settings.loss,
        quantization=quantization,
    )


def _network(network: nn.Module) -> dict[str, Any]:
    """A network of ours can be built again from it; of a foreign one it is the name alone."""
    config = about(network).config
    return config.to_dict() if config is not None else {"name": type(network).__name__}


def _method(network: nn.Module) -> dict[str, Any]:
    method = about(network).method
    return method_to_dict(method) if method is not None else {"name": "custom"}


def _specs(tensors: Mapping[str, Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, tuple(tensor.shape)) for name, tensor in tensors.items())
