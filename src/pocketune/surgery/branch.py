"""Let another module run beside a block."""

from collections import OrderedDict
from collections.abc import Mapping
from itertools import chain
from typing import Any

from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.about import set_about
from pocketune.networks.anatomy.modules import Factory

BRANCH = "branch"
"""Name of the branch inside its block, and so in the state dict."""

_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
)

_IMAGE = "image_to_read"


def add_branches(network: nn.Module, factories: Mapping[str, Factory]) -> None:
    """Add side branches to blocks of `network`, in place.

    A block then computes `block(x) + block.branch(x)`; what was there keeps its names, and
    `anatomy` does not see the branch. A branch that says `reads_image = True` is given what
    `network` itself is given, instead of the block's input. One that says `resizes = True` is told
    height and width of the block's output, as `size`: strides do not tell them where a block pools.

    Args:
        network: any module.
        factories: by the name of the block; each makes the branch from its block. The branch is
            in training or evaluation mode as the block is, on its device and of its type.

    Raises:
        AttributeError: if there is no module of that name.
        PocketuneError: if a block has a branch already, or is an `nn.Sequential`.
    """
    for name, factory in factories.items():
        block = network.get_submodule(name)
        if hasattr(block, BRANCH):
            raise PocketuneError(
                f"block {name} has a side branch already; begin with a network that has none"
            )
        if isinstance(block, nn.Sequential):
            raise PocketuneError(
                f"block {name} is an nn.Sequential, which would run its branch as a layer of its "
                "own; give the block a forward method"
            )
        branch = factory(block).train(block.training)
        # some blocks have no parameters, a pooling or kernels of int8 alone
        like = next(chain(block.parameters(), network.parameters()), None)
        if like is not None:
            branch.to(like)
        set_about(branch, is_side_branch=True)
        _attach(branch, block)
        if _reads_image(branch):
            network.register_forward_pre_hook(_show_image, with_kwargs=True)


def replace_beside_branch(block: nn.Module, factory: Factory) -> nn.Module:
    """What `factory` makes of a block, with the block's branch beside it where it has one."""
    branch: nn.Module | None = getattr(block, BRANCH, None)
    if branch is None:
        return factory(block)
    delattr(block, BRANCH)
    made = factory(block)
    _attach(branch, made)
    return made


def move_hooks(block: nn.Module, made: nn.Module) -> None:
    """Let the hooks of calls of `block`, but for its branch's, run around `made` instead.

    Where `made` calls `block`, they run once.
    """
    if made is block:
        return
    for kind in _HOOKS:
        moved, own = vars(block)[kind], vars(made)[kind]
        for key in [key for key, hook in moved.items() if hook is _add_branch]:
            del moved[key]
        moved.update(own)  # those that the branch has just been given come last
        vars(made)[kind], vars(block)[kind] = moved, OrderedDict()
    made._is_full_backward_hook = block._is_full_backward_hook
    block._is_full_backward_hook = None


def _attach(branch: nn.Module, block: nn.Module) -> None:
    block.add_module(BRANCH, branch)
    block.register_forward_hook(_add_branch)


def _add_branch(block: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    branch: nn.Module | None = getattr(block, BRANCH, None)
    if branch is None:  # it stands beside what took the block's place
        return output
    x = _image(branch) if _reads_image(branch) else inputs[0]
    size = {"size": output.shape[2:]} if getattr(branch, "resizes", False) is True else {}
    added: Tensor = output + branch(x, **size)
    return added


def _image(branch: nn.Module) -> Tensor:
    image: Tensor | None = vars(branch).pop(_IMAGE, None)
    if image is None:
        raise PocketuneError(
            "a side branch of this network reads the images: call the whole network, not a part"
        )
    return image


def _show_image(network: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Lay the image where the branches that read it will take it.

    Hooks are found by what they belong to and hold no module, so that a copy of the network has
    branches that read its own images.
    """
    for module in network.modules():
        if _reads_image(module):
            vars(module)[_IMAGE] = inputs[0] if inputs else next(iter(named.values()))


def _reads_image(branch: nn.Module) -> bool:
    return getattr(branch, "reads_image", False) is True
