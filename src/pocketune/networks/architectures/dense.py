"""Networks that classify pixels (segmentation): a backbone, a decode head and a classifier."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional

from pocketune.networks.architectures.backbone import Backbone, Taps, last, stages_of
from pocketune.networks.architectures.parts import ConvNormActivation, initialize
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import make_network


class DecodeHead(nn.Module):
    """Makes one feature map (N, `channels`, h, w) of the backbone's, one argument each."""

    channels: int


HeadMaker = Callable[[Sequence[int], int], DecodeHead]
"""Makes a head from the channels of the maps that it reads, and its own number of channels."""


class DenseNetwork(nn.Module):
    """`backbone`, `decode_head` and `classifier`; the logits have the head's resolution.

    Args:
        backbone: Gives the maps that the head reads.
        decode_head: Its output is what the classifier reads.
        classes: Logits of each pixel.
        dropout: Between head and classifier, if there is one.
    """

    def __init__(
        self,
        backbone: Backbone,
        decode_head: DecodeHead,
        *,
        classes: int,
        dropout: nn.Module | None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.decode_head = decode_head
        before = [] if dropout is None else [dropout]
        self.classifier = nn.Sequential(*before, nn.Conv2d(decode_head.channels, classes, 1))
        initialize(decode_head)
        initialize_output(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes, h, w), not resized."""
        logits: Tensor = self.classifier(self.decode_head(*self.backbone(x)))
        return logits


def initialize_output(network: DenseNetwork) -> None:
    """Classifier: weights normal with a deviation of 0.01, bias 0, as in MMSegmentation."""
    conv = network.classifier[-1]
    assert isinstance(conv, nn.Conv2d)
    assert conv.bias is not None
    if conv.weight.is_meta:  # as in `initialize`
        return
    nn.init.normal_(conv.weight, std=0.01)
    nn.init.zeros_(conv.bias)


def backbone_config(config: NetworkConfig) -> NetworkConfig:
    """The config of the network that classifies images, from which the backbone is taken."""
    return NetworkConfig(
        config.backbone or "",
        width=config.width,
        padding=config.padding,
        output_stride=config.output_stride,
        norm=config.norm,
        standardized=config.standardized,
        subnet=config.subnet,
        depth=config.depth,
    )


def dense_network(
    config: NetworkConfig,
    make_head: HeadMaker,
    *,
    taps: Taps = last,
    feature_fusion: bool = False,
    dropout: nn.Module | None = None,
) -> DenseNetwork:
    """Put a network together.

    Args:
        config: With backbone, head channels and output stride.
        make_head: Makes the decode head.
        taps: Chooses the maps that it reads.
        feature_fusion: Whether the backbone keeps its feature-fusion layer, if it has one.
        dropout: Between head and classifier.

    Raises:
        PocketuneError: The backbone does not exist with these options, or cannot be one.
    """
    source = make_network(backbone_config(config))
    stages = stages_of(source, feature_fusion=feature_fusion, first_blocks=config.first_blocks)
    backbone = Backbone(stages, [stage.name for stage in taps(stages)])
    assert config.head_channels is not None
    head = make_head(backbone.channels, config.head_channels)
    return DenseNetwork(backbone, head, classes=config.classes, dropout=dropout)


def resized(x: Tensor, like: Tensor) -> Tensor:
    """A map (N, C, H, W) in the height and width of another, bilinear with corners not aligned."""
    y: Tensor = functional.interpolate(x, size=like.shape[2:], mode="bilinear", align_corners=False)
    return y


def head_layer(
    inputs: int, outputs: int, kernel: int = 1, *, dilation: int = 1
) -> ConvNormActivation:
    """Convolution that keeps the size, batch norm and ReLU."""
    return ConvNormActivation(inputs, outputs, kernel, dilation=dilation, activation=nn.ReLU)
