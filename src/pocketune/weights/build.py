"""A network from its description, with the hidden channels and side branches that it records."""

from torch import nn

from pocketune.layers import LiteResidual
from pocketune.networks.anatomy.modules import Factory
from pocketune.networks.architectures.parts import initialize
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import make_network
from pocketune.surgery.branch import add_branches
from pocketune.surgery.channels import narrow


def build(config: NetworkConfig) -> nn.Module:
    """The network that `config` describes, randomly initialized.

    Raises:
        PocketuneError: for an unknown name, an option which this network does not have, or
            `hidden` channels which its blocks cannot have.
    """
    network = make_network(config)
    if config.hidden:
        narrow(network, config.hidden)
        initialize(network)
    add_branches(network, {block: _lite_residual(**a) for block, a in config.branches.items()})
    return network


def _lite_residual(**arguments: int) -> Factory:
    return lambda _: LiteResidual(**arguments)
