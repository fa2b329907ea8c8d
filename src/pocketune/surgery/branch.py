"""Attach side branches to blocks."""

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

_IMAGE, _WAITS = "image_to_read", "waits_for_its_block"


def add_branches(network: nn.Module, factories: Mapping[str, Factory]) -> None:
    """Add side branches to blocks of `network`, in place.

    A block then computes `block(x) + block.branch(x)`. Its own tensors keep their names, and
    `anatomy` ignores the branch. A branch with `reads_image = True` reads the network's input
    instead of the block's. A branch with `resizes = True` takes the height and width of the block's
    output as `size`: they do not follow from the strides of a block that pools.

    Args:
        network: Any module.
        factories: By the name of the block; each makes the branch from its block. The branch takes
            over the block's mode, device and type.

    Raises:
        AttributeError: The network has no module of that name.
        PocketuneError: A block has a branch already, or is an `nn.Sequential`; or a factory makes
            no module.
    """
    for name, factory in factories.items():
        block = network.get_submodule(name)
        if hasattr(block, BRANCH):
            raise PocketuneError(
                f"block {name} has a side branch already; start from a network without one"
            )
        if type(block).forward is nn.Sequential.forward:
            raise PocketuneError(
                f"block {name} is an nn.Sequential, which would run its branch as another "
                "layer; give the block a forward method"
            )
        branch = checked(factory)(block).train(block.training)
        # some blocks have no parameters, such as a pooling or only int8 kernels
        like = next(chain(block.parameters(), network.parameters()), None)
        if like is not None:
            branch.to(like)
        set_about(branch, is_side_branch=True)
        branch.register_forward_pre_hook(_refuse_inside)
        _attach(branch, block)
        if reads_image(branch):
            network.register_forward_pre_hook(_show_image, with_kwargs=True)


def checked(factory: Factory) -> Factory:
    """The factory, whose result must be a module."""

    def make(old: nn.Module) -> nn.Module:
        made: object = factory(old)
        if not isinstance(made, nn.Module):
            raise PocketuneError(
                f"the factory for this {type(old).__name__} returned {made!r}; return the module "
                "that takes its place or stands beside it"
            )
        return made

    return make


def replace_beside_branch(block: nn.Module, factory: Factory) -> nn.Module:
    """The replacement that `factory` makes of a block, with the block's branch if it has one."""
    branch: nn.Module | None = getattr(block, BRANCH, None)
    if branch is None:
        return factory(block)
    delattr(block, BRANCH)
    made = factory(block)
    _attach(branch, made)
    return made


def move_hooks(block: nn.Module, made: nn.Module) -> None:
    """Move the call hooks of `block`, except its branch's, to `made`.

    If `made` calls `block`, they still run once.
    """
    if made is block:
        return
    for kind in _HOOKS:
        moved, own = vars(block)[kind], vars(made)[kind]
        for key in [key for key, hook in moved.items() if hook in (_hold_branch, _add_branch)]:
            del moved[key]
        moved.update(own)  # the branch's hooks come last
        vars(made)[kind], vars(block)[kind] = moved, OrderedDict()
    made._is_full_backward_hook = block._is_full_backward_hook
    block._is_full_backward_hook = None


def _attach(branch: nn.Module, block: nn.Module) -> None:
    block.add_module(BRANCH, branch)
    block.register_forward_pre_hook(_hold_branch)
    block.register_forward_hook(_add_branch)


def _hold_branch(block: nn.Module, _: tuple[Any, ...]) -> None:
    """Hook of a block before it runs: its branch waits until the block is done."""
    branch: nn.Module | None = getattr(block, BRANCH, None)
    if branch is not None:
        vars(branch)[_WAITS] = True


def _refuse_inside(branch: nn.Module, _: tuple[Any, ...]) -> None:
    """Hook of a branch before it runs: a block must not run it as one of its own layers."""
    if vars(branch).get(_WAITS, False):
        raise PocketuneError(
            "a block with a side branch runs every module inside it, and so the branch, as another "
            "layer; name the layers in the block's forward method"
        )


def _add_branch(block: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    branch: nn.Module | None = getattr(block, BRANCH, None)
    if branch is None:  # the branch has moved to the block's replacement
        return output
    vars(branch)[_WAITS] = False
    x = _image(branch) if reads_image(branch) else inputs[0]
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
    """Store the image for the branches that read it.

    The hook holds no module, so the branches of a copied network read the copy's images.
    """
    for module in network.modules():
        if reads_image(module):
            vars(module)[_IMAGE] = inputs[0] if inputs else next(iter(named.values()))


def reads_image(branch: nn.Module) -> bool:
    """Whether a module is a side branch that reads the network's input instead of its block's."""
    return getattr(branch, "reads_image", False) is True
