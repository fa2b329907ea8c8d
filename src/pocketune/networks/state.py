"""Loading a state dict by name, with an error that names the first tensor that does not fit."""

from collections.abc import Mapping

from torch import Tensor, nn

from pocketune.errors import PocketuneError

COUNTER = "num_batches_tracked"  # older files lack it, and nothing here reads it


def load_state(
    network: nn.Module, state: Mapping[str, Tensor], *, output: str, source: str
) -> None:
    """Copy `state` into `network`.

    Args:
        network: changed in place.
        state: tensors by the names of `network.state_dict()`.
        output: path of the output layer, which is left as it is where only the number of its
            classes differs.
        source: what to call the weights in an error.

    Raises:
        PocketuneError: naming the first tensor that is missing, left over or of another shape.
    """
    own = network.state_dict()
    _check_names(own, state, source)
    fitting = {}
    for name, target in own.items():
        tensor = state.get(name, target)
        if tensor.shape == target.shape:
            fitting[name] = tensor
        elif name.rpartition(".")[0] != output or tensor.shape[1:] != target.shape[1:]:
            raise PocketuneError(
                f"{source} does not fit the network: {name} has shape {tuple(tensor.shape)} "
                f"there and {tuple(target.shape)} here; check name, width and head"
            )
    network.load_state_dict(fitting, strict=False)


def _check_names(own: Mapping[str, Tensor], state: Mapping[str, Tensor], source: str) -> None:
    missing = [name for name in own if name not in state and not name.endswith(COUNTER)]
    unknown = [name for name in state if name not in own]
    if missing or unknown:
        first = f"it lacks {missing[0]}" if missing else f"{unknown[0]} is not in the network"
        raise PocketuneError(
            f"{source} does not fit the network: {first} "
            f"({len(missing)} names missing, {len(unknown)} unknown); check name and head"
        )
