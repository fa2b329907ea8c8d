"""Small networks with the modules and names of timm's, which cannot be imported everywhere."""

from torch import nn
from torch.nn import functional as F


class BatchNormAct2d(nn.BatchNorm2d):
    """timm's fused norm and activation: the activation is a child of the norm."""

    def __init__(self, channels, act=nn.ReLU6, eps=1e-5):
        super().__init__(channels, eps=eps)
        self.drop = nn.Identity()
        self.act = act() if act else nn.Identity()

    def forward(self, x):
        return self.act(self.drop(super().forward(x)))


class Conv2dSame(nn.Conv2d):
    """timm's convolution with TensorFlow's padding."""

    def forward(self, x):
        pads = []
        for size, kernel, stride in zip(
            reversed(x.shape[2:]), reversed(self.kernel_size), reversed(self.stride), strict=True
        ):
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads))


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, squeezed, 1)
        self.act1 = nn.ReLU()
        self.conv_expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x):
        y = self.conv_reduce(x.mean((2, 3), keepdim=True))
        return x * self.gate(self.conv_expand(self.act1(y)))


def conv(inputs, outputs, kernel=1, stride=1, groups=1, same=False):
    kind, padding = (Conv2dSame, 0) if same and stride > 1 else (nn.Conv2d, kernel // 2)
    return kind(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)


class DepthwiseSeparableConv(nn.Module):
    def __init__(self, inputs, outputs, *, kernel=3, stride=1, act=nn.ReLU6, squeezed=0, **options):
        super().__init__()
        self.has_skip = stride == 1 and inputs == outputs
        self.conv_dw = conv(inputs, inputs, kernel, stride, inputs, options.get("same", False))
        self.bn1 = BatchNormAct2d(inputs, act, options.get("eps", 1e-5))
        self.se = SqueezeExcite(inputs, squeezed) if squeezed else nn.Identity()
        self.conv_pw = conv(inputs, outputs)
        self.bn2 = BatchNormAct2d(outputs, None, options.get("eps", 1e-5))
        self.drop_path = nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv_pw(self.se(self.bn1(self.conv_dw(x)))))
        return x + self.drop_path(y) if self.has_skip else y


class InvertedResidual(nn.Module):
    def __init__(
        self, inputs, middle, outputs, *, kernel=3, stride=1, act=nn.ReLU6, squeezed=0, **options
    ):
        super().__init__()
        eps = options.get("eps", 1e-5)
        self.has_skip = stride == 1 and inputs == outputs
        self.conv_pw = conv(inputs, middle)
        self.bn1 = BatchNormAct2d(middle, act, eps)
        self.conv_dw = conv(middle, middle, kernel, stride, middle, options.get("same", False))
        self.bn2 = BatchNormAct2d(middle, act, eps)
        self.aa = nn.Identity()
        self.se = SqueezeExcite(middle, squeezed) if squeezed else nn.Identity()
        self.conv_pwl = conv(middle, outputs)
        self.bn3 = BatchNormAct2d(outputs, None, eps)
        self.drop_path = nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv_dw(self.bn1(self.conv_pw(x))))
        y = self.bn3(self.conv_pwl(self.se(self.aa(y))))
        return x + self.drop_path(y) if self.has_skip else y


class EdgeResidual(nn.Module):
    """EfficientNetV2's fused block, which is none of the three kinds."""

    def __init__(self, inputs, middle, outputs):
        super().__init__()
        self.conv_exp = conv(inputs, middle, 3)
        self.bn1 = BatchNormAct2d(middle)
        self.conv_pwl = conv(middle, outputs)
        self.bn2 = BatchNormAct2d(outputs, None)

    def forward(self, x):
        return self.bn2(self.conv_pwl(self.bn1(self.conv_exp(x))))


class MobileNetV2(nn.Module):
    """`mobilenetv2_100`, in any width that our own network has too."""

    STAGES = ((6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2))

    def __init__(self, *, classes=10, eps=1e-5, same=False):
        super().__init__()
        options = {"eps": eps, "same": same}
        self.conv_stem = conv(3, 32, 3, 2, same=same)
        self.bn1 = BatchNormAct2d(32, eps=eps)
        stages = [nn.Sequential(DepthwiseSeparableConv(32, 16, **options))]
        inputs = 16
        for expansion, channels, depth, first in (*self.STAGES, (6, 320, 1, 1)):
            blocks = []
            for index in range(depth):
                stride = first if index == 0 else 1
                middle = inputs * expansion
                blocks.append(InvertedResidual(inputs, middle, channels, stride=stride, **options))
                inputs = channels
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = conv(320, 1280)
        self.bn2 = BatchNormAct2d(1280, eps=eps)
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(1280, classes)

    def forward(self, x):
        x = self.bn2(self.conv_head(self.blocks(self.bn1(self.conv_stem(x)))))
        return self.classifier(self.global_pool(x).flatten(1))


