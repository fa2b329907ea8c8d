"""TinyTL: Reduce Memory, Not Parameters for Efficient On-Device Learning (Cai et al., 2020)."""

from collections.abc import Iterator
from functools import partial

from torch import nn

from pocketune.methods import FullFineTune, TinyTL, adapt
from pocketune.methods.parts import classifier
from pocketune.networks.anatomy.modules import is_norm
from pocketune.papers.conventions.tinytl import TinyTLMemory
from pocketune.papers.published import published_memory
from pocketune.papers.tables.settings import add_lite_residuals, shapes, training
from pocketune.papers.tables.table import About, Cell, Row, register_table
from pocketune.surgery import parameters_under

MEMORY = "memory (MB)"
PROXYLESS = "proxylessnas_mobile"
CLASSES = 102


def row(
    label: str,
    paper: float,
    network: nn.Module,
    convention: str | TinyTLMemory,
    size: int = 224,
    batch: int = 8,
) -> Row:
    """Memory, at batch 8 unless the label says otherwise."""
    ours = published_memory(network, convention, batch=batch, size=size).total_bytes
    return Row(label, {MEMORY: Cell(paper, ours / 1e6)})


@register_table(
    About(
        "tinytl-2",
        "TinyTL, table 2: ProxylessNAS-Mobile, 102 classes, batch 8",
        (MEMORY,),
        (
            "Every row has the 19 lite residual modules, trained or not.",
            'Figure 5 prints "around 16 MB" for one image, and not what they are made of.',
        ),
    )
)
def table_2() -> Iterator[Row]:
    """What is trained, by the paper's names."""

    def base() -> nn.Module:
        return add_lite_residuals(shapes(PROXYLESS, classes=CLASSES))

    norms = [name for name, module in base().named_modules() if is_norm(module)]
    last = classifier(base())
    scales_and_shifts = last | parameters_under(base(), norms)
    everything = [name for name, _ in base().named_parameters()]
    line = partial(row, convention="tinytl")
    yield line("FT-Last", 31, training(base(), last))
    yield line("TinyTL-B", 32, adapt(base(), TinyTL(lite_residual=False)))
    yield line("TinyTL-L", 37, adapt(base(), TinyTL(bias=False)))
    yield line("TinyTL-L+B", 37, adapt(base(), TinyTL()))
    yield line("TinyTL-L+B, 320 px", 65, adapt(base(), TinyTL()), size=320)
    yield line("TinyTL-L+B, batch 1 (figure 5)", 16, adapt(base(), TinyTL()), batch=1)
    yield line("FT-Norm+Last", 192, training(base(), scales_and_shifts))
    yield line("FT-Full", 391, training(base(), everything))


@register_table(
    About(
        "tinytl-3",
        "TinyTL, table 3: other networks, 102 classes, batch 8",
        (MEMORY,),
        ("ResNet-50 comes out as printed if the shortcuts are not counted.",),
    )
)
def table_3() -> Iterator[Row]:
    """The rows whose networks are to be had."""
    full = FullFineTune()
    wide = shapes("mobilenet_v2", classes=CLASSES, width=1.4)
    yield row("FT-Full MobileNetV2-1.4", 644, adapt(wide, full), "tinytl")
    resnet = adapt(shapes("resnet50", classes=CLASSES), full)
    yield row("FT-Full ResNet-50", 802, resnet, TinyTLMemory(shortcuts=False))
    tiny = adapt(shapes(PROXYLESS, classes=CLASSES), TinyTL())
    yield row("TinyTL-L+B ProxylessNAS, 320 px", 65, tiny, "tinytl", size=320)