class ConvBnAct(nn.Module):
    def __init__(self, inputs, outputs, act):
        super().__init__()
        self.conv = conv(inputs, outputs)
        self.bn1 = BatchNormAct2d(outputs, act)

    def forward(self, x):
        return self.bn1(self.conv(x))


class MobileNetV3(nn.Module):
    """`mobilenetv3_small_100`: the hidden layer of its classifier is a convolution."""

    ROWS = (  # middle, channels, kernel, stride, squeezed, hard swish
        (72, 24, 3, 2, 0, False),
        (88, 24, 3, 1, 0, False),
        (96, 40, 5, 2, 24, True),
        (240, 40, 5, 1, 64, True),
        (240, 40, 5, 1, 64, True),
        (120, 48, 5, 1, 32, True),
        (144, 48, 5, 1, 40, True),
        (288, 96, 5, 2, 72, True),
        (576, 96, 5, 1, 144, True),
        (576, 96, 5, 1, 144, True),
    )

    def __init__(self, classes=10):
        super().__init__()
        self.conv_stem = conv(3, 16, 3, 2)
        self.bn1 = BatchNormAct2d(16, nn.Hardswish)
        first = DepthwiseSeparableConv(16, 16, stride=2, act=nn.ReLU, squeezed=8)
        stages = [nn.Sequential(first)]
        inputs = 16
        for middle, outputs, kernel, stride, squeezed, swish in self.ROWS:
            act = nn.Hardswish if swish else nn.ReLU
            block = InvertedResidual(
                inputs, middle, outputs, kernel=kernel, stride=stride, act=act, squeezed=squeezed
            )
            stages.append(nn.Sequential(block))
            inputs = outputs
        stages.append(nn.Sequential(ConvBnAct(96, 576, nn.Hardswish)))
        self.blocks = nn.Sequential(*stages)
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.conv_head = nn.Conv2d(576, 1024, 1)
        self.act2 = nn.Hardswish()
        self.flatten = nn.Flatten(1)
        self.classifier = nn.Linear(1024, classes)

    def forward(self, x):
        x = self.global_pool(self.blocks(self.bn1(self.conv_stem(x))))
        return self.classifier(self.flatten(self.act2(self.conv_head(x))))


class Bottleneck(nn.Module):
    """timm's, with an activation for each convolution and squeeze-excite behind the last norm."""

    def __init__(self, inputs, channels, stride=1):
        super().__init__()
        outputs = 4 * channels
        self.conv1 = conv(inputs, channels)
        self.bn1 = nn.BatchNorm2d(channels)
        self.act1 = nn.ReLU()
        self.conv2 = conv(channels, channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.drop_block = nn.Identity()
        self.act2 = nn.ReLU()
        self.conv3 = conv(channels, outputs)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.se = SqueezeExcite(outputs, 8)
        self.act3 = nn.ReLU()
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.AvgPool2d(stride), conv(inputs, outputs), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = self.act1(self.bn1(self.conv1(x)))
        y = self.act2(self.drop_block(self.bn2(self.conv2(y))))
        y = self.se(self.bn3(self.conv3(y)))
        return self.act3(y + (x if self.downsample is None else self.downsample(x)))


class SEResNet(nn.Module):
    """As `seresnet50d`: a stem of three convolutions, and pooling in the shortcuts."""

    def __init__(self, classes=10):
        super().__init__()
        stem = []
        for inputs, outputs, stride in ((3, 16, 2), (16, 16, 1)):
            stem += [conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.conv1 = nn.Sequential(*stem, conv(16, 32, 3))
        self.bn1 = nn.BatchNorm2d(32)
        self.act1 = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Bottleneck(32, 16), Bottleneck(64, 16))
        self.layer2 = nn.Sequential(Bottleneck(64, 32, 2))
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(128, classes)

    def forward(self, x):
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        return self.fc(self.global_pool(self.layer2(self.layer1(x))).flatten(1))


def pooling_network(classes=3):
    """Its blocks stride by pooling, as with timm's `aa_layer`, and its stem does not pad."""
    block = InvertedResidual(8, 24, 16)
    block.aa = nn.AvgPool2d(2)
    last = InvertedResidual(16, 48, 16, stride=2)
    last.aa = nn.MaxPool2d(3, 2)
    blocks = nn.Sequential(DepthwiseSeparableConv(8, 8), block, InvertedResidual(16, 48, 16), last)
    stem = (nn.Conv2d(3, 8, 3, 2, bias=False), BatchNormAct2d(8))
    return nn.Sequential(
        *stem, blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes)
    )
